/*
 * quorum_call.c - one rank's call of a quorum allreduce: contribute, wait for the outcome, receive
 * the result
 *
 * Called by api, in the caller's thread or a stream's. Rank 0 sends messages to its own coordinator
 * like any other rank.
 */
#include <string.h>

#include "comm/comm.h"
#include "am/quorum_internal.h"

#define MASK_WORDS (TUTTI_QUORUM_RANKS / 64)

static int refused(tuttiComm_t c, const struct tt_quorum_call *q, const struct tt_am_header *v)
{
	if (v->call[0] == TT_OUTCOME_AHEAD)
		return tt_fail(
			TT_USAGE,
			"rank %d: quorum operation %llu is not open: rank 0 has not completed the one before",
			c->rank, (unsigned long long)q->number);
	if (v->call[0] == TT_OUTCOME_NO_MEMORY)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: quorum operation %llu: rank 0, which computes the sum, has no memory for it",
			c->rank, (unsigned long long)q->number);
	return tt_fail(
		TT_USAGE,
		"rank %d called quorum operation %llu with %zu %s, %s, k = %d; the first caller, rank %u, with "
		"%u bytes, k = %u, or another type or operation",
		c->rank, (unsigned long long)q->number, q->count, tt_datatype_name(q->type),
		tt_op_name(q->op), q->k, v->call[1], v->call[2], v->call[3]);
}

/* Error of a call without an answer: rank 0 is gone, or makes no progress. */
static int no_answer(tuttiComm_t c, const struct tt_quorum_call *q, int rc, uint32_t waited_ms)
{
	if (rc == TT_REMOTE && tt_am_state(c->am, 0) != tuttiRankAlive && c->rank)
		return tt_fail(
			TT_REMOTE,
			"rank %d: quorum operation %llu: rank 0, which computes the sum, %s; the other ranks can continue with tuttiCommShrink",
			c->rank, (unsigned long long)q->number,
			tt_am_state(c->am, 0) == tuttiRankLeft ? "has left" : "is dead");
	if (rc <= 0 && rc != TT_TIMEOUT)
		return rc;
	return tt_fail(
		TT_TIMEOUT,
		"rank %d: quorum operation %llu: rank 0, which computes the sum, did not answer for %u ms",
		c->rank, (unsigned long long)q->number, waited_ms);
}

static int contribute(tuttiComm_t c, const struct tt_quorum_call *q, uint32_t wait_ms)
{
	struct tt_am_header head = { .kind = TT_AM_CONTRIBUTION,
				     .tag = c->quorum.tag,
				     .version = q->number,
				     .bytes = q->in ? q->count * tt_type_bytes(q->type) : 0 };

	head.call[0] = (uint32_t)q->type | (q->in ? 0 : TT_QUORUM_RESULT_ONLY) |
		       (q->every ? TT_QUORUM_EVERY : 0);
	head.call[1] = (uint32_t)q->op;
	head.call[2] = (uint32_t)q->k;
	head.call[3] = q->deadline_ms;
	return tt_am_send(c->am, 0, &head, q->in, tt_deadline_ns(wait_ms));
}

/* Receives the result into out. A result of another size is dropped: TT_USAGE. */
static int take_result(tuttiComm_t c, struct tt_quorum_call *q, uint64_t deadline_ns)
{
	size_t bytes = q->count * tt_type_bytes(q->type);
	struct tt_am_match want = {
		.kind = TT_AM_RESULT, .source = 0, .tag = c->quorum.tag, .to = q->out, .room = bytes
	};
	struct tt_am_header head;
	int rc = tt_am_recv(c->am, &want, deadline_ns, &head);

	if (rc == TT_ARG || (!rc && head.bytes != bytes))
		rc = tt_fail(
			TT_USAGE,
			"rank %d: quorum operation %llu: the result has another size than this rank's call of %zu %s",
			c->rank, (unsigned long long)q->number, q->count,
			tt_datatype_name(q->type));
	return rc;
}

/* Copies the contribution to carry. Only a late one is handed back; in place, the copy must precede
 * the result. */
static void save_carry(const struct tt_quorum_call *q, bool in_place)
{
	if (q->carry && q->in && q->count && (q->in == q->out) == in_place)
		memcpy(q->carry, q->in, q->count * tt_type_bytes(q->type));
}

int tt_quorum_run(tuttiComm_t c, struct tt_quorum_call *q)
{
	uint64_t mask[MASK_WORDS] = { 0 };
	struct tt_am_match want = {
		.kind = TT_AM_OUTCOME, .source = 0, .to = mask, .room = sizeof(mask)
	};
	uint32_t wait_ms = q->deadline_ms + c->settings.timeout_ms;
	struct tt_am_header outcome;
	int rc;

	want.tag = ++c->quorum.tag;
	q->number = c->quorum.done + 1;
	tt_am_drop(c->am, TT_AM_OUTCOME); /* answers to earlier calls that timed out */
	tt_am_drop(c->am, TT_AM_RESULT);
	save_carry(q, true);
	rc = contribute(c, q, wait_ms);
	if (!rc)
		rc = tt_am_recv(c->am, &want, tt_deadline_ns(wait_ms), &outcome);
	if (!rc && outcome.call[0] >= TT_OUTCOME_DIFFERS)
		return refused(c, q, &outcome);
	if (!rc && outcome.call[0] == tuttiQuorumLate)
		save_carry(q, false);
	if (!rc)
		rc = take_result(c, q, tt_deadline_ns(wait_ms));
	if (rc)
		return no_answer(c, q, rc, wait_ms);
	c->quorum.done = q->number = outcome.version;
	q->mine = (tuttiQuorumMine_t)outcome.call[0];
	q->used = (int)outcome.call[1];
	q->newest = outcome.call[2] | (uint64_t)outcome.call[3] << 32;
	memcpy(q->mask, mask, sizeof(mask));
	atomic_fetch_add(&c->calls.operations, 1);
	return 0;
}
