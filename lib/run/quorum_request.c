/*
 * quorum_request.c - a quorum allreduce in its turn among the operations of a communicator
 *
 * Called by order.c. It is no operation with a plan: comm's quorum_call.c does all of it.
 */
#include <stdlib.h>
#include <string.h>

#include "run/run.h"

static struct tt_quorum_request *of(const struct tt_request *r)
{
	return (struct tt_quorum_request *)(uintptr_t)r->scalar;
}

/* A struct of an older header is shorter. */
static void report(const struct tt_quorum_call *q, tuttiQuorum_t *user)
{
	tuttiQuorum_t all = { .size = user->size, .carry = user->carry, .every = user->every,
			      .count = q->used, .mine = q->mine, .sequence = q->number,
			      .newest = q->newest };

	memcpy(all.mask, q->mask, sizeof(all.mask));
	memcpy(user, &all, user->size < sizeof(all) ? user->size : sizeof(all));
}

int tt_quorum_request_run(const struct tt_request *r)
{
	struct tt_quorum_request *q = of(r);
	int rc = tt_quorum_run(r->comm, &q->call);

	if (!rc && q->user)
		report(&q->call, q->user);
	free(q);
	return rc;
}

void tt_quorum_request_drop(const struct tt_request *r)
{
	free(of(r));
}
