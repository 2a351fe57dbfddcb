/*
 * mpi_requests.c - MPI_Iallreduce and the others that only start: their requests, and MPI_Wait and MPI_Test
 *
 * Called by mpi_calls.c, mpi_persistent.c and the program. A started call runs on a host stream of its
 * communicator, so in the order of the calls, in the stream's thread. Its request is a receive of the MPI
 * library: this rank receives from itself, on a communicator of this file. Once the call is complete, a
 * message completes the receive; one that is too long reports an error. So each function of MPI knows
 * the request. The program's own thread sends the message in MPI_Wait and MPI_Test, so MPI need not be
 * ready for threads. There MPI_Wait polls, while it has such requests. Data of derived types is packed in
 * the call that starts, and unpacked in the one that completes.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi/mpi_interpose.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_task *started; /* under lock: tasks whose requests are not complete */
static atomic_int nstarted;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "libtutti-mpi: no %s for a collective that only starts\n", what);
	abort();
}

struct mpi_task *mpi_new_task(mpi_begin_fn *begin, const struct mpi_given *given)
{
	struct mpi_task *k = calloc(1, sizeof(*k));

	if (!k)
		die("memory");
	k->begin = begin;
	k->given = *given;
	return k;
}

/* A call that only starts cannot join, since joining waits for the other ranks. An operation of the
 * program must not run in the thread of a stream. All ranks know both facts. */
bool mpi_may_start(struct mpi_task *k, MPI_Comm comm, bool may_join)
{
	if (k->reduction.by_mpi || !mpi_take(k, comm, may_join))
		return false;
	if (k->error)
		return true;
	if (!k->t->stream && tuttiStreamCreate(&k->t->stream))
		die("stream");
	k->stream = k->t->stream;
	if (!mpi_keep(k))
		die("memory");
	return true;
}

/* ---- the request ----------------------------------------------------------------------------- */

enum { TAGS = 32768 }; /* each MPI library has as many */

/* under lock: a duplicate of MPI_COMM_SELF, once there was a request; the tags of requests */
static MPI_Comm self;
static bool have_self, used[TAGS];
/* Of all requests: bytes that nobody reads. Intel MPI truncates no receive of no bytes. */
static char room;

static int make_self(const struct mpi_library *m)
{
	int rc = have_self ? MPI_SUCCESS : m->Comm_dup(m->MPI_COMM_SELF, &self);

	if (rc || have_self)
		return rc;
	have_self = true;
	return m->Comm_set_errhandler(self, m->MPI_ERRORS_RETURN);
}

/* A tag that no other request has, so each message completes its own */
static int take_tag(void)
{
	static int next;

	for (int i = 0; i < TAGS && used[next]; i++)
		next = (next + 1) % TAGS;
	if (used[next])
		die("tag: 32768 requests are in use");
	used[next] = true;
	return next;
}

int mpi_make_request(struct mpi_task *k)
{
	const struct mpi_library *m = mpi_library();
	int rc;

	pthread_mutex_lock(&lock);
	rc = make_self(m);
	k->tag = take_tag();
	pthread_mutex_unlock(&lock);
	if (!rc)
		rc = (k->persistent ? m->Recv_init : m->Irecv)(&room, 1, m->MPI_BYTE, 0, k->tag,
							       self, &k->request);
	if (rc)
		mpi_free_task(k);
	return rc;
}

void mpi_free_task(struct mpi_task *k)
{
	pthread_mutex_lock(&lock);
	used[k->tag] = false;
	pthread_mutex_unlock(&lock);
	mpi_free_kept(k);
	free(k);
}

/* The task may be gone afterwards. */
static void complete(struct mpi_task *k)
{
	const struct mpi_library *m = mpi_library();
	MPI_Request request = k->request;
	bool given_back = k->given_back;
	static const char too_long[4096]; /* Open MPI truncates no short message */

	k->error = mpi_end_task(k, k->result);
	m->Send(too_long, k->error ? (int)sizeof(too_long) : 0, m->MPI_BYTE, 0, k->tag, self);
	if (!k->persistent)
		mpi_free_task(k);
	if (given_back)
		MPI_Request_free(&request);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Called by the stream's thread. The task may be gone once it is reached. */
static void reach(void *task, tuttiResult_t result, const char *text)
{
	struct mpi_task *k = task;
	struct mpi_tutti *t = k->t;

	(void)text;
	k->result = result;
	atomic_store(&k->reached, true);
	atomic_fetch_sub(&t->running, 1);
}

void mpi_run(struct mpi_task *k)
{
	tuttiResult_t result;

	k->error = 0;
	atomic_store(&k->reached, false);
	atomic_fetch_add(&k->t->running, 1);
	result = k->begin(k);
	if (!result)
		result = tuttiStreamAddCallback(k->stream, reach, k);
	if (result)
		reach(k, result, NULL);
	pthread_mutex_lock(&lock);
	k->next = started;
	started = k;
	atomic_fetch_add(&nstarted, 1);
	pthread_mutex_unlock(&lock);
}

int mpi_start(struct mpi_task *k, MPI_Request *ret_request)
{
	int rc = mpi_make_request(k);

	if (rc)
		return rc;
	*ret_request = k->request;
	mpi_run(k);
	return MPI_SUCCESS;
}

/* Remove a task whose call is complete. NULL: none */
static struct mpi_task *take_reached(void)
{
	struct mpi_task *k, **at = &started;

	pthread_mutex_lock(&lock);
	while (*at && !atomic_load(&(*at)->reached))
		at = &(*at)->next;
	k = *at;
	if (k) {
		*at = k->next;
		atomic_fetch_sub(&nstarted, 1);
	}
	pthread_mutex_unlock(&lock);
	return k;
}

void mpi_complete_requests(void)
{
	struct mpi_task *k;

	while (atomic_load(&nstarted) && (k = take_reached()))
		complete(k);
}

void mpi_end_requests(void)
{
	mpi_complete_requests();
	if (have_self)
		mpi_library()->Comm_free(&self);
	have_self = false;
}

/* A running request that the program gives back stays ours until its call is complete. */
static bool keep(MPI_Request request)
{
	struct mpi_task *k;

	pthread_mutex_lock(&lock);
	for (k = started; k && k->request != request; k = k->next)
		;
	if (k)
		k->given_back = true;
	pthread_mutex_unlock(&lock);
	return k;
}

int MPI_Request_free(MPI_Request *request)
{
	int rc;

	if (atomic_load(&nstarted) && keep(*request)) {
		*request = mpi_library()->MPI_REQUEST_NULL;
		return MPI_SUCCESS;
	}
	return mpi_free_persistent(request, &rc) ? rc : mpi_library()->Request_free(request);
}

/* ---- completion ------------------------------------------------------------------------------ */

/* The MPI library to call a completing function of, after Tutti's part of it */
static const struct mpi_library *completing(void)
{
	mpi_complete_requests();
	return mpi_library();
}

/* A waiting function: as it is without started calls, else `test` until `done` or an error. */
#define WAIT(wait, test, done)                   \
	do {                                     \
		while (atomic_load(&nstarted)) { \
			rc = completing()->test; \
			if (rc || (done))        \
				return rc;       \
			sched_yield();           \
		}                                \
		return mpi_library()->wait;      \
	} while (0)

int MPI_Wait(MPI_Request *request, void *status)
{
	int rc, flag;

	WAIT(Wait(request, status), Test(request, &flag, status), flag);
}

int MPI_Waitall(int count, MPI_Request *requests, void *statuses)
{
	int rc, flag;

	WAIT(Waitall(count, requests, statuses), Testall(count, requests, &flag, statuses), flag);
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, void *status)
{
	int rc, flag;

	WAIT(Waitany(count, requests, index, status),
	     Testany(count, requests, index, &flag, status), flag);
}

int MPI_Waitsome(int count, MPI_Request *requests, int *ret_count, int *indices, void *statuses)
{
	int rc;

	WAIT(Waitsome(count, requests, ret_count, indices, statuses),
	     Testsome(count, requests, ret_count, indices, statuses), *ret_count);
}

int MPI_Test(MPI_Request *request, int *flag, void *status)
{
	return completing()->Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request *requests, int *flag, void *statuses)
{
	return completing()->Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, void *status)
{
	return completing()->Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int count, MPI_Request *requests, int *ret_count, int *indices, void *statuses)
{
	return completing()->Testsome(count, requests, ret_count, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int *flag, void *status)
{
	return completing()->Request_get_status(request, flag, status);
}

MPI_COMPLETING(PROFILED)
