/*
 * cuda_device.c - the GPU of a tool's rank (cuda_device.h): context, facts, copy bandwidth
 *
 * Called by perf/bench/rank_records.c and the trainer. Calls the CUDA driver (gpu/cuda.h).
 */
#include "tools/cuda_device.h"
#include "tools/plural.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_LEAST = 1 << 20, COPY_ROUNDS = 4, COPIES = 8 };

bool tool_cuda_device_parse(const char *text, int *ret_ordinal)
{
	unsigned long number;
	char *end;

	if (strncmp(text, "cuda", 4))
		return false;
	*ret_ordinal = -1;
	if (text[4] == '\0')
		return true;
	if (text[4] != ':' || text[5] < '0' || text[5] > '9')
		return false;
	number = strtoul(text + 5, &end, 10);
	*ret_ordinal = (int)number;
	return *end == '\0' && number < 1024;
}

void tool_cuda_device_prepare(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static int describe(struct tool_cuda_device *d)
{
	int device, rc = d->cu->device_get(&device, d->ordinal);

	if (!rc)
		rc = d->cu->device_uuid(&d->uuid, device);
	if (!rc)
		rc = d->cu->device_name(d->name, sizeof(d->name), device);
	if (!rc)
		rc = d->cu->device_pci(d->pci, sizeof(d->pci), device);
	if (!rc)
		rc = d->cu->ctx_retain(&d->ctx, device);
	return rc ? rc : d->cu->ctx_set(d->ctx);
}

int tool_cuda_device_take(int ordinal, int local_rank, struct tool_cuda_device *ret)
{
	struct tool_cuda_device d = { .cu = tt_cuda_load() };
	int rc;

	if (!d.cu)
		return TT_CUDA;
	rc = d.cu->device_count(&d.devices);
	if (rc)
		return tt_cuda_fail(rc, "count the devices");
	if (d.devices < 1 || ordinal >= d.devices)
		return tt_fail(
			TT_CUDA,
			"cuda:%d: this host has %d CUDA device%s; use cuda:0 or another existing device",
			ordinal < 0 ? 0 : ordinal, d.devices, tool_s(d.devices));
	d.ordinal = ordinal < 0 ? local_rank % d.devices : ordinal;
	rc = describe(&d);
	if (rc)
		return tt_cuda_fail(rc, "create a context on device %d", d.ordinal);
	*ret = d;
	return 0;
}

/* ---- copy bandwidth -------------------------------------------------------------------------- */

struct copy_test {
	tt_cuptr from, to;
	size_t bytes;
	tt_custream stream;
	tt_cuevent begin, end;
};

/* Allocates two buffers of `most` bytes; halves the size while memory does not suffice. */
static int copy_test_open(const struct tt_cuda *cu, struct copy_test *c, size_t most)
{
	int rc = 0;

	for (c->bytes = most; c->bytes >= COPY_LEAST; c->bytes /= 2) {
		rc = cu->mem_alloc(&c->from, c->bytes);
		if (!rc && !(rc = cu->mem_alloc(&c->to, c->bytes)))
			break;
		if (c->from)
			cu->mem_free(c->from);
		c->from = 0;
	}
	if (!rc)
		rc = cu->stream_create(&c->stream, TT_CU_STREAM_NON_BLOCKING);
	if (!rc)
		rc = cu->event_create(&c->begin, 0);
	if (!rc)
		rc = cu->event_create(&c->end, 0);
	return rc ? rc : cu->memset8_async(c->from, 0x3c, c->bytes, c->stream);
}

static void copy_test_close(const struct tt_cuda *cu, struct copy_test *c)
{
	if (c->end)
		cu->event_destroy(c->end);
	if (c->begin)
		cu->event_destroy(c->begin);
	if (c->stream)
		cu->stream_destroy(c->stream);
	if (c->to)
		cu->mem_free(c->to);
	if (c->from)
		cu->mem_free(c->from);
}

static int copy_round(const struct tt_cuda *cu, const struct copy_test *c, float *ret_ms)
{
	int rc = cu->event_record(c->begin, c->stream);

	for (int i = 0; i < COPIES && !rc; i++)
		rc = cu->dtod_async(c->to, c->from, c->bytes, c->stream);
	if (!rc)
		rc = cu->event_record(c->end, c->stream);
	if (!rc)
		rc = cu->event_synchronize(c->end);
	return rc ? rc : cu->event_elapsed(ret_ms, c->begin, c->end);
}

int tool_cuda_device_copy_gbps(const struct tool_cuda_device *d, double *ret_gbps,
			       size_t *ret_bytes)
{
	struct copy_test c = { .from = 0 };
	float ms, best = 0;
	int device, cache = 0, rc;

	rc = d->cu->device_get(&device, d->ordinal);
	if (!rc)
		rc = d->cu->device_attribute(&cache, TT_CU_ATTR_L2_BYTES, device);
	if (!rc)
		rc = copy_test_open(d->cu, &c,
				    (size_t)cache * 8 > COPY_LEAST ? (size_t)cache * 8
								   : COPY_LEAST);
	for (int i = 0; i < COPY_ROUNDS && !rc; i++) {
		rc = copy_round(d->cu, &c, &ms);
		if (i == 1 || (i && ms < best)) /* round 0 is the warm-up */
			best = ms;
	}
	copy_test_close(d->cu, &c);
	if (rc)
		return tt_cuda_fail(rc, "measure the copy bandwidth of device %d", d->ordinal);
	*ret_gbps = best > 0 ? 2.0 * COPIES * (double)c.bytes / ((double)best * 1e6) : 0;
	*ret_bytes = c.bytes;
	return 0;
}
