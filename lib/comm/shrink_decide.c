/*
 * shrink_decide.c - the ranks of a shrink agree on its members: one coordinator decides
 *
 * Called by shrink.c. Each rank follows the lowest rank that answers and is in the shrink too; a
 * rank without such a lower rank coordinates. A rank changes to another coordinator with a new
 * attempt, and a decision names the attempt of its receiver: so the decision of a coordinator that
 * was passed over (it was stopped, and continues) is ignored by all.
 *
 *   other rank                              coordinator
 *   PROPOSAL: attempt, epochs, list    ->
 *   QUERY                              ->
 *                                      <-   ANSWER: it decides, and follows itself
 *                                      <-   QUERY, to all ranks that live
 *   ANSWER: follows whom, its attempt  ->
 *                                      <-   DECISION: attempt, epoch, members
 *
 * A query from a lower rank also says that this rank coordinates: it has found the ranks below it
 * silent. A rank whose part of the job is cut off may learn of the break by such a query, so it
 * follows the asker, without a search of its own.
 *
 * The coordinator waits for ranks that are in the shrink and have not proposed to it, at most the
 * time-out; for others half of the time-out since its call, and longer for those that have answered
 * just now. Members are the ranks that answered its last query and follow it. After a setup that
 * failed, the coordinator repeats the decision before, with its epoch, if a proposal or an answer
 * says that a member completed it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/shrink_internal.h"

/* time that the only survivor waits for news that others shrank without it */
#define ALONE_MS 300
/* ranks that one without a coordinator asks first; then twice as many, and so on */
#define FIRST_ASKED 8

/* The ranks of which something is known */
static int first(const struct tt_shrink *a)
{
	return tt_sparse_next(&a->peer, 0);
}

static int next(const struct tt_shrink *a, int rank)
{
	return tt_sparse_next(&a->peer, rank + 1);
}

static bool is_outside(const struct tt_shrink *a, int rank)
{
	return tt_shrink_peer(a, rank)->barred || tt_shrink_is_gone(a, rank);
}

/* Until then a rank may begin its call. */
static bool is_early(const struct tt_shrink *a)
{
	return a->ran_ns < a->timeout_ns / 2;
}

/* May rank coordinate, as far as this rank knows? */
static bool may_coordinate(const struct tt_shrink *a, int rank)
{
	const struct tt_shrink_peer *p = tt_shrink_peer(a, rank);

	if (is_outside(a, rank) || p->silent)
		return false;
	if (!p->known)
		return true; /* to be seen */
	/* it fails the setup that this rank failed, or completes it */
	if (p->phase == TT_SHRINK_FORMS)
		return a->epoch > 0 && p->epoch == a->epoch;
	return p->phase == TT_SHRINK_DECIDES || (p->phase == TT_SHRINK_ABSENT && is_early(a));
}

/* Does a rank that has queried this one coordinate, as far as this rank knows? */
static bool is_asker(const struct tt_shrink *a, int asker)
{
	const struct tt_shrink_peer *p = tt_shrink_peer(a, asker < 0 ? 0 : asker);

	return asker >= 0 && may_coordinate(a, asker) &&
	       (!p->known || (p->phase == TT_SHRINK_DECIDES && p->coordinator == asker));
}

/* An asker that coordinates has seen the ranks below it, so this rank need not. */
static int find_coordinator(const struct tt_shrink *a)
{
	int asker = tt_am_asker(a->parent->am), r = 0;

	asker = is_asker(a, asker) ? asker : -1;
	while (r < a->parent->rank &&
	       (!may_coordinate(a, r) || (r < asker && !tt_shrink_peer(a, r)->known)))
		r++;
	return r;
}

/* Does this rank know that a member completed the communicator that it keeps? */
static bool is_complete(const struct tt_shrink *a)
{
	uint64_t newest;

	tt_control_excluded(a->parent->ctl, &newest);
	if (!a->kept || newest == a->kept_epoch)
		return a->kept;
	for (int r = first(a); r < a->parent->nranks; r = next(a, r)) {
		const struct tt_shrink_peer *p = tt_shrink_peer(a, r);

		if (p->phase == TT_SHRINK_COMPLETED && p->epoch == a->kept_epoch)
			return true;
	}
	return false;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int send_message(struct tt_shrink *a, int to, enum tt_am_kind kind, uint32_t attempt,
			const struct tt_writer *w)
{
	struct tt_am_header head = { .kind = kind, .tag = (int)attempt, .bytes = w->have };
	int rc = w->failed ? tt_fail(TT_SYSTEM, "rank %d: no memory for a message", a->parent->rank)
			   : tt_am_shrink_send(a->parent->am, to, &head, w->data,
					       tt_now_ns() + a->patience_ns);

	tt_shrink_clock(a, a->patience_ns);
	return rc;
}

/* A rank waits once for its turn to connect to a coordinator. */
static void await_turn(struct tt_shrink *a)
{
	if (!a->paced)
		tt_shrink_wait(a, tt_control_pace_ns(a->parent->rank));
	a->paced = true;
}

static int send_proposal(struct tt_shrink *a, int to)
{
	struct tt_writer w = { 0 };
	int rc;

	await_turn(a);
	tt_put(&w, a->epoch, 8);
	tt_put(&w, is_complete(a) ? a->kept_epoch : 0, 8);
	tt_put(&w, a->digest, 8);
	rc = send_message(a, to, TT_AM_PROPOSAL, a->attempt, &w);
	free(w.data);
	return rc;
}

/* To all that have proposed. code 0: the members; else the error, with text */
static void send_decision(struct tt_shrink *a, int code, const char *text)
{
	struct tt_writer w = { 0 };

	tt_put(&w, a->epoch, 8);
	tt_put(&w, (uint8_t)-code, 1);
	tt_put_text(&w, text);
	if (code)
		tt_put_no_set(&w, a->parent->nranks);
	else
		tt_put_set(&w, &a->members.map.in);
	/* a member that is gone now is detected when the members connect */
	for (int r = first(a); r < a->parent->nranks; r = next(a, r))
		if (r != a->parent->rank && tt_shrink_peer(a, r)->proposed)
			send_message(a, r, TT_AM_DECISION, tt_shrink_peer(a, r)->proposed, &w);
	free(w.data);
}

/* ---- the coordinator ------------------------------------------------------------------------- */

/* Records a proposal. 0 | TT_USAGE: another list | TT_SYSTEM */
static int note_proposal(struct tt_shrink *a, const struct tt_am_header *head, struct tt_reader *r)
{
	uint64_t epoch = tt_get(r, 8), completed = tt_get(r, 8), digest = tt_get(r, 8);
	struct tt_shrink_peer *p;

	if (!tt_get_end(r) || tt_shrink_peer(a, head->source)->barred)
		return 0;
	p = tt_shrink_note(a, head->source);
	if (!p)
		return TT_SYSTEM;
	p->completed = completed;
	if (epoch > a->epoch)
		a->epoch = epoch;
	p->proposed = (uint32_t)head->tag;
	if (digest == a->digest)
		return 0;
	return tt_fail(
		TT_USAGE,
		"ranks %d and %d call tuttiCommShrink with different lists of ranks to exclude",
		a->parent->rank, head->source);
}

static bool is_awaited(const struct tt_shrink *a, int rank, uint64_t began_ns)
{
	const struct tt_shrink_peer *p = tt_shrink_peer(a, rank);

	if (is_outside(a, rank) || p->proposed || p->phase == TT_SHRINK_COMPLETED)
		return false;
	if (p->silent || p->phase == TT_SHRINK_ABSENT)
		return is_early(a) || a->ran_ns - began_ns < 2 * a->patience_ns ||
		       (!p->silent && a->ran_ns - p->answered_ns < 2 * a->patience_ns);
	return a->ran_ns - began_ns < a->timeout_ns;
}

/* While proposals come, a rank that is not awaited stays so: *from is where the next look begins. */
static bool any_awaited(const struct tt_shrink *a, uint64_t began_ns, int *from)
{
	while (*from < a->parent->nranks &&
	       (*from == a->parent->rank || !is_awaited(a, *from, began_ns)))
		++*from;
	return *from < a->parent->nranks;
}

/* Takes proposals until all ranks have proposed, but asks the others now and then. */
static int gather_proposals(struct tt_shrink *a, uint64_t began_ns)
{
	uint64_t until = tt_shrink_clock(a, a->pause_ns) + a->patience_ns;
	struct tt_am_header head;
	struct tt_reader r;
	int rc, from = 0;

	while (!(rc = tt_shrink_check(a))) {
		bool waits = any_awaited(a, began_ns, &from) && a->ran_ns < until;

		rc = tt_shrink_next(a, TT_AM_PROPOSAL, -1, waits ? a->slice_ns : 0, &head, &r);
		if (!rc && (rc = note_proposal(a, &head, &r)))
			return rc;
		if (rc && (!waits || rc < 0))
			return 0; /* rc < 0: all others are gone, or aborted */
	}
	return rc;
}

/* A proposal stands if its rank answered the last query and follows this one. */
static void confirm_proposals(struct tt_shrink *a)
{
	for (int r = first(a); r < a->parent->nranks; r = next(a, r)) {
		struct tt_shrink_peer *p = tt_sparse_get(&a->peer, r);

		if (r != a->parent->rank &&
		    (tt_shrink_is_gone(a, r) || p->silent || p->phase != TT_SHRINK_DECIDES ||
		     p->coordinator != a->parent->rank || p->attempt != p->proposed))
			p->proposed = 0;
	}
}

/* Takes the proposals that came during the query, whose ranks answered that they were not in the
 * shrink. 0 none | 1 these ranks must be asked again | TT_USAGE, TT_SYSTEM */
static int take_late_proposals(struct tt_shrink *a)
{
	struct tt_am_header head;
	struct tt_reader r;
	int late = 0, rc = 0;

	while (!rc && !tt_shrink_next(a, TT_AM_PROPOSAL, -1, 0, &head, &r)) {
		uint32_t confirmed = tt_shrink_peer(a, head.source)->proposed;

		rc = note_proposal(a, &head, &r);
		late |= tt_shrink_peer(a, head.source)->proposed != confirmed;
	}
	return rc ? rc : late;
}

/* 0 | 1 a lower rank is in the shrink: follow it | < 0 */
static int gather(struct tt_shrink *a)
{
	uint64_t began = tt_shrink_clock(a, a->pause_ns);
	struct tt_shrink_peer *me = tt_shrink_note(a, a->parent->rank);
	int rc, from;

	if (!me)
		return TT_SYSTEM;
	me->proposed = a->attempt;
	do {
		from = 0;
		if ((rc = gather_proposals(a, began)) ||
		    (rc = tt_shrink_ask(a, 0, a->parent->nranks)))
			return rc;
		for (int r = 0; r < a->parent->rank; r++)
			if (may_coordinate(a, r) &&
			    tt_shrink_peer(a, r)->phase == TT_SHRINK_DECIDES)
				return 1;
		confirm_proposals(a);
		if ((rc = take_late_proposals(a)) < 0)
			return rc;
	} while (rc || any_awaited(a, began, &from));
	return tt_shrink_check(a);
}

static bool is_missing(const void *ctx, int rank)
{
	const struct tt_shrink *a = ctx;

	return !tt_shrink_peer(a, rank)->barred && !tt_shrink_peer(a, rank)->proposed;
}

/* With a list, all other ranks must be there. */
static int check_list(const struct tt_shrink *a)
{
	char ranks[256];

	for (int r = 0; a->listed && r < a->parent->nranks; r++)
		if (!tt_shrink_peer(a, r)->barred && tt_shrink_is_gone(a, r))
			return tt_fail(
				TT_REMOTE,
				"rank %d: rank %d is dead or has left, and is not on the list of ranks to exclude",
				a->parent->rank, r);
	if (a->listed && tt_rank_list(a->parent->nranks, is_missing, a, ranks, sizeof(ranks)))
		return tt_fail(TT_TIMEOUT,
			       "rank %d: tuttiCommShrink: %s did not call within %llu ms",
			       a->parent->rank, ranks,
			       (unsigned long long)(a->timeout_ns / 2000000));
	return 0;
}

/* Did others complete the communicator that this rank keeps? A member that left may have, no other rank. */
static int check_left(const struct tt_shrink *a)
{
	for (int r = a->kept ? tt_am_next_left(a->parent->am, 0) : a->parent->nranks;
	     r < a->parent->nranks; r = tt_am_next_left(a->parent->am, r + 1))
		if (!tt_shrink_peer(a, r)->barred)
			return tt_fail(
				TT_REMOTE,
				"rank %d: rank %d left the old communicator during this rank's tuttiCommShrink: the "
				"others went on",
				a->parent->rank, r);
	return 0;
}

/* Of two halves that cannot reach each other at most one has a majority. */
static int check_majority(const struct tt_shrink *a)
{
	if (!a->parent->settings.majority || 2 * a->members.map.n > a->parent->nranks)
		return 0;
	return tt_fail(
		TT_REMOTE,
		"rank %d: tuttiCommShrink: %d of %d ranks are left, no majority; TUTTI_SHRINK=any goes on without",
		a->parent->rank, a->members.map.n, a->parent->nranks);
}

/* The only survivor may itself be the excluded rank: wait for news of the others. */
static int wait_if_alone(struct tt_shrink *a)
{
	uint64_t until = tt_deadline_ns(ALONE_MS);
	int rc = 0;

	while (a->members.map.n == 1 && a->parent->nranks > 1 && !a->listed &&
	       tt_now_ns() < until && !(rc = tt_shrink_check(a)))
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	return rc;
}

/* Takes the members of a decision. made: bits is made. 0 | TT_SYSTEM */
static int take_members(struct tt_shrink *a, bool made, struct tt_counted_bits *bits)
{
	if (!made) {
		tt_counted_bits_free(bits);
		return tt_fail(TT_SYSTEM,
			       "rank %d: no memory for the members of a shrink of %d ranks",
			       a->parent->rank, a->parent->nranks);
	}
	tt_rank_map_free(&a->members.map);
	tt_rank_map_take(&a->members.map, bits);
	a->members.rank = tt_rank_map_rank(&a->members.map, a->parent->rank);
	return 0;
}

/* Takes the ranks of which `is` is true. 0 | TT_SYSTEM */
static int choose_members(struct tt_shrink *a, bool (*is)(const struct tt_shrink *a, int rank))
{
	struct tt_counted_bits bits;
	bool made = tt_counted_bits_make(&bits, a->parent->nranks);

	for (int r = 0; made && r < a->parent->nranks; r++)
		if (is(a, r))
			tt_counted_bits_add(&bits, r);
	if (made)
		tt_counted_bits_count(&bits);
	return take_members(a, made, &bits);
}

static bool is_proposed(const struct tt_shrink *a, int rank)
{
	return tt_shrink_peer(a, rank)->proposed &&
	       (rank == a->parent->rank || !tt_shrink_is_gone(a, rank));
}

static bool is_not_barred(const struct tt_shrink *a, int rank)
{
	return !tt_shrink_peer(a, rank)->barred;
}

/* Takes the members of a new epoch. 0 | < 0 */
static int decide(struct tt_shrink *a)
{
	int rc = choose_members(a, is_proposed);

	if (rc)
		return rc;
	a->epoch++;
	rc = (rc = check_list(a)) ? rc : (rc = check_left(a)) ? rc : check_majority(a);
	return rc ? rc : wait_if_alone(a);
}

/* Is the decision before to be repeated? A member completed it, and no rank knows of a later one. */
static bool stands(const struct tt_shrink *a)
{
	bool complete = is_complete(a);

	for (int r = first(a); r < a->parent->nranks; r = next(a, r))
		complete |= tt_shrink_peer(a, r)->proposed &&
			    tt_shrink_peer(a, r)->completed == a->kept_epoch;
	return a->kept && a->epoch == a->kept_epoch && complete;
}

/* 0 | 1 follow a lower rank | < 0 */
static int coordinate(struct tt_shrink *a)
{
	int rc = gather(a);
	char text[1024] = "";

	if (rc > 0)
		return rc;
	if (!rc && stands(a))
		rc = choose_members(a, is_not_barred);
	else
		rc = rc ? rc : decide(a);
	if (rc)
		snprintf(text, sizeof(text), "%s", tt_error_text());
	send_decision(a, rc, text);
	return rc ? tt_fail(rc, "%s", text) : 0;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* 0 decided | 1 malformed, or of an earlier attempt | error of the coordinator, no majority, or TT_SYSTEM */
static int get_decision(struct tt_shrink *a, const struct tt_am_header *head, struct tt_reader *r)
{
	uint64_t epoch = tt_get(r, 8);
	int code = -(int)tt_get_upto(r, 1, tuttiNumResults);
	struct tt_counted_bits members = { 0 };
	struct tt_sent_set in;
	char text[1024];
	int rc = 0;

	tt_get_text(r, text, sizeof(text));
	in = tt_get_set(r, a->parent->nranks);
	if (!tt_get_end(r) || !(code ? *text : tt_sent_set_has(&in, a->parent->rank)) ||
	    (uint32_t)head->tag != a->attempt)
		return 1;
	if (!code)
		rc = take_members(a, tt_sent_set_read(&in, &members), &members);
	a->epoch = epoch;
	if (code)
		return tt_fail(code, "%s", text);
	return rc ? rc : check_majority(a); /* a compromised coordinator may have counted wrongly */
}

/* The coordinator is silent: asks the lowest ranks, and more only if none of these may coordinate,
 * since all ranks ask at the same time; none if another rank is known to coordinate. 0 |
 * TT_SYSTEM */
static int ask_lower(struct tt_shrink *a, int coordinator)
{
	int rank = a->parent->rank, rc = 0;

	if (tt_am_asker(a->parent->am) == coordinator)
		tt_am_forget_asker(a->parent->am);
	if (is_asker(a, tt_am_asker(a->parent->am)) && find_coordinator(a) != coordinator)
		return 0;
	for (int from = 0, n = FIRST_ASKED; !rc && from < rank; from += n, n *= 2) {
		int to = n < rank - from ? from + n : rank;

		rc = tt_shrink_ask(a, from, to);
		if (find_coordinator(a) < to || is_asker(a, tt_am_asker(a->parent->am)))
			break;
	}
	return rc;
}

/* Queries the coordinator; and, if it follows a rank that this rank has passed over, that one. */
static void query_coordinator(struct tt_shrink *a, int coordinator)
{
	const struct tt_shrink_peer *p = tt_shrink_peer(a, coordinator);

	if (p->phase == TT_SHRINK_DECIDES && p->coordinator >= 0 && p->coordinator < coordinator)
		tt_shrink_query(a, p->coordinator);
	tt_shrink_query(a, coordinator);
}

/* Proposes to a coordinator and waits for its decision. 0 | 1 look for a coordinator again | < 0 */
static int follow(struct tt_shrink *a, int coordinator)
{
	const struct tt_shrink_peer *p = tt_shrink_note(a, coordinator);
	int rc = p ? send_proposal(a, coordinator) : TT_SYSTEM;
	struct tt_am_header head;
	struct tt_reader r;
	uint64_t asked = a->ran_ns;

	if (rc == TT_SYSTEM)
		return rc;
	if (!rc)
		tt_shrink_query(a, coordinator);
	while (!rc && !(rc = tt_shrink_check(a))) {
		if (p->answered && a->ran_ns - asked > a->patience_ns / 4) {
			query_coordinator(a, coordinator);
			asked = a->ran_ns;
		}
		tt_shrink_receive(a);
		rc = tt_shrink_next(a, TT_AM_DECISION, coordinator, a->slice_ns, &head, &r);
		if (!rc && (rc = get_decision(a, &head, &r)) <= 0)
			return rc;
		if (p->answered && find_coordinator(a) != coordinator)
			return 1;
		if (rc < 0 || (!p->answered && a->ran_ns - asked > a->patience_ns))
			break;
		rc = 0;
	}
	if ((rc = tt_shrink_check(a)))
		return rc;
	rc = ask_lower(a, coordinator);
	return rc ? rc : 1;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

int tt_shrink_decide(struct tt_shrink *a)
{
	int rc, who = -1;

	/* a proposal stands while its rank follows this one, also if this one has followed another
	 * rank meanwhile: it is not repeated */
	for (int r = first(a); r < a->parent->nranks; r = next(a, r)) {
		struct tt_shrink_peer *p = tt_sparse_get(&a->peer, r);

		p->known = p->silent;
		p->proposed = 0;
	}
	do {
		int before = who;

		who = find_coordinator(a);
		a->attempt += who != before;
		if ((rc = tt_shrink_tell(a, TT_SHRINK_DECIDES, who)))
			return rc;
		rc = who == a->parent->rank ? coordinate(a) : follow(a, who);
	} while (rc > 0);
	return rc;
}
