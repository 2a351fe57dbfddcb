/*
 * call_text.c - calls as text, and their digest
 *
 * Called by run and by the statuses. The numbers of a call may come from another rank, so every
 * index into a table is checked.
 */
#include <stdio.h>
#include <string.h>

#include "base/collective.h"
#include "control/control_internal.h"

static const char *op_name(unsigned op)
{
	static const char *const names[tuttiNumOps + 1] = {
		"sum", "prod", "max", "min", "avg", "band", "bor", "bxor", "premulsum",
	};

	return op <= tuttiNumOps ? names[op] : "unknown op";
}

static const char *(*_Atomic name_of_algorithm)(unsigned algorithm);

void tt_call_name_algorithms(const char *(*name)(unsigned algorithm))
{
	atomic_store(&name_of_algorithm, name);
}

static const char *algorithm_name(unsigned algorithm)
{
	const char *(*name)(unsigned) = atomic_load(&name_of_algorithm), *text = NULL;

	if (algorithm == TT_CALL_DEVICE)
		return "on device memory";
	if (name)
		text = name(algorithm);
	return text ? text : "unknown algorithm";
}

/* tuttiBarrier is an allreduce with an operation of its own */
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

/* ", sum, root 3, ring": the details of the call, the first one after `before`, the others after
 * ", " */
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
		 (unsigned long long)call->count, tt_datatype_name(call->type), more,
		 more[0] ? ")" : "");
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
		 tt_datatype_name(call->type), more);
}

bool tt_call_equal(const struct tt_call *a, const struct tt_call *b)
{
	return a->collective == b->collective && a->type == b->type && a->op == b->op &&
	       a->algorithm == b->algorithm && a->root == b->root && a->count == b->count;
}

uint64_t tt_call_digest(const struct tt_call *call)
{
	uint64_t kind = (uint64_t)call->collective | (uint64_t)call->type << 8 |
			(uint64_t)call->op << 16 | (uint64_t)call->algorithm << 24;
	uint64_t h = tt_mix(tt_mix(0x54555454u, kind), call->count);

	/* root is the peer of a send or receive, which differs between the two sides */
	return call->collective != TT_SENDRECV ? tt_mix(h, (uint32_t)call->root) : h;
}
