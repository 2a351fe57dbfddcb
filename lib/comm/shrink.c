/*
 * shrink.c - a communicator of the surviving ranks
 *
 * Called by api. Protocol:
 *   1. Each caller proposes itself to the coordinator, the lowest rank that the caller takes for
 *      alive, by active message, even on a broken communicator.
 *   2. The coordinator waits until all live ranks have proposed, at most half the timeout, decides
 *      the members and sends them the decision.
 *   3. The members connect as after a split.
 * If the coordinator dies, callers propose to the next rank. If a member dies while the members
 * connect, they start over. An excluded rank learns of the decision through the parent's control.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "control/frame.h"

#define SLICE_MS 50 /* time between checks for deaths */
/* time that the only survivor waits for news that others shrank without it */
#define ALONE_MS 300

struct shrink_attempt {
	tuttiComm_t parent;
	const bool *excluded; /* [nranks] the callers' list */
	bool listed;          /* the list is not empty */
	uint64_t digest;      /* digest of the list */
	bool *unresponsive;   /* [nranks] did not answer as coordinator */
	bool *left_before;    /* [nranks] left before this call */
	uint32_t attempt;     /* of this rank in this call, from 1 on */
	uint64_t half_ns;
	uint32_t *attempt_of; /* [nranks] coordinator: proposed attempts, 0: none yet */
	uint64_t epoch;       /* newest epoch known; then the decided epoch */
	/* epoch that this rank failed to connect, 0: none */
	uint64_t failed_epoch;
	struct tt_members members;
	uint8_t *buffer; /* receive buffer for one message */
};

static int fail_left_out(const struct shrink_attempt *a, uint64_t epoch)
{
	return tt_fail(
		TT_REMOTE,
		"rank %d: the others went on without this rank, as epoch %llu: this rank was taken for dead, "
		"or did not call tuttiCommShrink in time",
		a->parent->rank, (unsigned long long)epoch);
}

static int check_left_out(struct shrink_attempt *a)
{
	uint64_t newest, without = tt_control_excluded(a->parent->ctl, &newest);

	if (newest > a->epoch)
		a->epoch = newest;
	if (a->failed_epoch && newest >= a->failed_epoch)
		return tt_fail(
			TT_REMOTE,
			"rank %d: the others went on as epoch %llu; a late death kept this rank out of it",
			a->parent->rank, (unsigned long long)newest);
	return without ? fail_left_out(a, without) : 0;
}

static bool is_gone(const struct shrink_attempt *a, int rank)
{
	return rank != a->parent->rank && tt_am_state(a->parent->am, rank) != tuttiRankAlive;
}

static int find_coordinator(const struct shrink_attempt *a)
{
	int r = 0;

	while (r < a->parent->rank && (a->excluded[r] || a->unresponsive[r] || is_gone(a, r)))
		r++;
	return r;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int send_message(struct shrink_attempt *a, int to, enum tt_am_kind kind, struct tt_writer *w)
{
	struct tt_am_header head = { .kind = kind,
				     .version = a->parent->shrinks,
				     .bytes = w->have };
	int rc = w->failed
			 ? tt_fail(TT_SYSTEM, "rank %d: no memory for a message", a->parent->rank)
			 : tt_am_send(a->parent->am, to, &head, w->data, tt_now_ns() + a->half_ns);

	free(w->data);
	return rc;
}

/* Proposes this rank's attempt. attempt 0: only a request for the standing decision */
static int send_proposal(struct shrink_attempt *a, int to, uint32_t attempt)
{
	struct tt_writer w = { 0 };

	tt_put(&w, attempt, 4);
	tt_put(&w, a->epoch, 8);
	tt_put(&w, a->digest, 8);
	return send_message(a, to, TT_AM_PROPOSAL, &w);
}

/* code 0: the members; else the error, with text */
static struct tt_writer write_decision(const struct shrink_attempt *a, int code, const char *text)
{
	struct tt_writer w = { 0 };

	tt_put(&w, a->epoch, 8);
	tt_put(&w, (uint8_t)-code, 1);
	tt_put_text(&w, text);
	tt_put(&w, code ? 0 : (uint32_t)a->members.n, 4);
	for (int i = 0; !code && i < a->members.n; i++) {
		tt_put(&w, (uint32_t)a->members.member[i], 4);
		tt_put(&w, a->attempt_of[a->members.member[i]], 4);
	}
	return w;
}

static void send_decision(struct shrink_attempt *a, int to, int code, const char *text)
{
	struct tt_writer w = write_decision(a, code, text);

	/* a member that is gone now is detected when the members connect */
	send_message(a, to, TT_AM_DECISION, &w);
}

/* Receives the next message from source (-1: any) within ms; drops messages of earlier shrinks. As
 * tt_am_recv. */
static int next_message(struct shrink_attempt *a, enum tt_am_kind kind, int source, int ms,
			struct tt_am_header *ret_head, struct tt_reader *ret_r)
{
	struct tt_am_match want = { .kind = kind,
				    .source = source,
				    .tag = -1,
				    .to = a->buffer,
				    .room = TT_AM_DECISION_BYTES((size_t)a->parent->nranks) };
	uint64_t until = tt_deadline_ns((uint32_t)ms);
	int rc;

	do
		rc = tt_am_recv(a->parent->am, &want, until, ret_head);
	while (!rc && ret_head->version < a->parent->shrinks);
	*ret_r = (struct tt_reader){ .at = a->buffer, .left = rc ? 0 : ret_head->bytes };
	return rc;
}

/* ---- the coordinator ------------------------------------------------------------------------- */

/* Records a proposal. 0 | TT_USAGE: another list */
static int note_proposal(struct shrink_attempt *a, int source, struct tt_reader *r)
{
	uint32_t attempt = (uint32_t)tt_get(r, 4);
	uint64_t epoch = tt_get(r, 8), digest = tt_get(r, 8);

	if (!tt_get_end(r) || !attempt || a->excluded[source])
		return 0;
	if (epoch > a->epoch)
		a->epoch = epoch;
	a->attempt_of[source] = attempt;
	if (digest == a->digest)
		return 0;
	return tt_fail(
		TT_USAGE,
		"ranks %d and %d call tuttiCommShrink with different lists of ranks to exclude",
		a->parent->rank, source);
}

/* Counts the live ranks that have not proposed. *ret_lost: a dead rank that is not on the list, -1:
 * none */
static int count_awaited(const struct shrink_attempt *a, int *ret_lost)
{
	int n = 0;

	*ret_lost = -1;
	for (int r = 0; r < a->parent->nranks; r++) {
		bool gone = !a->excluded[r] && is_gone(a, r);

		n += !a->excluded[r] && !gone && !a->attempt_of[r];
		if (gone && a->listed)
			*ret_lost = r;
	}
	return n;
}

static bool missing(const void *ctx, int rank)
{
	const struct shrink_attempt *a = ctx;

	return !a->excluded[rank] && !a->attempt_of[rank];
}

static int gather_proposals(struct shrink_attempt *a)
{
	uint64_t until = tt_now_ns() + a->half_ns;
	struct tt_am_header head;
	struct tt_reader r;
	char ranks[256];
	int rc, lost = -1;

	memset(a->attempt_of, 0, (size_t)a->parent->nranks * sizeof(*a->attempt_of));
	a->attempt_of[a->parent->rank] = a->attempt;
	while (!(rc = check_left_out(a))) {
		bool waits = count_awaited(a, &lost) > 0 && lost < 0 && tt_now_ns() < until;

		rc = next_message(a, TT_AM_PROPOSAL, -1, waits ? SLICE_MS : 0, &head, &r);
		if (!rc && (rc = note_proposal(a, head.source, &r)))
			return rc;
		if (rc && !waits)
			break;
	}
	if ((rc = check_left_out(a)))
		return rc;
	if (lost >= 0)
		return tt_fail(
			TT_REMOTE,
			"rank %d: rank %d is dead or has left, and is not on the list of ranks to exclude",
			a->parent->rank, lost);
	if (a->listed && tt_rank_list(a->parent->nranks, missing, a, ranks, sizeof(ranks)))
		return tt_fail(TT_TIMEOUT,
			       "rank %d: tuttiCommShrink: %s did not call within %llu ms",
			       a->parent->rank, ranks, (unsigned long long)(a->half_ns / 1000000));
	return 0;
}

/* The only survivor may itself be the excluded rank (it was stopped): wait for news of the
 * others. */
static int wait_if_alone(struct shrink_attempt *a)
{
	uint64_t until = tt_deadline_ns(ALONE_MS);
	int rc = 0;

	while (a->members.n == 1 && a->parent->nranks > 1 && !a->listed && tt_now_ns() < until &&
	       !(rc = check_left_out(a)))
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	return rc;
}

/* Of two halves that cannot reach each other at most one has a majority. */
static int check_majority(const struct shrink_attempt *a)
{
	if (!a->parent->settings.majority || 2 * a->members.n > a->parent->nranks)
		return 0;
	return tt_fail(
		TT_REMOTE,
		"rank %d: tuttiCommShrink: %d of %d ranks are left, no majority; TUTTI_SHRINK=any goes on without",
		a->parent->rank, a->members.n, a->parent->nranks);
}

static int coordinate(struct shrink_attempt *a)
{
	int rc = gather_proposals(a);
	char text[1024] = "";

	a->members.n = 0;
	for (int r = 0; r < a->parent->nranks; r++) {
		if (a->attempt_of[r] && !is_gone(a, r))
			a->members.member[a->members.n++] = r;
	}
	for (int r = 0; !rc && a->failed_epoch && r < a->parent->nranks; r++)
		if (tt_am_state(a->parent->am, r) == tuttiRankLeft && !a->left_before[r])
			rc = tt_fail(
				TT_REMOTE,
				"rank %d: rank %d left the old communicator during this rank's tuttiCommShrink: the "
				"others went on",
				a->parent->rank, r);
	a->epoch++;
	if (!rc)
		rc = check_majority(a);
	if (!rc)
		rc = wait_if_alone(a);
	if (rc)
		snprintf(text, sizeof(text), "%s", tt_error_text());
	for (int i = 0; i < a->members.n; i++)
		if (a->members.member[i] != a->parent->rank)
			send_decision(a, a->members.member[i], rc, text);
	return rc ? tt_fail(rc, "%s", text) : 0;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* 0 decided | 1 decision of an earlier attempt | error of the coordinator */
static int get_decision(struct shrink_attempt *a, struct tt_reader *r)
{
	uint64_t epoch = tt_get(r, 8);
	int code = -(int)tt_get_upto(r, 1, tuttiNumResults);
	bool mine = false;
	char text[1024];

	tt_get_text(r, text, sizeof(text));
	a->members.n = (int)tt_get_upto(r, 4, (uint64_t)a->parent->nranks);
	for (int i = 0; i < a->members.n; i++) {
		int rank = (int)tt_get_upto(r, 4, (uint64_t)a->parent->nranks - 1);

		a->members.member[i] = rank;
		a->attempt_of[rank] = (uint32_t)tt_get(r, 4);
		mine |= rank == a->parent->rank && a->attempt_of[rank] == a->attempt;
	}
	if (!tt_get_end(r) || (a->failed_epoch && epoch == a->failed_epoch && !code))
		return 1;
	if (code || mine)
		a->epoch = epoch;
	if (!code && !mine && epoch > a->epoch)
		return fail_left_out(a, epoch);
	return code ? tt_fail(code, "%s", text) : !mine;
}

/* Proposes to a coordinator and waits for its decision. 0 | 1 the coordinator is gone or does not
 * answer: ask the next rank | < 0 */
static int follow(struct shrink_attempt *a, int coordinator)
{
	uint64_t until = tt_now_ns() + 3 * a->half_ns;
	struct tt_am_header head;
	struct tt_reader r;
	int rc = send_proposal(a, coordinator, a->attempt);

	while (!rc && !(rc = check_left_out(a))) {
		rc = next_message(a, TT_AM_DECISION, coordinator, SLICE_MS, &head, &r);
		if (!rc && (rc = get_decision(a, &r)) <= 0)
			return rc;
		if (rc < 0 || tt_now_ns() > until)
			break;
		rc = 0;
	}
	if (check_left_out(a))
		return TT_REMOTE;
	a->unresponsive[coordinator] = rc != TT_SYSTEM;
	return rc == TT_SYSTEM ? rc : 1;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static int decide(struct shrink_attempt *a)
{
	int rc, who;

	do {
		who = find_coordinator(a);
		rc = who == a->parent->rank ? coordinate(a) : follow(a, who);
	} while (rc > 0);
	a->members.rank = 0;
	while (!rc && a->members.rank < a->members.n &&
	       a->members.member[a->members.rank] != a->parent->rank)
		a->members.rank++;
	return rc;
}

/* A member died late. Either no member completed the setup, and all start over; or some did, and
 * then this communicator is the new one, although broken. Members that completed say so by flood,
 * or when asked. */
static bool others_completed(struct shrink_attempt *a)
{
	uint64_t until = tt_deadline_ns(ALONE_MS), newest;
	struct tt_am_header head;
	struct tt_reader r;

	for (int i = 0; i < a->members.n; i++)
		if (a->members.member[i] != a->parent->rank && !is_gone(a, a->members.member[i]))
			send_proposal(a, a->members.member[i], 0);
	do {
		tt_control_excluded(a->parent->ctl, &newest);
		if (newest >= a->epoch || (!next_message(a, TT_AM_DECISION, -1, 5, &head, &r) &&
					   tt_get(&r, 8) >= a->epoch))
			return true;
	} while (tt_now_ns() < until);
	return false;
}

/* Answers every later request with the decision, and floods it through the parent's control. */
static void publish_decision(struct shrink_attempt *a)
{
	struct tt_writer w = write_decision(a, 0, "");

	if (!w.failed)
		tt_am_set_decision(a->parent->am, a->parent->shrinks, w.data, w.have);
	free(w.data);
	tt_control_announce_shrunk(a->parent->ctl, a->epoch, &a->members);
}

/* One attempt. 0 | 1 a member died meanwhile: try again | < 0 */
static int try_once(struct shrink_attempt *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	tuttiComm_t parent = a->parent, c = NULL;
	struct tt_env env;
	int rc = tt_comm_child(parent, config, &env, &c);

	a->attempt++;
	if (rc || (rc = decide(a))) {
		tt_comm_free(c);
		return rc;
	}
	a->members.label = "shrink";
	a->members.mark = a->epoch;
	for (int i = 0; i < a->members.n; i++)
		a->members.mark = tt_mix(a->members.mark, (uint64_t)a->members.member[i]);
	c->rank = a->members.rank;
	c->nranks = a->members.n;
	c->setup_deadline_ns = tt_now_ns() + 2 * a->half_ns;
	rc = tt_control_form(parent->ctl, &a->members, c->setup_deadline_ns, &c->ctl);
	rc = rc ? rc : (rc = tt_comm_agree(c)) ? rc : tt_comm_setup(c, &env);
	if (!rc || (rc == TT_REMOTE && c->am && others_completed(a))) {
		publish_decision(a);
		*ret_comm = c;
		return 0;
	}
	a->failed_epoch = a->epoch;
	tt_comm_free(c);
	return rc == TT_REMOTE || rc == TT_TIMEOUT ? 1 : rc;
}

static int shrink(struct shrink_attempt *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	uint64_t until = tt_now_ns() + 4 * a->half_ns;
	int rc;

	a->parent->shrinks++;
	tt_am_set_decision(a->parent->am, 0, NULL, 0);
	do {
		tt_control_shrinking(a->parent->ctl);
		rc = try_once(a, config, ret_comm);
		tt_control_formed(a->parent->ctl);
		if (rc > 0 && tt_now_ns() > until)
			return tt_fail(TT_TIMEOUT, "rank %d: tuttiCommShrink: %s", a->parent->rank,
				       tt_error_text());
	} while (rc > 0);
	return rc;
}

int tt_comm_shrink(tuttiComm_t parent, const bool *excluded, int nexcluded,
		   const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	size_t n = (size_t)parent->nranks;
	struct shrink_attempt a = { .parent = parent,
				    .excluded = excluded,
				    .listed = nexcluded > 0,
				    .half_ns = parent->settings.timeout_ms * 500000ull };
	int rc = TT_SYSTEM;

	a.members.member = calloc(n, sizeof(*a.members.member));
	a.attempt_of = calloc(n, sizeof(*a.attempt_of));
	a.unresponsive = calloc(n, sizeof(*a.unresponsive));
	a.left_before = calloc(n, sizeof(*a.left_before));
	a.buffer = malloc(TT_AM_DECISION_BYTES(n));
	for (size_t r = 0; r < n; r++)
		a.digest = tt_mix(a.digest, excluded[r]);
	for (size_t r = 0; a.left_before && r < n; r++)
		a.left_before[r] = tt_am_state(parent->am, (int)r) == tuttiRankLeft;
	if (a.members.member && a.attempt_of && a.unresponsive && a.left_before && a.buffer)
		rc = shrink(&a, config, ret_comm);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory to shrink %zu ranks", parent->rank, n);
	free(a.members.member);
	free(a.attempt_of);
	free(a.unresponsive);
	free(a.left_before);
	free(a.buffer);
	return rc;
}
