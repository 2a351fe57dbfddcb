/*
 * quorum_coordinator.c - rank 0's books of quorum allreduces:
 * who has contributed, when it is enough, the sum, late ones
 *
 * Called by am with its lock held: by rank 0's service thread, or in rank 0's own call. One
 * operation is open at a time, the one after the newest. It is complete with its k-th contribution,
 * at its deadline, or when everybody who is alive has contributed; then it is summed in rank order
 * over the mask, and whoever contributed or asked is answered. Contributions to complete operations
 * are answered at once by a result that is kept; their bytes are thrown away as they come.
 *
 *   to rank 0     GIVE: version = number of the operation, tag = the caller's call, call = type,
 *                 op, k, deadline; a rtr only (nothing to contribute) has the flag WISH, EVERY
 *                 says which result a late one gets
 *   from rank 0   VERDICT: version, tag, call = what became of the contribution, how many are in
 *                 it, the newest number; the mask. Then RESULT: the bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "am/quorum_internal.h"
#include "mem/reduce.h"

#define RESULTS_BYTES (64u << 20)
#define TILE_BYTES (128u << 10)          /* summed at once, so that it stays in the cache */

struct quorum_result { uint64_t number; int count; struct tt_am_payload *mask, *result; };

struct contribution {
	uint8_t *data;                   /* kept from operation to operation */
	size_t room;
	bool receiving, received;               /* its bytes are being read; are complete */
	/* has nothing to contribute to the open operation, and waits for its result */
	bool result_only;
	int tag;                         /* of its call */
};

struct tt_quorum {
	uint64_t newest;                 /* complete */
	bool open;
	struct tt_am_header first;     /* of the open one: what the others must equal */
	uint64_t due_ns;
	int nreceived;
	struct contribution *contribution;             /* [nranks] */
	struct quorum_result results[TUTTI_QUORUM_KEPT];     /* number % TUTTI_QUORUM_KEPT */
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

static void answer(struct tt_am *am, int to, const struct quorum_result *k, uint32_t mine)
{
	struct tt_quorum *q = am->quorum;
	struct tt_am_header head = { .kind = TT_AM_OUTCOME,
				       .tag = q->contribution[to].tag,
				       .version = k->number,
				       .bytes = k->mask->bytes,
				       .call = { mine, (uint32_t)k->count } };

	head.call[2] = (uint32_t)q->newest;
	head.call[3] = (uint32_t)(q->newest >> 32);
	post(am, to, &head, k->mask);
	head.kind = TT_AM_RESULT;
	head.bytes = k->result->bytes;
	post(am, to, &head, k->result);
}

/* Its call is another one: who differs, and what the first one's was. */
static void refuse(struct tt_am *am, int to, uint32_t why)
{
	const struct tt_quorum *q = am->quorum;
	struct tt_am_header head = { .kind = TT_AM_OUTCOME,
				       .tag = q->contribution[to].tag,
				       .version = q->newest + 1,
				       .call = { why, (uint32_t)q->first.source,
						 (uint32_t)q->first.bytes, q->first.call[2] } };

	post(am, to, &head, NULL);
}

static void answer_late(struct tt_am *am, const struct tt_am_header *h)
{
	struct tt_quorum *q = am->quorum;
	const struct quorum_result *k = &q->results[h->version % TUTTI_QUORUM_KEPT];

	if (!(h->call[0] & TT_QUORUM_EVERY) || k->number != h->version || !k->result)
		k = &q->results[q->newest % TUTTI_QUORUM_KEPT];
	answer(am, h->source, k, h->call[0] & TT_QUORUM_RESULT_ONLY ? tuttiQuorumNone : tuttiQuorumLate);
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* As reduce-to-one does it: the first eight at once, then seven by seven. */
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

static void drop_result(struct tt_quorum *q, struct quorum_result *k)
{
	if (!k->result)
		return;
	q->results_bytes -= k->result->bytes;
	tt_am_payload_drop(k->result);
	tt_am_payload_drop(k->mask);
	memset(k, 0, sizeof(*k));
}

/* The result of the open operation, kept as the newest. false: no memory */
static bool make_result(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;
	struct tt_am_payload *mask = new_payload((size_t)(am->nranks + 63) / 64 * 8),
			 *result = new_payload(q->first.bytes);
	const uint8_t **from = malloc((size_t)am->nranks * sizeof(*from));
	struct quorum_result *k = &q->results[(q->newest + 1) % TUTTI_QUORUM_KEPT];
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
			/* little-endian words of 64 */
			mask->data[r / 8] |= (uint8_t)(1 << r % 8);
			from[n++] = q->contribution[r].data;
		}
	sum(q, from, n, result->data);
	free(from);
	drop_result(q, k);
	*k = (struct quorum_result){ .number = ++q->newest, .count = n, .mask = mask, .result = result };
	q->results_bytes += result->bytes;
	for (uint64_t old = q->newest > TUTTI_QUORUM_KEPT ? q->newest - TUTTI_QUORUM_KEPT : 1;
	     old < q->newest && q->results_bytes > RESULTS_BYTES; old++)
		if (q->results[old % TUTTI_QUORUM_KEPT].number == old)
			drop_result(q, &q->results[old % TUTTI_QUORUM_KEPT]);
	return true;
}

/* What is still coming is late: its bytes are thrown away. */
static void discard_body(struct tt_am *am, int source)
{
	for (struct tt_am_conn *c = am->conns; c; c = c->next)
		if (!c->dead && c->peer == source && c->in_body && c->head.kind == TT_AM_CONTRIBUTION)
			c->to = NULL;
}

static void complete(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;

	if (!make_result(am)) {                   /* try again: perhaps others give memory back */
		q->due_ns = tt_now_ns() + 10000000;
		return;
	}
	q->open = false;
	q->nreceived = 0;
	for (int r = 0; r < am->nranks; r++) {
		struct contribution *g = &q->contribution[r];
		bool received = g->received, receiving = g->receiving, result_only = g->result_only;

		if (receiving)
			discard_body(am, r);
		g->received = g->receiving = g->result_only = false;
		if (received || receiving || result_only)
			answer(am, r, &q->results[q->newest % TUTTI_QUORUM_KEPT],
			       received ? tuttiQuorumIn : receiving ? tuttiQuorumLate : tuttiQuorumNone);
	}
}

/* Enough, or nobody else who could come? */
static void complete_if_ready(struct tt_am *am)
{
	struct tt_quorum *q = am->quorum;
	int awaited = 0;

	if (!q->open || !q->nreceived)
		return;
	for (int r = 0; r < am->nranks; r++)
		awaited += q->contribution[r].receiving ||
			   (!q->contribution[r].received && !q->contribution[r].result_only && !am->gone[r]);
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
	if (!q || !q->contribution || tt_am_start(am)) {
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
	(void)!write(am->wake, &(uint64_t){ 1 }, sizeof(uint64_t));    /* the thread's timer */
}

/* Is it the call that the first one made? */
static bool is_same(const struct tt_am_header *a, const struct tt_am_header *b)
{
	return a->bytes == b->bytes && (a->call[0] & 0xff) == (b->call[0] & 0xff) &&
	       a->call[1] == b->call[1] && a->call[2] == b->call[2];
}

/* Room for a contribution; NULL: no memory */
static uint8_t *contribution_buffer(struct contribution *g, size_t bytes)
{
	size_t room = (bytes + 64) / 64 * 64;

	if (g->room < room || g->room > 4 * room + (1u << 20)) {
		free(g->data);
		g->data = aligned_alloc(64, room);
		g->room = g->data ? room : 0;
	}
	g->receiving = g->data != NULL;
	return g->data;
}

uint8_t *tt_quorum_begin(struct tt_am *am, const struct tt_am_header *h)
{
	struct tt_quorum *q;
	struct contribution *g;

	if (am->rank || !make_coordinator(am) || !is_valid(h))
		return NULL;                     /* its sender's deadline will tell */
	q = am->quorum;
	g = &q->contribution[h->source];
	g->tag = h->tag;
	if (h->version <= q->newest) {
		answer_late(am, h);
		return NULL;
	}
	if (h->call[0] & TT_QUORUM_RESULT_ONLY) {
		/* it has contributed, but did not wait for the result */
		g->result_only = !g->received && !g->receiving;
		complete_if_ready(am);
		return NULL;
	}
	if (h->version > q->newest + 1 || (q->open && !is_same(&q->first, h))) {
		refuse(am, h->source,
		       h->version > q->newest + 1 ? TT_OUTCOME_AHEAD : TT_OUTCOME_DIFFERS);
		return NULL;
	}
	if (g->received || g->receiving)
		return NULL;                     /* in a call before, which timed out */
	if (!q->open)
		open_operation(am, h);
	g->result_only = false;
	return contribution_buffer(g, h->bytes);
}

void tt_quorum_arrived(struct tt_am *am, const struct tt_am_header *h)
{
	struct contribution *g = &am->quorum->contribution[h->source];

	g->receiving = false;
	g->received = true;
	am->quorum->nreceived++;
	complete_if_ready(am);
}

void tt_quorum_lost(struct tt_am *am, int source)
{
	struct tt_quorum *q = am->quorum;

	if (!q)
		return;
	if (!tt_am_conn_find(am, source))
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
