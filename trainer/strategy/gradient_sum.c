/* gradient_sum.c - sum the gradients of all workers in a fixed order (gradient_sum.h) */
#include "trainer/strategy/gradient_sum.h"

#include "trainer/strategy/fixed64.h"

#include <stdlib.h>
#include <string.h>

static bool is_fixed64(const struct train_rank *t) { return t->leaves.kind == TRAIN_CANONICAL_FIXED64; }

static tuttiDataType_t type_of(const struct train_rank *t)
{
	return is_fixed64(t) ? tuttiInt64 : tuttiFloat32;
}

static size_t bytes_of(const struct train_rank *t)
{
	return is_fixed64(t) ? sizeof(int64_t) : sizeof(float);
}

/* The nodes that are sent for a run of leaves: with fixed64 one, since the integers are summed before. */
static size_t nodes_of(const struct train_rank *t, struct train_node run, struct train_node *node)
{
	if (!is_fixed64(t))
		return train_leaves_nodes(&t->leaves, run, node);
	if (node)
		node[0] = run;
	return run.last > run.first;
}

/* Element `from` of this worker's node i. */
static void *own_node(const struct train_rank *t, size_t i, size_t from)
{
	if (is_fixed64(t))
		return t->fixed_sum + from;
	return t->comm_buffer + i * t->sum.stride + from;
}

static void *receive_slot(const struct train_rank *t, struct train_partials *partials)
{
	return partials->received + partials->used++ * partials->count * bytes_of(t);
}

/* ---- partial sums ---------------------------------------------------------------------------- */

int train_partials_open(struct train_rank *t, struct train_partials *partials, size_t count)
{
	*partials = (struct train_partials){ .on = t->comm_device, .capacity = t->leaves.count };
	partials->node = calloc(partials->capacity, sizeof(*partials->node));
	partials->at = calloc(partials->capacity, sizeof(*partials->at));
	partials->received = partials->on->ops->alloc(partials->on, partials->capacity * count * bytes_of(t));
	if (partials->node && partials->at && partials->received)
		return TRAIN_OK;
	train_partials_close(partials);
	return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu elements",
			     t->leaves.count, count);
}

void train_partials_close(struct train_partials *partials)
{
	free(partials->node);
	free(partials->at);
	if (partials->on)
		partials->on->ops->free(partials->on, partials->received);
	*partials = (struct train_partials){ 0 };
}

int train_partials_begin(struct train_rank *t)
{
	return is_fixed64(t) ? train_fixed64_make(t) : TRAIN_OK;
}

/* Appends a worker's nodes, with pointers to its own data or to memory to receive into. */
static void append_nodes(struct train_rank *t, struct train_partials *partials, int worker)
{
	struct train_node run = train_leaves_share(&t->leaves, worker, t->nranks);
	size_t n = nodes_of(t, run, partials->node + partials->n);

	for (size_t i = 0; i < n; i++, partials->n++)
		partials->at[partials->n] = worker == t->rank ? own_node(t, i, partials->from) : receive_slot(t, partials);
}

static int receive_node(struct train_rank *t, struct train_partials *partials, size_t node, int from)
{
	return train_check(tuttiRecv(partials->at[node], partials->count, type_of(t), from, t->comm, NULL),
			  t->comm);
}

static int send_node(struct train_rank *t, struct train_partials *partials, size_t node, int to)
{
	return train_check(tuttiSend(partials->at[node], partials->count, type_of(t), to, t->comm, NULL),
			  t->comm);
}

/* Ends the group, also after a failure in it. */
static int group_end(struct train_rank *t, int rc)
{
	tuttiResult_t result = tuttiGroupEnd();

	return rc ? rc : train_check(result, t->comm);
}

/* Folds the partial sums and waits for the additions, for the library's next call. */
static int fold(struct train_rank *t, struct train_partials *partials)
{
	train_leaves_fold(&t->leaves, partials->on, partials->node, partials->at, &partials->n, partials->count);
	return train_device_sync(partials->on);
}

/* Gathers one node of every worker by a collective, which works on device memory in place; sends would
 * copy through host memory. */
static int gather_all(struct train_rank *t, struct train_partials *partials, int root)
{
	for (int worker = 0; worker < t->nranks; worker++, partials->n++) {
		partials->node[partials->n] = train_leaves_share(&t->leaves, worker, t->nranks);
		partials->at[partials->n] = receive_slot(t, partials);
	}
	return train_check(tuttiGather(own_node(t, 0, partials->from), partials->received, partials->count, type_of(t),
				      root, t->comm, NULL),
			  t->comm);
}

static int gather_nodes(struct train_rank *t, struct train_partials *partials, int root, int first, int last)
{
	int rc = TRAIN_OK;

	tuttiGroupStart();
	for (int worker = first; worker < last && !rc; worker++) {
		size_t before = partials->n;

		if (t->rank != root && t->rank != worker)
			continue;
		append_nodes(t, partials, worker);
		for (size_t i = before; i < partials->n && worker != root && !rc; i++)
			rc = t->rank == root ? receive_node(t, partials, i, worker) : send_node(t, partials, i, root);
	}
	return group_end(t, rc);
}

int train_partials_gather(struct train_rank *t, struct train_partials *partials, int root, int first, int last)
{
	bool all = first == 0 && last == t->nranks && t->leaves.kind == TRAIN_CANONICAL_OFF;
	int rc;

	partials->n = partials->used = 0;
	rc = all && train_comm_on_device(t) ? gather_all(t, partials, root)
				     : gather_nodes(t, partials, root, first, last);
	return !rc && t->rank == root ? fold(t, partials) : rc;
}

/* The number of nodes after the nodes of workers first..last-1 have been folded. */
static size_t folded_nodes(struct train_rank *t, int first, int last, struct train_node *node, void **at)
{
	size_t n = 0;

	for (int worker = first; worker < last; worker++)
		n += nodes_of(t, train_leaves_share(&t->leaves, worker, t->nranks), node + n);
	train_leaves_fold(&t->leaves, t->comm_device, node, at, &n, 0);
	return n;
}

/* Inserts the nodes that p's sender will send, at *ret_first. Returns their number. */
static size_t insert_nodes(struct train_rank *t, struct train_partials *partials, struct train_partials_move p,
			 size_t *ret_first)
{
	size_t had = partials->n, tail_at = partials->capacity - had, came;

	*ret_first = p.before ? 0 : had;
	if (p.before) {
		memmove(partials->node + tail_at, partials->node, had * sizeof(*partials->node));
		memmove(partials->at + tail_at, partials->at, had * sizeof(*partials->at));
	}
	came = folded_nodes(t, p.first, p.last, partials->node + *ret_first, partials->at + *ret_first);
	if (p.before) {
		memmove(partials->node + came, partials->node + tail_at, had * sizeof(*partials->node));
		memmove(partials->at + came, partials->at + tail_at, had * sizeof(*partials->at));
	}
	partials->n += came;
	return came;
}

int train_partials_send(struct train_rank *t, struct train_partials *partials, struct train_partials_move p)
{
	size_t first, came;
	int rc = TRAIN_OK;

	if (t->rank != p.from && t->rank != p.to)
		return TRAIN_OK;
	tuttiGroupStart();
	for (size_t i = 0; t->rank == p.from && i < partials->n && !rc; i++)
		rc = send_node(t, partials, i, p.to);
	if (t->rank == p.to) {
		came = insert_nodes(t, partials, p, &first);
		for (size_t i = first; i < first + came && !rc; i++) {
			partials->at[i] = receive_slot(t, partials);
			rc = receive_node(t, partials, i, p.from);
		}
	}
	rc = group_end(t, rc);
	return !rc && t->rank == p.to ? fold(t, partials) : rc;
}

int train_partials_store(struct train_rank *t, struct train_partials *partials)
{
	float *to = t->comm_buffer + partials->from;

	if (is_fixed64(t))
		train_fixed64_floats(t, partials->at[0], partials->from, partials->count);
	else
		partials->on->ops->copy(partials->on, to, partials->at[0], partials->count * sizeof(*to));
	return train_device_sync(partials->on);
}

/* ---- the whole array ------------------------------------------------------------------------- */

static int allreduce_fixed64(struct train_rank *t)
{
	int rc = train_fixed64_make(t);

	if (!rc)
		rc = train_check(tuttiAllReduce(t->fixed_sum, t->fixed_sum, t->floats, tuttiInt64, tuttiSum,
					       t->comm, NULL),
				t->comm);
	if (!rc)
		train_fixed64_floats(t, t->fixed_sum, 0, t->floats);
	return rc;
}

/* Every worker's nodes of part r of the floats go to worker r, in one group. */
static int exchange(struct train_rank *t, struct train_partials *partials, size_t first)
{
	size_t part = partials->count;
	int rc = TRAIN_OK;

	tuttiGroupStart();
	for (int worker = 0; worker < t->nranks; worker++) {
		size_t before = partials->n;

		append_nodes(t, partials, worker);
		if (worker == t->rank)
			continue;
		for (size_t i = before; i < partials->n && !rc; i++)
			rc = receive_node(t, partials, i, worker);
		for (size_t i = 0; i < t->sum.nodes && !rc; i++)
			rc = train_check(tuttiSend(own_node(t, i, first + part * (size_t)worker), part,
						  tuttiFloat32, worker, t->comm, NULL),
					t->comm);
	}
	return group_end(t, rc);
}

int train_sum_bucket(struct train_rank *t, struct train_partials *partials, size_t first, size_t count)
{
	int rc;

	partials->n = partials->used = 0;
	partials->count = count / (size_t)t->nranks;
	partials->from = first + partials->count * (size_t)t->rank;
	rc = exchange(t, partials, first);
	if (!rc)
		rc = fold(t, partials);
	if (!rc)
		rc = train_partials_store(t, partials);
	if (rc)
		return rc;
	return train_check(tuttiAllGather(t->comm_buffer + partials->from, t->comm_buffer + first, partials->count,
					 tuttiFloat32, t->comm, NULL), t->comm);
}

int train_sum_gradients(struct train_rank *t)
{
	struct train_partials partials;
	int rc;

	if (is_fixed64(t))
		return allreduce_fixed64(t);
	rc = train_partials_open(t, &partials, t->sum.stride / (size_t)t->nranks);
	if (rc)
		return rc;
	rc = train_sum_bucket(t, &partials, 0, t->sum.stride);
	train_partials_close(&partials);
	return rc;
}
