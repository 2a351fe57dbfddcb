/*
 * test_gpudirect.c - device memory that a card reads and writes: the verbs transport and CUDA, both
 * fakes
 *
 * Run by tests/scripts/verbs.sh. Ranks are processes that believe to be on hosts of their own. Device
 * memory is out of the processors' reach (whoever touches it dies), and a card writes to the memory
 * that was registered, not to what lies at its address later. What must hold: right bytes without
 * stages where memory is registered; stages, and right bytes, where anything refuses; nothing of
 * what was freed or taken back is used. It proves nothing about a GPU or a card.
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

#define COUNT 900001u                  /* bytes: messages of 256 KiB, and an odd one */
#define SHIFT 12u                      /* bytes by which registered ranges are off their page */

#define EXPECT(x)										\
	do {											\
		if (!(x)) {									\
			fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__,\
				rank, #x, tt_error_text());					\
			return 1;								\
		}										\
	} while (0)

static const enum tt_collective copying[] = { TT_BROADCAST, TT_ALLGATHER, TT_ALLTOALL, TT_GATHER,
					      TT_SCATTER };
#define COPYING (sizeof(copying) / sizeof(copying[0]))

/* ---- ranks ----------------------------------------------------------------------------------- */

struct gpudirect_ranks { struct ranks ranks; rank_fn *fn; };
static const char *transport = "verbs";

static int join_and_act(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct gpudirect_ranks *crew = arg;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	char host[16];

	snprintf(host, sizeof(host), "host%d", rank);
	setenv("TUTTI_HOST_ID", host, 1);
	config.timeout_ms = crew->ranks.timeout_ms;
	config.transport = transport;
	EXPECT(harness_cuda());
	EXPECT(!tuttiCommInitRankConfig(comm, n, crew->ranks.id, rank, &config));
	EXPECT((*comm)->gpu && !(*comm)->gpu->kernels);
	return crew->fn(comm, rank, n, NULL);
}

/* lacks: what the fake for CUDA has not, see tests/fakes/cuda/fake_cuda.h */
static int failures(int n, const char *lacks, rank_fn *fn)
{
	struct gpudirect_ranks crew = {
		.ranks = { .n = n, .no_join = true, .limit_s = 50, .timeout_ms = 20000 }, .fn = fn
	};
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	setenv("TUTTI_TEST_CUDA_NO", lacks, 1);
	crew.ranks.arg = &crew;
	return ranks_run(&crew.ranks, join_and_act);
}

static const struct tt_verbs_ep *card_of(tuttiComm_t comm)
{
	return (const struct tt_verbs_ep *)comm->paths.path[0].via[comm->rank ? 0 : 1];
}

/* Both buffers of h, but for the first bytes, which nothing is made of */
static int keep(struct gpu_buffers *h, tuttiComm_t comm, void *handle[2])
{
	return tuttiCommRegister(comm, (void *)(uintptr_t)(h->in + SHIFT), HAND_MOST, &handle[0]) ||
	       tuttiCommRegister(comm, (void *)(uintptr_t)(h->out + SHIFT), HAND_MOST, &handle[1]);
}

static int give_back(tuttiComm_t comm, void *handle[2])
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

/* Round the ranks, in a group */
static int pass_on(struct gpu_buffers *h, tuttiComm_t comm, size_t bytes)
{
	int next = (h->rank + 1) % h->n, last = (h->rank + h->n - 1) % h->n, rank = h->rank;
	tuttiResult_t state;

	for (int r = 0; r < 2; r++)
		for (size_t i = 0; i < bytes; i++)
			h->inputs[r][i] = (unsigned char)random_of((r ? last : rank) + 7, i >> 2);
	EXPECT(!h->cu->htod(h->in + SHIFT, h->inputs[0], bytes));
	EXPECT(!tuttiGroupStart());
	EXPECT(!tuttiSend((void *)(uintptr_t)(h->in + SHIFT), bytes, tuttiUint8, next, comm,
			  h->stream));
	EXPECT(!tuttiRecv((void *)(uintptr_t)(h->out + SHIFT), bytes, tuttiUint8, last, comm,
			  h->stream));
	EXPECT(!tuttiGroupEnd());
	EXPECT(!h->cu->stream_synchronize(h->stream));
	EXPECT(!tuttiCommGetAsyncError(comm, &state) && state == tuttiSuccess);
	EXPECT(!h->cu->dtoh(h->got, h->out + SHIFT, bytes));
	EXPECT(!memcmp(h->got, h->inputs[1], bytes));
	return 0;
}

/* Each copying collective, in place too, and a message round */
static int copy_all(struct gpu_buffers *h, tuttiComm_t comm)
{
	for (size_t i = 0; i < COPYING; i++)
		for (int in_place = 0; in_place < 2; in_place++) {
			struct gpu_buffers_call c = call_of(copying[i], COUNT);

			c.in_place = in_place;
			if (!in_place || c.what != TT_ALLTOALL)
				hand_check(h, &c, comm);
		}
	return h->wrong || pass_on(h, comm, COUNT);
}
#define COPIES (2 * COPYING - 1 + 2)   /* calls of it */

/* ---- gdr -------------------------------------------------------------------------------- */

static int straight_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	uint64_t registrations;
	void *handle[2];
	struct gpu_buffers h;

	(void)arg;
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	EXPECT(!copy_all(&h, *comm));
	EXPECT(d->gdr_calls == COPIES && d->refused == 0 && d->staged_bytes == 0);
	EXPECT(card_of(*comm)->dmabufs == 2 && card_of(*comm)->zcopy_sent > 0);
	registrations = card_of(*comm)->registrations;
	EXPECT(!copy_all(&h, *comm));
	EXPECT(card_of(*comm)->registrations == registrations && d->staged_bytes == 0);
	EXPECT(!give_back(*comm, handle) && card_of(*comm)->cache.count == 0);
	EXPECT(!copy_all(&h, *comm));          /* now by stages */
	EXPECT(d->gdr_calls == 2 * COPIES && d->refused == 0 && d->staged_bytes > 0);
	hand_close(&h);
	return 0;
}

Test(gpudirect, copy_only_collectives_are_not_staged, .timeout = 60)
{
	cr_assert(failures(2, "host", straight_body) == 0);
	cr_assert(failures(3, "host", straight_body) == 0);
}

Test(gpudirect, writes_of_an_hca_are_flushed_before_they_are_read, .timeout = 60)
{
	cr_assert(failures(3, "host,ordering", straight_body) == 0);
}

/* Sums, small messages and what is registered by half: as ever. */
static int staged_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const enum tt_collective sums[] = { TT_ALLREDUCE, TT_REDUCE, TT_REDUCE_SCATTER };
	const struct tt_gpu *d = (*comm)->gpu;
	struct gpu_buffers_call small = call_of(TT_ALLGATHER, 1000), half = call_of(TT_ALLGATHER, COUNT);
	void *handle[2];
	struct gpu_buffers h;

	(void)arg;
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	for (int i = 0; i < 3; i++) {
		struct gpu_buffers_call c = call_of(sums[i], COUNT);

		hand_check(&h, &c, *comm);
	}
	hand_check(&h, &small, *comm);
	EXPECT(!tuttiCommDeregister(*comm, handle[0]));
	hand_check(&h, &half, *comm);
	EXPECT(h.wrong == 0 && d->gdr_calls == 0 && d->staged_bytes > 0);
	EXPECT(card_of(*comm)->dmabufs == 0);
	hand_close(&h);
	return 0;
}

Test(gpudirect, sums_and_small_calls_are_staged, .timeout = 60)
{
	cr_assert(failures(3, "host", staged_body) == 0);
}

/* A table by which tcp is the quicker: what was to go gdr is staged when its road is known. */
static int other_road_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	struct gpu_buffers_call c = call_of(TT_ALLGATHER, COUNT);
	void *handle[2];
	struct gpu_buffers h;

	(void)arg;
	EXPECT((*comm)->paths.npaths == 2);
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	hand_check(&h, &c, *comm);
	c.in_place = true;
	hand_check(&h, &c, *comm);
	EXPECT(h.wrong == 0 && d->gdr_calls == 2 && d->staged_bytes > 0);
	hand_close(&h);
	return 0;
}

Test(gpudirect, a_call_that_takes_the_other_road_is_staged_late, .timeout = 60)
{
	static const char table[] = "verbs.latency_ns 1e6\n";
	int fd = memfd_create("table", 0);     /* for rank 0, too */
	char path[32];

	cr_assert(fd >= 0 && write(fd, table, sizeof(table) - 1) == sizeof(table) - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("TUTTI_TUNING", path, 1);
	transport = "auto";
	cr_assert(failures(2, "host", other_road_body) == 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static int refused_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	void *handle[2];
	struct gpu_buffers h;

	(void)arg;
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	EXPECT(!copy_all(&h, *comm));
	EXPECT(d->gdr_calls == 0 && d->staged_bytes > 0);
	EXPECT(d->refused == (d->gdr == TT_GDR_YES ? COPIES : 0));
	EXPECT(card_of(*comm)->dmabufs == 0);
	hand_close(&h);
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

Test(gpudirect, a_card_that_takes_no_dma_buf_is_staged, .timeout = 60)
{
	setenv("TUTTI_TEST_VERBS_FAULT", "no-dmabuf@1", 1);
	cr_assert(failures(2, "host", refused_body) == 0);
}

Test(gpudirect, who_switched_it_off_is_staged, .timeout = 60)
{
	setenv("TUTTI_GPUDIRECT", "off", 1);
	cr_assert(failures(3, "host", refused_body) == 0);
}

/* The first buffer is refused, for good; what does not need it goes gdr. */
static int one_refused_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	struct gpu_buffers_call gather = call_of(TT_GATHER, COUNT);
	void *handle[2];
	struct gpu_buffers h;

	(void)arg;
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	EXPECT(!copy_all(&h, *comm));
	EXPECT(d->refused > 0 && d->staged_bytes > 0 && card_of(*comm)->dmabufs == 1);
	gather.in_place = true;                /* the second buffer alone */
	hand_check(&h, &gather, *comm);
	EXPECT(h.wrong == 0 && d->gdr_calls > 0);
	hand_close(&h);
	return 0;
}

Test(gpudirect, one_refused_buffer_is_staged_alone, .timeout = 60)
{
	setenv("TUTTI_TEST_CUDA_FAIL", "cuMemGetHandleForAddressRange:1:801", 1);
	cr_assert(failures(2, "host", one_refused_body) == 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Freed without being taken back, against the promise, and other memory at the same address */
static int reborn_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_gpu *d = (*comm)->gpu;
	void *handle[2];
	struct gpu_buffers h;
	tt_cuptr old;

	(void)arg;
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	EXPECT(!pass_on(&h, *comm, COUNT));
	old = h.out;
	EXPECT(!h.cu->mem_free(h.out) && !h.cu->mem_alloc(&h.out, HAND_MOST + 64));
	EXPECT(h.out == old);
	for (int i = 0; i < 3; i++)
		EXPECT(!pass_on(&h, *comm, COUNT + (size_t)i));
	EXPECT(d->gdr_calls == 8 && d->staged_bytes == 0 && card_of(*comm)->dmabufs == 3);
	hand_close(&h);
	return 0;
}

Test(gpudirect, memory_that_was_freed_and_came_again_is_another, .timeout = 60)
{
	cr_assert(failures(2, "", reborn_body) == 0);
}

/* Rank 1 gives up; what rank 0 sends to it later must not come to the buffer that it had named. */
static int late_body(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t error = tuttiSuccess;
	void *handle[2];
	struct gpu_buffers h;

	(void)arg;
	EXPECT(!hand_open(&h, rank, n) && !keep(&h, *comm, handle));
	EXPECT(!pass_on(&h, *comm, COUNT));
	if (rank == 1) {
		(*comm)->settings.timeout_ms = 300;
		EXPECT(!h.cu->memset8_async(h.out, 0xee, HAND_MOST, h.stream));
		EXPECT(!tuttiRecv((void *)(uintptr_t)(h.out + SHIFT), COUNT, tuttiUint8, 0, *comm,
				  h.stream));
		EXPECT(!h.cu->stream_synchronize(h.stream));
		EXPECT(!tuttiCommGetAsyncError(*comm, &error) && error == tuttiTimeout);
	} else {
		while (!tuttiCommGetAsyncError(*comm, &error) && !error)
			usleep(1000);
		tuttiSend((void *)(uintptr_t)(h.in + SHIFT), COUNT, tuttiUint8, 1, *comm, h.stream);
		h.cu->stream_synchronize(h.stream);
	}
	usleep(300000);
	EXPECT(!h.cu->dtoh(h.got, h.out, HAND_MOST));
	for (size_t i = 0; rank == 1 && i < HAND_MOST; i++)
		EXPECT(h.got[i] == 0xee);
	hand_close(&h);
	return 0;
}

Test(gpudirect, nothing_lands_after_a_failure, .timeout = 60)
{
	cr_assert(failures(2, "host", late_body) == 0);
}
