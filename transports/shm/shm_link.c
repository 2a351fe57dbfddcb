/*
 * shm_link.c - make and free a link of shared memory: its two rings, and the memory of their first cells
 *
 * Called by shm.c, when a rank connects to another one and at the end; calls shm_layout.c. In between shm_ring.c moves
 * the messages.
 */
#include <stdlib.h>
#include <string.h>

#include "transports/shm/shm_ring.h"

static struct tt_shm_link *make(struct tt_shm_ep *ep, int peer, int channel)
{
	struct tt_shm_segment *s = &ep->segment;
	int other = s->local_of[peer];
	struct tt_shm_link *l = aligned_alloc(alignof(struct tt_shm_link), sizeof(*l));

	if (!l) {
		tt_fail(TT_SYSTEM, "rank %d: no memory for a link to rank %d", ep->base.world->rank,
			peer);
		return NULL;
	}
	memset(l, 0, sizeof(*l));
	l->base = (struct tt_link){
		.t = &tt_shm, .ep = &ep->base, .peer = peer, .channel = channel
	};
	l->segment = s;
	l->demotes = s->demotes;
	l->tx = tt_shm_segment_ring(s, s->me, other, channel);
	l->rx = tt_shm_segment_ring(s, other, s->me, channel);
	l->peer_bell = &s->header->bells[other];
	return l;
}

/* Two cells of each size: a step that receives and sends keeps the received message until its send finds a cell, and the
 * plans are verified for one further message in flight. The control pages of the peer's ring, too: it may connect later. */
static int claim_least(struct tt_shm_link *l)
{
	int why = tt_shm_segment_claim(l->segment, l->tx, TT_SHM_CONTROL + 2 * l->small.bytes);

	if (!why)
		why = tt_shm_segment_claim(l->segment, l->large.at, 2 * l->large.bytes);
	return why ? why : tt_shm_segment_claim(l->segment, l->rx, TT_SHM_CONTROL);
}

/* Memory for both rings. */
static int claim(struct tt_shm_link *l)
{
	uint8_t *at = (uint8_t *)l->tx + TT_SHM_CONTROL,
		*theirs = (uint8_t *)l->rx + TT_SHM_CONTROL;
	int why;

	l->small = (struct tt_shm_cells){ .at = at,
					  .theirs = theirs,
					  .bytes = TT_SHM_PAGE,
					  .claimed = 2,
					  .most = TT_SHM_SMALL_CELLS,
					  .most_granted = TT_SHM_SMALL_CELLS / 2 };
	l->large = (struct tt_shm_cells){ .at = at + TT_SHM_SMALL_CELLS * TT_SHM_PAGE,
					  .theirs = theirs + TT_SHM_SMALL_CELLS * TT_SHM_PAGE,
					  .bytes = l->segment->cell_bytes,
					  .claimed = 2,
					  .most = l->segment->ncells,
					  .most_granted = tt_shm_max_away(l->segment->cell_bytes) };
	why = claim_least(l);
	if (why)
		return tt_fail(
			TT_SYSTEM,
			"rank %d: no %zu bytes of shared memory for messages to rank %d: %s; allow more "
			"memory (container or cgroup limit, vm.overcommit_memory), or use fewer ranks or smaller "
			"tiles (TUTTI_TILE_BYTES)",
			l->base.ep->world->rank,
			2 * (TT_SHM_CONTROL + l->small.bytes + l->large.bytes), l->base.peer,
			strerror(why));
	return 0;
}

int tt_shm_link_open(struct tt_shm_ep *ep, int peer, int channel, struct tt_shm_link **ret_link)
{
	struct tt_shm_link *l = make(ep, peer, channel);
	int rc = l ? claim(l) : TT_SYSTEM;

	if (rc)
		free(l);
	else
		*ret_link = l;
	return rc;
}

void tt_shm_link_close(struct tt_shm_link *l)
{
	if (l)
		free(l->rndv.bounce);
	free(l);
}
