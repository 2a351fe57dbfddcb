/*
 * shrink.c - a communicator of the surviving ranks
 *
 * Called by api. Protocol:
 *   1. One rank coordinates and decides the members (shrink_decide.c), by active messages, even on
 *      a broken communicator.
 *   2. The members connect as after a split.
 * If a member dies or falls silent while the members connect, some may complete and others fail.
 * Those that failed decide again: if a member is known to have completed, the communicator is the
 * new one, although broken; else they start over among themselves. A member that completed answers
 * the others, and an excluded rank (shrink_ask.c), which may also learn of the decision through the
 * parent's control.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm_internal.h"
#include "comm/shrink_internal.h"

/* a wait between two looks at the clock; for each of more than 10,000 ranks, whose turns come later, SLICE_RANK_NS */
#define SLICE_NS 50000000ull
#define SLICE_RANK_NS 5000ull
#define SLICE_MOST_NS 500000000ull
/* time that a coordinator on a busy core takes to connect with a rank */
#define CONNECT_NS 2000000ull
/* half of the longest wait after the first attempt that failed, which doubles up to 0.26 s */
#define BACKOFF_NS 1000000ull
#define BACKOFF_DOUBLINGS 8

/* ---- ranks ----------------------------------------------------------------------------------- */

const struct tt_shrink_peer *tt_shrink_peer(const struct tt_shrink *a, int rank)
{
	static const struct tt_shrink_peer unknown;
	const struct tt_shrink_peer *p = tt_sparse_get(&a->peer, rank);

	return p ? p : &unknown;
}

struct tt_shrink_peer *tt_shrink_note(struct tt_shrink *a, int rank)
{
	struct tt_shrink_peer *p = tt_sparse_get(&a->peer, rank);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (p && tt_sparse_set(&a->peer, rank, p))
		return p;
	free(p);
	tt_fail(TT_SYSTEM, "rank %d: no memory to shrink %d ranks", a->parent->rank,
		a->parent->nranks);
	return NULL;
}

static int bar(struct tt_shrink *a, int rank)
{
	struct tt_shrink_peer *p = tt_shrink_note(a, rank);

	if (p)
		p->barred = true;
	return p ? 0 : TT_SYSTEM;
}

/* ---- connecting the members ------------------------------------------------------------------ */

uint64_t tt_shrink_mark(uint64_t epoch, const struct tt_members *members)
{
	return tt_mix(tt_mix(0, epoch), tt_counted_bits_mark(&members->map.in));
}

/* Connects the members. 0 | < 0 */
static int form(struct tt_shrink *a, tuttiComm_t c, const struct tt_env *env)
{
	uint64_t left = a->limit_ns > a->ran_ns ? a->limit_ns - a->ran_ns : 0;
	int rc;

	a->members.label = "shrink";
	a->members.mark = tt_shrink_mark(a->epoch, &a->members);
	c->rank = a->members.rank;
	c->nranks = a->members.map.n;
	c->setup_deadline_ns = tt_now_ns() + (left < a->timeout_ns ? left : a->timeout_ns);
	rc = tt_control_form(a->parent->ctl, &a->members, c->setup_deadline_ns, &c->ctl);
	rc = rc ? rc : tt_comm_setup(c, env);
	tt_shrink_clock(a, a->timeout_ns);
	return rc;
}

/* Bars all ranks that are no members, since the decision stands. 0 | TT_SYSTEM */
static int bar_others(struct tt_shrink *a)
{
	const struct tt_counted_bits *in = &a->members.map.in;

	for (int r = tt_sparse_next(&a->peer, 0); r < in->n; r = tt_sparse_next(&a->peer, r + 1))
		tt_shrink_note(a, r)->barred = false;
	for (int r = tt_counted_bits_next(in, 0, false); r < in->n;
	     r = tt_counted_bits_next(in, r + 1, false))
		if (bar(a, r))
			return TT_SYSTEM;
	return 0;
}

static void drop_kept(struct tt_shrink *a)
{
	tt_comm_free(a->kept);
	a->kept = NULL;
	a->kept_epoch = 0;
}

/* The setup failed with rc: keeps c for a coordinator that learns of a member that completed it. No
 * member completed a setup that failed before there were active messages. */
static void keep(struct tt_shrink *a, tuttiComm_t c, int rc)
{
	if (!c->am) {
		tt_comm_free(c);
		return;
	}
	tt_control_raise(c->ctl, rc, -1, tt_error_text());
	a->kept = c;
	a->kept_epoch = a->epoch;
}

static void complete(struct tt_shrink *a, tuttiComm_t c, tuttiComm_t *ret_comm)
{
	tt_shrink_tell(a, TT_SHRINK_COMPLETED, -1);
	tt_control_announce_shrunk(a->parent->ctl, a->epoch, &a->members);
	*ret_comm = c;
}

/* Sets up c for the members of a new decision. 0 | 1 a member died or fell silent meanwhile: try
 * again | < 0. Unless it returns 0, c is freed or kept. */
static int set_up(struct tt_shrink *a, tuttiComm_t c, const struct tt_env *env)
{
	int rc, failed;

	drop_kept(a);
	rc = bar_others(a);
	rc = rc ? rc : tt_shrink_tell(a, TT_SHRINK_FORMS, -1);
	if (!rc && !(rc = form(a, c, env)))
		return 0;
	failed = tt_shrink_tell(a, TT_SHRINK_DECIDES, -1);
	if (!failed && (rc == TT_REMOTE || rc == TT_TIMEOUT)) {
		keep(a, c, rc);
		return 1;
	}
	tt_comm_free(c);
	return failed ? failed : rc;
}

/* One attempt. 0 | 1 try again | < 0 */
static int try_once(struct tt_shrink *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	tuttiComm_t c = NULL;
	struct tt_env env;
	int rc = tt_comm_child(a->parent, config, &env, &c);

	if (rc || (rc = tt_shrink_decide(a))) {
		tt_comm_free(c);
		return rc;
	}
	if (a->kept && a->epoch == a->kept_epoch) {
		tt_comm_free(c);
		complete(a, a->kept, ret_comm);
		a->kept = NULL;
		return 0;
	}
	rc = set_up(a, c, &env);
	if (!rc)
		complete(a, c, ret_comm);
	return rc;
}

uint64_t tt_shrink_backoff_ns(uint64_t seed, int failed)
{
	uint64_t most = BACKOFF_NS << (failed < BACKOFF_DOUBLINGS ? failed : BACKOFF_DOUBLINGS);

	return tt_mix(seed, (uint64_t)failed) % most;
}

/* ---- the call -------------------------------------------------------------------------------- */

static int shrink(struct tt_shrink *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	uint64_t seed = tt_mix(tt_mix(0, (uint64_t)a->parent->rank), a->attempt);
	int rc, failed = 0;

	a->seen_ns = tt_now_ns();
	a->queries = a->attempt;
	tt_control_excluded(a->parent->ctl, &a->known_epoch);
	do {
		tt_control_shrinking(a->parent->ctl);
		rc = failed ? tt_shrink_wait(a, a->ran_ns + tt_shrink_backoff_ns(seed, failed)) : 0;
		rc = rc ? rc : try_once(a, config, ret_comm);
		tt_control_formed(a->parent->ctl);
		failed++;
	} while (rc > 0);
	if (rc)
		tt_am_set_answer(a->parent->am, NULL, 0);
	tt_am_drop(a->parent->am, TT_AM_ANSWER);
	tt_am_forget_asker(a->parent->am);
	return rc;
}

static uint64_t digest_of(const bool *excluded, int nranks)
{
	uint64_t digest = 0;

	for (int r = 0; r < nranks; r++)
		digest = tt_mix(digest, excluded[r]);
	return digest;
}

/* Bar the ranks of the caller's list. 0 | TT_SYSTEM */
static int bar_listed(struct tt_shrink *a, const bool *excluded)
{
	for (int r = 0; a->listed && r < a->parent->nranks; r++)
		if (excluded[r] && bar(a, r))
			return TT_SYSTEM;
	return 0;
}

/* A rank looks about as often while it waits for its turn, which comes later in a larger job. */
static uint64_t slice_of(size_t nranks, uint64_t patience_ns)
{
	uint64_t slice = nranks * SLICE_RANK_NS;

	slice = slice > SLICE_NS ? slice : SLICE_NS;
	slice = slice < SLICE_MOST_NS ? slice : SLICE_MOST_NS;
	return patience_ns / 8 < slice ? patience_ns / 8 : slice;
}

int tt_comm_shrink(tuttiComm_t parent, const bool *excluded, int nexcluded,
		   const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	size_t n = (size_t)parent->nranks;
	struct tt_shrink a = { .parent = parent,
			       .listed = nexcluded > 0,
			       .digest = nexcluded ? digest_of(excluded, parent->nranks) : 0,
			       .attempt = (uint32_t)(++parent->shrinks & 0x7fff) << 16,
			       .epoch = parent->shrink_epoch,
			       .timeout_ns = parent->settings.timeout_ms * 1000000ull };
	bool made = tt_sparse_make(&a.peer, parent->nranks);
	int rc = TT_SYSTEM;

	a.patience_ns = a.timeout_ns / 8 + n * CONNECT_NS;
	a.limit_ns = 3 * a.timeout_ns - a.timeout_ns / 8;
	a.slice_ns = slice_of(n, a.patience_ns);
	a.pause_ns = 2 * a.slice_ns;
	a.buffer = malloc(TT_AM_DECISION_BYTES(n));
	if (made && a.buffer)
		rc = (rc = bar_listed(&a, excluded)) ? rc : shrink(&a, config, ret_comm);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory to shrink %zu ranks", parent->rank, n);
	parent->shrink_epoch = a.epoch;
	drop_kept(&a);
	tt_sparse_free_all(&a.peer);
	tt_rank_map_free(&a.members.map);
	free(a.buffer);
	return rc;
}
