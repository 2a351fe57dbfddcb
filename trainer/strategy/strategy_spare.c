/*
 * strategy_spare.c - backup workers: the first k gradients of n make a step
 *
 *	each step:
 *		g = gradient(parameters, my share of the batch)
 *		total, mask = quorum allreduce(g): the first --k gradients, summed in rank order
 *		parameters = descend(parameters, total / samples of these k)
 *		while results newer than my parameters exist: descend by them as well
 *
 * No rank is a backup permanently: a rank that is late in one step may be in time in the next.
 * All replicas apply the same totals in the same order, so replicas with the same number of
 * results are equal. A rank that is too late to receive every result copies rank 0's state. The
 * training continues without dead ranks, unless rank 0 dies. --record and --replay repeat which
 * ranks were in time. Row of the table in strategy.c; calls spare_state.c.
 *
 * Source: Chen, Monga, Bengio, Jozefowicz 2016, Revisiting distributed synchronous SGD.
 */
#include "trainer/strategy/arrival_order.h"
#include "tools/plural.h"
#include "trainer/strategy/spare_state.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spare_replicas {
	struct train_spare_state state; /* copy of rank 0's, for ranks that missed results */
	float *total;
	uint64_t applied;         /* newest result that the parameters include */
	uint64_t sequence_offset; /* results of t->comm that are no steps, minus earlier steps */
	int64_t k;
	uint64_t *in_time;    /* [ranks at the start]: steps that a rank contributed to */
	int32_t *world_ranks; /* [ranks]: their ranks at the start */
	FILE *record, *replay;
	uint64_t lines_read; /* of replay */
};

static int gather_world_ranks(struct train_rank *t, struct spare_replicas *s)
{
	int32_t own = t->world_rank;

	return train_check(tuttiAllGather(&own, s->world_ranks, 1, tuttiInt32, t->comm, NULL),
			   t->comm);
}

static int spare_open(struct train_rank *t)
{
	const struct train_config *c = t->config;
	struct spare_replicas *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return train_fail(TRAIN_FAILED, "no memory for a strategy");
	t->strategy_state = s;
	s->k = c->k ? c->k : t->nranks - t->nranks / 10;
	if (s->k > t->nranks)
		return train_fail(TRAIN_USAGE,
				  "--k %d: the training has %d rank%s; use at most that", (int)s->k,
				  t->nranks, tool_s(t->nranks));
	s->sequence_offset = -t->first_step;
	s->total = calloc(t->floats, sizeof(*s->total));
	s->in_time = calloc((size_t)t->nranks, sizeof(*s->in_time));
	s->world_ranks = calloc((size_t)t->nranks, sizeof(*s->world_ranks));
	if (!s->total || !s->in_time || !s->world_ranks)
		return train_fail(TRAIN_FAILED, "no memory for %zu gradients", t->floats);
	if (c->record && t->rank == 0 && !(s->record = fopen(c->record, "we")))
		return train_fail(TRAIN_USAGE, "--record %s: %m", c->record);
	if (c->replay && !(s->replay = fopen(c->replay, "re")))
		return train_fail(TRAIN_USAGE, "--replay %s: %m; give a file of --record",
				  c->replay);
	if (s->record)
		train_arrival_order_write_head(s->record, t, t->nranks);
	if (s->replay && (rc = train_arrival_order_check_head(s->replay, c->replay, t, t->nranks)))
		return rc;
	rc = train_parameters_bcast(t);
	if (!rc)
		rc = gather_world_ranks(t, s);
	return rc ? rc : train_spare_state_open(&s->state, t);
}

static void spare_close(struct train_rank *t)
{
	struct spare_replicas *s = t->strategy_state;

	train_spare_state_close(&s->state);
	if (s->record)
		fclose(s->record);
	if (s->replay)
		fclose(s->replay);
	free(s->total);
	free(s->in_time);
	free(s->world_ranks);
	free(s);
}

static bool contributed(const uint64_t *mask, int rank)
{
	return mask[rank / 64] >> rank % 64 & 1;
}

static void log_masks(struct train_rank *t, struct spare_replicas *s, const tuttiQuorum_t *q)
{
	for (int r = 0; r < t->nranks; r++)
		s->in_time[s->world_ranks[r]] += contributed(q->mask, r);
	if (!s->record)
		return;
	fprintf(s->record, "%d", q->count);
	for (int r = 0; r < t->nranks; r++)
		if (contributed(q->mask, r))
			fprintf(s->record, " %d", r);
	fprintf(s->record, "\n");
}

/* Applies one more result to the parameters. */
static void apply(struct train_rank *t, struct spare_replicas *s, const tuttiQuorum_t *q,
		  size_t rows)
{
	size_t samples = t->leaves.batch * (size_t)q->count / (size_t)t->nranks;
	float *tail = s->total + t->model.parameters;

	samples = samples ? samples : 1;
	log_masks(t, s, q);
	train_spare_state_lock(&s->state);
	memcpy(t->comm_buffer, s->total, t->floats * sizeof(*s->total));
	train_descend(t, samples);
	s->applied = q->sequence;
	s->state.version = s->applied;
	train_spare_state_unlock(&s->state);
	/* scales the loss in the tail to this rank's number of rows */
	t->comm_buffer[t->model.parameters + TRAIN_TAIL_LOSS] *= (float)rows / (float)samples;
	t->stopping |= tail[TRAIN_TAIL_STOP] > 0.0f;
	t->step = s->applied - s->sequence_offset;
}

/* One quorum allreduce: contributes `mine`, or nothing if NULL, and receives a result. */
static int quorum_allreduce(struct train_rank *t, struct spare_replicas *s, const float *mine,
			    int k, tuttiQuorum_t *q)
{
	*q = (tuttiQuorum_t)TUTTI_QUORUM_INITIALIZER;
	q->every = 1;
	return train_check(tuttiAllReduceQuorum(mine, s->total, t->floats, tuttiFloat32, tuttiSum,
						k, 0, t->comm, NULL, q),
			   t->comm);
}

/* Receives and applies the results that this rank missed, one by one. Results that a copied state
 * includes are received too, since otherwise the next call would return one of them. */
static int catch_up(struct train_rank *t, struct spare_replicas *s, tuttiQuorum_t *q, size_t rows)
{
	for (;;) {
		int rc = TRAIN_OK;

		if (q->sequence == s->applied + 1)
			apply(t, s, q, rows);
		else if (q->sequence > s->applied + 1) {
			rc = train_spare_state_fetch(&s->state, t, q->sequence, &s->applied);
			t->step = s->applied - s->sequence_offset;
		}
		if (rc || (s->applied >= q->newest && q->sequence >= s->applied))
			return rc;
		rc = quorum_allreduce(t, s, NULL, (int)s->k, q);
		if (rc)
			return rc;
	}
}

/* --replay: true if this rank was in time in the next step. *ret_k: number of ranks in time. A
 * rank that caught up skips lines. */
static bool was_in_time(struct train_rank *t, struct spare_replicas *s, int *ret_k)
{
	uint64_t line = s->applied - s->sequence_offset - t->first_step + 1;
	bool found = true;
	int rank;

	while (s->replay && s->lines_read < line) {
		if (fscanf(s->replay, "%d", ret_k) != 1) {
			*ret_k = (int)s->k;
			return true;
		}
		found = false;
		for (int i = 0; i < *ret_k && fscanf(s->replay, "%d", &rank) == 1; i++)
			found |= rank == t->rank;
		s->lines_read++;
	}
	return found;
}

static int spare_step(struct train_rank *t, const struct train_batch *batch)
{
	struct spare_replicas *s = t->strategy_state;
	int k = (int)s->k, rc = train_gradient(t, batch, NULL);
	bool in_time = was_in_time(t, s, &k);
	uint64_t wait_begin = train_time_ns();
	tuttiQuorum_t q;

	if (!rc)
		rc = quorum_allreduce(t, s, in_time ? t->comm_buffer : NULL, k, &q);
	if (!rc)
		rc = catch_up(t, s, &q, batch->rows);
	train_add_exposed(t, wait_begin);
	return rc;
}

/* Restarts on a communicator of the survivors, whose operations count from 1. */
static int restart(struct train_rank *t, struct spare_replicas *s)
{
	int rc;

	s->sequence_offset = -t->step;
	s->applied = 0;
	s->k = s->k < t->nranks ? s->k : t->nranks;
	rc = gather_world_ranks(t, s);
	return rc ? rc : train_spare_state_open(&s->state, t);
}

/* A quorum of all live ranks, whose mask shows the dead ranks; after a death the survivors
 * continue on a communicator of their own. */
static int spare_settle(struct train_rank *t, enum train_settle why)
{
	struct spare_replicas *s = t->strategy_state;
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	float here = 1.0f, all;
	int rc = train_check(tuttiAllReduceQuorum(&here, &all, 1, tuttiFloat32, tuttiSum, t->nranks,
						  0, t->comm, NULL, &q),
			     t->comm);

	if (rc)
		return rc;
	if (why == TRAIN_SETTLE_END && s->record && (fflush(s->record) || ferror(s->record)))
		return train_fail(TRAIN_FAILED, "--record %s: cannot be written completely: %m",
				  t->config->record);
	s->sequence_offset++;
	train_spare_state_lock(&s->state);
	s->state.version = ++s->applied;
	train_spare_state_unlock(&s->state);
	if (q.count == t->nranks)
		return TRAIN_OK;
	train_spare_state_close(&s->state);
	rc = train_regroup(t);
	return rc ? rc : restart(t, s);
}

/* Rank 0, the root of the sums, died: the survivors continue from the newest state among them. */
static int spare_rejoin(struct train_rank *t, uint64_t done, uint64_t *ret_done)
{
	struct spare_replicas *s = t->strategy_state;
	uint64_t seen = s->applied - s->sequence_offset;
	int rc;

	(void)done;
	train_spare_state_close(&s->state);
	rc = train_regroup(t);
	if (!rc)
		rc = train_catch_up(t, seen, &t->step);
	*ret_done = t->step;
	return rc ? rc : restart(t, s);
}

static void spare_report(const struct train_rank *t)
{
	const struct spare_replicas *s = t->strategy_state;

	printf("\"k\":%d,\"in_first_k\":[", (int)s->k);
	for (int r = 0; r < t->first_server; r++)
		printf("%s%" PRIu64, r ? "," : "", s->in_time[r]);
	printf("],\"copied_state\":%" PRIu64 ",", s->state.copies);
}

const struct train_strategy_ops train_strategy_spare = {
	.name = "spare",
	.help = "backup workers: the first --k gradients of a step are used",
	.local_replicas = true,
	.fault_tolerant = true,
	.open = spare_open,
	.close = spare_close,
	.step = spare_step,
	.settle = spare_settle,
	.rejoin = spare_rejoin,
	.report = spare_report,
};
