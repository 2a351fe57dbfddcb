/*
 * device_kernels.c - load the kernels into a context, once
 *
 * Called by gpu_open.c. The image is nvcc's fat binary, embedded as bytes (device_image.S). A
 * library that was built without nvcc has no image, and loading fails; the tests' fake driver
 * provides its own kernels.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/device_kernels.h"

#ifdef HAVE_NVCC
extern const unsigned char tt_device_image[];
#define IMAGE tt_device_image
#else
#define IMAGE NULL
#define TT_NVCC_CUDA 0
#define TT_NVCC_CODE ""
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded {
	struct loaded *next;
	tt_cuctx ctx;
	uint64_t ctx_id;
	struct tt_kernels kernels;
	atomic_int reserved[TT_BLOCK_KINDS];
	bool loading;
} * all;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* a load has ended */

int tt_kernels_cuda_version(void)
{
	return TT_NVCC_CUDA;
}

const char *tt_kernels_code(void)
{
	return TT_NVCC_CODE;
}

/* Reports that the driver does not take the image: it is older than nvcc, or has no code for this
 * device. rc: the driver's code */
static int refuse(const struct tt_cuda *cu, int rc)
{
	int driver = 0, made = cu->own_kernels ? TT_CU_OWN_KERNELS : TT_NVCC_CUDA;

	cu->driver_version(&driver);
	if (driver >= made)
		return tt_cuda_fail(rc, "load the GPU kernels into a driver of CUDA %d.%d",
				    driver / 1000, driver % 1000 / 10);
	return tt_cuda_fail(
		rc,
		"load the GPU kernels, which need a driver of CUDA %d.%d or later, into one of CUDA %d.%d",
		made / 1000, made % 1000 / 10, driver / 1000, driver % 1000 / 10);
}

static int find(const struct tt_cuda *cu, void *module, struct tt_kernels *k)
{
	static const char *const names[tuttiNumTypes] = {
		[tuttiInt8] = "tt_Int8",
		[tuttiUint8] = "tt_Uint8",
		[tuttiInt32] = "tt_Int32",
		[tuttiUint32] = "tt_Uint32",
		[tuttiInt64] = "tt_Int64",
		[tuttiUint64] = "tt_Uint64",
		[tuttiFloat16] = "tt_Float16",
		[tuttiFloat32] = "tt_Float32",
		[tuttiFloat64] = "tt_Float64",
		[tuttiBfloat16] = "tt_Bfloat16",
		[tuttiFloat8e4m3] = "tt_Float8e4m3",
		[tuttiFloat8e5m2] = "tt_Float8e5m2",
	};
	static const int threads[TT_BLOCK_KINDS] = { TT_DEV_THREADS, TT_BARRIER_THREADS };
	int rc, device, sms = 0;

	if ((rc = cu->ctx_device(&device)) ||
	    (rc = cu->device_attribute(&sms, TT_CU_ATTR_SMS, device)))
		return tt_cuda_fail(rc, "the device's multiprocessors");
	for (int t = 0; t < tuttiNumTypes; t++) {
		rc = cu->module_function(&k->fn[t], module, names[t]);
		for (int kind = 0; kind < TT_BLOCK_KINDS && !rc; kind++) {
			int blocks, *least = &k->blocks[kind];

			rc = cu->occupancy(&blocks, k->fn[t], threads[kind], 0);
			*least = !t || blocks * sms < *least ? blocks * sms : *least;
		}
		if (rc)
			return tt_cuda_fail(rc, "kernel %s", names[t]);
	}
	return 0;
}

static int load(const struct tt_cuda *cu, struct loaded *l)
{
	const void *image = cu->own_kernels ? cu->own_kernels : IMAGE;
	void *module;
	int rc;

	if (!image)
		return tt_fail(
			TT_CUDA,
			"the GPU kernels are not built in: no nvcc was found when Tutti was configured");
	rc = cu->module_load(&module, image);
	return rc ? refuse(cu, rc) : find(cu, module, &l->kernels);
}

/* Under lock. Removes a context whose load has failed. */
static void forget(struct loaded *l)
{
	struct loaded **at = &all;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	free(l);
}

/* Under lock, which is released during the load: a driver may compile for minutes, and contexts of
 * other devices load meanwhile. NULL: *ret_code is the reason */
static struct loaded *load_new(const struct tt_cuda *cu, tt_cuctx ctx, int *ret_code)
{
	struct loaded *l = calloc(1, sizeof(*l));

	if (!l) {
		*ret_code = tt_fail(TT_SYSTEM, "no memory for the kernels' addresses");
		return NULL;
	}
	l->ctx = ctx;
	l->ctx_id = tt_cuda_context_id(cu, ctx);
	l->kernels.reserved = l->reserved;
	l->loading = true;
	l->next = all;
	all = l;
	pthread_mutex_unlock(&lock);
	*ret_code = load(cu, l);
	pthread_mutex_lock(&lock);
	l->loading = false;
	pthread_cond_broadcast(&ended);
	if (!*ret_code)
		return l;
	forget(l);
	return NULL;
}

/* Under lock. NULL: not loaded, nor being loaded */
static struct loaded *of_context(const struct tt_cuda *cu, tt_cuctx ctx)
{
	uint64_t id = tt_cuda_context_id(cu, ctx);
	struct loaded *l = all;

	while (l && (l->ctx != ctx || l->ctx_id != id))
		l = l->next;
	return l;
}

int tt_kernels_load(const struct tt_cuda *cu, tt_cuctx ctx, const struct tt_kernels **ret_kernels)
{
	struct loaded *l;
	int rc = 0;

	pthread_mutex_lock(&lock);
	while ((l = of_context(cu, ctx)) && l->loading)
		pthread_cond_wait(&ended, &lock);
	if (!l)
		l = load_new(cu, ctx, &rc);
	if (l)
		*ret_kernels = &l->kernels;
	pthread_mutex_unlock(&lock);
	return rc;
}

static bool is_loaded(const struct tt_cuda *cu, tt_cuctx ctx)
{
	const struct loaded *l;
	bool is;

	pthread_mutex_lock(&lock);
	l = of_context(cu, ctx);
	is = l && !l->loading;
	pthread_mutex_unlock(&lock);
	return is;
}

/* Machine code for compute capability 8.6 runs on 8.6 to 8.9, but not on 9.0. */
bool tt_kernels_must_compile(const struct tt_cuda *cu, tt_cuctx ctx, int device)
{
	const char *at = cu->own_kernels ? TT_CU_OWN_CODE : TT_NVCC_CODE;
	int major, minor, code, used;

	if (is_loaded(cu, ctx) || cu->device_attribute(&major, TT_CU_ATTR_MAJOR, device) ||
	    cu->device_attribute(&minor, TT_CU_ATTR_MINOR, device))
		return false;
	for (; sscanf(at, "%d%n", &code, &used) == 1; at += used)
		if (code / 10 == major && code % 10 <= minor)
			return false;
	return true;
}

/* A small block may be the only one on its multiprocessor, which then has no room for a large one. */
int tt_kernels_available(const struct tt_kernels *k, enum tt_block_kind kind)
{
	int small = atomic_load(&k->reserved[TT_SMALL_BLOCKS]),
	    large = atomic_load(&k->reserved[TT_LARGE_BLOCKS]),
	    left = kind == TT_LARGE_BLOCKS ? k->blocks[kind] - large - small
					   : k->blocks[kind] - 2 * large - small;

	return left > 0 ? left : 0;
}

void tt_kernels_reserve(const struct tt_kernels *k, enum tt_block_kind kind, int n)
{
	atomic_fetch_add(&k->reserved[kind], n);
}

/* CUDA does not survive a fork: the child loads its own kernels. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	for (struct loaded *l; (l = all);) {
		all = l->next;
		free(l);
	}
	ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	after_fork();
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}
