/*
 * cmd_top.c - `tutti top`: what a running job does now, by asking rank 0 or from the files of its flight
 * recorder
 *
 * Called by the table in tutti_main.c. Calls top_job.c, which asks rank 0 (monitor.h), or trace_files.c and
 * its neighbors, which read files. Neither disturbs a rank.
 */
#include <dirent.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/unique_id.h"
#include "launch/launch.h"
#include "perf/commands/cmd.h"
#include "perf/commands/top_job.h"
#include "perf/commands/trace_files.h"
#include "tools/options.h"

#define ROWS 24     /* of a screen that is no terminal */
#define ONCE_S 0.25 /* between the two reports of --once */
#define AT_ONCE 64  /* jobs that are asked at the same time */

struct top_options {
	bool once, json;
	double interval;
};

static const struct tool_option options[] = {
	{ 0, "once", TOOL_OPT_FLAG, NULL, offsetof(struct top_options, once), NULL, 0, 0, NULL,
	  NULL, "print once, then exit" },
	{ 0, "json", TOOL_OPT_FLAG, NULL, offsetof(struct top_options, json), NULL, 0, 0, NULL,
	  NULL, "JSON instead of a screen" },
	{ 0, "interval", TOOL_OPT_REAL, "S", offsetof(struct top_options, interval), "1", 0.1, 3600,
	  NULL, NULL, "seconds between two screens" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti top",
	.help = "Shows what the ranks of a running job do now: per communicator the operation, its age, the\n"
		"ranks that are awaited, calls and bytes a second, and the ranks, the late ones first.\n"
		"  tutti top HOST:PORT               asks rank 0 of a job with TUTTI_ROOT=HOST:PORT; the secret is\n"
		"                                    in TUTTI_SECRET or TUTTI_SECRET_FILE, as for the ranks\n"
		"  tutti top FILE | FOLDER           asks rank 0 of the jobs with TUTTI_TOP=FOLDER\n"
		"  tutti top FOLDER                  reads the flight recorder of jobs with TUTTI_TRACE=FOLDER\n"
		"  tutti top ... --once --json       for scripts; without --once until Ctrl-C\n"
		"Bytes, busbw and exact ages are known where the ranks count their calls: with TUTTI_TOP,\n"
		"TUTTI_METRICS or TUTTI_RAS, or by the recorder.",
	.options = options,
	.operands = "HOST:PORT|FILE|FOLDER",
};

/* ---- jobs, over the network ------------------------------------------------------------------- */

struct jobs {
	int n, room;
	struct top_job *job;
};

/* 0 | 1 | 2: wrong usage; error printed */
static int status_of(int rc)
{
	if (rc)
		fprintf(stderr, "%s: %s\n", usage.tool, tt_error_text());
	return rc == TT_ARG || rc == TT_USAGE ? 2 : rc ? 1 : 0;
}

static int add_job(struct jobs *jobs, const tuttiUniqueId *id, const char *where)
{
	char *name = strdup(where);

	if (!name)
		return tt_fail(TT_SYSTEM, "no memory for a job");
	if (jobs->n == jobs->room) {
		int room = 2 * jobs->room + 1;
		struct top_job *more = realloc(jobs->job, (size_t)room * sizeof(*more));

		if (!more) {
			free(name);
			return tt_fail(TT_SYSTEM, "no memory for %d jobs", room);
		}
		jobs->job = more;
		jobs->room = room;
	}
	jobs->job[jobs->n++] = (struct top_job){ .id = *id, .name = name };
	return 0;
}

static int find_by_root(const char *host_port, struct jobs *jobs)
{
	char secret[1024] = "";
	tuttiUniqueId id;
	struct tt_env env;
	int rc = tt_env_read(&env);

	if (!rc)
		rc = tt_launch_secret(&env, secret, sizeof(secret));
	if (!rc && !*secret)
		rc = tt_fail(TT_USAGE, "set TUTTI_SECRET or TUTTI_SECRET_FILE, as for the ranks");
	if (!rc)
		rc = tt_id_from_root(host_port, secret, &id);
	OPENSSL_cleanse(secret, sizeof(secret));
	if (!rc)
		rc = add_job(jobs, &id, host_port);
	return status_of(rc);
}

static bool is_id_file(const char *name)
{
	size_t bytes = strlen(name), end = strlen(TT_ID_FILE);

	return bytes > end && !strcmp(name + bytes - end, TT_ID_FILE);
}

static int find_by_file(const char *path, struct jobs *jobs)
{
	tuttiUniqueId id;
	int rc = tt_id_file_read(path, &id);

	return status_of(rc ? rc : add_job(jobs, &id, path));
}

/* The id files of a folder, none if it is one of the flight recorder. Files that cannot be read, as those
 * of other users, are named and left out. 0 | 1 or 2: all are such */
static int find_in_folder(const char *path, struct jobs *jobs)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char file[4096];
	int rc = 0;

	while (dir && (entry = readdir(dir)))
		if (is_id_file(entry->d_name)) {
			snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
			rc = find_by_file(file, jobs);
		}
	if (dir)
		closedir(dir);
	return jobs->n ? 0 : rc;
}

static int find_jobs(const char *where, struct jobs *jobs)
{
	struct stat st;

	if (stat(where, &st))
		return strchr(where, ':')
			       ? find_by_root(where, jobs)
			       : tool_refuse(usage.tool, "%s: %s, and it is no HOST:PORT", where,
					     strerror(errno));
	return S_ISDIR(st.st_mode) ? find_in_folder(where, jobs) : find_by_file(where, jobs);
}

/* ---- questions -------------------------------------------------------------------------------- */

struct questions {
	struct jobs *jobs;
	atomic_int next;
};

static void *ask_next(void *ctx)
{
	struct questions *q = ctx;

	for (int i; (i = atomic_fetch_add(&q->next, 1)) < q->jobs->n;)
		top_job_ask(&q->jobs->job[i]);
	return NULL;
}

/* A reason may begin with the address that is the job's name. */
static void print_why(const struct top_job *job)
{
	const char *why = job->why ? job->why : "no memory for its report";
	bool named = !strncmp(why, job->name, strlen(job->name));

	fprintf(stderr, "%s: %s%s%s\n", usage.tool, named ? "" : job->name, named ? "" : ": ", why);
}

/* Ask all jobs, AT_ONCE at a time, since a host that does not answer takes seconds. Those that do not answer
 * are named and left out: of a folder, they have ended. 0: one has answered */
static int ask(struct jobs *jobs)
{
	struct questions q = { .jobs = jobs };
	pthread_t threads[AT_ONCE - 1];
	int started = 0, kept = 0;

	while (started < AT_ONCE - 1 && started < jobs->n - 1 &&
	       !pthread_create(&threads[started], NULL, ask_next, &q))
		started++;
	ask_next(&q);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < jobs->n; i++) {
		struct top_job job = jobs->job[i];

		if (job.at_ns) {
			jobs->job[kept++] = job;
			continue;
		}
		print_why(&job);
		top_job_free(&job);
		free(job.name);
	}
	jobs->n = kept;
	return kept ? 0 : 1;
}

/* ---- the screen ------------------------------------------------------------------------------- */

static int screen_rows(void)
{
	struct winsize size;

	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row > 4 ? size.ws_row : ROWS;
}

/* Has every rank answered? Then a second report comes at once. */
static bool all_answer(const struct jobs *jobs)
{
	for (int k = 0; k < jobs->n; k++)
		for (int i = 0; i < jobs->job[k].report.ncomms; i++)
			if (top_comm_differs(&jobs->job[k].comms[i]))
				return false;
	return true;
}

static void pause_for(double seconds)
{
	usleep((useconds_t)(seconds * 1e6));
}

static void begin_screen(const struct top_options *v)
{
	if (!v->once && isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
}

static int show_jobs(struct jobs *jobs, const struct top_options *v)
{
	int rc = ask(jobs);

	if (!rc && v->once && all_answer(jobs)) {
		pause_for(ONCE_S);
		rc = ask(jobs);
	}
	if (rc)
		return rc;
	begin_screen(v);
	if (v->json)
		top_print_json(jobs->job, jobs->n, stdout);
	else
		top_print(jobs->job, jobs->n, screen_rows(), stdout);
	fflush(stdout);
	return ferror(stdout) ? 1 : 0;
}

/* ---- the files of the flight recorder --------------------------------------------------------- */

static int show_trace(const char *dir, const struct top_options *v)
{
	struct trace t;
	int rc = trace_read(
		usage.tool, dir,
		"no job that runs has its file of TUTTI_TOP here, and no file is of TUTTI_TRACE",
		&t);

	if (rc)
		return rc;
	begin_screen(v);
	(v->json ? trace_top_json : trace_top)(&t, stdout);
	fflush(stdout);
	trace_free(&t);
	return ferror(stdout) ? 1 : 0;
}

int tool_cmd_top(int argc, char **argv)
{
	struct jobs jobs = { 0 };
	struct top_options v;
	const char *where;
	int rc = tool_options_read(&usage, argc, argv, &v);

	if (rc)
		return rc == 1 ? 0 : rc;
	where = *tool_arguments();
	if (!where)
		return tool_refuse(
			usage.tool,
			"name the job: tutti top HOST:PORT, or a folder of TUTTI_TOP or TUTTI_TRACE");
	rc = find_jobs(where, &jobs);
	while (!rc && !(rc = jobs.n ? show_jobs(&jobs, &v) : show_trace(where, &v)) && !v.once)
		pause_for(v.interval);
	for (int i = 0; i < jobs.n; i++) {
		top_job_free(&jobs.job[i]);
		free(jobs.job[i].name);
	}
	free(jobs.job);
	return rc;
}
