/*
 * peer_turn.c - one turn of one library: first call (may be checked), warm-up, measured batches
 *
 * Called by peer_bench.c on every rank at the same time. Two kinds of buffers:
 *   same        every call uses the same buffers, which are not written between calls
 *   rewritten   before each batch, every rank writes one input per call of the batch (not timed) and
 *               passes a barrier, so every call reads data that its rank has just written
 * The time of a call is the time of a batch divided by its calls; the clock is not read between the
 * calls of a batch.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/peers/peer.h"

const char *const peer_collective_names[PEER_COLLECTIVES] = {
	"allreduce", "broadcast", "reduce",  "allgather", "reduce_scatter",
	"alltoall",  "gather",    "scatter", "pingpong",  "sendrecv",
};

/* ---- data ------------------------------------------------------------------------------------- *
 * Element i of rank r's input is r + 1 + salt + i % 7. Sums over 256 ranks are exact, and no power
 * of two is a period.
 */

#define PERIOD 7
#define BLOCK (PERIOD * 64)

/* fill writes, differ compares `count` elements; element i is base + step * ((first + i) % 7). */
static void make_block(float *block, double base, double step, size_t first)
{
	for (size_t i = 0; i < BLOCK; i++)
		block[i] = (float)(base + step * (double)((first + i) % PERIOD));
}

static void fill(float *to, size_t count, double base, double step, size_t first)
{
	float block[BLOCK];

	make_block(block, base, step, first);
	for (size_t i = 0; i < count; i += BLOCK)
		memcpy(to + i, block, (count - i < BLOCK ? count - i : BLOCK) * sizeof(float));
}

static size_t differ(const float *at, size_t count, double base, double step, size_t first)
{
	float block[BLOCK];
	size_t wrong = 0;

	make_block(block, base, step, first);
	for (size_t i = 0; i < count; i += BLOCK) {
		size_t part = count - i < BLOCK ? count - i : BLOCK;

		if (!memcmp(at + i, block, part * sizeof(float)))
			continue;
		for (size_t j = 0; j < part; j++)
			wrong += at[i + j] != block[j];
	}
	return wrong;
}

/* ---- buffers of a call ----------------------------------------------------------------------- */

struct peer_work {
	const struct peer_rank *me;
	const struct peer_turn *turn;
	peer_call *call;
	size_t count;    /* argument of the call */
	size_t in_count; /* elements of one input */
	int slots;       /* number of inputs per batch, contiguous */
};

static bool has_parts(int collective)
{
	return collective >= PEER_ALLGATHER && collective <= PEER_SCATTER;
}

static void shape(struct peer_work *w)
{
	const struct peer_turn *t = w->turn;
	size_t total = t->bytes / sizeof(float);

	w->count = has_parts(t->collective) ? total / (size_t)w->me->n : total;
	w->in_count = w->count;
	if (t->collective == PEER_REDUCE_SCATTER || t->collective == PEER_ALLTOALL ||
	    t->collective == PEER_SCATTER)
		w->in_count *= (size_t)w->me->n;
	w->slots = 1;
	if (t->rewritten && w->in_count * sizeof(float) < PEER_BATCH_BYTES)
		w->slots = (int)(PEER_BATCH_BYTES / (w->in_count * sizeof(float)));
	if (w->slots > 64)
		w->slots = 64;
}

static float *inputs(const struct peer_work *w)
{
	return w->me->in + w->turn->offset / sizeof(float);
}

static const float *input(const struct peer_work *w, int slot)
{
	return inputs(w) + (size_t)slot * w->in_count;
}

static float *output(const struct peer_work *w, int slot)
{
	if (w->turn->in_place)
		return inputs(w) + (size_t)slot * w->in_count;
	return w->me->out + w->turn->offset / sizeof(float);
}

static void write_inputs(const struct peer_work *w, int slots, int salt)
{
	for (int k = 0; k < slots; k++)
		fill(inputs(w) + (size_t)k * w->in_count, w->in_count, w->me->rank + 1 + salt + k,
		     1, 0);
}

/* Returns the number of wrong elements of the output, for inputs with this salt. */
static size_t check_output(const struct peer_work *w, int slot, int salt)
{
	const float *out = output(w, slot);
	int n = w->me->n, rank = w->me->rank;
	size_t count = w->count, wrong = 0;
	double own = 1 + salt + slot, sum = n * (n - 1) / 2.0 + n * own;

	if (rank != 0 && (w->turn->collective == PEER_REDUCE || w->turn->collective == PEER_GATHER))
		return 0;
	switch (w->turn->collective) {
	case PEER_ALLREDUCE:
	case PEER_REDUCE:
		return differ(out, count, sum, n, 0);
	case PEER_BROADCAST:
		return differ(out, count, own, 1, 0);
	case PEER_SCATTER:
		return differ(out, count, own, 1, (size_t)rank * count);
	case PEER_PINGPONG:
	case PEER_SENDRECV:
		return differ(out, count, (rank + n - 1) % n + own, 1, 0);
	case PEER_REDUCE_SCATTER:
		return differ(out, count, sum, n, (size_t)rank * count);
	}
	for (int p = 0; p < n; p++)
		wrong += differ(out + (size_t)p * count, count, p + own, 1,
				w->turn->collective == PEER_ALLTOALL ? (size_t)rank * count : 0);
	return wrong;
}

/* ---- time ------------------------------------------------------------------------------------ */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int run_calls(const struct peer_work *w, int calls, double *ret_us)
{
	double start = now_us();
	int rc = 0;

	for (int i = 0, slot = 0; i < calls && !rc; i++) {
		rc = w->call(input(w, slot), output(w, slot), w->count);
		if (++slot == w->slots)
			slot = 0;
	}
	*ret_us = now_us() - start;
	return rc;
}

static int at_least(int least, double wanted, int most)
{
	return wanted > most ? most : wanted < least ? least : (int)wanted;
}

/* Warms up, and estimates the time of a call, equal on all ranks. */
static int estimate(const struct peer_work *w, double *ret_us)
{
	int calls = w->turn->bytes >= 16 << 20 ? 1 : 2;
	double us, call_us = 0;

	for (int again = 0; again < 2; again++) {
		if (w->turn->rewritten)
			write_inputs(w, w->slots, 0);
		peer_barrier(w->me->page);
		if (run_calls(w, calls, &us))
			return 1;
		call_us = peer_mean(w->me->page, us / calls);
		calls = at_least(0, w->turn->target_us / 4 / call_us, 2000);
		if (calls == 0)
			break;
	}
	*ret_us = call_us;
	return 0;
}

#define MOST_BATCHES 400

static int up(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int measure(const struct peer_work *w, double call_us, struct peer_result *r)
{
	double calls = w->turn->target_us / call_us, sum = 0, us, each[MOST_BATCHES];
	bool big = w->turn->bytes >= 16 << 20;
	int batch = w->turn->rewritten ? w->slots : at_least(1, calls / 16, 10000);
	int batches = at_least(big ? 2 : 4, calls / batch, MOST_BATCHES);

	peer_barrier(w->me->page);
	for (int b = 0; b < batches; b++) {
		if (w->turn->rewritten) {
			write_inputs(w, w->slots, b % 5);
			peer_barrier(w->me->page);
		}
		if (run_calls(w, batch, &us))
			return 1;
		each[b] = us / batch;
		sum += each[b];
	}
	if (w->turn->verify && w->turn->rewritten)
		r->wrong += peer_mean(w->me->page,
				      (double)check_output(w, w->slots - 1, (batches - 1) % 5));
	qsort(each, (size_t)batches, sizeof(each[0]), up);
	r->calls = (uint64_t)batch * (uint64_t)batches;
	r->mean_us = peer_mean(w->me->page, sum / batches);
	r->median_us = peer_mean(w->me->page, each[batches / 2]);
	return 0;
}

/* Runs the first call on known data. In place, zeros the input afterwards, since repeated sums in
 * place would overflow. */
static int first_call(const struct peer_work *w, struct peer_result *r)
{
	double us;

	write_inputs(w, 1, 0);
	peer_barrier(w->me->page);
	if (run_calls(w, 1, &us))
		return 1;
	if (w->turn->verify)
		r->wrong = peer_mean(w->me->page, (double)check_output(w, 0, 0));
	peer_barrier(w->me->page);
	if (w->turn->in_place)
		memset(inputs(w), 0, w->in_count * sizeof(float));
	return 0;
}

int peer_run_turn(const struct peer_rank *me, const struct peer_turn *turn,
		  struct peer_result *ret_result)
{
	struct peer_work w = { .me = me, .turn = turn, .call = peer.calls[turn->collective] };
	struct peer_result r = { 0 };
	double call_us;

	shape(&w);
	if (first_call(&w, &r) || estimate(&w, &call_us) || measure(&w, call_us, &r))
		return 1;
	*ret_result = r;
	return 0;
}
