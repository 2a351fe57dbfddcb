/*
 * harness_control.c - see harness_control.h
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/harness_control.h"
#include "plan/plan.h"

struct control_rank { struct control_job *job; int rank; };
static pthread_t threads[CONTROL_JOB_MOST];

void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static void run_rank(struct control_job *job, int rank)
{
	struct control_report *report = &job->report[rank];
	struct tt_join join = { .id = &job->id, .rank = rank, .nranks = job->n,
				.settings = "algo=auto transport=auto",
				.timeout_ms = JOIN_TIMEOUT_MS, .ifname = "",
				.host_id = "", .port_range = "" };
	struct tt_control *ctl;
	uint64_t begin;

	atomic_store(&report->pid, getpid());
	if (job->timeout_ms && !(job->only_rank_0 && rank))
		join.timeout_ms = job->timeout_ms;
	if (job->before)
		job->before(job, rank, &join);
	begin = tt_now_ns();
	report->joined = tt_control_join(&join, &ctl);
	report->took_ms = (tt_now_ns() - begin) / 1000000;
	if (report->joined) {
		snprintf(report->text, sizeof(report->text), "%s", tt_error_text());
		return;
	}
	if (job->body)
		report->rc = job->body(job, rank, ctl);
	tt_control_leave(ctl);
}

static void *thread_main(void *arg)
{
	struct control_rank *r = arg;

	run_rank(r->job, r->rank);
	free(r);
	return NULL;
}

static void start_thread(struct control_job *job, int rank)
{
	struct control_rank *r = malloc(sizeof(*r));

	*r = (struct control_rank){ job, rank };
	if (pthread_create(&threads[rank], NULL, thread_main, r))
		abort();
}

static void start_process(struct control_job *job, int rank)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_rank(job, rank);
		_exit(0);
	}
	atomic_store(&job->report[rank].pid, pid);
}

void control_job_start(struct control_job *job)
{
	job->report = mmap(NULL, (size_t)job->n * sizeof(*job->report), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (job->report == MAP_FAILED || job->n > CONTROL_JOB_MOST)
		abort();
	if (!job->has_id && tt_id_make("", "", &job->id))
		abort();
	for (int r = 0; r < job->n; r++) {
		if (job->absent && job->absent(r))
			continue;
		if (job->threads)
			start_thread(job, r);
		else
			start_process(job, r);
	}
}

void control_job_wait(struct control_job *job)
{
	for (int r = 0; r < job->n; r++) {
		int status;

		if (job->absent && job->absent(r))
			continue;
		if (job->threads)
			pthread_join(threads[r], NULL);
		else if (waitpid(job->report[r].pid, &status, 0) < 0 || status)
			job->report[r].rc = -1;
	}
}

void control_job_run(struct control_job *job)
{
	control_job_start(job);
	control_job_wait(job);
}

bool control_job_reached(struct control_job *job, int rank, int progress, int limit_ms)
{
	for (int ms = 0; ms < limit_ms; ms++) {
		if (atomic_load(&job->report[rank].progress) >= progress)
			return true;
		sleep_ms(1);
	}
	return false;
}

bool control_job_all_reached(struct control_job *job, int progress, int limit_ms)
{
	for (int r = 0; r < job->n; r++)
		if (!(job->absent && job->absent(r)) && !control_job_reached(job, r, progress, limit_ms))
			return false;
	return true;
}

void control_job_stop(const struct control_job *job, int rank)
{
	pid_t pid = job->report[rank].pid;
	siginfo_t how;

	/* a thread may run until another thread of the process has handled the signal */
	if (kill(pid, SIGSTOP) || waitid(P_PID, (id_t)pid, &how, WSTOPPED | WEXITED | WNOWAIT))
		perror("stop a rank");
}

int control_job_await_broken(struct control_job *job, int rank, struct tt_control *ctl, int limit_ms,
		      int *ret_culprit)
{
	for (int ms = 0; ms < limit_ms && !tt_control_broken(ctl); ms++)
		sleep_ms(1);
	snprintf(job->report[rank].text, sizeof(job->report[rank].text), "%s",
		 tt_control_text(ctl, ret_culprit));
	return tt_control_broken(ctl);
}

const struct tt_call a_sum = {
	.collective = TT_ALLREDUCE, .type = tuttiFloat32, .op = tuttiSum, .root = -1, .count = 1024
};

void note_sum(struct tt_control *ctl, uint64_t seq, bool finish)
{
	tt_control_note(ctl, seq, &a_sum);
	if (finish)
		tt_control_done(ctl, seq);
}
