/*
 * control_observer.c - the observers of higher rooms: register them, and call them on events
 *
 * tt_control_observe and tt_control_unobserve are called by comm, gpu and am, the rest by the files of
 * control. Contract of the members: control.h.
 */
#include <assert.h>

#include "control/control_internal.h"

void tt_control_observe(struct tt_control *ctl, const struct tt_control_observer *table, void *ctx)
{
	struct tt_observers *o = &ctl->observers;
	int i = 0;

	pthread_mutex_lock(&o->lock);
	tt_control_lock(ctl);
	while (i < TT_OBSERVERS && o->slot[i].table)
		i++;
	assert(i < TT_OBSERVERS);
	o->slot[i].table = table;
	o->slot[i].ctx = ctx;
	o->slot[i].notified = false;
	for (int r = tt_flood_next_gone(ctl, 0); r < ctl->nranks && table->gone;
	     r = tt_flood_next_gone(ctl, r + 1))
		table->gone(ctx, r,
			    tt_set_has(ctl->departed.left, r) ? tuttiRankLeft : tuttiRankDead);
	o->broken_due |= table->broken && ctl->broken;
	tt_control_unlock(ctl);
	pthread_mutex_unlock(&o->lock);
	tt_endpoint_wake(ctl->ep);
}

void tt_control_unobserve(struct tt_control *ctl, const struct tt_control_observer *table,
			  void *ctx)
{
	struct tt_observers *o = &ctl->observers;

	pthread_mutex_lock(&o->lock);
	tt_control_lock(ctl);
	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table == table && o->slot[i].ctx == ctx)
			o->slot[i].table = NULL;
	tt_control_unlock(ctl);
	pthread_mutex_unlock(&o->lock);
}

void tt_observers_broken(struct tt_control *ctl)
{
	struct tt_observers *o = &ctl->observers;

	pthread_mutex_lock(&o->lock);
	for (int i = 0; i < TT_OBSERVERS; i++) {
		if (!o->slot[i].table || !o->slot[i].table->broken || o->slot[i].notified)
			continue;
		o->slot[i].notified = true;
		o->slot[i].table->broken(o->slot[i].ctx);
	}
	pthread_mutex_unlock(&o->lock);
}

void tt_observers_connected(struct tt_control *ctl)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->connected)
			o->slot[i].table->connected(o->slot[i].ctx);
}

void tt_observers_message(struct tt_control *ctl, int rank, enum tt_frame kind, const uint8_t *data,
			  size_t bytes)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->message)
			o->slot[i].table->message(o->slot[i].ctx, rank, kind, data, bytes);
}

uint8_t *tt_observers_destination(struct tt_control *ctl, int rank, size_t *ret_bytes)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->destination)
			return o->slot[i].table->destination(o->slot[i].ctx, rank, ret_bytes);
	return NULL;
}

void tt_observers_room(struct tt_control *ctl, int rank)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->room)
			o->slot[i].table->room(o->slot[i].ctx, rank);
}

void tt_observers_over(struct tt_control *ctl, int rank, tuttiRankState_t how)
{
	struct tt_observers *o = &ctl->observers;

	tt_set_add(ctl->departed.over, rank);
	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->over)
			o->slot[i].table->over(o->slot[i].ctx, rank, how);
}

uint64_t tt_observers_timers(struct tt_control *ctl, uint64_t now)
{
	struct tt_observers *o = &ctl->observers;
	uint64_t due = TT_NEVER, d;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->timers &&
		    (d = o->slot[i].table->timers(o->slot[i].ctx, now)) < due)
			due = d;
	return due;
}

void tt_observers_gone(struct tt_control *ctl, int rank, tuttiRankState_t how)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->gone)
			o->slot[i].table->gone(o->slot[i].ctx, rank, how);
}

bool tt_observers_lost(struct tt_control *ctl, int peer, char *text, size_t bytes)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->lost &&
		    o->slot[i].table->lost(o->slot[i].ctx, peer, text, bytes))
			return true;
	return false;
}

bool tt_observers_tally(struct tt_control *ctl, struct tt_tally *ret_tally,
			uint64_t *ret_running_ns)
{
	struct tt_observers *o = &ctl->observers;

	for (int i = 0; i < TT_OBSERVERS; i++)
		if (o->slot[i].table && o->slot[i].table->tally)
			return o->slot[i].table->tally(o->slot[i].ctx, ret_tally, ret_running_ns);
	return false;
}
