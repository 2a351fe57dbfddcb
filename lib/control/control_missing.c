/*
 * control_missing.c - the ranks that an operation or a message lacks at its deadline, and why
 *
 * Called by run (tt_control_missing, tt_control_silent) and by exchanges (tt_status_silent). Asks all
 * ranks for their statuses, waits for the answers, and writes the sentence of an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_internal.h"

/* ranks for each processor of a host from which a rank may be too slow to answer in time */
#define STARVED 32
#define MOST_EDGES 8
#define MOST_REASONS 3 /* in one text; the other ranks are counted */
/* at a deadline: ranks without an answer by then are silent; errors come within a second of it */
#define ANSWER_NS (TT_SECOND * 3 / 4)

/* ---- silent ranks ---------------------------------------------------------------------------- */

bool tt_status_answers(const struct tt_control *ctl, int rank, uint64_t since_ns)
{
	return rank == ctl->rank || tt_status_at_ns(ctl, rank) >= since_ns;
}

static void await_until(struct tt_control *ctl, uint64_t since_ns, uint64_t deadline_ns)
{
	int silent;

	do {
		silent = 0;
		for (int r = 0; r < ctl->nranks; r++)
			silent += !tt_status_answers(ctl, r, since_ns) &&
				  !tt_set_has(ctl->departed.left, r);
	} while (silent && !ctl->broken && tt_endpoint_await(ctl->ep, deadline_ns));
}

/* This process was stopped or starved, too, if it wakes after the deadline: then answers that have come meanwhile are
 * read, for at most as long as it is late. */
static void await_answers(struct tt_control *ctl, uint64_t since_ns, uint64_t deadline_ns)
{
	uint64_t now, late, wait = deadline_ns - since_ns;

	await_until(ctl, since_ns, deadline_ns);
	now = tt_now_ns();
	late = now > deadline_ns ? now - deadline_ns : 0;
	if (late)
		await_until(ctl, since_ns, now + (late < wait ? late : wait));
}

/* The reason why rank does not answer, from a connection to it or to another rank of its host. */
static void why_silent(const struct tt_control *ctl, int rank, bool partitioned, char *text,
		       size_t bytes)
{
	int here = 0;

	for (int r = 0; r < ctl->nranks; r++)
		here += tt_control_host(ctl, r) == tt_control_host(ctl, rank);
	/* as if all hosts had as many processors as this one */
	if (partitioned)
		snprintf(text, bytes, ": the ranks that connect it to rank %d have left or died",
			 ctl->rank);
	else if (here > STARVED * sysconf(_SC_NPROCESSORS_ONLN))
		snprintf(text, bytes, " (stopped, or starved: %d ranks share the host)", here);
	else
		snprintf(text, bytes, " (stopped?)");
	for (const struct tt_conn *c = ctl->ep->conns; c; c = c->next) {
		int other = c->dead || c->registration ? -1 : tt_control_rank(ctl, c->peer);
		char reason[160];

		if (other < 0 || tt_control_host(ctl, other) != tt_control_host(ctl, rank) ||
		    !tt_duplex_silent(&c->duplex, reason, sizeof(reason)))
			continue;
		snprintf(text, bytes, ": %s", reason);
		return;
	}
}

/* Silent ranks of one kind: those to which no chain of living neighbors leads, so that neither questions nor
 * answers pass, or the others, which have been asked */
struct silent_ranks {
	bool (*is_silent)(const void *ctx, int rank);
	const void *ctx;
	const bool *is_partitioned; /* [nranks], NULL: none is */
	bool partitioned;           /* the kind */
};

static bool is_of_kind(const void *ctx, int rank)
{
	const struct silent_ranks *s = ctx;

	return s->is_silent(s->ctx, rank) &&
	       (s->is_partitioned && s->is_partitioned[rank]) == s->partitioned;
}

/* "rank 3 is not answering (stopped?)", "ranks 2, 3 are not answering; rank 2: its host ..." Returns the first of
 * the ranks, whose reason the sentence has; -1: there is none, and text is empty */
static int say_kind(const struct tt_control *ctl, const struct silent_ranks *s, char *text,
		    size_t bytes)
{
	char ranks[160], why[200];
	int first = 0, n = tt_rank_list(ctl->nranks, is_of_kind, s, ranks, sizeof(ranks));

	text[0] = '\0';
	if (!n)
		return -1;
	while (!is_of_kind(s, first))
		first++;
	why_silent(ctl, first, s->partitioned, why, sizeof(why));
	if (n > 1 && why[0] == ':')
		snprintf(text, bytes, "%s are not answering; rank %d%s", ranks, first, why);
	else
		snprintf(text, bytes, "%s %s not answering%s", ranks, n > 1 ? "are" : "is", why);
	return first;
}

/* The ranks that cannot be asked: those that tt_control_find_partitioned finds, and those that have ended their
 * connection, since they have left all that they had, but whose goodbye has not come. false: none */
static bool find_unasked(const struct tt_control *ctl, bool *ret_unasked)
{
	bool found = tt_control_find_partitioned(ctl, ret_unasked), any = found;

	for (int r = 0; r < ctl->nranks; r++) {
		ret_unasked[r] = (found && ret_unasked[r]) || tt_set_has(ctl->departed.over, r);
		any |= ret_unasked[r];
	}
	return any;
}

/* The sentence of all silent ranks: first those that were asked. A live rank that cannot be asked is not called
 * stopped, and hides no stopped one. Returns the first rank of the sentence; -1: none is silent */
static int say_silent(const struct tt_control *ctl, bool (*is_silent)(const void *ctx, int rank),
		      const void *ctx, char *text, size_t bytes)
{
	bool *partitioned = malloc((size_t)ctl->nranks * sizeof(*partitioned));
	bool any = partitioned && find_unasked(ctl, partitioned);
	struct silent_ranks asked = { is_silent, ctx, any ? partitioned : NULL, false },
			    others = { is_silent, ctx, any ? partitioned : NULL, true };
	int first = say_kind(ctl, &asked, text, bytes), other;
	char said[400];

	other = say_kind(ctl, &others, said, sizeof(said));
	if (other >= 0) {
		size_t have = strlen(text);

		snprintf(text + have, bytes - have, "%s%s", have ? "; " : "", said);
	}
	free(partitioned);
	return first < 0 ? other : first;
}

/* ---- missing ranks --------------------------------------------------------------------------- */

static void name_last(struct tt_control *ctl, int rank, char *name, size_t bytes)
{
	uint64_t last = tt_status_last(ctl, rank);
	const struct tt_status *s = tt_status_of(ctl, rank);

	if (!last)
		snprintf(name, bytes, "none");
	else if (last == s->started && s->history.nruns)
		tt_call_text(&s->history.run[0].call, last, name, bytes);
	else
		tt_call_log_name(ctl, last, name, bytes);
}

/* The reason why rank, which answers or has left, is missing from operation seq or, if want is given, from that
 * message, as a sentence. false: rank is not missing */
static bool describe(struct tt_control *ctl, int rank, uint64_t seq,
		     const struct tt_wait_edge *want, char *text, size_t bytes)
{
	char name[160], other[160], in[200], half[160];

	name_last(ctl, rank, name, sizeof(name));
	tt_deadlock_text(ctl, rank, other, sizeof(other));
	snprintf(in, sizeof(in), "%s%s", other[0] ? "; it is in " : "", other);
	if (tt_set_has(ctl->departed.left, rank)) {
		uint64_t after = tt_flood_goodbye_of(ctl, rank)->after;

		snprintf(text, bytes, "rank %d left after operation %llu", rank,
			 (unsigned long long)after);
		return want || after < seq;
	}
	if (want) {
		tt_wait_edge_text(&(struct tt_wait_edge){ !want->send, ctl->rank, want->number,
							  want->call },
				  half, sizeof(half));
		snprintf(text, bytes,
			 "rank %d has not made the matching call, %s; its last operation was: %s%s",
			 rank, half, name, in);
		return !tt_deadlock_met(ctl, want);
	}
	snprintf(text, bytes, "rank %d has not called operation %llu yet; its last was: %s%s", rank,
		 (unsigned long long)seq, name, in);
	return rank != ctl->rank && tt_status_of(ctl, rank)->started < seq;
}

/* Every rank is in the operation and none progresses: list the rank that each one waits for. */
static void describe_edges(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes)
{
	int shown = 0, others = 0;
	size_t have = 0;

	snprintf(text, bytes, "every rank is in operation %llu", (unsigned long long)seq);
	for (int r = 0; r < ctl->nranks; r++) {
		int awaited = r == ctl->rank ? ctl->status.blocked.awaited
					     : tt_status_of(ctl, r)->awaited;

		have = strlen(text);
		if (awaited >= 0 && shown < MOST_EDGES && have + 80 < bytes) {
			snprintf(text + have, bytes - have, ", rank %d waits for rank %d", r,
				 awaited);
			shown++;
		} else {
			others += awaited >= 0;
		}
	}
	have = strlen(text);
	if (others)
		snprintf(text + have, bytes - have, ", and %d more wait", others);
}

/* The first message of blocked with rank, NULL: none */
static const struct tt_wait_edge *edge_to(const struct tt_blocked *blocked, int rank)
{
	for (int i = 0; i < blocked->nwants; i++)
		if (blocked->want[i].peer == rank)
			return &blocked->want[i];
	return NULL;
}

/* Does a peer of blocked's messages wait for rank, or for one that waits for it, and so on? */
static bool is_behind(const struct tt_control *ctl, const struct tt_blocked *blocked, int rank,
		      uint64_t since_ns)
{
	for (int i = 0; i < blocked->nwants; i++) {
		int at = blocked->want[i].peer;

		for (int step = 0; step < ctl->nranks && at >= 0 && at != rank; step++)
			at = at == ctl->rank || !tt_status_answers(ctl, at, since_ns)
				     ? -1
				     : tt_status_of(ctl, at)->awaited;
		if (at == rank)
			return true;
	}
	return false;
}

struct absence { /* of ranks from operation seq, or from the messages of blocked */
	struct tt_control *ctl;
	const struct tt_blocked *blocked;
	uint64_t seq, since_ns;
	bool collective;
};

/* In a collective every rank may be missing; otherwise the peers of blocked's messages, the silent
 * ranks for which these wait, and the neighbors that hide them. */
static bool is_silent_there(const void *ctx, int r)
{
	const struct absence *a = ctx;

	return !tt_status_answers(a->ctl, r, a->since_ns) &&
	       !tt_set_has(a->ctl->departed.left, r) &&
	       (a->collective || edge_to(a->blocked, r) || tt_control_is_neighbor(a->ctl, r) ||
		is_behind(a->ctl, a->blocked, r, a->since_ns));
}

/* Returns the first rank of the sentence; -1: none is silent, and text is empty */
static int describe_silent(const struct absence *a, char *text, size_t bytes)
{
	int first = say_silent(a->ctl, is_silent_there, a, text, bytes);
	size_t have = strlen(text);
	char name[160];

	if (first < 0)
		return first;
	name_last(a->ctl, first, name, sizeof(name));
	snprintf(text + have, bytes - have, "; last operation received from rank %d: %s", first,
		 name);
	return first;
}

/* Silent ranks come first, because the others may wait for them. */
static int describe_all(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *blocked,
			uint64_t since_ns, char *text, size_t bytes)
{
	bool collective = !blocked->nwants ||
			  atomic_load(&ctl->log.started) > atomic_load(&ctl->log.finished);
	struct absence a = { ctl, blocked, seq, since_ns, collective };
	int first = describe_silent(&a, text, bytes), others = 0, shown = 0;
	size_t have = strlen(text);
	char one[600];

	for (int r = 0; r < ctl->nranks; r++) {
		const struct tt_wait_edge *want = collective ? NULL : edge_to(blocked, r);

		if (is_silent_there(&a, r) || (!collective && !want) ||
		    !describe(ctl, r, seq, want, one, sizeof(one)))
			continue;
		first = first < 0 ? r : first;
		if (shown < MOST_REASONS && have + strlen(one) + 32 < bytes) {
			have += (size_t)snprintf(text + have, bytes - have, "%s%s",
						 have ? "; " : "", one);
			shown++;
		} else {
			others++;
		}
	}
	if (others)
		snprintf(text + have, bytes - have, "; and %d more", others);
	if (first < 0 && collective)
		describe_edges(ctl, seq, text, bytes);
	return first;
}

int tt_control_missing(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *blocked,
		       char *text, size_t bytes)
{
	uint64_t now = tt_now_ns();
	int first;

	text[0] = '\0';
	tt_control_lock(ctl);
	tt_status_waits(ctl, blocked);
	tt_status_ask(ctl, now);
	await_answers(ctl, now, now + ANSWER_NS);
	if (!ctl->broken)
		tt_deadlock_check(ctl);
	first = describe_all(ctl, seq, blocked, now, text, bytes);
	tt_control_unlock(ctl);
	return first;
}

struct silence {
	const struct tt_control *ctl;
	uint64_t since_ns;
};

static bool is_silent(const void *ctx, int rank)
{
	const struct silence *s = ctx;

	return !tt_status_answers(s->ctl, rank, s->since_ns) &&
	       !tt_set_has(s->ctl->departed.left, rank);
}

bool tt_status_silent(struct tt_control *ctl, uint64_t wait_ns, char *text, size_t bytes)
{
	struct silence s = { .ctl = ctl, .since_ns = tt_now_ns() };

	tt_status_ask(ctl, s.since_ns);
	await_answers(ctl, s.since_ns, s.since_ns + wait_ns);
	return say_silent(ctl, is_silent, &s, text, bytes) >= 0;
}

bool tt_control_silent(struct tt_control *ctl, uint32_t wait_ms, char *text, size_t bytes)
{
	bool silent;

	tt_control_lock(ctl);
	silent = !ctl->broken && tt_status_silent(ctl, wait_ms * 1000000ull, text, bytes) &&
		 !ctl->broken;
	tt_control_unlock(ctl);
	return silent;
}
