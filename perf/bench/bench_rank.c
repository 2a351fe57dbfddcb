/*
 * bench_rank.c - one rank: its buffers, the inputs in them, and the judgement of results
 *
 * Called by bench_thread.c (make, free) and measure.c. `inputs` holds the inputs
 * of several calls, `slots`, one behind the other; results out of place
 * go to one place in `results`, results in place over the input.
 */
#include <stdlib.h>
#include <string.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"

enum {
	FRONT = 4096,                    /* before the first: keeps it on a page; is watched */
	GUARD = 64,                      /* bytes before and behind a result that must stay */
	SLOTS_BYTES = 256 * 1024,        /* small inputs in turn take this together ... */
	MAX_SLOTS = 64,                  /* ... or are so many */
	POISON = 0xa5,
	MAX_COMPLAINTS = 3
};

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

static size_t buffer_bytes(const struct bench_options *line)
{
	size_t inputs = line->max_bytes > SLOTS_BYTES ? line->max_bytes : SLOTS_BYTES;

	return round_up(FRONT + inputs + 2 * MAX_SLOTS * GUARD + (size_t)line->unalign * 8, 4096);
}

static bool separate_results(const struct bench_options *line, const struct bench_collective *bench)
{
	return line->place != BENCH_PLACE_IN || !bench->in_place;
}

size_t bench_rank_bytes(const struct bench_options *line, const struct bench_collective *bench)
{
	return buffer_bytes(line) * (separate_results(line, bench) ? 2 : 1);
}

void bench_cell_slots(struct bench_cell *cell, const struct bench_options *line)
{
	size_t bytes = cell->send_bytes > cell->recv_bytes ? cell->send_bytes : cell->recv_bytes;

	cell->slots = 1;
	if (line->buffers != BENCH_BUFFERS_SAME && bytes * MAX_SLOTS <= SLOTS_BYTES)
		cell->slots = MAX_SLOTS;
	else if (line->buffers != BENCH_BUFFERS_SAME && bytes < SLOTS_BYTES)
		cell->slots = (int)(SLOTS_BYTES / bytes);
	cell->stride = round_up(bytes, GUARD) + GUARD;
}

int bench_rank_make(struct bench_rank *s, const struct bench_options *line, const struct bench_collective *bench,
		 int algos)
{
	bool two = separate_results(line, bench);
	size_t bytes = buffer_bytes(line);

	s->input = malloc(BENCH_VALUES * 8);
	s->result = malloc(BENCH_VALUES * 8);
	if (bench_buffer_make(&s->inputs, &s->gpu, bytes, line->reg) ||
	    (two && bench_buffer_make(&s->results, &s->gpu, bytes, line->reg))) {
		fprintf(stderr, "rank %d: %s\n", s->rank, tt_error_text());
		return 1;
	}
	if (!s->input || !s->result) {
		fprintf(stderr, "rank %d: no memory for tables of values\n", s->rank);
		return 1;
	}
	for (int i = 0; line->reg && i < algos; i++) {
		if (tuttiCommRegister(s->comms[i], s->inputs.at, bytes, &s->handles[2 * i]) ||
		    (two && tuttiCommRegister(s->comms[i], s->results.at, bytes,
					      &s->handles[2 * i + 1]))) {
			fprintf(stderr, "rank %d: %s\n", s->rank, tuttiGetLastError(NULL));
			return 1;
		}
	}
	return 0;
}

void bench_rank_free(struct bench_rank *s, int algos)
{
	for (int i = 0; s->handles && i < 2 * algos; i++)
		if (s->handles[i] && s->comms[i / 2])
			tuttiCommDeregister(s->comms[i / 2], s->handles[i]);
	bench_buffer_free(&s->inputs, &s->gpu);
	bench_buffer_free(&s->results, &s->gpu);
	free(s->input);
	free(s->result);
	s->input = s->result = NULL;
}

/* ---- a call's buffers ------------------------------------------------------------------------ */

struct bench_call bench_rank_call(const struct bench_rank *s, const struct bench_options *line,
				 const struct bench_cell *cell, int slot)
{
	size_t start = FRONT + (size_t)line->unalign * cell->esize,
	       part = cell->count * cell->esize;
	char *send = s->inputs.at + start + (size_t)slot * cell->stride;
	struct bench_call call = { .count = cell->count, .type = cell->type, .root = cell->root,
				     .rank = s->rank, .nranks = s->nranks,
				     .comm = s->comms[cell->algo], .stream = s->stream };

	call.op = cell->op == BENCH_MULSUM ? s->mulsum[cell->algo] : (tuttiRedOp_t)cell->op;
	call.send = send;
	call.recv = send;
	if (!cell->in_place)
		call.recv = s->results.at + start;
	else if (cell->bench->recv_all && !cell->bench->send_all)
		call.send = send + (size_t)s->rank * part;
	else if (cell->bench->send_all && !cell->bench->recv_all)
		call.recv = send + (size_t)s->rank * part;
	return call;
}

static bool gets_result(const struct bench_rank *s, const struct bench_cell *cell)
{
	return !cell->bench->to_root || s->rank == cell->root;
}

static size_t parts_sent(const struct bench_rank *s, const struct bench_cell *cell)
{
	return cell->bench->send_all ? (size_t)s->nranks : 1;
}

/* Where in the table part `part` of rank's input begins. Parts that are combined share one table
 * over all parts. */
static size_t phase_of(const struct bench_options *line, const struct bench_cell *cell, uint64_t number,
		       int rank, int part)
{
	if (!cell->bench->combines)
		return bench_values_phase((uint64_t)line->seed, number, (uint64_t)rank + 1,
				       (uint64_t)part);
	return (bench_values_phase((uint64_t)line->seed, number, 0, 0) + (size_t)part * cell->count) %
	       BENCH_VALUES;
}

/* The same call's buffers as the tool sees them. */
static struct bench_call on_host(const struct bench_rank *s, const struct bench_cell *cell,
				   struct bench_call call)
{
	call.send = bench_buffer_twin(&s->inputs, call.send);
	call.recv = bench_buffer_twin(cell->in_place ? &s->inputs : &s->results, call.recv);
	return call;
}

typedef int move_fn(const struct bench_buffer *b, const struct tool_cuda_device *gpu, tt_custream stream,
		    const void *at, size_t bytes);

static int moved(const struct bench_rank *s, int rc)
{
	if (rc)
		fprintf(stderr, "rank %d: %s\n", s->rank, tt_error_text());
	return rc != 0;
}

/* Moves the result between the twins, out of place also what is right before and behind it. */
static int move_result(const struct bench_rank *s, const struct bench_cell *cell,
		       const struct bench_call *call, move_fn *move)
{
	size_t guard = cell->in_place ? 0 : GUARD;

	return moved(s, move(cell->in_place ? &s->inputs : &s->results, &s->gpu, s->own,
			     (const char *)call->recv - guard, cell->recv_bytes + 2 * guard));
}

static int move_input(const struct bench_rank *s, const struct bench_cell *cell,
		      const struct bench_call *call, move_fn *move)
{
	return moved(s, move(&s->inputs, &s->gpu, s->own, call->send, cell->send_bytes));
}

int bench_rank_fill(const struct bench_rank *s, const struct bench_options *line, const struct bench_cell *cell,
		 int slot, uint64_t number, bool poison)
{
	struct bench_call call = bench_rank_call(s, line, cell, slot), own = on_host(s, cell, call);
	size_t part = cell->count * cell->esize;

	if (poison)
		memset((char *)own.recv - (cell->in_place ? 0 : GUARD), POISON,
		       cell->recv_bytes + (cell->in_place ? 0 : 2 * GUARD));
	for (size_t i = 0; i < parts_sent(s, cell); i++)
		bench_values_fill((char *)own.send + i * part, s->input, cell->esize, cell->count,
			       phase_of(line, cell, number, s->rank, (int)i));
	if (poison && move_result(s, cell, &call, bench_buffer_put))
		return 1;
	return move_input(s, cell, &call, bench_buffer_put);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* One sentence on the first wrong element, for the first few buffers. */
static void complain(struct bench_rank *s, const struct bench_cell *cell, const char *what,
		     const void *buf, size_t index, const void *table, size_t phase, uint64_t wrong)
{
	const void *want = (const char *)table + (index + phase) % BENCH_VALUES * cell->esize;

	if (s->complaints++ >= MAX_COMPLAINTS)
		return;
	fprintf(stderr,
		"rank %d: %s of %zu %s, %s, %s: %s: %llu wrong, the first is element %zu: %.9g instead of %.9g\n",
		s->rank, tt_collective_name(cell->bench->collective), cell->count,
		tt_type_name(cell->type),
		bench_values_op_name(cell->bench->combines ? cell->op : BENCH_NO_OP),
		cell->in_place ? "in place" : "out of place", what, (unsigned long long)wrong,
		index, tt_element_get(buf, index, cell->type), tt_element_get(want, 0, cell->type));
}

static uint64_t judge_part(struct bench_rank *s, const struct bench_cell *cell, const char *what,
			   const void *buf, const void *table, size_t phase)
{
	size_t first;
	uint64_t wrong = bench_values_check(buf, table, cell->esize, cell->count, phase, &first);

	if (wrong)
		complain(s, cell, what, buf, first, table, phase, wrong);
	return wrong;
}

static uint64_t judge_result(struct bench_rank *s, const struct bench_options *line,
			     const struct bench_cell *cell, const struct bench_call *call,
			     uint64_t number)
{
	int parts = cell->bench->recv_all ? s->nranks : 1;
	size_t part = cell->count * cell->esize;
	uint64_t wrong = 0;

	for (int i = 0; i < parts; i++) {
		const char *buf = (const char *)call->recv + (size_t)i * part;
		int rank = s->rank, from = cell->bench->send_all ? s->rank : 0;

		if (cell->bench->origin)
			cell->bench->origin(call, i, &rank, &from);
		wrong += judge_part(s, cell, "result", buf,
				    cell->bench->combines ? s->result : s->input,
				    phase_of(line, cell, number, rank, from));
	}
	return wrong;
}

/* Bytes right before and behind the result that the call has written to, counted as one wrong
 * element each side. */
static uint64_t judge_guards(struct bench_rank *s, const struct bench_cell *cell,
			     const struct bench_call *call)
{
	const unsigned char *sides[] = { (const unsigned char *)call->recv - GUARD,
					 (const unsigned char *)call->recv + cell->recv_bytes };
	uint64_t wrong = 0;

	for (int side = 0; side < 2; side++)
		for (int i = 0; i < GUARD; i++)
			if (sides[side][i] != POISON) {
				wrong++;
				fprintf(stderr, "rank %d: %s of %zu %s wrote %s its result\n",
					s->rank, tt_collective_name(cell->bench->collective),
					cell->count, tt_type_name(cell->type),
					side ? "behind" : "before");
				break;
			}
	return wrong;
}

int bench_rank_check(struct bench_rank *s, const struct bench_options *line, const struct bench_cell *cell,
		  int slot, uint64_t number, bool poisoned, uint64_t *ret_wrong)
{
	struct bench_call call = bench_rank_call(s, line, cell, slot), own = on_host(s, cell, call);
	uint64_t wrong = 0;

	if (move_result(s, cell, &call, bench_buffer_get) ||
	    (!cell->in_place && move_input(s, cell, &call, bench_buffer_get)))
		return 1;
	if (gets_result(s, cell))
		wrong += judge_result(s, line, cell, &own, number);
	if (!cell->in_place && poisoned)
		wrong += judge_guards(s, cell, &own);
	for (size_t i = 0; !cell->in_place && i < parts_sent(s, cell); i++)
		wrong += judge_part(s, cell, "input changed",
				    (const char *)own.send + i * cell->count * cell->esize,
				    s->input, phase_of(line, cell, number, s->rank, (int)i));
	*ret_wrong = wrong;
	return 0;
}

tuttiResult_t bench_rank_wait(const struct bench_rank *s, tuttiComm_t comm)
{
	tuttiResult_t state = tuttiSuccess, rc;

	if (!s->stream)
		return tuttiSuccess;
	if (!s->gpu.cu)
		return tuttiStreamSynchronize(s->stream);
	if (s->gpu.cu->stream_synchronize(s->own))
		return tuttiUnhandledCudaError;
	rc = tuttiCommGetAsyncError(comm, &state);
	return rc ? rc : state;
}

/* ---- caches ---------------------------------------------------------------------------------- */

#if defined(__x86_64__) || defined(__i386__)
int bench_can_flush(void)
{
	return 1;
}

static void cool_line(const char *p)
{
	__builtin_ia32_clflush(p);
}
#elif defined(__aarch64__)
int bench_can_flush(void)
{
	return 1;
}

static void cool_line(const char *p)
{
	__asm__ volatile("dc civac, %0" : : "r"(p) : "memory");
}
#else
int bench_can_flush(void)
{
	return 0;
}

static void cool_line(const char *p)
{
	(void)p;
}
#endif

static void cool(const char *area, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		cool_line(area + i);
	__sync_synchronize();
}

void bench_rank_flush(const struct bench_rank *s, const struct bench_cell *cell)
{
	size_t used = FRONT + cell->stride * (size_t)cell->slots + 2 * GUARD;

	cool(s->inputs.at, used < s->inputs.bytes ? used : s->inputs.bytes);
	used = FRONT + cell->recv_bytes + 2 * GUARD;
	if (s->results.at)
		cool(s->results.at, used < s->results.bytes ? used : s->results.bytes);
}
