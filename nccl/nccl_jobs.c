/*
 * nccl_jobs.c - joins, splits, shrinks and finalizing, each in a thread of its own
 *
 * Called by nccl_init.c and nccl_comms.c, also through nccl_group.c. Threads are needed for three
 * reasons. The ranks that one thread joins in a group need each other, so their joins must run at
 * the same time. A call on a nonblocking communicator returns before the job ends. ncclCommAbort in
 * another thread ends the wait for a job, while the join itself ends later, at its deadline at the
 * latest.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_layer.h"

/* guards the handles and jobs of the process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Drops one user of the handle; under lock. */
static void drop(ncclComm_t c)
{
	if (c && --c->users == 0)
		tt_handle_free(c, sizeof(*c));
}

void nccl_comm_drop(ncclComm_t c)
{
	pthread_mutex_lock(&lock);
	drop(c);
	pthread_mutex_unlock(&lock);
}

bool nccl_comm_take(ncclComm_t c, bool aborted, tuttiComm_t *ret_tutti)
{
	unsigned magic = NC_MAGIC;
	bool taken;

	pthread_mutex_lock(&lock);
	taken = atomic_compare_exchange_strong(&c->magic, &magic, 0);
	if (taken) {
		*ret_tutti = atomic_load(&c->tutti);
		c->aborted = aborted;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

void nccl_jobs_wait(ncclComm_t c)
{
	pthread_mutex_lock(&lock);
	while (c->jobs && !c->aborted)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

struct nccl_job *nccl_job_new(int (*run)(struct nccl_job *), ncclComm_t comm, ncclComm_t parent,
			      bool blocking)
{
	struct nccl_job *job = calloc(1, sizeof(*job));

	if (!job) {
		tt_fail(TT_SYSTEM, "no memory to make a communicator");
		return NULL;
	}
	job->run = run;
	job->comm = comm;
	job->parent = parent;
	job->blocking = blocking;
	return job;
}

/* The state of the parent of a blocking job stays: its caller makes no other call meanwhile, and a
 * watchdog must see no change. */
static void begin(struct nccl_job *job, ncclComm_t c)
{
	if (!c)
		return;
	c->jobs++;
	c->users++;
	if (c == job->parent)
		job->ticket = c->begun++;
	if (c == job->comm || !job->blocking)
		atomic_store(&c->state, ncclInProgress);
}

/* Two splits of one communicator must not run at once: they would receive each other's messages. */
static void await_ticket(struct nccl_job *job)
{
	pthread_mutex_lock(&lock);
	while (job->parent && job->parent->ended != job->ticket)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* The last job of a communicator sets its state. A failed job does not change the parent's
 * state. */
static void end(struct nccl_job *job, ncclComm_t c)
{
	int result = c == job->comm && job->result ? (int)nccl_result(job->result) : ncclSuccess;

	if (!c)
		return;
	if (c == job->parent)
		c->ended++;
	else
		snprintf(c->text, sizeof(c->text), "%s", job->text);
	if (!--c->jobs)
		atomic_store(&c->state, result);
	drop(c);
}

static void release(struct nccl_job *job)
{
	if (--job->references)
		return;
	free(job->excluded);
	free(job);
}

void nccl_jobs_discard(struct nccl_job *first)
{
	for (struct nccl_job *job = first, *next; job; job = next) {
		next = job->next;
		if (job->variable)
			nccl_comm_store(job->variable, NULL);
		if (job->comm && nccl_comm_take(job->comm, true, &(tuttiComm_t){ NULL }))
			nccl_comm_drop(job->comm);
		free(job->excluded);
		free(job);
	}
}

static void finish(struct nccl_job *job)
{
	tuttiComm_t orphan = NULL;

	snprintf(job->text, sizeof(job->text), "%s", job->result ? tt_error_text() : "");
	pthread_mutex_lock(&lock);
	if (job->made && job->comm->aborted)
		orphan = job->made;
	else if (job->made)
		atomic_store(&job->comm->tutti, job->made);
	end(job, job->comm);
	end(job, job->parent);
	job->done = true;
	release(job);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	if (orphan)
		tuttiCommAbort(orphan);
}

static void *job_thread(void *arg)
{
	struct nccl_job *job = arg;

	nccl_context_enter(job->context);
	await_ticket(job);
	job->result = job->run(job);
	finish(job);
	return NULL;
}

/* A job has two references: of its thread and of its caller. */
static void start(struct nccl_job *job)
{
	pthread_t thread;
	int failed;

	pthread_mutex_lock(&lock);
	job->references = 2;
	begin(job, job->comm);
	begin(job, job->parent);
	pthread_mutex_unlock(&lock);
	failed = tt_thread_start(&thread, "tutti-nccl", job_thread, job);
	if (!failed) {
		pthread_detach(thread);
		return;
	}
	job->result = tt_fail(TT_SYSTEM, "no thread to join a communicator: %s", strerror(failed));
	finish(job);
}

/* The result of a job: 0 | 1 still running | code. Waits for a blocking job. */
static int outcome(struct nccl_job *job)
{
	ncclComm_t failed = NULL;
	int rc;

	pthread_mutex_lock(&lock);
	while (job->blocking && !job->done && !(job->comm && job->comm->aborted))
		pthread_cond_wait(&changed, &lock);
	if (job->done)
		rc = job->result ? tt_fail(job->result, "%s", job->text) : 0;
	else
		rc = job->blocking ? tt_fail(TT_REMOTE,
					     "the communicator was aborted while it was joining")
				   : 1;
	if (rc < 0 && job->blocking && job->variable && job->done) {
		failed = job->comm;
		nccl_comm_store(job->variable, NULL);
	}
	release(job);
	pthread_mutex_unlock(&lock);
	if (failed && nccl_comm_take(failed, true, &(tuttiComm_t){ NULL }))
		nccl_comm_drop(failed);
	return rc;
}

int nccl_jobs_run(struct nccl_job *first)
{
	char text[1024] = "";
	int result = 0;

	for (struct nccl_job *j = first; j; j = j->next)
		start(j);
	for (struct nccl_job *j = first, *next; j; j = next) {
		int rc;

		next = j->next;
		rc = outcome(j);
		if (rc < 0 && result >= 0)
			snprintf(text, sizeof(text), "%s", tt_error_text());
		if (rc && result >= 0)
			result = rc;
	}
	return result < 0 ? tt_fail(result, "%s", text) : result;
}
