/*
 * cores.c - the number of processors that the ranks of one host may use
 *
 * Called by comm when ranks join. Affinity masks limit the processors of a rank, control groups
 * their time (cpu.max; in version 1 cpu.cfs_quota_us). Users run more ranks than cores, and a rank
 * that spins on a core that its peer needs costs a thousand times the time it saves.
 */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cores.h"

/* The first number of a file, and the second unless ret_b is NULL; false: no file, or "max" */
static bool read_numbers(const char *path, long *ret_a, long *ret_b)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fscanf(f, "%ld", ret_a) == 1 && (!ret_b || fscanf(f, "%ld", ret_b) == 1);
	fclose(f);
	return ok;
}

/* The quota of one group, in whole cores rounded up; 0: unlimited, or unknown */
static uint32_t quota_of(const char *folder, bool v2)
{
	char path[2 * PATH_MAX + 32];
	long quota, period;
	bool known;

	if (v2) {
		snprintf(path, sizeof(path), "%s/cpu.max", folder);
		known = read_numbers(path, &quota, &period);
	} else {
		snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
		known = read_numbers(path, &quota, NULL);
		snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
		known = known && read_numbers(path, &period, NULL);
	}
	if (!known || quota <= 0 || period <= 0)
		return 0;
	return (uint32_t)((quota + period - 1) / period);
}

/* The least quota of a group and its ancestors: folder below the mounted root, whose name is its
 * first `top` bytes. In a container the path may be the host's, which does not exist inside: there
 * the container's own group is mounted as the root. */
static uint32_t least_up(char *folder, size_t top, bool v2)
{
	uint32_t least = 0;

	for (;;) {
		uint32_t quota = quota_of(folder, v2);
		char *slash;

		if (quota && (!least || quota < least))
			least = quota;
		slash = strrchr(folder + top, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

static bool has_cpu(const char *controllers)
{
	for (const char *p = controllers; (p = strstr(p, "cpu")); p++)
		if ((p == controllers || p[-1] == ',') && (!p[3] || p[3] == ','))
			return true;
	return false;
}

/* A line of /proc/self/cgroup is `number:controllers:path`;
 * version 2 has the number 0 and no controllers. */
uint32_t tt_cores_quota(const char *root)
{
	char line[PATH_MAX], folder[2 * PATH_MAX], *controllers, *path;
	uint32_t least = 0, quota;
	FILE *f;

	snprintf(folder, sizeof(folder), "%s/proc/self/cgroup", root);
	f = fopen(folder, "re");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		controllers = strchr(line, ':');
		path = controllers ? strchr(++controllers, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (*controllers && !has_cpu(controllers))
			continue;
		snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s%s", root,
			 *controllers ? "/" : "", controllers, path);
		quota = least_up(folder, strlen(folder) - strlen(path), !*controllers);
		if (quota && (!least || quota < least))
			least = quota;
	}
	if (f)
		fclose(f);
	return least;
}

void tt_cores_mine(struct tt_cores *ret_cores)
{
	cpu_set_t set;

	memset(ret_cores, 0, sizeof(*ret_cores));
	ret_cores->quota = tt_cores_quota("");
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && cpu < 64 * TT_CPU_WORDS; cpu++)
		if (CPU_ISSET(cpu, &set))
			ret_cores->mask[cpu / 64] |= 1ull << cpu % 64;
}

void tt_cores_add(struct tt_cores *all, const struct tt_cores *one)
{
	for (int w = 0; w < TT_CPU_WORDS; w++)
		all->mask[w] |= one->mask[w];
	if (one->quota && (!all->quota || one->quota < all->quota))
		all->quota = one->quota;
}

int tt_cores_count(const struct tt_cores *all)
{
	int count = 0;

	for (int w = 0; w < TT_CPU_WORDS; w++)
		count += __builtin_popcountll(all->mask[w]);
	if (count == 0) /* affinity unreadable, or more than 1024 processors */
		count = (int)sysconf(_SC_NPROCESSORS_ONLN);
	return all->quota && all->quota < (uint32_t)count ? (int)all->quota : count;
}
