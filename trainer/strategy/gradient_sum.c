/* gradient_sum.c - sum the gradients of all workers in a fixed order (gradient_sum.h) */
#include "trainer/strategy/gradient_sum.h"

#include "trainer/strategy/fixed64.h"

#include <stdlib.h>
#include <string.h>

static bool is_fixed64(const struct train_rank *t)
{
	return t->leaves.kind == TRAIN_CANONICAL_FIXED64;
}

static tuttiDataType_t type_of(const struct train_rank *t)
{
	return is_fixed64(t) ? tuttiInt64 : tuttiFloat32;
}

static size_t bytes_of(const struct train_rank *t)
{
	return is_fixed64(t) ? sizeof(int64_t) : sizeof(float);
}

/* The nodes that are sent for a run of leaves: with fixed64 one, since the integers are summed
 * before. */
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

static void *receive_slot(const struct train_rank *t, struct train_partials *p)
{
	return p->received + p->used++ * p->count * bytes_of(t);
}

/* ---- partial sums ---------------------------------------------------------------------------- */

int train_partials_open(struct train_rank *t, struct train_partials *p, size_t count)
{
	*p = (struct train_partials){ .on = t->comm_device, .capacity = t->leaves.count };
	p->node = calloc(p->capacity, sizeof(*p->node));
	p->at = calloc(p->capacity, sizeof(*p->at));
	p->received = p->on->ops->alloc(p->on, p->capacity * count * bytes_of(t));
	if (p->node && p->at && p->received)
		return TRAIN_OK;
	train_partials_close(p);
	return train_fail(TRAIN_FAILED, "no memory for %zu gradients of %zu elements",
			  t->leaves.count, count);
}

void train_partials_close(struct train_partials *p)
{
	free(p->node);
	free(p->at);
	if (p->on)
		p->on->ops->free(p->on, p->received);
	*p = (struct train_partials){ 0 };
}

int train_partials_begin(struct train_rank *t)
{
	return is_fixed64(t) ? train_fixed64_make(t) : TRAIN_OK;
}

/* Appends a worker's nodes, with pointers to its own data or to memory to receive into. */
static void append_nodes(struct train_rank *t, struct train_partials *p, int worker)
{
	struct train_node run = train_leaves_share(&t->leaves, worker, t->nranks);
	size_t n = nodes_of(t, run, p->node + p->n);

	for (size_t i = 0; i < n; i++, p->n++)
		p->at[p->n] = worker == t->rank ? own_node(t, i, p->from) : receive_slot(t, p);
}

static int receive_node(struct train_rank *t, struct train_partials *p, size_t node, int from)
{
	return train_check(tuttiRecv(p->at[node], p->count, type_of(t), from, t->comm, NULL),
			   t->comm);
}

static int send_node(struct train_rank *t, struct train_partials *p, size_t node, int to)
{
	return train_check(tuttiSend(p->at[node], p->count, type_of(t), to, t->comm, NULL),
			   t->comm);
}

/* Ends the group, also after a failure in it. */
static int group_end(struct train_rank *t, int rc)
{
	tuttiResult_t result = tuttiGroupEnd();

	return rc ? rc : train_check(result, t->comm);
}

/* Folds the partial sums and waits for the additions, for the library's next call. */
static int fold(struct train_rank *t, struct train_partials *p)
{
	train_leaves_fold(&t->leaves, p->on, p->node, p->at, &p->n, p->count);
	return train_device_sync(p->on);
}

/* Gathers one node of every worker by a collective, which works on device memory in place; sends
 * would copy through host memory. */
static int gather_all(struct train_rank *t, struct train_partials *p, int root)
{
	for (int worker = 0; worker < t->nranks; worker++, p->n++) {
		p->node[p->n] = train_leaves_share(&t->leaves, worker, t->nranks);
		p->at[p->n] = receive_slot(t, p);
	}
	return train_check(tuttiGather(own_node(t, 0, p->from), p->received, p->count, type_of(t),
				       root, t->comm, NULL),
			   t->comm);
}

static int gather_nodes(struct train_rank *t, struct train_partials *p, int root, int first,
			int last)
{
	int rc = TRAIN_OK;

	tuttiGroupStart();
	for (int worker = first; worker < last && !rc; worker++) {
		size_t before = p->n;

		if (t->rank != root && t->rank != worker)
			continue;
		append_nodes(t, p, worker);
		for (size_t i = before; i < p->n && worker != root && !rc; i++)
			rc = t->rank == root ? receive_node(t, p, i, worker)
					     : send_node(t, p, i, root);
	}
	return group_end(t, rc);
}

int train_partials_gather(struct train_rank *t, struct train_partials *p, int root, int first,
			  int last)
{
	bool all = first == 0 && last == t->nranks && t->leaves.kind == TRAIN_CANONICAL_OFF;
	int rc;

	p->n = p->used = 0;
	rc = all && train_comm_on_device(t) ? gather_all(t, p, root)
					    : gather_nodes(t, p, root, first, last);
	return !rc && t->rank == root ? fold(t, p) : rc;
}

/* The number of nodes after the nodes of workers first..last-1 have been folded. */
static size_t folded_nodes(struct train_rank *t, int first, int last, struct train_node *node,
			   void **at)
{
	size_t n = 0;

	for (int worker = first; worker < last; worker++)
		n += nodes_of(t, train_leaves_share(&t->leaves, worker, t->nranks), node + n);
	train_leaves_fold(&t->leaves, t->comm_device, node, at, &n, 0);
	return n;
}

/* Inserts the nodes that m.from will send, at *ret_first. Returns their number. */
static size_t insert_nodes(struct train_rank *t, struct train_partials *p,
			   struct train_partials_move m, size_t *ret_first)
{
	size_t before = p->n, tail_at = p->capacity - before, added;

	*ret_first = m.before ? 0 : before;
	if (m.before) {
		memmove(p->node + tail_at, p->node, before * sizeof(*p->node));
		memmove(p->at + tail_at, p->at, before * sizeof(*p->at));
	}
	added = folded_nodes(t, m.first, m.last, p->node + *ret_first, p->at + *ret_first);
	if (m.before) {
		memmove(p->node + added, p->node + tail_at, before * sizeof(*p->node));
		memmove(p->at + added, p->at + tail_at, before * sizeof(*p->at));
	}
	p->n += added;
	return added;
}

int train_partials_send(struct train_rank *t, struct train_partials *p,
			struct train_partials_move m)
{
	size_t first, added;
	int rc = TRAIN_OK;

	if (t->rank != m.from && t->rank != m.to)
		return TRAIN_OK;
	tuttiGroupStart();
	for (size_t i = 0; t->rank == m.from && i < p->n && !rc; i++)
		rc = send_node(t, p, i, m.to);
	if (t->rank == m.to) {
		added = insert_nodes(t, p, m, &first);
		for (size_t i = first; i < first + added && !rc; i++) {
			p->at[i] = receive_slot(t, p);
			rc = receive_node(t, p, i, m.from);
		}
	}
	rc = group_end(t, rc);
	return !rc && t->rank == m.to ? fold(t, p) : rc;
}

int train_partials_store(struct train_rank *t, struct train_partials *p)
{
	float *to = t->comm_buffer + p->from;

	if (is_fixed64(t))
		train_fixed64_floats(t, p->at[0], p->from, p->count);
	else
		p->on->ops->copy(p->on, to, p->at[0], p->count * sizeof(*to));
	return train_device_sync(p->on);
}

/* ---- the whole array ------------------------------------------------------------------------- */

static int allreduce_fixed64(struct train_rank *t)
{
	int rc = train_fixed64_make(t);

	if (!rc)
		rc = train_check(tuttiAllReduce(t->fixed_sum, t->fixed_sum, t->floats, tuttiInt64,
						tuttiSum, t->comm, NULL),
				 t->comm);
	if (!rc)
		train_fixed64_floats(t, t->fixed_sum, 0, t->floats);
	return rc;
}

/* Every worker's nodes of part r of the floats go to worker r, in one group. */
static int exchange(struct train_rank *t, struct train_partials *p, size_t first)
{
	size_t part = p->count;
	int rc = TRAIN_OK;

	tuttiGroupStart();
	for (int worker = 0; worker < t->nranks; worker++) {
		size_t before = p->n;

		append_nodes(t, p, worker);
		if (worker == t->rank)
			continue;
		for (size_t i = before; i < p->n && !rc; i++)
			rc = receive_node(t, p, i, worker);
		for (size_t i = 0; i < t->sum.nodes && !rc; i++)
			rc = train_check(tuttiSend(own_node(t, i, first + part * (size_t)worker),
						   part, tuttiFloat32, worker, t->comm, NULL),
					 t->comm);
	}
	return group_end(t, rc);
}

int train_sum_part(struct train_rank *t, struct train_partials *p, size_t first, size_t count)
{
	int rc;

	p->n = p->used = 0;
	p->count = count / (size_t)t->nranks;
	p->from = first + p->count * (size_t)t->rank;
	rc = exchange(t, p, first);
	if (!rc)
		rc = fold(t, p);
	return rc ? rc : train_partials_store(t, p);
}

int train_sum_bucket(struct train_rank *t, struct train_partials *p, size_t first, size_t count)
{
	int rc = train_sum_part(t, p, first, count);

	if (rc)
		return rc;
	return train_check(tuttiAllGather(t->comm_buffer + p->from, t->comm_buffer + first,
					  p->count, tuttiFloat32, t->comm, NULL),
			   t->comm);
}

int train_sum_gradients(struct train_rank *t)
{
	struct train_partials p;
	int rc;

	if (is_fixed64(t))
		return allreduce_fixed64(t);
	if (t->nranks == 1) /* all leaves are one node */
		return TRAIN_OK;
	rc = train_partials_open(t, &p, t->sum.stride / (size_t)t->nranks);
	if (rc)
		return rc;
	rc = train_sum_bucket(t, &p, 0, t->sum.stride);
	train_partials_close(&p);
	return rc;
}
