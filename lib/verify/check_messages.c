/*
 * check_messages.c - for each lane of each pair of ranks, as many messages are received as sent
 *
 * The run (check_run.c) checks their order and sizes, since messages of one lane between two ranks
 * cannot overtake each other. Called by check.c after check_steps.c.
 */
#include "verify/check.h"

/* The step of a lane that sends to (receives from) peer for the k-th time, from 0. */
static uint32_t find_step(const struct tt_plan *p, uint32_t lane, int peer, bool sends, uint32_t k)
{
	uint32_t i = 0;

	for (; i < p->lanes[lane].nsteps; i++) {
		const struct tt_step *s = tt_lane_step(p, lane, i);

		if ((sends ? s->to == tt_ref_make(TT_WIRE, (uint32_t)peer)
			   : tt_step_takes(s, peer)) &&
		    !k--)
			break;
		i += tt_step_records(s) - 1;
	}
	return i;
}

static int mismatch(const struct tt_check *c, int from, int to, uint32_t lane)
{
	const struct tt_check_channel *ch = tt_check_channel(c, from, to, lane);

	if (ch->sent > ch->taken)
		return tt_check_fail(from, lane,
				     find_step(c->plans[from], lane, to, true, ch->taken),
				     "sends message %u to rank %d, which takes %u in this lane",
				     ch->taken + 1, to, ch->taken);
	return tt_check_fail(to, lane, find_step(c->plans[to], lane, from, false, ch->sent),
			     "takes message %u of rank %d, which sends %u in this lane",
			     ch->sent + 1, from, ch->sent);
}

/* Counts the messages of one plan. A sender without the receiver in its list of peers sends no
 * message to that receiver. */
static int count(struct tt_check *c, const struct tt_plan *p)
{
	for (uint32_t lane = 0; lane < p->nlanes; lane++) {
		for (uint32_t i = 0; i < p->lanes[lane].nsteps; i++) {
			const struct tt_step *s = tt_lane_step(p, lane, i);

			if (s->to != TT_REF_NONE) {
				tt_check_channel(c, p->rank, (int)tt_ref_index(s->to), lane)
					->sent++;
				c->payload_blocks += s->nblocks;
			}
			for (int k = 0; k < s->nsrc; k++) {
				tt_ref ref = tt_step_source(s, k);
				int from = (int)tt_ref_index(ref);

				if (!tt_ref_is_wire(ref))
					continue;
				if (!tt_check_knows(c, from, p->rank))
					return tt_check_fail(
						p->rank, lane, i,
						"takes a message of rank %d, which sends it none",
						from);
				tt_check_channel(c, from, p->rank, lane)->taken++;
			}
			i += tt_step_records(s) - 1;
		}
	}
	return TT_OK;
}

int tt_check_messages(struct tt_check *c)
{
	for (int r = 0; r < c->nranks; r++) {
		int rc = count(c, c->plans[r]);

		if (rc)
			return rc;
	}
	for (int from = 0; from < c->nranks; from++) {
		const struct tt_plan *p = c->plans[from];

		for (uint32_t i = 0; i < p->npeers; i++) {
			bool used = false, known = tt_check_knows(c, p->peers[i], from);

			for (uint32_t lane = 0; lane < c->nlanes; lane++) {
				const struct tt_check_channel *out = tt_check_channel(c, from,
										      p->peers[i],
										      lane);

				if (out->sent != out->taken)
					return mismatch(c, from, p->peers[i], lane);
				used |= out->sent ||
					(known &&
					 tt_check_channel(c, p->peers[i], from, lane)->sent);
			}
			if (!used)
				return tt_fail(
					TT_USAGE,
					"rank %d: rank %d is in its list of peers, but no step names it",
					from, p->peers[i]);
		}
	}
	return TT_OK;
}
