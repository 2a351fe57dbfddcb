/*
 * quorum_coordinator.c - rank 0's coordinator of quorum allreduces: collect, sum, answer, keep
 * results
 *
 * Called with am->lock held: by rank 0's service thread, or in rank 0's own call. One operation is
 * open at a time, the one after the newest. An operation completes with its k-th contribution, at
 * its deadline, or when every live rank has contributed. The coordinator sums in rank order over
 * the mask and answers every rank that contributed or requested the result. A contribution to a
 * complete operation is answered at once with a kept result; its body is discarded.
 *
 *   to rank 0     CONTRIBUTION: version = number of the operation, tag = number of the caller's
 *                 call, call = type, op, k, deadline. Flag RESULT_ONLY: no contribution, only a
 *                 request for the result. Flag EVERY: a late rank gets the result of this
 *                 operation, not the newest.
 *   from rank 0   OUTCOME: version, tag; call = outcome of the contribution, number of
 *                 contributions, newest number; body = mask. Then RESULT: body = bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "am/quorum_internal.h"
#include "mem/fpmode.h"
#include "mem/reduce.h"

#define RESULTS_BYTES (64u << 20)
#define TILE_BYTES (128u << 10) /* piece summed at a time, to stay in the cache */

struct quorum_result {
	uint64_t number;
	int count;
	struct tt_am_payload *mask, *result;
};

struct contribution {
	uint8_t *data; /* buffer, reused by later operations */
	size_t room;
	bool receiving, received; /* body incomplete; body complete */
	/* requested the result of the open operation, without contribution */
	bool result_only;
	int tag; /* number of the caller's call */
};

struct tt_quorum {
	uint64_t newest; /* number of the newest complete operation */
	bool open;
	/* header of the first contribution to the open operation; the others must match it */
	struct tt_am_header first;
	uint64_t due_ns;
	int nreceived;
	struct contribution *contribution; /* [nranks] */
	/* result of operation number % TUTTI_QUORUM_KEPT */
	struct quorum_result results[TUTTI_QUORUM_KEPT];
	size_t results_bytes;
};

/* ---- answers --------------------------------------------------------------------------------- */

static void post(struct tt_am *am, int to, const struct tt_am_header *head,
		 struct tt_am_payload *payload)
{
	if (to == am->rank)
		tt_unexpected_put(am, head, payload ? payload->data : NULL);
	else
		tt_am_post(am, to, head, payload);
}

static void answer(struct tt_am *am, int to, const struct quorum_result *kept, uint32_t mine)
{
	struct tt_quorum *q = am->quorum;
	struct tt_am_header head = { .kind = TT_AM_OUTCOME,
				     .tag = q->contribution[to].tag,
				     .version = kept->number,
				     .bytes = kept->mask->bytes,
				     .call = { mine, (uint32_t)kept->count } };

	head.call[2] = (uint32_t)q->newest;
	head.call[3] = (uint32_t)(q->newest >> 32);
	post(am, to, &head, kept->mask);
	head.kind = TT_AM_RESULT;
	head.bytes = kept->result->bytes;
	post(am, to, &head, kept->result);
}

/* Refuses the contribution h. why: TT_OUTCOME_DIFFERS, with rank, bytes and k of the first contribution,
 * TT_OUTCOME_AHEAD or TT_OUTCOME_NO_MEMORY. */
static void refuse(struct tt_am *am, const struct tt_am_header *h, uint32_t why)
{
	const struct tt_quorum *q = am->quorum;
	struct tt_am_header head = { .kind = TT_AM_OUTCOME,
				     .tag = h->tag,
				     .version = q ? q->newest + 1 : 1,
				     .call = { why } };

	if (why == TT_OUTCOME_DIFFERS) {
		head.call[1] = (uint32_t)q->first.source;
		head.call[2] = (uint32_t)q->first.bytes;
		head.call[3] = q->first.call[2];
	}
	post(am, h->source, &head, NULL);
}

static void answer_late(struct tt_am *am, const struct tt_am_header *h)
{
	struct tt_quorum *q = am->quorum;
	const struct quorum_result *kept = &q->results[h->version % TUTTI_QUORUM_KEPT];

	if (!(h->call[0] & TT_QUORUM_EVERY) || kept->number != h->version || !kept->result)
		kept = &q->results[q->newest % TUTTI_QUORUM_KEPT];
	answer(am, h->source, kept,
	       h->call[0] & TT_QUORUM_RESULT_ONLY ? tuttiQuorumNone : tuttiQuorumLate);
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* Sums in the order of reduce-to-one: the first eight inputs at once, then seven at a time. */
static void sum_tile(tt_reduce_fn *reduce, uint8_t *dst, const uint8_t *const *from, int n,
		     size_t at, size_t count, size_t element)
{
	const void *src[TT_MAX_SOURCES];
	int done = 0;

	if (n == 1)
		memcpy(dst + at, from[0] + at, count * element);
	while (n > 1 && done < n) {
		int m = 0;

		if (done)
			src[m++] = dst + at;
		while (m < TT_MAX_SOURCES && done < n)
			src[m++] = from[done++] + at;
		reduce(dst + at, NULL, src, m, count);
	}
}

static void sum(const struct tt_quorum *q, const uint8_t *const *from, int n, uint8_t *dst)
{
	tuttiDataType_t type = (tuttiDataType_t)(q->first.call[0] & 0xff);
	tuttiRedOp_t op = (tuttiRedOp_t)q->first.call[1];
	size_t element = tt_type_bytes(type), bytes = q->first.bytes;
	bool average = op == tuttiAvg;
	struct tt_fpmode mode = tt_fpmode_enter();

	for (int i = 0; average && tt_average_scales(type) && i < n; i++)
		tt_average_scale((void *)(uintptr_t)from[i], from[i], (uint32_t)n, bytes / element,
				 type);
	for (size_t at = 0; at < bytes; at += TILE_BYTES)
		sum_tile(tt_reduce_kernel(type, op), dst, from, n, at,
			 (bytes - at < TILE_BYTES ? bytes - at : TILE_BYTES) / element, element);
	if (average && bytes)
		tt_average_finish(dst, (uint32_t)n, bytes / element, type);
	tt_fpmode_leave(mode);
}

static struct tt_am_payload *new_payload(size_t bytes)
{
	struct tt_am_payload *s = aligned_alloc(64, (sizeof(*s) + bytes + 63) / 64 * 64);

	if (s) {
		memset(s, 0, sizeof(*s));
		s->refs = 1;
		s->bytes = bytes;
	}
	return s;
}

static void drop_result(struct tt_quorum *q, struct quorum_result *kept)
{
	if (!kept->result)
		return;
	q->results_bytes -= kept->result->bytes;
	tt_am_payload_drop(kept->result);
	tt_am_payload_drop(kept->mask);
	memset(kept, 0, sizeof(*kept));
}

/* Makes the result of the open operation and keeps it as the newest. false: no memory */
static bool make_result(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;
	struct tt_am_payload *mask = new_payload((size_t)(am->nranks + 63) / 64 * 8),
			     *result = new_payload(q->first.bytes);
	const uint8_t **from = malloc((size_t)am->nranks * sizeof(*from));
	struct quorum_result *kept = &q->results[(q->newest + 1) % TUTTI_QUORUM_KEPT];
	int n = 0;

	if (!mask || !result || !from) {
		free(mask);
		free(result);
		free(from);
		return false;
	}
	memset(mask->data, 0, mask->bytes);
	for (int r = 0; r < am->nranks; r++)
		if (q->contribution[r].received) {
			/* little-endian 64-bit words */
			mask->data[r / 8] |= (uint8_t)(1 << r % 8);
			from[n++] = q->contribution[r].data;
		}
	sum(q, from, n, result->data);
	free(from);
	drop_result(q, kept);
	*kept = (struct quorum_result){
		.number = ++q->newest, .count = n, .mask = mask, .result = result
	};
	q->results_bytes += result->bytes;
	for (uint64_t old = q->newest > TUTTI_QUORUM_KEPT ? q->newest - TUTTI_QUORUM_KEPT : 1;
	     old < q->newest && q->results_bytes > RESULTS_BYTES; old++)
		if (q->results[old % TUTTI_QUORUM_KEPT].number == old)
			drop_result(q, &q->results[old % TUTTI_QUORUM_KEPT]);
	return true;
}

/* Discards the rest of a body that arrives too late. */
static void discard_body(struct tt_am *am, int source)
{
	struct tt_am_stream *s = tt_stream_at(am, source);

	if (s && s->in_body && s->head.kind == TT_AM_CONTRIBUTION)
		s->to = NULL;
}

static void complete(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;

	if (!make_result(am)) { /* retry in 10 ms: memory may be freed */
		q->due_ns = tt_now_ns() + 10000000;
		return;
	}
	q->open = false;
	q->nreceived = 0;
	for (int r = 0; r < am->nranks; r++) {
		struct contribution *c = &q->contribution[r];
		bool received = c->received, receiving = c->receiving, result_only = c->result_only;

		if (receiving)
			discard_body(am, r);
		c->received = c->receiving = c->result_only = false;
		if (received || receiving || result_only)
			answer(am, r, &q->results[q->newest % TUTTI_QUORUM_KEPT],
			       received    ? tuttiQuorumIn
			       : receiving ? tuttiQuorumLate
					   : tuttiQuorumNone);
	}
}

/* Completes the open operation if it has k contributions, is due, or no other live rank can
 * contribute. */
static void complete_if_ready(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;
	int awaited = 0;

	if (!q->open || !q->nreceived)
		return;
	for (int r = 0; r < am->nranks; r++)
		awaited += q->contribution[r].receiving ||
			   (!q->contribution[r].received && !q->contribution[r].result_only &&
			    tt_am_lives(am, r));
	if (q->nreceived >= (int)q->first.call[2] || !awaited || tt_now_ns() >= q->due_ns)
		complete(am);
}

/* ---- contributions --------------------------------------------------------------------------- */

static bool make_coordinator(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;

	if (q)
		return true;
	q = calloc(1, sizeof(*q));
	if (q)
		q->contribution = calloc((size_t)am->nranks, sizeof(*q->contribution));
	if (!q || !q->contribution) {
		if (q)
			free(q->contribution);
		free(q);
		return false;
	}
	am->quorum = q;
	return true;
}

static bool is_valid(const struct tt_am_header *h)
{
	uint32_t type = h->call[0] & 0xff, op = h->call[1];

	return type < tuttiNumTypes && op < tuttiNumOps &&
	       tt_reduce_kernel((tuttiDataType_t)type, (tuttiRedOp_t)op) &&
	       h->bytes % tt_type_bytes((tuttiDataType_t)type) == 0 && h->version && h->call[2];
}

static void open_operation(struct tt_am *am, const struct tt_am_header *h)
{
	struct tt_quorum *q = am->quorum;

	q->open = true;
	q->first = *h;
	q->due_ns = tt_deadline_ns(h->call[3]);
	/* wake the service thread: its timeout changes */
	tt_control_wake(am->ctl);
}

/* True if both headers describe the same call. */
static bool is_same(const struct tt_am_header *a, const struct tt_am_header *b)
{
	return a->bytes == b->bytes && (a->call[0] & 0xff) == (b->call[0] & 0xff) &&
	       a->call[1] == b->call[1] && a->call[2] == b->call[2];
}

/* Buffer for a contribution of `bytes`. NULL: no memory */
static uint8_t *contribution_buffer(struct contribution *c, size_t bytes)
{
	size_t room = (bytes + 64) / 64 * 64;

	if (c->room < room || c->room > 4 * room + (1u << 20)) {
		free(c->data);
		c->data = aligned_alloc(64, room);
		c->room = c->data ? room : 0;
	}
	c->receiving = c->data != NULL;
	return c->data;
}

uint8_t *tt_quorum_begin(struct tt_am *am, const struct tt_am_header *h)
{
	struct tt_quorum *q;
	struct contribution *c;
	uint8_t *to;

	if (am->rank || !is_valid(h))
		return NULL; /* no answer: the sender's deadline expires */
	if (!make_coordinator(am)) {
		refuse(am, h, TT_OUTCOME_NO_MEMORY);
		return NULL;
	}
	q = am->quorum;
	c = &q->contribution[h->source];
	c->tag = h->tag;
	if (h->version <= q->newest) {
		answer_late(am, h);
		return NULL;
	}
	if (h->call[0] & TT_QUORUM_RESULT_ONLY) {
		/* after a contribution whose call timed out: answered as a contributor */
		c->result_only = !c->received && !c->receiving;
		complete_if_ready(am);
		return NULL;
	}
	if (h->version > q->newest + 1 || (q->open && !is_same(&q->first, h))) {
		refuse(am, h, h->version > q->newest + 1 ? TT_OUTCOME_AHEAD : TT_OUTCOME_DIFFERS);
		return NULL;
	}
	if (c->received || c->receiving)
		/* contributed in an earlier call, which timed out */
		return NULL;
	to = contribution_buffer(c, h->bytes);
	if (!to) {
		refuse(am, h, TT_OUTCOME_NO_MEMORY);
		return NULL;
	}
	if (!q->open)
		open_operation(am, h);
	c->result_only = false;
	return to;
}

void tt_quorum_arrived(struct tt_am *am, const struct tt_am_header *h)
{
	struct contribution *c = &am->quorum->contribution[h->source];

	c->receiving = false;
	c->received = true;
	am->quorum->nreceived++;
	complete_if_ready(am);
}

void tt_quorum_lost(struct tt_am *am, int source)
{
	struct tt_quorum *q = am->quorum;

	if (!q)
		return;
	if (!tt_control_is_open(am->ctl, source))
		q->contribution[source].receiving = false;
	q->contribution[source].result_only = false;
	complete_if_ready(am);
}

uint64_t tt_quorum_timers(struct tt_am *am, uint64_t now)
{
	struct tt_quorum *q = am->quorum;

	if (!q || !q->open || !q->nreceived)
		return UINT64_MAX;
	if (q->due_ns <= now)
		complete_if_ready(am);
	return q->open ? q->due_ns : UINT64_MAX;
}

void tt_quorum_free(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;

	if (!q)
		return;
	for (int i = 0; i < TUTTI_QUORUM_KEPT; i++)
		drop_result(q, &q->results[i]);
	for (int r = 0; r < am->nranks; r++)
		free(q->contribution[r].data);
	free(q->contribution);
	free(q);
	am->quorum = NULL;
}

size_t tt_quorum_memory(const struct tt_am *am)
{
	const struct tt_quorum *q = am->quorum;
	size_t bytes = 0;

	if (!q)
		return 0;
	for (int r = 0; r < am->nranks; r++)
		bytes += sizeof(*q->contribution) + q->contribution[r].room;
	return bytes + sizeof(*q) + q->results_bytes;
}
