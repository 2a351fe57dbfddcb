/*
 * gpu_time.c - see gpu_time.h
 *
 * Published constants and their sources:
 *   memory    3350 and 4800 GB/s: NVIDIA's data sheets of H100 SXM and H200; USABLE_MEMORY of it: copies
 *             read and write about 4.0 of the H200's 4.8 TB/s
 *   link      450 GB/s each way: the data sheets' 900 of both; USABLE_LINK of it: NCCL's ring reaches a
 *             busbw of 370 GB/s on 8 H100 (nccl-tests issue 212), its model has 20.6 of a link's 25 GB/s
 *   sm        50 GB/s: the H200 read and wrote 3213 GB/s by blocks on 64 multiprocessors
 *             (docs/results/gpu.md)
 * Assumptions, until they are measured: launch, load, word and fence. Their sum for an LL call is
 * the 4.5 us that NCCL's model has for its kernel of that kind on Hopper.
 */
#include "model/gpu_time.h"

#include <string.h>

#define USABLE_MEMORY 0.83
#define USABLE_LINK 0.82
#define VECTOR 16
#define SHARED_THREADS 256 /* of a block */
#define MOVE_DEEP 4        /* vectors of a copy that a thread loads at once */

static const struct tt_gpu_kind kinds[] = {
	{ .name = "h100",
	  .sms = 132,
	  .memory = 3350 * USABLE_MEMORY,
	  .link = 450 * USABLE_LINK,
	  .sm = 50,
	  .launch = 2.1,
	  .load = 0.7,
	  .word = 1.0,
	  .fence = 1.2,
	  .sync = 0.05 },
	{ .name = "h200",
	  .sms = 132,
	  .memory = 4800 * USABLE_MEMORY,
	  .link = 450 * USABLE_LINK,
	  .sm = 50,
	  .launch = 2.1,
	  .load = 0.7,
	  .word = 1.0,
	  .fence = 1.2,
	  .sync = 0.05 },
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

/* Loads that follow one another where a block moves bytes, `deep` vectors of a thread at a time */
static double passes(const struct tt_gpu_fifo_call *c, uint64_t bytes, uint32_t deep)
{
	uint64_t at_once = (uint64_t)c->threads * VECTOR * deep;

	return (double)((bytes + at_once - 1) / at_once);
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
	double loads = passes(c, copies, MOVE_DEEP) + passes(c, unit, 1) +
		       passes(c, collected, MOVE_DEEP),
	       memory = (double)(2 * copies + n * unit + results + 2 * collected),
	       link = (double)(copies + (two ? results : 0)) * (double)(n - 1) / (double)n,
	       wait = loads * g->load + 2 * g->sync + g->fence;

	return most(wait, (double)c->blocks * most(memory / g->memory, link / g->link) * 1e-3);
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
	return g->launch + now;
}

/* Each byte travels with its flag; a rank sends to all peers and polls its own memory. */
double tt_gpu_ll_us(const struct tt_gpu_kind *g, uint32_t n, uint64_t bytes)
{
	return g->launch + 2 * g->load + g->word + 2.0 * (n - 1) * (double)bytes / g->link * 1e-3;
}

/* Each step is a kernel, and a word for which a stream waits. */
double tt_gpu_ring_us(const struct tt_gpu_kind *g, uint32_t n, uint64_t bytes)
{
	double part = (double)bytes / n, step = part / g->link * 1e-3;

	return 2.0 * (n - 1) * (g->launch + g->load + g->fence + g->word + step);
}

/* The ranks have a block on each multiprocessor. A rank reads its part of all inputs. By Little's law the bytes
 * of loads in flight, divided by their latency, bound the rate. */
double tt_gpu_shared_us(const struct tt_gpu_kind *g, uint32_t n, uint64_t bytes)
{
	double blocks = g->sms / n * n, vectors = n <= 4 ? 2 * n : n,
	       in_flight = blocks * SHARED_THREADS * vectors * VECTOR,
	       loads = (double)n * (double)bytes / (in_flight / g->load),
	       rate = g->memory < blocks * g->sm ? g->memory : blocks * g->sm,
	       moves = 2.0 * n * (double)bytes / rate * 1e-3;

	return g->launch + 2 * g->word + g->load + most(loads, moves);
}
