/*
 * launched.c - public calls that join the ranks of a job: by environment, key-value store,
 * allgather
 *
 * Called by users. The environment or the program describes the job; lib/launch makes a unique id
 * of the description, and the ranks join with that id.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/sock.h"
#include "launch/launch.h"

/* number of joins by environment in this process; equal on all ranks */
static atomic_uint joins;

/* Arguments of a join, kept until the end of the group. */
struct tt_launching {
	struct tt_rendezvous launch;
	unsigned number;
};

static int run_launched(struct tt_joining *j)
{
	struct tt_launching *l = j->launching;
	uint32_t timeout_ms = j->configured && j->config.timeout_ms > 0
				      ? (uint32_t)j->config.timeout_ms
				      : 0;
	struct tt_env env;
	int bad = tt_env_read(&env), rc; /* bad: tt_comm_join reports it to rank 0 */

	rc = tt_rendezvous_open(&l->launch, &env, l->number,
				tt_deadline_ns(timeout_ms ? timeout_ms : (uint32_t)env.timeout_ms));
	if (rc && bad)
		rc = tt_env_read(&env);
	if (!rc) {
		rc = tt_comm_join(&l->launch.id, l->launch.job.nranks, l->launch.job.rank,
				  j->configured ? &j->config : NULL, j->comm);
		tt_rendezvous_close(&l->launch);
	}
	free(l);
	return rc;
}

static tuttiResult_t join(tuttiComm_t *comm, const struct tt_job *job, unsigned number,
			  const tuttiConfig_t *config)
{
	struct tt_joining j = { .run = run_launched, .comm = comm };
	int rc = comm ? tt_config_check(config)
		      : tt_fail(TT_ARG, "comm is NULL; want a pointer for the communicator");

	if (!rc && !(j.launching = calloc(1, sizeof(*j.launching))))
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory to join", job->rank);
	if (rc)
		return tt_result(tt_group_fail(rc));
	j.launching->launch.job = *job;
	j.launching->number = number;
	tt_config_copy(&j, config);
	return tt_group_join(&j);
}

TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, tuttiConfig_t *config)
{
	struct tt_env env;
	struct tt_job job;
	int bad = tt_env_read(&env), rc;

	tt_sock_guard_standard_streams();
	rc = tt_launch_detect(&env, &job);
	if (rc)
		return tt_result(tt_group_fail(bad ? tt_env_read(&env) : rc));
	return join(comm, &job, atomic_fetch_add(&joins, 1) + 1, config);
}

/* Functions of the program that block must run in its own thread, while its structures are valid:
 * not at the end of a group. */
static int check_program(const char *call, int rank, int nranks)
{
	if (tt_group_open())
		return tt_fail(TT_USAGE, "%s: not between tuttiGroupStart and tuttiGroupEnd", call);
	return tt_comm_check_ranks(call, rank, nranks);
}

static tuttiResult_t join_program(tuttiComm_t *comm, struct tt_job *job, tuttiConfig_t *config)
{
	job->launcher = "the program";
	job->local_rank = -1;
	return join(comm, job, 0, config);
}

TUTTI_API tuttiResult_t tuttiCommInitStore(tuttiComm_t *comm, const tuttiStore_t *store,
					   tuttiConfig_t *config)
{
	struct tt_job job = { .store = &tt_store_user, .user = store };
	int rc;

	if (!store || store->size < sizeof(*store) || !store->key || !store->put || !store->get)
		rc = tt_fail(
			TT_ARG,
			"tuttiCommInitStore: the store is NULL, has no size, or lacks key, put or get");
	else
		rc = check_program("tuttiCommInitStore", store->rank, store->nranks);
	if (rc)
		return tt_result(tt_group_fail(rc));
	job.rank = store->rank;
	job.nranks = store->nranks;
	return join_program(comm, &job, config);
}

TUTTI_API tuttiResult_t tuttiCommInitOob(tuttiComm_t *comm, const tuttiOob_t *oob,
					 tuttiConfig_t *config)
{
	struct tt_job job = { .store = &tt_store_oob, .user = oob };
	int rc;

	if (!oob || !oob->allgather || !oob->req_test || !oob->req_free)
		rc = tt_fail(TT_ARG,
			     "tuttiCommInitOob: the allgather, or a function of it, is NULL");
	else
		rc = check_program("tuttiCommInitOob", (int)oob->oob_ep, (int)oob->n_oob_eps);
	if (rc)
		return tt_result(tt_group_fail(rc));
	job.rank = (int)oob->oob_ep;
	job.nranks = (int)oob->n_oob_eps;
	return join_program(comm, &job, config);
}
