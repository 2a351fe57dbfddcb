/*
 * turn.c - operations of one communicator run in call order, whichever threads run them
 *
 * Called by api. As long as no stream was used with a communicator only its caller runs its operations, and nothing
 * here costs more than a load. From the first use of a stream on, every batch of requests draws a ticket of each of its
 * communicators (all at once, so that two batches stand in the same order everywhere) and runs when its number
 * is served. The oldest unfinished batch can always run: every batch before it in its stream's queue is older.
 */
#include <stdlib.h>
#include <string.h>

#include "run/stream.h"

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;    /* tickets of several communicators are drawn together */

static bool first_of_comm(const struct tt_request *requests, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (requests[j].comm == requests[i].comm)
			return false;
	return true;
}

static void draw(struct tt_batch *b)
{
	pthread_mutex_lock(&order);
	for (size_t i = 0; i < b->n; i++) {
		tuttiComm_t c = b->requests[i].comm;

		b->requests[i].holds_turn = first_of_comm(b->requests, i);
		if (!b->requests[i].holds_turn)
			continue;
		pthread_mutex_lock(&c->lock);
		b->requests[i].ticket = c->next_ticket++;
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&order);
}

int tt_batch_run(struct tt_batch *b)
{
	int rc;

	for (size_t i = 0; i < b->n; i++) {
		tuttiComm_t c = b->requests[i].comm;

		if (!b->requests[i].holds_turn)
			continue;
		pthread_mutex_lock(&c->lock);
		while (c->serving != b->requests[i].ticket)
			pthread_cond_wait(&c->turned, &c->lock);
		pthread_mutex_unlock(&c->lock);
	}
	rc = tt_run_requests(b->requests, b->n);
	for (size_t i = 0; i < b->n; i++) {
		tuttiComm_t c = b->requests[i].comm;

		if (!b->requests[i].holds_turn)
			continue;
		pthread_mutex_lock(&c->lock);
		c->serving++;
		pthread_cond_broadcast(&c->turned);
		pthread_mutex_unlock(&c->lock);
	}
	return rc;
}

static struct tt_batch *batch_of(const struct tt_request *requests, size_t n)
{
	struct tt_batch *b = malloc(sizeof(*b) + n * sizeof(*requests));

	if (!b) {
		tt_fail(TT_SYSTEM, "no memory to queue %zu operations", n);
		return NULL;
	}
	b->next = NULL;
	b->n = n;
	memcpy(b->requests, requests, n * sizeof(*requests));
	draw(b);
	return b;
}

int tt_run_in_turn(const struct tt_request *requests, size_t n)
{
	struct tt_batch *b;
	bool queued = false;
	int rc;

	for (size_t i = 0; i < n; i++)
		queued |= atomic_load_explicit(&requests[i].comm->queued, memory_order_acquire);
	if (tt_likely(!queued))
		return tt_run_requests(requests, n);
	b = batch_of(requests, n);
	if (!b)
		return TT_SYSTEM;
	rc = tt_batch_run(b);
	free(b);
	return rc;
}

int tt_stream_submit(tuttiStream_t stream, const struct tt_request *requests, size_t n)
{
	struct tt_batch *b;
	int rc = tt_stream_check(stream);

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		atomic_store_explicit(&requests[i].comm->queued, true, memory_order_release);
	b = batch_of(requests, n);
	if (!b)
		return TT_SYSTEM;
	tt_stream_push(stream, b);
	return 0;
}

void tt_run_drain(tuttiComm_t c)
{
	pthread_mutex_lock(&c->lock);
	while (c->serving != c->next_ticket)
		pthread_cond_wait(&c->turned, &c->lock);
	pthread_mutex_unlock(&c->lock);
}
