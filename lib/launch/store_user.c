/*
 * store_user.c - the stores of the program: its own store (tuttiStore_t), or an allgather with UCC's
 * interface (tuttiOob_t)
 *
 * Called by rendezvous.c. The allgather serves as a store: put keeps the value, fence runs the
 * allgather, get returns rank 0's value.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launch/launch.h"

#define PAUSE_NS 100000l

static int open_nothing(struct tt_store *s)
{
	(void)s;
	return 0;
}

static int failed(const struct tt_store *s, const char *call, int rc)
{
	return tt_fail(TT_SYSTEM, "rank %d: %s of the program's store failed with %d", s->job->rank,
		       call, rc);
}

static uint32_t left_ms(uint64_t deadline_ns)
{
	uint64_t now = tt_now_ns();

	return now < deadline_ns ? (uint32_t)((deadline_ns - now) / 1000000 + 1) : 1;
}

/* ---- tuttiStore_t ---------------------------------------------------------------------------- */

static int put_user(struct tt_store *s, const char *key, const char *value)
{
	const tuttiStore_t *u = s->job->user;
	int rc = u->put(u->ctx, u->key, value);

	(void)key;
	return rc ? failed(s, "put", rc) : 0;
}

static int fence_user(struct tt_store *s, uint64_t deadline_ns)
{
	const tuttiStore_t *u = s->job->user;
	int rc = u->fence ? u->fence(u->ctx, (int)left_ms(deadline_ns)) : 0;

	return rc ? failed(s, "fence", rc) : 0;
}

static int get_user(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		    uint64_t deadline_ns)
{
	const tuttiStore_t *u = s->job->user;
	int rc = u->get(u->ctx, u->key, value, TT_STORE_VALUE, (int)left_ms(deadline_ns));

	(void)key;
	value[TT_STORE_VALUE - 1] = '\0';
	return rc ? failed(s, "get", rc) : 0;
}

static bool abort_user(struct tt_store *s, const char *why)
{
	const tuttiStore_t *u = s->job->user;

	if (u->abort)
		u->abort(u->ctx, why);
	return u->abort != NULL;
}

const struct tt_store_ops tt_store_user = {
	.name = "the program's store",
	.open = open_nothing,
	.put = put_user,
	.fence = fence_user,
	.get = get_user,
	.abort = abort_user,
};

/* ---- tuttiOob_t ------------------------------------------------------------------------------ */

struct oob_store {
	char mine[TT_STORE_VALUE];
	char *all; /* [nranks][TT_STORE_VALUE] */
};

static int open_oob(struct tt_store *s)
{
	struct oob_store *own = calloc(1, sizeof(*own));

	if (own)
		own->all = calloc((size_t)s->job->nranks, TT_STORE_VALUE);
	if (!own || !own->all) {
		free(own);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the values of %d ranks",
			       s->job->rank, s->job->nranks);
	}
	s->own = own;
	return 0;
}

static void close_oob(struct tt_store *s)
{
	struct oob_store *own = s->own;

	if (own)
		free(own->all);
	free(own);
}

static int put_oob(struct tt_store *s, const char *key, const char *value)
{
	struct oob_store *own = s->own;

	(void)key;
	snprintf(own->mine, sizeof(own->mine), "%s", value);
	return 0;
}

static int fence_oob(struct tt_store *s, uint64_t deadline_ns)
{
	const tuttiOob_t *u = s->job->user;
	struct oob_store *own = s->own;
	void *request = NULL;
	int rc = u->allgather(own->mine, own->all, TT_STORE_VALUE, u->coll_info, &request);

	if (rc < 0)
		return failed(s, "allgather", rc);
	while ((rc = u->req_test(request)) > 0 && tt_now_ns() < deadline_ns)
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	/* the request still writes to own->all: neither is freed */
	if (rc > 0)
		return s->own = NULL,
		       tt_fail(TT_TIMEOUT,
			       "rank %d: joining timed out: the program's allgather of %d ranks did not "
			       "end",
			       s->job->rank, s->job->nranks);
	u->req_free(request);
	return rc < 0 ? failed(s, "allgather", rc) : 0;
}

static int get_oob(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		   uint64_t deadline_ns)
{
	const struct oob_store *own = s->own;

	(void)key, (void)deadline_ns;
	memcpy(value, own->all, TT_STORE_VALUE);
	value[TT_STORE_VALUE - 1] = '\0';
	return 0;
}

const struct tt_store_ops tt_store_oob = {
	.name = "the program's allgather",
	.open = open_oob,
	.put = put_oob,
	.fence = fence_oob,
	.get = get_oob,
	.close = close_oob,
};
