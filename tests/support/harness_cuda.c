/*
 * harness_cuda.c - see harness_cuda.h
 */
#include "tests/support/harness_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Before main: later other threads read the environment. */
__attribute__((constructor)) static void set_connections(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

const struct tt_cuda *harness_cuda(void)
{
	const char *driver = getenv("TUTTI_TEST_CUDA_DRIVER");
	const struct tt_cuda *cu;
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
	tt_cuctx ctx;
	int rc;

	if (n < 0)
		return NULL;
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/../fakes/cuda/libcuda.so.1");
	if (getenv("TUTTI_TEST_GPU"))
		strcpy(path, "libcuda.so.1");
	else if (driver)
		snprintf(path, sizeof(path), "%s", driver);
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
		fprintf(stderr, "%s\n", dlerror());
		return NULL;
	}
	cu = tt_cuda_here();
	if (!cu && getenv("TUTTI_TEST_GPU"))
		cu = tt_cuda_load();
	if (!cu)
		fprintf(stderr, "%s\n", tt_error_text());
	else if ((rc = cu->ctx_retain(&ctx, 0)) || (rc = cu->ctx_set(ctx))) {
		tt_cuda_fail(rc, "device 0 cannot be used");
		fprintf(stderr, "%s\n", tt_error_text());
		cu = NULL;
	}
	return cu;
}

int harness_to_device(tt_cuptr to, const void *from, size_t bytes)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int rc = cu->htod(to, from, bytes);

	return rc ? rc : cu->stream_synchronize(NULL);
}

int harness_to_host(void *to, tt_cuptr from, size_t bytes, tt_custream stream)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int rc = cu->stream_synchronize(stream);

	return rc ? rc : cu->dtoh(to, from, bytes);
}
