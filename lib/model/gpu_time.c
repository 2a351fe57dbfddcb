/*
 * gpu_time.c - see gpu_time.h
 *
 * Published constants and their sources:
 *   memory    3350 and 4800 GB/s: NVIDIA's data sheets of H100 SXM and H200
 *   link      450 GB/s each way: the data sheets' 900 of both; USABLE_LINK of it: NCCL's ring reaches a
 *             busbw of 370 GB/s on 8 H100 (nccl-tests issue 212), its model has 20.6 of a link's 25 GB/s
 * Measured on one H200 (docs/results/gpu.md), taken for the H100 too:
 *   launch    between empty kernels of a graph
 *   call      an LL allreduce of 2 ranks, 5.15 us, less launch and word (0.76 us there)
 *   load      by Little's law, of 132 blocks of 256 threads that copy 4 vectors at once
 *   round, sm     rounds of 64 blocks with slots of 32, 64 and 128 KiB took 8.1, 12.0 and 20.0 us; their slope is
 *             48 GB/s of memory for a block
 *   memory    the driver's copies reach USABLE_MEMORY of it, blocks of 4 ranks that share the GPU SHARED_MEMORY
 * Assumptions:
 *   word, fence   between GPUs (0.76 and 0.4 us on one)
 *   peer      1.05 us, measured, while a thread polled the line of one peer after the other; since then its first
 *             poll loads the lines of all peers at once
 */
#include "model/gpu_time.h"

#include <string.h>

#define USABLE_MEMORY 0.87
#define USABLE_LINK 0.82
#define SHARED_MEMORY 0.75
#define VECTOR 16
#define SHARED_THREADS 256 /* of a block */
#define SUM_LOADS 8        /* vectors that a thread of a sum of 2 or 4 ranks has in flight */

static const struct tt_gpu_kind kinds[] = {
	{ .name = "h100",
	  .sms = 132,
	  .memory = 3350 * USABLE_MEMORY,
	  .link = 450 * USABLE_LINK,
	  .sm = 48,
	  .launch = 0.57,
	  .call = 3.8,
	  .peer = 0.3,
	  .load = 1.2,
	  .word = 1.0,
	  .fence = 1.2,
	  .round = 3.7 },
	{ .name = "h200",
	  .sms = 132,
	  .memory = 4800 * USABLE_MEMORY,
	  .link = 450 * USABLE_LINK,
	  .sm = 48,
	  .launch = 0.57,
	  .call = 3.8,
	  .peer = 0.3,
	  .load = 1.2,
	  .word = 1.0,
	  .fence = 1.2,
	  .round = 3.7 },
};

const struct tt_gpu_kind *tt_gpu_kind_find(const char *text)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strstr(text, kinds[i].name))
			return &kinds[i];
	return NULL;
}

/* ---- work ------------------------------------------------------------------------------------ */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t chunk_bytes(const struct tt_gpu_fifo_call *c, uint32_t block, uint32_t chunk)
{
	uint64_t at = ((uint64_t)chunk * c->blocks + block) * c->chunk;

	return at >= c->bytes ? 0 : least(c->bytes - at, c->chunk);
}

/* Bytes of a chunk that a rank combines in two steps */
static uint64_t unit_bytes(const struct tt_gpu_fifo_call *c, uint64_t bytes, uint32_t rank)
{
	uint64_t granule = 128 * (uint64_t)c->nranks, unit = (bytes + granule - 1) / granule * 128,
		 at = unit * rank;

	return at >= bytes ? 0 : least(bytes - at, unit);
}

static uint32_t count_chunks(const struct tt_gpu_fifo_call *c)
{
	uint64_t all = c->chunk * c->blocks;

	return (uint32_t)((c->bytes + all - 1) / all);
}

/* Does a block stage, combine or collect a chunk in round i? */
static bool is_round(const struct tt_gpu_fifo_call *c, uint32_t chunks, uint32_t i)
{
	return i < chunks || (i >= c->lag && i < chunks + c->lag) ||
	       (c->steps == 2 && i >= 2 * c->lag && i < chunks + 2 * c->lag);
}

static void add_chunk(const struct tt_gpu_fifo_call *c, uint64_t bytes, uint32_t rank,
		      struct tt_gpu_work *w)
{
	uint64_t n = c->nranks, unit = unit_bytes(c, bytes, rank);

	if (c->steps == 2) {
		w->loaded += bytes + n * unit + bytes;
		w->stored += bytes + n * unit + bytes;
		w->linked += bytes - unit + (n - 1) * unit;
	} else {
		w->loaded += 2 * n * bytes;
		w->stored += n * bytes + bytes;
		w->linked += (n - 1) * bytes;
	}
}

void tt_gpu_fifo_work(const struct tt_gpu_fifo_call *c, uint32_t rank, struct tt_gpu_work *w)
{
	uint32_t chunks = count_chunks(c);

	memset(w, 0, sizeof(*w));
	for (uint32_t block = 0; block < c->blocks; block++)
		for (uint32_t chunk = 0; chunk < chunks; chunk++)
			add_chunk(c, chunk_bytes(c, block, chunk), rank, w);
	for (uint32_t i = 0; i < chunks + c->steps * c->lag; i++)
		w->rounds += is_round(c, chunks, i);
	w->barriers = 4 + 2 * w->rounds;
	w->words = (uint64_t)w->rounds * c->blocks * (c->nranks - 1);
}

/* ---- time ------------------------------------------------------------------------------------ */

static double most(double a, double b)
{
	return a > b ? a : b;
}

/* us of round i of block 0, whose chunks are the largest, while all blocks do the same */
static double round_us(const struct tt_gpu_kind *g, const struct tt_gpu_fifo_call *c,
		       uint32_t chunks, uint32_t i)
{
	bool two = c->steps == 2;
	uint64_t n = c->nranks, staged = i < chunks ? chunk_bytes(c, 0, i) : 0,
		 combined = i >= c->lag ? chunk_bytes(c, 0, i - c->lag) : 0,
		 collected = two && i >= 2 * c->lag ? chunk_bytes(c, 0, i - 2 * c->lag) : 0,
		 unit = two ? unit_bytes(c, combined, 0) : combined,
		 copies = two ? staged : n * staged, results = two ? n * unit : unit;
	double memory = (double)(2 * copies + n * unit + results + 2 * collected),
	       link = (double)(copies + (two ? results : 0)) * (double)(n - 1) / (double)n,
	       block = g->round + g->fence + memory / g->sm * 1e-3;

	return most(block, (double)c->blocks * most(memory / g->memory, link / g->link) * 1e-3);
}

double tt_gpu_fifo_us(const struct tt_gpu_kind *g, const struct tt_gpu_fifo_call *c)
{
	uint32_t chunks = count_chunks(c), rounds = chunks + c->steps * c->lag;
	/* when the last `lag` rounds ended; a round without work ends with the one before it */
	double ended[8] = { 0 }, now = 0;

	for (uint32_t i = 0; i < rounds; i++) {
		if (is_round(c, chunks, i)) {
			if (i >= c->lag)
				now = most(now, ended[(i - c->lag) % 8] + g->word);
			now += round_us(g, c, chunks, i);
		}
		ended[i % 8] = now;
	}
	return g->launch + g->call + now;
}

/* Each byte travels with its flag; a rank sends to all peers and polls its own memory. */
double tt_gpu_ll_us(const struct tt_gpu_kind *g, uint32_t n, uint64_t bytes)
{
	return g->launch + g->call + g->word + (n - 2.0) * g->peer +
	       2.0 * (n - 1) * (double)bytes / g->link * 1e-3;
}

/* Each step is two kernels: one waits for a word, one works. */
double tt_gpu_ring_us(const struct tt_gpu_kind *g, uint32_t n, uint64_t bytes)
{
	double part = (double)bytes / n, step = part / g->link * 1e-3;

	return 2.0 * (n - 1) * (2 * g->launch + g->call + g->fence + g->word + step);
}

/* The ranks have a block on each multiprocessor. A rank reads its part of all inputs. By Little's law the bytes
 * of loads in flight, divided by their latency, bound the rate. */
double tt_gpu_shared_us(const struct tt_gpu_kind *g, uint32_t n, uint64_t bytes)
{
	double blocks = g->sms / n * n,
	       vectors = n == 2 || n == 4 ? SUM_LOADS
			 : n <= 4         ? 2 * n
					  : n,
	       in_flight = blocks * SHARED_THREADS * vectors * VECTOR,
	       loads = (double)n * (double)bytes / (in_flight / g->load),
	       rate = g->memory * SHARED_MEMORY / USABLE_MEMORY,
	       moves = 2.0 * n * (double)bytes / rate * 1e-3;

	return g->launch + g->call + 2 * g->word + most(loads, moves);
}
