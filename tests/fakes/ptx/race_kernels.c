/*
 * race_kernels.c - run the float32 kernel of several ranks at once, as ThreadSanitizer sees it: values,
 * and races between ranks, blocks and threads
 *
 *   race_kernels RANKS ROUNDS LIMIT_S
 *
 * For gpu_races.sh. A rank has a thread per block, since blocks of a kernel run at once. A round is
 * an allreduce by one of four ways in turn: barriers, three times LL, kernels that signal between
 * waits of streams, and three times FIFO: in two steps, in one, and of one chunk in two. Kernels of
 * one rank are ordered (pthread barriers), as by a stream; nothing else orders the ranks. Exit
 * status 0: right; 1: a wrong value; 2: a wait was too long or a kernel reported a failure.
 */
#include "tests/fakes/ptx/ptx_run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpu/kernels.h"

extern const struct ptx_kernel ptx_tt_Float32;

enum { BLOCKS = 2, THREADS = 64, COUNT = 1500, PART_BYTES = 2048, ARENA = 512 << 20, WAYS = 8 };

static struct rank {
	struct tt_dev_signals *signals;
	struct tt_dev_host_words *host;
	float *in, *out, *staged, *result;
	struct tt_dev_job job;
	uint32_t blocks;
	pthread_barrier_t begin, end; /* of a kernel */
	bool stop;
} ranks[TT_DEV_RANKS];
static unsigned char *arena, *arena_next;
static int nranks, rounds, limit_s;

__attribute__((no_sanitize_thread)) bool ptx_find_range(uintptr_t at, uintptr_t *ret_from,
							uintptr_t *ret_to)
{
	*ret_from = (uintptr_t)arena;
	*ret_to = *ret_from + ARENA;
	return at >= *ret_from && at < *ret_to;
}

static void *take(size_t bytes)
{
	void *p = arena_next;

	arena_next += (bytes + 4095) / 4096 * 4096;
	return p;
}

static void quit(int status, const char *text, int rank, int round)
{
	fprintf(stderr, "race_kernels: rank %d, round %d: %s\n", rank, round, text);
	_exit(status);
}

struct block_thread {
	struct rank *rank;
	uint32_t number;
};

static void *run_block(void *arg)
{
	const struct block_thread *b = arg;
	struct rank *r = b->rank;

	for (;;) {
		pthread_barrier_wait(&r->begin);
		if (r->stop)
			return NULL;
		if (b->number < r->blocks)
			ptx_run_block(&ptx_tt_Float32, &r->job, THREADS, b->number, r->blocks);
		pthread_barrier_wait(&r->end);
	}
}

static void launch(struct rank *r, uint32_t blocks, int round)
{
	r->blocks = blocks;
	pthread_barrier_wait(&r->begin);
	pthread_barrier_wait(&r->end);
	if (__atomic_load_n(&r->host->report.what, __ATOMIC_ACQUIRE))
		quit(2, "a kernel reports a failure", (int)r->job.rank, round);
}

static void prepare(struct rank *r, uint32_t way, int round);

/* Waits for the peers' words, and resets them: as a stream does, in every other call by a kernel */
static void await(struct rank *r, uint32_t word, int round)
{
	if (round / WAYS % 2) {
		struct tt_dev_job *j = &r->job;

		prepare(r, TT_DEV_ALONE, round);
		for (uint32_t p = 0; p < (uint32_t)nranks; p++)
			if (p != j->rank)
				j->awaited[j->nawaited++] = (struct tt_dev_awaited){ word + p, p };
		launch(r, 1, round);
		return;
	}
	for (int p = 0; p < nranks; p++)
		for (uint64_t start = ptx_globaltimer(); p != (int)(r - ranks);) {
			uint32_t *set = &r->host->stream[word + (uint32_t)p].set;

			if (__atomic_load_n(set, __ATOMIC_ACQUIRE)) {
				__atomic_store_n(set, 0, __ATOMIC_RELAXED);
				break;
			}
			if (ptx_globaltimer() - start > (uint64_t)limit_s * 1000000000u)
				quit(2, "a signal does not arrive", (int)(r - ranks), round);
			nanosleep(&(struct timespec){ 0, 20000 }, NULL);
		}
}

static void prepare(struct rank *r, uint32_t way, int round)
{
	struct tt_dev_job *j = &r->job;

	memset(j, 0, sizeof(*j));
	for (int p = 0; p < nranks; p++) {
		j->signals[p] = (uintptr_t)ranks[p].signals;
		j->host_words[p] = (uintptr_t)ranks[p].host;
	}
	j->report = (uintptr_t)r->host;
	j->limit_ns = (uint64_t)limit_s * 1000000000u;
	j->call[0] = 7;
	j->call[1] = (uint64_t)round;
	j->rank = (uint32_t)(r - ranks);
	j->nranks = (uint32_t)nranks;
	j->way = way;
}

static uint64_t part_at(int rank)
{
	return (uint64_t)rank * PART_BYTES / 2;
}
static uint64_t part_bytes(int rank)
{
	uint64_t all = COUNT * sizeof(float), from = part_at(rank);

	return from >= all ? 0 : rank == nranks - 1 ? all - from : PART_BYTES / 2;
}

static void by_barriers(struct rank *r, int round)
{
	int me = (int)(r - ranks);
	uint32_t all = (1u << nranks) - 1;

	prepare(r, TT_DEV_BARRIER, round);
	r->job.in[me] = (uintptr_t)r->in;
	r->job.out[me] = (uintptr_t)r->out;
	r->job.npieces = 1;
	r->job.piece[0] = (struct tt_dev_piece){ all, all, part_at(me), part_at(me),
						 part_bytes(me) };
	launch(r, BLOCKS, round);
}

static void by_ll(struct rank *r, int round)
{
	int me = (int)(r - ranks);

	prepare(r, TT_DEV_LL, round);
	r->job.in[me] = (uintptr_t)r->in;
	r->job.out[me] = (uintptr_t)r->out;
	r->job.npieces = 1;
	r->job.piece[0].bytes = COUNT / 2 * sizeof(float);
	launch(r, BLOCKS, round);
}

/* Stages the input, sums a part of all, gathers the parts; a signal and a wait follow each kernel. */
static void by_streams(struct rank *r, int round)
{
	int me = (int)(r - ranks);
	uint32_t all = (1u << nranks) - 1, mine = 1u << me;

	for (int phase = 0; phase < 3; phase++) {
		static const uint32_t words[] = { TT_DEV_ARRIVED, TT_DEV_BETWEEN, TT_DEV_FINISHED };
		struct tt_dev_job *j = &r->job;

		prepare(r, TT_DEV_ALONE, round);
		j->signal_to = all & ~mine;
		j->signal_word = words[phase] + (uint32_t)me;
		for (int p = 0; p < nranks; p++)
			j->in[p] = (uintptr_t)(phase == 0   ? ranks[p].in
					       : phase == 1 ? ranks[p].staged
							    : ranks[p].result);
		j->out[me] = (uintptr_t)(phase == 0 ? r->staged : phase == 1 ? r->result : r->out);
		j->npieces = phase == 2 ? (uint32_t)nranks : 1;
		for (int p = 0; p < nranks && phase == 2; p++)
			j->piece[p] = (struct tt_dev_piece){ 1u << p, mine, part_at(p), part_at(p),
							     part_bytes(p) };
		if (phase == 0)
			j->piece[0] = (struct tt_dev_piece){ mine, mine, 0, 0,
							     COUNT * sizeof(float) };
		if (phase == 1)
			j->piece[0] = (struct tt_dev_piece){ all, mine, part_at(me), part_at(me),
							     part_bytes(me) };
		launch(r, BLOCKS, round);
		await(r, words[phase], round);
	}
}

static void by_fifo(struct rank *r, int round, uint32_t steps, int count)
{
	int me = (int)(r - ranks);
	uint32_t all = (1u << nranks) - 1;

	prepare(r, TT_DEV_FIFO, round);
	r->job.in[me] = (uintptr_t)r->in;
	r->job.out[me] = (uintptr_t)r->out;
	r->job.fifo = (struct tt_dev_fifo){ .bytes = (uint64_t)count * sizeof(float),
					    .chunk = steps == 2 ? 128 * (uint64_t)nranks : 512,
					    .unit = 128,
					    .receivers = all,
					    .combines = all,
					    .results = steps == 2 ? all : 0,
					    .collects = steps == 2 ? all : 0,
					    .steps = steps };
	launch(r, BLOCKS, round);
}

static int count_of(int round)
{
	static const int counts[WAYS] = { COUNT, COUNT / 2, COUNT / 2, COUNT / 2,
					  COUNT, COUNT,     COUNT / 2, 100 };

	return counts[round % WAYS];
}

static float value(int rank, int i, int round)
{
	return (float)((rank + 1) * (i % 97 + 1) + round);
}

static void *run_rank(void *arg)
{
	struct rank *r = arg;
	pthread_t threads[BLOCKS];
	struct block_thread blocks[BLOCKS];

	for (uint32_t b = 0; b < BLOCKS; b++) {
		blocks[b] = (struct block_thread){ r, b };
		pthread_create(&threads[b], NULL, run_block, &blocks[b]);
	}
	for (int round = 0; round < rounds; round++) {
		int count = count_of(round);

		for (int i = 0; i < COUNT; i++)
			r->in[i] = value((int)(r - ranks), i, round);
		switch (round % WAYS) {
		case 0:
			by_barriers(r, round);
			break;
		case 4:
			by_streams(r, round);
			break;
		case 5:
		case 6:
		case 7:
			by_fifo(r, round, round % WAYS == 6 ? 1 : 2, count);
			break;
		default:
			by_ll(r, round);
		}
		for (int i = 0; i < count; i++) {
			float sum = 0;

			for (int p = 0; p < nranks; p++)
				sum += value(p, i, round);
			if (r->out[i] != sum)
				quit(1, "a wrong value", (int)(r - ranks), round);
		}
	}
	r->stop = true;
	pthread_barrier_wait(&r->begin);
	for (int b = 0; b < BLOCKS; b++)
		pthread_join(threads[b], NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[TT_DEV_RANKS];

	if (argc != 4 || (nranks = atoi(argv[1])) < 2 || nranks > TT_DEV_RANKS) {
		fprintf(stderr, "usage: race_kernels RANKS ROUNDS LIMIT_S (2 to 8 ranks)\n");
		return 64;
	}
	rounds = atoi(argv[2]);
	limit_s = atoi(argv[3]);
	arena = arena_next = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
	for (int p = 0; p < nranks; p++) {
		struct rank *r = &ranks[p];

		r->signals = take(TT_DEV_IPC_BYTES);
		r->host = take(TT_DEV_HOST_BYTES);
		/* aligned neither to the FIFO nor to each other */
		r->in = (float *)take((COUNT + 1) * sizeof(float)) + 1;
		r->out = (float *)take((COUNT + 2) * sizeof(float)) + 2;
		r->staged = take(COUNT * sizeof(float));
		r->result = take(COUNT * sizeof(float));
		pthread_barrier_init(&r->begin, NULL, BLOCKS + 1);
		pthread_barrier_init(&r->end, NULL, BLOCKS + 1);
	}
	for (int p = 0; p < nranks; p++)
		pthread_create(&threads[p], NULL, run_rank, &ranks[p]);
	for (int p = 0; p < nranks; p++)
		pthread_join(threads[p], NULL);
	return 0;
}
