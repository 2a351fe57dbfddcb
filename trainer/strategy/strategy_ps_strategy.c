/*
 * strategy_ps_strategy.c - asynchronous parameter servers, whole variables, workers of several
 * devices
 *
 *	placement: whole variables, the largest first, each on the server with the smallest shard so
 *		far; a variable larger than a quarter of a server's fair share is cut
 *	worker, of --devices ranks, for each share that server 0 hands out (strategy_ps_async.c):
 *		parameters = pull(), every variable from its server; broadcast to the worker's devices
 *		g = the devices' gradients, summed on the first in rank order
 *		push(g), every variable to its server
 *	server, for its variables, on each push: as ps-async
 *
 * The death of a worker does not stop the others. A worker that loses a device continues with
 * the other devices; the first of them talks to the servers. Row of the table in strategy.c;
 * calls ps_worker.c.
 *
 * Source: TensorFlow's ParameterServerStrategy.
 */
#include "trainer/strategy/ps.h"
#include "tools/plural.h"
#include "trainer/strategy/sparse_rows.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_strategy_state {
	struct train_ps ps;
	tuttiComm_t devices; /* the ranks of this worker */
	int device, ndevices;
	float *all; /* first device: the gradients of all devices */
	bool stop;  /* first device: a device received a stop signal in the last step */
	/* of a sparse table: the number of rows that a device touches, then the rows; first device: of
	 * all devices */
	uint32_t *rows, *all_rows;
};

/* Prints the placement of variables and the size of each shard. */
static void print_placement(const struct train_rank *t, const struct train_shards *s)
{
	for (size_t i = 0; i < s->pieces; i++)
		printf("placed    parameters %zu to %zu on server %d\n", s->piece[i].at,
		       s->piece[i].at + s->piece[i].count - 1, s->piece[i].server);
	for (int i = 0; i < t->servers; i++)
		printf("server %d  %zu bytes of parameters\n", i, s->count[i] * sizeof(float));
	fflush(stdout);
}

static int strategy_open(struct train_rank *t)
{
	int devices = (int)t->config->devices, rc;
	struct ps_strategy_state *s;

	if (t->nranks % devices)
		return train_fail(TRAIN_USAGE,
				  "--devices %d: %d rank%s cannot make whole workers; "
				  "use a multiple of --devices for --np",
				  devices, t->nranks, tool_s(t->nranks));
	s = calloc(1, sizeof(*s));
	if (!s)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = s;
	s->ndevices = devices;
	s->device = t->rank % devices;
	rc = train_ps_open(t, &s->ps,
			   (struct train_ps_rule){ .variables = true, .devices = devices });
	if (rc || train_is_server(t))
		return rc;
	if (t->rank == 0)
		print_placement(t, &s->ps.shards);
	s->all = calloc((size_t)devices * t->floats, sizeof(*s->all));
	if (s->ps.sparse) {
		size_t each = 1 + t->leaves.batch * t->data->positions;

		s->rows = calloc(((size_t)devices + 1) * each, sizeof(*s->rows));
		s->all_rows = s->rows + each;
	}
	if (!s->all || (s->ps.sparse && !s->rows))
		return train_fail(TRAIN_FAILED, "no memory for %d gradients", devices);
	return train_check(tuttiCommSplit(t->comm, t->rank / devices, s->device, &s->devices, NULL),
			   t->comm);
}

static void strategy_close(struct train_rank *t)
{
	struct ps_strategy_state *s = t->strategy_state;

	train_ps_close(t, &s->ps);
	if (s->devices)
		tuttiCommDestroy(s->devices);
	free(s->all);
	free(s->rows);
	free(s);
}

static int bcast_parameters(struct train_rank *t, struct ps_strategy_state *s)
{
	float *at = train_parameters_download(t);
	int rc = train_check(tuttiBcast(at, t->model.parameters, tuttiFloat32, 0, s->devices, NULL),
			     s->devices);

	train_parameters_upload(t);
	return rc;
}

static int sum_gradients(struct train_rank *t, struct ps_strategy_state *s)
{
	int rc = train_check(tuttiGather(t->comm_buffer, s->all, t->floats, tuttiFloat32, 0,
					 s->devices, NULL),
			     s->devices);

	for (int d = 1; d < s->ndevices && s->device == 0; d++)
		for (size_t i = 0; i < t->floats; i++)
			s->all[i] += s->all[(size_t)d * t->floats + i];
	s->stop = s->device == 0 && s->all[t->model.parameters + TRAIN_TAIL_STOP] > 0.0f;
	return rc;
}

/* First device: the rows of a sparse table that a batch of any device touches. */
static int touch_all(struct train_rank *t, struct ps_strategy_state *s,
		     const struct train_batch *batch)
{
	size_t most = t->leaves.batch * t->data->positions, each = 1 + most, n = 0;
	struct train_ps *ps = &s->ps;
	int rc;

	train_ps_touch(t, ps, batch);
	if (!ps->sparse || s->ndevices == 1)
		return TRAIN_OK;
	s->rows[0] = (uint32_t)ps->ntouched;
	memcpy(s->rows + 1, ps->touched, ps->ntouched * sizeof(*s->rows));
	rc = train_check(tuttiGather(s->rows, s->all_rows, each, tuttiUint32, 0, s->devices, NULL),
			 s->devices);
	for (int d = 0; d < s->ndevices && !rc && s->device == 0; d++) {
		const uint32_t *of = s->all_rows + (size_t)d * each;

		/* shares of one batch: all of them have a place */
		memcpy(ps->touched + n, of + 1, of[0] * sizeof(*of));
		n += of[0];
	}
	if (!rc && s->device == 0)
		ps->ntouched = train_rows_sort(ps->touched, n);
	return rc;
}

static int one_step(struct train_rank *t, struct ps_strategy_state *s,
		    const struct train_batch *batch)
{
	int rc = touch_all(t, s, batch);

	if (!rc && s->device == 0)
		rc = train_ps_pull(t, &s->ps);
	if (!rc)
		rc = bcast_parameters(t, s);
	if (!rc)
		rc = train_gradient(t, batch, NULL);
	if (!rc)
		rc = sum_gradients(t, s);
	if (!rc && s->device == 0)
		rc = train_ps_push(t, &s->ps, s->all, 1, 0);
	return rc;
}

/* A device of this worker died. Survivors may be one step apart: all abandon the current step
 * and agree on the greatest. */
static int recover_worker(struct train_rank *t, struct ps_strategy_state *s)
{
	int rc = train_shrink(&s->devices, &s->device, &s->ndevices);

	return rc ? rc
		  : train_check(tuttiAllReduce(&t->step, &t->step, 1, tuttiUint64, tuttiMax,
					       s->devices, NULL),
				s->devices);
}

static int strategy_step(struct train_rank *t, const struct train_batch *batch)
{
	struct ps_strategy_state *s = t->strategy_state;
	int rc = one_step(t, s, batch);

	if (rc && train_is_recoverable(s->devices))
		rc = recover_worker(t, s);
	return rc;
}

/* The first device asks for a share for all devices of the worker. */
static int ask_once(struct train_rank *t, struct ps_strategy_state *s, bool stop,
		    struct train_handout *ret_handout)
{
	int workers = t->first_server / (int)t->config->devices, rc = TRAIN_OK;

	if (s->device == 0)
		rc = train_ps_ask(t, workers, stop || s->stop, ret_handout);
	return rc ? rc
		  : train_check(tuttiBcast(ret_handout, sizeof(*ret_handout), tuttiUint8, 0,
					   s->devices, NULL),
				s->devices);
}

static int strategy_ask(struct train_rank *t, bool stop, struct train_handout *ret_handout)
{
	struct ps_strategy_state *s = t->strategy_state;
	uint64_t of_worker = (uint64_t)t->config->devices;
	int rc;

	do
		rc = ask_once(t, s, stop, ret_handout);
	while (rc && train_is_recoverable(s->devices) && !recover_worker(t, s));
	ret_handout->share = ret_handout->share * of_worker + (uint64_t)t->world_rank % of_worker;
	ret_handout->handed *= of_worker;
	ret_handout->shares *= of_worker;
	return rc;
}

static int strategy_settle(struct train_rank *t, enum train_settle why)
{
	struct ps_strategy_state *s = t->strategy_state;

	return train_ps_settle(t, &s->ps, why == TRAIN_SETTLE_END);
}

static int strategy_serve(struct train_rank *t)
{
	struct ps_strategy_state *s = t->strategy_state;

	return train_ps_server_run(t, &s->ps);
}

static void strategy_report(const struct train_rank *t)
{
	const struct ps_strategy_state *s = t->strategy_state;

	train_ps_report(&s->ps);
}

static int strategy_state(struct train_rank *t, float *host)
{
	struct ps_strategy_state *s = t->strategy_state;

	return train_ps_state(t, &s->ps, host);
}

const struct train_strategy_ops train_strategy_ps_strategy = {
	.name = "ps-strategy",
	.help = "as ps-async; each variable on one server, several --devices a worker",
	.optimizer = TRAIN_OPTIMIZER_STORE,
	.local_replicas = true,
	.fault_tolerant = true,
	.no_shrink =
		"ps-strategy always continues without dead workers, and never without servers; "
		"omit the option",
	.open = strategy_open,
	.close = strategy_close,
	.step = strategy_step,
	.ask = strategy_ask,
	.settle = strategy_settle,
	.serve = strategy_serve,
	.state = strategy_state,
	.report = strategy_report,
};
