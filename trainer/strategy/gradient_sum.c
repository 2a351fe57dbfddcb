/* gradient_sum.c - gradients of all workers become one (gradient_sum.h) */
#include "trainer/strategy/gradient_sum.h"

#include "trainer/strategy/fixed64.h"

#include <stdlib.h>
#include <string.h>

static bool is_whole(const struct train_rank *t) { return t->leaves.kind == TRAIN_CANONICAL_FIXED64; }

static tuttiDataType_t type_of(const struct train_rank *t)
{
	return is_whole(t) ? tuttiInt64 : tuttiFloat32;
}

static size_t bytes_of(const struct train_rank *t)
{
	return is_whole(t) ? sizeof(int64_t) : sizeof(float);
}

/* What a run of leaves travels as: whole numbers are one node, since they are added up before. */
static size_t nodes_of(const struct train_rank *t, struct train_node run, struct train_node *node)
{
	if (!is_whole(t))
		return train_leaves_nodes(&t->leaves, run, node);
	if (node)
		node[0] = run;
	return run.last > run.first;
}

/* Element `from` of this worker's node i */
static void *own(const struct train_rank *t, size_t i, size_t from)
{
	if (is_whole(t))
		return t->whole + from;
	return t->wire + i * t->sum.stride + from;
}

static void *slot(const struct train_rank *t, struct train_pile *pile)
{
	return pile->room + pile->used++ * pile->count * bytes_of(t);
}

/* ---- piles ----------------------------------------------------------------------------------- */

int train_pile_open(struct train_rank *t, struct train_pile *pile, size_t count)
{
	*pile = (struct train_pile){ .on = t->wire_on, .most = t->leaves.count };
	pile->node = calloc(pile->most, sizeof(*pile->node));
	pile->at = calloc(pile->most, sizeof(*pile->at));
	pile->room = pile->on->ops->alloc(pile->on, pile->most * count * bytes_of(t));
	if (pile->node && pile->at && pile->room)
		return TRAIN_OK;
	train_pile_close(pile);
	return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu elements",
			     t->leaves.count, count);
}

void train_pile_close(struct train_pile *pile)
{
	free(pile->node);
	free(pile->at);
	if (pile->on)
		pile->on->ops->free(pile->on, pile->room);
	*pile = (struct train_pile){ 0 };
}

int train_pile_begin(struct train_rank *t)
{
	return is_whole(t) ? train_fixed64_make(t) : TRAIN_OK;
}

/* Appends a worker's nodes, where its numbers are or will be. */
static void expect(struct train_rank *t, struct train_pile *pile, int worker)
{
	struct train_node run = train_leaves_share(&t->leaves, worker, t->nranks);
	size_t n = nodes_of(t, run, pile->node + pile->n);

	for (size_t i = 0; i < n; i++, pile->n++)
		pile->at[pile->n] = worker == t->rank ? own(t, i, pile->from) : slot(t, pile);
}

static int receive(struct train_rank *t, struct train_pile *pile, size_t node, int from)
{
	return train_library(tuttiRecv(pile->at[node], pile->count, type_of(t), from, t->comm, NULL),
			  t->comm);
}

static int give(struct train_rank *t, struct train_pile *pile, size_t node, int to)
{
	return train_library(tuttiSend(pile->at[node], pile->count, type_of(t), to, t->comm, NULL),
			  t->comm);
}

/* Ends the group whatever happened in it. */
static int group_end(struct train_rank *t, int rc)
{
	tuttiResult_t result = tuttiGroupEnd();

	return rc ? rc : train_library(result, t->comm);
}

/* Adds up what the pile has, for the library's next call. */
static int fold(struct train_rank *t, struct train_pile *pile)
{
	train_leaves_fold(&t->leaves, pile->on, pile->node, pile->at, &pile->n, pile->count);
	return train_device_settle(pile->on);
}

/* One node of every worker, by a collective: that leaves a device's memory where it is, while sends
 * go through the host's. */
static int gather_all(struct train_rank *t, struct train_pile *pile, int root)
{
	for (int worker = 0; worker < t->nranks; worker++, pile->n++) {
		pile->node[pile->n] = train_leaves_share(&t->leaves, worker, t->nranks);
		pile->at[pile->n] = slot(t, pile);
	}
	return train_library(tuttiGather(own(t, 0, pile->from), pile->room, pile->count, type_of(t),
				      root, t->comm, NULL),
			  t->comm);
}

static int gather_nodes(struct train_rank *t, struct train_pile *pile, int root, int first, int last)
{
	int rc = TRAIN_OK;

	tuttiGroupStart();
	for (int worker = first; worker < last && !rc; worker++) {
		size_t before = pile->n;

		if (t->rank != root && t->rank != worker)
			continue;
		expect(t, pile, worker);
		for (size_t i = before; i < pile->n && worker != root && !rc; i++)
			rc = t->rank == root ? receive(t, pile, i, worker) : give(t, pile, i, root);
	}
	return group_end(t, rc);
}

int train_pile_gather(struct train_rank *t, struct train_pile *pile, int root, int first, int last)
{
	bool all = first == 0 && last == t->nranks && t->leaves.kind == TRAIN_CANONICAL_OFF;
	int rc;

	pile->n = pile->used = 0;
	rc = all && train_wire_apart(t) ? gather_all(t, pile, root)
				     : gather_nodes(t, pile, root, first, last);
	return !rc && t->rank == root ? fold(t, pile) : rc;
}

/* The nodes that are left when these workers' have been added up. */
static size_t left_of(struct train_rank *t, int first, int last, struct train_node *node, void **at)
{
	size_t n = 0;

	for (int worker = first; worker < last; worker++)
		n += nodes_of(t, train_leaves_share(&t->leaves, worker, t->nranks), node + n);
	train_leaves_fold(&t->leaves, t->wire_on, node, at, &n, 0);
	return n;
}

/* Makes place for what comes from p's workers; *ret_first: where. Returns how many nodes. */
static size_t make_place(struct train_rank *t, struct train_pile *pile, struct train_passing p,
			 size_t *ret_first)
{
	size_t had = pile->n, aside = pile->most - had, came;

	*ret_first = p.before ? 0 : had;
	if (p.before) {
		memmove(pile->node + aside, pile->node, had * sizeof(*pile->node));
		memmove(pile->at + aside, pile->at, had * sizeof(*pile->at));
	}
	came = left_of(t, p.first, p.last, pile->node + *ret_first, pile->at + *ret_first);
	if (p.before) {
		memmove(pile->node + came, pile->node + aside, had * sizeof(*pile->node));
		memmove(pile->at + came, pile->at + aside, had * sizeof(*pile->at));
	}
	pile->n += came;
	return came;
}

int train_pile_pass(struct train_rank *t, struct train_pile *pile, struct train_passing p)
{
	size_t first, came;
	int rc = TRAIN_OK;

	if (t->rank != p.from && t->rank != p.to)
		return TRAIN_OK;
	tuttiGroupStart();
	for (size_t i = 0; t->rank == p.from && i < pile->n && !rc; i++)
		rc = give(t, pile, i, p.to);
	if (t->rank == p.to) {
		came = make_place(t, pile, p, &first);
		for (size_t i = first; i < first + came && !rc; i++) {
			pile->at[i] = slot(t, pile);
			rc = receive(t, pile, i, p.from);
		}
	}
	rc = group_end(t, rc);
	return !rc && t->rank == p.to ? fold(t, pile) : rc;
}

int train_pile_store(struct train_rank *t, struct train_pile *pile)
{
	float *to = t->wire + pile->from;

	if (is_whole(t))
		train_fixed64_floats(t, pile->at[0], pile->from, pile->count);
	else
		pile->on->ops->copy(pile->on, to, pile->at[0], pile->count * sizeof(*to));
	return train_device_settle(pile->on);
}

/* ---- the whole array ------------------------------------------------------------------------- */

static int total_whole(struct train_rank *t)
{
	int rc = train_fixed64_make(t);

	if (!rc)
		rc = train_library(tuttiAllReduce(t->whole, t->whole, t->floats, tuttiInt64, tuttiSum,
					       t->comm, NULL),
				t->comm);
	if (!rc)
		train_fixed64_floats(t, t->whole, 0, t->floats);
	return rc;
}

/* Everybody's nodes of part r of these floats go to worker r, all at once. */
static int exchange(struct train_rank *t, struct train_pile *pile, size_t first)
{
	size_t part = pile->count;
	int rc = TRAIN_OK;

	tuttiGroupStart();
	for (int worker = 0; worker < t->nranks; worker++) {
		size_t before = pile->n;

		expect(t, pile, worker);
		if (worker == t->rank)
			continue;
		for (size_t i = before; i < pile->n && !rc; i++)
			rc = receive(t, pile, i, worker);
		for (size_t i = 0; i < t->sum.nodes && !rc; i++)
			rc = train_library(tuttiSend(own(t, i, first + part * (size_t)worker), part,
						  tuttiFloat32, worker, t->comm, NULL),
					t->comm);
	}
	return group_end(t, rc);
}

int train_gradient_total_part(struct train_rank *t, struct train_pile *pile, size_t first, size_t count)
{
	int rc;

	pile->n = pile->used = 0;
	pile->count = count / (size_t)t->nranks;
	pile->from = first + pile->count * (size_t)t->rank;
	rc = exchange(t, pile, first);
	if (!rc)
		rc = fold(t, pile);
	if (!rc)
		rc = train_pile_store(t, pile);
	if (rc)
		return rc;
	return train_library(tuttiAllGather(t->wire + pile->from, t->wire + first, pile->count,
					 tuttiFloat32, t->comm, NULL), t->comm);
}

int train_gradient_total(struct train_rank *t)
{
	struct train_pile pile;
	int rc;

	if (is_whole(t))
		return total_whole(t);
	rc = train_pile_open(t, &pile, t->sum.stride / (size_t)t->nranks);
	if (rc)
		return rc;
	rc = train_gradient_total_part(t, &pile, 0, t->sum.stride);
	train_pile_close(&pile);
	return rc;
}
