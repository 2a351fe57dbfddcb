/*
 * shrink.c - a communicator of the surviving ranks
 *
 * Called by api. Protocol:
 *   1. One rank coordinates and decides the members (shrink_decide.c), by active messages, even on
 *      a broken communicator.
 *   2. The members connect as after a split.
 * If a member dies or falls silent while the members connect, they start over among themselves. A
 * member that has connected to all answers the others (shrink_ask.c). So does it to an excluded
 * rank, which may also learn of the decision through the parent's control.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm_internal.h"
#include "comm/shrink_internal.h"

#define SLICE_NS 50000000ull
/* for a connection of the coordinator with each rank, on a busy core */
#define CONNECT_NS 2000000ull

/* ---- connecting the members ------------------------------------------------------------------ */

static bool is_member(const struct tt_shrink *a, int rank)
{
	return !a->peer[rank].barred;
}

/* The other members that answer, in a phase of a->epoch */
static int count_members(const struct tt_shrink *a, enum tt_shrink_phase phase)
{
	int n = 0;

	for (int r = 0; r < a->parent->nranks; r++)
		n += is_member(a, r) && r != a->parent->rank && !tt_shrink_is_gone(a, r) &&
		     !a->peer[r].silent && a->peer[r].phase == phase &&
		     a->peer[r].epoch >= a->epoch;
	return n;
}

static bool any_silent(const struct tt_shrink *a)
{
	for (int r = 0; r < a->parent->nranks; r++)
		if (is_member(a, r) && a->peer[r].silent)
			return true;
	return false;
}

/* A member died or fell silent late. Either no member completed the setup, and all start over; or
 * some did, and then this communicator is the new one, although broken. Members that completed say
 * so by flood, or when asked. If a member is silent, it may have completed the setup and say so
 * later: it is excluded then, and the others do not heed it. 0 | TT_SYSTEM */
static int ask_completed(struct tt_shrink *a, bool *ret_completed)
{
	uint64_t until = a->ran_ns + a->patience_ns, newest;
	int rc;

	while (!(rc = tt_shrink_ask(a, 0, a->parent->nranks)) &&
	       !count_members(a, TT_SHRINK_COMPLETED) && count_members(a, TT_SHRINK_FORMS) &&
	       tt_shrink_clock(a, a->pause_ns) < until)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	tt_control_excluded(a->parent->ctl, &newest);
	*ret_completed = newest >= a->epoch || count_members(a, TT_SHRINK_COMPLETED);
	a->failed_epoch = any_silent(a) ? 0 : a->epoch;
	return rc;
}

/* Connects the members. 0 | < 0 */
static int form(struct tt_shrink *a, tuttiComm_t c, const struct tt_env *env)
{
	uint64_t left = a->limit_ns > a->ran_ns ? a->limit_ns - a->ran_ns : 0;
	int rc;

	a->members.label = "shrink";
	a->members.mark = a->epoch;
	for (int i = 0; i < a->members.n; i++)
		a->members.mark = tt_mix(a->members.mark, (uint64_t)a->members.member[i]);
	c->rank = a->members.rank;
	c->nranks = a->members.n;
	c->setup_deadline_ns = tt_now_ns() + (left < a->timeout_ns ? left : a->timeout_ns);
	rc = tt_control_form(a->parent->ctl, &a->members, c->setup_deadline_ns, &c->ctl);
	rc = rc ? rc : (rc = tt_comm_agree(c)) ? rc : tt_comm_setup(c, env);
	tt_shrink_clock(a, a->timeout_ns);
	return rc;
}

/* The others are barred from now on: the decision stands. */
static void bar_others(struct tt_shrink *a)
{
	for (int r = 0; r < a->parent->nranks; r++)
		a->peer[r].barred = true;
	for (int i = 0; i < a->members.n; i++)
		a->peer[a->members.member[i]].barred = false;
}

/* One attempt. 0 | 1 a member died or fell silent meanwhile: try again | < 0 */
static int try_once(struct tt_shrink *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	tuttiComm_t c = NULL;
	struct tt_env env;
	bool completed = false;
	int rc = tt_comm_child(a->parent, config, &env, &c), failed = 0;

	if (rc || (rc = tt_shrink_decide(a))) {
		tt_comm_free(c);
		return rc;
	}
	bar_others(a);
	rc = tt_shrink_tell(a, TT_SHRINK_FORMS, -1);
	if (rc || (rc = form(a, c, &env)))
		failed = tt_shrink_tell(a, TT_SHRINK_DECIDES, -1);
	if (!failed && c->am && (rc == TT_REMOTE || rc == TT_TIMEOUT))
		failed = ask_completed(a, &completed);
	if (!rc || completed) {
		tt_shrink_tell(a, TT_SHRINK_COMPLETED, -1);
		tt_control_announce_shrunk(a->parent->ctl, a->epoch, &a->members);
		*ret_comm = c;
		return 0;
	}
	tt_comm_free(c);
	return failed ? failed : rc == TT_REMOTE || rc == TT_TIMEOUT ? 1 : rc;
}

/* ---- the call -------------------------------------------------------------------------------- */

static int shrink(struct tt_shrink *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	int rc;

	a->seen_ns = tt_now_ns();
	a->queries = a->attempt;
	tt_control_excluded(a->parent->ctl, &a->known_epoch);
	do {
		tt_control_shrinking(a->parent->ctl);
		rc = try_once(a, config, ret_comm);
		tt_control_formed(a->parent->ctl);
	} while (rc > 0);
	if (rc)
		tt_am_set_answer(a->parent->am, NULL, 0);
	tt_am_drop(a->parent->am, TT_AM_ANSWER);
	return rc;
}

static uint64_t digest_of(const bool *excluded, int nranks)
{
	uint64_t digest = 0;

	for (int r = 0; r < nranks; r++)
		digest = tt_mix(digest, excluded[r]);
	return digest;
}

int tt_comm_shrink(tuttiComm_t parent, const bool *excluded, int nexcluded,
		   const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	size_t n = (size_t)parent->nranks;
	struct tt_shrink a = { .parent = parent,
			       .listed = nexcluded > 0,
			       .digest = digest_of(excluded, parent->nranks),
			       .attempt = (uint32_t)(++parent->shrinks & 0x7fff) << 16,
			       .timeout_ns = parent->settings.timeout_ms * 1000000ull };
	int rc = TT_SYSTEM;

	a.patience_ns = a.timeout_ns / 8 + n * CONNECT_NS;
	a.limit_ns = 3 * a.timeout_ns - a.timeout_ns / 8;
	a.slice_ns = a.patience_ns / 8 < SLICE_NS ? a.patience_ns / 8 : SLICE_NS;
	a.pause_ns = 2 * a.slice_ns;
	a.peer = calloc(n, sizeof(*a.peer));
	a.members.member = calloc(n, sizeof(*a.members.member));
	a.buffer = malloc(TT_AM_DECISION_BYTES(n));
	for (size_t r = 0; a.peer && r < n; r++) {
		a.peer[r].barred = excluded[r];
		a.peer[r].left_before = tt_am_state(parent->am, (int)r) == tuttiRankLeft;
	}
	if (a.peer && a.members.member && a.buffer)
		rc = shrink(&a, config, ret_comm);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory to shrink %zu ranks", parent->rank, n);
	free(a.peer);
	free(a.members.member);
	free(a.buffer);
	return rc;
}
