/*
 * mpi_comms.c - the Tutti communicator of an MPI communicator
 *
 * Called by mpi_calls.c and mpi_requests.c. The record is an attribute of the MPI communicator, so MPI
 * frees it with the communicator, and a duplicate has none until its own first blocking collective.
 * All ranks make that collective, so all join there: by two collectives of MPI, which drive the
 * progress of everything that is on its way, and Tutti's join, for which no rank waits outside. While a
 * rank waits in Tutti, the waiting hook drives MPI's progress.
 */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi/mpi_interpose.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards keyval */
static int keyval = MPI_KEYVAL_INVALID;
/* grows when a record is freed: records found before are looked up again */
static atomic_uint freed;

static __thread struct {
	struct mpi_tutti *found;
	unsigned freed;
} latest;

/* MPI's progress: a probe that finds nothing. Of MPI_COMM_SELF, MPICH 4.0.2 makes no progress while a
 * receive from itself is posted (mpi_persistent.c). */
static void probe(const struct mpi_library *mpi)
{
	int flag = 1;

	for (int tag = 32767; flag && tag >= 0; tag--)
		mpi->Iprobe(0, tag, mpi->MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

/* The waiting hook. In the thread of a stream, where no call of the program runs, it does nothing:
 * MPI may not be ready for two threads. */
static int progress(void *mpi)
{
	if (latest.found)
		probe(mpi);
	return 0;
}

void mpi_drain(struct mpi_tutti *t)
{
	while (atomic_load(&t->running)) {
		probe(mpi_library());
		sched_yield();
	}
}

static int copy(MPI_Comm comm, int key, void *extra, void *from, void *to, int *flag)
{
	(void)comm, (void)key, (void)extra, (void)from, (void)to;
	*flag = 0;
	return MPI_SUCCESS;
}

void mpi_hold(struct mpi_tutti *t)
{
	atomic_fetch_add(&t->holders, 1);
}

void mpi_release(struct mpi_tutti *t)
{
	if (atomic_fetch_sub(&t->holders, 1) > 1)
		return;
	if (t->stream)
		tuttiStreamDestroy(t->stream);
	if (t->comm)
		tuttiCommDestroy(t->comm);
	free(t->table[0]);
	free(t);
}

/* MPI deletes the attribute of a communicator that is freed. Persistent requests may come after it. */
static int forget(MPI_Comm comm, int key, void *record, void *extra)
{
	struct mpi_tutti *t = record;

	(void)comm, (void)key, (void)extra;
	mpi_drain(t);
	mpi_complete_requests();
	atomic_fetch_add(&freed, 1);
	t->mpi = mpi_library()->MPI_COMM_SELF;
	mpi_release(t);
	return MPI_SUCCESS;
}

static bool make_keyval(const struct mpi_library *mpi)
{
	bool made;

	pthread_mutex_lock(&lock);
	made = keyval != MPI_KEYVAL_INVALID ||
	       !mpi->Comm_create_keyval(copy, forget, &keyval, NULL);
	pthread_mutex_unlock(&lock);
	return made;
}

/* true: this rank has joined */
static bool join(const struct mpi_library *mpi, struct mpi_tutti *t)
{
	struct {
		int made;
		tuttiUniqueId id;
	} invitation = { 0 };
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	if (!getenv("TUTTI_TIMEOUT_MS"))
		config.timeout_ms = INT_MAX; /* a rank may compute for days, as with MPI */
	if (t->rank == 0)
		invitation.made = !tuttiGetUniqueId(&invitation.id);
	if (mpi->Bcast(&invitation, sizeof(invitation), mpi->MPI_BYTE, 0, t->mpi) ||
	    mpi->Barrier(t->mpi) || !invitation.made)
		return false;
	return !tuttiCommInitRankConfig(&t->comm, t->n, invitation.id, t->rank, &config) &&
	       !tuttiCommSetWaitHook(t->comm, progress, (void *)(uintptr_t)mpi);
}

/* Join on all ranks or on none: the ranks agree by MPI. */
static void join_all(const struct mpi_library *mpi, struct mpi_tutti *t)
{
	int joined = join(mpi, t), all = 0;

	t->tried = true;
	t->table[0] = malloc(4 * (size_t)t->n * sizeof(size_t));
	for (int i = 1; i < 4 && t->table[0]; i++)
		t->table[i] = t->table[0] + (size_t)i * (size_t)t->n;
	if (!joined)
		fprintf(stderr,
			"libtutti-mpi: rank %d: no communicator of Tutti, so MPI's collectives go on: %s\n",
			t->rank, tuttiGetLastError(NULL));
	joined = joined && t->table[0];
	if ((mpi->Allreduce(&joined, &all, 1, mpi->MPI_INT, mpi->MPI_MIN, t->mpi) || !all) &&
	    t->comm) {
		tuttiCommAbort(t->comm);
		t->comm = NULL;
	}
}

/* The record of comm, made by the first call that may. NULL: none */
static struct mpi_tutti *record_of(const struct mpi_library *mpi, MPI_Comm comm, bool may_make)
{
	unsigned now = atomic_load(&freed);
	struct mpi_tutti *t = NULL;
	int flag = 0, inter = 1;

	if (latest.found && latest.found->mpi == comm && latest.freed == now)
		return latest.found;
	if (comm == mpi->MPI_COMM_NULL || !make_keyval(mpi) ||
	    mpi->Comm_get_attr(comm, keyval, &t, &flag) || (!flag && !may_make))
		return NULL;
	if (!flag) {
		t = calloc(1, sizeof(*t));
		if (!t) {
			fprintf(stderr, "libtutti-mpi: no memory for a communicator\n");
			abort();
		}
		t->mpi = comm;
		t->tried = mpi->Comm_test_inter(comm, &inter) || inter ||
			   mpi->Comm_rank(comm, &t->rank) || mpi->Comm_size(comm, &t->n) ||
			   t->n == 1;
		mpi_hold(t);
		mpi->Comm_set_attr(comm, keyval, t);
	}
	latest.found = t;
	latest.freed = now;
	return t;
}

bool mpi_take(struct mpi_task *k, MPI_Comm comm, bool may_join)
{
	const struct mpi_library *mpi = mpi_library();
	struct mpi_tutti *t = record_of(mpi, comm, may_join);

	if (!t || (t->tried ? !t->comm : !may_join))
		return false;
	k->t = t;
	k->error = mpi_check(k);
	if (!k->error && !t->tried)
		join_all(mpi, t);
	return k->error || t->comm;
}

void mpi_free_world(void)
{
	const struct mpi_library *mpi = mpi_library();
	void *t;
	int flag = 0;

	if (keyval != MPI_KEYVAL_INVALID &&
	    !mpi->Comm_get_attr(mpi->MPI_COMM_WORLD, keyval, &t, &flag) && flag)
		mpi->Comm_delete_attr(mpi->MPI_COMM_WORLD, keyval);
}

int mpi_result(const struct mpi_tutti *t, tuttiResult_t result)
{
	if (!result)
		return MPI_SUCCESS;
	fprintf(stderr, "libtutti-mpi: %s\n", tuttiGetLastError(t->comm));
	mpi_library()->Comm_call_errhandler(t->mpi, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}
