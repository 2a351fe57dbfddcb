/*
 * ps_server.c - a parameter server: processes messages from any worker in order of arrival
 * (ps.h)
 *
 * One thread, one message at a time; no lock is held during transfers. The server ends when all
 * workers have sent BYE or are dead; the death of all workers is a failure. --record writes the
 * order of pushes and pulls; --replay repeats the order, for the same bits.
 */
#include "trainer/rank/fault.h"
#include "trainer/rank/due_steps.h"
#include "trainer/rank/learning_rate.h"
#include "trainer/strategy/arrival_order.h"
#include "trainer/strategy/ps.h"
#include "trainer/strategy/ps_store.h"
#include "trainer/strategy/sparse_rows.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 200 }; /* interval of liveness checks while no message arrives */

/* A worker's state on the server. */
struct ps_client {
	uint64_t clock;       /* pushes */
	bool pull_pending;    /* delayed by --ssp until the slowest worker catches up */
	bool asks, asks_stop; /* an ASK that a warm start delays; its stop flag */
	bool settling, gone;
};

struct ps_server {
	struct train_rank *t;
	struct train_ps *ps;
	struct train_ps_store store;
	struct ps_client *client; /* [workers] */
	int workers, number;
	uint64_t version;
	struct train_node *node; /* sync: nodes received in this step */
	void **at;
	size_t nodes, arrived;
	float *received, *message; /* sync: data of every node; buffer for the largest message */
	uint32_t *packed;          /* a message of touched rows; NULL: messages are whole */
	struct train_ps_stats stats;
	struct train_arrival_order arrivals;
	/* server 0: shares handed out, of all steps; the step after which workers settle */
	uint64_t handed, pause;
	bool stopping; /* a worker received a stop signal */
};

/* ---- open and close ------------------------------------------------------------------------- */

/* Bytes of the largest message. */
static size_t message_capacity(const struct ps_server *s)
{
	size_t rows = s->ps->sparse ? 1 + s->ps->shards.rows[s->number] : 0;

	return (s->ps->rule.sync ? s->t->leaves.count + 1 : 2) *
	       (s->ps->shards.count[s->number] + TRAIN_TAIL + rows) * sizeof(float);
}

static int open_server(struct ps_server *s)
{
	struct train_rank *t = s->t;
	const struct train_config *c = t->config;
	size_t count = s->ps->shards.count[s->number] + TRAIN_TAIL;
	size_t capacity = s->ps->rule.sync ? t->leaves.count + 1 : 1;
	int rc = train_ps_store_open(&s->store, count - TRAIN_TAIL, (float)c->momentum,
				     s->ps->rule.adagrad && c->adagrad);

	s->client = calloc((size_t)s->workers, sizeof(*s->client));
	s->node = calloc(capacity, sizeof(*s->node));
	s->at = calloc(capacity, sizeof(*s->at));
	s->received = malloc(capacity * count * sizeof(float));
	s->message = malloc((2 + capacity) * count * sizeof(float));
	if (s->ps->sparse)
		s->packed = malloc(message_capacity(s));
	if (!rc && (!s->client || !s->node || !s->at || !s->received || !s->message ||
		    (s->ps->sparse && !s->packed)))
		rc = train_fail(TRAIN_FAILED, "no memory to serve %zu parameters",
				count - TRAIN_TAIL);
	return rc || !s->ps->rule.log
		       ? rc
		       : train_arrival_order_open(&s->arrivals, t, s->workers, s->number);
}

/* Returns as train_arrival_order_close. */
static int close_server(struct ps_server *s)
{
	int rc = train_arrival_order_close(&s->arrivals);

	train_ps_store_close(&s->store);
	free(s->client);
	free(s->node);
	free(s->at);
	free(s->received);
	free(s->message);
	free(s->packed);
	return rc;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* A worker does not answer any more. With ps-sync its death is a failure, since a step needs all workers. */
static int lose(struct ps_server *s, int worker)
{
	tuttiRankState_t state = tuttiRankAlive;

	s->client[worker].gone = true;
	tuttiCommRankState(s->t->world, worker, &state);
	if (!s->ps->rule.sync || state != tuttiRankDead)
		return TRAIN_OK;
	return train_fail(TRAIN_FAILED,
			  "server %d: worker %d died, and ps-sync needs all workers; "
			  "use ps-async or spare",
			  s->number, worker);
}

/* A worker that is gone gets nothing. */
static int answer(struct ps_server *s, int worker, int tag, uint64_t version, const void *at,
		  size_t bytes)
{
	tuttiResult_t result = tuttiMsgSend(at, bytes, worker, tag, version, s->t->world);

	return result == tuttiRemoteError ? lose(s, worker) : train_check(result, s->t->world);
}

static int send_parameters(struct ps_server *s, int worker, int tag, uint64_t version)
{
	size_t bytes = s->store.count * sizeof(float);

	s->stats.out_bytes += bytes;
	return answer(s, worker, tag, version, s->store.parameters, bytes);
}

static int devices(const struct ps_server *s)
{
	return s->ps->rule.devices ? s->ps->rule.devices : 1;
}

/* A step's batch has a share for each worker, whichever worker takes it. */
static uint64_t shares(const struct ps_server *s)
{
	return (uint64_t)(s->workers / devices(s));
}

/* The pushes of a warm start, one worker's, in this run. */
static uint64_t warm_pushes(const struct ps_server *s)
{
	uint64_t steps = (uint64_t)s->t->config->warm_start, done = s->t->first_step;

	return steps > done ? (steps - done) * shares(s) : 0;
}

/* In a warm start the first live worker alone gets shares. The others get the answers that a pause or the end gives. */
static bool must_wait(const struct ps_server *s, int worker)
{
	uint64_t n = shares(s);
	/* downpour pushes several shares at once */
	uint64_t done = s->ps->rule.drop ? s->stats.pushes : s->handed - s->t->first_step * n;
	int first = 0;

	while (first < worker && s->client[first].gone)
		first++;
	return worker != first && done < warm_pushes(s) && s->handed != s->pause * n &&
	       !s->stopping;
}

/* Hands out the next share. At a pause the last shares are computed first: no worker gets another
 * one before all have settled. */
static int hand_out(struct ps_server *s, int worker, bool stop)
{
	uint64_t n = shares(s), steps = train_steps(s->t);
	struct train_handout h = { .shares = n, .handed = s->handed - s->t->first_step * n };

	s->stopping |= stop;
	if (s->handed == s->pause * n && s->pause < steps) {
		h.kind = TRAIN_HANDOUT_PAUSE;
		h.step = s->pause;
	} else if (s->handed == s->pause * n || s->stopping) {
		h.kind = TRAIN_HANDOUT_END;
		h.step = (s->handed + n - 1) / n;
	} else {
		h.step = s->handed / n + 1;
		h.share = s->handed++ % n;
		h.handed++;
	}
	return answer(s, worker, TRAIN_PS_ASK, 0, &h, sizeof(h));
}

/* Answers the questions that no warm start delays. */
static int answer_questions(struct ps_server *s)
{
	int rc = TRAIN_OK;

	for (int w = 0; w < s->workers && !rc; w++) {
		struct ps_client *c = &s->client[w];

		s->stopping |= c->asks && c->asks_stop;
		if (!c->asks || c->gone || must_wait(s, w))
			continue;
		c->asks = false;
		rc = hand_out(s, w, c->asks_stop);
	}
	return rc;
}

/* The clock of the slowest worker in training; a worker's first device counts its steps. */
static uint64_t slowest(const struct ps_server *s)
{
	uint64_t least = UINT64_MAX;

	for (int w = 0; w < s->workers; w += devices(s))
		if (!s->client[w].gone && !s->client[w].settling && s->client[w].clock < least)
			least = s->client[w].clock;
	return least;
}

/* Answers the pending pulls that --ssp permits. */
static int answer_pulls(struct ps_server *s)
{
	int64_t bound = s->ps->rule.ssp && !s->arrivals.replay ? s->t->config->ssp : -1;
	uint64_t least = slowest(s);
	int rc = TRAIN_OK;

	for (int w = 0; w < s->workers && !rc; w++) {
		struct ps_client *c = &s->client[w];

		if (!c->pull_pending ||
		    (bound >= 0 && c->clock > least && c->clock - least > (uint64_t)bound))
			continue;
		c->pull_pending = false;
		train_arrival_order_note(&s->arrivals, TRAIN_PS_PULL, w);
		rc = send_parameters(s, w, TRAIN_PS_PARAMETERS, s->version);
	}
	return rc;
}

/* Answers SETTLE once every live worker has settled. */
static int answer_settled(struct ps_server *s)
{
	int left = 0, rc = TRAIN_OK;

	for (int w = 0; w < s->workers; w++) {
		if (!s->client[w].gone && !s->client[w].settling)
			return TRAIN_OK;
		left += !s->client[w].gone;
	}
	if (s->handed == s->pause * shares(s))
		s->pause = train_next_due(s->t, s->pause);
	for (int w = 0; w < s->workers && !rc; w++) {
		if (!s->client[w].settling || s->client[w].gone)
			continue;
		s->client[w].settling = false;
		rc = answer(s, w, TRAIN_PS_SETTLED, (uint64_t)left, s->store.parameters,
			    s->store.count * sizeof(float));
	}
	return rc;
}

/* ---- pushes --------------------------------------------------------------------------------- */

/* The learning rate of the current step; an asynchronous step is one update per worker. */
static float rate_now(const struct ps_server *s)
{
	uint64_t steps = train_steps(s->t);
	uint64_t each = s->ps->rule.sync ? 1 : shares(s);
	uint64_t step = s->t->first_step + s->version / each + 1;

	return (float)train_learning_rate(s->t->config, step < steps ? step : steps, steps);
}

static void descend(struct ps_server *s, const float *gradient, float scale)
{
	size_t predictions = s->t->leaves.batch * s->t->data->positions;

	train_ps_store_descend(&s->store, gradient, scale / (float)predictions, rate_now(s));
	s->version++;
	s->stats.applied++;
	s->t->step = s->version;
	train_fault_kill(s->t);
}

/* Asynchronous: applies a push at once, unless --stale-drop drops it. */
static void apply(struct ps_server *s, int worker, uint64_t version)
{
	const struct train_config *c = s->t->config;
	uint64_t stale = s->version - version, gap;
	bool drop = s->ps->rule.drop;

	s->stats.stale_sum += stale;
	s->stats.stale[stale < TRAIN_PS_STALE_MAX ? stale : TRAIN_PS_STALE_MAX - 1]++;
	s->stats.stale_most = stale > s->stats.stale_most ? stale : s->stats.stale_most;
	s->client[worker].clock++;
	for (int w = 0; w < s->workers && s->stats.pushes <= warm_pushes(s); w++)
		s->client[w].clock = s->client[worker].clock;
	gap = slowest(s);
	gap = s->client[worker].clock > gap ? s->client[worker].clock - gap : 0;
	s->stats.gap_most = gap > s->stats.gap_most ? gap : s->stats.gap_most;
	if (drop && c->stale_drop >= 0 && stale > (uint64_t)c->stale_drop)
		s->stats.dropped++;
	else
		descend(s, s->message,
			drop && c->stale_scale ? 1.0f / (1.0f + (float)stale) : 1.0f);
}

/* Synchronous: stores a push at the worker's position. Nodes are in rank order, so the order of
 * arrival does not change the bits. */
static void store_push(struct ps_server *s, int worker)
{
	struct train_rank *t = s->t;
	size_t count = s->store.count + TRAIN_TAIL, before = 0, n;

	for (int w = 0; w < worker; w++)
		before += train_leaves_nodes(&t->leaves,
					     train_leaves_share(&t->leaves, w, s->workers), NULL);
	n = train_leaves_nodes(&t->leaves, train_leaves_share(&t->leaves, worker, s->workers),
			       s->node + before);
	memcpy(s->received + before * count, s->message, n * count * sizeof(float));
	for (size_t i = before; i < before + n; i++)
		s->at[i] = s->received + i * count;
	s->nodes += n;
	s->arrived++;
	s->client[worker].clock++;
}

/* All pushes of a step have arrived: sums, descends, sends parameters and tail to all workers. */
static int finish_step(struct ps_server *s, uint64_t step)
{
	size_t count = s->store.count, bytes = count * sizeof(float);
	const float *sum;
	int rc = TRAIN_OK;

	train_leaves_fold(&s->t->leaves, s->t->comm_device, s->node, s->at, &s->nodes,
			  count + TRAIN_TAIL);
	sum = s->at[0];
	descend(s, sum, 1.0f);
	memcpy(s->message, s->store.parameters, bytes);
	memcpy(s->message + count, sum + count, TRAIN_TAIL * sizeof(float));
	for (int w = 0; w < s->workers && !rc; w++) {
		s->stats.out_bytes += bytes;
		rc = answer(s, w, TRAIN_PS_PARAMETERS, step, s->message,
			    bytes + TRAIN_TAIL * sizeof(float));
	}
	s->nodes = s->arrived = 0;
	return rc;
}

/* s->message = the nodes that s->packed has in `words` words. Returns the number of its floats; 0: it
 * has no such nodes. */
static size_t unpack(struct ps_server *s, size_t nodes, size_t words)
{
	size_t rows = s->ps->shards.rows[s->number], width = train_sparse_width(s->t);
	size_t tail = s->ps->rule.sync ? TRAIN_TAIL : 0,
	       rest = s->store.count - rows * width + tail;
	const uint32_t *from = s->packed, *end = from + words;
	float *to = s->message;

	for (size_t i = 0; i < nodes; i++) {
		size_t read = train_rows_unpack(from, (size_t)(end - from), rows, width, to);

		from += read;
		if (!read || (size_t)(end - from) < rest)
			return 0;
		memcpy(to + rows * width, from, rest * sizeof(*to));
		from += rest;
		to += s->store.count + tail;
	}
	return from == end ? (size_t)(to - s->message) : 0;
}

/* Checks fields of a message that the server uses as index or size. */
static int check_message(struct ps_server *s, const tuttiMsg_t *msg)
{
	const struct train_leaves *leaves = &s->t->leaves;
	size_t nodes = 1, count = s->store.count + (s->ps->rule.sync ? TRAIN_TAIL : 0);

	if (msg->source >= s->workers)
		return train_fail(TRAIN_FAILED,
				  "server %d: rank %d sent a message with tag %d, but the workers "
				  "are ranks 0 to %d",
				  s->number, msg->source, msg->tag, s->workers - 1);
	if (msg->tag != TRAIN_PS_PUSH)
		return TRAIN_OK;
	if (s->ps->rule.sync)
		nodes = train_leaves_nodes(leaves,
					   train_leaves_share(leaves, msg->source, s->workers),
					   NULL);
	if (s->packed && unpack(s, nodes, msg->bytes / sizeof(float)) != nodes * count)
		return train_fail(TRAIN_FAILED,
				  "server %d: worker %d pushed %zu bytes, which are no rows of a "
				  "table and %zu floats behind it",
				  s->number, msg->source, msg->bytes,
				  s->store.count -
					  s->ps->shards.rows[s->number] * train_sparse_width(s->t));
	if (!s->packed && msg->bytes != nodes * count * sizeof(float))
		return train_fail(TRAIN_FAILED,
				  "server %d: worker %d pushed %zu bytes, and its push has %zu",
				  s->number, msg->source, msg->bytes,
				  nodes * count * sizeof(float));
	if (s->ps->rule.sync && s->client[msg->source].clock != s->version)
		return train_fail(TRAIN_FAILED, "server %d: worker %d pushed twice in step %llu",
				  s->number, msg->source, (unsigned long long)s->version + 1);
	return TRAIN_OK;
}

static int handle_push(struct ps_server *s, const tuttiMsg_t *msg)
{
	size_t before = s->nodes;

	s->stats.in_bytes += msg->bytes;
	s->stats.pushes++;
	if (!s->ps->rule.sync) {
		apply(s, msg->source, msg->version);
		return answer_pulls(s);
	}
	store_push(s, msg->source);
	s->stats.in_bytes -= (s->nodes - before) * TRAIN_TAIL * sizeof(float);
	return s->arrived == (size_t)s->workers ? finish_step(s, msg->version) : TRAIN_OK;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Marks dead workers as gone, so that no other worker waits for them. */
static int check_workers(struct ps_server *s)
{
	int rc = TRAIN_OK;

	for (int w = 0; w < s->workers && !rc; w++) {
		tuttiRankState_t state = tuttiRankAlive;

		if (s->client[w].gone)
			continue;
		tuttiCommRankState(s->t->world, w, &state);
		if (state == tuttiRankAlive)
			continue;
		rc = lose(s, w);
		if (!rc)
			rc = answer_pulls(s);
		if (!rc)
			rc = answer_questions(s);
		if (!rc)
			rc = answer_settled(s);
	}
	return rc;
}

/* Receives the next message, in the order of --replay if given. tuttiInProgress: none within
 * POLL_MS. */
static tuttiResult_t receive_next(struct ps_server *s, tuttiMsg_t *msg)
{
	void *to = s->packed ? (void *)s->packed : s->message;
	size_t capacity = message_capacity(s);
	int worker, tag;

	if (train_arrival_order_next(&s->arrivals, &tag, &worker)) {
		tuttiResult_t result;

		do
			result = tuttiMsgRecv(to, capacity, worker, tag, -1, s->t->world, msg);
		while (result == tuttiInProgress);
		return result;
	}
	return tuttiMsgRecv(to, capacity, TUTTI_ANY, TUTTI_ANY, POLL_MS, s->t->world, msg);
}

static int handle(struct ps_server *s, const tuttiMsg_t *msg)
{
	struct ps_client *c;

	if (check_message(s, msg))
		return TRAIN_FAILED;
	c = &s->client[msg->source];
	if (msg->tag != TRAIN_PS_PULL) /* a pull is recorded when it is answered */
		train_arrival_order_note(&s->arrivals, msg->tag, msg->source);
	switch (msg->tag) {
	case TRAIN_PS_PUSH:
		return handle_push(s, msg);
	case TRAIN_PS_PULL:
		c->pull_pending = true;
		return answer_pulls(s);
	case TRAIN_PS_ASK:
		c->asks = true;
		c->asks_stop = msg->version;
		return answer_questions(s);
	case TRAIN_PS_SETTLE:
		c->settling = true;
		if (answer_pulls(s))
			return TRAIN_FAILED;
		return answer_settled(s);
	case TRAIN_PS_STATE:
		return answer(s, msg->source, TRAIN_PS_STATE, 0, s->store.state,
			      s->store.count * sizeof(float));
	case TRAIN_PS_STATS:
		return answer(s, msg->source, TRAIN_PS_STATS, 0, &s->stats, sizeof(s->stats));
	default:
		c->gone = true;
		return answer_pulls(s) ? TRAIN_FAILED : answer_questions(s);
	}
}

static bool any_worker(const struct ps_server *s)
{
	for (int w = 0; w < s->workers; w++)
		if (!s->client[w].gone)
			return true;
	return false;
}

/* After the last worker: a worker that ended has reported the result; if all died, the server
 * reports. */
static int server_result(struct ps_server *s)
{
	for (int w = 0; w < s->workers; w++) {
		tuttiRankState_t state = tuttiRankDead;

		tuttiCommRankState(s->t->world, w, &state);
		if (state != tuttiRankDead)
			return TRAIN_OK;
	}
	return train_fail(TRAIN_FAILED,
			  "server %d: all %d workers died; --resume continues from the "
			  "checkpoint of --save",
			  s->number, s->workers);
}

/* Receives the initial parameters, then a HELLO from every worker: over the direct connection
 * the server detects a worker's death even if all ranks that would forward the news die too. */
static int initialize(struct ps_server *s)
{
	size_t bytes = s->store.count * sizeof(float);
	tuttiResult_t result;
	int rc = TRAIN_OK;

	do
		result = tuttiMsgRecv(s->message, 2 * bytes, 0, TRAIN_PS_INIT, -1, s->t->world,
				      NULL);
	while (result == tuttiInProgress);
	if (result != tuttiSuccess)
		return train_check(result, s->t->world);
	memcpy(s->store.parameters, s->message, bytes);
	memcpy(s->store.state, s->message + s->store.count, bytes);
	for (int w = 0; w < s->workers && !rc; w++) {
		do
			result = tuttiMsgRecv(NULL, 0, w, TRAIN_PS_HELLO, -1, s->t->world, NULL);
		while (result == tuttiInProgress);
		if (result == tuttiSuccess)
			rc = answer(s, w, TRAIN_PS_HELLO, 0, NULL, 0);
		else if (result != tuttiRemoteError) /* check_workers handles deaths */
			rc = train_check(result, s->t->world);
	}
	return rc;
}

static int serve(struct ps_server *s)
{
	int rc = initialize(s);

	while (!rc && any_worker(s)) {
		tuttiMsg_t msg;
		tuttiResult_t result = receive_next(s, &msg);

		if (result == tuttiSuccess)
			rc = handle(s, &msg);
		else if (result == tuttiInProgress || result == tuttiRemoteError)
			rc = check_workers(s);
		else
			rc = train_check(result, s->t->world);
	}
	return rc ? rc : server_result(s);
}

int train_ps_server_run(struct train_rank *t, struct train_ps *ps)
{
	struct ps_server s = { .t = t, .ps = ps, .workers = t->nranks };
	int rc, closed;

	s.number = t->rank - t->nranks;
	s.handed = t->first_step * shares(&s);
	s.pause = train_next_due(t, t->first_step);
	rc = open_server(&s);
	if (!rc)
		rc = serve(&s);
	closed = close_server(&s);
	return rc ? rc : closed;
}
