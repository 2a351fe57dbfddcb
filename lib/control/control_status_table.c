/*
 * control_status_table.c - the latest status of each rank, while it is less than a minute old
 *
 * Called by control.c (make, free) and by the other files of statuses. No rank waits long in most
 * jobs, so a rank keeps a pointer and a serial number for each other rank, and no status.
 */
#include <stdlib.h>

#include "control/control_internal.h"

#define KEPT_NS (60 * TT_SECOND)

bool tt_status_table_make(struct tt_status_table *table, int nranks)
{
	table->of = calloc((size_t)nranks, sizeof(struct tt_rank_status *));
	table->serial = calloc((size_t)nranks, sizeof(*table->serial));
	table->own.from = TT_STATUS_UNQUEUED;
	table->expire_due_ns = TT_NEVER;
	return table->of && table->serial;
}

void tt_status_table_free(struct tt_status_table *table, int nranks)
{
	for (int r = 0; table->of && r < nranks; r++)
		free(table->of[r]);
	free(table->of);
	free(table->serial);
}

const struct tt_status *tt_status_of(const struct tt_control *ctl, int rank)
{
	static const struct tt_status none = { .awaited = -1 };
	const struct tt_status_table *table = &ctl->status.table;

	if (rank == ctl->rank)
		return &table->own.status;
	return table->of[rank] ? &table->of[rank]->status : &none;
}

uint64_t tt_status_at_ns(const struct tt_control *ctl, int rank)
{
	const struct tt_rank_status *latest = ctl->status.table.of[rank];

	return latest ? latest->at_ns : 0;
}

struct tt_rank_status *tt_status_keep(struct tt_control *ctl, const struct tt_status *s,
				      uint64_t now)
{
	struct tt_status_table *table = &ctl->status.table;
	struct tt_rank_status *latest = table->of[s->origin];

	if (s->origin == ctl->rank || s->serial <= table->serial[s->origin])
		return NULL;
	if (!latest) {
		latest = malloc(sizeof(*latest));
		if (!latest)
			return NULL;
		latest->from = TT_STATUS_UNQUEUED;
		table->of[s->origin] = latest;
	}
	latest->status = *s;
	latest->at_ns = now;
	table->serial[s->origin] = s->serial;
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
	for (int r = 0; r < ctl->nranks; r++) {
		struct tt_rank_status *latest = table->of[r];

		if (!latest)
			continue;
		if (latest->at_ns + KEPT_NS <= now && latest->from == TT_STATUS_UNQUEUED) {
			free(latest);
			table->of[r] = NULL;
		} else if (latest->at_ns + KEPT_NS < due) {
			due = latest->at_ns + KEPT_NS;
		}
	}
	table->expire_due_ns = due == TT_NEVER || due > now + TT_SECOND ? due : now + TT_SECOND;
}

size_t tt_status_memory(const struct tt_control *ctl)
{
	const struct tt_status_table *table = &ctl->status.table;
	size_t bytes = (size_t)ctl->nranks * (sizeof(*table->of) + sizeof(*table->serial));

	for (int r = 0; r < ctl->nranks; r++)
		if (table->of[r])
			bytes += sizeof(*table->of[r]);
	return bytes;
}
