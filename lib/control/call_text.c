/*
 * call_text.c - calls in words, and their stamp
 *
 * Called by run and status. The numbers may come from another rank,
 * so none is trusted to be in a table.
 */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "control/control_internal.h"

static const char *type_name(unsigned type)
{
	static const char *const names[tuttiNumTypes] = {
		"int8",	   "uint8",   "int32",	 "uint32",   "int64",	   "uint64",
		"float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2",
	};

	return type < tuttiNumTypes ? names[type] : "elements of unknown type";
}

static const char *op_name(unsigned op)
{
	static const char *const names[tuttiNumOps + 1] = {
		"sum", "prod", "max", "min", "avg", "band", "bor", "bxor", "premulsum",
	};

	return op <= tuttiNumOps ? names[op] : "unknown op";
}

static const char *algorithm_name(unsigned algorithm)
{
	if (algorithm == TT_CALL_DEVICE)
		return "on device memory";
	for (unsigned i = 0; tt_algorithms[i]; i++)
		if (i == algorithm)
			return tt_algorithms[i]->name;
	return "unknown algorithm";
}

/* what tuttiBarrier is made of, told apart by an operation of its own */
static bool is_barrier(const struct tt_call *call)
{
	return call->collective == TT_ALLREDUCE && call->op == TT_CALL_BARRIER;
}

static bool combines(unsigned collective)
{
	return collective == TT_ALLREDUCE || collective == TT_REDUCE ||
	       collective == TT_REDUCE_SCATTER;
}

static const char *collective_name(unsigned collective)
{
	return collective < TT_COLLECTIVES ? tt_collective_name((enum tt_collective)collective)
					   : "unknown collective";
}

/* ", sum, root 3, ring" with what the call has, each part after `before` or ", " */
static void details(const struct tt_call *call, bool with_algorithm, const char *before, char *text,
		    size_t bytes)
{
	size_t have = 0;

	text[0] = '\0';
	if (combines(call->collective))
		have += (size_t)snprintf(text, bytes, "%s%s", before, op_name(call->op));
	if (call->root >= 0 && have < bytes)
		have += (size_t)snprintf(text + have, bytes - have, "%s%s %d", have ? ", " : before,
					 call->collective == TT_SENDRECV ? "peer" : "root",
					 (int)call->root);
	if (with_algorithm && call->collective != TT_SENDRECV && have < bytes)
		snprintf(text + have, bytes - have, "%s%s", have ? ", " : before,
			 algorithm_name(call->algorithm));
}

void tt_call_describe(const struct tt_call *call, bool with_algorithm, char *text, size_t bytes)
{
	char more[96];

	if (is_barrier(call)) {
		snprintf(text, bytes, "barrier");
		return;
	}
	details(call, with_algorithm, " (", more, sizeof(more));
	snprintf(text, bytes, "%s of %llu %s%s%s", collective_name(call->collective),
		 (unsigned long long)call->count, type_name(call->type), more, more[0] ? ")" : "");
}

void tt_call_text(const struct tt_call *call, uint64_t seq, char *text, size_t bytes)
{
	char more[96];

	if (is_barrier(call)) {
		snprintf(text, bytes, "operation %llu (barrier)", (unsigned long long)seq);
		return;
	}
	details(call, true, ", ", more, sizeof(more));
	snprintf(text, bytes, "operation %llu (%s of %llu %s%s)", (unsigned long long)seq,
		 collective_name(call->collective), (unsigned long long)call->count,
		 type_name(call->type), more);
}

bool tt_call_equal(const struct tt_call *a, const struct tt_call *b)
{
	return a->collective == b->collective && a->type == b->type && a->op == b->op &&
	       a->algorithm == b->algorithm && a->root == b->root && a->count == b->count;
}

uint64_t tt_call_digest(const struct tt_call *call)
{
	uint64_t what = (uint64_t)call->collective | (uint64_t)call->type << 8 |
			(uint64_t)call->op << 16 | (uint64_t)call->algorithm << 24;
	uint64_t h = tt_mix(tt_mix(0x54555454u, what), call->count);

	/* of a send or receive it is the peer, another one on each side */
	return call->collective != TT_SENDRECV ? tt_mix(h, (uint32_t)call->root) : h;
}
