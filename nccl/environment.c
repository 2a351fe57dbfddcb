/*
 * environment.c - what NCCL_ variables mean to Tutti
 *
 * Called by init.c and config.c; base/env.c asks for what stands in for a TUTTI_ variable that is not set. Few have a
 * counterpart; the others are named once at the log's level debug and have no effect. The environment itself is not changed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/layer.h"

/* Training programs wait for each other for minutes (data, checkpoints, compilers) and have watchdogs of their own;
 * NCCL waits for ever. */
#define PATIENCE_MS 1800000

static struct nc_environment values;

static const char *stand_in(const char *name)
{
	const char *ifname = getenv("NCCL_SOCKET_IFNAME");

	return !strcmp(name, "TUTTI_SOCKET_IFNAME") && ifname && *ifname ? ifname : NULL;
}

/* NCCL_DEBUG in TUTTI_LOG's levels. */
static void set_log(void)
{
	static const struct { const char *name; int level; } levels[] = {
		{ "WARN", TT_LOG_WARN }, { "INFO", TT_LOG_INFO }, { "TRACE", TT_LOG_DEBUG },
	};
	const char *debug = getenv("NCCL_DEBUG");

	if (getenv("TUTTI_LOG") || !debug)
		return;
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcasecmp(debug, levels[i].name))
			tt_log_set(levels[i].level);
}

static void tell_ignored(void)
{
	static const char *const known[] = { "NCCL_SOCKET_IFNAME=", "NCCL_DEBUG=", "NCCL_COMM_ID=", "NCCL_COMM_BLOCKING=" };

	for (char **entry = environ; entry && *entry; entry++) {
		bool used = strncmp(*entry, "NCCL_", 5) != 0;

		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			used |= !strncmp(*entry, known[i], strlen(known[i]));
		if (!used)
			tt_log(TT_LOG_DEBUG, "%.*s has no effect here", (int)strcspn(*entry, "="), *entry);
	}
}

static void look(void)
{
	const char *blocking = getenv("NCCL_COMM_BLOCKING"), *root = getenv("NCCL_COMM_ID");

	values.blocking = blocking && (!strcmp(blocking, "0") || !strcmp(blocking, "1")) ? *blocking - '0' : -1;
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
