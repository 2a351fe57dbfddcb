/* ps_worker.c - parameter servers, worker side (ps.h) */
#include "trainer/strategy/ps.h"

#include "trainer/rank/due_steps.h"
#include "trainer/strategy/arrival_order.h"
#include "trainer/strategy/sparse_rows.h"
#include "trainer/strategy/survive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server's rank in world; servers follow all workers, dead ones included. */
static int server_rank(const struct train_rank *t, int server)
{
	return t->first_server + server;
}

/* The server that a worker's step i of a loop over all servers is about. */
static int server_in_order(const struct train_rank *t, int i)
{
	return t->config->stagger ? (t->rank + i) % t->servers : i;
}

static size_t largest(const struct train_shards *s)
{
	size_t most = 0;

	for (int i = 0; i < s->servers; i++)
		most = s->count[i] > most ? s->count[i] : most;
	return most;
}

/* Converts the result of a message; a dead server is an error with advice. */
static int check_server(const struct train_rank *t, int server, tuttiResult_t result)
{
	tuttiRankState_t state = tuttiRankAlive;

	if (result == tuttiRemoteError)
		tuttiCommRankState(t->world, server_rank(t, server), &state);
	if (state == tuttiRankAlive)
		return train_check(result, t->world);
	return train_fail(TRAIN_FAILED,
			  "server %d (rank %d) %s, and its part of the parameters is lost; %s",
			  server, server_rank(t, server),
			  state == tuttiRankLeft ? "has left" : "died",
			  t->config->save ? "continue from the last checkpoint with --resume"
					  : "--save and --save-every write checkpoints "
					    "to continue from");
}

static int send_to(struct train_rank *t, int server, int tag, uint64_t version, const void *at,
		   size_t bytes)
{
	return check_server(t, server,
			    tuttiMsgSend(at, bytes, server_rank(t, server), tag, version,
					 t->world));
}

static int receive_from(struct train_rank *t, int server, int tag, void *at, size_t bytes,
			tuttiMsg_t *msg)
{
	tuttiResult_t result;

	do /* a server may wait for other workers without limit: only its death ends the loop */
		result = tuttiMsgRecv(at, bytes, server_rank(t, server), tag, -1, t->world, msg);
	while (result == tuttiInProgress);
	return check_server(t, server, result);
}

/* ---- open and close ------------------------------------------------------------------------- */

/* Worker 0 sends parameters and optimizer state to the servers. */
static int init_servers(struct train_rank *t, struct train_ps *ps)
{
	const float *from = train_parameters_download(t);
	int rc = TRAIN_OK;

	for (int s = 0; s < ps->shards.servers && !rc; s++) {
		size_t count = ps->shards.count[s];

		train_shards_pack(&ps->shards, s, from, ps->message);
		memset(ps->message + count, 0, count * sizeof(float));
		if (t->resumed_state)
			train_shards_pack(&ps->shards, s, t->resumed_state, ps->message + count);
		rc = send_to(t, s, TRAIN_PS_INIT, 0, ps->message, 2 * count * sizeof(float));
	}
	return rc;
}

/* Connects to every server; see initialize in ps_server.c. */
static int hello(struct train_rank *t)
{
	int rc = TRAIN_OK;

	for (int s = 0; s < t->servers && !rc; s++)
		rc = send_to(t, s, TRAIN_PS_HELLO, 0, NULL, 0);
	for (int s = 0; s < t->servers && !rc; s++)
		rc = receive_from(t, s, TRAIN_PS_HELLO, NULL, 0, NULL);
	return rc;
}

int train_ps_open(struct train_rank *t, struct train_ps *ps, struct train_ps_rule rule)
{
	size_t nodes = t->leaves.count + 2, rows = train_sparse_rows(t);
	int rc;

	ps->rule = rule;
	ps->sparse = rows > 0;
	rc = rule.variables ? train_shards_of_variables(&ps->shards, &t->model, t->servers)
			    : train_shards_of_ranges(&ps->shards, &t->model, t->servers);
	if (!rc && rule.log)
		rc = train_arrival_order_match(t, t->nranks);
	if (rc)
		return rc;
	ps->message = malloc((nodes * (largest(&ps->shards) + 1 + rows + TRAIN_TAIL)) *
			     sizeof(float));
	ps->version = calloc((size_t)t->servers, sizeof(*ps->version));
	if (rows) /* a character touches one */
		ps->touched = calloc(t->leaves.batch * t->data->positions, sizeof(*ps->touched));
	if (!ps->message || !ps->version || (rows && !ps->touched))
		return train_fail(TRAIN_FAILED, "no memory for messages to %d servers", t->servers);
	if (train_is_server(t))
		return TRAIN_OK;
	if (t->rank == 0)
		rc = init_servers(t, ps);
	if (!rc)
		rc = hello(t);
	if (!rc)
		rc = train_parameters_bcast(t);
	if (!rc) /* rows that no batch has touched */
		train_parameters_download(t);
	return rc;
}

void train_ps_close(struct train_rank *t, struct train_ps *ps)
{
	for (int s = 0; !train_is_server(t) && ps->message && s < ps->shards.servers; s++)
		tuttiMsgSend(NULL, 0, server_rank(t, s), TRAIN_PS_BYE, 0, t->world);
	free(ps->message);
	free(ps->version);
	free(ps->touched);
	train_shards_close(&ps->shards);
}

/* ---- push and pull -------------------------------------------------------------------------- */

/* Row i of a gradient that has touched rows only, if it is not 0 and the server has it; *ret_row: its number there. */
static bool has_row(const struct train_rank *t, const struct train_ps *ps, int server,
		    const float *node, size_t i, uint32_t *ret_row)
{
	size_t width = train_sparse_width(t);

	return !train_row_is_zero(node + i * width, width) &&
	       train_shards_rows(&ps->shards, server, width, &t->model.touched[i], 1, ret_row);
}

/* The same as pack for a gradient that has touched rows only. */
static size_t pack_touched(const struct train_rank *t, const struct train_ps *ps, int server,
			   const float *node, float *to)
{
	size_t width = train_sparse_width(t), table = ps->shards.rows[server] * width;
	uint32_t *number = (uint32_t *)to, n = 0, row;
	float *at;

	for (size_t i = 0; i < t->model.ntouched; i++)
		if (has_row(t, ps, server, node, i, &row))
			number[1 + n++] = row;
	number[0] = n;
	at = to + 1 + n;
	for (size_t i = 0; i < t->model.ntouched; i++)
		if (has_row(t, ps, server, node, i, &row)) {
			memcpy(at, node + i * width, width * sizeof(*at));
			at += width;
		}
	train_shards_pack_from(&ps->shards, server, table, node, at);
	return (size_t)(at - to) + ps->shards.count[server] - table;
}

/* Packs a node for a server: of a sparse table its rows. Returns the number of floats. */
static size_t pack(struct train_rank *t, struct train_ps *ps, int server, const float *node,
		   float *to)
{
	size_t rows = ps->shards.rows[server], count = ps->shards.count[server], table, words;
	float *shard = to + 1 + rows; /* all rows fit in front of the parameters behind the table */

	if (!ps->sparse) {
		train_shards_pack(&ps->shards, server, node, to);
		return count;
	}
	if (t->model.touched)
		return pack_touched(t, ps, server, node, to);
	train_shards_pack(&ps->shards, server, node, shard);
	table = rows * train_sparse_width(t);
	words = train_rows_pack(shard, rows, train_sparse_width(t), (uint32_t *)to);
	memmove(to + words, shard + table, (count - table) * sizeof(*to));
	return words + count - table;
}

int train_ps_send(struct train_rank *t, struct train_ps *ps, const float *gradients, size_t nodes,
		  size_t stride)
{
	size_t tail = ps->rule.sync ? TRAIN_TAIL : 0;
	int rc = TRAIN_OK;

	for (int k = 0; k < ps->shards.servers && !rc; k++) {
		float *to = ps->message;
		int s = server_in_order(t, k);

		for (size_t i = 0; i < nodes; i++) {
			to += pack(t, ps, s, gradients + i * stride, to);
			memcpy(to, gradients + i * stride + t->model.parameters,
			       tail * sizeof(float));
			to += tail;
		}
		rc = send_to(t, s, TRAIN_PS_PUSH, ps->rule.sync ? t->step : ps->version[s],
			     ps->message, (size_t)(to - ps->message) * sizeof(float));
	}
	return rc;
}

uint64_t train_ps_push_bytes(struct train_rank *t, const struct train_ps *ps,
			     const float *gradients, size_t nodes, size_t stride)
{
	size_t words = nodes * t->model.parameters;
	const struct train_tensor *table = t->model.tensors;

	for (size_t i = 0; i < nodes && ps->sparse;
	     i++) /* a server's message has a number of rows */
		words += train_rows_pack(gradients + i * stride,
					 t->model.touched ? t->model.ntouched : table->rows,
					 table->columns, NULL) -
			 1 + (size_t)ps->shards.servers - table->count;
	return words * sizeof(float);
}

int train_ps_push(struct train_rank *t, struct train_ps *ps, const float *gradients, size_t nodes,
		  size_t stride)
{
	t->message_bytes += train_ps_push_bytes(t, ps, gradients, nodes, stride);
	return train_ps_send(t, ps, gradients, nodes, stride);
}

/* This worker's parameters in host memory; train_parameters_upload follows. */
static float *host_parameters(struct train_rank *t)
{
	return t->host_parameters ? t->host_parameters : t->parameters;
}

/* Receives a shard from each server. */
static int receive_shards(struct train_rank *t, struct train_ps *ps, int tag, float *to,
			  uint64_t *ret_version)
{
	int rc = TRAIN_OK;

	for (int i = 0; i < ps->shards.servers && !rc; i++) {
		int s = server_in_order(t, i);
		tuttiMsg_t msg;

		rc = receive_from(t, s, tag, ps->message, ps->shards.count[s] * sizeof(float),
				  &msg);
		if (rc)
			break;
		train_shards_unpack(&ps->shards, s, ps->message, to);
		*ret_version = msg.version;
	}
	return rc;
}

/* Copies the rows of a message, and the parameters behind the table, to their places. Returns false: it has none. */
static bool unpack_rows(const struct train_rank *t, const struct train_ps *ps, int server,
			size_t words, float *to)
{
	const struct train_shards *s = &ps->shards;
	size_t width = train_sparse_width(t), table = s->rows[server] * width;
	struct train_row_list l;
	size_t read = train_row_list_open(&l, (const uint32_t *)ps->message, words, s->rows[server],
					  width);

	if (!read || words - read != s->count[server] - table)
		return false;
	for (uint32_t i = 0; i < l.n; i++)
		memcpy(to + train_shards_place(s, server, l.row[i] * width), l.value + i * width,
		       width * sizeof(*to));
	train_shards_unpack_from(s, server, table, ps->message + read, to);
	return true;
}

int train_ps_receive(struct train_rank *t, struct train_ps *ps, float *to)
{
	int rc = TRAIN_OK;

	for (int i = 0; i < ps->shards.servers && !rc; i++) {
		int s = server_in_order(t, i);
		size_t most = ps->shards.count[s] + (ps->sparse ? 1 + ps->shards.rows[s] : 0);
		tuttiMsg_t msg;

		rc = receive_from(t, s, TRAIN_PS_PARAMETERS, ps->message, most * sizeof(float),
				  &msg);
		if (rc)
			break;
		ps->version[s] = msg.version;
		if (!ps->sparse)
			train_shards_unpack(&ps->shards, s, ps->message, to);
		else if (!unpack_rows(t, ps, s, msg.bytes / sizeof(float), to))
			rc = train_fail(TRAIN_FAILED,
					"server %d sent %zu bytes that are no rows of its table", s,
					msg.bytes);
	}
	return rc;
}

int train_ps_request(struct train_rank *t, struct train_ps *ps)
{
	int rc = TRAIN_OK;

	for (int i = 0; i < ps->shards.servers && !rc; i++) {
		int s = server_in_order(t, i);

		rc = send_to(t, s, TRAIN_PS_FETCH, ps->version[s], NULL, 0);
	}
	return rc;
}

void train_ps_touch(struct train_rank *t, struct train_ps *ps, const struct train_batch *batch)
{
	if (ps->sparse)
		ps->ntouched = train_touched_rows(t, batch, ps->touched);
}

/* Requests the rows ps->touched, or a shard. */
static int request_rows(struct train_rank *t, struct train_ps *ps)
{
	size_t width = ps->sparse ? train_sparse_width(t) : 0, bytes = 0;
	uint32_t *rows = (uint32_t *)ps->message;
	int rc = TRAIN_OK;

	for (int i = 0; i < ps->shards.servers && !rc; i++) {
		int s = server_in_order(t, i);

		if (ps->sparse)
			bytes = train_shards_rows(&ps->shards, s, width, ps->touched, ps->ntouched,
						  rows) *
				sizeof(*rows);
		t->message_bytes += bytes;
		rc = send_to(t, s, TRAIN_PS_PULL, 0, rows, bytes);
	}
	return rc;
}

int train_ps_pull(struct train_rank *t, struct train_ps *ps)
{
	uint64_t wait_begin = train_time_ns();
	int rc = request_rows(t, ps);

	if (!rc)
		rc = train_ps_receive(t, ps, host_parameters(t));
	train_parameters_upload(t);
	train_add_exposed(t, wait_begin);
	return rc;
}

int train_ps_finish(struct train_rank *t, struct train_ps *ps)
{
	uint64_t wait_begin = train_time_ns();
	int rc = TRAIN_OK;

	for (int i = 0; i < ps->shards.servers && !rc; i++) {
		int s = server_in_order(t, i);
		size_t count = ps->sparse ? 0 : ps->shards.count[s];

		rc = receive_from(t, s, TRAIN_PS_STEPPED, ps->message,
				  (count + TRAIN_TAIL) * sizeof(float), NULL);
		if (rc)
			break;
		if (count)
			train_shards_unpack(&ps->shards, s, ps->message, host_parameters(t));
		memcpy(t->comm_buffer + t->model.parameters, ps->message + count,
		       TRAIN_TAIL * sizeof(float));
	}
	if (!ps->sparse)
		train_parameters_upload(t);
	train_add_exposed(t, wait_begin);
	return rc;
}

int train_ps_question(struct train_rank *t, bool stop)
{
	return send_to(t, 0, TRAIN_PS_ASK, stop, NULL, 0);
}

int train_ps_answer(struct train_rank *t, int workers, struct train_handout *ret_handout)
{
	struct train_handout h = { 0 };
	uint64_t wait_begin = train_time_ns();
	int rc = receive_from(t, 0, TRAIN_PS_ASK, &h, sizeof(h), NULL);

	train_add_exposed(t, wait_begin);
	if (rc)
		return rc;
	if (h.shares != (uint64_t)workers || h.share >= h.shares || h.step < t->first_step ||
	    h.step > train_steps(t) || (h.kind == TRAIN_HANDOUT_SHARE && !h.step))
		return train_fail(TRAIN_FAILED,
				  "server 0 handed out share %" PRIu64 " of %" PRIu64
				  " of step %" PRIu64 ", which this training does not have",
				  h.share, h.shares, h.step);
	*ret_handout = h;
	return TRAIN_OK;
}

int train_ps_ask(struct train_rank *t, int workers, bool stop, struct train_handout *ret_handout)
{
	int rc = train_ps_question(t, stop);

	return rc ? rc : train_ps_answer(t, workers, ret_handout);
}

/* ---- settle --------------------------------------------------------------------------------- */

static void add_stats(struct train_ps_stats *all, const struct train_ps_stats *s)
{
	all->in_bytes += s->in_bytes;
	all->out_bytes += s->out_bytes;
	all->pushes += s->pushes;
	all->dropped += s->dropped;
	all->applied += s->applied;
	all->stale_sum += s->stale_sum;
	all->stale_most = s->stale_most > all->stale_most ? s->stale_most : all->stale_most;
	all->gap_most = s->gap_most > all->gap_most ? s->gap_most : all->gap_most;
	for (int i = 0; i < TRAIN_PS_STALE_MAX; i++)
		all->stale[i] += s->stale[i];
}

/* Worker 0: requests the statistics of every server and prints a line for each. */
static int request_stats(struct train_rank *t, struct train_ps *ps)
{
	int rc = TRAIN_OK;

	memset(&ps->all, 0, sizeof(ps->all));
	for (int i = 0; i < ps->shards.servers && !rc; i++) {
		struct train_ps_stats s;

		rc = send_to(t, i, TRAIN_PS_STATS, 0, NULL, 0);
		if (!rc)
			rc = receive_from(t, i, TRAIN_PS_STATS, &s, sizeof(s), NULL);
		if (rc)
			break;
		add_stats(&ps->all, &s);
		printf("server %d  %zu parameters, %" PRIu64 " pushes, %" PRIu64
		       " bytes in, %" PRIu64 " out\n",
		       i, ps->shards.count[i], s.pushes, s.in_bytes, s.out_bytes);
	}
	return rc;
}

int train_ps_settle(struct train_rank *t, struct train_ps *ps, bool last)
{
	uint64_t left = 0;
	int rc = TRAIN_OK;

	for (int s = 0; s < ps->shards.servers && !rc; s++)
		rc = send_to(t, s, TRAIN_PS_SETTLE, 0, NULL, 0);
	if (!rc)
		rc = receive_shards(t, ps, TRAIN_PS_SETTLED, host_parameters(t), &left);
	train_parameters_upload(t);
	if (!rc && left < (uint64_t)t->nranks)
		rc = train_regroup(t);
	if (!rc && last && t->rank == 0)
		rc = request_stats(t, ps);
	return rc;
}

int train_ps_state(struct train_rank *t, struct train_ps *ps, float *host)
{
	int rc = TRAIN_OK;

	for (int s = 0; s < ps->shards.servers && !rc; s++) {
		rc = send_to(t, s, TRAIN_PS_STATE, 0, NULL, 0);
		if (!rc)
			rc = receive_from(t, s, TRAIN_PS_STATE, ps->message,
					  ps->shards.count[s] * sizeof(float), NULL);
		if (!rc)
			train_shards_unpack(&ps->shards, s, ps->message, host);
	}
	return rc;
}

void train_ps_report(const struct train_ps *ps)
{
	const struct train_ps_stats *a = &ps->all;
	int last = TRAIN_PS_STALE_MAX;

	printf("\"server_bytes_in\":%" PRIu64 ",\"server_bytes_out\":%" PRIu64
	       ",\"pushes\":%" PRIu64 ",\"applied\":%" PRIu64 ",\"dropped\":%" PRIu64 ",",
	       a->in_bytes, a->out_bytes, a->pushes, a->applied, a->dropped);
	printf("\"staleness_mean\":%.3f,\"staleness_max\":%" PRIu64 ",\"clock_gap_max\":%" PRIu64
	       ",\"staleness\":[",
	       a->pushes ? (double)a->stale_sum / (double)a->pushes : 0.0, a->stale_most,
	       a->gap_most);
	while (last > 1 && !a->stale[last - 1])
		last--;
	for (int i = 0; i < last; i++)
		printf("%s%" PRIu64, i ? "," : "", a->stale[i]);
	printf("],");
}
