/*
 * simulated_monitor.c - a process outside the job that asks rank 0 for reports, as `tutti top` does
 *
 * Called by simulated_job.c in some schedules. The checks of the ranks hold in these schedules too: a
 * monitor fails no call and delays none.
 */
#include <string.h>

#include "control/monitor.h"
#include "tests/simulation/simulated_job.h"

#define QUESTIONS 40
#define ANSWER_MOST_NS (6 * SIM_SECOND)

static void check_comm(const struct tt_comm_report *c)
{
	for (int r = 0; r < c->nranks; r++)
		if (c->nranks == sim->job->n && c->ranks[r].state == TT_RANK_DEAD &&
		    !sim->job->rank[r].harmed && !sim_any_harmed())
			sim_fail("a report says that rank %d is dead", r);
}

/* false: the job has ended */
static bool ask(void)
{
	uint64_t began = sim->now_ns;
	struct tt_job_report report;
	int rc = tt_monitor_ask(&sim->job->id, &report);

	sim_trace("the monitor gets %d: %s", rc, rc ? tt_error_text() : "a report");
	if (sim->now_ns - began > ANSWER_MOST_NS)
		sim_fail("a monitor waits for %.3f s", 1e-9 * (double)(sim->now_ns - began));
	if (rc == TT_TIMEOUT && !sim_any_harmed())
		sim_fail("rank 0 does not answer a monitor: %s", tt_error_text());
	if (rc)
		return rc == TT_REMOTE && !strstr(tt_error_text(), "refused");
	for (int i = 0; i < report.ncomms; i++)
		check_comm(&report.comms[i]);
	tt_job_report_free(&report);
	return true;
}

void sim_monitor_main(void *unused)
{
	(void)unused;
	while (!sim->job->has_id && !sim_sleep(&sim->job->has_id, sim->now_ns + SIM_TIMEOUT_NS))
		return;
	for (int i = 0; i < QUESTIONS; i++) {
		sim_sleep(&sim->job->monitor, sim->now_ns + sim_random_scale(SIM_MS, SIM_SECOND));
		if (!ask())
			break;
	}
	if (sim->job->monitor.ndescriptors || sim->job->monitor.nthreads != 1)
		sim_fail("a monitor leaves %d descriptors and %d threads",
			 sim->job->monitor.ndescriptors, sim->job->monitor.nthreads - 1);
}
