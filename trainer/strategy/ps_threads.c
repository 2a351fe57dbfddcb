/* ps_threads.c - pushes and fetches in threads of their own (ps_threads.h) */
#include "trainer/strategy/ps_threads.h"

#include "base/thread.h"
#include "trainer/strategy/sparse_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The orders to the push thread. */
enum ps_order { PUSH, REQUEST, QUESTION, ORDERS };

enum ps_fetch { NO_FETCH, ORDERED, REQUESTED, FETCHED };

/* What a thread does to the servers; its own messages and versions. */
struct ps_side {
	struct train_ps ps;
	pthread_t thread;
	bool running;
	float *array;              /* gradients to push, or parameters fetched */
	uint64_t begin_ns, end_ns; /* of the last one */
};

struct train_ps_threads {
	struct train_rank *t;
	struct train_ps *ps; /* of the worker's thread */
	/* guards the members below; a side's array belongs to its thread while that is at work */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum ps_order queue[ORDERS]; /* oldest first; no order twice */
	int orders;
	enum ps_fetch fetch;
	bool stop; /* of the question */
	struct ps_side push, fetched;
	bool closing;
	int rc; /* the first failure */
	char error[TRAIN_ERROR_BYTES];
};

/* ---- threads --------------------------------------------------------------------------------- */

/* Locked again afterwards. */
static void note(struct train_ps_threads *x, int rc)
{
	pthread_mutex_lock(&x->lock);
	if (rc && !x->rc) {
		x->rc = rc;
		snprintf(x->error, sizeof(x->error), "%s", train_error());
	}
	pthread_cond_broadcast(&x->changed);
}

static int obey(struct train_ps_threads *x, enum ps_order order, bool stop)
{
	switch (order) {
	case PUSH:
		return train_ps_send(x->t, &x->push.ps, x->push.array, 1, 0);
	case REQUEST:
		return train_ps_request(x->t, &x->fetched.ps); /* its thread is idle */
	default:
		return train_ps_question(x->t, stop);
	}
}

static void *send_orders(void *threads)
{
	struct train_ps_threads *x = threads;

	pthread_mutex_lock(&x->lock);
	while (!x->closing && !x->rc) {
		enum ps_order order = x->queue[0];
		bool stop = x->stop;
		uint64_t begin;
		int rc;

		if (!x->orders) {
			pthread_cond_wait(&x->changed, &x->lock);
			continue;
		}
		pthread_mutex_unlock(&x->lock);
		begin = train_time_ns();
		rc = obey(x, order, stop);
		note(x, rc);
		if (order == PUSH) {
			x->push.begin_ns = begin;
			x->push.end_ns = train_time_ns();
		}
		memmove(x->queue, x->queue + 1, sizeof(x->queue) - sizeof(x->queue[0]));
		x->orders--;
		if (order == REQUEST && !rc)
			x->fetch = REQUESTED;
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

static void *receive_parameters(void *threads)
{
	struct train_ps_threads *x = threads;

	pthread_mutex_lock(&x->lock);
	while (!x->closing && !x->rc) {
		int rc;

		if (x->fetch != REQUESTED) {
			pthread_cond_wait(&x->changed, &x->lock);
			continue;
		}
		x->fetched.begin_ns = train_time_ns();
		pthread_mutex_unlock(&x->lock);
		rc = train_ps_receive(x->t, &x->fetched.ps, x->fetched.array);
		note(x, rc);
		x->fetched.end_ns = train_time_ns();
		x->fetch = FETCHED;
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_side(struct train_ps_threads *x, struct ps_side *side, const char *name,
		     void *(*body)(void *))
{
	size_t servers = (size_t)x->t->servers;
	int rc;

	side->ps = *x->ps;
	/* a shard is no larger */
	side->ps.message = malloc((x->t->floats + 1 + train_sparse_rows(x->t)) * sizeof(float));
	side->ps.version = calloc(servers, sizeof(*side->ps.version));
	side->array = malloc(x->t->floats * sizeof(float));
	if (!side->ps.message || !side->ps.version || !side->array)
		return train_fail(TRAIN_FAILED, "no memory for messages of %zu floats",
				  x->t->floats);
	/* the servers' parameters of version 0 */
	memcpy(side->array, train_parameters_download(x->t),
	       x->t->model.parameters * sizeof(float));
	rc = tt_thread_start(&side->thread, name, body, x);
	side->running = !rc;
	return rc ? train_fail(TRAIN_FAILED, "cannot create the thread %s: %s", name, strerror(rc))
		  : TRAIN_OK;
}

static void close_side(struct ps_side *side)
{
	if (side->running)
		pthread_join(side->thread, NULL);
	free(side->ps.message);
	free(side->ps.version);
	free(side->array);
}

int train_ps_threads_open(struct train_rank *t, struct train_ps *ps,
			  struct train_ps_threads **ret_threads)
{
	struct train_ps_threads *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return train_fail(TRAIN_FAILED, "no memory for two threads");
	*ret_threads = x;
	x->t = t;
	x->ps = ps;
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->changed, NULL);
	rc = open_side(x, &x->push, "train-push", send_orders);
	return rc ? rc : open_side(x, &x->fetched, "train-fetch", receive_parameters);
}

void train_ps_threads_close(struct train_ps_threads *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->closing = true;
	pthread_cond_broadcast(&x->changed);
	pthread_mutex_unlock(&x->lock);
	close_side(&x->push);
	close_side(&x->fetched);
	pthread_cond_destroy(&x->changed);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

/* ---- the worker's thread --------------------------------------------------------------------- */

static bool is_ordered(const struct train_ps_threads *x, enum ps_order order)
{
	for (int i = 0; i < x->orders; i++)
		if (x->queue[i] == order)
			return true;
	return false;
}

/* Locked: the failure of a thread. */
static int failure(const struct train_ps_threads *x)
{
	return x->rc ? train_fail(x->rc, "%s", x->error) : TRAIN_OK;
}

/* The time of a push or fetch before a wait is hidden. */
static void add_hidden(struct train_ps_threads *x, struct ps_side *side, uint64_t wait_begin)
{
	uint64_t end = side->end_ns < wait_begin ? side->end_ns : wait_begin;

	train_timeline_add(&x->t->timeline, TRAIN_TIME_HIDDEN, x->t->step, side->begin_ns, end);
	side->begin_ns = side->end_ns = 0;
}

/* Locked: waits until this order is obeyed. */
static void await_order(struct train_ps_threads *x, enum ps_order order)
{
	uint64_t wait_begin = train_time_ns();

	while (is_ordered(x, order) && !x->rc)
		pthread_cond_wait(&x->changed, &x->lock);
	train_add_exposed(x->t, wait_begin);
	if (order == PUSH && !x->rc)
		add_hidden(x, &x->push, wait_begin);
}

/* Locked; unlocks. */
static int give_order(struct train_ps_threads *x, enum ps_order order)
{
	int rc = failure(x);

	if (!rc)
		x->queue[x->orders++] = order;
	pthread_cond_broadcast(&x->changed);
	pthread_mutex_unlock(&x->lock);
	return rc;
}

int train_ps_push_begin(struct train_ps_threads *x, const float *gradients)
{
	pthread_mutex_lock(&x->lock);
	await_order(x, PUSH);
	memcpy(x->push.array, gradients, x->t->model.parameters * sizeof(float));
	x->t->message_bytes += train_ps_push_bytes(x->t, x->ps, gradients, 1, 0);
	memcpy(x->push.ps.version, x->ps->version, (size_t)x->t->servers * sizeof(*x->ps->version));
	return give_order(x, PUSH);
}

int train_ps_fetch_begin(struct train_ps_threads *x)
{
	pthread_mutex_lock(&x->lock);
	x->fetch = ORDERED;
	return give_order(x, REQUEST);
}

int train_ps_question_begin(struct train_ps_threads *x, bool stop)
{
	pthread_mutex_lock(&x->lock);
	await_order(x, QUESTION);
	x->stop = stop;
	return give_order(x, QUESTION);
}

/* Locked: waits for a fetch that is under way. */
static void await_fetch(struct train_ps_threads *x)
{
	uint64_t wait_begin = train_time_ns();

	while (x->fetch != NO_FETCH && x->fetch != FETCHED && !x->rc)
		pthread_cond_wait(&x->changed, &x->lock);
	train_add_exposed(x->t, wait_begin);
	if (x->fetch == FETCHED)
		add_hidden(x, &x->fetched, wait_begin);
}

int train_ps_fetched(struct train_ps_threads *x, bool wait)
{
	int rc;

	pthread_mutex_lock(&x->lock);
	if (wait || x->fetch == FETCHED)
		await_fetch(x);
	rc = failure(x);
	if (!rc && x->fetch == FETCHED) {
		train_parameters_set_host(x->t, x->fetched.array);
		memcpy(x->ps->version, x->fetched.ps.version,
		       (size_t)x->t->servers * sizeof(*x->ps->version));
		x->fetch = NO_FETCH;
	}
	pthread_mutex_unlock(&x->lock);
	return rc;
}

int train_ps_threads_wait(struct train_ps_threads *x)
{
	int rc;

	pthread_mutex_lock(&x->lock);
	for (enum ps_order order = PUSH; order < ORDERS; order++)
		await_order(x, order);
	await_fetch(x);
	rc = failure(x);
	pthread_mutex_unlock(&x->lock);
	return rc;
}

void train_ps_fetch_drop(struct train_ps_threads *x)
{
	pthread_mutex_lock(&x->lock);
	x->fetch = NO_FETCH;
	pthread_mutex_unlock(&x->lock);
}
