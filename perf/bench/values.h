/*
 * values.h - inputs whose collective result is known exactly, without reducing the inputs
 *
 * Called by the benchmark (fill before a call, check after the call) and its tests. Uses none of
 * the library's reduction kernels.
 *
 * The input of a rank is a table of BENCH_VALUES elements, repeated over the buffer from a phase on:
 * element i is table[(i + phase) % BENCH_VALUES]. Every rank knows the phase of every call, so no two
 * calls see the same data; fill and check run at the speed of memcpy and memcmp. BENCH_VALUES is a
 * prime, so that misplaced blocks do not match by accident.
 *
 * Tables of one (type, op, nranks): the result does not depend on the order in which ranks are
 * combined, bit by bit, since every partial sum or product fits the type's mantissa. The result
 * differs if a rank is missing or counted twice, and differs from zero and from the input.
 */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

#include "base/base.h"
#include "tutti.h"

enum { BENCH_VALUES = 16381 };

/* Operations beyond tuttiRedOp_t. MULSUM: sum pre-multiplied by 1 (even ranks) or 2 (odd ranks).
 * NO_OP: raw bytes, for collectives that do not combine. */
enum { BENCH_MULSUM = tuttiNumOps, BENCH_NO_OP };

const char *bench_values_op_name(int op);
/* Returns whether op is defined for type. */
bool bench_values_defined(int op, tuttiDataType_t type);
/* Returns the scalar of rank for BENCH_MULSUM. */
int bench_values_scalar(int rank);

/* Writes the input table of rank, BENCH_VALUES elements. BENCH_NO_OP: the table is equal on all
 * ranks, so the caller gives each rank its own phase. */
void bench_values_input(void *table, tuttiDataType_t type, int op, int nranks, int rank,
			uint64_t seed);
/* Writes the table of the result. Not for BENCH_NO_OP. */
void bench_values_result(void *table, tuttiDataType_t type, int op, int nranks, uint64_t seed);

/* Hashes the numbers of a call, a rank and a block into a phase; equal arguments give equal phases
 * on every rank. */
size_t bench_values_phase(uint64_t seed, uint64_t call, uint64_t rank, uint64_t block);

/* Sets buf[i] = table[(i + phase) % BENCH_VALUES] for count elements of `bytes` bytes. */
void bench_values_fill(void *buf, const void *table, size_t bytes, size_t count, size_t phase);

/* Counts the elements that differ, bit by bit, from bench_values_fill; sets *ret_first to the first
 * one, if any. */
uint64_t bench_values_check(const void *buf, const void *table, size_t bytes, size_t count,
			    size_t phase, size_t *ret_first);

#endif
