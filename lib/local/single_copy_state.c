/*
 * single_copy_state.c - the record of a communicator's single copies
 *
 * Called by run with the first collective and at the end (struct tt_way), and by the exchange for
 * a bounce buffer. A record exists where all ranks have shared-memory slots whose transport can
 * describe memory.
 */
#include <stdlib.h>

#include "local/single_copy.h"

int tt_smsc_open(tuttiComm_t c)
{
	if (c->single_copy || !c->paths.slots || !c->paths.slots->peer_memory_ops ||
	    c->nranks > TT_SINGLE_COPY_RANKS)
		return 0;
	c->single_copy = calloc(1, sizeof(*c->single_copy));
	if (!c->single_copy)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for reading peers' memory", c->rank);
	c->single_copy->maps = true;
	atomic_fetch_add(&c->memory.allocations, 1);
	return 0;
}

void tt_smsc_close(tuttiComm_t c)
{
	if (c->single_copy)
		free(c->single_copy->bounce);
	free(c->single_copy);
	c->single_copy = NULL;
}

size_t tt_smsc_memory(tuttiComm_t c)
{
	return c->single_copy ? sizeof(*c->single_copy) + c->single_copy->bounce_bytes : 0;
}

int tt_smsc_open_bounce(tuttiComm_t c, size_t bytes)
{
	struct tt_single_copy *s = c->single_copy;

	if (s->bounce)
		return 0;
	s->bounce = aligned_alloc(4096, bytes);
	if (!s->bounce)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a bounce buffer of %zu bytes",
			       c->rank, bytes);
	s->bounce_bytes = bytes;
	atomic_fetch_add(&c->memory.allocations, 1);
	return 0;
}
