/*
 * test_messages.c - messages with tags and versions: order, any source, bounds, cancel, deaths
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/descriptors.h"
#include "tests/support/must.h"

enum { PUSH = 1, PULL, STOP, OTHER };

static int failures(int n, bool threads, const char *transport, int timeout_ms, rank_fn *fn,
		    void *arg)
{
	struct ranks r = { .n = n,
			   .threads = threads,
			   .transport = transport,
			   .timeout_ms = timeout_ms,
			   .arg = arg,
			   .limit_s = 50 };

	return ranks_run(&r, fn);
}

/* ---- order and matching ---------------------------------------------------------------------- */

/* Every rank sends messages of growing size to every rank, also itself; each rank receives all of
 * them in order. */
static int all_to_all(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	static __thread unsigned char in[70000], out[70000];
	int next[64] = { 0 };
	tuttiMsg_t m;

	(void)arg;
	for (int i = 0; i < 20; i++)
		for (int p = 0; p < nranks; p++) {
			size_t bytes = (size_t)(i * i * 170);

			memset(out, rank * 20 + i, bytes);
			WANT(!tuttiMsgSend(out, bytes, p, PUSH, (uint64_t)i, *comm));
		}
	for (int i = 0; i < 20 * nranks; i++) {
		WANT(!tuttiMsgRecv(in, sizeof(in), TUTTI_ANY, PUSH, -1, *comm, &m));
		WANT((int)m.version == next[m.source] && m.tag == PUSH);
		WANT(m.bytes == (size_t)(next[m.source] * next[m.source] * 170));
		WANT(!m.bytes || (in[0] == (unsigned char)(m.source * 20 + next[m.source]) &&
				  in[m.bytes - 1] == in[0]));
		next[m.source]++;
	}
	WANT(tuttiMsgRecv(in, sizeof(in), TUTTI_ANY, TUTTI_ANY, 0, *comm, &m) == tuttiInProgress);
	WANT(!tuttiBarrier(*comm, NULL));
	return 0;
}

Test(messages, arrive_in_order_from_every_rank, .timeout = 60)
{
	cr_assert_eq(failures(4, false, "shm", 0, all_to_all, NULL), 0);
	cr_assert_eq(failures(3, false, "tcp", 0, all_to_all, NULL), 0);
	cr_assert_eq(failures(1, false, NULL, 0, all_to_all, NULL), 0);
}

Test(messages, reach_ranks_that_are_threads, .timeout = 60)
{
	cr_assert_eq(failures(2, true, NULL, 0, all_to_all, NULL), 0);
}

static int match(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	int x = 0;
	tuttiMsg_t m;

	(void)nranks, (void)arg;
	if (rank == 0) {
		for (int i = 0; i < 5; i++)
			WANT(!tuttiMsgSend(&i, sizeof(i), 1, i % 2 ? PUSH : PULL, 10 + (uint64_t)i,
					   *comm));
		return 0;
	}
	WANT(!tuttiMsgProbe(0, PULL, -1, *comm, &m) && m.bytes == sizeof(x) && m.version == 10);
	WANT(!tuttiMsgRecv(&x, sizeof(x), TUTTI_ANY, PUSH, -1, *comm, &m) && x == 1 &&
	     m.version == 11);
	WANT(tuttiMsgRecv(&x, 2, 0, TUTTI_ANY, -1, *comm, &m) == tuttiInvalidArgument);
	WANT(strstr(tuttiGetLastError(NULL), "rank 0") &&
	     strstr(tuttiGetLastError(NULL), "4 bytes"));
	for (int i = 0; i < 5; i++)
		if (i != 1)
			WANT(!tuttiMsgRecv(&x, sizeof(x), 0, TUTTI_ANY, -1, *comm, &m) && x == i);
	WANT(tuttiMsgSend(&x, sizeof(x), 7, PUSH, 0, *comm) == tuttiInvalidArgument);
	WANT(tuttiMsgSend(&x, sizeof(x), 0, -1, 0, *comm) == tuttiInvalidArgument);
	WANT(tuttiMsgSend(NULL, 4, 0, PUSH, 0, *comm) == tuttiInvalidArgument);
	WANT(tuttiMsgRecv(&x, sizeof(x), -2, PUSH, 0, *comm, &m) == tuttiInvalidArgument);
	WANT(tuttiMsgRecv(&x, sizeof(x), 0, PUSH, -7, *comm, &m) == tuttiInvalidArgument);
	return 0;
}

Test(messages, are_matched_by_source_and_tag, .timeout = 60)
{
	cr_assert_eq(failures(2, false, NULL, 0, match, NULL), 0);
}

/* ---- a parameter server ---------------------------------------------------------------------- */

#define STEPS 20
#define VALUES 20000

static int serve(tuttiComm_t comm, int workers)
{
	static float sum[VALUES], in[VALUES];
	int before = count_descriptors();
	uint64_t version = 0;
	tuttiMsg_t m;

	for (int stops = 0; stops < workers;) {
		WANT(!tuttiMsgRecv(in, sizeof(in), TUTTI_ANY, TUTTI_ANY, -1, comm, &m));
		if (m.tag == STOP) {
			stops++;
			continue;
		}
		for (int i = 0; i < VALUES; i++)
			sum[i] += in[i];
		version++;
		WANT(!tuttiMsgSend(sum, sizeof(sum), m.source, PULL, version, comm));
	}
	WANT(count_descriptors() <= before + 2 * workers); /* two per pair */
	WANT(version == (uint64_t)workers * STEPS && sum[0] == (float)version &&
	     sum[VALUES - 1] == (float)version);
	return 0;
}

/* The last two ranks are servers; all others push to both and pull from both. */
static int store(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	static float ones[VALUES], got[VALUES];
	int workers = nranks - 2;
	tuttiMsg_t m;

	(void)arg;
	if (rank >= workers)
		return serve(*comm, workers);
	for (int i = 0; i < VALUES; i++)
		ones[i] = 1;
	for (int step = 0; step < STEPS; step++) {
		for (int s = workers; s < nranks; s++)
			WANT(!tuttiMsgSend(ones, sizeof(ones), s, PUSH, (uint64_t)step, *comm));
		for (int s = workers; s < nranks; s++)
			WANT(!tuttiMsgRecv(got, sizeof(got), s, PULL, -1, *comm, &m) &&
			     got[7] == (float)m.version);
	}
	for (int s = workers; s < nranks; s++)
		WANT(!tuttiMsgSend(NULL, 0, s, STOP, 0, *comm));
	return 0;
}

Test(messages, make_a_sharded_parameter_server_for_many_workers, .timeout = 60)
{
	cr_assert_eq(failures(10, false, NULL, 0, store, NULL), 0);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Rank 0 pushes 160 MiB that rank 1 does not receive yet, and one message larger than the limit of
 * the unexpected queue; rank 1's memory stays bounded, and then every message arrives. */
static int flood(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	size_t each = 8u << 20, large = 72u << 20;
	unsigned char *data = malloc(large);
	uint64_t used = 0, most = 0;
	tuttiMsg_t m;

	(void)nranks, (void)arg;
	memset(data, rank, large);
	if (rank == 0) {
		for (int i = 0; i < 20; i++)
			WANT(!tuttiMsgSend(data, each, 1, PUSH, (uint64_t)i, *comm));
		WANT(!tuttiMsgSend(data, large, 1, PUSH, 20, *comm));
	} else {
		/* memory grows to the limit, and no further */
		for (int i = 0, full = 0; i < 10000 && full < 50; i++) {
			WANT(!tuttiCommMemStats(*comm, tuttiMemControl, &used));
			most = used > most ? used : most;
			full += most > (32u << 20);
			usleep(2000);
		}
		WANT(most > (32u << 20) && most < (66u << 20));
		for (int i = 0; i < 21; i++) {
			WANT(!tuttiMsgRecv(data, large, 0, PUSH, -1, *comm, &m) &&
			     m.version == (uint64_t)i);
			WANT(m.bytes == (i < 20 ? each : large) && data[m.bytes - 1] == 0);
		}
		WANT(!tuttiCommMemStats(*comm, tuttiMemControl, &used) && used < (1u << 20));
	}
	free(data);
	WANT(!tuttiBarrier(*comm, NULL));
	return 0;
}

Test(messages, wait_at_the_sender_when_the_unexpected_queue_is_full, .timeout = 60)
{
	cr_assert_eq(failures(2, false, NULL, 0, flood, NULL), 0);
}

static int give_up(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	size_t bytes = 80u << 20;
	unsigned char *data = calloc(1, bytes);
	_Atomic int *gave_up = arg;
	tuttiResult_t rc;
	char go = 0;
	tuttiMsg_t m;

	(void)nranks;
	if (rank == 0) {
		WANT(tuttiMsgSend(data, bytes, 1, PUSH, 1, *comm) == tuttiTimeout);
		WANT(strstr(tuttiGetLastError(NULL), "rank 1"));
		/* the buffer is reusable: the sent message does not change */
		memset(data, 1, bytes);
		*gave_up = 1;
		while ((rc = tuttiMsgSend(&go, 1, 1, PULL, 2, *comm)) == tuttiTimeout)
			;
		WANT(!rc);
	} else {
		WANT(!tuttiMsgProbe(0, PUSH, 20000, *comm, &m) && m.bytes == bytes);
		for (int i = 0; i < 20000 && !*gave_up; i++)
			usleep(1000);
		WANT(!tuttiMsgRecv(data, bytes, 0, PUSH, 20000, *comm, &m) && data[bytes - 1] == 0);
		WANT(!tuttiMsgRecv(&go, 1, 0, PULL, 20000, *comm, &m));
	}
	free(data);
	return 0;
}

Test(messages, time_out_without_damage_to_the_connection, .timeout = 60)
{
	_Atomic int *gave_up = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				    -1, 0);

	cr_assert_eq(failures(2, false, NULL, 2500, give_up, (void *)gave_up), 0);
}

/* ---- cancel ---------------------------------------------------------------------------------- */

static atomic_bool cancelled;

/* Cancels repeatedly, because the other thread may not wait yet. */
static void *cancel_until_it_ends(void *arg)
{
	while (!cancelled) {
		usleep(10000);
		tuttiMsgCancel(0, OTHER, 0, arg, NULL);
	}
	return NULL;
}

static int cancel(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	pthread_t thread;
	uint64_t dropped;
	tuttiMsg_t m;
	int x = 0;

	(void)nranks, (void)arg;
	for (uint64_t v = 0; rank == 0 && v < 10; v++)
		WANT(!tuttiMsgSend(&x, sizeof(x), 1, PUSH, v, *comm));
	if (rank == 0) {
		WANT(!tuttiMsgSend(&x, sizeof(x), 1, PULL, 0, *comm));
		return tuttiMsgRecv(&x, sizeof(x), 1, STOP, -1, *comm, &m);
	}
	/* all earlier messages have arrived */
	WANT(!tuttiMsgRecv(&x, sizeof(x), 0, PULL, -1, *comm, &m));
	WANT(!tuttiMsgCancel(TUTTI_ANY, PUSH, 6, *comm, &dropped) && dropped == 6);
	WANT(!tuttiMsgRecv(&x, sizeof(x), 0, PUSH, 0, *comm, &m) && m.version == 6);
	WANT(!pthread_create(&thread, NULL, cancel_until_it_ends, *comm));
	/* longer than the rank may live, because this timeout would return the same code */
	WANT(tuttiMsgRecv(&x, sizeof(x), 0, OTHER, 100000, *comm, &m) == tuttiInProgress);
	cancelled = true;
	pthread_join(thread, NULL);
	return tuttiMsgSend(&x, sizeof(x), 0, STOP, 0, *comm);
}

Test(messages, of_old_versions_are_cancelled_and_so_are_posted_receives, .timeout = 60)
{
	cr_assert_eq(failures(2, false, NULL, 0, cancel, NULL), 0);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* Rank 2 sends a message and dies; the others receive it, learn of the death, and continue with
 * each other. */
static int death(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiRankState_t state = tuttiRankAlive;
	float x = 1;
	tuttiMsg_t m;
	int last = 5;

	(void)nranks, (void)arg;
	if (rank == 2) {
		for (int p = 0; p < 2; p++)
			WANT(!tuttiMsgSend(&last, sizeof(last), p, PUSH, 9, *comm));
		for (int p = 0; p < 2; p++)
			WANT(!tuttiMsgRecv(&last, sizeof(last), p, PULL, -1, *comm, &m));
		_exit(0);
	}
	last = 0;
	WANT(!tuttiMsgProbe(2, PUSH, -1, *comm, &m));
	WANT(!tuttiMsgSend(&last, sizeof(last), 2, PULL, 0, *comm));
	WANT(tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, *comm, NULL) == tuttiRemoteError);
	WANT(!tuttiMsgRecv(&last, sizeof(last), 2, PUSH, 0, *comm, &m) && last == 5);
	WANT(tuttiMsgRecv(&last, sizeof(last), 2, PUSH, -1, *comm, &m) == tuttiRemoteError);
	WANT(strstr(tuttiGetLastError(NULL), "rank 2 is dead"));
	WANT(!tuttiCommRankState(*comm, 2, &state) && state == tuttiRankDead);
	WANT(tuttiMsgSend(&last, sizeof(last), 2, PUSH, 0, *comm) == tuttiRemoteError);
	WANT(!tuttiMsgSend(&rank, sizeof(rank), 1 - rank, PUSH, 1, *comm));
	WANT(!tuttiMsgRecv(&last, sizeof(last), TUTTI_ANY, PUSH, -1, *comm, &m) &&
	     last == 1 - rank);
	WANT(!tuttiCommRankState(*comm, 1 - rank, &state) && state != tuttiRankDead);
	return 0;
}

Test(messages, continue_after_a_death, .timeout = 60)
{
	cr_assert_eq(failures(3, false, NULL, 0, death, NULL), 0);
}

static int leave(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiRankState_t state = tuttiRankAlive;
	tuttiMsg_t m;
	int x = 1;

	(void)nranks, (void)arg;
	if (rank)
		return tuttiMsgSend(&x, sizeof(x), 0, PUSH, 0, *comm);
	for (int i = 1; i < nranks; i++)
		WANT(!tuttiMsgRecv(&x, sizeof(x), TUTTI_ANY, PUSH, -1, *comm, &m));
	WANT(tuttiMsgRecv(&x, sizeof(x), TUTTI_ANY, PUSH, -1, *comm, &m) == tuttiRemoteError);
	for (int i = 1; i < nranks; i++)
		WANT(!tuttiCommRankState(*comm, i, &state) && state == tuttiRankLeft);
	return 0;
}

Test(messages, of_ranks_that_left_are_still_received, .timeout = 60)
{
	cr_assert_eq(failures(4, false, NULL, 0, leave, NULL), 0);
}

static void *receive_until_abort(void *arg)
{
	int x;
	tuttiMsg_t m;

	return (void *)(intptr_t)tuttiMsgRecv(&x, sizeof(x), TUTTI_ANY, OTHER, 40000, arg, &m);
}

static int abort_it(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	pthread_t thread;
	void *result;

	(void)rank, (void)nranks, (void)arg;
	WANT(!pthread_create(&thread, NULL, receive_until_abort, *comm));
	usleep(100000);
	WANT(!tuttiCommAbort(*comm));
	*comm = NULL;
	pthread_join(thread, &result);
	/* or the receive began after the abort */
	WANT((intptr_t)result == tuttiRemoteError || (intptr_t)result == tuttiInvalidArgument);
	return 0;
}

Test(messages, posted_receives_end_with_abort, .timeout = 60)
{
	cr_assert_eq(failures(2, false, NULL, 0, abort_it, NULL), 0);
}

static int abort_while_others_receive(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	const char *text;
	int x;

	(void)nranks, (void)arg;
	WANT(!tuttiBarrier(*comm, NULL));
	if (rank == 1) {
		WANT(!tuttiCommAbort(*comm));
		*comm = NULL;
		return 0;
	}
	WANT(tuttiMsgRecv(&x, sizeof(x), 1, OTHER, 40000, *comm, NULL) == tuttiRemoteError);
	text = tuttiGetLastError(NULL);
	WANT(strstr(text, "rank 1 has left") && strstr(text, ": rank 1 aborted the communicator"));
	return 0;
}

/* Three ranks are neighbors of each other, so the abort comes before the goodbye. */
Test(messages, a_receive_names_the_rank_that_aborted_and_the_abort, .timeout = 60)
{
	cr_assert_eq(failures(3, false, NULL, 0, abort_while_others_receive, NULL), 0);
}

/* Is the process not stopped yet? */
static bool is_running(int pid)
{
	char path[40], state = 'T';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	(void)!fscanf(file, "%*d (%*[^)]) %c", &state);
	fclose(file);
	return state != 'T';
}

struct send_to_rank_1 {
	tuttiComm_t comm;
	size_t bytes;
};

static void *send_to_rank_1(void *arg)
{
	const struct send_to_rank_1 *s = arg;
	void *data = calloc(1, s->bytes);

	tuttiMsgSend(data, s->bytes, 1, PUSH, 0, s->comm);
	free(data);
	return NULL;
}

struct stopped { /* shared by the ranks */
	atomic_int pid;
	atomic_bool over;
	int sender; /* to rank 1 */
	size_t bytes;
};

/* Rank 1 is stopped; the deadline is a minute. */
static int abort_a_send(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct stopped *s = arg;
	struct send_to_rank_1 send = { *comm, s->bytes };
	pthread_t thread;
	time_t begin;

	(void)nranks;
	WANT(!tuttiBarrier(*comm, NULL));
	if (rank == 1) {
		s->pid = getpid();
		raise(SIGSTOP);
		return 1;
	}
	while (rank != s->sender && !s->over)
		usleep(1000);
	if (rank != s->sender)
		return 0;
	while (!s->pid || is_running(s->pid))
		usleep(1000);
	WANT(!pthread_create(&thread, NULL, send_to_rank_1, &send));
	usleep(100000); /* mostly the send waits by now; else it is refused after the abort */
	begin = time(NULL);
	WANT(!tuttiCommAbort(*comm));
	WANT(time(NULL) - begin < 20);
	*comm = NULL;
	pthread_join(thread, NULL);
	kill(s->pid, SIGKILL);
	s->over = true;
	return 0;
}

static struct stopped *stopped_of(int sender, size_t bytes)
{
	struct stopped *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	s->sender = sender;
	s->bytes = bytes;
	return s;
}

/* Ranks 1 and 3 of 4 are no neighbors in tree or ring. */
Test(messages, an_abort_does_not_wait_for_a_connection, .timeout = 60)
{
	cr_assert_eq(failures(4, false, NULL, 50000, abort_a_send, stopped_of(3, 1)), 1);
}

Test(messages, an_abort_does_not_wait_for_a_stopped_receiver, .timeout = 60)
{
	cr_assert_eq(failures(2, false, NULL, 50000, abort_a_send, stopped_of(0, 8u << 20)), 1);
}

/* Rank 1 receives nothing and is in a collective; rank 0's message waits for credit. The sender
 * keeps no copy, and the abort passes the message. */
static int abort_past_a_message(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct send_to_rank_1 send = { *comm, 80u << 20 };
	pthread_t thread;
	uint64_t used = 0;
	tuttiMsg_t m;

	(void)nranks, (void)arg;
	if (rank == 1) {
		WANT(!tuttiMsgProbe(0, PUSH, -1, *comm, &m) && m.bytes == send.bytes);
		WANT(!tuttiMsgSend(NULL, 0, 0, PULL, 0, *comm));
		WANT(tuttiBarrier(*comm, NULL) == tuttiRemoteError);
		WANT(strstr(tuttiGetLastError(NULL), "abort"));
		return 0;
	}
	WANT(!pthread_create(&thread, NULL, send_to_rank_1, &send));
	WANT(!tuttiMsgRecv(NULL, 0, 1, PULL, -1, *comm, &m));
	WANT(!tuttiCommMemStats(*comm, tuttiMemControl, &used) && used < (1u << 20));
	WANT(!tuttiCommAbort(*comm));
	*comm = NULL;
	pthread_join(thread, NULL);
	return 0;
}

Test(messages, that_wait_for_room_delay_no_abort, .timeout = 60)
{
	cr_assert_eq(failures(2, false, NULL, 50000, abort_past_a_message, NULL), 0);
}

/* ---- cost ------------------------------------------------------------------------------------ */

#define SPLITS 32

/* Messages between all ranks of a communicator. */
static int exchange(tuttiComm_t comm, int rank, int nranks)
{
	tuttiMsg_t m;
	int x;

	for (int p = 0; p < nranks; p++)
		WANT(!tuttiMsgSend(&rank, sizeof(rank), p, PUSH, 0, comm));
	for (int p = 0; p < nranks; p++)
		WANT(!tuttiMsgRecv(&x, sizeof(x), p, PUSH, -1, comm, &m) && x == p);
	return 0;
}

static int splits(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t split[SPLITS];
	int descriptors = 0, threads = 0;

	(void)arg;
	for (int i = 0; i < SPLITS; i++) {
		WANT(!tuttiCommSplit(*comm, 0, rank, &split[i], NULL));
		if (exchange(split[i], rank, nranks))
			return 1;
		if (!i) {
			descriptors = count_descriptors();
			threads = count_threads();
		}
	}
	if (count_descriptors() > descriptors || count_threads() > threads)
		fprintf(stderr, "rank %d: %d splits: %d more descriptors, %d more threads\n", rank,
			SPLITS, count_descriptors() - descriptors, count_threads() - threads);
	WANT(count_descriptors() <= descriptors && count_threads() <= threads);
	for (int i = 0; i < SPLITS; i++)
		WANT(!tuttiCommDestroy(split[i]));
	return 0;
}

Test(messages, of_32_splits_take_the_descriptors_and_threads_of_one, .timeout = 60)
{
	cr_assert_eq(failures(5, false, "tcp", 0, splits, NULL), 0);
}
