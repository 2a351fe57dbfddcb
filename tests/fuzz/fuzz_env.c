/*
 * fuzz_env.c - arbitrary bytes as an environment: lines of NAME=value, read as settings and as those of a launcher
 *
 * A first byte below the space, or above ASCII, selects a name, so that inputs reach values without guessing names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "launch/launch.h"

enum { LINES = 16 };

static const char *const launcher_names[] = {
	"RANK",
	"WORLD_SIZE",
	"LOCAL_RANK",
	"LOCAL_WORLD_SIZE",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_RUN_ID",
	"TORCHELASTIC_RESTART_COUNT",
	"GROUP_RANK",
	"PMIX_NAMESPACE",
	"PMIX_RANK",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_SIZE",
	"OMPI_COMM_WORLD_LOCAL_RANK",
	"OMPI_COMM_WORLD_LOCAL_SIZE",
	"PMI_FD",
	"PMI_RANK",
	"PMI_SIZE",
	"MPI_LOCALRANKID",
	"MPI_LOCALNRANKS",
	"SLURM_PROCID",
	"SLURM_STEP_NUM_TASKS",
	"SLURM_STEP_NODELIST",
	"SLURM_JOB_ID",
	"SLURM_STEP_ID",
	"SLURM_STEP_RESV_PORTS",
	"SLURM_LOCALID",
	"SLURM_STEP_NUM_NODES",
	"SLURM_NODEID",
	"SLURM_RESTART_COUNT",
	"SLURM_TASK_PID",
	"JOB_COMPLETION_INDEX",
};
enum { LAUNCHER_NAMES = sizeof(launcher_names) / sizeof(launcher_names[0]) };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char *line_of(const char *text)
{
	unsigned char first = (unsigned char)text[0];
	unsigned at = first < ' ' ? first : first - 96u;
	char *line;

	if (!first || (first >= ' ' && first < 128))
		return strdup(text);
	at %= tt_env_rows + LAUNCHER_NAMES;
	if (asprintf(&line, "%s=%s",
		     at < tt_env_rows ? tt_env_table[at].name : launcher_names[at - tt_env_rows],
		     text + 1) < 0)
		abort();
	return line;
}

/* A job is in bounds, or there is an error with a sentence. */
static void detect(const struct tt_env *env)
{
	struct tt_job job;

	tt_error_clear();
	if (tt_launch_detect(env, &job)) {
		if (!*tt_error_text())
			abort();
		return;
	}
	if (job.rank < 0 || job.nranks < 0 || (job.nranks && job.rank >= job.nranks) ||
	    job.local_rank < -1 || job.epoch < 0)
		abort();
	if (job.port < 0 || job.nports < 0 || job.port + job.nports > 65536 ||
	    !memchr(job.host, '\0', sizeof(job.host)) || !memchr(job.name, '\0', sizeof(job.name)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char **before = environ, *lines[LINES + 1] = { 0 }, *text = malloc(bytes + 1), *next = text;
	struct tt_env env;

	if (!text)
		abort();
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	for (int n = 0; n < LINES && next; n++)
		lines[n] = line_of(strsep(&next, "\n"));
	environ = lines;
	tt_error_clear();
	switch (tt_env_read(&env)) {
	case TT_OK:
		break;
	case TT_ARG: /* the other values are good, and bad ones have their defaults */
		if (*tt_error_text())
			break;
		/* fall through */
	default:
		abort();
	}
	if (env.timeout_ms < 1 || env.rank < -1 || !*env.transport || !*env.algo)
		abort();
	detect(&env);
	environ = before;
	for (int n = 0; n < LINES; n++)
		free(lines[n]);
	free(text);
	return 0;
}
