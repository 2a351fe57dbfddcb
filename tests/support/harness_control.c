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

struct control_rank { struct control_job *m; int rank; };
static pthread_t threads[CONTROL_JOB_MOST];

void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static void run_rank(struct control_job *m, int rank)
{
	struct control_report *report = &m->report[rank];
	struct tt_join join = { .id = &m->id, .rank = rank, .nranks = m->n,
				.settings = "algo=auto transport=auto",
				.timeout_ms = JOIN_TIMEOUT_MS, .ifname = "",
				.host_id = "", .port_range = "" };
	struct tt_control *ctl;
	uint64_t begin;

	atomic_store(&report->pid, getpid());
	if (m->timeout_ms && !(m->only_rank_0 && rank))
		join.timeout_ms = m->timeout_ms;
	if (m->before)
		m->before(m, rank, &join);
	begin = tt_now_ns();
	report->joined = tt_control_join(&join, &ctl);
	report->took_ms = (tt_now_ns() - begin) / 1000000;
	if (report->joined) {
		snprintf(report->text, sizeof(report->text), "%s", tt_error_text());
		return;
	}
	if (m->body)
		report->rc = m->body(m, rank, ctl);
	tt_control_leave(ctl);
}

static void *thread_main(void *arg)
{
	struct control_rank *r = arg;

	run_rank(r->m, r->rank);
	free(r);
	return NULL;
}

static void start_thread(struct control_job *m, int rank)
{
	struct control_rank *r = malloc(sizeof(*r));

	*r = (struct control_rank){ m, rank };
	if (pthread_create(&threads[rank], NULL, thread_main, r))
		abort();
}

static void start_process(struct control_job *m, int rank)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_rank(m, rank);
		_exit(0);
	}
	atomic_store(&m->report[rank].pid, pid);
}

void control_job_start(struct control_job *m)
{
	m->report = mmap(NULL, (size_t)m->n * sizeof(*m->report), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m->report == MAP_FAILED || m->n > CONTROL_JOB_MOST)
		abort();
	if (!m->has_id && tt_id_make("", "", &m->id))
		abort();
	for (int r = 0; r < m->n; r++) {
		if (m->absent && m->absent(r))
			continue;
		if (m->threads)
			start_thread(m, r);
		else
			start_process(m, r);
	}
}

void control_job_wait(struct control_job *m)
{
	for (int r = 0; r < m->n; r++) {
		int status;

		if (m->absent && m->absent(r))
			continue;
		if (m->threads)
			pthread_join(threads[r], NULL);
		else if (waitpid(m->report[r].pid, &status, 0) < 0 || status)
			m->report[r].rc = -1;
	}
}

void control_job_run(struct control_job *m)
{
	control_job_start(m);
	control_job_wait(m);
}

bool control_job_reached(struct control_job *m, int rank, int progress, int limit_ms)
{
	for (int ms = 0; ms < limit_ms; ms++) {
		if (atomic_load(&m->report[rank].progress) >= progress)
			return true;
		sleep_ms(1);
	}
	return false;
}

bool control_job_all_reached(struct control_job *m, int progress, int limit_ms)
{
	for (int r = 0; r < m->n; r++)
		if (!(m->absent && m->absent(r)) && !control_job_reached(m, r, progress, limit_ms))
			return false;
	return true;
}

void control_job_stop(const struct control_job *m, int rank)
{
	pid_t pid = m->report[rank].pid;
	siginfo_t how;

	/* a thread may run until another thread of the process has handled the signal */
	if (kill(pid, SIGSTOP) || waitid(P_PID, (id_t)pid, &how, WSTOPPED | WEXITED | WNOWAIT))
		perror("stop a rank");
}

int control_job_await_broken(struct control_job *m, int rank, struct tt_control *ctl, int limit_ms,
		      int *ret_culprit)
{
	for (int ms = 0; ms < limit_ms && !tt_control_broken(ctl); ms++)
		sleep_ms(1);
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s",
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
