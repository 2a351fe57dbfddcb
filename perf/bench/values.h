/*
 * values.h - inputs of a collective whose result is known exactly, element by element, without
 * computing it from them
 *
 * Called by the benchmark (fill before a call, judge after it) and its tests. Uses none of the
 * library's kernels.
 *
 * A rank's input is a table of BENCH_VALUES elements, repeated over the buffer from a phase on:
 * element i is table[(i + phase) % BENCH_VALUES]. Every rank knows the phase of every call, so no two
 * calls see the same data, and filling and judging go at the speed of memcpy and memcmp. BENCH_VALUES
 * is a prime, so that blocks that went to the wrong place do not match by accident.
 *
 * The tables of one (type, op, nranks) are made so that the result does not
 * depend on the order in which ranks are combined, not in one bit: every
 * partial sum or product fits the type's mantissa. And so that it shows when a
 * rank is left out, counted twice, or when a result is zero or just the input.
 */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

#include "base/base.h"
#include "tutti.h"

enum { BENCH_VALUES = 16381 };

/* Operations beyond tuttiRedOp_t: a sum pre-multiplied by 1 (even ranks) or 2 (odd ranks); no
 * operation: raw bytes. */
enum { BENCH_MULSUM = tuttiNumOps, BENCH_NO_OP };

const char *bench_values_op_name(int op);
/* Is op defined for type? */
bool bench_values_defined(int op, tuttiDataType_t type);
/* The scalar of rank for BENCH_MULSUM. */
int bench_values_scalar(int rank);

/* Write the table of rank's input, BENCH_VALUES elements. For BENCH_NO_OP it is the same for all ranks;
 * let phases differ. */
void bench_values_input(void *table, tuttiDataType_t type, int op, int nranks, int rank,
		     uint64_t seed);
/* Write the table of the result. Not for BENCH_NO_OP. */
void bench_values_result(void *table, tuttiDataType_t type, int op, int nranks, uint64_t seed);

/* A phase out of numbers that name a call, a rank, a block ...;
 * equal on every rank that names the same. */
size_t bench_values_phase(uint64_t seed, uint64_t call, uint64_t rank, uint64_t block);

/* buf[i] = table[(i + phase) % BENCH_VALUES], count elements of bytes each */
void bench_values_fill(void *buf, const void *table, size_t bytes, size_t count, size_t phase);

/* How many elements differ from that, bit by bit; the first of them when there is one. */
uint64_t bench_values_check(const void *buf, const void *table, size_t bytes, size_t count,
			 size_t phase, size_t *ret_first);

#endif
