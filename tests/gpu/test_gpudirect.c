/*
 * test_gpudirect.c - GPUDirect RDMA: an HCA reads and writes device memory; libibverbs and CUDA are
 * fakes
 *
 * Run by tests/scripts/verbs.sh. Ranks are processes with different host identifiers. Processors cannot
 * access device memory (an access ends the process), and the HCA writes to the registered memory, not
 * to later memory at its address. Claims: right results without staging where memory is registered;
 * right results by staging after any refusal; no freed or deregistered memory is used. The suite
 * proves nothing about a GPU or an HCA.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "tests/gpu/gpu_buffers.h"
#include "tests/support/ranks.h"
#include "transports/verbs/verbs.h"

#define COUNT 900001u /* bytes: messages of 256 KiB, and an odd one */
#define SHIFT 12u     /* offset of registered ranges in their page, bytes */

#define EXPECT(x)                                                                                \
	do {                                                                                     \
		if (!(x)) {                                                                      \
			fprintf(stderr, "%s:%d: rank %d: failed: %s (%s)\n", __FILE__, __LINE__, \
				rank, #x, tt_error_text());                                      \
			return 1;                                                                \
		}                                                                                \
	} while (0)

static const enum tt_collective copying[] = { TT_BROADCAST, TT_ALLGATHER, TT_ALLTOALL, TT_GATHER,
					      TT_SCATTER };
#define COPYING (sizeof(copying) / sizeof(copying[0]))

/* ---- ranks ----------------------------------------------------------------------------------- */

struct gpudirect_ranks {
	struct ranks ranks;
	rank_fn *fn;
};
static const char *transport = "verbs";

static int init_and_run(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpudirect_ranks *r = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	char host[16];

	snprintf(host, sizeof(host), "host%d", rank);
	setenv("TUTTI_HOST_ID", host, 1);
	config.timeout_ms = r->ranks.timeout_ms;
	config.transport = transport;
	EXPECT(harness_cuda());
	EXPECT(!tuttiCommInitRankConfig(comm, n, r->ranks.id, rank, &config));
	EXPECT((*comm)->gpu && !(*comm)->gpu->kernels);
	return r->fn(comm, rank, n, NULL);
}

/* lacks: features that the fake CUDA driver does not have, see tests/fakes/cuda/fake_cuda.h */
static int failures(int n, const char *lacks, rank_fn *fn)
{
	struct gpudirect_ranks r = {
		.ranks = { .n = n, .no_join = true, .limit_s = 50, .timeout_ms = 20000 }, .fn = fn
	};
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	setenv("TUTTI_TEST_CUDA_NO", lacks, 1);
	r.ranks.arg = &r;
	return ranks_run(&r.ranks, init_and_run);
}

static const struct tt_verbs_ep *endpoint_of(tuttiComm_t comm)
{
	return (const struct tt_verbs_ep *)tt_path_via(&comm->paths.path[0], comm->rank ? 0 : 1);
}

/* Registers both buffers of b, except the first SHIFT bytes */
static int register_both(struct gpu_buffers *b, tuttiComm_t comm, void *handle[2])
{
	return tuttiCommRegister(comm, (void *)(uintptr_t)(b->in + SHIFT), GPU_BUFFER_BYTES,
				 &handle[0]) ||
	       tuttiCommRegister(comm, (void *)(uintptr_t)(b->out + SHIFT), GPU_BUFFER_BYTES,
				 &handle[1]);
}

static int deregister_both(tuttiComm_t comm, void *handle[2])
{
	return tuttiCommDeregister(comm, handle[0]) || tuttiCommDeregister(comm, handle[1]);
}

static struct gpu_buffers_call call_of(enum tt_collective what, size_t count)
{
	return (struct gpu_buffers_call){ .what = what,
					  .count = count,
					  .type = tuttiUint8,
					  .op = tuttiSum,
					  .root = what == TT_SCATTER,
					  .shift = SHIFT };
}

/* Sends to the next rank and receives from the previous rank, in a group. */
static int send_recv(struct gpu_buffers *b, tuttiComm_t comm, size_t bytes)
{
	int next = (b->rank + 1) % b->n, previous = (b->rank + b->n - 1) % b->n, rank = b->rank;
	tuttiResult_t state;

	for (int r = 0; r < 2; r++)
		for (size_t i = 0; i < bytes; i++)
			b->inputs[r][i] = (unsigned char)random_of((r ? previous : rank) + 7,
								   i >> 2);
	EXPECT(!harness_to_device(b->in + SHIFT, b->inputs[0], bytes));
	EXPECT(!tuttiGroupStart());
	EXPECT(!tuttiSend((void *)(uintptr_t)(b->in + SHIFT), bytes, tuttiUint8, next, comm,
			  b->stream));
	EXPECT(!tuttiRecv((void *)(uintptr_t)(b->out + SHIFT), bytes, tuttiUint8, previous, comm,
			  b->stream));
	EXPECT(!tuttiGroupEnd());
	EXPECT(!b->cu->stream_synchronize(b->stream));
	EXPECT(!tuttiCommGetAsyncError(comm, &state) && state == tuttiSuccess);
	EXPECT(!b->cu->dtoh(b->got, b->out + SHIFT, bytes));
	EXPECT(!memcmp(b->got, b->inputs[1], bytes));
	return 0;
}

/* Each copying collective, out of place and in place, and a message around the ring */
static int copy_all(struct gpu_buffers *b, tuttiComm_t comm)
{
	for (size_t i = 0; i < COPYING; i++)
		for (int in_place = 0; in_place < 2; in_place++) {
			struct gpu_buffers_call c = call_of(copying[i], COUNT);

			c.in_place = in_place;
			if (!in_place || c.what != TT_ALLTOALL)
				gpu_buffers_check(b, &c, comm);
		}
	return b->wrong || send_recv(b, comm, COUNT);
}
#define COPIES (2 * COPYING - 1 + 2) /* calls of copy_all */

/* ---- GPUDirect RDMA -------------------------------------------------------------------------- */

static int gdr_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	uint64_t registrations;
	void *handle[2];
	struct gpu_buffers b;

	(void)arg;
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	setenv("TUTTI_TEST_CUDA_PINNED", "1", 1);
	EXPECT(!copy_all(&b, *comm));
	EXPECT(d->gdr_calls == COPIES && d->refused == 0 && d->staged_bytes == 0);
	EXPECT(endpoint_of(*comm)->dmabufs == 2 && endpoint_of(*comm)->zcopy_sent > 0);
	registrations = endpoint_of(*comm)->registrations;
	EXPECT(!copy_all(&b, *comm));
	EXPECT(endpoint_of(*comm)->registrations == registrations && d->staged_bytes == 0);
	EXPECT(!deregister_both(*comm, handle) && endpoint_of(*comm)->cache.count == 0);
	EXPECT(!copy_all(&b, *comm)); /* staged: no longer registered */
	EXPECT(d->gdr_calls == 2 * COPIES && d->refused == 0 && d->staged_bytes > 0);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, copy_only_collectives_are_not_staged, .timeout = 60)
{
	cr_assert(failures(2, "host", gdr_body) == 0);
	cr_assert(failures(3, "host", gdr_body) == 0);
}

Test(gpudirect, writes_of_an_hca_are_flushed_before_they_are_read, .timeout = 60)
{
	cr_assert(failures(3, "host,ordering", gdr_body) == 0);
}

/* Reductions, small messages, and calls with one registered buffer of two are staged. */
static int staged_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const enum tt_collective sums[] = { TT_ALLREDUCE, TT_REDUCE, TT_REDUCE_SCATTER };
	const struct tt_gpu *d = (*comm)->gpu;
	struct gpu_buffers_call small = call_of(TT_ALLGATHER, 1000),
				half = call_of(TT_ALLGATHER, COUNT);
	void *handle[2];
	struct gpu_buffers b;

	(void)arg;
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	for (int i = 0; i < 3; i++) {
		struct gpu_buffers_call c = call_of(sums[i], COUNT);

		gpu_buffers_check(&b, &c, *comm);
	}
	gpu_buffers_check(&b, &small, *comm);
	EXPECT(!tuttiCommDeregister(*comm, handle[0]));
	gpu_buffers_check(&b, &half, *comm);
	EXPECT(b.wrong == 0 && d->gdr_calls == 0 && d->staged_bytes > 0 && !d->copies);
	EXPECT(endpoint_of(*comm)->dmabufs == 0);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, reductions_and_small_calls_are_staged, .timeout = 60)
{
	cr_assert(failures(3, "host", staged_body) == 0);
}

/* With a tuning table that prefers tcp, a call chosen for GPUDirect RDMA is staged once its path is
 * known. */
static int tcp_path_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	struct gpu_buffers_call c = call_of(TT_ALLGATHER, COUNT);
	void *handle[2];
	struct gpu_buffers b;

	(void)arg;
	EXPECT((*comm)->paths.npaths == 2);
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	setenv("TUTTI_TEST_CUDA_PINNED", "1", 1);
	gpu_buffers_check(&b, &c, *comm);
	c.in_place = true;
	gpu_buffers_check(&b, &c, *comm);
	EXPECT(b.wrong == 0 && d->gdr_calls == 2 && d->staged_bytes > 0);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, a_call_over_the_tcp_path_is_staged_once_its_path_is_known, .timeout = 60)
{
	static const char table[] = "verbs.latency_ns 1e6\n";
	int fd = memfd_create("table", 0); /* also for rank 0 */
	char path[32];

	cr_assert(fd >= 0 && write(fd, table, sizeof(table) - 1) == sizeof(table) - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("TUTTI_TUNING", path, 1);
	transport = "auto";
	cr_assert(failures(2, "host", tcp_path_body) == 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static int refused_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	void *handle[2];
	struct gpu_buffers b;

	(void)arg;
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	EXPECT(!copy_all(&b, *comm));
	EXPECT(d->gdr_calls == 0 && d->staged_bytes > 0);
	EXPECT(d->refused == (d->gdr == TT_GDR_YES ? COPIES : 0));
	EXPECT(endpoint_of(*comm)->dmabufs == 0);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, a_device_without_dma_buf_is_staged, .timeout = 60)
{
	cr_assert(failures(2, "host,dmabuf", refused_body) == 0);
}

Test(gpudirect, a_device_that_cannot_be_flushed_is_staged, .timeout = 60)
{
	cr_assert(failures(2, "host,ordering,flush", refused_body) == 0);
}

Test(gpudirect, an_hca_that_refuses_dma_buf_is_staged, .timeout = 60)
{
	setenv("TUTTI_TEST_VERBS_FAULT", "no-dmabuf@1", 1);
	cr_assert(failures(2, "host", refused_body) == 0);
}

Test(gpudirect, gpudirect_switched_off_is_staged, .timeout = 60)
{
	setenv("TUTTI_GPUDIRECT", "off", 1);
	cr_assert(failures(3, "host", refused_body) == 0);
}

Test(gpudirect, a_device_with_one_connection_is_staged, .timeout = 60)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	cr_assert(failures(2, "host", refused_body) == 0);
}

/* The driver refuses the first buffer; calls without that buffer use GPUDirect RDMA. */
static int one_refused_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	struct gpu_buffers_call gather = call_of(TT_GATHER, COUNT);
	void *handle[2];
	struct gpu_buffers b;

	(void)arg;
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	EXPECT(!copy_all(&b, *comm));
	EXPECT(d->refused > 0 && d->staged_bytes > 0 && endpoint_of(*comm)->dmabufs == 1);
	gather.in_place = true; /* only the second buffer */
	gpu_buffers_check(&b, &gather, *comm);
	EXPECT(b.wrong == 0 && d->gdr_calls > 0);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, only_calls_with_the_refused_buffer_are_staged, .timeout = 60)
{
	setenv("TUTTI_TEST_CUDA_FAIL", "cuMemGetHandleForAddressRange:1:801", 1);
	cr_assert(failures(2, "host", one_refused_body) == 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* The program frees a buffer without deregistering it, against the contract, and gets other memory at
 * the same address. */
static int reused_address_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	void *handle[2];
	struct gpu_buffers b;
	tt_cuptr old;

	(void)arg;
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	EXPECT(!send_recv(&b, *comm, COUNT));
	old = b.out;
	EXPECT(!b.cu->mem_free(b.out) && !b.cu->mem_alloc(&b.out, GPU_BUFFER_BYTES + 64));
	EXPECT(b.out == old);
	for (int i = 0; i < 3; i++)
		EXPECT(!send_recv(&b, *comm, COUNT + (size_t)i));
	EXPECT(d->gdr_calls == 8 && d->staged_bytes == 0 && endpoint_of(*comm)->dmabufs == 3);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, memory_at_a_freed_and_reused_address_is_registered_anew, .timeout = 60)
{
	cr_assert(failures(2, "", reused_address_body) == 0);
}

/* Rank 1 times out. A later message of rank 0 must not be written to the buffer of the early RTR. */
static int late_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t error = tuttiSuccess;
	void *handle[2];
	struct gpu_buffers b;

	(void)arg;
	EXPECT(!gpu_buffers_open(&b, rank, n) && !register_both(&b, *comm, handle));
	EXPECT(!send_recv(&b, *comm, COUNT));
	if (rank == 1) {
		(*comm)->settings.timeout_ms = 300;
		EXPECT(!b.cu->memset8_async(b.out, 0xee, GPU_BUFFER_BYTES, b.stream));
		EXPECT(!tuttiRecv((void *)(uintptr_t)(b.out + SHIFT), COUNT, tuttiUint8, 0, *comm,
				  b.stream));
		EXPECT(!b.cu->stream_synchronize(b.stream));
		EXPECT(!tuttiCommGetAsyncError(*comm, &error) && error == tuttiTimeout);
	} else {
		while (!tuttiCommGetAsyncError(*comm, &error) && !error)
			usleep(1000);
		tuttiSend((void *)(uintptr_t)(b.in + SHIFT), COUNT, tuttiUint8, 1, *comm, b.stream);
		b.cu->stream_synchronize(b.stream);
	}
	usleep(300000);
	EXPECT(!b.cu->dtoh(b.got, b.out, GPU_BUFFER_BYTES));
	for (size_t i = 0; rank == 1 && i < GPU_BUFFER_BYTES; i++)
		EXPECT(b.got[i] == 0xee);
	gpu_buffers_close(&b);
	return 0;
}

Test(gpudirect, nothing_is_written_to_a_receive_buffer_after_a_failure, .timeout = 60)
{
	cr_assert(failures(2, "host", late_body) == 0);
}
