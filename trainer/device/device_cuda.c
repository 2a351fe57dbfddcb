/*
 * device_cuda.c - device cuda: a GPU, through the table of the CUDA driver (gpu/cuda.h)
 *
 * All operations are submitted to one stream and run asynchronously. Library calls have a
 * communication stream of their own, ordered by events. Matrix products are cuBLAS's, in plain
 * float without TF32; with --canonical they are our own kernel's, and all bits are those of
 * --device cpu. Small data is copied to the GPU through a pinned bounce buffer, in pieces. The
 * first error is recorded and returned by sync. Row of the table in device.c.
 */
#include "tools/cuda_device.h"
#include "trainer/base/fail.h"
#include "trainer/device/device_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_NVCC
extern const unsigned char train_image[];
#define IMAGE train_image
#else
#define IMAGE NULL
#endif

/* The thread's device, selected before its rank joins. */
static __thread struct tool_cuda_device selected;

void train_cuda_check(struct train_cuda_state *c, int rc, const char *operation)
{
	if (!rc || c->error[0])
		return;
	tt_cuda_fail(rc, "device cuda: %s", operation);
	snprintf(c->error, sizeof(c->error), "%s", tt_error_text());
}

static int first_error(const struct train_cuda_state *c)
{
	return c->error[0] ? train_fail(TRAIN_FAILED, "%s", c->error) : TRAIN_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int cuda_select(const char *name, int local_rank)
{
	int ordinal;

	if (!tool_cuda_device_parse(name, &ordinal))
		return train_fail(TRAIN_USAGE, "--device %s: use cuda, or cuda:N", name);
	tool_cuda_device_prepare();
	if (tool_cuda_device_take(ordinal, local_rank, &selected))
		return train_fail(TRAIN_USAGE, "--device %s: %s", name, tt_error_text());
	return TRAIN_OK;
}

static int find_kernels(struct train_cuda_state *c)
{
	const void *image = c->cu->own_kernels ? c->cu->own_kernels : IMAGE;
	int device, sms = 1, rc;
	void *module = NULL;

	if (!image)
		return train_fail(TRAIN_USAGE, "--device cuda: the kernels are not built in; "
					       "configure --with-nvcc");
	rc = c->cu->module_load(&module, image);
#define FIND(name, type)                                                       \
	if (!rc)                                                               \
		rc = c->cu->module_function(&c->kernel[KERNEL_##name], module, \
					    "train_kernel_" #name);
	TRAIN_CUDA_KERNELS(FIND)
#undef FIND
	if (!rc)
		rc = c->cu->ctx_device(&device);
	if (!rc)
		rc = c->cu->device_attribute(&sms, TT_CU_ATTR_SMS, device);
	c->blocks = 8 * (unsigned)sms;
	train_cuda_check(c, rc, "load the kernels");
	return first_error(c);
}

static int open_blas(struct train_cuda_state *c)
{
	int rc = train_cublas_load(&c->blas), status;

	if (rc)
		return rc;
	status = c->blas.create(&c->handle);
	if (!status)
		status = c->blas.set_stream(c->handle, c->stream);
	if (!status)
		status = c->blas.set_math_mode(c->handle, TRAIN_CUBLAS_PEDANTIC);
	if (status)
		return train_fail(TRAIN_FAILED,
				  "device cuda: cuBLAS cannot be initialized: status %d", status);
	return TRAIN_OK;
}

static int cuda_open(struct train_device *d)
{
	struct train_cuda_state *c = calloc(1, sizeof(*c));
	void *memory = NULL;

	if (!c || !selected.cu) {
		free(c);
		return train_fail(TRAIN_FAILED, "device cuda: no memory, or no device selected");
	}
	d->state = c;
	c->cu = selected.cu;
	train_cuda_check(c, c->cu->stream_create(&c->stream, TT_CU_STREAM_NON_BLOCKING),
			 "a stream");
	train_cuda_check(c, c->cu->stream_create(&c->comm_stream, TT_CU_STREAM_NON_BLOCKING),
			 "a stream");
	train_cuda_check(c, c->cu->event_create(&c->computed, TT_CU_EVENT_UNTIMED), "an event");
	train_cuda_check(c,
			 c->cu->host_alloc(&memory, TRAIN_CUDA_BOUNCE_BYTES, TT_CU_HOST_PORTABLE),
			 "pinned memory");
	c->bounce = (struct train_cuda_bounce){ .at = memory, .bytes = TRAIN_CUDA_BOUNCE_BYTES };
	if (first_error(c))
		return TRAIN_FAILED;
	return find_kernels(c) ? TRAIN_FAILED : d->canonical ? TRAIN_OK : open_blas(c);
}

static void cuda_close(struct train_device *d)
{
	struct train_cuda_state *c = d->state;
	struct train_cuda_buffer *areas[] = { &c->images, &c->labels, &c->losses };

	if (!c)
		return;
	if (c->stream)
		c->cu->stream_synchronize(c->stream);
	if (c->handle)
		c->blas.destroy(c->handle);
	for (int i = 0; i < 3; i++)
		if (areas[i]->at)
			c->cu->mem_free(areas[i]->at);
	if (c->bounce.at)
		c->cu->host_free(c->bounce.at);
	if (c->computed)
		c->cu->event_destroy(c->computed);
	if (c->comm_stream)
		c->cu->stream_destroy(c->comm_stream);
	if (c->stream)
		c->cu->stream_destroy(c->stream);
	free(c);
	d->state = NULL;
}

/* ---- memory --------------------------------------------------------------------------------- */

static tt_cuptr address(const void *p)
{
	return (tt_cuptr)(uintptr_t)p;
}

static void *cuda_alloc(struct train_device *d, size_t bytes)
{
	struct train_cuda_state *c = d->state;
	tt_cuptr at;

	if (c->cu->mem_alloc(&at, bytes ? bytes : 1))
		return NULL;
	train_cuda_check(c, c->cu->memset8_async(at, 0, bytes ? bytes : 1, c->stream),
			 "clear memory");
	return (void *)(uintptr_t)at;
}

static void cuda_free(struct train_device *d, void *memory)
{
	struct train_cuda_state *c = d->state;

	if (!memory)
		return;
	c->cu->stream_synchronize(c->stream);
	c->cu->mem_free(address(memory));
}

static int cuda_sync(struct train_device *d)
{
	struct train_cuda_state *c = d->state;

	train_cuda_check(c, c->cu->stream_synchronize(c->stream), "wait for computation");
	return first_error(c);
}

char *train_cuda_bounce_alloc(struct train_device *d, size_t bytes)
{
	struct train_cuda_bounce *p = &((struct train_cuda_state *)d->state)->bounce;
	char *at;

	if (bytes > p->bytes - p->used) {
		cuda_sync(d);
		p->used = 0;
	}
	at = p->at + p->used;
	p->used += (bytes + 63) / 64 * 64;
	p->used = p->used < p->bytes ? p->used : p->bytes;
	return at;
}

static size_t piece(size_t bytes)
{
	return bytes < TRAIN_CUDA_BOUNCE_BYTES ? bytes : TRAIN_CUDA_BOUNCE_BYTES;
}

void train_cuda_copy_in(struct train_device *d, tt_cuptr to, const char *from, size_t bytes)
{
	struct train_cuda_state *c = d->state;

	for (size_t part; bytes; to += part, from += part, bytes -= part) {
		char *bounce;

		part = piece(bytes);
		bounce = train_cuda_bounce_alloc(d, part);
		memcpy(bounce, from, part);
		train_cuda_check(c, c->cu->htod_async(to, bounce, part, c->stream),
				 "copy to the GPU");
	}
}

static void cuda_put(struct train_device *d, void *to, const void *from_host, size_t bytes)
{
	d->put_bytes += bytes;
	train_cuda_copy_in(d, address(to), from_host, bytes);
}

static void cuda_get(struct train_device *d, void *to_host, const void *from, size_t bytes)
{
	struct train_cuda_state *c = d->state;

	d->get_bytes += bytes;
	if (bytes)
		train_cuda_check(c, c->cu->dtoh_async(to_host, address(from), bytes, c->stream),
				 "copy from the GPU");
	cuda_sync(d);
}

static void cuda_copy(struct train_device *d, void *to, const void *from, size_t bytes)
{
	struct train_cuda_state *c = d->state;

	if (bytes && to != from)
		train_cuda_check(c, c->cu->dtod_async(address(to), address(from), bytes, c->stream),
				 "copy within the GPU");
}

tt_cuptr train_cuda_reserve(struct train_device *d, struct train_cuda_buffer *area, size_t bytes)
{
	struct train_cuda_state *c = d->state;

	if (bytes <= area->bytes)
		return area->at;
	cuda_sync(d);
	if (area->at)
		c->cu->mem_free(area->at);
	*area = (struct train_cuda_buffer){ .bytes = 0 };
	train_cuda_check(c, c->cu->mem_alloc(&area->at, bytes), "memory for a batch");
	if (!c->error[0])
		area->bytes = bytes;
	return c->error[0] ? 0 : area->at;
}

/* ---- communication overlap ------------------------------------------------------------------ */

static void *cuda_comm_stream(struct train_device *d)
{
	return ((struct train_cuda_state *)d->state)->comm_stream;
}

static void cuda_comm_stream_after_compute(struct train_device *d)
{
	struct train_cuda_state *c = d->state;

	train_cuda_check(c, c->cu->event_record(c->computed, c->stream), "record an event");
	train_cuda_check(c, c->cu->stream_wait_event(c->comm_stream, c->computed, 0),
			 "wait for an event");
}

static int cuda_comm_stream_sync(struct train_device *d)
{
	struct train_cuda_state *c = d->state;

	train_cuda_check(c, c->cu->stream_synchronize(c->comm_stream),
			 "wait for the library's calls");
	return first_error(c);
}

const struct train_device_ops train_device_cuda = {
	.name = "cuda",
	.help = "a GPU: cuda:N is the driver's device N; cuda: by rank on the host",
	.separate_memory = true,
	.tutti_aware = true,
	.select = cuda_select,
	.open = cuda_open,
	.close = cuda_close,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.put = cuda_put,
	.get = cuda_get,
	.copy = cuda_copy,
	.sync = cuda_sync,
	.comm_stream = cuda_comm_stream,
	.comm_stream_after_compute = cuda_comm_stream_after_compute,
	.comm_stream_sync = cuda_comm_stream_sync,
	TRAIN_DEVICE_COMPUTE(TRAIN_DEVICE_MEMBER, train_cuda_op)
		TRAIN_DEVICE_MEMBER(train_cuda_op, gemm)
};
