/*
 * control_flood.c - what every rank must know at once: failures, goodbyes, deaths
 *
 * Called by the service thread (frames, ends of connections) and by run through tt_control_raise. A
 * flood goes to every neighbour in the tree and the ring and is passed on once: the first break of
 * a rank, the first goodbye of an origin. So it reaches every rank that some chain of living
 * neighbours leads to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define EVERYBODY (TT_ROLE_PARENT | TT_ROLE_CHILD | TT_ROLE_RING | TT_ROLE_REGISTER)

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

/* "; the last last_received of it is operation 4 (...)":
 * only for a rank that cannot say so itself any more */
static void add_last(struct tt_control *ctl, uint64_t last)
{
	size_t have = strlen(ctl->text);
	char name[128];

	tt_call_log_name(ctl, last, name, sizeof(name));
	if (last)
		snprintf(ctl->text + have, sizeof(ctl->text) - have, "; the last last_received of it is %s",
			 name);
	else if (atomic_load(&ctl->started))
		snprintf(ctl->text + have, sizeof(ctl->text) - have,
			 "; it was not last_received of in any operation");
}

void tt_control_break(struct tt_control *ctl, int code, int culprit, uint64_t last,
		      const char *text, const struct tt_conn *from)
{
	struct tt_writer w = { 0 };
	bool dead = code == TT_REMOTE && culprit >= 0 && culprit != ctl->rank &&
		    culprit < ctl->nranks && !ctl->left[culprit];

	if (ctl->broken)
		return;
	snprintf(ctl->text, sizeof(ctl->text) - 200, "%s", text);
	tt_text_plain(ctl->text);
	ctl->culprit = culprit;
	if (dead && last < tt_status_last(ctl, culprit))
		last = tt_status_last(ctl, culprit);
	tt_control_put_abort(&w, ctl->rank, code, culprit, last, ctl->text);
	tt_conn_send_all(ctl, EVERYBODY, from, TT_F_ABORT, w.data, w.have);
	free(w.data);
	if (dead)
		add_last(ctl, last);
	tt_log(TT_LOG_DEBUG, "rank %d: the communicator is broken: %s", ctl->rank, ctl->text);
	atomic_store_explicit(&ctl->broken, code, memory_order_release);
	ctl->hook_due = true;
	pthread_cond_broadcast(&ctl->changed);
	tt_control_wake(ctl);
}

int tt_flood_code(int code)
{
	return code == TT_USAGE || code == TT_TIMEOUT ? code : TT_REMOTE;
}

bool tt_flood_abort(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	int origin = (int)tt_get(&r, 4), code = -(int)tt_get_upto(&r, 1, tuttiNumResults),
	    culprit = (int)tt_get(&r, 4);
	uint64_t last = tt_get(&r, 8);
	char text[sizeof(ctl->text)];

	tt_get_text(&r, text, sizeof(text));
	if (!tt_get_end(&r) || !code || culprit < -1 || origin < 0)
		return false;
	if ((conn->roles & TT_ROLE_REGISTER) && !conn->registered)
		return true;
	if (culprit >= ctl->nranks && code != TT_USAGE)
		culprit = -1;
	tt_control_break(ctl, tt_flood_code(code), culprit, last, text, conn);
	return true;
}

int tt_control_broken(const struct tt_control *ctl)
{
	return atomic_load_explicit(&ctl->broken, memory_order_relaxed);
}

const char *tt_control_text(const struct tt_control *ctl, int *ret_culprit)
{
	bool broken = atomic_load_explicit(&ctl->broken, memory_order_acquire);

	*ret_culprit = broken ? ctl->culprit : -1;
	return broken ? ctl->text : "";
}

int tt_control_fail(struct tt_control *ctl)
{
	int culprit, code = atomic_load_explicit(&ctl->broken, memory_order_acquire);

	return tt_fail(code, "%s", tt_control_text(ctl, &culprit));
}

static void run_hook(struct tt_control *ctl)
{
	pthread_mutex_lock(&ctl->hook_lock);
	if (ctl->hook && !ctl->hook_ran) {
		ctl->hook_ran = true;
		ctl->hook(ctl->hook_ctx);
	}
	pthread_mutex_unlock(&ctl->hook_lock);
}

void tt_control_raise(struct tt_control *ctl, int code, int culprit, const char *text)
{
	pthread_mutex_lock(&ctl->lock);
	tt_control_break(ctl, code, culprit, 0, text, NULL);
	pthread_mutex_unlock(&ctl->lock);
	if (!ctl->threaded)
		run_hook(ctl);
}

void tt_control_on_broken(struct tt_control *ctl, void (*fn)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&ctl->hook_lock);
	ctl->hook = fn;
	ctl->hook_ctx = ctx;
	ctl->hook_ran = false;
	pthread_mutex_unlock(&ctl->hook_lock);
	pthread_mutex_lock(&ctl->lock);
	ctl->hook_due = fn && ctl->broken;
	pthread_mutex_unlock(&ctl->lock);
	tt_control_wake(ctl);
}

void tt_flood_hook(struct tt_control *ctl)
{
	ctl->hook_due = false;
	pthread_mutex_unlock(&ctl->lock);
	run_hook(ctl);
	pthread_mutex_lock(&ctl->lock);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* A communicator that is being shrunk to, with this rank in it, comes to nothing. */
static void break_child(struct tt_control *ctl, int rank)
{
	const struct tt_members *m = ctl->child_members;
	char text[96];

	snprintf(text, sizeof(text), "rank %d of the communicator before died", rank);
	for (int i = 0; m && i < m->n; i++)
		if (m->member[i] == rank)
			tt_control_raise(ctl->child, TT_REMOTE, -1, text);
}

/* Once a rank: told on to all, and to mail, whether or not the communicator is broken already. */
static void note_dead(struct tt_control *ctl, int rank, const struct tt_conn *from)
{
	struct tt_writer w = { 0 };

	if (rank >= ctl->nranks || rank == ctl->rank || ctl->dead[rank] || ctl->left[rank])
		return;
	ctl->dead[rank] = true;
	tt_put(&w, (uint32_t)rank, 4);
	tt_conn_send_all(ctl, EVERYBODY, from, TT_F_DEAD, w.data, w.have);
	free(w.data);
	break_child(ctl, rank);
	if (ctl->on_gone)
		ctl->on_gone(ctl->am_ctx, rank, tuttiRankDead);
}

bool tt_flood_dead(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	int rank = (int)tt_get_upto(&r, 4, (uint64_t)ctl->nranks - 1);

	if (!tt_get_end(&r))
		return false;
	note_dead(ctl, rank, conn);
	return true;
}

void tt_control_on_am(struct tt_control *ctl, void (*socket)(void *ctx, int peer, int fd),
			void (*gone)(void *ctx, int rank, tuttiRankState_t how), void *ctx)
{
	pthread_mutex_lock(&ctl->lock);
	ctl->on_socket = socket;
	ctl->on_gone = gone;
	ctl->am_ctx = ctx;
	for (int r = 0; r < ctl->nranks && gone; r++)
		if (ctl->left[r] || ctl->dead[r])
			gone(ctx, r, ctl->left[r] ? tuttiRankLeft : tuttiRankDead);
	pthread_mutex_unlock(&ctl->lock);
}

void tt_flood_death(struct tt_control *ctl, struct tt_conn *conn)
{
	char text[200];

	if (conn->over || ctl->leaving || (conn->peer < ctl->nranks && ctl->left[conn->peer]))
		return;
	if ((conn->roles & TT_ROLE_REGISTER) && !conn->registered)
		return;
	if (tt_sock_is_wire(conn->error))
		snprintf(text, sizeof(text),
			 "rank %d is cut off: the network has lost its connection to rank %d: %s",
			 conn->peer, ctl->rank, strerror(conn->error));
	else
		snprintf(text, sizeof(text),
			 "rank %d died: its connection to rank %d ended without a goodbye",
			 conn->peer, ctl->rank);
	tt_control_break(ctl, TT_REMOTE, conn->peer, 0, text, NULL);
	if (ctl->joined)
		note_dead(ctl, conn->peer, conn);
}

/* ---- goodbyes -------------------------------------------------------------------------------- */

/* Operation seq of this rank waits for a rank that left before it. */
static void abandoned(struct tt_control *ctl, int rank, uint64_t seq)
{
	char text[512], name[160];

	tt_call_log_name(ctl, seq, name, sizeof(name));
	snprintf(text, sizeof(text),
		 "rank %d left after operation %llu; %s of rank %d waits for it", rank,
		 (unsigned long long)ctl->left_after[rank], name, ctl->rank);
	tt_control_break(ctl, TT_REMOTE, rank, ctl->left_after[rank], text, NULL);
}

void tt_flood_check_left(struct tt_control *ctl)
{
	uint64_t started = atomic_load(&ctl->started);

	for (int r = 0; r < ctl->nranks; r++)
		if (ctl->left[r] && ctl->left_after[r] < started &&
		    atomic_load(&ctl->finished) < started)
			abandoned(ctl, r, started);
}

bool tt_flood_goodbye(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	int origin = (int)tt_get_upto(&r, 4, (uint64_t)ctl->nranks - 1);
	uint64_t after = tt_get(&r, 8);

	if (!tt_get_end(&r) || origin == ctl->rank)
		return !r.failed && r.left == 0;
	if (conn->peer == origin)
		conn->over = true;
	if (ctl->left[origin])
		return true;
	ctl->left[origin] = true;
	ctl->left_after[origin] = after;
	ctl->left_at_ns[origin] = tt_now_ns();
	if (ctl->on_gone)
		ctl->on_gone(ctl->am_ctx, origin, tuttiRankLeft);
	if (after > ctl->last_received[origin])
		ctl->last_received[origin] = after;
	if (after < atomic_load(&ctl->gone_after))
		atomic_store(&ctl->gone_after, after);
	tt_conn_send_all(ctl, EVERYBODY, conn, TT_F_GOODBYE, data, bytes);
	pthread_cond_broadcast(&ctl->changed);
	tt_flood_check_left(ctl);
	tt_gather_gone(ctl, origin);
	return true;
}

void tt_flood_leave(struct tt_control *ctl)
{
	struct tt_writer w = { 0 };

	ctl->leaving = true;
	tt_put(&w, (uint32_t)ctl->rank, 4);
	tt_put(&w, atomic_load(&ctl->started), 8);
	tt_conn_send_all(ctl, EVERYBODY, NULL, TT_F_GOODBYE, w.data, w.have);
	free(w.data);
	for (struct tt_conn *c = ctl->conns; c; c = c->next)
		tt_conn_end(ctl, c);
}
