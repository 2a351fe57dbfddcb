/* rebuild.c - a mesh of the ranks that a death leaves (rebuild.h) */
#include "trainer/rebuild.h"

#include "trainer/checkpoint.h"
#include "trainer/rank/due_steps.h"
#include "trainer/rank/pipeline.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A rank of the world that is left. */
struct survivor {
	int64_t rank;         /* in the old world */
	uint64_t done, saved; /* steps of its parameters, and of the last checkpoint */
};

struct survivors {
	struct survivor *list;
	int n, before;        /* ranks of the new and of the old world */
	int whole;            /* the replica that writes the checkpoint; -1: none */
	uint64_t done, saved; /* steps of this replica, and of the last checkpoint */
};

static int replica_of(const struct train_rank *t, int64_t rank)
{
	return (int)rank / (t->mesh.stages * t->mesh.tensor);
}

static void abort_mesh(struct train_rank *t)
{
	train_pipeline_abort(t);
	tuttiCommAbort(t->comm);
	tuttiCommAbort(t->mesh.comm);
	tuttiCommAbort(t->mesh.tensor_comm);
	t->comm = t->mesh.comm = t->mesh.tensor_comm = NULL;
}

/* The optimizer of a store is on the first replica only. */
static int find_whole(const struct train_rank *t, struct survivors *s)
{
	int replicas = t->strategy->state ? 1 : t->mesh.data;

	for (int replica = 0; replica < replicas; replica++) {
		uint64_t done = 0;
		int found = 0;

		for (int i = 0; i < s->n; i++) {
			if (replica_of(t, s->list[i].rank) != replica)
				continue;
			done = found ? done : s->list[i].done;
			found += s->list[i].done == done;
		}
		s->done = done;
		if (found == t->mesh.stages * t->mesh.tensor)
			return replica;
	}
	return -1;
}

/* Sets t->world and s. */
static int find_survivors(struct train_rank *t, struct survivors *s)
{
	struct survivor own = { t->world_rank, t->done, t->saved };
	int rank, rc = train_check(tuttiCommCount(t->world, &s->before), t->world);

	if (!rc)
		rc = train_shrink(&t->world, &rank, &s->n);
	if (rc || s->n == s->before)
		return TRAIN_FAILED;
	s->list = malloc((size_t)s->n * sizeof(*s->list));
	if (!s->list)
		return train_fail(TRAIN_FAILED, "no memory for %d ranks", s->n);
	rc = train_check(tuttiAllGather(&own, s->list, sizeof(own), tuttiUint8, t->world, NULL),
			 t->world);
	for (int i = 0; i < s->n; i++)
		s->saved = s->list[i].saved > s->saved ? s->list[i].saved : s->saved;
	s->whole = find_whole(t, s);
	return rc;
}

/* The whole replica is for a moment a mesh of its own. Call by all survivors. */
static int save(struct train_rank *t, struct survivors *s)
{
	struct train_mesh *m = &t->mesh;
	bool mine = replica_of(t, t->world_rank) == s->whole;
	int32_t failed;
	int rc = train_check(tuttiCommSplit(t->world, mine ? m->tensor_rank : TUTTI_SPLIT_NOCOLOR,
					    m->stage, &m->comm, NULL),
			     t->world);

	if (!rc)
		rc = train_check(tuttiCommSplit(t->world, mine ? m->stage : TUTTI_SPLIT_NOCOLOR,
						m->tensor_rank, &m->tensor_comm, NULL),
				 t->world);
	if (rc)
		return rc;
	t->rank = mine ? 0 : t->rank;
	failed = mine && train_checkpoint_save(t, t->config->save, t->done) ? TRAIN_FAILED : 0;
	rc = train_check(tuttiAllReduce(&failed, &failed, 1, tuttiInt32, tuttiMin, t->world, NULL),
			 t->world);
	return rc ? rc : failed;
}

/* The size of the new mesh. */
static struct train_mesh mesh_of(const struct train_rank *t, int ranks)
{
	struct train_mesh m = { .tensor = t->mesh.tensor, .stages = t->mesh.stages };

	while (m.tensor > ranks)
		m.tensor /= 2;
	if (m.stages > ranks / m.tensor)
		m.stages = ranks / m.tensor;
	m.data = ranks / m.tensor / m.stages;
	return m;
}

/* The place of this rank in the new mesh: ranks of the whole replica come first, since the first one
 * has the checkpoint. */
static int place_of(const struct train_rank *t, const struct survivors *s)
{
	bool mine = replica_of(t, t->world_rank) == s->whole;
	int place = 0;

	for (int i = 0; i < s->n; i++) {
		bool whole = replica_of(t, s->list[i].rank) == s->whole;

		place += whole == mine ? s->list[i].rank < t->world_rank : whole;
	}
	return place;
}

int train_rebuild(struct train_rank *t, struct train_config *config, tuttiComm_t *ret_world)
{
	static char layout[64];
	struct survivors s = { 0 };
	struct train_mesh mesh;
	int place, rc;

	abort_mesh(t);
	rc = find_survivors(t, &s);
	if (!rc && s.whole >= 0)
		rc = save(t, &s);
	if (rc) {
		free(s.list);
		return TRAIN_FAILED;
	}
	mesh = mesh_of(t, s.n);
	snprintf(layout, sizeof(layout), "data=%d,tensor=%d,pipeline=%d", mesh.data, mesh.tensor,
		 mesh.stages);
	config->mesh = layout;
	config->kill = NULL; /* the ranks have other numbers */
	if (s.whole >= 0 || s.saved) {
		config->resume = config->save;
		config->restarts = false; /* the file exists */
	}
	config->evaluate = s.whole >= 0 && s.done >= train_steps(t);
	place = place_of(t, &s);
	free(s.list);
	if (place == 0)
		printf("%d of %d ranks died; --mesh %s continues from %s\n", s.before - s.n,
		       s.before, layout,
		       s.whole >= 0    ? "the step of a replica that is whole"
		       : s.saved       ? "the last checkpoint"
		       : t->first_step ? "the checkpoint of --resume"
				       : "the beginning");
	return train_check(tuttiCommSplit(t->world,
					  place < mesh.data * mesh.tensor * mesh.stages
						  ? 0
						  : TUTTI_SPLIT_NOCOLOR,
					  place, ret_world, NULL),
			   t->world);
}
