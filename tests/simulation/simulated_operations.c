/*
 * simulated_operations.c - the operations that the seed draws
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"
#include "comm/comm.h"
#include "tests/simulation/simulated_job.h"

/* Bytes of messages; most: that wait at each rank. With the library's 64 MiB, copies took most of the time. */
#define SMALL 20000u /* among many ranks */
#define MEDIUM 100000u
#define QUEUED_MOST(n) (8u * MEDIUM * (unsigned)(n))
#define LARGE (QUEUED_MOST(2) + MEDIUM)

/* Draws that all ranks make alike: by the seed, the communicator and the number of the operation */
uint32_t sim_common(uint64_t key, int index, int what, uint32_t n)
{
	uint64_t z = sim->job->seed * 0x9e3779b97f4a7c15ull ^ key * 0xbf58476d1ce4e5b9ull ^
		     (uint64_t)(index * 16 + what) * 0x94d049bb133111ebull;

	z = (z ^ z >> 31) * 0xd6e8feb86659fd93ull;
	z = (z ^ z >> 32) * 0xd6e8feb86659fd93ull;
	return (uint32_t)((z >> 32) * n >> 32);
}

/* ---- operations -------------------------------------------------------------------------------- */

static int64_t value_of(int process, int index)
{
	return (int64_t)(process + 1) * 1000 + index;
}

static int64_t sum_of(const struct sim_comm *w, int index)
{
	int64_t sum = 0;

	for (int r = 0; r < w->n; r++)
		sum += value_of(w->member[r], index);
	return sum;
}

static void check_values(const char *what, bool over_tcp, const int64_t *got, size_t count,
			 int64_t expected)
{
	/* the transport is encrypted from rank to rank, control and messages from host to host */
	if (sim->job->faults == SIM_CORRUPTION && !(sim->encrypts && over_tcp))
		return;
	for (size_t i = 0; i < count; i++)
		if (got[i] != expected) {
			sim_fail("%s: element %zu is %lld, not %lld", what, i, (long long)got[i],
				 (long long)expected);
			return;
		}
}

static tuttiResult_t allreduce(struct sim_comm *w, int index)
{
	static const size_t counts[] = { 1, 7, 600, 5000, 40000 };
	size_t count = counts[sim_common(w->key, index, 1, 5)];
	int64_t *data = sim_alloc(count * sizeof(*data));
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	for (size_t i = 0; i < count; i++)
		data[i] = value_of(w->member[w->rank], index);
	rc = tuttiAllReduce(data, data, count, tuttiInt64, tuttiSum, w->comm, NULL);
	sim_check_call(w, "allreduce", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	if (!rc)
		check_values("allreduce", true, data, count, sum_of(w, index));
	sim_free(data);
	return rc;
}

static tuttiResult_t broadcast(struct sim_comm *w, int index)
{
	int root = (int)sim_common(w->key, index, 1, (uint32_t)w->n);
	size_t count = sim_common(w->key, index, 2, 2) ? 3 : 3000;
	int64_t *data = sim_alloc(count * sizeof(*data));
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	for (size_t i = 0; i < count; i++)
		data[i] = value_of(w->member[w->rank], index);
	rc = tuttiBcast(data, count, tuttiInt64, root, w->comm, NULL);
	sim_check_call(w, "broadcast", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	if (!rc)
		check_values("broadcast", true, data, count, value_of(w->member[root], index));
	sim_free(data);
	return rc;
}

static tuttiResult_t barrier(struct sim_comm *w, int index)
{
	uint64_t began = sim->now_ns;
	tuttiResult_t rc = tuttiBarrier(w->comm, NULL);

	(void)index;
	sim_check_call(w, "barrier", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	return rc;
}

/* One send and one receive in a ring, in one group */
static tuttiResult_t exchange(struct sim_comm *w, int index)
{
	int next = (w->rank + 1) % w->n, before = (w->rank + w->n - 1) % w->n;
	int64_t out = value_of(w->member[w->rank], index), in = 0;
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	if (w->n == 1)
		return tuttiSuccess;
	tuttiGroupStart();
	tuttiSend(&out, 1, tuttiInt64, next, w->comm, NULL);
	tuttiRecv(&in, 1, tuttiInt64, before, w->comm, NULL);
	rc = tuttiGroupEnd();
	sim_check_call(w, "send and receive", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	if (!rc)
		check_values("receive", true, &in, 1, value_of(w->member[before], index));
	return rc;
}

/* Each number of a message after the first two depends on its sender, its own number and its place. */
static int word_of(int rank, int number, size_t i)
{
	return (int)(((unsigned)rank * 31u + (unsigned)number) * 0x9e3779b9u + (unsigned)i);
}

static void fill(int *data, size_t bytes, int rank, int number)
{
	data[0] = rank;
	data[1] = number;
	for (size_t i = 2; i < bytes / sizeof(int); i++)
		data[i] = word_of(rank, number, i);
}

static void check_content(const int *data, size_t bytes)
{
	if (sim->job->faults == SIM_CORRUPTION)
		return;
	for (size_t i = 2; i < bytes / sizeof(int); i++)
		if (data[i] != word_of(data[0], data[1], i)) {
			sim_fail("message %d of rank %d has another one's number %zu", data[1],
				 data[0], i);
			return;
		}
}

/* May a message of `from` be missing before a later one? One that its sender could not send, or that a rank without
 * memory has dropped, or that went with a lost connection. */
static bool may_be_missing(const struct sim_comm *w, int from)
{
	const struct sim_rank *other = &sim->job->rank[w->member[from]],
			      *me = &sim->job->rank[sim->process->number];

	return sim->job->faults == SIM_CORRUPTION || other->unsent || other->harmed || me->harmed;
}

/* A message of rank r, in turns: a break does not end a receive, but the others may shrink already. A
 * turn lasts longer when a part of the message has come. */
static tuttiResult_t receive(struct sim_comm *w, int *data, size_t bytes, int r)
{
	tuttiMsg_t msg;
	tuttiResult_t rc = tuttiInProgress, broken = tuttiSuccess;

	for (int turn = 0; rc == tuttiInProgress && !broken && turn < 50; turn++) {
		uint64_t began = sim->now_ns;

		rc = tuttiMsgRecv(data, bytes, r, 5, 200, w->comm, &msg);
		sim_check_call(w, "receive a message", rc == tuttiInProgress ? 0 : rc, began,
			       SIM_SECOND + SIM_TIMEOUT_NS + SIM_SLACK_NS);
		tuttiCommGetAsyncError(w->comm, &broken);
	}
	if (!rc) /* it may be of an earlier operation, which failed */
		check_content(data, msg.bytes);
	return rc == tuttiInProgress && broken ? broken : rc;
}

/* The sender of a large message waits for its receiver, so only one rank sends one. */
static bool is_sent(bool large, int from, int to)
{
	return !large || (from == 0 && to == 1);
}

/* Messages to every rank; then as many are received from every rank that lives. */
static tuttiResult_t messages(struct sim_comm *w, int index)
{
	bool large = w->n == 2 && sim_common(w->key, index, 3, 6) == 0;
	int each = 1 + (int)sim_common(w->key, index, 1, large ? 1 : 4);
	size_t bytes = large                             ? LARGE
		       : sim_common(w->key, index, 2, 3) ? 16
		       : w->n > 8                        ? SMALL
							 : MEDIUM;
	int *data = sim_block(0, bytes);
	tuttiResult_t rc = tuttiSuccess;
	uint64_t began;

	sim->job->messaged = true;
	for (int i = 0; i < each; i++)
		for (int r = 0; r < w->n; r++) {
			if (!is_sent(large, w->rank, r))
				continue;
			fill(data, bytes, w->rank, w->sent[r]++);
			began = sim->now_ns;
			rc = tuttiMsgSend(data, bytes, r, 5, 0, w->comm);
			sim->job->rank[sim->process->number].unsent |= rc != tuttiSuccess;
			/* a time-out begins with each byte that the peer accepts */
			sim_check_call(w, large ? "large message" : "message", rc, began,
				       2 * SIM_TIMEOUT_NS + SIM_SLACK_NS);
		}
	for (int r = 0; r < w->n; r++) {
		tuttiResult_t got = tuttiSuccess;

		for (int i = 0; i < each && !got && is_sent(large, r, w->rank); i++) {
			got = receive(w, data, bytes, r);
			if (got == tuttiInProgress && !sim_any_harmed())
				sim_fail("message %d of rank %d did not come", w->received[r], r);
			if (got)
				continue;
			if (sim->job->faults != SIM_CORRUPTION &&
			    (data[0] != r || data[1] < w->received[r] ||
			     (data[1] > w->received[r] && !may_be_missing(w, r))))
				sim_fail("message %d of rank %d came for message %d of rank %d",
					 data[1], data[0], w->received[r], r);
			w->received[r] = data[1] + 1;
		}
		rc = rc ? rc : got;
	}
	sim_free(data);
	return rc;
}

static void check_record(const struct record *mine)
{
	if (sim->job->faults == SIM_CORRUPTION)
		return;
	for (int i = 0; i < sim->job->nrecords; i++) {
		const struct record *r = &sim->job->records[i];

		if (r->key != mine->key || r->sequence != mine->sequence)
			continue;
		if (r->mask != mine->mask || r->value != mine->value)
			sim_fail(
				"quorum operation %llu: mask %llx and value %lld here, %llx and %lld "
				"at another rank",
				(unsigned long long)mine->sequence, (unsigned long long)mine->mask,
				(long long)mine->value, (unsigned long long)r->mask,
				(long long)r->value);
		return;
	}
	if (sim->job->nrecords < SIM_RECORDS)
		sim->job->records[sim->job->nrecords++] = *mine;
}

static tuttiResult_t quorum(struct sim_comm *w, int index)
{
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	int64_t mine = value_of(w->member[w->rank], 0), sum = 0, expected = 0;
	int k = 1 + (int)sim_common(w->key, index, 1, (uint32_t)w->n);
	uint64_t began = sim->now_ns, limit_ns = SIM_TIMEOUT_NS + SIM_SLACK_NS;
	tuttiResult_t rc;

	/* a body whose length was corrupted is awaited once more */
	if (sim->job->faults == SIM_CORRUPTION)
		limit_ns += SIM_TIMEOUT_NS;
	sim->job->messaged = true;
	rc = tuttiAllReduceQuorum(&mine, &sum, 1, tuttiInt64, tuttiSum, k, 50, w->comm, NULL, &q);
	sim_check_call(w, "quorum allreduce", rc, began, limit_ns);
	if (rc)
		return rc;
	for (int r = 0; r < w->n; r++)
		if (q.mask[0] >> r & 1)
			expected += value_of(w->member[r], 0);
	if (sim->job->faults != SIM_CORRUPTION &&
	    (q.count != __builtin_popcountll(q.mask[0]) || q.mask[0] >> w->n))
		sim_fail("a quorum of %d has the mask %llx", q.count,
			 (unsigned long long)q.mask[0]);
	check_values("quorum allreduce", false, &sum, 1, expected);
	check_record(&(struct record){ w->key, q.sequence, q.mask[0], sum });
	return barrier(w, index); /* rank 0, which computes the sum, may not leave before */
}

void sim_add_member(struct sim_comm *w, int rank, int process)
{
	w->member[rank] = process;
	w->key = (w->key ^ (uint64_t)process) * 0x9e3779b97f4a7c15ull;
	w->key ^= w->key >> 29;
}

void sim_shorten_queue(const struct sim_comm *w)
{
	w->comm->am->unexpected_most = QUEUED_MOST(w->n);
}

/* Learn who the members are: each contributes its process number. */
tuttiResult_t sim_introduce(struct sim_comm *w)
{
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;
	int32_t me = sim->process->number, all[SIM_RANKS];

	tuttiCommCount(w->comm, &w->n);
	sim_shorten_queue(w);
	tuttiCommUserRank(w->comm, &w->rank);
	rc = tuttiAllGather(&me, all, 1, tuttiInt32, w->comm, NULL);
	sim_check_call(w, "allgather", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	for (int r = 0; r < w->n && !rc; r++) {
		if (all[r] < 0 || all[r] >= sim->job->n ||
		    (r && (w->backward ? all[r] >= all[r - 1] : all[r] <= all[r - 1]))) {
			if (sim->job->faults != SIM_CORRUPTION)
				sim_fail("rank %d of a communicator is process %d", r, all[r]);
			return tuttiRemoteError;
		}
		sim_add_member(w, r, all[r]);
	}
	w->known = !rc;
	return rc;
}

/* One rank calls something else: that is everybody's error at the next operation at the latest. */
static tuttiResult_t mismatch(struct sim_comm *w, int index)
{
	int wrong = (int)sim_common(w->key, index, 3, (uint32_t)w->n);
	tuttiResult_t rc;

	if (w->n == 1)
		return tuttiSuccess;
	sim->job->misused = true;
	rc = w->rank == wrong ? barrier(w, index) : allreduce(w, index);
	rc = rc ? rc : barrier(w, index);
	if (!rc)
		sim_fail("calls that do not fit are no error");
	return rc;
}

/* All ranks wait for each other: found by their statuses, long before the time-out. */
static tuttiResult_t deadlock(struct sim_comm *w, int index)
{
	int next = (w->rank + 1) % w->n;
	uint64_t began = sim->now_ns;
	int64_t in;
	tuttiResult_t rc;

	(void)index;
	if (w->n == 1)
		return tuttiSuccess;
	sim->job->misused = true;
	rc = tuttiRecv(&in, 1, tuttiInt64, next, w->comm, NULL);
	sim_check_call(w, "deadlock", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	if (!rc)
		sim_fail("a receive without a send is no error");
	if (sim->job->faults == SIM_NONE && rc == tuttiTimeout)
		sim_fail("a deadlock is not found: %s", tuttiGetLastError(w->comm));
	return rc;
}

/* Split in two, use the half, leave it. One of four has the opposite order. */
static tuttiResult_t split(struct sim_comm *w, int index)
{
	uint64_t key = w->key * 7 + (uint64_t)index;
	struct sim_comm half = { .departed = -1,
				 .key = key,
				 .origin = key,
				 .backward = sim_common(w->key, index, 4 + SIM_RANKS, 4) == 0 };
	int color = (int)sim_common(w->key, index, 4 + w->rank, 3);
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	sim_plan_faults_of_split();
	rc = tuttiCommSplit(w->comm, color - 1, half.backward ? -w->rank : w->rank, &half.comm,
			    NULL);
	sim_check_call(w, "split", rc, began, SIM_TIMEOUT_NS + SIM_SLACK_NS);
	if (rc || !half.comm)
		return rc;
	rc = sim_introduce(&half);
	for (int i = 0; i < 2 && !rc; i++)
		rc = i ? barrier(&half, i) : allreduce(&half, i);
	w->half_failed = rc;
	if (!sim->job->rank[sim->process->number].left_ns)
		sim->job->rank[sim->process->number].left_ns = sim->now_ns;
	began = sim->now_ns;
	sim_depart(&half);
	sim_check_call(NULL, "destroy a half", tuttiCommDestroy(half.comm), began,
		       SIM_TIMEOUT_NS + SIM_SLACK_NS);
	return rc;
}

/* Does the error say that a rank has left? To one that comes late, a rank that shrinks may have
 * ended the communicator already. */
static bool names_departure(const struct sim_comm *w)
{
	const char *text = tuttiGetLastError(w->comm);

	return strstr(text, " left") ||
	       (strstr(text, "shrinks the communicator") && sim_any_disturbs());
}

/* A rank leaves: that is an error of the others' next call at once, in words that say so. */
static tuttiResult_t departure(struct sim_comm *w, int index)
{
	int leaver = (int)sim_common(w->key, index, 3, (uint32_t)w->n);
	uint64_t began = sim->now_ns;
	tuttiResult_t rc;

	if (w->n == 1)
		return tuttiSuccess;
	sim->job->misused = true;
	if (w->rank == leaver) {
		sim->job->rank[sim->process->number].left_ns = sim->job->last_departure_ns = began;
		sim->job->rank[sim->process->number].leaves = true;
		sim_depart(w);
		sim_check_call(NULL, "destroy", tuttiCommDestroy(w->comm), began,
			       SIM_TIMEOUT_NS + SIM_SLACK_NS);
		w->comm = NULL;
		return tuttiInvalidUsage;
	}
	w->departed = leaver;
	rc = sim_common(w->key, index, 2, 2) ? barrier(w, index) : split(w, index);
	if (!rc)
		sim_fail("a call without a rank that has left is no error");
	if (sim->job->last_departure_ns > began)
		began = sim->job->last_departure_ns;
	if (sim->job->faults == SIM_NONE &&
	    (sim->now_ns - began > SIM_SECOND || !names_departure(w)))
		sim_fail("a rank that has left is noticed after %.3f s: %s",
			 1e-9 * (double)(sim->now_ns - began), tuttiGetLastError(w->comm));
	if (sim->job->faults == SIM_NONE) {
		sim_sleep(w, sim->now_ns + SIM_NOTICE_NS);
		sim_check_departed(w);
	}
	return rc;
}

typedef tuttiResult_t operation(struct sim_comm *, int);

/* In half of the schedules most operations are of one kind. */
static operation *choose_operation(const struct sim_comm *w, int index)
{
	static operation *const all[] = { allreduce, allreduce, broadcast, barrier,
					  exchange,  messages,  quorum,    split };
	uint32_t n = sizeof(all) / sizeof(all[0]), kind = sim_common(0, 0, 6, 2 * n);
	operation *chosen =
		all[kind < n && sim_common(w->key, index, 6, 4) ? kind
								: sim_common(w->key, index, 0, n)];

	if (sim->job->slow && (chosen == messages || sim_common(w->key, index, 7, 2)))
		return sim_repeat_messages;
	return chosen;
}

tuttiResult_t sim_run_operations(struct sim_comm *w)
{
	int n = 1 + (int)sim_common(w->key, 0, 0, 5);
	tuttiResult_t rc = tuttiSuccess;

	for (int i = 0; i < n && !rc; i++) {
		if (sim_random(4) == 0) /* this rank computes */
			sim_sleep(sim->job, sim->now_ns + sim_random_scale(1000, 20 * SIM_MS));
		sim_reach(SIM_OPERATIONS);
		switch (sim_common(w->key, i, 5, 40)) {
		case 0:
			rc = mismatch(w, i);
			break;
		case 1:
			rc = deadlock(w, i);
			break;
		case 2:
			rc = departure(w, i);
			break;
		default:
			rc = choose_operation(w, i)(w, i);
		}
	}
	return rc;
}
