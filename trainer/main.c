/*
 * main.c - tutti-train: read the options, load the data, start the ranks, train
 *
 * The data is loaded before ranks are forked, so that it is read and judged once and lies in memory
 * once. Exit status: 0 right, 1 failed, 2 bad usage or value; killed by the signal that asked it to
 * stop, once it has stopped.
 */
#include "config.h"
#include "data.h"
#include "fail.h"
#include "metrics.h"
#include "perf/launch.h"
#include "perf/output.h"
#include "strategy.h"
#include "train.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TOOL "tutti-train"

struct job {
	struct tt_config config;
	struct tt_data data;
	tuttiUniqueId id; /* when --np starts the ranks */
};

/* rank < 0: not known, or not of one rank. Gives the exit status. */
static int complain(int code, int rank)
{
	const char *text = tt_train_error();
	char who[32] = "";

	if (rank >= 0)
		snprintf(who, sizeof(who), "rank %d: ", rank);
	if (!strncmp(text, who, strlen(who)))    /* the library names its rank itself */
		who[0] = '\0';
	fprintf(stderr, TOOL ": %s%s\n", who, text);
	return -code;
}

/* ---- one rank ------------------------------------------------------------------------------- */

static void note_signal(int number) { tt_stop_signal = number; }

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = note_signal, .sa_flags = SA_RESTART };

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

static int join(const struct job *job, int rank, tuttiComm_t *ret_comm)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiResult_t result;
	int code;

	config.transport = job->config.transport;
	config.algo = job->config.algo;
	config.name = TOOL;
	if (job->config.np)
		result = tuttiCommInitRankConfig(ret_comm, (int)job->config.np, job->id, rank,
						 &config);
	else
		result = tuttiCommInitEnv(ret_comm, &config);
	code = tt_library(result, NULL);
	return code && result == tuttiInvalidArgument ? TT_TRAIN_USAGE : code;
}

static void print_result(const struct tt_trainer *t, const struct tt_result *r)
{
	const struct tt_config *c = t->config;

	printf("{\"accuracy\":%.4f,\"loss\":%.6f,\"samples_per_s\":%.0f,", r->accuracy, r->loss,
	       r->samples_per_s);
	printf("\"exposed_comm_share\":%.4f,\"hash\":\"%016" PRIx64 "\",\"steps\":%" PRIu64 ",",
	       r->exposed_share, r->hash, r->steps);
	printf("\"np\":%d,\"algo\":\"%s\",\"transport\":\"%s\",", t->nranks, c->algo, c->transport);
	printf("\"data\":\"%s\",\"model\":\"%s\",\"strategy\":\"%s\",\"device\":\"%s\"}\n", t->data->name,
	       c->model, t->strategy->name, t->device.ops->name);
}

/* Trains as one rank of comm; gives the exit status. */
static int train(const struct job *job, tuttiComm_t comm)
{
	struct tt_trainer t;
	struct tt_result result;
	int rc = tt_trainer_open(&t, &job->config, &job->data, comm);

	if (!rc)
		rc = tt_train(&t, &result);
	if (!rc && t.rank == 0)
		print_result(&t, &result);
	/* the ranks that --np starts find the same fault in the same values: it is said once */
	if (rc && (rc != TT_TRAIN_USAGE || !job->config.np || t.rank == 0))
		complain(rc, rc == TT_TRAIN_USAGE ? -1 : t.rank);
	rc = t.rank == 0 ? tt_output_end(TOOL, -rc) : -rc;
	tt_trainer_close(&t);
	return rc;
}

static int rank_main(int rank, void *ctx)
{
	const struct job *job = ctx;
	tuttiComm_t comm;
	int rc, status;

	catch_signals();
	rc = join(job, rank, &comm);
	if (rc == TT_TRAIN_USAGE && rank > 0)
		return -rc;
	if (rc)
		return complain(rc, rc == TT_TRAIN_USAGE || !job->config.np ? -1 : rank);
	status = train(job, comm);
	tuttiCommDestroy(comm);
	if (tt_stop_signal && !status) {
		fflush(NULL);
		signal(tt_stop_signal, SIG_DFL);
		raise(tt_stop_signal);
	}
	return status;
}

/* ---- the job -------------------------------------------------------------------------------- */

static int start_ranks(struct job *job)
{
	struct tt_launch launch = { TOOL, (int)job->config.np, 1, rank_main, job };
	int rc;

	if (!job->config.np)
		return rank_main(0, job);
	rc = job->config.metrics ? tt_metrics_check(job->config.metrics) : TT_TRAIN_OK;
	if (!rc)
		rc = tt_library(tuttiGetUniqueId(&job->id), NULL);
	if (rc)
		return complain(rc, -1);
	return job->config.np == 1 ? rank_main(0, job) : tt_launch(&launch);
}

int main(int argc, char **argv)
{
	struct job job;
	int rc = tt_config_read(argc, argv, &job.config);

	if (rc)
		return rc == 1 ? tt_output_end(TOOL, 0) : 2;
	rc = tt_data_load(job.config.data, job.config.data_dir, (uint64_t)job.config.seed,
			  &job.data);
	if (rc)
		return complain(rc, -1);
	rc = start_ranks(&job);
	tt_data_free(&job.data);
	return rc;
}
