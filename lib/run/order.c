/*
 * order.c - operations of one communicator run in call order, whichever threads run them
 *
 * Called by api. As long as no stream was used with a communicator, only its caller runs its
 * operations, and the order costs one load. From the first use of a stream on, every batch of
 * requests draws a ticket of each of its communicators, all at once, so two batches have the same
 * order on every communicator; a batch runs when its tickets are served. The oldest unfinished
 * batch can always run: every batch before it in its stream's queue is older.
 *
 * When a communicator is aborted, its requests are taken out of the waiting batches, so no abort
 * waits for a stream, and no thread touches the communicator afterwards.
 */
#include <string.h>

#include "run/host_stream.h"

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* guards tickets and lists */
static pthread_cond_t served = PTHREAD_COND_INITIALIZER;  /* the next tickets are served */
static struct tt_batch *waiting;                          /* tickets drawn, not running yet */
static struct tt_batch *running;

static bool first_of_comm(const struct tt_request *requests, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (requests[j].comm == requests[i].comm)
			return false;
	return true;
}

/* A quorum allreduce is alone in its batch. */
static inline int run(const struct tt_request *requests, size_t n)
{
	return tt_unlikely(requests->quorum) ? tt_quorum_request_run(requests)
					     : tt_run_requests(requests, n);
}

/* Take out the requests of c, which is being aborted. */
static void detach(struct tt_batch *b, const struct tuttiComm *c)
{
	size_t left = 0;

	for (size_t i = 0; i < b->n; i++) {
		if (b->requests[i].comm != c) {
			b->requests[left++] = b->requests[i];
			continue;
		}
		b->aborted = true;
		if (b->requests[i].quorum)
			tt_quorum_request_drop(&b->requests[i]);
	}
	b->n = left;
}

static void draw(struct tt_batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		tuttiComm_t c = b->requests[i].comm;

		b->requests[i].holds_ticket = first_of_comm(b->requests, i);
		if (b->requests[i].holds_ticket)
			b->requests[i].ticket = c->order.next_ticket++;
	}
	for (size_t i = 0; i < b->n;) {
		if (tt_comm_is_live(b->requests[i].comm))
			i++;
		else
			detach(b, b->requests[i].comm);
	}
	b->next_listed = waiting;
	waiting = b;
}

static bool is_served(const struct tt_batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->requests[i].holds_ticket &&
		    b->requests[i].comm->order.serving != b->requests[i].ticket)
			return false;
	return true;
}

static void take_out(struct tt_batch **list, const struct tt_batch *b)
{
	while (*list != b)
		list = &(*list)->next_listed;
	*list = b->next_listed;
}

/* The tickets of b are served: from now on an abort of its communicators waits for it. */
static void begin(struct tt_batch *b)
{
	take_out(&waiting, b);
	b->next_listed = running;
	running = b;
	for (size_t i = 0; i < b->n; i++)
		if (b->requests[i].holds_ticket)
			atomic_fetch_add(&b->requests[i].comm->order.inside, 1);
}

static void pass_on(struct tt_batch *b)
{
	take_out(&running, b);
	for (size_t i = 0; i < b->n; i++)
		if (b->requests[i].holds_ticket) {
			b->requests[i].comm->order.serving++;
			atomic_fetch_sub(&b->requests[i].comm->order.inside, 1);
		}
	pthread_cond_broadcast(&served);
}

int tt_batch_run(struct tt_batch *b)
{
	bool aborted;
	int rc = 0;

	pthread_mutex_lock(&order);
	while (!is_served(b))
		pthread_cond_wait(&served, &order);
	begin(b);
	pthread_mutex_unlock(&order);
	if (b->n)
		rc = run(b->requests, b->n);
	pthread_mutex_lock(&order);
	pass_on(b);
	pthread_mutex_unlock(&order);
	aborted = b->aborted;
	if (b->done)
		b->done->call(b->done, rc);
	tt_pool_give(b);
	if (rc || !aborted)
		return rc;
	return tt_fail(TT_REMOTE, "the communicator was aborted before its operation was started");
}

static int run_item(struct tt_stream_item *item)
{
	return tt_batch_run((struct tt_batch *)item);
}

struct tt_batch *tt_batch_draw(const struct tt_request *requests, size_t n)
{
	struct tt_batch *b = tt_pool_take(requests[0].comm, sizeof(*b) + n * sizeof(*requests));

	if (!b) {
		tt_fail(TT_SYSTEM, "no memory to queue %zu operations", n);
		return NULL;
	}
	b->item.run = run_item;
	b->aborted = false;
	b->done = NULL;
	b->n = n;
	memcpy(b->requests, requests, n * sizeof(*requests));
	pthread_mutex_lock(&order);
	draw(b);
	pthread_mutex_unlock(&order);
	return b;
}

int tt_run_in_order(const struct tt_request *requests, size_t n)
{
	struct tt_batch *b;
	bool queued = false;

	for (size_t i = 0; i < n; i++)
		queued |= atomic_load_explicit(&requests[i].comm->order.queued,
					       memory_order_acquire);
	if (tt_likely(!queued))
		return run(requests, n);
	b = tt_batch_draw(requests, n);
	return b ? tt_batch_run(b) : TT_SYSTEM;
}

int tt_stream_submit(tuttiStream_t stream, const struct tt_request *requests, size_t n)
{
	struct tt_batch *b;
	int rc = tt_stream_check(stream);

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		atomic_store_explicit(&requests[i].comm->order.queued, true, memory_order_release);
	b = tt_batch_draw(requests, n);
	if (!b)
		return TT_SYSTEM;
	tt_stream_push(stream, &b->item);
	return 0;
}

void tt_run_drain(tuttiComm_t c)
{
	pthread_mutex_lock(&order);
	while (c->order.serving != c->order.next_ticket)
		pthread_cond_wait(&served, &order);
	pthread_mutex_unlock(&order);
}

void tt_run_cancel(tuttiComm_t c)
{
	pthread_mutex_lock(&order);
	for (struct tt_batch *b = waiting; b; b = b->next_listed)
		detach(b, c);
	pthread_cond_broadcast(&served);
	pthread_mutex_unlock(&order);
}

static const struct tt_request *find_user(const struct tt_batch *list, const void *start,
					  size_t bytes)
{
	for (; list; list = list->next_listed)
		for (size_t i = 0; i < list->n; i++) {
			const struct tt_request *r = &list->requests[i];
			size_t in, out;

			if (tt_request_extents(r, &in, &out) &&
			    ((in && !tt_apart(r->in, in, start, bytes)) ||
			     (out && !tt_apart(r->out, out, start, bytes))))
				return r;
		}
	return NULL;
}

bool tt_run_uses(const void *start, size_t bytes, struct tt_request *ret_request)
{
	const struct tt_request *r;

	pthread_mutex_lock(&order);
	r = find_user(running, start, bytes);
	if (!r)
		r = find_user(waiting, start, bytes);
	if (r)
		*ret_request = *r;
	pthread_mutex_unlock(&order);
	return r;
}

/* The child has none of the parent's threads and batches. */
static void in_child(void)
{
	pthread_mutex_init(&order, NULL);
	pthread_cond_init(&served, NULL);
	waiting = running = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
