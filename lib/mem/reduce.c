/*
 * reduce.c - choice of the instruction set, and lookup of its reduction kernels
 *
 * Called by run and the api; the kernels are in reduce_{scalar,avx2,avx512}.c, one source compiled
 * three times.
 */
#include "mem/reduce_types.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static _Atomic(const struct tt_reduce_isa *) isa_in_force; /* NULL: not chosen yet */

/* ---- choice of the instruction set ----------------------------------------------------------- */

#ifdef __x86_64__
static bool has_avx2(void)
{
	unsigned a, b, c, d;

	/* clang's __builtin_cpu_supports does not know f16c */
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static bool has_scalar(void)
{
	return true;
}

/* Best first. */
static const struct {
	const struct tt_reduce_isa *isa;
	bool (*has)(void);
} isas[] = {
#ifdef __x86_64__
	{ &tt_reduce_avx512, has_avx512 },
	{ &tt_reduce_avx2, has_avx2 },
#endif
	{ &tt_reduce_scalar, has_scalar },
};

/* The instruction set with this name (NULL: the best). NULL: unknown, or missing on this CPU. */
static const struct tt_reduce_isa *find(const char *name)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
		if ((!name || !strcmp(name, isas[i].isa->name)) && isas[i].has())
			return isas[i].isa;
	return NULL;
}

/* "auto" and the names of the instruction sets of this CPU into text[size]. */
static const char *names_here(char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "auto");

	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
		if (isas[i].has())
			used += (size_t)snprintf(text + used, size - used, " %s",
						 isas[i].isa->name);
	return text;
}

int tt_reduce_isa_set(const char *name)
{
	const struct tt_reduce_isa *isa = find(!*name || !strcmp(name, "auto") ? NULL : name);
	char allowed[64];

	if (!isa)
		return tt_fail(
			TT_ARG,
			"TUTTI_ISA is '%.32s', which this CPU does not have; allowed here is %s",
			name, names_here(allowed, sizeof(allowed)));
	atomic_store(&isa_in_force, isa);
	return TT_OK;
}

const struct tt_reduce_isa *tt_reduce_isa_now(void)
{
	const struct tt_reduce_isa *isa = atomic_load_explicit(&isa_in_force, memory_order_relaxed);

	if (tt_likely(isa))
		return isa;
	/* exchanged only from NULL, to keep a concurrent tt_reduce_isa_set of another thread */
	atomic_compare_exchange_strong(&isa_in_force, &isa, find(NULL));
	return atomic_load(&isa_in_force);
}

const char *tt_reduce_isa(void)
{
	return tt_reduce_isa_now()->name;
}

/* ---- lookup of kernels ----------------------------------------------------------------------- */

tt_reduce_fn *tt_reduce_kernel(tuttiDataType_t type, tuttiRedOp_t op)
{
	if ((unsigned)type >= tuttiNumTypes || (unsigned)op >= tuttiNumOps)
		return NULL;
	return tt_reduce_isa_now()->kernel[type][op == tuttiAvg ? tuttiSum : op];
}
