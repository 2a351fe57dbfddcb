/* verbs_table.c - loads libibverbs.so.1, see verbs_table.h */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "transports/verbs/verbs_table.h"

static struct tt_verbs_table table;
static bool loaded;
static char reason[200];

static bool find(void *library, const char *name, void *ret_function)
{
	void *function = dlsym(library, name);

	if (!function)
		snprintf(
			reason, sizeof(reason),
			"libibverbs.so.1 has no %s: it is too old (rdma-core 33 or newer is needed)",
			name);
	*(void **)ret_function = function;
	return function != NULL;
}

/* After a fork, a write moves the parent to new pages while the HCA uses the old ones, unless the
 * kernel copies pinned pages for the child (Linux 5.12), or libibverbs hides them from the child,
 * which ibv_fork_init requests before the first registration. */
static void survive_forks(void)
{
	int error;

	if (table.is_fork_initialized && table.is_fork_initialized() != TT_VERBS_FORK_DISABLED)
		return;
	error = table.fork_init ? table.fork_init() : ENOSYS;
	if (error)
		tt_log(TT_LOG_INFO,
		       "verbs: ibv_fork_init: %s; a process that forks may lose data that its HCAs write",
		       strerror(error));
}

static void load(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(reason, sizeof(reason),
			 "no libibverbs.so.1 (Debian: libibverbs1 ibverbs-providers): %s",
			 dlerror());
		return;
	}
	loaded = true;
#define X(result, name, arguments) loaded = loaded && find(library, "ibv_" #name, &table.name);
	TT_VERBS_CALLS(X)
#undef X
#define X(result, name, arguments) *(void **)&table.name = dlsym(library, "ibv_" #name);
	TT_VERBS_LATER(X)
#undef X
	loaded = loaded && find(library, "_ibv_query_gid_table", &table.query_gid_table);
	if (loaded)
		survive_forks();
}

const struct tt_verbs_table *tt_verbs_load(char *why, size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (!loaded)
		snprintf(why, bytes, "%s", reason);
	return loaded ? &table : NULL;
}
