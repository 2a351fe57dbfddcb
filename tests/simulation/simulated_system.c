/*
 * simulated_system.c - the host of the library, besides threads, sockets and memory: names, files,
 * interfaces, randomness
 *
 * Nothing of the real host is visible, so a seed gives the same schedule everywhere. There are no
 * files, no devices and no other libraries.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/simulation/simulation.h"

static void *nothing(int error)
{
	errno = error;
	return NULL;
}

/* ---- identity -------------------------------------------------------------------------------- */

SIM_REPLACE(pid_t, getpid, void)
{
	return 1000 + sim->process->number;
}

SIM_REPLACE(int, gethostname, char *name, size_t bytes)
{
	snprintf(name, bytes, "host%d", sim->process->host);
	return 0;
}

/* Each host has a network namespace of its own, and no other file. */
SIM_REPLACE(int, stat, const char *path, struct stat *ret_stat)
{
	(void)path;
	memset(ret_stat, 0, sizeof(*ret_stat));
	ret_stat->st_ino = (ino_t)(100000 + sim->process->host);
	return 0;
}

SIM_REPLACE(int, fstat, int fd, struct stat *ret_stat)
{
	memset(ret_stat, 0, sizeof(*ret_stat));
	ret_stat->st_ino = (ino_t)fd;
	return 0;
}

SIM_REPLACE(char *, getenv, const char *name)
{
	static const struct {
		const char *name;
		char value[16];
	} settings[] = {
		{ "TUTTI_TRANSPORT", "tcp" },
	};
	static char host[16];

	if (!sim || !sim->process)
		return NULL;
	if (!strcmp(name, "TUTTI_HOST_ID")) {
		snprintf(host, sizeof(host), "host%d", sim->process->host);
		return host;
	}
	if (!strcmp(name, "TUTTI_TIMEOUT_MS"))
		return (char *)(uintptr_t)(sim->hop_ns ? "600000" : "10000");
	if (!strcmp(name, "TUTTI_ENCRYPT"))
		return (char *)(uintptr_t)(sim->encrypts ? "on" : "off");
	if (!strcmp(name, "TUTTI_ALGO"))
		return (char *)(uintptr_t)sim->algorithm;
	if (!strcmp(name, "TUTTI_SHRINK"))
		return (char *)(uintptr_t)(sim->minorities ? "any" : "majority");
	if (!strcmp(name, "TUTTI_WAIT"))
		return (char *)(uintptr_t)(sim->yields ? "yield" : "sleep");
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (!strcmp(name, settings[i].name))
			return (char *)(uintptr_t)settings[i].value;
	return NULL;
}

/* Where servers are slow, the handshakes that a listener has at a time are soon too many. */
SIM_REPLACE(int, getrlimit, __rlimit_resource_t resource, struct rlimit *ret_limit)
{
	if (resource != RLIMIT_NOFILE || !sim || !sim->process)
		return __real_getrlimit(resource, ret_limit);
	*ret_limit = (struct rlimit){ .rlim_cur = sim_descriptor_limit(), .rlim_max = 1024 };
	return 0;
}

SIM_REPLACE(int, sched_getaffinity, pid_t pid, size_t bytes, cpu_set_t *ret_set)
{
	(void)pid;
	memset(ret_set, 0, bytes);
	for (int i = 0; i < 8; i++)
		CPU_SET(i, ret_set);
	return 0;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

SIM_REPLACE(int, getifaddrs, struct ifaddrs **ret_list)
{
	struct interface {
		struct ifaddrs entry;
		struct sockaddr_in address, mask;
		char name[8];
	} *list = sim_alloc(2 * sizeof(*list));
	uint32_t addresses[2] = { htonl(INADDR_LOOPBACK), 0 };

	addresses[1] = sim_network_address(sim->process->host);
	for (int i = 0; i < 2; i++) {
		struct interface *one = &list[i];

		strcpy(one->name, i ? "eth0" : "lo");
		one->address.sin_family = one->mask.sin_family = AF_INET;
		one->address.sin_addr.s_addr = addresses[i];
		one->mask.sin_addr.s_addr = htonl(i ? 0xffff0000u : 0xff000000u);
		one->entry = (struct ifaddrs){
			.ifa_next = i ? NULL : &list[1].entry,
			.ifa_name = one->name,
			.ifa_flags = IFF_UP | IFF_RUNNING | (i ? 0u : IFF_LOOPBACK),
			.ifa_addr = (struct sockaddr *)&one->address,
			.ifa_netmask = (struct sockaddr *)&one->mask,
		};
	}
	*ret_list = &list[0].entry;
	return 0;
}

SIM_REPLACE(void, freeifaddrs, struct ifaddrs *list)
{
	sim_free(list);
}

/* ---- files and libraries: none ---------------------------------------------------------------- */

SIM_REPLACE(int, open, const char *path, int flags, ...)
{
	(void)flags;
	sim_call();
	if (!strcmp(path, "/dev/null"))
		return sim_network_null();
	errno = ENOENT;
	return -1;
}

SIM_REPLACE(FILE *, fopen, const char *path, const char *mode)
{
	(void)path;
	(void)mode;
	return nothing(ENOENT);
}

SIM_REPLACE(DIR *, opendir, const char *path)
{
	(void)path;
	return nothing(ENOENT);
}

SIM_REPLACE(int, access, const char *path, int mode)
{
	(void)path;
	(void)mode;
	errno = ENOENT;
	return -1;
}

SIM_REPLACE(void *, dlopen, const char *path, int flags)
{
	(void)path;
	(void)flags;
	return NULL;
}

/* ---- randomness ------------------------------------------------------------------------------ */

SIM_REPLACE(ssize_t, getrandom, void *data, size_t bytes, unsigned flags)
{
	uint8_t *p = data;

	(void)flags;
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)sim_random(256);
	return (ssize_t)bytes;
}
