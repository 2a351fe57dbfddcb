/*
 * cuda.c - the table of the CUDA driver's functions, filled once; contexts; kinds of memory
 *
 * Called by the other files of lib/gpu, by api, nccl, tools and trainer; calls the driver.
 * libcuda.so.1 is never unloaded. A process that has not loaded libcuda.so.1 has no device memory,
 * so the test for it costs hosts without a GPU next to nothing.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "gpu/cuda.h"

/* guards the filling of the table, and the cache of allocations below */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tt_cuda table;
static atomic_bool filled;

/* Fills the table from the loaded driver. why: the reason for a failure. */
static bool fill(void *driver, char *why, size_t bytes)
{
	int rc;

#define FIND(member, symbol, parameters)                                                       \
	*(void **)&table.member = dlsym(driver, #symbol);                                      \
	if (!table.member) {                                                                   \
		snprintf(why, bytes, "its driver has no function %s: it is too old", #symbol); \
		return false;                                                                  \
	}
	TT_CUDA_FUNCTIONS(FIND)
#undef FIND
#define FIND(member, symbol, parameters) *(void **)&table.member = dlsym(driver, #symbol);
	TT_CUDA_LATER(FIND)
#undef FIND
	table.own_kernels = dlsym(driver, "tutti_own_kernels");
	rc = table.init(0);
	if (rc) {
		snprintf(why, bytes, "cuInit fails with error %d", rc);
		return false;
	}
	return true;
}

static bool load(int mode, char *why, size_t bytes)
{
	void *driver = dlopen("libcuda.so.1", mode);

	if (!driver)
		snprintf(why, bytes, "%s", mode & RTLD_NOLOAD ? "it is not loaded" : dlerror());
	return driver && fill(driver, why, bytes);
}

/* The table is filled once only, since other threads may read it from then on. */
static const struct tt_cuda *find(int mode, char *why, size_t bytes)
{
	if (atomic_load_explicit(&filled, memory_order_acquire))
		return &table;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&filled) && load(mode, why, bytes))
		atomic_store_explicit(&filled, true, memory_order_release);
	pthread_mutex_unlock(&lock);
	return atomic_load_explicit(&filled, memory_order_acquire) ? &table : NULL;
}

static int is_driver(struct dl_phdr_info *info, size_t bytes, void *ctx)
{
	const char *slash = strrchr(info->dlpi_name, '/');

	(void)bytes, (void)ctx;
	return !strncmp(slash ? slash + 1 : info->dlpi_name, "libcuda.so", 10);
}

/* The list of loaded objects is searched first: dlopen would search all library paths at every join
 * of a process without CUDA. */
const struct tt_cuda *tt_cuda_here(void)
{
	static atomic_bool warned;
	const struct tt_cuda *cu;
	char why[128] = "";

	if (atomic_load_explicit(&filled, memory_order_acquire))
		return &table;
	if (!dl_iterate_phdr(is_driver, NULL))
		return NULL;
	cu = find(RTLD_NOW | RTLD_NOLOAD, why, sizeof(why));
	if (!cu && !atomic_exchange(&warned, true))
		tt_log(TT_LOG_WARN, "CUDA's driver is loaded and cannot be used: %s", why);
	return cu;
}

const struct tt_cuda *tt_cuda_load(void)
{
	char why[256] = "";
	const struct tt_cuda *cu = find(RTLD_NOW, why, sizeof(why));

	if (!cu)
		tt_fail(TT_CUDA, "no CUDA on this host: %s", why);
	return cu;
}

int tt_cuda_fail(int result, const char *fmt, ...)
{
	const char *name = NULL, *words = NULL;
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (atomic_load(&filled)) {
		table.error_name(result, &name);
		table.error_string(result, &words);
	}
	return tt_fail(TT_CUDA, "%s: %s (%s, %d)", text, words ? words : "CUDA failed",
		       name ? name : "unknown", result);
}

/* ---- contexts -------------------------------------------------------------------------------- */

int tt_cuda_context(tt_cuctx *ret_ctx)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int rc;

	*ret_ctx = NULL;
	rc = cu ? cu->ctx_current(ret_ctx) : 0;
	return rc ? tt_cuda_fail(rc, "which device is current") : 0;
}

uint64_t tt_cuda_context_id(const struct tt_cuda *cu, tt_cuctx ctx)
{
	unsigned long long id = 0;

	return cu->ctx_id && !cu->ctx_id(ctx, &id) ? id : 0;
}

/* Added to the capture mode, which is less than 4. A context that was current, or could not be pushed, must not
 * be popped: the next one is the program's. */
enum { PUSHED = 4 };

static int push(const struct tt_cuda *cu, tt_cuctx ctx)
{
	tt_cuctx now = NULL;
	int rc;

	if (!cu->ctx_current(&now) && now == ctx)
		return 0;
	rc = cu->ctx_push(ctx);
	if (rc)
		tt_log(TT_LOG_WARN,
		       "a GPU's context cannot be made current in this thread: CUDA's error %d",
		       rc);
	return rc ? 0 : PUSHED;
}

/* The calls of the driver between enter and leave report their own failures. */
int tt_cuda_enter(tt_cuctx ctx)
{
	const struct tt_cuda *cu = ctx ? tt_cuda_here() : NULL;
	int mode = TT_CU_CAPTURE_RELAXED, pushed;

	if (!cu)
		return 0;
	pushed = push(cu, ctx);
	if (cu->capture_mode(&mode))
		mode = TT_CU_CAPTURE_RELAXED; /* not changed */
	return mode | pushed;
}

void tt_cuda_leave(tt_cuctx ctx, int entered)
{
	const struct tt_cuda *cu = ctx ? tt_cuda_here() : NULL;
	int mode = entered & ~PUSHED;

	if (cu && mode != TT_CU_CAPTURE_RELAXED)
		cu->capture_mode(&mode);
	if (cu && entered & PUSHED)
		cu->ctx_pop(&ctx);
}

/* ---- pointers -------------------------------------------------------------------------------- */

#define ROWS 64
static struct tt_mem rows[ROWS]; /* cache of allocations, by id; under lock */

static int find_range(const struct tt_cuda *cu, tt_cuptr at, struct tt_mem *m)
{
	struct tt_mem *row = &rows[m->id % ROWS];
	bool known;
	int rc;

	pthread_mutex_lock(&lock);
	known = row->id == m->id && at >= row->base && at - row->base < row->bytes;
	if (known)
		*m = *row;
	pthread_mutex_unlock(&lock);
	if (known)
		return 0;
	rc = cu->ptr_range(&m->base, &m->bytes, at);
	if (rc)
		return tt_cuda_fail(rc, "device memory at %#llx: its allocation",
				    (unsigned long long)at);
	pthread_mutex_lock(&lock);
	*row = *m;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* The driver is asked for type and id at every call, since a program may free memory and get other
 * memory at the same address. */
int tt_cuda_classify(const struct tt_cuda *cu, const void *ptr, struct tt_mem *ret)
{
	int attributes[] = { TT_CU_PTR_TYPE, TT_CU_PTR_ID, TT_CU_PTR_MANAGED, TT_CU_PTR_DEVICE,
			     TT_CU_PTR_IPC };
	unsigned type = 0, managed = 0;
	int device = -1;
	int ipc = 0;
	unsigned long long id = 0;
	void *data[] = { &type, &id, &managed, &device, &ipc };
	int rc = ptr ? cu->ptr_attributes(5, attributes, data, (tt_cuptr)(uintptr_t)ptr) : 0;

	*ret = (struct tt_mem){ .kind = TT_MEM_HOST, .device = -1 };
	if (rc == TT_CU_BAD_VALUE)
		return 0; /* CUDA does not know the pointer */
	if (rc)
		return tt_cuda_fail(rc, "the kind of memory at %p", ptr);
	if (managed)
		*ret = (struct tt_mem){ .kind = TT_MEM_MANAGED, .device = device, .id = id };
	else if (type == TT_CU_TYPE_HOST)
		ret->kind = TT_MEM_PINNED;
	else if (type == TT_CU_TYPE_DEVICE)
		*ret = (struct tt_mem){ .kind = ipc ? TT_MEM_DEVICE : TT_MEM_CUMEM,
					.device = device,
					.id = id };
	return ret->kind == TT_MEM_DEVICE ? find_range(cu, (tt_cuptr)(uintptr_t)ptr, ret) : 0;
}

const char *tt_mem_name(enum tt_mem_kind kind)
{
	static const char *const names[] = {
		[TT_MEM_HOST] = "host",       [TT_MEM_PINNED] = "pinned",
		[TT_MEM_DEVICE] = "device",   [TT_MEM_CUMEM] = "device (no IPC)",
		[TT_MEM_MANAGED] = "managed",
	};

	return names[kind];
}
