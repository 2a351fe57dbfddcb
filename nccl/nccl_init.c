/*
 * nccl_init.c - make communicators: from an id, all ranks in one process, by split, by shrink
 *
 * Called by users. Each call becomes a job (nccl_jobs.c) that calls the function of tutti.h with
 * the same name; the handle exists at once.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_layer.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(tuttiUniqueId),
	       "both libraries have identifiers of the same size");

/* NCCL_COMM_ID is the address where rank 0 listens, from which every process makes the same id. The
 * secret keeps foreign processes from joining. */
static int id_from_environment(const char *root, tuttiUniqueId *ret_id)
{
	const char *secret = getenv("TUTTI_SECRET");

	if (!secret || !*secret)
		return tt_fail(
			TT_USAGE,
			"NCCL_COMM_ID is %s; then TUTTI_SECRET must be set as well, to the same text for all "
			"ranks, since an address is no secret",
			root);
	return tt_nccl_id_from_root(root, secret, ret_id);
}

NCCL_CALL(ncclResult_t, ncclGetUniqueId, ncclUniqueId *uniqueId)
{
	const char *root = nccl_environment()->root;
	tuttiUniqueId id;
	int rc;

	if (!uniqueId)
		return nccl_result(tt_fail(TT_ARG, "ncclGetUniqueId: uniqueId is NULL"));
	rc = root ? id_from_environment(root, &id) : nccl_code(tuttiGetUniqueId(&id));
	if (!rc)
		memcpy(uniqueId, &id, sizeof(id));
	return nccl_result(rc);
}

static tuttiConfig_t config_of(const struct nccl_job *job)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	config.timeout_ms = nccl_environment()->timeout_ms;
	config.name = *job->options.name ? job->options.name : NULL;
	return config;
}

static int run_join(struct nccl_job *job)
{
	tuttiConfig_t config = config_of(job);

	return nccl_code(
		tuttiCommInitRankConfig(&job->made, job->nranks, job->id, job->rank, &config));
}

static int run_split(struct nccl_job *job)
{
	tuttiConfig_t config = config_of(job);

	return nccl_code(tuttiCommSplit(atomic_load(&job->parent->tutti), job->color, job->key,
					&job->made, &config));
}

static int run_shrink(struct nccl_job *job)
{
	tuttiConfig_t config = config_of(job);

	return nccl_code(tuttiCommShrink(atomic_load(&job->parent->tutti), job->excluded,
					 job->nexcluded, &job->made, &config, job->flags));
}

/* Makes a join that is ready to run, and its handle in *comm. 0 | TT_SYSTEM */
static int new_join(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank,
		    const struct nccl_options *options, void *context, struct nccl_job **ret_job)
{
	ncclComm_t handle = nccl_comm_new(options->blocking);
	struct nccl_job *job = handle ? nccl_job_new(run_join, handle, NULL, options->blocking)
				      : NULL;

	if (!job) {
		nccl_comm_drop(handle);
		return TT_SYSTEM;
	}
	memcpy(&job->id, id, sizeof(job->id));
	job->nranks = nranks;
	job->rank = rank;
	job->options = *options;
	job->context = context;
	job->variable = comm;
	nccl_comm_store(comm, handle);
	*ret_job = job;
	return 0;
}

static ncclResult_t join(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank,
			 const ncclConfig_t *config)
{
	struct nccl_options options;
	struct nccl_job *job;
	int rc = nccl_config_read(config, &options);

	if (!comm)
		rc = tt_fail(TT_ARG, "ncclCommInitRank: comm is NULL");
	else
		nccl_comm_store(comm, NULL);
	if (!rc && (nranks < 1 || rank < 0 || rank >= nranks))
		rc = tt_fail(
			TT_ARG,
			"ncclCommInitRank: rank %d of %d: nranks must be at least 1 and rank within 0..nranks-1",
			rank, nranks);
	if (!rc)
		rc = new_join(comm, nranks, id, rank, &options, nccl_context_of_caller(), &job);
	return rc ? nccl_group_fail(rc) : nccl_group_job(job);
}

NCCL_CALL(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId commId,
	  int rank, ncclConfig_t *config)
{
	return join(comm, nranks, &commId, rank, config);
}

NCCL_CALL(ncclResult_t, ncclCommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId commId,
	  int rank)
{
	return join(comm, nranks, &commId, rank, NULL);
}

/* Several ids distribute NCCL's bootstrap over several roots. Tutti's bootstrap is a tree anyway,
 * so the first id is enough. */
NCCL_CALL(ncclResult_t, ncclCommInitRankScalable, ncclComm_t *comm, int nranks, int rank, int nids,
	  ncclUniqueId *ids, ncclConfig_t *config)
{
	if (nids < 1 || !ids)
		return nccl_group_fail(
			tt_fail(TT_ARG, "ncclCommInitRankScalable: %d ids at %p; want at least one",
				nids, (void *)ids));
	return join(comm, nranks, &ids[0], rank, config);
}

NCCL_CALL(ncclResult_t, ncclCommInitAll, ncclComm_t *comms, int ndev, const int *devlist)
{
	struct nccl_options options;
	struct nccl_job *first = NULL, **at = &first;
	ncclUniqueId id;
	int rc = nccl_config_read(NULL, &options);

	if (!rc && (!comms || ndev < 1))
		rc = tt_fail(TT_ARG,
			     "ncclCommInitAll: comms %p, ndev %d: want an array of at least 1",
			     (void *)comms, ndev);
	if (rc)
		return nccl_result(rc);
	if ((rc = (int)pncclGetUniqueId(&id)))
		return (ncclResult_t)rc;
	options.blocking = true;
	for (int i = 0; i < ndev && !rc; i++) {
		void *context;

		rc = nccl_context_of_device(devlist ? devlist[i] : i, &context);
		if (!rc)
			rc = new_join(&comms[i], ndev, &id, i, &options, context, at);
		at = rc ? at : &(*at)->next;
	}
	if (!rc)
		return nccl_result(nccl_jobs_run(first));
	nccl_jobs_discard(first);
	return nccl_result(rc);
}

/* Makes the job of a split or shrink of comm, and the handle of the new communicator in *newcomm
 * (NULL for a rank that is no member). 0 | TT_ARG | TT_SYSTEM */
static int derive(ncclComm_t comm, const char *call, int (*run)(struct nccl_job *), bool member,
		  ncclComm_t *newcomm, const ncclConfig_t *config, struct nccl_job **ret_job)
{
	struct nccl_options options = { .blocking = true };
	struct nccl_job *job = NULL;
	ncclComm_t handle;
	tuttiComm_t tutti;
	int rc = nccl_comm_check(comm, call, &tutti);

	if (!rc && !newcomm)
		rc = tt_fail(TT_ARG, "%s: newcomm is NULL", call);
	if (!rc && !config)
		options.blocking = comm->blocking;
	else if (!rc)
		rc = nccl_config_read(config, &options);
	if (rc)
		return rc;
	handle = member ? nccl_comm_new(options.blocking) : NULL;
	if (handle || !member)
		job = nccl_job_new(run, handle, comm, options.blocking);
	nccl_comm_store(newcomm, job ? handle : NULL);
	if (!job) {
		nccl_comm_drop(handle);
		return TT_SYSTEM;
	}
	job->options = options;
	job->context = nccl_context_of_caller();
	job->variable = newcomm;
	*ret_job = job;
	return 0;
}

NCCL_CALL(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
	  ncclConfig_t *config)
{
	struct nccl_job *job;
	int rc = derive(comm, "ncclCommSplit", run_split, color != NCCL_SPLIT_NOCOLOR, newcomm,
			config, &job);

	if (rc)
		return nccl_group_fail(rc);
	job->color = color;
	job->key = key;
	return nccl_group_job(job);
}

/* The list of excluded ranks is required: finding the missing ranks, as tuttiCommShrink can, would
 * take half of the long time-out of nccl_environment.c. */
NCCL_CALL(ncclResult_t, ncclCommShrink, ncclComm_t comm, int *excluded, int nexcluded,
	  ncclComm_t *newcomm, ncclConfig_t *config, int flags)
{
	struct nccl_job *job = NULL;
	int rc = nexcluded < 1 || !excluded
			 ? tt_fail(TT_ARG,
				   "ncclCommShrink: %d ranks to exclude at %p; want at least one",
				   nexcluded, (void *)excluded)
			 : derive(comm, "ncclCommShrink", run_shrink, true, newcomm, config, &job);

	if (rc)
		return nccl_group_fail(rc);
	job->excluded = malloc((size_t)nexcluded * sizeof(*excluded));
	if (!job->excluded) {
		nccl_jobs_discard(job);
		return nccl_group_fail(tt_fail(TT_SYSTEM,
					       "ncclCommShrink: no memory for a list of %d ranks",
					       nexcluded));
	}
	memcpy(job->excluded, excluded, (size_t)nexcluded * sizeof(*excluded));
	job->nexcluded = nexcluded;
	job->flags = flags;
	return nccl_group_job(job);
}
