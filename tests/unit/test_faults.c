/*
 * test_faults.c - ranks killed or stopped at every step of a small plan
 *
 * Every other rank must return an error within 2 s (kill) or the deadline + 2 s (stop). The error
 * names the missing rank, its last operation and the current operation. No file may be left behind.
 * tests/survival has random moments and other phases. The soak tier runs every step.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/ranks.h"

#define STOP_TIMEOUT_MS 1200
#define MAX_RANKS 16

/* Reports of the surviving ranks to the parent, in shared memory. */
struct fault_report {
	/* ended: 1 with the right error, 2 with a wrong error, 3 with a failed join */
	_Atomic int joined, calls[MAX_RANKS], ended[MAX_RANKS];
	_Atomic double noticed[MAX_RANKS];
	char text[MAX_RANKS][1024];
};

struct fault_case {
	int n, victim, step;
	const char *fault, *transport, *algo;
	size_t count;
	bool single_copy; /* ranks read ordinary memory of peers (CMA) */
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Run allreduces until an error, and report whether the error is the right one. */
static void run_until_error(const struct fault_case *s, const tuttiUniqueId *id, int rank,
			    struct fault_report *report)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	float *x = calloc(s->count, sizeof(float));
	char victim[32];
	tuttiComm_t comm;
	tuttiResult_t rc;

	config.transport = s->transport;
	config.algo = s->algo;
	config.timeout_ms = strcmp(s->fault, "stop") ? 20000 : STOP_TIMEOUT_MS;
	snprintf(victim, sizeof(victim), "rank %d", s->victim);
	rc = tuttiCommInitRankConfig(&comm, s->n, *id, rank, &config);
	if (rc) {
		snprintf(report->text[rank], sizeof(report->text[rank]), "join: %s",
			 tuttiGetLastError(NULL));
		report->ended[rank] = 3;
		_exit(1);
	}
	report->joined++;
	/* another test covers faults during the join */
	while (report->joined < s->n)
		usleep(200);
	while (!(rc = tuttiAllReduce(x, x, s->count, tuttiFloat32, tuttiSum, comm, NULL)))
		report->calls[rank]++;
	report->noticed[rank] = now_s();
	snprintf(report->text[rank], sizeof(report->text[rank]), "result %d: %s", rc,
		 tuttiGetLastError(comm));
	report->ended[rank] = (rc == tuttiRemoteError || rc == tuttiTimeout) &&
					      strstr(report->text[rank], victim) &&
					      strstr(report->text[rank], "operation")
				      ? 1
				      : 2;
	tuttiCommDestroy(comm);
	free(x);
	_exit(0);
}

static void start(const struct fault_case *s, struct fault_report *report, pid_t pids[])
{
	tuttiUniqueId id;
	char fault[64];

	cr_assert_eq(tuttiGetUniqueId(&id), tuttiSuccess, "%s", tuttiGetLastError(NULL));
	snprintf(fault, sizeof(fault), "%s@%d:%d", s->fault, s->victim, s->step);
	for (int r = 0; r < s->n; r++) {
		pids[r] = fork();
		if (pids[r])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("TUTTI_FAULT", fault, 1);
		setenv("TUTTI_CMA", s->single_copy ? "on" : "off", 1);
		run_until_error(s, &id, r, report);
	}
}

/* Has the victim died or stopped? */
static bool has_faulted(pid_t victim)
{
	siginfo_t info = { 0 };

	waitid(P_PID, (id_t)victim, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT);
	return info.si_pid == victim;
}

/* ---- files left behind ----------------------------------------------------------------------- */

#define MAX_FILES 64

/* Names of files in shared folders that processes have mapped or open. The folders have files of
 * other programs, too. */
struct fault_files {
	int n;
	char name[MAX_FILES][256];
};

static bool is_in_shared_folder(const char *path)
{
	return !strncmp(path, "/dev/shm/", 9) || !strncmp(path, "/tmp/", 5) ||
	       !strncmp(path, "/dev/mqueue/", 12);
}

static bool has(const struct fault_files *f, const char *name)
{
	for (int i = 0; i < f->n; i++)
		if (!strcmp(f->name[i], name))
			return true;
	return false;
}

/* The fake libibverbs and the file with the state of its HCAs stay. */
static bool is_of_fake(const char *name)
{
	const char *hcas = getenv("TUTTI_TEST_VERBS");

	return strstr(name, "/libibverbs.so") || (hcas && !strcmp(name, hcas));
}

static void add(struct fault_files *f, const char *name)
{
	if (is_in_shared_folder(name) && !is_of_fake(name) && !has(f, name) && f->n < MAX_FILES)
		snprintf(f->name[f->n++], sizeof(f->name[0]), "%s", name);
}

static void add_files_of(struct fault_files *f, pid_t pid)
{
	char path[64], line[512], name[512];
	struct dirent *e;
	FILE *maps;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%*s %*s %*s %*s %*s %511s", name) == 1)
			add(f, name);
	if (maps)
		fclose(maps);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		ssize_t bytes = readlinkat(dirfd(dir), e->d_name, name, sizeof(name) - 1);

		name[bytes > 0 ? bytes : 0] = '\0';
		add(f, name);
	}
	if (dir)
		closedir(dir);
}

static void nothing_is_left(const struct fault_files *ours, const struct fault_files *theirs)
{
	for (int i = 0; i < theirs->n; i++)
		cr_expect(has(ours, theirs->name[i]) || access(theirs->name[i], F_OK),
			  "%s was left behind", theirs->name[i]);
}

/* ---- a fault --------------------------------------------------------------------------------- */

/* Wait for the fault; then add the files of the ranks to theirs.
 * Returns the time of the fault in seconds. */
static double await_fault(const struct fault_case *s, const struct fault_report *report,
			  const pid_t pids[], struct fault_files *theirs)
{
	double begin = now_s();
	bool late = false;

	while (report->joined < s->n && !late) {
		usleep(500);
		late = now_s() > begin + 20;
		for (int r = 0; r < s->n; r++)
			late |= report->ended[r] == 3;
	}
	if (late)
		return begin;
	while (!has_faulted(pids[s->victim]) && now_s() < begin + 20)
		usleep(500);
	begin = now_s();
	for (int r = 0; r < s->n; r++)
		add_files_of(theirs, pids[r]);
	return begin;
}

static void check_report(const struct fault_case *s, const struct fault_report *report, int r,
			 double fault_s, double allowed)
{
	cr_expect(
		report->ended[r] == 1 && report->noticed[r] < fault_s + allowed + 0.5,
		"%s rank %d step %d of %d ranks, %s, %s, %zu elements%s: rank %d ended after %d calls, %.2f s after the "
		"fault (%.1f allowed), with %s",
		s->fault, s->victim, s->step, s->n, s->transport, s->algo, s->count,
		s->single_copy ? ", single copy" : "", r, report->calls[r],
		report->ended[r] ? report->noticed[r] - fault_s : -1.0, allowed, report->text[r]);
}

/* Returns false where not all ranks joined within the timeout that also ends the wait for a stopped
 * rank: nothing was tested. */
static bool run_once(const struct fault_case *s)
{
	struct fault_report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double fault_s, allowed = strcmp(s->fault, "stop") ? 2 : STOP_TIMEOUT_MS * 1e-3 + 2;
	struct fault_files ours = { 0 }, theirs = { 0 };
	pid_t pids[MAX_RANKS];
	bool joined;

	add_files_of(&ours, getpid());
	start(s, report, pids);
	fault_s = await_fault(s, report, pids, &theirs);
	joined = report->joined == s->n;
	for (int r = 0; r < s->n && joined; r++) {
		while (r != s->victim && !report->ended[r] && now_s() < fault_s + allowed + 3)
			usleep(500);
		if (r != s->victim)
			check_report(s, report, r, fault_s, allowed);
	}
	for (int r = 0; r < s->n; r++) {
		if (r == s->victim || !report->ended[r])
			kill(pids[r], SIGKILL);
		waitpid(pids[r], NULL, 0);
	}
	nothing_is_left(&ours, &theirs);
	munmap(report, sizeof(*report));
	return joined;
}

static void run_case(const struct fault_case *s)
{
	int tries = 1;

	while (tries < 5 && !run_once(s))
		tries++;
	cr_expect_lt(tries, 5,
		     "%s rank %d of %d ranks, %s: the ranks never joined within the timeout",
		     s->fault, s->victim, s->n, s->transport);
}

static const char *transport_of(unsigned i)
{
	return i % 2 ? ranks_network() : "shm";
}

static const char *const algos[] = { "ring",          "tree",     "recursive-doubling",
				     "reduce-to-one", "two-shot", "hierarchical" };

static bool is_soak(void)
{
	const char *tier = getenv("TT_TIER");

	return tier && !strcmp(tier, "soak");
}

/* Plans of three ranks have few steps: the higher numbers are steps of the second operation. */
Test(faults, a_rank_killed_at_any_step_is_named_by_all_others, .timeout = 300)
{
	for (int t = 0; t < 2; t++)
		for (int a = 0; a < 6; a += is_soak() ? 1 : 2)
			for (int step = 1; step <= 9; step += is_soak() ? 1 : 2)
				run_case(&(struct fault_case){
					.n = 3,
					.victim = (a + step) % 3,
					.step = step,
					.fault = "kill",
					.transport = transport_of((unsigned)t),
					.algo = algos[(a + t) % 6],
					.count = 1000 });
}

Test(faults, a_rank_stopped_at_any_step_is_named_by_all_others, .timeout = 300)
{
	for (int t = 0; t < 2; t++)
		for (int step = 1; step <= 7; step += is_soak() ? 1 : 3)
			run_case(&(struct fault_case){ .n = 4,
						       .victim = (t + step) % 4,
						       .step = step,
						       .fault = "stop",
						       .transport = transport_of((unsigned)t),
						       .algo = algos[step % 6],
						       .count = 1000 });
}

/* Each call has four or five steps: address exchange, agreement, reduction of a part, copies of the
 * other parts. */
Test(faults, a_rank_that_dies_or_stops_while_others_read_its_memory_is_named, .timeout = 300)
{
	for (int step = 1; step <= 8; step++)
		run_case(&(struct fault_case){ .n = 3,
					       .victim = step % 3,
					       .step = step,
					       .fault = step % 4 ? "kill" : "stop",
					       .transport = "shm",
					       .algo = "two-shot",
					       .count = 300000,
					       .single_copy = true });
}

Test(faults, a_rank_that_exits_without_a_goodbye_counts_as_dead, .timeout = 60)
{
	for (int t = 0; t < 2; t++)
		run_case(&(struct fault_case){ .n = 3,
					       .victim = t,
					       .step = 5,
					       .fault = "exit",
					       .transport = transport_of((unsigned)t),
					       .algo = "ring",
					       .count = 10 });
}
