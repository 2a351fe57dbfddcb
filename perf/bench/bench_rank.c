/*
 * bench_rank.c - buffers of one rank: allocate, fill inputs, check results
 *
 * Called by bench_thread.c (make, free) and measure.c. `inputs` holds the inputs of several calls,
 * one slot after the other. An out-of-place result goes to the start of `results`, an in-place
 * result overwrites the input.
 */
#include <stdlib.h>
#include <string.h>

#include "mem/reduce.h"
#include "perf/bench/bench.h"

enum {
	FRONT = 4096,             /* bytes before slot 0: page alignment, room for a guard */
	GUARD = 64,               /* bytes before and after a result that must not change */
	SLOTS_BYTES = 256 * 1024, /* total bytes of the slots of small inputs */
	MAX_SLOTS = 64,
	POISON = 0xa5,
	MAX_COMPLAINTS = 3 /* reported wrong buffers per rank */
};

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

static size_t buffer_bytes(const struct bench_options *options)
{
	size_t inputs = options->max_bytes > SLOTS_BYTES ? options->max_bytes : SLOTS_BYTES;

	return round_up(FRONT + inputs + 2 * MAX_SLOTS * GUARD + (size_t)options->unalign * 8,
			4096);
}

static bool separate_results(const struct bench_options *options,
			     const struct bench_collective *bench)
{
	return options->place != BENCH_PLACE_IN || !bench->in_place;
}

size_t bench_rank_bytes(const struct bench_options *options, const struct bench_collective *bench)
{
	return buffer_bytes(options) * (separate_results(options, bench) ? 2 : 1);
}

void bench_cell_slots(struct bench_cell *cell, const struct bench_options *options)
{
	size_t bytes = cell->send_bytes > cell->recv_bytes ? cell->send_bytes : cell->recv_bytes;

	cell->slots = 1;
	if (options->buffers != BENCH_BUFFERS_SAME && bytes * MAX_SLOTS <= SLOTS_BYTES)
		cell->slots = MAX_SLOTS;
	else if (options->buffers != BENCH_BUFFERS_SAME && bytes < SLOTS_BYTES)
		cell->slots = (int)(SLOTS_BYTES / bytes);
	cell->stride = round_up(bytes, GUARD) + GUARD;
}

int bench_rank_make(struct bench_rank *r, const struct bench_options *options,
		    const struct bench_collective *bench, int algos)
{
	bool two = separate_results(options, bench);
	size_t bytes = buffer_bytes(options);

	r->input = malloc(BENCH_VALUES * 8);
	r->result = malloc(BENCH_VALUES * 8);
	if (bench_buffer_make(&r->inputs, &r->gpu, bytes, options->reg) ||
	    (two && bench_buffer_make(&r->results, &r->gpu, bytes, options->reg))) {
		fprintf(stderr, "rank %d: %s\n", r->rank, tt_error_text());
		return 1;
	}
	if (!r->input || !r->result) {
		fprintf(stderr, "rank %d: no memory for tables of values\n", r->rank);
		return 1;
	}
	for (int i = 0; options->reg && i < algos; i++) {
		if (tuttiCommRegister(r->comms[i], r->inputs.at, bytes, &r->handles[2 * i]) ||
		    (two && tuttiCommRegister(r->comms[i], r->results.at, bytes,
					      &r->handles[2 * i + 1]))) {
			fprintf(stderr, "rank %d: %s\n", r->rank, tuttiGetLastError(NULL));
			return 1;
		}
	}
	return 0;
}

void bench_rank_free(struct bench_rank *r, int algos)
{
	for (int i = 0; r->handles && i < 2 * algos; i++)
		if (r->handles[i] && r->comms[i / 2])
			tuttiCommDeregister(r->comms[i / 2], r->handles[i]);
	bench_buffer_free(&r->inputs, &r->gpu);
	bench_buffer_free(&r->results, &r->gpu);
	free(r->input);
	free(r->result);
	r->input = r->result = NULL;
}

/* ---- a call's buffers ------------------------------------------------------------------------ */

struct bench_call bench_rank_call(const struct bench_rank *r, const struct bench_options *options,
				  const struct bench_cell *cell, int slot)
{
	size_t start = FRONT + (size_t)options->unalign * cell->esize,
	       part = cell->count * cell->esize;
	char *send = r->inputs.at + start + (size_t)slot * cell->stride;
	struct bench_call call = { .count = cell->count,
				   .type = cell->type,
				   .root = cell->root,
				   .rank = r->rank,
				   .nranks = r->nranks,
				   .comm = r->comms[cell->algo],
				   .stream = r->stream };

	call.op = cell->op == BENCH_MULSUM ? r->mulsum[cell->algo] : (tuttiRedOp_t)cell->op;
	call.send = send;
	call.recv = send;
	if (!cell->in_place)
		call.recv = r->results.at + start;
	else if (cell->bench->recv_all && !cell->bench->send_all)
		call.send = send + (size_t)r->rank * part;
	else if (cell->bench->send_all && !cell->bench->recv_all)
		call.recv = send + (size_t)r->rank * part;
	return call;
}

static bool gets_result(const struct bench_rank *r, const struct bench_cell *cell)
{
	return !cell->bench->to_root || r->rank == cell->root;
}

static size_t parts_sent(const struct bench_rank *r, const struct bench_cell *cell)
{
	return cell->bench->send_all ? (size_t)r->nranks : 1;
}

/* Returns the table index at which part `part` of rank's input begins. If the collective combines,
 * all parts continue in one table. */
static size_t phase_of(const struct bench_options *options, const struct bench_cell *cell,
		       uint64_t number, int rank, int part)
{
	if (!cell->bench->combines)
		return bench_values_phase((uint64_t)options->seed, number, (uint64_t)rank + 1,
					  (uint64_t)part);
	return (bench_values_phase((uint64_t)options->seed, number, 0, 0) +
		(size_t)part * cell->count) %
	       BENCH_VALUES;
}

/* Returns the call with the addresses of the host copies. */
static struct bench_call on_host(const struct bench_rank *r, const struct bench_cell *cell,
				 struct bench_call call)
{
	call.send = bench_buffer_host(&r->inputs, call.send);
	call.recv = bench_buffer_host(cell->in_place ? &r->inputs : &r->results, call.recv);
	return call;
}

typedef int move_fn(const struct bench_buffer *b, const struct tool_cuda_device *gpu,
		    tt_custream stream, const void *at, size_t bytes);

static int report_move(const struct bench_rank *r, int rc)
{
	if (rc)
		fprintf(stderr, "rank %d: %s\n", r->rank, tt_error_text());
	return rc != 0;
}

/* Copies the result between host copy and buffer; out of place, the guard bytes too. */
static int move_result(const struct bench_rank *r, const struct bench_cell *cell,
		       const struct bench_call *call, move_fn *move)
{
	size_t guard = cell->in_place ? 0 : GUARD;

	return report_move(r, move(cell->in_place ? &r->inputs : &r->results, &r->gpu, r->cu_stream,
				   (const char *)call->recv - guard, cell->recv_bytes + 2 * guard));
}

static int move_input(const struct bench_rank *r, const struct bench_cell *cell,
		      const struct bench_call *call, move_fn *move)
{
	return report_move(r,
			   move(&r->inputs, &r->gpu, r->cu_stream, call->send, cell->send_bytes));
}

int bench_rank_fill(const struct bench_rank *r, const struct bench_options *options,
		    const struct bench_cell *cell, int slot, uint64_t number, bool poison)
{
	struct bench_call call = bench_rank_call(r, options, cell, slot),
			  host = on_host(r, cell, call);
	size_t part = cell->count * cell->esize;

	if (poison)
		memset((char *)host.recv - (cell->in_place ? 0 : GUARD), POISON,
		       cell->recv_bytes + (cell->in_place ? 0 : 2 * GUARD));
	for (size_t i = 0; i < parts_sent(r, cell); i++)
		bench_values_fill((char *)host.send + i * part, r->input, cell->esize, cell->count,
				  phase_of(options, cell, number, r->rank, (int)i));
	if (poison && move_result(r, cell, &call, bench_buffer_put))
		return 1;
	return move_input(r, cell, &call, bench_buffer_put);
}

/* ---- check ----------------------------------------------------------------------------------- */

/* Prints the first wrong element of a buffer; MAX_COMPLAINTS buffers per rank. */
static void complain(struct bench_rank *r, const struct bench_cell *cell, const char *what,
		     const void *buf, size_t index, const void *table, size_t phase, uint64_t wrong)
{
	const void *want = (const char *)table + (index + phase) % BENCH_VALUES * cell->esize;

	if (r->complaints++ >= MAX_COMPLAINTS)
		return;
	fprintf(stderr,
		"rank %d: %s of %zu %s, %s, %s: %s: %llu wrong, the first is element %zu: %.9g instead of %.9g\n",
		r->rank, tt_collective_name(cell->bench->collective), cell->count,
		tt_datatype_name(cell->type),
		bench_values_op_name(cell->bench->combines ? cell->op : BENCH_NO_OP),
		cell->in_place ? "in place" : "out of place", what, (unsigned long long)wrong,
		index, tt_element_get(buf, index, cell->type), tt_element_get(want, 0, cell->type));
}

static uint64_t check_part(struct bench_rank *r, const struct bench_cell *cell, const char *what,
			   const void *buf, const void *table, size_t phase)
{
	size_t first;
	uint64_t wrong = bench_values_check(buf, table, cell->esize, cell->count, phase, &first);

	if (wrong)
		complain(r, cell, what, buf, first, table, phase, wrong);
	return wrong;
}

static uint64_t check_result(struct bench_rank *r, const struct bench_options *options,
			     const struct bench_cell *cell, const struct bench_call *call,
			     uint64_t number)
{
	int parts = cell->bench->recv_all ? r->nranks : 1;
	size_t part = cell->count * cell->esize;
	uint64_t wrong = 0;

	for (int i = 0; i < parts; i++) {
		const char *buf = (const char *)call->recv + (size_t)i * part;
		int rank = r->rank, from = cell->bench->send_all ? r->rank : 0;

		if (cell->bench->origin)
			cell->bench->origin(call, i, &rank, &from);
		wrong += check_part(r, cell, "result", buf,
				    cell->bench->combines ? r->result : r->input,
				    phase_of(options, cell, number, rank, from));
	}
	return wrong;
}

/* Checks the guard bytes before and after the result; each overwritten side counts as one wrong
 * element. */
static uint64_t check_guards(struct bench_rank *r, const struct bench_cell *cell,
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
					r->rank, tt_collective_name(cell->bench->collective),
					cell->count, tt_datatype_name(cell->type),
					side ? "after" : "before");
				break;
			}
	return wrong;
}

int bench_rank_check(struct bench_rank *r, const struct bench_options *options,
		     const struct bench_cell *cell, int slot, uint64_t number, bool poisoned,
		     uint64_t *ret_wrong)
{
	struct bench_call call = bench_rank_call(r, options, cell, slot),
			  host = on_host(r, cell, call);
	uint64_t wrong = 0;

	if (move_result(r, cell, &call, bench_buffer_get) ||
	    (!cell->in_place && move_input(r, cell, &call, bench_buffer_get)))
		return 1;
	if (gets_result(r, cell))
		wrong += check_result(r, options, cell, &host, number);
	if (!cell->in_place && poisoned)
		wrong += check_guards(r, cell, &host);
	for (size_t i = 0; !cell->in_place && i < parts_sent(r, cell); i++)
		wrong += check_part(r, cell, "input changed",
				    (const char *)host.send + i * cell->count * cell->esize,
				    r->input, phase_of(options, cell, number, r->rank, (int)i));
	*ret_wrong = wrong;
	return 0;
}

tuttiResult_t bench_rank_wait(const struct bench_rank *r, tuttiComm_t comm)
{
	tuttiResult_t state = tuttiSuccess, rc;

	if (!r->stream)
		return tuttiSuccess;
	if (!r->gpu.cu)
		return tuttiStreamSynchronize(r->stream);
	if (r->gpu.cu->stream_synchronize(r->cu_stream))
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

static void flush_line(const char *p)
{
	__builtin_ia32_clflush(p);
}
#elif defined(__aarch64__)
int bench_can_flush(void)
{
	return 1;
}

static void flush_line(const char *p)
{
	__asm__ volatile("dc civac, %0" : : "r"(p) : "memory");
}
#else
int bench_can_flush(void)
{
	return 0;
}

static void flush_line(const char *p)
{
	(void)p;
}
#endif

static void flush_bytes(const char *buffer, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		flush_line(buffer + i);
	__sync_synchronize();
}

void bench_rank_flush(const struct bench_rank *r, const struct bench_cell *cell)
{
	size_t used = FRONT + cell->stride * (size_t)cell->slots + 2 * GUARD;

	flush_bytes(r->inputs.at, used < r->inputs.bytes ? used : r->inputs.bytes);
	used = FRONT + cell->recv_bytes + 2 * GUARD;
	if (r->results.at)
		flush_bytes(r->results.at, used < r->results.bytes ? used : r->results.bytes);
}
