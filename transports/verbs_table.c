/* verbs_table.c - loads libibverbs.so.1, see verbs_table.h */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "transports/verbs_table.h"

static struct tt_ib_table table;
static bool loaded;
static char reason[200];

static bool find(void *library, const char *name, void *ret_function)
{
	void *function = dlsym(library, name);

	if (!function)
		snprintf(reason, sizeof(reason),
			"libibverbs.so.1 has no %s: it is too old (rdma-core 33 or newer is needed)",
			name);
	*(void **)ret_function = function;
	return function != NULL;
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
	TT_IB_CALLS(X)
#undef X
#define X(result, name, arguments) *(void **)&table.name = dlsym(library, "ibv_" #name);
	TT_IB_LATER(X)
#undef X
	loaded = loaded && find(library, "_ibv_query_gid_table", &table.query_gid_table);
}

const struct tt_ib_table *tt_ib_load(char *why, size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (!loaded)
		snprintf(why, bytes, "%s", reason);
	return loaded ? &table : NULL;
}
