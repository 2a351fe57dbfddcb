/*
 * store_pmix.c - the store of PMIx: Open MPI's mpirun, PRRTE, srun --mpi=pmix
 *
 * Called by rendezvous.c. libpmix is loaded when it is needed, so that Tutti runs without libpmix.
 * The declarations below are the part of its interface in use, unchanged since PMIx 2. PMIx counts
 * its users within a process, so MPI may initialize and finalize independently. PMIx_Finalize runs
 * at exit: the launcher treats a process that exits without it as failed.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/launch.h"

#define SLICE_NS 1000000000ull
#define PAUSE_NS 10000000l

/* ---- PMIx's interface ------------------------------------------------------------------------ */

enum { PMIX_OK = 0, PMIX_STRING = 3, PMIX_UINT32 = 14, PMIX_GLOBAL = 3 };
#define PMIX_EVERYBODY (UINT32_MAX - 1)

struct pmix_proc {
	char namespace[256];
	uint32_t rank;
};
struct pmix_value {
	uint16_t type;
	union {
		char *string;
		uint32_t number;
		void *room[3];
	} data;
};

static struct {
	int (*init)(struct pmix_proc *proc, void *info, size_t ninfo);
	int (*finalize)(void *info, size_t ninfo);
	int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
	int (*commit)(void);
	int (*get)(const struct pmix_proc *proc, const char *key, void *info, size_t ninfo,
		   struct pmix_value **ret_value);
	int (*get_nb)(const struct pmix_proc *proc, const char *key, void *info, size_t ninfo,
		      void (*done)(int status, struct pmix_value *value, void *ctx), void *ctx);
	const char *(*text)(int status);
} pmix;

static const struct {
	const char *name;
	void **to;
} symbols[] = {
	{ "PMIx_Init", (void **)&pmix.init },         { "PMIx_Finalize", (void **)&pmix.finalize },
	{ "PMIx_Put", (void **)&pmix.put },           { "PMIx_Commit", (void **)&pmix.commit },
	{ "PMIx_Get", (void **)&pmix.get },           { "PMIx_Get_nb", (void **)&pmix.get_nb },
	{ "PMIx_Error_string", (void **)&pmix.text },
};

/* ---- the session of the process -------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmix_proc self;
static pid_t begun; /* pid of the process that called init; 0: none */

static int load(void)
{
	void *library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);

	if (!library)
		library = dlopen("libpmix.so", RTLD_LAZY | RTLD_LOCAL);
	if (!library)
		return tt_fail(
			TT_SYSTEM,
			"a PMIx launcher started this process, but libpmix.so.2 cannot be loaded (Debian: "
			"libpmix2): %s; or set TUTTI_ROOT and TUTTI_SECRET",
			dlerror());
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (!(*symbols[i].to = dlsym(library, symbols[i].name)))
			return tt_fail(TT_SYSTEM, "libpmix has no %s: unknown version",
				       symbols[i].name);
	return 0;
}

static void leave(void)
{
	if (begun == getpid())
		pmix.finalize(NULL, 0);
	begun = 0;
}

static int begin(struct tt_store *s)
{
	int rc = load();

	if (rc)
		return rc;
	rc = pmix.init(&self, NULL, 0);
	if (rc)
		return tt_fail(TT_SYSTEM,
			       "rank %d: PMIx: this process's launcher does not answer: %s",
			       s->job->rank, pmix.text(rc));
	begun = getpid();
	atexit(leave);
	return 0;
}

static void free_value(struct pmix_value *value)
{
	if (value && value->type == PMIX_STRING)
		free(value->data.string);
	free(value);
}

static int ask_number(const char *key, int *ret_number)
{
	struct pmix_proc all = self;
	struct pmix_value *value = NULL;
	int rc;

	all.rank = PMIX_EVERYBODY;
	rc = pmix.get(&all, key, NULL, 0, &value);
	if (!rc && value && value->type == PMIX_UINT32)
		*ret_number = (int)value->data.number;
	else
		rc = tt_fail(TT_SYSTEM, "rank %u: PMIx has no %s: %s", self.rank, key,
			     pmix.text(rc));
	free_value(value);
	return rc;
}

static int open_pmix(struct tt_store *s)
{
	struct tt_job *job = s->job;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (begun != getpid())
		rc = begin(s);
	if (!rc && !job->nranks)
		rc = ask_number("pmix.job.size", &job->nranks);
	if (!rc && !job->local_nranks && ask_number("pmix.local.size", &job->local_nranks))
		job->local_nranks = 0;
	pthread_mutex_unlock(&lock);
	return rc;
}

static int put_pmix(struct tt_store *s, const char *key, const char *value)
{
	char copy[TT_STORE_VALUE];
	struct pmix_value v = { .type = PMIX_STRING, .data.string = copy };
	int rc;

	snprintf(copy, sizeof(copy), "%s", value);
	rc = pmix.put(PMIX_GLOBAL, key, &v);
	if (!rc)
		rc = pmix.commit();
	return rc ? tt_fail(TT_SYSTEM, "rank %d: PMIx: %s cannot be put: %s", s->job->rank, key,
			    pmix.text(rc))
		  : 0;
}

/* ---- get with a deadline --------------------------------------------------------------------- */

/* Shared by the waiting thread and the thread of PMIx that answers, perhaps long after the deadline;
 * the later of the two frees the request. */
struct pmix_request {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	bool done, given_up;
	int status;
	char value[TT_STORE_VALUE];
};

static void answer(int status, struct pmix_value *value, void *ctx)
{
	struct pmix_request *q = ctx;
	bool given_up;

	pthread_mutex_lock(&q->lock);
	q->status = status;
	if (!status && value && value->type == PMIX_STRING && value->data.string)
		snprintf(q->value, sizeof(q->value), "%s", value->data.string);
	q->done = true;
	given_up = q->given_up;
	pthread_cond_signal(&q->answered);
	pthread_mutex_unlock(&q->lock);
	if (given_up)
		free(q);
}

/* 1: value received | 0: not yet | TT_TIMEOUT without a sentence */
static int await(struct pmix_request *q, char value[TT_STORE_VALUE], uint64_t deadline_ns)
{
	uint64_t log_ns = 0, now;
	int rc;

	pthread_mutex_lock(&q->lock);
	while (!q->done && (now = tt_now_ns()) < deadline_ns) {
		uint64_t end = deadline_ns < now + SLICE_NS ? deadline_ns : now + SLICE_NS;

		if (tt_log_due(&log_ns))
			tt_log(TT_LOG_WARN,
			       "rank %u: waiting for rank 0 to put its address into PMIx's store",
			       self.rank);
		pthread_cond_timedwait(&q->answered, &q->lock,
				       &(struct timespec){ .tv_sec = (time_t)(end / 1000000000),
							   .tv_nsec = (long)(end % 1000000000) });
	}
	q->given_up = !q->done;
	rc = !q->done ? TT_TIMEOUT : !q->status && *q->value ? 1 : 0;
	memcpy(value, q->value, TT_STORE_VALUE);
	pthread_mutex_unlock(&q->lock);
	if (rc != TT_TIMEOUT)
		free(q);
	return rc;
}

static int get_once(const char *key, char value[TT_STORE_VALUE], uint64_t deadline_ns)
{
	struct pmix_request *q = calloc(1, sizeof(*q));
	struct pmix_proc root = self;
	pthread_condattr_t attr;

	if (!q)
		return 0;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->answered, &attr);
	pthread_condattr_destroy(&attr);
	root.rank = 0;
	if (!pmix.get_nb(&root, key, NULL, 0, answer, q))
		return await(q, value, deadline_ns);
	free(q);
	return 0;
}

static int get_pmix(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		    uint64_t deadline_ns)
{
	int rc;

	while (!(rc = get_once(key, value, deadline_ns)) && tt_now_ns() < deadline_ns)
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	return rc > 0 ? 0
		      : tt_fail(TT_TIMEOUT,
				"rank %d: rank 0 did not join: it put nothing into PMIx's store",
				s->job->rank);
}

const struct tt_store_ops tt_store_pmix = {
	.name = "PMIx",
	.open = open_pmix,
	.put = put_pmix,
	.get = get_pmix,
};
