/*
 * control_status_format.c - the bytes of a status; called by control_status.c and
 * control_status_queue.c
 */
#include <string.h>

#include "control/control_internal.h"

void tt_put_tally(struct tt_writer *w, const struct tt_tally *tally)
{
	for (int i = 0; i < TT_TALLIES; i++) {
		tt_put(w, tally->calls[i], 8);
		tt_put(w, tally->bytes[i], 8);
		tt_put(w, tally->ns[i], 8);
	}
}

void tt_get_tally(struct tt_reader *r, struct tt_tally *ret_tally)
{
	for (int i = 0; i < TT_TALLIES; i++) {
		ret_tally->calls[i] = tt_get(r, 8);
		ret_tally->bytes[i] = tt_get(r, 8);
		ret_tally->ns[i] = tt_get(r, 8);
	}
}

void tt_put_status(struct tt_writer *w, const struct tt_status *s)
{
	tt_put(w, (uint32_t)s->origin, 4);
	tt_put(w, s->serial, 4);
	tt_put(w, s->ask, 1);
	tt_put(w, s->started, 8);
	tt_put(w, s->finished, 8);
	tt_put_call_history(w, &s->history);
	tt_put(w, (uint32_t)s->awaited, 4);
	tt_put(w, s->last_received, 8);
	tt_put(w, s->blocked, 1);
	tt_put(w, (uint64_t)s->exchanging | (uint64_t)s->counted << 1 | (uint64_t)s->leads << 2, 1);
	tt_put(w, s->exchanges, 8);
	tt_put(w, (uint64_t)s->nwants, 1);
	for (int i = 0; i < s->nwants; i++) {
		tt_put(w, s->want[i].send, 1);
		tt_put(w, (uint32_t)s->want[i].peer, 4);
		tt_put(w, s->want[i].number, 8);
		tt_put_call(w, &s->want[i].call);
	}
	tt_put(w, (uint64_t)s->npairs, 1);
	for (int i = 0; i < s->npairs; i++) {
		tt_put(w, (uint32_t)s->pair[i].peer, 4);
		tt_put(w, s->pair[i].started[0], 8);
		tt_put(w, s->pair[i].started[1], 8);
	}
	tt_put(w, s->running_ns, 8);
	if (s->counted)
		tt_put_tally(w, &s->tally);
}

static void get_messages(struct tt_reader *r, int nranks, struct tt_status *s)
{
	uint64_t flags;

	s->blocked = (unsigned)tt_get_upto(r, 1, TT_BLOCKED);
	flags = tt_get_upto(r, 1, 7);
	s->exchanging = flags & 1;
	s->counted = flags & 2;
	s->leads = flags & 4;
	s->exchanges = tt_get(r, 8);
	s->nwants = (int)tt_get_upto(r, 1, TT_WAIT_EDGES);
	for (int i = 0; i < s->nwants; i++) {
		s->want[i].send = tt_get_upto(r, 1, 1);
		s->want[i].peer = (int)tt_get_upto(r, 4, (uint64_t)nranks - 1);
		s->want[i].number = tt_get(r, 8);
		tt_get_call(r, &s->want[i].call);
	}
	s->npairs = (int)tt_get_upto(r, 1, TT_PAIRS);
	for (int i = 0; i < s->npairs; i++) {
		s->pair[i].peer = (int)tt_get_upto(r, 4, (uint64_t)nranks - 1);
		s->pair[i].started[0] = tt_get(r, 8);
		s->pair[i].started[1] = tt_get(r, 8);
	}
	s->running_ns = tt_get(r, 8);
	if (s->counted)
		tt_get_tally(r, &s->tally);
}

bool tt_get_status(struct tt_reader *r, int nranks, struct tt_status *ret_status)
{
	struct tt_status *s = ret_status;

	memset(s, 0, sizeof(*s));
	s->origin = (int)tt_get_upto(r, 4, (uint64_t)nranks - 1);
	s->serial = (uint32_t)tt_get(r, 4);
	s->ask = (unsigned)tt_get_upto(r, 1, TT_STATUS_ASKS_NOW);
	s->started = tt_get(r, 8);
	s->finished = tt_get(r, 8);
	tt_get_call_history(r, &s->history);
	s->awaited = (int)tt_get(r, 4);
	s->last_received = tt_get(r, 8);
	get_messages(r, nranks, s);
	return !r->failed && s->finished <= s->started && s->awaited >= -1 && s->awaited < nranks;
}
