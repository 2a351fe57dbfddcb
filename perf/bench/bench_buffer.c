/*
 * bench_buffer.c - memory of a rank's buffers, on the host or on a GPU
 *
 * Called by bench_rank.c. The benchmark writes inputs and reads results in host memory. A buffer on
 * a GPU has a pinned copy in host memory; put and get copy between the two.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "perf/bench/bench.h"

static int make_on_device(struct bench_buffer *b, const struct tool_cuda_device *gpu, size_t bytes)
{
	tt_cuptr at;
	void *host;
	int rc = gpu->cu->mem_alloc(&at, bytes);

	if (rc)
		return tt_cuda_fail(
			rc,
			"allocate %zu bytes on device %d; use a smaller -e, fewer ranks, or --place in",
			bytes, gpu->ordinal);
	b->at = (char *)(uintptr_t)at;
	rc = gpu->cu->host_alloc(&host, bytes, TT_CU_HOST_PORTABLE);
	if (rc)
		return tt_cuda_fail(rc, "allocate %zu bytes of pinned host memory", bytes);
	b->host = host;
	return 0;
}

int bench_buffer_make(struct bench_buffer *b, const struct tool_cuda_device *gpu, size_t bytes,
		      bool library)
{
	void *p = NULL;

	*b = (struct bench_buffer){ .bytes = bytes, .library = library };
	if (gpu->cu)
		return make_on_device(b, gpu, bytes);
	if (!library)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (library ? tuttiMemAlloc(&p, bytes) != tuttiSuccess : p == MAP_FAILED)
		return tt_fail(TT_SYSTEM, "no memory for buffers of %zu bytes: %s", bytes,
			       strerror(errno));
	b->at = b->host = p;
	return 0;
}

void bench_buffer_free(struct bench_buffer *b, const struct tool_cuda_device *gpu)
{
	if (gpu->cu && b->at)
		gpu->cu->mem_free((tt_cuptr)(uintptr_t)b->at);
	if (gpu->cu && b->host)
		gpu->cu->host_free(b->host);
	if (!gpu->cu && b->at && b->library)
		tuttiMemFree(b->at);
	if (!gpu->cu && b->at && !b->library)
		munmap(b->at, b->bytes);
	*b = (struct bench_buffer){ .at = NULL };
}

void *bench_buffer_host(const struct bench_buffer *b, const void *at)
{
	return b->host + ((const char *)at - b->at);
}

/* Waits for a copy; rc: result of the copy's start. */
static int wait_copy(const struct tool_cuda_device *gpu, tt_custream stream, int rc)
{
	if (!rc)
		rc = gpu->cu->stream_synchronize(stream);
	return rc ? tt_cuda_fail(rc, "copy between device %d and the host", gpu->ordinal) : 0;
}

int bench_buffer_put(const struct bench_buffer *b, const struct tool_cuda_device *gpu,
		     tt_custream stream, const void *at, size_t bytes)
{
	if (b->host == b->at || !bytes)
		return 0;
	return wait_copy(gpu, stream,
			 gpu->cu->htod_async((tt_cuptr)(uintptr_t)at, bench_buffer_host(b, at),
					     bytes, stream));
}

int bench_buffer_get(const struct bench_buffer *b, const struct tool_cuda_device *gpu,
		     tt_custream stream, const void *at, size_t bytes)
{
	if (b->host == b->at || !bytes)
		return 0;
	return wait_copy(gpu, stream,
			 gpu->cu->dtoh_async(bench_buffer_host(b, at), (tt_cuptr)(uintptr_t)at,
					     bytes, stream));
}
