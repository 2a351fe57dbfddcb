/*
 * group.c - collect the calls between tuttiGroupStart and tuttiGroupEnd, then run them together
 *
 * Each thread has its own group. Outside a group a call runs at once: in the caller (NULL stream)
 * or in its stream. At the end of a group, the requests of streams that share communicators are one
 * batch, in call order; the caller runs the requests of the NULL stream. Joins and splits of several
 * ranks of this thread wait for each other, so each gets a thread.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/thread.h"
#include "gpu/gpu_call.h"

static __thread struct call_group {
	int depth, error;
	struct tt_request *requests;
	size_t nrequests, room;
	struct tt_joining *joining;
	size_t njoining;
} group;
static __thread char group_text[1024]; /* of group.error; apart, since each group copies the rest */

/* The requests of a short group. A group within the end of another one (user operators) has its own. */
#define SHORT_GROUP 4
static __thread struct tt_request short_group[SHORT_GROUP];
static __thread bool short_group_taken;

bool tt_group_open(void)
{
	return group.depth > 0;
}

int tt_group_fail(int code)
{
	if (group.depth && !group.error) {
		group.error = code;
		snprintf(group_text, sizeof(group_text), "%s", tt_error_text());
	}
	return code;
}

static bool on_one_stream(const struct tt_request *requests, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (requests[i].stream != requests[0].stream)
			return false;
	return true;
}

static int run_now(const struct tt_request *requests, size_t n)
{
	bool one = on_one_stream(requests, n);
	tuttiStream_t stream = requests[0].stream;

	for (size_t i = 0; i < n; i++)
		if (tt_unlikely(requests[i].comm->gpu != NULL))
			return one ? tt_gpu_run(requests, n, stream)
				   : tt_gpu_run_joined(requests, n);
	if (tt_unlikely(!one))
		return tt_streams_submit(requests, n);
	return stream ? tt_stream_submit(stream, requests, n) : tt_run_in_order(requests, n);
}

/* Enters each communicator once. Calls of a group run later than the user made them: their
 * communicators may have been aborted meanwhile. */
static int enter_all(struct tt_request *requests, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		tuttiComm_t c = requests[i].comm;

		if (atomic_load(&c->order.caller) == (uintptr_t)requests)
			continue;
		rc = tt_comm_enter(c, "tuttiGroupEnd", (uintptr_t)requests);
		requests[i].entered = !rc;
	}
	return rc;
}

static int run_later(struct tt_request *requests, size_t n)
{
	int rc = enter_all(requests, n);

	if (!rc)
		rc = run_now(requests, n);
	for (size_t i = 0; i < n; i++)
		if (requests[i].entered)
			rc = tt_comm_leave(requests[i].comm, (uintptr_t)requests, rc);
	return rc;
}

static void give_requests(struct tt_request *requests)
{
	if (requests == short_group)
		short_group_taken = false;
	else
		tt_pool_give(requests);
}

/* 0 | TT_SYSTEM */
static int make_room(const struct tt_request *r)
{
	size_t room = group.room ? 4 * group.room : SHORT_GROUP;
	struct tt_request *more = short_group;

	if (group.room || short_group_taken)
		more = tt_pool_take(r->comm, room * sizeof(*more));
	else
		short_group_taken = true;
	if (!more)
		return tt_run_unbegun(r, 1,
				      tt_fail(TT_SYSTEM, "no memory for a group of %zu calls",
					      room));
	if (group.room)
		memcpy(more, group.requests, group.room * sizeof(*more));
	give_requests(group.requests);
	group.requests = more;
	group.room = room;
	return 0;
}

static int collect(const struct tt_request *r)
{
	int rc = group.nrequests == group.room ? make_room(r) : 0;

	if (!rc)
		group.requests[group.nrequests++] = *r;
	return rc;
}

int tt_group_request(const struct tt_request *r)
{
	int rc;

	if (tt_likely(!group.depth))
		return run_now(r, 1);
	rc = collect(r);
	return rc ? tt_group_fail(rc) : 0;
}

/* Runs in the caller's CUDA context, in whichever thread. */
static int run_join(struct tt_joining *j)
{
	int mode = tt_cuda_enter(j->ctx), rc = j->run(j);

	tt_cuda_leave(j->ctx, mode);
	return rc;
}

tuttiResult_t tt_group_join(const struct tt_joining *j)
{
	struct tt_joining *more, alone;

	alone = *j;
	if (!alone.ctx && tt_cuda_context(&alone.ctx) && group.depth)
		return tt_result(tt_group_fail(TT_CUDA));
	/* run_join checks the context again, where the other ranks learn of a failure */
	if (!group.depth)
		return tt_result(run_join(&alone));
	more = realloc(group.joining, (group.njoining + 1) * sizeof(*more));
	if (!more)
		return tt_result(
			tt_group_fail(tt_fail(TT_SYSTEM, "no memory for a group of joins")));
	group.joining = more;
	more[group.njoining++] = alone;
	return tuttiSuccess;
}

static void *join_thread(void *arg)
{
	struct tt_joining *j = arg;

	j->result = run_join(j);
	if (j->result)
		snprintf(j->text, sizeof(j->text), "%s", tt_error_text());
	return NULL;
}

static int run_joins(struct tt_joining *j, size_t n)
{
	pthread_t *threads = malloc(n * sizeof(*threads));
	int rc = 0;

	if (!threads)
		return tt_fail(TT_SYSTEM, "no memory for %zu joins", n);
	for (size_t i = 0; i < n; i++) {
		int failed = tt_thread_start(&threads[i], "tutti-join", join_thread, &j[i]);

		if (!failed)
			continue;
		j[i].run = NULL; /* the thread was not created: no join to wait for */
		j[i].result = TT_SYSTEM;
		snprintf(j[i].text, sizeof(j[i].text), "no thread to join a communicator: %s",
			 strerror(failed));
	}
	for (size_t i = 0; i < n; i++) {
		if (j[i].run)
			pthread_join(threads[i], NULL);
		if (j[i].result && !rc)
			rc = tt_fail(j[i].result, "%s", j[i].text);
	}
	free(threads);
	return rc;
}

/* Set part[i] to the part of the group that request i belongs to: requests that share a stream or a
 * communicator, directly or through others, are one part. */
static void find_parts(const struct tt_request *all, size_t n, size_t *part)
{
	for (size_t i = 0; i < n; i++) {
		bool stream = false,
		     comm = false; /* an earlier request with the same one was found */

		part[i] = i;
		for (size_t j = i; j-- > 0 && !(stream && comm);) {
			bool same_stream = all[j].stream == all[i].stream,
			     same_comm = all[j].comm == all[i].comm;
			size_t joined = part[j];

			stream |= same_stream;
			comm |= same_comm;
			if (!(same_stream || same_comm) || joined == i)
				continue;
			for (size_t k = 0; k < i; k++)
				if (part[k] == joined)
					part[k] = i;
		}
	}
}

/* Runs the parts one after the other, that of the NULL stream last, because only that blocks. */
static int run_parts(const struct tt_request *all, size_t n, size_t *part, struct tt_request *some)
{
	size_t blocking = n;
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		if (!all[i].stream)
			blocking = part[i];
	for (size_t i = 0; i <= n && !rc; i++) {
		size_t now = i < n ? part[i] : blocking, k = 0;

		if (now == n || (i < n && now == blocking))
			continue; /* already run, or to be run last */
		for (size_t j = 0; j < n; j++)
			if (part[j] == now) {
				some[k++] = all[j];
				part[j] = n;
			}
		rc = run_later(some, k);
	}
	return rc;
}

static int run_requests(struct tt_request *all, size_t n)
{
	struct tt_request *some;
	size_t *part;
	int rc;

	if (on_one_stream(all, n))
		return run_later(all, n);
	some = tt_pool_take(all[0].comm, n * (sizeof(*some) + sizeof(*part)));
	if (!some)
		return tt_run_unbegun(all, n,
				      tt_fail(TT_SYSTEM, "no memory for a group of %zu calls", n));
	part = (size_t *)(some + n);
	find_parts(all, n, part);
	rc = run_parts(all, n, part, some);
	tt_pool_give(some);
	return rc;
}

/* The request that matches request i of a rank to itself (k-th send, k-th receive); NULL: none. */
static const struct tt_request *matching_half(const struct tt_request *all, size_t n, size_t i)
{
	size_t ahead = 0;

	for (size_t j = 0; j < i; j++)
		ahead += all[j].to_self && all[j].comm == all[i].comm && all[j].send == all[i].send;
	for (size_t j = 0; j < n; j++)
		if (all[j].to_self && all[j].comm == all[i].comm && all[j].send != all[i].send &&
		    ahead-- == 0)
			return &all[j];
	return NULL;
}

/* Checks that the sends and receives of ranks to themselves match within the group. 0 | TT_USAGE */
static int check_self_messages(const struct tt_request *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct tt_request *a = &all[i],
					*b = a->to_self ? matching_half(all, n, i) : a;

		if (!b)
			return tt_fail(
				TT_USAGE,
				"rank %d: its %s of %zu %s %s itself has no %s in the same group",
				a->root, a->send ? "send" : "receive", a->count,
				tt_datatype_name(a->type), a->send ? "to" : "from",
				a->send ? "receive" : "send");
		if (a->count != b->count || a->type != b->type)
			return tt_fail(TT_USAGE,
				       "rank %d: sends itself %zu %s, but receives %zu %s", a->root,
				       a->count, tt_datatype_name(a->type), b->count,
				       tt_datatype_name(b->type));
	}
	return 0;
}

TUTTI_API tuttiResult_t tuttiGroupStart(void)
{
	group.depth++;
	return tuttiSuccess;
}

TUTTI_API tuttiResult_t tuttiGroupEnd(void)
{
	struct call_group g;
	int rc;

	if (!group.depth)
		return tt_result(tt_fail(TT_USAGE, "tuttiGroupEnd without tuttiGroupStart"));
	if (--group.depth)
		return tuttiSuccess;
	g = group;
	memset(&group, 0, sizeof(group));
	rc = g.error ? tt_fail(g.error, "%s", group_text)
		     : check_self_messages(g.requests, g.nrequests);
	if (!rc && g.njoining)
		rc = run_joins(g.joining, g.njoining);
	if (!rc && g.nrequests)
		rc = run_requests(g.requests, g.nrequests);
	free(g.joining);
	give_requests(g.requests);
	return tt_result(rc);
}
