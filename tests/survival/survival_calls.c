/*
 * survival_calls.c - collectives on int32 with values that depend on rank, round and index, so that
 * every element of a successful result is checked
 */
#include <stdio.h>

#include "tests/survival/survival.h"

#define TYPE tuttiInt32

static int base(uint64_t i, size_t k)
{
	return (int)((i * 7 + k) % 1009);
}

/* Element k of rank's contribution, for rank `to` */
static int value(int rank, int to, uint64_t i, size_t k)
{
	return rank * 31 + to * 17 + base(i, k);
}

static int sum(int n, int to, uint64_t i, size_t k)
{
	return 31 * (n * (n - 1) / 2) + n * (to * 17 + base(i, k));
}

struct calling {
	int n, rank, root;
	size_t count;
	uint64_t i;
};

/* Elements of the send buffer, in parts of count: for each rank, or one */
static int parts_sent(enum scene_collective what, const struct calling *c)
{
	bool all = what == SCENE_REDUCE_SCATTER || what == SCENE_ALLTOALL ||
		   (what == SCENE_SCATTER && c->rank == c->root);

	return all ? c->n : 1;
}

static int parts_received(enum scene_collective what, const struct calling *c)
{
	if (what == SCENE_ALLGATHER || what == SCENE_ALLTOALL)
		return c->n;
	if (what == SCENE_GATHER)
		return c->rank == c->root ? c->n : 0;
	return what == SCENE_REDUCE && c->rank != c->root ? 0 : 1;
}

static int expected(enum scene_collective what, const struct calling *c, int part, size_t k)
{
	switch (what) {
	case SCENE_ALLREDUCE:
	case SCENE_REDUCE:
		return sum(c->n, 0, c->i, k);
	case SCENE_REDUCE_SCATTER:
		return sum(c->n, c->rank, c->i, k);
	case SCENE_BROADCAST:
		return value(c->root, 0, c->i, k);
	case SCENE_SCATTER:
		return value(c->root, c->rank, c->i, k);
	case SCENE_ALLTOALL:
		return value(part, c->rank, c->i, k);
	default: /* gather, allgather */
		return value(part, 0, c->i, k);
	}
}

static tuttiResult_t call(const struct scene_rank *w, tuttiComm_t comm, enum scene_collective what,
			  const struct calling *c)
{
	switch (what) {
	case SCENE_ALLREDUCE:
		return tuttiAllReduce(w->in, w->out, c->count, TYPE, tuttiSum, comm, NULL);
	case SCENE_REDUCE:
		return tuttiReduce(w->in, w->out, c->count, TYPE, tuttiSum, c->root, comm, NULL);
	case SCENE_BROADCAST:
		return tuttiBroadcast(w->in, w->out, c->count, TYPE, c->root, comm, NULL);
	case SCENE_ALLGATHER:
		return tuttiAllGather(w->in, w->out, c->count, TYPE, comm, NULL);
	case SCENE_REDUCE_SCATTER:
		return tuttiReduceScatter(w->in, w->out, c->count, TYPE, tuttiSum, comm, NULL);
	case SCENE_ALLTOALL:
		return tuttiAlltoAll(w->in, w->out, c->count, TYPE, comm, NULL);
	case SCENE_GATHER:
		return tuttiGather(w->in, w->out, c->count, TYPE, c->root, comm, NULL);
	case SCENE_SCATTER:
		return tuttiScatter(w->in, w->out, c->count, TYPE, c->root, comm, NULL);
	default:
		return tuttiBarrier(comm, NULL);
	}
}

static void check(struct scene_rank *w, enum scene_collective what, const struct calling *c)
{
	for (int part = 0; part < parts_received(what, c); part++)
		for (size_t k = 0; k < c->count; k++) {
			int got = w->out[(size_t)part * c->count + k];

			if (got == expected(what, c, part, k))
				continue;
			scene_problem(w,
				      "%s of %zu, round %llu: element %zu of part %d is %d, not %d",
				      scene_collectives[what], c->count, (unsigned long long)c->i,
				      k, part, got, expected(what, c, part, k));
			return;
		}
}

/* The send buffer is intact, also after an error. */
static void check_sent(struct scene_rank *w, enum scene_collective what, const struct calling *c)
{
	for (int part = 0; part < parts_sent(what, c); part++)
		for (size_t k = 0; k < c->count; k++)
			if (w->in[(size_t)part * c->count + k] != value(c->rank, part, c->i, k)) {
				scene_problem(w, "%s changed its send buffer",
					      scene_collectives[what]);
				return;
			}
}

tuttiResult_t scene_collective(struct scene_rank *w, tuttiComm_t comm, int n, int rank,
			       enum scene_collective what, size_t count, uint64_t i)
{
	struct calling c = {
		.n = n, .rank = rank, .root = (int)(i % (unsigned)n), .i = i, .count = count
	};
	tuttiResult_t rc;

	if (what == SCENE_BARRIER)
		c.count = 0;
	else if (c.count * (size_t)n > SCENE_ELEMENTS && what != SCENE_ALLREDUCE &&
		 what != SCENE_REDUCE && what != SCENE_BROADCAST)
		c.count = SCENE_ELEMENTS / (size_t)n;
	for (int part = 0; part < parts_sent(what, &c); part++)
		for (size_t k = 0; k < c.count; k++)
			w->in[(size_t)part * c.count + k] = value(rank, part, i, k);
	for (size_t k = 0; k < (size_t)parts_received(what, &c) * c.count; k++)
		w->out[k] = -1;
	scene_call(w, scene_collectives[what]);
	rc = call(w, comm, what, &c);
	if (!rc)
		check(w, what, &c);
	check_sent(w, what, &c);
	return rc;
}
