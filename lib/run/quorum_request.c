/*
 * quorum_request.c - a quorum allreduce in ticket order among the operations of a communicator
 *
 * Called by order.c. Calls comm/quorum_call.c: a quorum allreduce has no plan and runs by active
 * messages.
 */
#include <stdlib.h>
#include <string.h>

#include "run/run.h"

/* The user's struct may be of an older header, and then is shorter. */
static void report(const struct tt_quorum_call *q, tuttiQuorum_t *user)
{
	tuttiQuorum_t all = { .size = user->size,
			      .carry = user->carry,
			      .every = user->every,
			      .count = q->used,
			      .mine = q->mine,
			      .sequence = q->number,
			      .newest = q->newest };

	memcpy(all.mask, q->mask, sizeof(all.mask));
	memcpy(user, &all, user->size < sizeof(all) ? user->size : sizeof(all));
}

int tt_quorum_request_run(const struct tt_request *r)
{
	struct tt_quorum_request *q = r->quorum;
	int rc = tt_quorum_run(r->comm, &q->call);

	if (!rc && q->user)
		report(&q->call, q->user);
	free(q);
	return rc;
}

void tt_quorum_request_drop(const struct tt_request *r)
{
	free(r->quorum);
}
