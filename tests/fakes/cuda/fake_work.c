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

static int copy(void *to, const void *from, size_t bytes, tt_custream stream)
{
	struct fake_node n = { .kind = COPY, .to = to, .from = from, .bytes = bytes };

	return fake_add(stream, &n);
}

static int copy_now(void *to, const void *from, size_t bytes)
{
	int rc = copy(to, from, bytes, NULL);

	return rc ? rc : fake_settle(fake_stream(NULL));
}

EXPORT int cuMemcpyDtoH_v2(void *to, tt_cuptr from, size_t bytes)
{
	ENTER_FREELY();
	return copy_now(to, (void *)(uintptr_t)from, bytes);
}

EXPORT int cuMemcpyHtoD_v2(tt_cuptr to, const void *from, size_t bytes)
{
	ENTER_FREELY();
	return copy_now((void *)(uintptr_t)to, from, bytes);
}

static bool to_be_spoiled(void)
{
	static int copies;
	const char *text = getenv("TUTTI_TEST_CUDA_SPOIL");

	return text && __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED) == atoi(text);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, tt_cuptr from, size_t bytes, tt_custream stream)
{
	struct fake_node n = { .kind = COPY,
			       .to = to,
			       .from = (void *)(uintptr_t)from,
			       .bytes = bytes,
			       .spoiled = to_be_spoiled() };

	ENTER_CONTEXT();
	return fake_add(stream, &n);
}

EXPORT int cuMemcpyHtoDAsync_v2(tt_cuptr to, const void *from, size_t bytes, tt_custream stream)
{
	ENTER_CONTEXT();
	return copy((void *)(uintptr_t)to, from, bytes, stream);
}

EXPORT int cuMemcpyDtoDAsync_v2(tt_cuptr to, tt_cuptr from, size_t bytes, tt_custream stream)
{
	ENTER_CONTEXT();
	return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, stream);
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

EXPORT int cuStreamBatchMemOp_v2(tt_custream stream, unsigned count, struct tt_cumemop *ops,
				 unsigned flags)
{
	struct fake_node n = { .kind = BATCH, .nops = count };

	ENTER_CONTEXT();
	(void)flags;
	if (!count || count > MAX_BATCH)
		return TT_CU_BAD_VALUE;
	memcpy(n.op, ops, count * sizeof(*ops));
	for (unsigned i = 0; i < count && fake_lacks("remote"); i++)
		if (ops[i].operation == TT_CU_WRITE_32 &&
		    fake_is_remote((void *)(uintptr_t)ops[i].address))
			return 801; /* CUDA_ERROR_NOT_SUPPORTED */
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
	(void)threads;
	(void)shared;
	*ret_blocks = 1;
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
