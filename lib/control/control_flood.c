/*
 * control_flood.c - floods of failures, goodbyes and deaths to all ranks
 *
 * Called by the service thread (frames, ends of connections) and by run through tt_control_raise. A
 * flood goes to every neighbor in the tree and the ring, and a rank forwards a flood once: the
 * first break of a rank, the first goodbye of an origin. So a flood reaches every rank to which a
 * chain of living neighbors leads. A rank that waits for a message of another one connects to it.
 * Failures and deaths go to all other connected ranks, too, which may have lost their neighbors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define TO_ALL (TT_TO_CONNECTED | TT_TO_JOINING)

/* ---- broken ---------------------------------------------------------------------------------- */

void tt_control_put_abort(struct tt_writer *w, int origin, int code, int culprit, uint64_t last,
			  const char *text)
{
	tt_put(w, (uint32_t)origin, 4);
	tt_put(w, (uint8_t)-code, 1);
	tt_put(w, (uint32_t)culprit, 4);
	tt_put(w, last, 8);
	tt_put_text(w, text);
}

/* Append "; last operation received from it: operation 4 (...)"; only for a dead culprit. */
static void add_last(struct tt_control *ctl, uint64_t last)
{
	size_t have = strlen(ctl->failure.text);
	char name[128];

	tt_call_log_name(ctl, last, name, sizeof(name));
	if (last)
		snprintf(ctl->failure.text + have, sizeof(ctl->failure.text) - have,
			 "; last operation received from it: %s", name);
	else if (atomic_load(&ctl->log.started))
		snprintf(ctl->failure.text + have, sizeof(ctl->failure.text) - have,
			 "; no operation was received from it");
}

static void put_failure(struct tt_writer *w, const struct tt_control *ctl)
{
	char text[sizeof(ctl->failure.text)];

	snprintf(text, sizeof(text), "%.*s", (int)ctl->failure.flooded, ctl->failure.text);
	tt_control_put_abort(w, ctl->rank, ctl->broken, ctl->failure.culprit, ctl->failure.last,
			     text);
}

void tt_control_break(struct tt_control *ctl, int code, int culprit, uint64_t last,
		      const char *text, int from)
{
	uint8_t bytes[TT_ABORT_BYTES];
	struct tt_writer w = TT_WRITER_INTO(bytes);
	bool dead = code == TT_REMOTE && culprit >= 0 && culprit != ctl->rank &&
		    culprit < ctl->nranks && !tt_set_has(ctl->departed.left, culprit);

	if (ctl->broken)
		return;
	snprintf(ctl->failure.text, sizeof(ctl->failure.text) - 200, "%s", text);
	tt_text_plain(ctl->failure.text);
	ctl->failure.culprit = culprit;
	if (dead && last < tt_status_last(ctl, culprit))
		last = tt_status_last(ctl, culprit);
	ctl->failure.last = last;
	ctl->failure.flooded = strlen(ctl->failure.text);
	if (dead)
		add_last(ctl, last);
	tt_log(TT_LOG_INFO, "rank %d: the communicator is broken: %s", ctl->rank,
	       ctl->failure.text);
	atomic_store_explicit(&ctl->broken, code, memory_order_release);
	put_failure(&w, ctl);
	tt_control_send(ctl, TO_ALL, from, TT_F_ABORT, w.data, w.have);
	ctl->observers.broken_due = true;
	tt_control_changed(ctl);
	tt_endpoint_wake(ctl->ep);
	tt_split_broken(ctl);
}

static void put_goodbye(struct tt_writer *w, const struct tt_control *ctl)
{
	tt_put(w, (uint32_t)ctl->rank, 4);
	tt_put(w, atomic_load(&ctl->log.started), 8);
	tt_put(w, ctl->gather.number, 8);
}

/* The peer receives a goodbye behind all messages, so on the connection in use if there is another one. */
void tt_flood_connected(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	const struct tt_conn *used = tt_conn_to(ep, conn->peer);
	uint8_t bytes[TT_ABORT_BYTES];
	bool first = !used || used == conn;

	for (struct tt_control *ctl = ep->controls; ctl; ctl = ctl->next) {
		struct tt_writer w = TT_WRITER_INTO(bytes);

		if (!first || tt_control_rank(ctl, conn->peer) < 0)
			continue;
		if (ctl->departed.leaving) {
			put_goodbye(&w, ctl);
			tt_conn_send(ep, conn, ctl->context, TT_F_GOODBYE, w.data, w.have);
		} else if (ctl->broken) {
			put_failure(&w, ctl);
			tt_conn_send(ep, conn, ctl->context, TT_F_ABORT, w.data, w.have);
		}
	}
	if (tt_endpoint_leaves(ep)) /* made while this process leaves: its end is no death */
		tt_endpoint_end_conn(ep, conn);
}

void tt_control_no_memory(struct tt_control *ctl)
{
	char text[64];

	snprintf(text, sizeof(text), "rank %d: no memory for a control frame", ctl->rank);
	tt_control_break(ctl, TT_SYSTEM, ctl->rank, 0, text, -1);
}

int tt_flood_code(int code)
{
	return code == TT_USAGE || code == TT_TIMEOUT ? code : TT_REMOTE;
}

bool tt_flood_abort(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	int origin = (int)tt_get(&r, 4), code = -(int)tt_get_upto(&r, 1, tuttiNumResults),
	    culprit = (int)tt_get(&r, 4);
	uint64_t last = tt_get(&r, 8);
	char text[sizeof(ctl->failure.text)];

	tt_get_text(&r, text, sizeof(text));
	if (!tt_get_end(&r) || !code || culprit < -1 || origin < 0)
		return false;
	if (culprit >= ctl->nranks && code != TT_USAGE)
		culprit = -1;
	tt_control_break(ctl, tt_flood_code(code), culprit, last, text, from);
	return true;
}

int tt_control_broken(const struct tt_control *ctl)
{
	return atomic_load_explicit(&ctl->broken, memory_order_relaxed);
}

const char *tt_control_text(const struct tt_control *ctl, int *ret_culprit)
{
	bool broken = atomic_load_explicit(&ctl->broken, memory_order_acquire);

	*ret_culprit = broken ? ctl->failure.culprit : -1;
	return broken ? ctl->failure.text : "";
}

int tt_control_fail(struct tt_control *ctl)
{
	int culprit, code = atomic_load_explicit(&ctl->broken, memory_order_acquire);

	return tt_fail(code, "%s", tt_control_text(ctl, &culprit));
}

void tt_control_raise(struct tt_control *ctl, int code, int culprit, const char *text)
{
	tt_control_lock(ctl);
	tt_control_break(ctl, code, culprit, 0, text, -1);
	tt_control_unlock(ctl);
	if (!ctl->ep->served.entered)
		tt_observers_broken(ctl);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* Flood a death and notify the observers, once per rank, whether or not the control is broken. */
static void note_dead(struct tt_control *ctl, int rank, int from)
{
	uint8_t bytes[4];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	if (rank == ctl->rank || tt_set_has(ctl->departed.dead, rank) ||
	    tt_set_has(ctl->departed.left, rank))
		return;
	tt_set_add(ctl->departed.dead, rank);
	tt_put(&w, (uint32_t)rank, 4);
	tt_control_send(ctl, TO_ALL, from, TT_F_DEAD, w.data, w.have);
	tt_split_dead(ctl, rank);
	tt_observers_gone(ctl, rank, tuttiRankDead);
}

bool tt_flood_dead(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	int rank = (int)tt_get_upto(&r, 4, (uint64_t)ctl->nranks - 1);

	if (!tt_get_end(&r))
		return false;
	note_dead(ctl, rank, from);
	return true;
}

void tt_flood_death(struct tt_control *ctl, int rank, int error)
{
	char text[200];

	if (ctl->departed.leaving || tt_set_has(ctl->departed.left, rank))
		return;
	if (tt_sock_is_network_error(error))
		snprintf(text, sizeof(text),
			 "rank %d is cut off: the network has lost its connection to rank %d: %s",
			 rank, ctl->rank, strerror(error));
	else
		snprintf(text, sizeof(text),
			 "rank %d died: its connection to rank %d ended without a goodbye", rank,
			 ctl->rank);
	tt_control_break(ctl, TT_REMOTE, rank, 0, text, -1);
	if (ctl->join.complete)
		note_dead(ctl, rank, -1);
}

/* ---- goodbyes -------------------------------------------------------------------------------- */

const struct tt_goodbye *tt_flood_goodbye_of(const struct tt_control *ctl, int rank)
{
	static const struct tt_goodbye unknown; /* no memory for it, which broke the control */

	const struct tt_goodbye *goodbye = tt_sparse_get(&ctl->departed.parted, rank);

	return goodbye ? goodbye : &unknown;
}

static void keep_goodbye(struct tt_control *ctl, int rank, struct tt_goodbye goodbye)
{
	struct tt_goodbye *kept = malloc(sizeof(*kept));

	if (kept)
		*kept = goodbye;
	if (!kept || !tt_sparse_set(&ctl->departed.parted, rank, kept)) {
		free(kept);
		tt_control_no_memory(ctl);
	}
	tt_set_add(ctl->departed.left, rank);
}

/* Operation seq of this rank waits for a rank that left before that operation. */
static void abandoned(struct tt_control *ctl, int rank, uint64_t seq)
{
	uint64_t after = tt_flood_goodbye_of(ctl, rank)->after;
	char text[512], name[160];

	tt_call_log_name(ctl, seq, name, sizeof(name));
	snprintf(text, sizeof(text),
		 "rank %d left after operation %llu; %s of rank %d waits for it", rank,
		 (unsigned long long)after, name, ctl->rank);
	tt_control_break(ctl, TT_REMOTE, rank, after, text, -1);
}

void tt_flood_check_left(struct tt_control *ctl)
{
	uint64_t started = atomic_load(&ctl->log.started);

	for (int r = tt_set_next(ctl->departed.left, ctl->nranks, 0); r < ctl->nranks;
	     r = tt_set_next(ctl->departed.left, ctl->nranks, r + 1))
		if (tt_flood_goodbye_of(ctl, r)->after < started &&
		    atomic_load(&ctl->log.finished) < started)
			abandoned(ctl, r, started);
}

bool tt_flood_goodbye(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	int origin = (int)tt_get_upto(&r, 4, (uint64_t)ctl->nranks - 1);
	uint64_t after = tt_get(&r, 8), exchanges = tt_get(&r, 8);

	if (!tt_get_end(&r))
		return false;
	if (origin == from && !tt_set_has(ctl->departed.over, origin))
		tt_observers_over(ctl, origin, tuttiRankLeft);
	/* The flood comes behind the reason of a break; a frame of the origin itself may come before it. */
	if (origin == from && ctl->join.complete && !tt_control_is_neighbor(ctl, from))
		return true;
	if (origin == ctl->rank || tt_set_has(ctl->departed.left, origin))
		return true;
	keep_goodbye(ctl, origin,
		     (struct tt_goodbye){
			     .after = after, .exchanges = exchanges, .at_ns = tt_now_ns() });
	tt_observers_gone(ctl, origin, tuttiRankLeft);
	tt_status_received(ctl, origin, after);
	if (after < atomic_load(&ctl->log.gone_after))
		atomic_store(&ctl->log.gone_after, after);
	tt_control_send(ctl, TT_TO_NEIGHBORS | TT_TO_JOINING, from, TT_F_GOODBYE, data, bytes);
	tt_control_changed(ctl);
	tt_flood_check_left(ctl);
	tt_gather_gone(ctl, origin);
	return true;
}

bool tt_flood_left(struct tt_control *ctl, int from)
{
	if (!tt_set_has(ctl->departed.over, from))
		tt_observers_over(ctl, from, tuttiRankLeft);
	return true;
}

void tt_flood_leave(struct tt_control *ctl)
{
	uint8_t bytes[20];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	ctl->departed.leaving = true;
	put_goodbye(&w, ctl);
	tt_control_send(ctl, TO_ALL, -1, TT_F_GOODBYE, w.data, w.have);
}

/* ---- from whom floods come ------------------------------------------------------------------- */

static bool is_gone(const struct tt_control *ctl, int rank)
{
	return tt_set_has(ctl->departed.left, rank) || tt_set_has(ctl->departed.dead, rank) ||
	       tt_set_has(ctl->departed.over, rank);
}

int tt_flood_next_gone(const struct tt_control *ctl, int from)
{
	return tt_sets_next(ctl->departed.left, ctl->departed.dead, ctl->nranks, from);
}

static int count_gone(const struct tt_control *ctl)
{
	const struct tt_departures *d = &ctl->departed;
	int n = 0;

	for (int r = 0; r < ctl->nranks; r += 64)
		n += __builtin_popcountll(tt_set_word(d->left, ctl->nranks, r) |
					  tt_set_word(d->dead, ctl->nranks, r) |
					  tt_set_word(d->over, ctl->nranks, r));
	return n;
}

/* Breadth first, from this rank over its living neighbors and theirs. A ring without one rank still leads to
 * all others. */
bool tt_control_find_partitioned(const struct tt_control *ctl, bool *ret_partitioned)
{
	int ngone = count_gone(ctl), nfound = 0,
	    *found = ngone > 1 ? malloc((size_t)ctl->nranks * sizeof(*found)) : NULL;

	for (int r = 0; found && r < ctl->nranks; r++)
		ret_partitioned[r] = !is_gone(ctl, r);
	if (!found)
		return false;
	ret_partitioned[ctl->rank] = false;
	found[nfound++] = ctl->rank;
	for (int i = 0; i < nfound; i++) {
		int neighbor[TT_FANOUT + 3], n = tt_control_neighbors(ctl, found[i], neighbor);

		for (int k = 0; k < n; k++)
			if (ret_partitioned[neighbor[k]]) {
				ret_partitioned[neighbor[k]] = false;
				found[nfound++] = neighbor[k];
			}
	}
	free(found);
	return nfound + ngone < ctl->nranks;
}
