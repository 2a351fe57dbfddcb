/*
 * count_kernels.c - count the work of nvcc's float32 kernel: of an allreduce by FIFO, compared with the
 * formulas of lib/model/gpu_time.h, and of copies
 *
 * For check_ptx.sh. Each rank is a thread, which runs the blocks of one launch one after the other.
 * Bytes are counted in the buffers of the call and in the FIFO; a rank must load from its own
 * memory only. Exit status 0: all counts are equal; 1: one differs, or a sum is wrong.
 */
#include "tests/fakes/ptx/ptx_run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "gpu/kernels.h"
#include "model/gpu_time.h"

extern const struct ptx_kernel ptx_tt_Float32;

enum { MOST_BYTES = 1 << 20, RANK_BYTES = TT_DEV_IPC_BYTES + 4 * MOST_BYTES, THREADS = 128 };

static const struct counted_case {
	uint32_t nranks, blocks, steps;
	uint64_t bytes, chunk;
} cases[] = {
	{ 2, 4, 1, 65536, 16384 }, { 2, 2, 1, 50000, 4096 },  { 3, 2, 2, 98304, 3072 },
	{ 3, 2, 1, 4, 128 },       { 4, 2, 2, 262144, 8192 }, { 4, 3, 2, 100020, 8192 },
	{ 8, 2, 2, 131072, 8192 }, { 8, 1, 1, 20000, 4096 },  { 8, 2, 2, 1000, 1024 },
};
static const struct counted_case *now;

static struct counted_rank {
	unsigned char *memory; /* the IPC buffer, input, output, report */
	float *in, *out;
	struct tt_dev_job job;
	struct tt_gpu_work work;
	uint64_t remote_loads, stored_singly; /* bytes; singly: by stores of less than 16 bytes */
} ranks[TT_DEV_RANKS];
static unsigned char *arena;

bool ptx_find_range(uintptr_t at, uintptr_t *ret_from, uintptr_t *ret_to)
{
	*ret_from = (uintptr_t)arena;
	*ret_to = *ret_from + (uintptr_t)RANK_BYTES * TT_DEV_RANKS;
	return at >= *ret_from && at < *ret_to;
}

/* Weak accesses move data, except records in the signal words; a release announces a round. */
void ptx_count(const struct ptx_thread *g, const unsigned char *at, unsigned bytes, bool store,
	       enum ptx_order order)
{
	const struct tt_dev_job *job = (const struct tt_dev_job *)g->block->params;
	struct counted_rank *r = &ranks[job->rank];
	bool mine = at >= r->memory && at < r->memory + RANK_BYTES;
	size_t offset;

	if (at < arena || at >= arena + (size_t)RANK_BYTES * TT_DEV_RANKS)
		return; /* shared or local */
	offset = (size_t)(at - arena) % RANK_BYTES;
	if (order == PTX_RELEASE && store && !mine)
		r->work.words++;
	if (order != PTX_WEAK || offset < TT_DEV_STAGED_AT)
		return;
	if (!store) {
		r->work.loaded += bytes;
		r->remote_loads += mine ? 0 : bytes;
	} else {
		r->work.stored += bytes;
		r->stored_singly += bytes < 16 ? bytes : 0;
		r->work.linked += mine ? 0 : bytes;
	}
}

void ptx_count_barrier(const struct ptx_thread *g)
{
	const struct tt_dev_job *job = (const struct tt_dev_job *)g->block->params;

	if (!g->tid && !g->block->number)
		ranks[job->rank].work.barriers++;
}

static void prepare(uint32_t me)
{
	uint32_t all = (1u << now->nranks) - 1, two = now->steps == 2;
	struct counted_rank *r = &ranks[me];

	*r = (struct counted_rank){ .memory = arena + (size_t)RANK_BYTES * me };
	memset(r->memory, 0, TT_DEV_STAGED_AT);
	r->in = (float *)(r->memory + TT_DEV_IPC_BYTES);
	r->out = r->in + MOST_BYTES / sizeof(float);
	for (uint64_t i = 0; i < now->bytes / sizeof(float); i++)
		r->in[i] = (float)(me + i % 1000);
	r->job = (struct tt_dev_job){ .way = TT_DEV_FIFO,
				      .rank = me,
				      .nranks = now->nranks,
				      .limit_ns = 60000000000u,
				      .report = (uintptr_t)(r->out + MOST_BYTES / sizeof(float)),
				      .fifo = { .bytes = now->bytes,
						.chunk = now->chunk,
						.unit = now->chunk / now->nranks,
						.receivers = all,
						.combines = all,
						.results = two ? all : 0,
						.collects = two ? all : 0,
						.steps = now->steps } };
	memset((void *)(uintptr_t)r->job.report, 0, sizeof(struct tt_dev_report));
	r->job.in[me] = (uintptr_t)r->in;
	r->job.out[me] = (uintptr_t)r->out;
	for (uint32_t p = 0; p < now->nranks; p++)
		r->job.signals[p] = (uintptr_t)(arena + (size_t)RANK_BYTES * p);
}

static void *run_rank(void *arg)
{
	struct counted_rank *r = arg;

	for (uint32_t block = 0; block < now->blocks; block++)
		ptx_run_block(&ptx_tt_Float32, &r->job, THREADS, block, now->blocks);
	return NULL;
}

static int differs(uint32_t rank, const char *what, uint64_t counted, uint64_t formula)
{
	if (counted == formula)
		return 0;
	printf("%u ranks, %llu bytes, rank %u: %llu %s, %llu by the formula\n", now->nranks,
	       (unsigned long long)now->bytes, rank, (unsigned long long)counted, what,
	       (unsigned long long)formula);
	return 1;
}

static int check(uint32_t rank)
{
	struct tt_gpu_fifo_call call = { .nranks = now->nranks,
					 .blocks = now->blocks,
					 .steps = now->steps,
					 .lag = TT_FIFO_LAG,
					 .bytes = now->bytes,
					 .chunk = now->chunk };
	const struct counted_rank *r = &ranks[rank];
	struct tt_gpu_work formula;
	int bad = 0;

	for (uint64_t i = 0; i < now->bytes / sizeof(float); i++)
		bad |= r->out[i] !=
		       (float)(now->nranks * (i % 1000) + now->nranks * (now->nranks - 1) / 2);
	bad = differs(rank, "wrong sums", (uint64_t)bad, 0);
	tt_gpu_fifo_work(&call, rank, &formula);
	bad |= differs(rank, "bytes loaded", r->work.loaded, formula.loaded);
	bad |= differs(rank, "bytes loaded from peers", r->remote_loads, 0);
	bad |= differs(rank, "bytes stored", r->work.stored, formula.stored);
	bad |= differs(rank, "bytes stored to peers", r->work.linked, formula.linked);
	bad |= differs(rank, "words to peers", r->work.words, formula.words);
	return bad | differs(rank, "barriers", r->work.barriers, formula.barriers);
}

static int run_case(void)
{
	pthread_t threads[TT_DEV_RANKS];
	int bad = 0;

	for (uint32_t p = 0; p < now->nranks; p++)
		prepare(p);
	for (uint32_t p = 0; p < now->nranks; p++)
		pthread_create(&threads[p], NULL, run_rank, &ranks[p]);
	for (uint32_t p = 0; p < now->nranks; p++)
		pthread_join(threads[p], NULL);
	for (uint32_t p = 0; p < now->nranks; p++)
		bad |= check(p);
	return bad;
}

/* A copy by a job without peers: whatever the alignment of its buffers, bytes at the ends only go singly, and a
 * vector takes two loads at most. */
static int run_copy(uint64_t from, uint64_t to, uint64_t bytes)
{
	struct counted_rank *r = &ranks[0];
	unsigned char *in, *out;
	int bad;

	*r = (struct counted_rank){ .memory = arena };
	memset(r->memory, 0, TT_DEV_STAGED_AT);
	in = arena + TT_DEV_IPC_BYTES + from;
	out = arena + TT_DEV_IPC_BYTES + MOST_BYTES + to;
	for (uint64_t i = 0; i < bytes; i++)
		in[i] = i * 31 >> 2 & 63; /* no NaN */
	memset(out - 1, 0xee, bytes + 2);
	r->job = (struct tt_dev_job){ .nranks = 1,
				      .way = TT_DEV_ALONE,
				      .signals = { (uintptr_t)arena },
				      .in = { (uintptr_t)in },
				      .out = { (uintptr_t)out },
				      .npieces = 1,
				      .piece = { { .from = 1, .to = 1, .bytes = bytes } } };
	for (uint32_t block = 0; block < 2; block++)
		ptx_run_block(&ptx_tt_Float32, &r->job, THREADS, block, 2);
	bad = memcmp(in, out, bytes) || out[-1] != 0xee || out[bytes] != 0xee ||
	      r->work.stored != bytes || r->stored_singly > 46 || r->work.loaded > 2 * bytes;
	if (bad)
		printf("copy of %llu bytes, %llu to %llu: %llu stored, %llu of them singly; %llu loaded\n",
		       (unsigned long long)bytes, (unsigned long long)from, (unsigned long long)to,
		       (unsigned long long)r->work.stored, (unsigned long long)r->stored_singly,
		       (unsigned long long)r->work.loaded);
	return bad;
}

int main(void)
{
	int bad = 0;

	arena = mmap(NULL, (size_t)RANK_BYTES * TT_DEV_RANKS, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		now = &cases[i];
		bad |= run_case();
	}
	for (uint64_t at = 0; at < 256; at += 5)
		bad |= run_copy(at / 16 + 16, at % 16 + 16, 40000 + at);
	return bad;
}
