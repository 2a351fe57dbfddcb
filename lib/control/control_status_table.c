/*
 * control_status_table.c - the latest status of each rank, while it is less than a minute old
 *
 * Called by control.c (make, free) and by the other files of statuses. No rank waits long in most
 * jobs, so a rank keeps some bits for each other rank, and no status.
 */
#include <stdlib.h>

#include "control/control_internal.h"

#define KEPT_NS (60 * TT_SECOND)

bool tt_status_table_make(struct tt_status_table *table, int nranks)
{
	table->own.from = TT_STATUS_UNQUEUED;
	table->expire_due_ns = TT_NEVER;
	return tt_sparse_make(&table->of, nranks) && tt_sparse_make(&table->past, nranks);
}

void tt_status_table_free(struct tt_status_table *table)
{
	tt_sparse_free_all(&table->of);
	tt_sparse_free_all(&table->past);
}

const struct tt_status *tt_status_of(const struct tt_control *ctl, int rank)
{
	static const struct tt_status none = { .awaited = -1 };
	const struct tt_status_table *table = &ctl->status.table;
	const struct tt_rank_status *latest;

	if (rank == ctl->rank)
		return &table->own.status;
	latest = tt_sparse_get(&table->of, rank);
	return latest ? &latest->status : &none;
}

uint64_t tt_status_at_ns(const struct tt_control *ctl, int rank)
{
	const struct tt_rank_status *latest = tt_sparse_get(&ctl->status.table.of, rank);

	return latest ? latest->at_ns : 0;
}

struct tt_rank_past tt_status_past(const struct tt_control *ctl, int rank)
{
	const struct tt_rank_past *past = tt_sparse_get(&ctl->status.table.past, rank);

	return past ? *past : (struct tt_rank_past){ 0 };
}

/* NULL: no memory */
static struct tt_rank_past *past_of(struct tt_control *ctl, int rank)
{
	struct tt_sparse *all = &ctl->status.table.past;
	struct tt_rank_past *past = tt_sparse_get(all, rank);

	if (past)
		return past;
	past = calloc(1, sizeof(*past));
	if (past && tt_sparse_set(all, rank, past))
		return past;
	free(past);
	return NULL;
}

void tt_status_received(struct tt_control *ctl, int rank, uint64_t seq)
{
	struct tt_rank_past *past = rank < 0 || !seq ? NULL : past_of(ctl, rank);

	if (past && past->received < seq)
		past->received = seq;
}

struct tt_rank_status *tt_status_keep(struct tt_control *ctl, const struct tt_status *s,
				      uint64_t now)
{
	struct tt_status_table *table = &ctl->status.table;
	struct tt_rank_status *latest = tt_sparse_get(&table->of, s->origin);
	struct tt_rank_past *past = s->origin == ctl->rank ? NULL : past_of(ctl, s->origin);

	if (!past || s->serial <= past->serial)
		return NULL;
	if (!latest) {
		latest = malloc(sizeof(*latest));
		if (!latest || !tt_sparse_set(&table->of, s->origin, latest)) {
			free(latest);
			return NULL;
		}
		latest->from = TT_STATUS_UNQUEUED;
	}
	latest->status = *s;
	latest->at_ns = now;
	past->serial = s->serial;
	if (table->expire_due_ns == TT_NEVER)
		table->expire_due_ns = now + KEPT_NS;
	return latest;
}

/* Statuses that come together expire together. */
void tt_status_expire(struct tt_control *ctl, uint64_t now)
{
	struct tt_status_table *table = &ctl->status.table;
	uint64_t due = TT_NEVER;

	if (now < table->expire_due_ns)
		return;
	for (int r = tt_sparse_next(&table->of, 0); r < ctl->nranks;
	     r = tt_sparse_next(&table->of, r + 1)) {
		struct tt_rank_status *latest = tt_sparse_get(&table->of, r);

		if (latest->at_ns + KEPT_NS <= now && latest->from == TT_STATUS_UNQUEUED) {
			free(latest);
			tt_sparse_set(&table->of, r, NULL);
		} else if (latest->at_ns + KEPT_NS < due) {
			due = latest->at_ns + KEPT_NS;
		}
	}
	table->expire_due_ns = due == TT_NEVER || due > now + TT_SECOND ? due : now + TT_SECOND;
}

size_t tt_status_memory(const struct tt_control *ctl)
{
	const struct tt_status_table *table = &ctl->status.table;
	size_t bytes = tt_sparse_memory(&table->of) + tt_sparse_memory(&table->past);

	for (int r = tt_sparse_next(&table->of, 0); r < ctl->nranks;
	     r = tt_sparse_next(&table->of, r + 1))
		bytes += sizeof(struct tt_rank_status);
	for (int r = tt_sparse_next(&table->past, 0); r < ctl->nranks;
	     r = tt_sparse_next(&table->past, r + 1))
		bytes += sizeof(struct tt_rank_past);
	return bytes;
}
