/*
 * mpi_persistent.c - MPI_Allreduce_init and the others of MPI 4: requests that start many times
 *
 * Called by mpi_calls.c, mpi_requests.c and the program. The request is a persistent receive of the MPI
 * library (mpi_requests.c): MPI_Start starts the receive and the call of Tutti.
 */
#include <pthread.h>
#include <stdlib.h>

#include "mpi/mpi_interpose.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_task *requests; /* under lock */
static atomic_int nrequests;

int mpi_make_persistent(struct mpi_task *k, MPI_Request *ret_request)
{
	int rc;

	k->persistent = true;
	rc = mpi_make_request(k);
	if (rc)
		return rc;
	mpi_hold(k->t);
	*ret_request = k->request;
	pthread_mutex_lock(&lock);
	k->next_persistent = requests;
	requests = k;
	atomic_fetch_add(&nrequests, 1);
	pthread_mutex_unlock(&lock);
	return MPI_SUCCESS;
}

/* Where `requests` holds the task of a request; NULL: it is none of these */
static struct mpi_task **find(MPI_Request request)
{
	struct mpi_task **at = &requests;

	while (*at && (*at)->request != request)
		at = &(*at)->next_persistent;
	return *at ? at : NULL;
}

static void start(MPI_Request request)
{
	struct mpi_task **at, *k = NULL;

	pthread_mutex_lock(&lock);
	at = find(request);
	if (at)
		k = *at;
	pthread_mutex_unlock(&lock);
	if (k)
		mpi_run(k);
}

int MPI_Start(MPI_Request *request)
{
	int rc = mpi_library()->Start(request);

	if (!rc && atomic_load(&nrequests))
		start(*request);
	return rc;
}

int MPI_Startall(int count, MPI_Request *all)
{
	int rc = mpi_library()->Startall(count, all);

	for (int i = 0; i < count && !rc && atomic_load(&nrequests); i++)
		start(all[i]);
	return rc;
}

bool mpi_free_persistent(MPI_Request *request, int *ret_rc)
{
	struct mpi_task **at, *k = NULL;

	if (!atomic_load(&nrequests))
		return false;
	pthread_mutex_lock(&lock);
	at = find(*request);
	if (at) {
		k = *at;
		*at = k->next_persistent;
		atomic_fetch_sub(&nrequests, 1);
	}
	pthread_mutex_unlock(&lock);
	if (!k)
		return false;
	*ret_rc = mpi_library()->Request_free(request);
	mpi_release(k->t);
	mpi_free_task(k);
	return true;
}

MPI_STARTING(PROFILED)
