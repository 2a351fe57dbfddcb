/*
 * shrink.c - a communicator of the ranks that are left
 *
 * Called by api. Each caller makes a control that listens and offers its port to the lowest rank
 * that it takes for alive, the chair, by mail, which goes on when the communicator is broken. The
 * chair waits until all that are alive have offered, for half the time-out at most, decides who is
 * in it and tells them; they connect as after a split, by a key made of the parent's and the new
 * epoch. If the chair dies, offers go to the next; if anybody dies while they connect, they start
 * over. Whoever is not in it hears of the decision over the parent's control.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "control/frame.h"

#define SLICE_MS 50                      /* between looks at who is gone */
/* so long a last survivor listens whether it was the one left out */
#define ALONE_MS 300
#define DECISION_BYTES(n) (1200 + 8 * (size_t)(n))

struct attempt {
	tuttiComm_t parent;
	const bool *excluded;            /* [nranks] by the callers' list */
	bool listed;                     /* there is a list */
	uint64_t digest;                 /* of it */
	bool *silent;                    /* [nranks] did not answer as chair */
	int port;
	uint64_t half_ns;
	int *port_of;                    /* chair: [nranks] offered, 0 not yet */
	uint64_t epoch;                  /* the newest this rank knows; then: decided */
	uint64_t tried;                  /* an epoch that this rank could not connect, 0 none */
	struct tt_members in;
	uint8_t *letter;                 /* room for one */
};

static int without_me(const struct attempt *a, uint64_t epoch)
{
	return tt_fail(TT_REMOTE,
		"rank %d: the others went on without this rank, as epoch %llu: it was taken for dead, "
		"or did not call tuttiCommShrink in time", a->parent->rank,
		(unsigned long long)epoch);
}

static int left_out(struct attempt *a)
{
	uint64_t newest, without = tt_control_excluded(a->parent->ctl, &newest);

	if (newest > a->epoch)
		a->epoch = newest;
	if (a->tried && newest >= a->tried)
		return tt_fail(TT_REMOTE,
			"rank %d: the others went on as epoch %llu, in which a death in the last moment kept "
			"this rank from taking part", a->parent->rank, (unsigned long long)newest);
	return without ? without_me(a, without) : 0;
}

static bool is_gone(const struct attempt *a, int rank)
{
	return rank != a->parent->rank && tt_am_state(a->parent->mail, rank) != tuttiRankAlive;
}

static int chair(const struct attempt *a)
{
	int r = 0;

	while (r < a->parent->rank && (a->excluded[r] || a->silent[r] || is_gone(a, r)))
		r++;
	return r;
}

/* ---- letters --------------------------------------------------------------------------------- */

static int send_letter(struct attempt *a, int to, enum tt_am_kind kind, struct tt_writer *w)
{
	struct tt_am_header head = { .kind = kind, .version = a->parent->shrinks,
				       .bytes = w->have };
	int rc = w->failed ? tt_fail(TT_SYSTEM, "rank %d: no memory for a letter", a->parent->rank)
			   : tt_am_send(a->parent->mail, to, &head, w->data,
					  tt_now_ns() + a->half_ns);

	free(w->data);
	return rc;
}

/* port 0: no offer, but the rtr for a decision that stands */
static int send_offer(struct attempt *a, int to, int port)
{
	struct tt_writer w = { 0 };

	tt_put(&w, (uint16_t)port, 2);
	tt_put(&w, a->epoch, 8);
	tt_put(&w, a->digest, 8);
	return send_letter(a, to, TT_AM_OFFER, &w);
}

/* code 0: who is in it; else why nothing comes of it */
static struct tt_writer write_decision(const struct attempt *a, int code, const char *text)
{
	struct tt_writer w = { 0 };

	tt_put(&w, a->epoch, 8);
	tt_put(&w, (uint8_t)-code, 1);
	tt_put_text(&w, text);
	tt_put(&w, code ? 0 : (uint32_t)a->in.n, 4);
	for (int i = 0; !code && i < a->in.n; i++) {
		tt_put(&w, (uint32_t)a->in.member[i], 4);
		tt_put(&w, (uint16_t)a->in.port[i], 2);
	}
	return w;
}

static void send_decision(struct attempt *a, int to, int code, const char *text)
{
	struct tt_writer w = write_decision(a, code, text);

	send_letter(a, to, TT_AM_DECISION, &w);   /* one that is gone now shows when they connect */
}

/* The next letter of source (-1: any) within so long;
 * letters of earlier shrinkings are dropped. As tt_am_recv. */
static int next_letter(struct attempt *a, enum tt_am_kind kind, int source, int ms,
		       struct tt_am_header *ret_head, struct tt_reader *ret_r)
{
	struct tt_am_match want = { .kind = kind, .source = source, .tag = -1, .to = a->letter,
				     .room = DECISION_BYTES(a->parent->nranks) };
	uint64_t until = tt_deadline_ns((uint32_t)ms);
	int rc;

	do
		rc = tt_am_recv(a->parent->mail, &want, until, ret_head);
	while (!rc && ret_head->version < a->parent->shrinks);
	*ret_r = (struct tt_reader){ .at = a->letter, .left = rc ? 0 : ret_head->bytes };
	return rc;
}

/* ---- the chair ------------------------------------------------------------------------------- */

/* 0 | TT_USAGE: its list is another one */
static int note_offer(struct attempt *a, int source, struct tt_reader *r)
{
	uint64_t port = tt_get(r, 2), epoch = tt_get(r, 8), digest = tt_get(r, 8);

	if (!tt_get_end(r) || !port || a->excluded[source])
		return 0;
	if (epoch > a->epoch)
		a->epoch = epoch;
	a->port_of[source] = (int)port;
	if (digest == a->digest)
		return 0;
	return tt_fail(TT_USAGE,
		"ranks %d and %d call tuttiCommShrink with different lists of ranks to exclude",
		a->parent->rank, source);
}

/* Ranks that may still come; those that are listed as staying and are gone. */
static int count_awaited(const struct attempt *a, int *ret_lost)
{
	int n = 0;

	*ret_lost = -1;
	for (int r = 0; r < a->parent->nranks; r++) {
		bool gone = !a->excluded[r] && is_gone(a, r);

		n += !a->excluded[r] && !gone && !a->port_of[r];
		if (gone && a->listed)
			*ret_lost = r;
	}
	return n;
}

static bool missing(const void *ctx, int rank)
{
	const struct attempt *a = ctx;

	return !a->excluded[rank] && !a->port_of[rank];
}

static int gather(struct attempt *a)
{
	uint64_t until = tt_now_ns() + a->half_ns;
	struct tt_am_header head;
	struct tt_reader r;
	char ranks[256];
	int rc, lost = -1;

	memset(a->port_of, 0, (size_t)a->parent->nranks * sizeof(*a->port_of));
	a->port_of[a->parent->rank] = a->port;
	while (!(rc = left_out(a))) {
		bool waits = count_awaited(a, &lost) > 0 && lost < 0 && tt_now_ns() < until;

		rc = next_letter(a, TT_AM_OFFER, -1, waits ? SLICE_MS : 0, &head, &r);
		if (!rc && (rc = note_offer(a, head.source, &r)))
			return rc;
		if (rc && !waits)
			break;
	}
	if ((rc = left_out(a)))
		return rc;
	if (lost >= 0)
		return tt_fail(TT_REMOTE,
			"rank %d: rank %d is dead or has left, and is not on the list of ranks to exclude",
			a->parent->rank, lost);
	if (a->listed && tt_rank_list(a->parent->nranks, missing, a, ranks, sizeof(ranks)))
		return tt_fail(TT_TIMEOUT,
			       "rank %d: tuttiCommShrink: %s did not call it within %llu ms",
			       a->parent->rank, ranks, (unsigned long long)(a->half_ns / 1000000));
	return 0;
}

/* Alone: or is it this rank that was stopped, and the others went on? */
static int listen_alone(struct attempt *a)
{
	uint64_t until = tt_deadline_ns(ALONE_MS);
	int rc = 0;

	while (a->in.n == 1 && a->parent->nranks > 1 && !a->listed && tt_now_ns() < until &&
	       !(rc = left_out(a)))
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	return rc;
}

static int preside(struct attempt *a)
{
	int rc = gather(a);
	char text[1024] = "";

	a->in.n = 0;
	for (int r = 0; r < a->parent->nranks; r++) {
		if (!a->port_of[r] || is_gone(a, r))
			continue;
		a->in.member[a->in.n] = r;
		a->in.port[a->in.n++] = a->port_of[r];
	}
	for (int r = 0; !rc && a->tried && r < a->parent->nranks; r++)
		if (tt_am_state(a->parent->mail, r) == tuttiRankLeft)
			rc = tt_fail(TT_REMOTE,
				"rank %d: rank %d left the old communicator while this rank still shrank it: the "
				"others went on", a->parent->rank, r);
	a->epoch++;
	if (!rc)
		rc = listen_alone(a);
	if (rc)
		snprintf(text, sizeof(text), "%s", tt_error_text());
	for (int i = 0; i < a->in.n; i++)
		if (a->in.member[i] != a->parent->rank)
			send_decision(a, a->in.member[i], rc, text);
	return rc ? tt_fail(rc, "%s", text) : 0;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* 0 decided | 1 of an earlier attempt | what the chair could not do */
static int get_decision(struct attempt *a, struct tt_reader *r)
{
	uint64_t epoch = tt_get(r, 8);
	int code = -(int)tt_get_upto(r, 1, tuttiNumResults);
	bool mine = false;
	char text[1024];

	tt_get_text(r, text, sizeof(text));
	a->in.n = (int)tt_get_upto(r, 4, (uint64_t)a->parent->nranks);
	for (int i = 0; i < a->in.n; i++) {
		a->in.member[i] = (int)tt_get_upto(r, 4, (uint64_t)a->parent->nranks - 1);
		a->in.port[i] = (int)tt_get(r, 2);
		mine |= a->in.member[i] == a->parent->rank && a->in.port[i] == a->port;
	}
	if (!tt_get_end(r) || (a->tried && epoch == a->tried && !code))
		return 1;
	if (code || mine)
		a->epoch = epoch;
	if (!code && !mine && epoch > a->epoch)
		return without_me(a, epoch);
	return code ? tt_fail(code, "%s", text) : !mine;
}

/* 0 | 1 the chair is gone or silent: ask the next | < 0 */
static int attend(struct attempt *a, int chair_rank)
{
	uint64_t until = tt_now_ns() + 3 * a->half_ns;
	struct tt_am_header head;
	struct tt_reader r;
	int rc = send_offer(a, chair_rank, a->port);

	while (!rc && !(rc = left_out(a))) {
		rc = next_letter(a, TT_AM_DECISION, chair_rank, SLICE_MS, &head, &r);
		if (!rc && (rc = get_decision(a, &r)) <= 0)
			return rc;
		if (rc < 0 || tt_now_ns() > until)
			break;
		rc = 0;
	}
	if (left_out(a))
		return TT_REMOTE;
	a->silent[chair_rank] = rc != TT_SYSTEM;
	return rc == TT_SYSTEM ? rc : 1;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int decide(struct attempt *a)
{
	int rc, who;

	do {
		who = chair(a);
		rc = who == a->parent->rank ? preside(a) : attend(a, who);
	} while (rc > 0);
	a->in.rank = 0;
	while (!rc && a->in.rank < a->in.n && a->in.member[a->in.rank] != a->parent->rank)
		a->in.rank++;
	return rc;
}

/* A rank died in the last moment: nobody is through, and all start over;
 * or some are, and then this communicator is the one, broken as it is.
 * Those that are through say so, by flood, or when they are asked. */
static bool others_are_through(struct attempt *a)
{
	uint64_t until = tt_deadline_ns(ALONE_MS), newest;
	struct tt_am_header head;
	struct tt_reader r;

	for (int i = 0; i < a->in.n; i++)
		if (a->in.member[i] != a->parent->rank && !is_gone(a, a->in.member[i]))
			send_offer(a, a->in.member[i], 0);
	do {
		tt_control_excluded(a->parent->ctl, &newest);
		if (newest >= a->epoch ||
		    (!next_letter(a, TT_AM_DECISION, -1, 5, &head, &r) && tt_get(&r, 8) >= a->epoch))
			return true;
	} while (tt_now_ns() < until);
	return false;
}

/* Whoever asks from now on is told. */
static void tell_all(struct attempt *a)
{
	struct tt_writer w = write_decision(a, 0, "");

	if (!w.failed)
		tt_am_decide(a->parent->mail, a->parent->shrinks, w.data, w.have);
	free(w.data);
	tt_control_announce_shrunk(a->parent->ctl, a->epoch, &a->in);
}

/* One try. 0 | 1 somebody died meanwhile: again | < 0 */
static int try_once(struct attempt *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	tuttiComm_t parent = a->parent, c = NULL;
	struct tt_env env;
	int rc = tt_comm_child(parent, config, &env, &c);

	if (!rc && !(rc = tt_control_prepare(parent->ctl, &c->ctl, &a->port)))
		rc = decide(a);
	if (rc) {
		tt_comm_free(c);
		return rc;
	}
	a->in.label = "shrink";
	a->in.mark = a->epoch;
	for (int i = 0; i < a->in.n; i++)
		a->in.mark = tt_mix(a->in.mark, (uint64_t)a->in.member[i]);
	c->rank = a->in.rank;
	c->nranks = a->in.n;
	rc = tt_control_form(parent->ctl, c->ctl, &a->in, tt_now_ns() + 2 * a->half_ns);
	rc = rc ? rc : (rc = tt_comm_agree(c)) ? rc : tt_comm_furnish(c, &env);
	tt_control_formed(parent->ctl);
	if (!rc || (rc == TT_REMOTE && c->mail && others_are_through(a))) {
		tell_all(a);
		*ret_comm = c;
		return 0;
	}
	a->tried = a->epoch;
	tt_comm_free(c);
	return rc == TT_REMOTE || rc == TT_TIMEOUT ? 1 : rc;
}

static int shrink(struct attempt *a, const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	uint64_t until = tt_now_ns() + 4 * a->half_ns;
	int rc;

	a->parent->shrinks++;
	tt_am_decide(a->parent->mail, 0, NULL, 0);
	while ((rc = try_once(a, config, ret_comm)) > 0)
		if (tt_now_ns() > until)
			return tt_fail(TT_TIMEOUT, "rank %d: tuttiCommShrink: %s", a->parent->rank,
				       tt_error_text());
	return rc;
}

int tt_comm_shrink(tuttiComm_t parent, const bool *excluded, int nexcluded,
		   const tuttiConfig_t *config, tuttiComm_t *ret_comm)
{
	size_t n = (size_t)parent->nranks;
	struct attempt a = { .parent = parent, .excluded = excluded, .listed = nexcluded > 0,
			     .half_ns = parent->timeout_ms * 500000ull };
	int *numbers = calloc(3 * n, sizeof(*numbers)), rc = TT_SYSTEM;

	a.silent = calloc(n, sizeof(*a.silent));
	a.letter = malloc(DECISION_BYTES(n));
	for (size_t r = 0; r < n; r++)
		a.digest = tt_mix(a.digest, excluded[r]);
	a.in.member = numbers;
	a.in.port = numbers + n;
	a.port_of = numbers + 2 * n;
	if (numbers && a.silent && a.letter)
		rc = shrink(&a, config, ret_comm);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory for shrinking %zu ranks", parent->rank, n);
	free(numbers);
	free(a.silent);
	free(a.letter);
	return rc;
}
