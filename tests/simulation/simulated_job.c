/*
 * simulated_job.c - a schedule: the ranks, from join to leave
 */
#include <stdio.h>

#include "control/endpoint.h"
#include "tests/simulation/simulated_job.h"

#define MOST_EPOCHS 4
#define END_NS (900 * SIM_SECOND)
/* What a process without a communicator keeps for its next one: tables of whole TABLE_BYTES, and some bytes */
#define TABLE_BYTES 512
#define SMALL_BYTES 64
#define KEPT_BYTES 16384

static void leave(struct sim_comm *w)
{
	uint64_t began = sim->now_ns;
	struct sim_rank *me = &sim->job->rank[sim->process->number];
	uint32_t how = sim_random(3);
	tuttiResult_t rc;

	sim_reach(SIM_LEAVE);
	me->leaves = true;
	sim_depart(w);
	if (!me->left_ns)
		me->left_ns = sim->now_ns;
	if (how == 0 && !tuttiCommFinalize(w->comm))
		sim_trace("process %d has finalized", sim->process->number);
	me->disturbs |= how == 1;
	me->aborted = how == 1;
	me->aborted_in = w->key;
	rc = how == 1 ? tuttiCommAbort(w->comm) : tuttiCommDestroy(w->comm);
	sim_check_call(NULL, how == 1 ? "abort" : "destroy", rc, began,
		       how == 1 ? SIM_ABORT_NS + (uint64_t)w->n * sim_handshake_ns()
				: SIM_TIMEOUT_NS + SIM_SLACK_NS);
}

static tuttiResult_t shrink(struct sim_comm *w)
{
	struct sim_comm next = { .departed = -1,
				 .shrinks = w->shrinks + 1,
				 .key = ((uint64_t)w->shrinks + 1) << 32,
				 .origin = ((uint64_t)w->shrinks + 1) << 32 };
	uint64_t began = sim->now_ns;
	struct sim_rank *me = &sim->job->rank[sim->process->number];
	bool aborts = sim_random(2) || w->half_failed;
	tuttiResult_t rc;

	me->disturbs |= aborts;
	me->shrink_ns = began;
	me->shrinks = next.shrinks;
	me->shrinking = w;
	me->shrunk_to = 0;
	sim_reach(SIM_SHRINK);
	sim_plan_faults_of_shrink();
	rc = tuttiCommShrink(w->comm, NULL, 0, &next.comm, NULL,
			     aborts ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT);
	sim_check_call(w, "shrink", rc, began, 3 * SIM_TIMEOUT_NS + SIM_SLACK_NS);
	if (!rc)
		tuttiCommCount(next.comm, &next.n);
	sim_check_shrink(w, rc, next.n);
	if (rc)
		return rc;
	rc = sim_introduce(&next);
	me->left_ns = began = sim->now_ns;
	sim_depart(w);
	sim_check_call(NULL, "destroy the old communicator", tuttiCommDestroy(w->comm), began,
		       SIM_TIMEOUT_NS + SIM_SLACK_NS);
	*w = next;
	return rc;
}

static tuttiResult_t join(struct sim_rank *me, struct sim_comm *w)
{
	uint64_t began;
	tuttiResult_t rc;
	bool awaited;

	sim_sleep(me, sim->now_ns + me->late_ns + sim_random_scale(1000, 40 * SIM_MS));
	if (me->process.number == 0) {
		rc = tuttiGetUniqueId(&sim->job->id);
		if (rc)
			return rc;
		sim->job->has_id = true;
		sim_wake(&sim->job->has_id);
	}
	while (!sim->job->has_id && !sim_sleep(&sim->job->has_id, sim->now_ns + SIM_TIMEOUT_NS))
		return tuttiTimeout; /* process 0 has died */
	began = sim->now_ns;
	awaited = sim_is_awaited();
	me->came = true;
	rc = tuttiCommInitRank(&w->comm, sim->job->n, sim->job->id, me->process.number);
	/* before the end of the join rank 0 only waits for ranks that did not come, and awaits late ones after it */
	sim_check_call(NULL, "join", rc == tuttiTimeout && sim_any_harmed() ? 0 : rc, began,
		       SIM_TIMEOUT_NS + SIM_LINGER_NS + SIM_SLACK_NS);
	if (rc)
		sim_check_failed_join(rc, began, awaited);
	else
		sim_shorten_queue(w);
	return rc;
}

static void rank_main(void *arg)
{
	struct sim_rank *me = arg;
	struct sim_comm w = { .departed = -1, .n = sim->job->n };
	tuttiResult_t rc;
	int epoch = 0;

	if (sim->job->large)
		tt_large = (struct tt_large){ .above = 1, .holders = { .first = 1, .every = 2 } };
	rc = join(me, &w);
	if (rc || !w.comm) {
		me->disturbs = true;
		return;
	}
	me->joined = true;
	for (int r = 0; r < w.n; r++)
		sim_add_member(&w, r, r);
	w.rank = me->process.number;
	w.known = true;
	for (; epoch < MOST_EPOCHS; epoch++) {
		rc = rc ? rc : sim_run_operations(&w);
		if (!w.comm)
			break;
		if (!rc && sim_common(w.key, 0, 2, 3) && (epoch || sim->job->moment != SIM_SHRINK))
			break; /* else shrink without a failure */
		if (sim->job->faults == SIM_KILLS && sim_common(w.key, 0, 3, 4) == 0) {
			sim_sleep(me, sim->now_ns + SIM_NOTICE_NS);
			sim_check_departed(&w);
		}
		rc = shrink(&w);
		if (rc && !w.comm)
			break;
		if (rc && rc != tuttiRemoteError)
			break;
	}
	me->disturbs |= rc != tuttiSuccess;
	if (w.comm)
		leave(&w);
	if (me->process.ndescriptors || me->process.nthreads != 1)
		sim_fail("%d descriptors and %d threads are left", me->process.ndescriptors,
			 me->process.nthreads - 1);
	if (me->process.held % TABLE_BYTES > SMALL_BYTES || me->process.held > KEPT_BYTES)
		sim_fail("%lld bytes of memory are left", (long long)me->process.held);
}

/* ---- a schedule -------------------------------------------------------------------------------- */

int sim_job(const struct sim_plan *plan)
{
	static const char *const algorithms[] = {
		"auto",
		"ring",
		"tree",
		"recursive-doubling",
		"halving-doubling",
		"reduce-to-one",
		"one-shot",
		"hierarchical",
		"two-shot",
	};
	struct sim_job *job;

	sim_begin(plan->seed, plan->trace, SIM_PROCESSES);
	job = sim->job = sim_alloc(sizeof(*job));
	sim->encrypts = sim_random(4) == 0;
	sim->yields = sim_random(8) == 0;
	sim->algorithm = algorithms[sim_random(sizeof(algorithms) / sizeof(algorithms[0]))];
	job->seed = plan->seed;
	job->large = plan->holders || plan->seed % 8 == 5; /* without a draw */
	job->slow = plan->slow || plan->seed % 16 == 11;
	job->later = plan->seed % 8 == 1 || plan->seed % 8 == 2;
	sim->minorities = plan->seed % 16 == 9;
	/* mostly a tree of one level */
	job->n = sim_random(24) ? 2 + (int)sim_random(7) : 9 + (int)sim_random(SIM_RANKS - 8);
	if (job->slow && sim_common(0, 0, 14, 2) == 0)
		job->n = 9 + (int)sim_common(0, 0, 15, SIM_RANKS - 8);
	job->faults = (enum sim_faults)sim_random(SIM_FAULTS);
	for (int i = 0; i < job->n; i++) {
		job->rank[i].process.number = job->rank[i].process.host = i;
		sim_process_begin(&job->rank[i].process, rank_main, &job->rank[i]);
	}
	sim_plan_faults();
	if (sim_random(3) == 0) {
		job->monitor.number = job->monitor.host = job->n;
		sim_process_begin(&job->monitor, sim_monitor_main, NULL);
	}
	sim_memory_begin();
	if (!sim_run(END_NS)) {
		for (int i = 0; i < job->n; i++)
			if (job->rank[i].process.stopped)
				sim_kill(&job->rank[i].process);
		if (!sim_run(2 * END_NS)) {
			sim_fail("threads wait or work for ever:");
			sim_threads_print();
		}
	}
	sim_end();
	return job->failed > 0;
}
