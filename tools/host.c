/*
 * host.c - processor name and free memory, read from /proc and the control groups (host.h)
 *
 * Called by perf/bench/rank_records.c and perf/commands/cmd_info.c.
 */
#include "tools/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

void tool_host_cpu(char *text, size_t bytes)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	struct utsname names;
	char line[256];

	snprintf(text, bytes, "%s", uname(&names) ? "unknown processor" : names.machine);
	while (f && fgets(line, sizeof(line), f)) {
		char *value = strchr(line, ':');

		if (strncmp(line, "model name", 10) || !value)
			continue;
		value += 1 + strspn(value + 1, " ");
		snprintf(text, bytes, "%.*s", (int)strcspn(value, "\n"), value);
		break;
	}
	if (f)
		fclose(f);
}

/* Returns the number after key in a control group's file (key NULL: the first number of the file);
 * UINT64_MAX for "max" or a missing number. */
static uint64_t read_number(const char *folder, const char *name, const char *key)
{
	unsigned long long value = UINT64_MAX;
	char path[1100], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (key && strncmp(line, key, strlen(key)))
			continue;
		if (sscanf(line + (key ? strlen(key) : 0), "%llu", &value) != 1)
			value = UINT64_MAX;
		break;
	}
	if (f)
		fclose(f);
	return value;
}

/* Free bytes within one group's limit. Inactive file cache counts as free: the kernel reclaims the
 * cache before memory runs out. */
static uint64_t group_free_bytes(const char *folder)
{
	uint64_t limit = read_number(folder, "memory.max", NULL),
		 used = read_number(folder, "memory.current", NULL);
	uint64_t cached = read_number(folder, "memory.stat", "inactive_file ");

	if (limit == UINT64_MAX || used == UINT64_MAX)
		return UINT64_MAX;
	if (cached != UINT64_MAX)
		used -= cached < used ? cached : used;
	return limit > used ? limit - used : 0;
}

/* Minimum over all groups from this process's group up to the root. */
static uint64_t groups_free_bytes(void)
{
	FILE *f = fopen("/proc/self/cgroup", "r");
	uint64_t least = UINT64_MAX;
	char line[512], folder[600];

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::", 3))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(folder, sizeof(folder), "/sys/fs/cgroup%s", line + 3);
		while (strlen(folder) >= strlen("/sys/fs/cgroup")) {
			uint64_t left = group_free_bytes(folder);

			least = left < least ? left : least;
			*strrchr(folder, '/') = '\0';
		}
	}
	if (f)
		fclose(f);
	return least;
}

uint64_t tool_host_free_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long long kb;
	uint64_t left = groups_free_bytes(), free_bytes = UINT64_MAX;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
			free_bytes = kb * 1024;
	if (f)
		fclose(f);
	return left < free_bytes ? left : free_bytes;
}
