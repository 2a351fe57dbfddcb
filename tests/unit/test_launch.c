/*
 * test_launch.c - detection of the launcher, and joining through a file and a socket of the host
 *
 * Ranks are threads. launchers.sh tests the launchers themselves, hosts.sh several hosts.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness_control.h"
#include "launch/launch.h"

/* ---- detection of the launcher --------------------------------------------------------------- */

#define TORCH \
	"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=0 MASTER_ADDR=n1 MASTER_PORT=29400"
#define SLURM                                                                                                   \
	"SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NODELIST=n[08-11,20] SLURM_JOB_ID=7 SLURM_STEP_ID=0 " \
	"SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=1 SLURM_NODEID=0"

static const struct {
	const char *vars;
	const char *launcher; /* NULL: an error that contains words */
	const char *words;
	int rank, nranks;
} cases[] = {
	{ "", "alone", "", 0, 1 },
	{ "TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_ROOT=a:1 TUTTI_SECRET=s", "tutti", "", 1, 2 },
	{ "TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_ROOT=file:/x", "tutti", "", 1, 2 },
	{ "TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_ROOT=a:1", NULL, "TUTTI_SECRET is not set", 0, 0 },
	{ "TUTTI_RANK=2 TUTTI_NRANKS=2 TUTTI_ROOT=file:/x", NULL,
	  "TUTTI_RANK is 2, but TUTTI_NRANKS is 2", 0, 0 },
	{ "TUTTI_ROOT=a:1", NULL, "TUTTI_RANK is not set", 0, 0 },
	{ TORCH, "torchrun", "", 3, 8 },
	{ TORCH " TUTTI_ROOT=file:/x", "torchrun", "", 3, 8 },
	{ "RANK=3", NULL, "torchrun is half set: WORLD_SIZE", 0, 0 },
	{ "RANK=3 WORLD_SIZE=many", NULL, "WORLD_SIZE is 'many', which is not valid", 0, 0 },
	{ "RANK=3 WORLD_SIZE=4", NULL, "MASTER_ADDR", 0, 0 },
	{ "PMIX_NAMESPACE=x PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=2", "pmix", "", 1, 2 },
	{ "PMIX_NAMESPACE=x PMIX_RANK=2 OMPI_COMM_WORLD_SIZE=2", NULL,
	  "PMIX_RANK is 2, but OMPI_COMM_WORLD_SIZE is 2", 0, 0 },
	{ "PMIX_RANK=1", NULL, "PMIX_NAMESPACE is not set", 0, 0 },
	{ "PMI_FD=5 PMI_RANK=1 PMI_SIZE=2", "pmi", "", 1, 2 },
	{ "PMI_RANK=1 PMI_SIZE=2", NULL, "PMI_FD is not set", 0, 0 },
	{ SLURM, "slurm", "", 3, 8 },
	{ SLURM " SLURM_STEP_RESV_PORTS=99999-100003", NULL,
	  "SLURM_STEP_RESV_PORTS is '99999-100003', which is not valid", 0, 0 },
	/* a batch script */
	{ "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=7", "alone", "", 0, 1 },
	{ "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=8 SLURM_JOB_ID=7", NULL,
	  "SLURM_STEP_NODELIST is not set", 0, 0 },
	{ "JOB_COMPLETION_INDEX=1 TUTTI_NRANKS=2 TUTTI_ROOT=a:1 TUTTI_SECRET=s", "kubernetes", "",
	  1, 2 },
	{ "JOB_COMPLETION_INDEX=1", NULL, "TUTTI_NRANKS is not set", 0, 0 },
	{ "JOB_COMPLETION_INDEX=1 TUTTI_NRANKS=2", NULL, "set TUTTI_ROOT", 0, 0 },
	/* two launchers */
	{ TORCH " PMI_FD=5 PMI_RANK=3 PMI_SIZE=8", "torchrun", "", 3, 8 },
	{ TORCH " PMI_FD=5 PMI_RANK=0 PMI_SIZE=2", NULL,
	  "rank 3 of 8 by torchrun, rank 0 of 2 by pmi", 0, 0 },
	{ TORCH " PMI_FD=5 PMI_RANK=0 PMI_SIZE=2 TUTTI_LAUNCH=pmi", "pmi", "", 0, 2 },
	{ TORCH " TUTTI_LAUNCH=alone", "alone", "", 0, 1 },
	{ TORCH " TUTTI_LAUNCH=slurm", NULL, "TUTTI_LAUNCH=slurm", 0, 0 },
	{ TORCH
	  " SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a SLURM_JOB_ID=7 SLURM_STEP_ID=0 "
	  /* srun started torchrun */
	  "SLURM_TASK_PID=1",
	  "torchrun", "", 3, 8 },
	/* one launcher half set, another complete */
	{ "RANK=3 PMI_FD=5 PMI_RANK=0 PMI_SIZE=2", "pmi", "", 0, 2 },
};

static void unset_all(void)
{
	static const char *const names[] = {
		"TUTTI_RANK",
		"TUTTI_NRANKS",
		"TUTTI_ROOT",
		"TUTTI_SECRET",
		"TUTTI_LAUNCH",
		"RANK",
		"WORLD_SIZE",
		"LOCAL_RANK",
		"LOCAL_WORLD_SIZE",
		"GROUP_RANK",
		"MASTER_ADDR",
		"MASTER_PORT",
		"PMIX_NAMESPACE",
		"PMIX_RANK",
		"OMPI_COMM_WORLD_RANK",
		"OMPI_COMM_WORLD_SIZE",
		"PMI_FD",
		"PMI_RANK",
		"PMI_SIZE",
		"SLURM_PROCID",
		"SLURM_STEP_NUM_TASKS",
		"SLURM_STEP_NODELIST",
		"SLURM_JOB_ID",
		"SLURM_STEP_ID",
		"SLURM_STEP_NUM_NODES",
		"SLURM_LOCALID",
		"SLURM_NODEID",
		"SLURM_TASK_PID",
		"JOB_COMPLETION_INDEX",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

static void set_all(const char *vars)
{
	char copy[600], *save = NULL;

	unset_all();
	snprintf(copy, sizeof(copy), "%s", vars);
	for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
		char *equals = strchr(p, '=');

		*equals = '\0';
		setenv(p, equals + 1, 1);
	}
}

static int detect(const char *vars, struct tt_job *ret_job)
{
	struct tt_env env;

	set_all(vars);
	cr_assert_eq(tt_env_read(&env), 0, "%s: %s", vars, tt_error_text());
	return tt_launch_detect(&env, ret_job);
}

Test(launch, the_launcher_is_detected_or_the_error_names_the_variable, .timeout = 30)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tt_job job = { .launcher = "none" };
		int rc = detect(cases[i].vars, &job);

		if (!cases[i].launcher) {
			cr_expect_eq(rc, TT_USAGE, "%s: %d", cases[i].vars, rc);
			cr_expect(strstr(tt_error_text(), cases[i].words), "%s: %s", cases[i].vars,
				  tt_error_text());
			continue;
		}
		cr_expect_eq(rc, 0, "%s: %s", cases[i].vars, tt_error_text());
		cr_expect_str_eq(job.launcher, cases[i].launcher, "%s", cases[i].vars);
		cr_expect(job.rank == cases[i].rank && job.nranks == cases[i].nranks,
			  "%s: rank %d of %d", cases[i].vars, job.rank, job.nranks);
	}
}

Test(launch, the_port_of_torchrun_is_never_used, .timeout = 30)
{
	struct tt_job job;

	for (int port = 1; port < 65536; port += 509) {
		char vars[200];

		snprintf(vars, sizeof(vars), "RANK=0 WORLD_SIZE=2 MASTER_ADDR=n MASTER_PORT=%d",
			 port);
		cr_assert_eq(detect(vars, &job), 0, "%s", tt_error_text());
		cr_assert(port < job.port || port >= job.port + job.nports, "%d: %d to %d", port,
			  job.port, job.port + job.nports - 1);
		cr_assert(job.port > 0 && job.port + job.nports <= 65536);
	}
}

Test(launch, rank_0_is_on_the_first_host_of_the_slurm_node_list, .timeout = 30)
{
	static const char *const lists[][2] = {
		{ "n[08-11,20],m3", "n08" }, { "alpha", "alpha" },       { "alpha,beta", "alpha" },
		{ "n[7]-ib,m", "n7-ib" },    { "gpu-a[1,5]", "gpu-a1" },
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		struct tt_job job;
		char vars[300];

		snprintf(
			vars, sizeof(vars),
			"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=%s SLURM_JOB_ID=1 "
			"SLURM_STEP_ID=2",
			lists[i][0]);
		cr_assert_eq(detect(vars, &job), 0);
		cr_expect_str_eq(job.host, lists[i][1]);
	}
}

Test(launch, every_slurm_job_id_gives_a_port_of_the_range, .timeout = 30)
{
	/* 64 times the second is 2^31; the last are of a federation, where bits 26 to 31 are the
	 * cluster */
	static const char *const ids[] = { "7", "33554432", "67108863", "2214592513",
					   "4294967295" };

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct tt_job job;
		char vars[300], name[64];

		snprintf(vars, sizeof(vars),
			 "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a "
			 "SLURM_JOB_ID=%s SLURM_STEP_ID=3",
			 ids[i]);
		snprintf(name, sizeof(name), "slurm %s.3", ids[i]);
		cr_expect_eq(detect(vars, &job), 0, "job %s: %s", ids[i], tt_error_text());
		cr_expect(job.port >= 20000 && job.port + job.nports <= 32768, "job %s: port %d",
			  ids[i], job.port);
		cr_expect_str_eq(job.name, name);
	}
}

/* ---- a file ---------------------------------------------------------------------------------- */

static struct tt_job file_job = { .launcher = "tutti", .nranks = 2 };
static char folder[64] = "/tmp/tutti-test-XXXXXX", path[80];

static struct tt_store open_file(void)
{
	struct tt_store s = { .ops = &tt_store_file, .job = &file_job };

	if (!path[0]) {
		cr_assert(mkdtemp(folder));
		snprintf(path, sizeof(path), "%s/job", folder);
		file_job.path = path;
	}
	cr_assert_eq(s.ops->open(&s), 0);
	return s;
}

static void remove_all(void)
{
	char name[128];

	snprintf(name, sizeof(name), "%s.k", path);
	unlink(name);
	rmdir(folder);
}

Test(launch, a_file_is_valid_only_while_its_writer_lives, .timeout = 30, .fini = remove_all)
{
	struct tt_store root = open_file(), other = open_file(), next = open_file();
	char value[TT_STORE_VALUE], name[128];
	int left_behind;

	cr_assert_eq(root.ops->put(&root, "k", "first"), 0, "%s", tt_error_text());
	cr_assert_eq(other.ops->get(&other, "k", value, tt_deadline_ns(JOIN_TIMEOUT_MS)), 0, "%s",
		     tt_error_text());
	cr_assert_str_eq(value, "first");
	root.ops->close(&root);
	snprintf(name, sizeof(name), "%s.k", path);
	cr_expect(access(name, F_OK), "the file was left behind");

	left_behind = open(name, O_CREAT | O_WRONLY, 0600); /* by a killed rank 0 */
	cr_assert_eq(write(left_behind, "stale", 5), 5);
	cr_assert_eq(other.ops->get(&other, "k", value, tt_deadline_ns(200)), TT_TIMEOUT);
	cr_expect(strstr(tt_error_text(), "rank 0 did not join"), "%s", tt_error_text());
	cr_assert_eq(next.ops->put(&next, "k", "second"), 0, "%s", tt_error_text());
	cr_assert_eq(other.ops->get(&other, "k", value, tt_deadline_ns(JOIN_TIMEOUT_MS)), 0, "%s",
		     tt_error_text());
	cr_expect_str_eq(value, "second");
	next.ops->close(&next);
	other.ops->close(&other);
}

Test(launch, a_file_that_other_users_can_access_is_refused, .timeout = 30, .fini = remove_all)
{
	struct tt_store root = open_file(), other = open_file();
	char value[TT_STORE_VALUE], name[128];

	cr_assert_eq(root.ops->put(&root, "k", "open"), 0, "%s", tt_error_text());
	snprintf(name, sizeof(name), "%s.k", path);
	cr_assert_eq(chmod(name, 0644), 0);
	cr_expect_eq(other.ops->get(&other, "k", value, tt_deadline_ns(JOIN_TIMEOUT_MS)), TT_USAGE);
	cr_expect(strstr(tt_error_text(), "other users use it"), "%s", tt_error_text());
	root.ops->close(&root);
	other.ops->close(&other);
}

/* Every rank refuses the file at open, before any rank waits. */
static void is_refused(const char *file, const char *phrase)
{
	struct tt_job job = { .launcher = "tutti", .nranks = 2, .rank = 1, .path = file };
	struct tt_store s = { .ops = &tt_store_file, .job = &job };

	cr_expect_eq(s.ops->open(&s), TT_ARG);
	cr_expect(strstr(tt_error_text(), file) && strstr(tt_error_text(), phrase), "%s",
		  tt_error_text());
}

Test(launch, a_path_that_is_not_a_file_is_refused_before_any_rank_waits, .timeout = 30,
     .fini = remove_all)
{
	struct tt_store other = open_file();
	char value[TT_STORE_VALUE], name[128];

	is_refused(folder, "a folder; name a file, as file:/tmp/tutti-test-");
	is_refused("/dev/null", "no plain file");
	snprintf(name, sizeof(name), "%s.k", path);
	cr_assert_eq(mkfifo(name, 0600), 0);
	is_refused(name, "no plain file");
	cr_expect_eq(other.ops->get(&other, "k", value, tt_deadline_ns(JOIN_TIMEOUT_MS)), TT_USAGE);
	cr_expect(strstr(tt_error_text(), "no plain file: remove it"), "%s", tt_error_text());
	other.ops->close(&other);
}

/* ---- the socket of the ranks of one host ----------------------------------------------------- */

static struct tt_job local_job = { .launcher = "torchrun", .nranks = 2, .name = "squatted" };

static struct tt_store open_local(void)
{
	struct tt_store s = { .ops = &tt_store_local, .job = &local_job };

	cr_assert_eq(s.ops->open(&s), 0);
	return s;
}

/* The name at which this process's store listens. */
static socklen_t find_name(struct sockaddr_un *ret_name)
{
	for (int fd = 3; fd < 200; fd++) {
		socklen_t bytes = sizeof(*ret_name);

		memset(ret_name, 0, sizeof(*ret_name));
		if (!getsockname(fd, (struct sockaddr *)ret_name, &bytes) &&
		    ret_name->sun_family == AF_UNIX &&
		    !strncmp(ret_name->sun_path + 1, "tutti-launch-", 13))
			return bytes;
	}
	cr_assert_fail("no socket tutti-launch-*");
	return 0;
}

/* Another user takes a name. */
static pid_t squat(const struct sockaddr_un *name, socklen_t bytes)
{
	int ready[2], fd;
	pid_t child;
	char byte;

	cr_assert_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) ||
		    prctl(PR_SET_PDEATHSIG, SIGKILL) ||
		    bind(fd, (const struct sockaddr *)name, bytes) || listen(fd, SOMAXCONN) ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	cr_assert_eq(read(ready[0], &byte, 1), 1, "another user cannot take a name");
	close(ready[0]);
	return child;
}

Test(launch, names_that_another_user_has_taken_are_passed_over, .timeout = 60)
{
	enum { MOST = 100 };
	struct tt_store root, other;
	struct sockaddr_un name;
	char value[TT_STORE_VALUE];
	pid_t squatter[MOST];
	int n = 0, rc = 0;

	if (geteuid())
		cr_skip_test("only root can be another user");
	while (n < MOST) {
		root = open_local();
		other = open_local();
		rc = root.ops->put(&root, "key", "value");
		if (rc)
			break;
		cr_assert_eq(other.ops->get(&other, "key", value, tt_deadline_ns(20000)), 0,
			     "with %d names taken: %s", n, tt_error_text());
		cr_expect_str_eq(value, "value");
		socklen_t bytes = find_name(&name);

		root.ops->close(&root);
		other.ops->close(&other);
		squatter[n++] = squat(&name, bytes);
	}
	cr_expect_gt(n, 1, "one name taken: %s", tt_error_text());
	cr_expect(strstr(tt_error_text(), "user 65534 has taken all socket names of this job"),
		  "%s", tt_error_text());
	cr_expect(other.ops->get(&other, "key", value, tt_deadline_ns(20000)) == TT_USAGE &&
			  strstr(tt_error_text(), "user 65534"),
		  "%s", tt_error_text());
	for (int i = 0; i < n; i++) {
		kill(squatter[i], SIGKILL);
		waitpid(squatter[i], NULL, 0);
	}
	root.ops->close(&root);
	other.ops->close(&other);
}

/* ---- restarts -------------------------------------------------------------------------------- */

static void rank_2_is_stale(struct control_job *m, int rank, struct tt_join *join)
{
	static tuttiUniqueId stale;
	struct tt_id id;

	if (rank != 2 || tt_id_unpack(&m->id, &id))
		return;
	id.epoch--;
	tt_id_pack(&id, &stale);
	join->id = &stale;
}

Test(launch, a_rank_of_an_earlier_attempt_is_refused_with_the_reason, .timeout = 60)
{
	struct tt_root_endpoint endpoint = { .job = "attempts",
					     .nports = 1,
					     .epoch = 4,
					     .naddresses = 1,
					     .addresses = { tt_loopback4 } };
	struct control_job m = { .n = 3,
				 .has_id = true,
				 .before = rank_2_is_stale,
				 .timeout_ms = 1500,
				 .only_rank_0 = true };
	int fd;

	cr_assert_eq(tt_sock_reserve(0, &fd, &endpoint.port), 0);
	cr_assert_eq(tt_id_at(&endpoint, "secret", &m.id), 0);
	control_job_run(&m);
	cr_expect(strstr(m.report[2].text, "later attempt of this job"), "%s", m.report[2].text);
	for (int r = 0; r < 2; r++)
		cr_expect(strstr(m.report[r].text, "rank 2 did not join"), "rank %d: %s", r,
			  m.report[r].text);
	close(fd);
}

/* Two jobs get the same port from their launchers: the second job takes the next port, and no rank
 * joins the wrong job. */
Test(launch, two_jobs_with_one_root_port_are_not_mixed_up, .timeout = 60)
{
	struct tt_root_endpoint endpoint = {
		.job = "first", .nports = 8, .naddresses = 1, .addresses = { tt_loopback4 }
	};
	struct control_job first = { .n = 3, .has_id = true }, second = { .n = 3, .has_id = true };
	int fd;

	cr_assert_eq(tt_sock_reserve(0, &fd, &endpoint.port), 0);
	endpoint.port = endpoint.port < 65500 ? endpoint.port : 60000;
	cr_assert_eq(tt_id_at(&endpoint, "secret", &first.id), 0);
	endpoint.job = "second";
	cr_assert_eq(tt_id_at(&endpoint, "secret", &second.id), 0);
	control_job_start(&first);
	control_job_run(&second);
	control_job_wait(&first);
	for (int r = 0; r < 3; r++) {
		cr_expect_eq(first.report[r].joined, 0, "rank %d of the first: %s", r,
			     first.report[r].text);
		cr_expect_eq(second.report[r].joined, 0, "rank %d of the second: %s", r,
			     second.report[r].text);
	}
	close(fd);
}
