/*
 * fake_work.c - operations that enqueue work on streams of the fake CUDA driver: copies, host
 * functions, memory operations, kernels
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakes/cuda/fake_cuda.h"

/* lib/gpu/cuda.c finds this symbol and then needs no kernel image. */
EXPORT const char tutti_own_kernels[] = "kernels of the fake driver";

/* ---- pageable memory ------------------------------------------------------------------------- */

#define INLINE_BYTES (64u << 10) /* to the device: copied at once */

static bool copying; /* by the thread `copier`; both under the lock */
static pthread_t copier;

void fake_await_copies(void)
{
	pthread_mutex_lock(&fake_lock);
	while (copying && !pthread_equal(copier, pthread_self()))
		pthread_cond_wait(&fake_changed, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

static bool is_captured(tt_custream stream)
{
	const struct fake_stream *s = fake_stream(stream);
	bool is;

	pthread_mutex_lock(&fake_lock);
	is = s->graph != NULL;
	pthread_mutex_unlock(&fake_lock);
	return is;
}

/* Adds the node and waits for it, while calls of other threads wait. */
static int add_and_wait(tt_custream stream, const struct fake_node *n)
{
	int rc;

	pthread_mutex_lock(&fake_lock);
	while (copying)
		pthread_cond_wait(&fake_changed, &fake_lock);
	copying = true;
	copier = pthread_self();
	pthread_mutex_unlock(&fake_lock);
	rc = fake_add(stream, n);
	rc = rc ? rc : fake_settle(fake_stream(stream));
	pthread_mutex_lock(&fake_lock);
	copying = false;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

/* The driver copies the bytes to pinned memory of its own, and the device copies them from there. */
static int copy_from_own(void *to, const void *from, size_t bytes, tt_custream stream)
{
	struct fake_node n = { .kind = COPY, .to = to, .bytes = bytes, .owned = true };
	void *own = malloc(bytes);

	if (!own)
		return TT_CU_NO_MEMORY;
	n.from = memcpy(own, from, bytes);
	return fake_add(stream, &n);
}

static int copy_now(void *to, const void *from, size_t bytes, bool back)
{
	struct fake_node n = { .kind = COPY, .to = to, .from = from, .bytes = bytes, .back = back };

	return add_and_wait(NULL, &n);
}

EXPORT int cuMemcpyDtoH_v2(void *to, tt_cuptr from, size_t bytes)
{
	ENTER_FREELY();
	return copy_now(to, (void *)(uintptr_t)from, bytes, true);
}

EXPORT int cuMemcpyHtoD_v2(tt_cuptr to, const void *from, size_t bytes)
{
	ENTER_FREELY();
	return bytes >= INLINE_BYTES && fake_is_pageable(from)
		       ? copy_from_own((void *)(uintptr_t)to, from, bytes, NULL)
		       : copy_now((void *)(uintptr_t)to, from, bytes, false);
}

static bool to_be_spoiled(void)
{
	static int copies;
	const char *text = getenv("TUTTI_TEST_CUDA_SPOIL");

	return text && __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED) == atoi(text);
}

static bool is_refused(const void *host)
{
	return getenv("TUTTI_TEST_CUDA_PINNED") && fake_is_pageable(host);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, tt_cuptr from, size_t bytes, tt_custream stream)
{
	struct fake_node n = { .kind = COPY,
			       .to = to,
			       .from = (void *)(uintptr_t)from,
			       .bytes = bytes,
			       .back = true,
			       .spoiled = to_be_spoiled() };

	ENTER_CONTEXT();
	if (is_refused(to))
		return 1; /* CUDA_ERROR_INVALID_VALUE */
	return fake_is_pageable(to) && !is_captured(stream) ? add_and_wait(stream, &n)
							    : fake_add(stream, &n);
}

EXPORT int cuMemcpyHtoDAsync_v2(tt_cuptr to, const void *from, size_t bytes, tt_custream stream)
{
	struct fake_node n = {
		.kind = COPY, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes
	};

	ENTER_CONTEXT();
	if (is_refused(from))
		return 1; /* CUDA_ERROR_INVALID_VALUE */
	if (!fake_is_pageable(from) || is_captured(stream))
		return fake_add(stream, &n);
	return bytes < INLINE_BYTES ? copy_from_own((void *)(uintptr_t)to, from, bytes, stream)
				    : add_and_wait(stream, &n);
}

EXPORT int cuMemcpyDtoDAsync_v2(tt_cuptr to, tt_cuptr from, size_t bytes, tt_custream stream)
{
	struct fake_node n = { .kind = COPY,
			       .to = (void *)(uintptr_t)to,
			       .from = (void *)(uintptr_t)from,
			       .bytes = bytes };

	ENTER_CONTEXT();
	return fake_add(stream, &n);
}

EXPORT int cuMemsetD8Async(tt_cuptr to, unsigned char value, size_t bytes, tt_custream stream)
{
	struct fake_node n = {
		.kind = SET, .to = (void *)(uintptr_t)to, .value = value, .bytes = bytes
	};

	ENTER_CONTEXT();
	return fake_add(stream, &n);
}

EXPORT int cuLaunchHostFunc(tt_custream stream, void (*fn)(void *arg), void *arg)
{
	struct fake_node n = { .kind = HOST_FUNC, .fn = fn, .arg = arg };

	ENTER_CONTEXT();
	return fake_add(stream, &n);
}

/* A word of a stream is device memory, or host memory that is pinned or registered. */
static int check_operation(const struct tt_cumemop *op)
{
	const void *at = (void *)(uintptr_t)op->address;

	if (fake_is_pageable(at) || op->address % (op->operation == TT_CU_WAIT_64 ? 8 : 4))
		return TT_CU_BAD_VALUE;
	return op->operation == TT_CU_WRITE_32 && fake_lacks("remote") && fake_is_remote(at)
		       ? 801 /* CUDA_ERROR_NOT_SUPPORTED */
		       : 0;
}

EXPORT int cuStreamBatchMemOp_v2(tt_custream stream, unsigned count, struct tt_cumemop *ops,
				 unsigned flags)
{
	struct fake_node n = { .kind = BATCH, .nops = count };
	int rc;

	ENTER_CONTEXT();
	(void)flags;
	if (!count || count > MAX_BATCH)
		return TT_CU_BAD_VALUE;
	memcpy(n.op, ops, count * sizeof(*ops));
	for (unsigned i = 0; i < count; i++)
		if ((rc = check_operation(&ops[i])))
			return rc;
	return fake_add(stream, &n);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Waits until as many modules are being loaded at once as the environment says. */
static bool load_at_once(void)
{
	const char *text = getenv("TUTTI_TEST_CUDA_LOADS");
	struct timespec until;
	static int loads;
	bool met;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&fake_lock);
	loads++;
	pthread_cond_broadcast(&fake_changed);
	while (text && loads < atoi(text) &&
	       !pthread_cond_timedwait(&fake_changed, &fake_lock, &until))
		;
	met = !text || loads >= atoi(text);
	pthread_mutex_unlock(&fake_lock);
	return met;
}

EXPORT int cuModuleLoadData(void **ret_module, const void *image)
{
	ENTER_FREELY();
	if (!load_at_once())
		return TT_CU_NO_MEMORY;
	if (fake_lacks("age"))
		return 222; /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION */
	*ret_module = (void *)(uintptr_t)image;
	return 0;
}

static const struct fake_kernel *find_kernel(const struct fake_kernel *k, const char *name)
{
	while (k->name && strcmp(k->name, name))
		k++;
	return k->name ? k : NULL;
}

EXPORT int cuModuleGetFunction(tt_cufn *ret_function, void *module, const char *name)
{
	const struct fake_kernel *k = find_kernel(fake_kernels, name);

	ENTER_CONTEXT();
	(void)module;
	k = k ? k : find_kernel(fake_train_kernels, name);
	*ret_function = (tt_cufn)(uintptr_t)k;
	return k ? 0 : TT_CU_NOT_FOUND;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret_blocks, tt_cufn function,
						       int threads, size_t shared)
{
	ENTER_CONTEXT();
	(void)function;
	(void)shared;
	*ret_blocks = SM_THREADS / threads;
	return 0;
}

/* The first launch of a kernel loads it, for which the device must be idle. */
static void load(const struct fake_kernel *k)
{
	static const struct fake_kernel *loaded[64];
	const char *mode = getenv("CUDA_MODULE_LOADING");
	bool here = mode && !strcmp(mode, "EAGER");

	pthread_mutex_lock(&fake_lock);
	for (size_t i = 0; i < 64 && !here; i++) {
		here = loaded[i] == k;
		if (!loaded[i]) {
			loaded[i] = k;
			break;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	if (!here)
		fake_idle();
}

EXPORT int cuLaunchKernel(tt_cufn function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			  unsigned by, unsigned bz, unsigned shared, tt_custream stream,
			  void **params, void **extra)
{
	const struct fake_kernel *k = function;
	struct fake_node n = {
		.kind = LAUNCH, .kernel = k, .blocks = gx * gy * gz, .threads = bx * by * bz
	};

	ENTER_CONTEXT();
	(void)shared, (void)extra;
	if (!n.blocks || !n.threads || k->bytes > sizeof(n.params))
		return TT_CU_BAD_VALUE;
	load(k);
	memcpy(n.params, params[0], k->bytes);
	return fake_add(stream, &n);
}
