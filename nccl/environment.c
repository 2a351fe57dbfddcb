/*
 * environment.c - what NCCL_ variables mean to Tutti
 *
 * Called by init.c and config.c; base/env.c asks for what stands in for a TUTTI_ variable that is
 * not set. Few have a counterpart; the others are named once at the log's level debug and have no
 * effect. The environment itself is not changed.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/layer.h"

/* Training programs wait for each other for minutes (data, checkpoints, compilers) and have
 * watchdogs of their own; NCCL waits for ever. */
#define PATIENCE_MS 1800000

static struct nc_environment values;

static const char *stand_in(const char *name)
{
	const char *ifname = getenv("NCCL_SOCKET_IFNAME");

	return !strcmp(name, "TUTTI_SOCKET_IFNAME") && ifname && *ifname ? ifname : NULL;
}

/* People ask NCCL_DEBUG=VERSION which file they really run. */
static void tell_version(void)
{
	Dl_info here = { 0 };

	tt_log(TT_LOG_INFO, "NCCL version %d.%d.%d is answered by Tutti %d.%d.%d, %s", NCCL_MAJOR,
	       NCCL_MINOR, NCCL_PATCH, TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH,
	       dladdr(&values, &here) && here.dli_fname ? here.dli_fname : "in this program");
}

/* NCCL_DEBUG in TUTTI_LOG's levels. With each of NCCL's own levels the version is told. */
static void set_log(void)
{
	static const struct { const char *name; int level;
	} levels[] = {
		{ "VERSION", 0 },
		{ "WARN", TT_LOG_WARN },
		{ "INFO", TT_LOG_INFO },
		{ "TRACE", TT_LOG_DEBUG },
	};
	const char *debug = getenv("TUTTI_LOG") ? NULL : getenv("NCCL_DEBUG");
	int level = -1;

	for (size_t i = 0; debug && i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcasecmp(debug, levels[i].name))
			level = levels[i].level;
	if (level >= 0)
		tt_log_set(TT_LOG_INFO);
	tell_version();
	if (level >= 0)
		tt_log_set(level);
}

static void tell_ignored(void)
{
	static const char *const known[] = { "NCCL_SOCKET_IFNAME=", "NCCL_DEBUG=", "NCCL_COMM_ID=",
					     "NCCL_COMM_BLOCKING=" };

	for (char **entry = environ; entry && *entry; entry++) {
		bool used = strncmp(*entry, "NCCL_", 5) != 0;

		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			used |= !strncmp(*entry, known[i], strlen(known[i]));
		if (!used)
			tt_log(TT_LOG_DEBUG, "%.*s has no effect here", (int)strcspn(*entry, "="),
			       *entry);
	}
}

static void look(void)
{
	const char *blocking = getenv("NCCL_COMM_BLOCKING"), *root = getenv("NCCL_COMM_ID");

	values.blocking = blocking && (!strcmp(blocking, "0") || !strcmp(blocking, "1"))
				  ? *blocking - '0'
				  : -1;
	values.root = root && *root ? root : NULL;
	values.timeout_ms = getenv("TUTTI_TIMEOUT_MS") ? 0 : PATIENCE_MS;
	tt_env_stand_in = stand_in;
	set_log();
	tell_ignored();
}

const struct nc_environment *nc_environment(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
	return &values;
}
