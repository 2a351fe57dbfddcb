/*
 * mpi_requests.c - MPI_Iallreduce and the others that only start: their requests, and MPI_Wait and MPI_Test
 *
 * Called by mpi_calls.c and the program. A started call runs on a host stream of its communicator, so
 * in the order of the calls, in the stream's thread. Its request is a generalized request of the MPI
 * library, which needs a call of MPI to complete: the program's own thread makes it in MPI_Wait and
 * MPI_Test, so MPI need not be ready for threads. There MPI_Wait polls, while it has such requests.
 * Data of derived types is packed in the call that starts, and unpacked in the one that completes.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi/mpi_interpose.h"

#define EXPORT __attribute__((visibility("default")))

#define DECLARE(name, ...) EXPORT int MPI_##name(__VA_ARGS__);
MPI_COMPLETES(DECLARE)
#undef DECLARE

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_task *started; /* under lock: tasks whose requests are not complete */
static atomic_int nstarted;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "libtutti-mpi: no %s for a collective that only starts\n", what);
	abort();
}

struct mpi_task *mpi_new_task(void)
{
	struct mpi_task *k = calloc(1, sizeof(*k));

	if (!k)
		die("memory");
	return k;
}

/* The first call of a communicator cannot join, since joining waits for the other ranks. An operation
 * of the program must not run in the thread of a stream. All ranks know both facts. */
bool mpi_may_start(struct mpi_task *k, MPI_Comm comm)
{
	struct mpi_tutti *t = k->reduction.by_mpi ? NULL : mpi_tutti_of(comm, false);

	if (t && !t->stream && tuttiStreamCreate(&t->stream))
		die("stream");
	k->t = t;
	k->stream = t ? t->stream : NULL;
	return t;
}

/* ---- the request ----------------------------------------------------------------------------- */

static int query(void *task, void *status)
{
	const struct mpi_library *m = mpi_library();

	m->Status_set_elements(status, m->MPI_BYTE, 0);
	m->Status_set_cancelled(status, 0);
	return ((struct mpi_task *)task)->error;
}

static int release(void *task)
{
	free(task);
	return MPI_SUCCESS;
}

static int cancel(void *task, int complete)
{
	(void)task, (void)complete;
	return MPI_SUCCESS; /* MPI has no cancel of collectives */
}

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

int mpi_start(struct mpi_task *k, tuttiResult_t result, MPI_Request *ret_request)
{
	int rc;

	atomic_fetch_add(&k->t->running, 1);
	if (!result)
		result = tuttiStreamAddCallback(k->stream, reach, k);
	if (result) {
		atomic_fetch_sub(&k->t->running, 1);
		rc = mpi_end_task(k, result);
		free(k);
		return rc;
	}
	rc = mpi_library()->Grequest_start(query, release, cancel, k, &k->request);
	if (rc)
		return rc;
	*ret_request = k->request;
	pthread_mutex_lock(&lock);
	k->next = started;
	started = k;
	atomic_fetch_add(&nstarted, 1);
	pthread_mutex_unlock(&lock);
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

	while (atomic_load(&nstarted) && (k = take_reached())) {
		MPI_Request request = k->request;
		bool given_back = k->given_back;

		k->error = mpi_end_task(k, k->result);
		mpi_library()->Grequest_complete(request);
		if (given_back)
			mpi_library()->Request_free(&request);
	}
}

/* A running request that the program gives back stays ours until its call is complete: MPICH 4.0 would
 * free its task at once. */
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
	if (!atomic_load(&nstarted) || !keep(*request))
		return mpi_library()->Request_free(request);
	*request = mpi_library()->MPI_REQUEST_NULL;
	return MPI_SUCCESS;
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
