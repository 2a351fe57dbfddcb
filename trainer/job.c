/*
 * job.c - a training: read the options, load the data, start the ranks, train (job.h)
 *
 * The data is loaded and validated once, before ranks are forked, so local ranks share its
 * memory. Exit status: 0 success, 1 failure, 2 bad usage or value. A training ended by a signal
 * finishes its step, then dies of that signal.
 */
#include "trainer/job.h"

#include "tools/output.h"
#include "tools/spawn.h"
#include "trainer/advise.h"
#include "trainer/base/fail.h"
#include "trainer/checkpoint.h"
#include "trainer/cluster.h"
#include "trainer/data/data.h"
#include "trainer/grow.h"
#include "trainer/device/device.h"
#include "trainer/metrics.h"
#include "trainer/option_check.h"
#include "trainer/rank/fault.h"
#include "trainer/rank/pipeline.h"
#include "trainer/rank/user_model.h"
#include "trainer/rebuild.h"
#include "trainer/schedule_command.h"
#include "trainer/strategy/arrival_order.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/survive.h"
#include "trainer/train.h"
#include "trainer/train_config.h"
#include "trainer/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOL "tutti-train"

struct train_job {
	struct train_config config;
	struct train_data data;
	tuttiUniqueId id; /* of the ranks that --np starts */
	int ranks;        /* number of ranks that --np starts: workers and servers */
	bool lenient;     /* a killed rank does not end the others */
};

/* Prints the error text. rank < 0: unknown, or an error of all ranks. mesh: the text may number ranks within a group of
 * the mesh. Returns the exit status. */
static int print_error(int code, int rank, bool mesh)
{
	const char *text = train_error();
	char prefix[80] = "";

	if (rank >= 0)
		snprintf(prefix, sizeof(prefix), "rank %d: ", rank);
	if (rank >= 0 && mesh && !strncmp(text, "rank ", 5))
		snprintf(prefix, sizeof(prefix),
			 "rank %d (numbers below may be of a group of the mesh): ", rank);
	if (!strncmp(text, prefix, strlen(prefix))) /* the library's texts name the rank */
		prefix[0] = '\0';
	fprintf(stderr, TOOL ": %s%s\n", prefix, text);
	return -code;
}

/* ---- one rank ------------------------------------------------------------------------------- */

static void on_signal(int number)
{
	train_stop_signal = number;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

static int checked(tuttiResult_t result)
{
	int code = train_check(result, NULL);

	return result == tuttiInvalidArgument || result == tuttiInvalidUsage ? TRAIN_USAGE : code;
}

/* The number of lower ranks on this rank's host. */
static int find_local_rank(tuttiComm_t comm, int *ret_rank)
{
	char mine[64] = "", (*all)[64];
	int rank, nranks, rc;

	gethostname(mine, sizeof(mine) - 1);
	tuttiCommUserRank(comm, &rank);
	tuttiCommCount(comm, &nranks);
	all = calloc((size_t)nranks, sizeof(*all));
	if (!all)
		return train_fail(TRAIN_FAILED, "no memory for the hosts of %d ranks", nranks);
	rc = checked(tuttiAllGather(mine, all, sizeof(mine), tuttiInt8, comm, NULL));
	*ret_rank = 0;
	for (int r = 0; r < rank; r++)
		*ret_rank += !strcmp(all[r], mine);
	free(all);
	return rc;
}

/* Ranks started by a launcher: join, determine the rank on the host, select the device, and
 * create the communicator that uses it. */
static int join_env(const struct train_device_ops *device, const char *name, tuttiConfig_t *config,
		    tuttiComm_t *ret_comm)
{
	tuttiComm_t first;
	int rank, local_rank = 0, rc;

	if (!device || !device->select)
		return checked(tuttiCommInitEnv(ret_comm, config));
	rc = checked(tuttiCommInitEnv(&first, config));
	if (rc)
		return rc;
	tuttiCommUserRank(first, &rank);
	rc = find_local_rank(first, &local_rank);
	if (!rc)
		rc = device->select(name, local_rank);
	if (!rc)
		rc = checked(tuttiCommSplit(first, 0, rank, ret_comm, config));
	if (rc)
		tuttiCommAbort(first);
	else
		tuttiCommDestroy(first);
	return rc;
}

/* The ranks of a mesh take its new layout. */
static void set_mesh(struct train_config *config, const char *mesh)
{
	static char layout[sizeof(((struct train_rank *)0)->grown_mesh)];

	snprintf(layout, sizeof(layout), "%s", mesh);
	config->mesh = *layout ? layout : NULL;
}

/* A further rank of a training that runs, from its checkpoint on */
static int join_running(struct train_job *job, tuttiComm_t *ret_comm)
{
	struct train_invitation invitation;
	int rc = train_grow_wait(job->config.join, &invitation);

	if (rc)
		return rc;
	set_mesh(&job->config, invitation.mesh);
	job->config.resume = job->config.save;
	job->config.grow = job->config.join;
	return train_grow_join(&job->config, &invitation, ret_comm);
}

static int join(struct train_job *job, int rank, tuttiComm_t *ret_comm)
{
	const struct train_device_ops *device = train_device_find(job->config.device);
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	int rc = TRAIN_OK;

	config.transport = job->config.transport;
	config.algo = job->config.algo;
	config.name = TOOL;
	if (job->config.join)
		return join_running(job, ret_comm);
	if (!job->config.np)
		return join_env(device, job->config.device, &config, ret_comm);
	if (device && device->select)
		rc = device->select(job->config.device, rank);
	if (rc)
		return rc;
	return checked(tuttiCommInitRankConfig(ret_comm, job->ranks, job->id, rank, &config));
}

static void print_result(const struct train_rank *t, const struct train_result *r)
{
	const struct train_config *c = t->config;
	static const char *const canonical[] = { "off", "tree", "chain", "fixed64" };

	printf("{");
	if (t->data->text)
		printf("\"perplexity\":%.4f,", exp(r->loss));
	if (t->data->plays)
		printf("\"mean_return\":%.2f,", train_rollout_return(r->accuracy));
	else
		printf("\"accuracy\":%.4f,\"loss\":%.6f,", r->accuracy, r->loss);
	printf("\"samples_per_s\":%.0f,\"step_ms\":%.3f,", r->samples_per_s, r->step_ms);
	printf("\"exposed_comm_share\":%.4f,\"bytes_sent\":%" PRIu64 ",\"bytes_read\":%" PRIu64 ",",
	       r->exposed_share, r->sent_bytes, r->read_bytes);
	printf("\"rank_bytes\":%" PRIu64 ",\"data_bytes\":%zu,", t->bytes,
	       train_shard_bytes(&t->shard, t->data));
	printf("\"bytes_to_device\":%" PRIu64 ",\"bytes_from_device\":%" PRIu64 ",",
	       t->device.put_bytes, t->device.get_bytes);
	printf("\"hash\":\"%016" PRIx64 "\",\"steps\":%" PRIu64 ",\"died\":%d,", r->hash, r->steps,
	       t->first_server - t->nranks);
	if (t->strategy->report)
		t->strategy->report(t);
	if (t->pipeline)
		train_pipeline_report(t);
	printf("\"np\":%d,\"ps\":%d,\"algo\":\"%s\",\"transport\":\"%s\",", t->nranks, t->servers,
	       c->algo, c->transport);
	printf("\"canonical\":\"%s\",\"data\":\"%s\",\"model\":\"%s\",\"strategy\":\"%s\",",
	       canonical[c->canonical], t->data->name, c->model, t->strategy->name);
	printf("\"device\":\"%s\"}\n", t->device.ops->name);
}

/* A death ends the training of a mesh; the survivors begin another one. */
static bool rebuilds(const struct train_config *c, int rc, const struct train_result *r)
{
	return rc == TRAIN_FAILED && !r->ended && c->mesh && c->on_failure == TRAIN_FAILURE_SHRINK;
}

/* Trains or serves as one rank of world, and destroys world. *ret_world: the ranks of the training that
 * continues after a death; NULL: none. Returns the exit status. */
static int train_once(const struct train_job *job, struct train_config *config, tuttiComm_t world,
		      tuttiComm_t *ret_world)
{
	struct train_rank t;
	struct train_result result = { 0 };
	int rc = train_rank_open(&t, config, &job->data, world), opened = !rc;

	*ret_world = NULL;
	if (!rc)
		rc = train_is_server(&t) ? t.strategy->serve(&t) : train_run(&t, &result);
	if (opened && rebuilds(config, rc, &result) && train_is_recoverable(world) &&
	    !train_rebuild(&t, config, ret_world))
		rc = TRAIN_OK;
	if (!rc && t.grown) {
		set_mesh(config, t.grown_mesh);
		config->resume = config->save;
		config->restarts = false; /* the file exists */
		*ret_world = t.grown;
	} else if (t.grown) {
		tuttiCommAbort(t.grown);
	}
	if (!*ret_world && result.steps && train_is_lead(&t)) {
		train_user_trained(&t);
		print_result(&t, &result);
	}
	/* ranks of one --np have the same usage error: rank 0 prints it once */
	if (rc && (rc != TRAIN_USAGE || !job->config.np || t.world_rank == 0))
		print_error(rc,
			    rc == TRAIN_USAGE ? -1
			    : t.config->mesh  ? t.world_rank
					      : t.rank,
			    t.config->mesh != NULL);
	rc = train_is_lead(&t) && !*ret_world ? tool_output_end(TOOL, -rc) : -rc;
	train_rank_close(&t);
	return rc;
}

static int train(const struct train_job *job, tuttiComm_t world)
{
	struct train_config config = job->config;
	int status;

	do
		status = train_once(job, &config, world, &world);
	while (world);
	return status;
}

static int rank_main(int rank, void *ctx)
{
	struct train_job *job = ctx;
	tuttiComm_t comm;
	int rc, status;

	catch_signals();
	rc = join(job, rank, &comm);
	if (rc == TRAIN_USAGE && rank > 0)
		return -rc;
	if (rc)
		return print_error(rc, rc == TRAIN_USAGE || !job->config.np ? -1 : rank, false);
	status = train(job, comm);
	if (train_stop_signal && !status) {
		fflush(NULL);
		signal(train_stop_signal, SIG_DFL);
		raise(train_stop_signal);
	}
	return status;
}

/* ---- the job -------------------------------------------------------------------------------- */

/* Checks the options as far as possible before ranks are started. */
static int check(struct train_job *job)
{
	struct train_rank t = { .config = &job->config };
	int rc = train_fault_check(&job->config);

	if (!rc)
		rc = train_strategy_find(&t);
	if (!rc)
		rc = train_cluster_apply(&job->config, t.strategy->serve != NULL);
	if (!rc)
		rc = train_option_check(&job->config);
	if (!rc)
		rc = train_grow_check(&t);
	if (!rc)
		rc = train_mesh_parse(&job->config, &t.mesh);
	if (!rc && job->config.np && t.strategy->serve)
		rc = train_arrival_order_check(&job->config);
	if (!rc && job->config.np && !job->config.join)
		rc = train_metrics_check(&job->config);
	if (!rc && job->config.np)
		rc = train_option_check_files(&job->config);
	if (!rc && job->config.np) {
		job->ranks = (int)job->config.np +
			     (t.strategy->serve ? (int)job->config.servers : 0);
		job->lenient = t.strategy->fault_tolerant ||
			       job->config.on_failure == TRAIN_FAILURE_SHRINK;
		rc = train_check(tuttiGetUniqueId(&job->id), NULL);
	}
	return rc;
}

static int start_ranks(struct train_job *job)
{
	struct tool_spawn spawn = { TOOL, 0, 1, rank_main, job, false };
	int rc = check(job);

	if (rc)
		return print_error(rc, -1, false);
	spawn.processes = job->ranks;
	spawn.lenient = job->lenient;
	return job->ranks < 2 ? rank_main(0, job) : tool_spawn(&spawn);
}

/* The samples of --data, or those of a program. */
static int load_data(struct train_job *job)
{
	const struct train_config *c = &job->config;
	struct train_data_options options = { .directory = c->data_dir,
					      .seed = (uint64_t)c->seed,
					      .context = (size_t)c->context,
					      .shard = c->shard_data };

	if (c->user)
		return train_user_data(c, &job->data);
	return train_data_load(c->data, &options, &job->data);
}

int train_job_run(int argc, char **argv, const tuttiTrainModel_t *user)
{
	struct train_job job = { 0 };
	int rc;

	tool_output_begin();
	if (argc > 1 && !strcmp(argv[1], "schedule"))
		return train_schedule_command(argc - 1, argv + 1);
	rc = train_config_read(argc, argv, &job.config);
	if (rc)
		return rc == 1 ? tool_output_end(TOOL, 0) : 2;
	if (user && train_user_check(&job.config, user))
		return print_error(TRAIN_USAGE, -1, false);
	if (job.config.np && tool_is_launched_twice(TOOL, job.config.np))
		return 2;
	if (job.config.advise)
		return train_advise(argc, argv, &job.config);
	rc = load_data(&job);
	if (rc)
		return print_error(rc, -1, false);
	rc = start_ranks(&job);
	train_data_free(&job.data);
	return rc;
}
