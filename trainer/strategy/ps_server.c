/*
 * ps_server.c - a parameter server: processes messages from any worker in order of arrival
 * (ps.h)
 *
 * One thread, one message at a time; no lock is held during transfers. The server ends when all
 * workers have sent BYE or are dead; the death of all workers is a failure. --record writes the
 * order of pushes and pulls; --replay repeats the order, for the same bits.
 */
#include "trainer/strategy/ps_server.h"

#include "trainer/rank/due_steps.h"
#include "trainer/rank/fault.h"
#include "trainer/rank/learning_rate.h"
#include "trainer/strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 200 }; /* interval of liveness checks while no message arrives */

/* ---- open and close ------------------------------------------------------------------------- */

/* Bytes of the largest message. */
static size_t message_capacity(const struct train_ps_server *s)
{
	return s->table.sparse
		       ? train_ps_table_words(&s->table) * sizeof(*s->packed)
		       : (s->ps->rule.sync ? s->t->leaves.count + 1 : 2) *
				 (s->ps->shards.count[s->number] + TRAIN_TAIL) * sizeof(float);
}

static int open_server(struct train_ps_server *s)
{
	struct train_rank *t = s->t;
	const struct train_config *c = t->config;
	size_t count = s->ps->shards.count[s->number] + TRAIN_TAIL;
	size_t capacity = s->ps->rule.sync && !s->ps->sparse ? t->leaves.count + 1 : 1;
	int rc = train_ps_store_open(&s->store, count - TRAIN_TAIL, (float)c->momentum,
				     s->ps->rule.adagrad && c->adagrad);

	s->client = calloc((size_t)s->workers, sizeof(*s->client));
	s->node = calloc(t->leaves.count + 1, sizeof(*s->node));
	s->at = calloc(capacity, sizeof(*s->at));
	s->received = malloc(capacity * count * sizeof(float));
	s->message = malloc((2 + capacity) * count * sizeof(float));
	if (!rc)
		rc = train_ps_table_open(&s->table, t, s->ps, s->number);
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
static int close_server(struct train_ps_server *s)
{
	int rc = train_arrival_order_close(&s->arrivals);

	train_ps_store_close(&s->store);
	train_ps_table_close(&s->table);
	for (int w = 0; s->client && w < s->workers; w++)
		free(s->client[w].wanted);
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
static int lose(struct train_ps_server *s, int worker)
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

int train_ps_reply(struct train_ps_server *s, int worker, int tag, uint64_t version, const void *at,
		   size_t bytes)
{
	tuttiResult_t result = tuttiMsgSend(at, bytes, worker, tag, version, s->t->world);

	return result == tuttiRemoteError ? lose(s, worker) : train_check(result, s->t->world);
}

/* Answers a pull. */
static int send_parameters(struct train_ps_server *s, int worker)
{
	const struct train_ps_client *c = &s->client[worker];
	size_t words = s->store.count;

	if (s->table.sparse)
		words = c->wanted ? train_ps_table_pack(&s->table, &s->store, c->wanted, c->nwanted,
							s->packed)
				  : train_ps_table_pack_changes(&s->table, &s->store, c->since,
								s->packed);
	s->stats.out_bytes += words * sizeof(float);
	return train_ps_reply(s, worker, TRAIN_PS_PARAMETERS, s->version,
			      s->table.sparse ? (void *)s->packed : s->store.parameters,
			      words * sizeof(float));
}

/* The clock of the slowest worker in training; a worker's first device counts its steps. */
static uint64_t slowest(const struct train_ps_server *s)
{
	uint64_t least = UINT64_MAX;

	for (int w = 0; w < s->workers; w += train_ps_devices(s))
		if (!s->client[w].gone && !s->client[w].settling && s->client[w].clock < least)
			least = s->client[w].clock;
	return least;
}

/* Answers the pending pulls that --ssp permits. */
static int answer_pulls(struct train_ps_server *s)
{
	int64_t bound = s->ps->rule.ssp && !s->arrivals.replay ? s->t->config->ssp : -1;
	uint64_t least = slowest(s);
	int rc = TRAIN_OK;

	for (int w = 0; w < s->workers && !rc; w++) {
		struct train_ps_client *c = &s->client[w];

		if (!c->pull_pending ||
		    (bound >= 0 && c->clock > least && c->clock - least > (uint64_t)bound))
			continue;
		c->pull_pending = false;
		train_arrival_order_note(&s->arrivals, TRAIN_PS_PULL, w);
		rc = send_parameters(s, w);
	}
	return rc;
}

/* Answers SETTLE once every live worker has settled. */
static int answer_settled(struct train_ps_server *s)
{
	int left = 0, rc = TRAIN_OK;

	for (int w = 0; w < s->workers; w++) {
		if (!s->client[w].gone && !s->client[w].settling)
			return TRAIN_OK;
		left += !s->client[w].gone;
	}
	if (s->handed == s->pause * train_ps_shares(s))
		s->pause = train_next_due(s->t, s->pause);
	for (int w = 0; w < s->workers && !rc; w++) {
		if (!s->client[w].settling || s->client[w].gone)
			continue;
		s->client[w].settling = false;
		rc = train_ps_reply(s, w, TRAIN_PS_SETTLED, (uint64_t)left, s->store.parameters,
				    s->store.count * sizeof(float));
	}
	return rc;
}

/* ---- pushes --------------------------------------------------------------------------------- */

/* The learning rate of the current step; an asynchronous step is one update per worker. */
static float rate_now(const struct train_ps_server *s)
{
	uint64_t steps = train_steps(s->t);
	uint64_t each = s->ps->rule.sync ? 1 : train_ps_shares(s);
	uint64_t step = s->t->first_step + s->version / each + 1;

	return (float)train_learning_rate(s->t->config, step < steps ? step : steps, steps);
}

/* Of a sparse table the gradient is in s->table. Returns the tail behind the gradient. */
static const float *descend(struct train_ps_server *s, const float *gradient, float scale)
{
	float of = scale / (float)(s->t->leaves.batch * s->t->data->positions);
	float rate = rate_now(s);
	const float *tail;

	s->version++;
	if (s->table.sparse) {
		tail = train_ps_table_descend(&s->table, &s->store, of, rate, s->version);
	} else {
		train_ps_store_descend(&s->store, 0, s->store.count, gradient, of, rate);
		tail = gradient + s->store.count;
	}
	s->stats.applied++;
	s->t->step = s->version;
	train_fault_kill(s->t);
	return tail;
}

/* Asynchronous: applies a push at once, unless --stale-drop drops it. */
static void apply(struct train_ps_server *s, int worker, uint64_t version)
{
	const struct train_config *c = s->t->config;
	uint64_t stale = s->version - version, gap;
	bool drop = s->ps->rule.drop;

	s->stats.stale_sum += stale;
	s->stats.stale[stale < TRAIN_PS_STALE_MAX ? stale : TRAIN_PS_STALE_MAX - 1]++;
	s->stats.stale_most = stale > s->stats.stale_most ? stale : s->stats.stale_most;
	s->client[worker].clock++;
	for (int w = 0; w < s->workers && s->stats.pushes <= train_ps_warm_pushes(s); w++)
		s->client[w].clock = s->client[worker].clock;
	gap = slowest(s);
	gap = s->client[worker].clock > gap ? s->client[worker].clock - gap : 0;
	s->stats.gap_most = gap > s->stats.gap_most ? gap : s->stats.gap_most;
	if (drop && c->stale_drop >= 0 && stale > (uint64_t)c->stale_drop) {
		s->stats.dropped++;
		train_ps_table_drop(&s->table);
	} else {
		descend(s, s->message,
			drop && c->stale_scale ? 1.0f / (1.0f + (float)stale) : 1.0f);
	}
}

/* Synchronous: the nodes of a worker's push, and their number among those of all. */
static size_t nodes_of(struct train_ps_server *s, int worker, size_t *ret_first)
{
	const struct train_leaves *l = &s->t->leaves;
	size_t first = 0;

	for (int w = 0; w < worker; w++)
		first += train_leaves_nodes(l, train_leaves_share(l, w, s->workers), NULL);
	*ret_first = first;
	return train_leaves_nodes(l, train_leaves_share(l, worker, s->workers), s->node + first);
}

/* Synchronous: stores a push at the worker's position. Nodes are in rank order, so the order of
 * arrival does not change the bits. */
static void store_push(struct train_ps_server *s, int worker)
{
	size_t count = s->store.count + TRAIN_TAIL, first, n = nodes_of(s, worker, &first);

	if (!s->table.sparse)
		memcpy(s->received + first * count, s->message, n * count * sizeof(float));
	for (size_t i = first; i < first + n && !s->table.sparse; i++)
		s->at[i] = s->received + i * count;
	s->nodes += n;
	s->arrived++;
	s->client[worker].clock++;
}

/* All pushes of a step have arrived: sums, descends, sends parameters and tail to all workers. Of a
 * sparse table they pull rows. */
static int finish_step(struct train_ps_server *s, uint64_t step)
{
	size_t count = s->table.sparse ? 0 : s->store.count, bytes = count * sizeof(float);
	int rc = TRAIN_OK;

	if (!s->table.sparse)
		train_leaves_fold(&s->t->leaves, s->t->comm_device, s->node, s->at, &s->nodes,
				  count + TRAIN_TAIL);
	memcpy(s->message + count, descend(s, s->at[0], 1.0f), TRAIN_TAIL * sizeof(float));
	memcpy(s->message, s->store.parameters, bytes);
	for (int w = 0; w < s->workers && !rc; w++) {
		s->stats.out_bytes += bytes;
		rc = train_ps_reply(s, w, TRAIN_PS_STEPPED, step, s->message,
				    bytes + TRAIN_TAIL * sizeof(float));
	}
	s->nodes = s->arrived = 0;
	return rc;
}

/* Checks fields of a message that the server uses as index or size. */
static int check_message(struct train_ps_server *s, const tuttiMsg_t *msg)
{
	size_t nodes = 1, count = s->store.count + (s->ps->rule.sync ? TRAIN_TAIL : 0), first = 0;
	size_t words = msg->bytes / sizeof(float);

	if (msg->source >= s->workers)
		return train_fail(TRAIN_FAILED,
				  "server %d: rank %d sent a message with tag %d, but the workers "
				  "are ranks 0 to %d",
				  s->number, msg->source, msg->tag, s->workers - 1);
	if (msg->tag == TRAIN_PS_PULL && !train_ps_table_has(&s->table, s->packed, words))
		return train_fail(TRAIN_FAILED,
				  "server %d: worker %d asked for rows that are not ascending "
				  "numbers below %zu",
				  s->number, msg->source, s->table.rows);
	if (msg->tag != TRAIN_PS_PUSH)
		return TRAIN_OK;
	if (s->ps->rule.sync && s->client[msg->source].clock != s->version)
		return train_fail(TRAIN_FAILED, "server %d: worker %d pushed twice in step %llu",
				  s->number, msg->source, (unsigned long long)s->version + 1);
	if (s->ps->rule.sync)
		nodes = nodes_of(s, msg->source, &first);
	if (s->table.sparse &&
	    !train_ps_table_push(&s->table, s->packed, words, s->node + first, first, nodes))
		return train_fail(TRAIN_FAILED,
				  "server %d: worker %d pushed %zu bytes, which are no rows of the "
				  "table with the parameters behind it",
				  s->number, msg->source, msg->bytes);
	if (!s->table.sparse && msg->bytes != nodes * count * sizeof(float))
		return train_fail(TRAIN_FAILED,
				  "server %d: worker %d pushed %zu bytes, and its push has %zu",
				  s->number, msg->source, msg->bytes,
				  nodes * count * sizeof(float));
	return TRAIN_OK;
}

static int handle_push(struct train_ps_server *s, const tuttiMsg_t *msg)
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

static int handle_pull(struct train_ps_server *s, struct train_ps_client *c, const tuttiMsg_t *msg)
{
	s->stats.in_bytes += msg->bytes;
	c->pull_pending = true;
	c->since = msg->version;
	c->nwanted = msg->bytes / sizeof(*c->wanted);
	if (msg->tag == TRAIN_PS_PULL && s->table.sparse) {
		free(c->wanted);
		c->wanted = malloc(msg->bytes + 1);
		if (!c->wanted)
			return train_fail(TRAIN_FAILED, "no memory for the numbers of %zu rows",
					  c->nwanted);
		memcpy(c->wanted, s->packed, msg->bytes);
	}
	return answer_pulls(s);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Marks dead workers as gone, so that no other worker waits for them. */
static int check_workers(struct train_ps_server *s)
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
			rc = train_ps_answer_questions(s);
		if (!rc)
			rc = answer_settled(s);
	}
	return rc;
}

/* Receives the next message, in the order of --replay if given. tuttiInProgress: none within
 * POLL_MS. */
static tuttiResult_t receive_next(struct train_ps_server *s, tuttiMsg_t *msg)
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

static int handle(struct train_ps_server *s, const tuttiMsg_t *msg)
{
	struct train_ps_client *c;

	if (check_message(s, msg))
		return TRAIN_FAILED;
	c = &s->client[msg->source];
	if (msg->tag != TRAIN_PS_PULL &&
	    msg->tag != TRAIN_PS_FETCH) /* a pull is recorded when it is answered */
		train_arrival_order_note(&s->arrivals, msg->tag, msg->source);
	switch (msg->tag) {
	case TRAIN_PS_PUSH:
		return handle_push(s, msg);
	case TRAIN_PS_PULL:
	case TRAIN_PS_FETCH:
		return handle_pull(s, c, msg);
	case TRAIN_PS_ASK:
		c->asks = true;
		c->asks_stop = msg->version;
		return train_ps_answer_questions(s);
	case TRAIN_PS_SETTLE:
		c->settling = true;
		if (answer_pulls(s))
			return TRAIN_FAILED;
		return answer_settled(s);
	case TRAIN_PS_STATE:
		return train_ps_reply(s, msg->source, TRAIN_PS_STATE, 0, s->store.state,
				      s->store.count * sizeof(float));
	case TRAIN_PS_STATS:
		return train_ps_reply(s, msg->source, TRAIN_PS_STATS, 0, &s->stats,
				      sizeof(s->stats));
	default:
		c->gone = true;
		return answer_pulls(s) ? TRAIN_FAILED : train_ps_answer_questions(s);
	}
}

static bool any_worker(const struct train_ps_server *s)
{
	for (int w = 0; w < s->workers; w++)
		if (!s->client[w].gone)
			return true;
	return false;
}

/* After the last worker: a worker that ended has reported the result; if all died, the server
 * reports. */
static int server_result(struct train_ps_server *s)
{
	for (int w = 0; w < s->workers; w++) {
		tuttiRankState_t state = tuttiRankDead;

		tuttiCommRankState(s->t->world, w, &state);
		if (state != tuttiRankDead)
			return TRAIN_OK;
	}
	return train_fail(TRAIN_FAILED,
			  "server %d: all workers (%d) died; --resume continues from the "
			  "checkpoint of --save",
			  s->number, s->workers);
}

/* Receives the initial parameters, then a HELLO from every worker: over the direct connection
 * the server detects a worker's death even if all ranks that would forward the news die too. */
static int initialize(struct train_ps_server *s)
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
	train_ps_table_start(&s->table, &s->store);
	for (int w = 0; w < s->workers && !rc; w++) {
		do
			result = tuttiMsgRecv(NULL, 0, w, TRAIN_PS_HELLO, -1, s->t->world, NULL);
		while (result == tuttiInProgress);
		if (result == tuttiSuccess)
			rc = train_ps_reply(s, w, TRAIN_PS_HELLO, 0, NULL, 0);
		else if (result != tuttiRemoteError) /* check_workers handles deaths */
			rc = train_check(result, s->t->world);
	}
	return rc;
}

static int serve(struct train_ps_server *s)
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
	struct train_ps_server s = { .t = t, .ps = ps, .workers = t->nranks };
	int rc, closed;

	s.number = t->rank - t->nranks;
	s.handed = t->first_step * train_ps_shares(&s);
	s.pause = train_next_due(t, t->first_step);
	rc = open_server(&s);
	if (!rc)
		rc = serve(&s);
	closed = close_server(&s);
	return rc ? rc : closed;
}
