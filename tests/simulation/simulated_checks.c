/*
 * simulated_checks.c - checks of the promises after each call of a rank
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm/shrink_internal.h"
#include "control/control_internal.h"
#include "control/endpoint.h"
#include "run/op.h"
#include "tests/simulation/simulated_job.h"

#define ONE_LEVEL 9                /* ranks: TT_FANOUT children of rank 0 */
#define SENTENCES 3                /* printed for a schedule */
#define SILENT_NS (3 * SIM_SECOND) /* twice the patience of a shrink, and delays */

static const char *const fault_names[SIM_FAULTS] = {
	"no fault", "kills", "stops", "cuts", "lost connections", "no memory", "corrupted bytes",
};

/* ---- failures of the schedule ------------------------------------------------------------------ */

void sim_fail(const char *format, ...)
{
	va_list args;

	if (sim->job && sim->job->failed++ >= SENTENCES)
		return;
	if (sim->job)
		fprintf(stderr, "seed %llu (%d processes, %s), %.6f s",
			(unsigned long long)sim->job->seed, sim->job->n,
			fault_names[sim->job->faults], 1e-9 * (double)sim->now_ns);
	if (sim->process)
		fprintf(stderr, ", process %d", sim->process->number);
	fprintf(stderr, ": ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
}

/* ---- verdicts ---------------------------------------------------------------------------------- */

bool sim_any_harmed(void)
{
	if (sim->job->misused)
		return true;
	for (int i = 0; i < sim->job->n; i++)
		if (sim->job->rank[i].harmed || sim->job->rank[i].disturbs)
			return true;
	return false;
}

bool sim_lacks_holders(void)
{
	const struct sim_job *job = sim->job;

	for (int i = 0; i < job->n; i++)
		if (tt_is_holder(tt_large.holders, i) && !job->rank[i].harmed &&
		    !job->rank[i].leaves && !job->rank[i].process.ended)
			return false;
	return job->large;
}

bool sim_any_disturbs(void)
{
	for (int i = 0; i < sim->job->n; i++)
		if (sim->job->rank[i].disturbs)
			return true;
	return false;
}

static void check_states(const struct sim_comm *w)
{
	/* a rank without memory may have closed a connection itself */
	for (int r = 0; w->known && !sim->job->rank[sim->process->number].harmed && r < w->n; r++) {
		const struct sim_rank *other = &sim->job->rank[w->member[r]];
		tuttiRankState_t state;

		if (tuttiCommRankState(w->comm, r, &state))
			sim_fail("the state of rank %d cannot be asked for", r);
		else if (state == tuttiRankDead && !other->harmed && !other->disturbs &&
			 !other->left_ns)
			sim_fail("rank %d (process %d) is reported dead and is not", r,
				 w->member[r]);
		else if (state == tuttiRankLeft && other->joined && !other->left_ns)
			sim_fail("rank %d (process %d) is reported left and is not", r,
				 w->member[r]);
	}
}

/* A rank that was killed or has left is known as that to all, also to those that have no connection to
 * it, if rank 0 lives, has not left and connects all. */
void sim_check_departed(const struct sim_comm *w)
{
	const struct sim_job *job = sim->job;

	if (!w->known || w->n > ONE_LEVEL || job->rank[w->member[0]].process.dead ||
	    sim->now_ns - job->last_kill_ns < SIM_NOTICE_NS)
		return;
	if (sim_any_disturbs())
		return;
	for (int r = 0; r < w->n; r++) {
		const struct sim_rank *other = &job->rank[w->member[r]];
		tuttiRankState_t state, want = other->process.dead ? tuttiRankDead : tuttiRankLeft;
		bool killed_leaving = other->process.dead && r == w->departed;

		if ((!other->process.dead && r != w->departed) ||
		    (r && job->rank[w->member[0]].left_ns))
			continue;
		if (tuttiCommRankState(w->comm, r, &state) ||
		    (state != want && !(killed_leaving && state == tuttiRankLeft)))
			sim_fail("rank %d (process %d) is not reported %s", r, w->member[r],
				 other->process.dead ? "dead" : "left");
	}
}

/* The time since the latest kill, or since the call began. Another error, or another rank that is not
 * in this call yet, may be what ended it: then nothing follows. */
static bool is_late_notice(uint64_t began_ns)
{
	const struct sim_job *job = sim->job;
	uint64_t since = job->last_kill_ns > began_ns ? job->last_kill_ns : began_ns;

	/* without holders, a rank that was never connected cannot be found, dead or alive */
	if (job->faults != SIM_KILLS || job->misused || sim_any_disturbs() || sim_lacks_holders())
		return false;
	return sim->now_ns - since > SIM_NOTICE_NS;
}

/* Does the fault keep a living rank from answering, or may it? Of anything else the ranks learn at
 * once. */
static bool is_silencing(enum sim_faults faults)
{
	return faults == SIM_STOPS || faults == SIM_CUTS || faults == SIM_CORRUPTION;
}

/* The receiver of a large message goes away when the communicator breaks: its sender waits. */
static bool is_abandoned(const struct sim_comm *w, const char *what)
{
	tuttiResult_t broken;

	return !strcmp(what, "large message") && !tuttiCommGetAsyncError(w->comm, &broken) &&
	       broken;
}

/* A rank waits in vain where no fault silences another one. A rank without memory may drop a
 * message, and leave others waiting that connect to it in a shrink; two ranks that have lost their
 * connection take each other for dead, and divide the others. Ranks that did not call a shrink keep
 * the others for half of the time-out. A rank of whose departure, or abort, or death no chain of neighbors tells this
 * one is noticed by the end of the data connection, and then for 2 s the cause is awaited. Slow servers take their time
 * for the handshakes of all ranks: a flight, and the checks of two signatures. */
static bool is_vain_wait(const struct sim_comm *w, const char *what, tuttiResult_t rc,
			 uint64_t since_ns)
{
	const struct sim_job *job = sim->job;
	bool shrinks = !strcmp(what, "shrink");
	uint64_t unheard_ns, waited_ns = sim->now_ns - since_ns;
	uint64_t most_ns = SIM_NOTICE_NS + SIM_SECOND;

	/* a repeated message has a limit of its own, since its receiver may send, too */
	if (!w || is_silencing(job->faults) || is_abandoned(w, what) ||
	    !strcmp(what, "repeated message") || sim_lacks_holders() ||
	    (job->faults == SIM_MEMORY && job->messaged) ||
	    (shrinks && (job->faults == SIM_MEMORY || job->faults == SIM_LOSSES)))
		return false;
	most_ns += (uint64_t)w->n * sim_handshake_ns() * 3 / 2;
	if (rc != tuttiTimeout && waited_ns <= most_ns)
		return false;
	if (shrinks)
		return rc == tuttiTimeout || waited_ns > SIM_TIMEOUT_NS - SIM_SECOND;
	unheard_ns = w->known ? sim_unheard_ns(w) : 0;
	if (rc == tuttiTimeout)
		return !unheard_ns;
	if (unheard_ns > since_ns)
		waited_ns = sim->now_ns - unheard_ns;
	return waited_ns > most_ns;
}

/* Behind a stop or a cut data still arrive that are under way, on connections that are under way too: the deadlines of
 * those that wait begin anew. */
SIM_REPLACE(int, tt_wait_idle, struct tt_wait *w, struct tt_op *set)
{
	int rc = __real_tt_wait_idle(w, set);
	struct sim_job *job = sim->job;

	if (job && w->started_ns > job->last_data_ns &&
	    w->started_ns < job->last_fault_ns + SIM_NOTICE_NS)
		job->last_data_ns = w->started_ns;
	return rc;
}

/* The deadline limits the time in which nothing moves: it begins anew with a process that
 * continues, and with a member of w whose call succeeds, since other members may wait for its next
 * one. */
static uint64_t moved_ns(const struct sim_comm *w, uint64_t began_ns)
{
	uint64_t last = began_ns;

	if (sim->job->last_continue_ns > last)
		last = sim->job->last_continue_ns;
	for (int i = 0; w && i < sim->job->n; i++)
		if (sim->job->rank[i].succeeded_in == w->key &&
		    sim->job->rank[i].succeeded_ns > last)
			last = sim->job->rank[i].succeeded_ns;
	return last;
}

/* Are all dead and gone ranks others than the members of w? */
static bool is_of_others(const struct sim_comm *w)
{
	const struct sim_job *job = sim->job;

	for (int r = 0; w->known && r < w->n; r++) {
		const struct sim_rank *member = &job->rank[w->member[r]];

		if (member->harmed || member->disturbs || member->left_ns)
			return false;
	}
	return w->known && job->faults == SIM_KILLS && !job->misused;
}

/* A call has returned rc. */
void sim_check_call(const struct sim_comm *w, const char *what, tuttiResult_t rc, uint64_t began_ns,
		    uint64_t limit_ns)
{
	struct sim_rank *me = &sim->job->rank[sim->process->number];
	const char *text = tuttiGetLastError(w ? w->comm : NULL);
	uint64_t since_ns = moved_ns(w, began_ns), waited_ns = sim->now_ns - since_ns;

	if (!strcmp(what, "shrink")) /* why it failed, not why the old communicator is broken */
		text = tuttiGetLastError(NULL);
	sim_trace("process %d: %s: %s%s%s", sim->process->number, what, tuttiGetErrorString(rc),
		  rc ? ": " : "", rc ? text : "");
	if (waited_ns > limit_ns && sim->now_ns - sim->job->last_data_ns > limit_ns && !me->delayed)
		sim_fail("%s took %.3f s: %s", what, 1e-9 * (double)(sim->now_ns - began_ns), text);
	if (is_vain_wait(w, what, rc, since_ns))
		sim_fail("%s waited %.3f s for nobody who is silent: %s: %s", what,
			 1e-9 * (double)waited_ns, tuttiGetErrorString(rc), text);
	if (!rc && w) {
		me->succeeded_ns = sim->now_ns;
		me->succeeded_in = w->key;
	}
	if (!rc)
		return;
	if (!text[0])
		sim_fail("%s: error %d without a sentence", what, rc);
	if (w)
		sim_note_failure(w);
	sim_check_text(w, what, text);
	if ((!sim_any_harmed() || (w && is_of_others(w))) && !sim_lacks_holders())
		sim_fail("%s failed without a fault: %s", what, text);
	if (rc == tuttiInternalError && sim->job->faults != SIM_CORRUPTION)
		sim_fail("%s: an error of the library: %s", what, text);
	if (w && is_late_notice(began_ns))
		sim_fail("%s noticed a death late, after %.3f s: %s", what,
			 1e-9 * (double)(sim->now_ns - sim->job->last_kill_ns), text);
	if (w)
		check_states(w);
}

/* ---- late ranks of a failed join --------------------------------------------------------------- */

/* Rank 0 asks how many ranks have not come, whenever something has come. */
SIM_REPLACE(int, tt_bootstrap_unseen, const struct tt_control *ctl)
{
	struct sim_job *job = sim->job;
	int absent = __real_tt_bootstrap_unseen(ctl);

	if (!job)
		return absent;
	if (!job->awaits_ns || absent < job->absent)
		job->latest_ns = sim->now_ns;
	if (!job->awaits_ns)
		job->awaits_ns = sim->now_ns;
	job->absent = absent;
	return absent;
}

bool sim_is_awaited(void)
{
	const struct sim_job *job = sim->job;

	return job->awaits_ns && !job->awaited && !job->rank[0].harmed &&
	       sim->now_ns + SIM_SECOND / 2 < job->latest_ns + SIM_LINGER_NS;
}

/* Rank 0 has awaited those that had not come, until 2 s after the latest one, and no longer. */
static void check_awaited(tuttiResult_t rc)
{
	struct sim_job *job = sim->job;
	uint64_t since_ns = sim->now_ns - job->latest_ns;
	int to_come = 0, refused = 0;

	for (int i = 1; i < job->n; i++) {
		to_come += !job->rank[i].came && !job->rank[i].process.dead;
		refused += job->rank[i].refused;
	}
	job->awaited = true;
	if (!job->awaits_ns) {
		if (to_come && rc != tuttiTimeout)
			sim_fail("rank 0 awaits none of %d late ranks", to_come);
		return;
	}
	if (job->absent > job->n - 1 - refused)
		sim_fail("rank 0 awaits %d ranks, and has refused %d of %d", job->absent, refused,
			 job->n - 1);
	if (job->absent && since_ns < SIM_LINGER_NS)
		sim_fail("rank 0 awaits %d late ranks for %.3f s only", job->absent,
			 1e-9 * (double)since_ns);
	if (since_ns > (job->absent ? SIM_LINGER_NS : 0) + SIM_SECOND)
		sim_fail("rank 0 awaits %d late ranks for %.3f s", job->absent,
			 1e-9 * (double)since_ns);
}

void sim_check_failed_join(tuttiResult_t rc, uint64_t began_ns, bool awaited)
{
	struct sim_rank *me = &sim->job->rank[sim->process->number];

	me->refused = !me->harmed;
	if (me->harmed || sim->job->rank[0].harmed)
		return;
	if (me->process.number == 0)
		check_awaited(rc);
	else if (awaited &&
		 (rc == tuttiTimeout ||
		  sim->now_ns - began_ns > SIM_NOTICE_NS + sim->job->n * sim_handshake_ns()))
		sim_fail("a late rank does not learn within %.3f s that the join has failed: %s",
			 1e-9 * (double)(sim->now_ns - began_ns), tuttiGetLastError(NULL));
}

/* ---- shrinks ----------------------------------------------------------------------------------- */

/* Have all members of w that were never stopped begun this shrink at about this time? Returns their number, 0: no,
 * or one that was stopped may have gone on alone before, under TUTTI_SHRINK=any */
static int count_together(const struct sim_comm *w)
{
	const struct sim_rank *me = &sim->job->rank[sim->process->number];
	int n = 0;

	for (int r = 0; r < w->n; r++) {
		const struct sim_rank *other = &sim->job->rank[w->member[r]];
		uint64_t apart = other->shrink_ns > me->shrink_ns
					 ? other->shrink_ns - me->shrink_ns
					 : me->shrink_ns - other->shrink_ns;

		if (other->harmed && sim->minorities && other->shrunk_ns)
			return 0;
		if (other->harmed)
			continue;
		if (other->shrinks != me->shrinks || apart > SIM_TIMEOUT_NS / 2 - SIM_SECOND / 2)
			return 0;
		n++;
	}
	return n;
}

/* The coordinator of a shrink takes ranks that have answered just now. */
SIM_REPLACE(int, tt_control_form, struct tt_control *parent, const struct tt_members *members,
	    uint64_t deadline_ns, struct tt_control **ret_ctl)
{
	const struct sim_rank *me = sim->job ? &sim->job->rank[sim->process->number] : NULL;

	for (int i = 0; me && i < members->map.n && members->rank == 0 && me->shrinking->known;
	     i++) {
		int rank = tt_rank_map_peer(&members->map, i);
		const struct sim_rank *other = &sim->job->rank[me->shrinking->member[rank]];

		if (other->process.stopped && !me->harmed &&
		    sim->now_ns - other->stopped_ns > SILENT_NS)
			sim_fail("a shrink takes rank %d, which has been stopped for %.3f s", rank,
				 1e-9 * (double)(sim->now_ns - other->stopped_ns));
	}
	return __real_tt_control_form(parent, members, deadline_ns, ret_ctl);
}

static bool is_one_stopped(const struct sim_comm *w)
{
	for (int r = 0; r < w->n; r++)
		if (sim->job->rank[w->member[r]].process.stopped)
			return true;
	return false;
}

/* A rank that was stopped, and others went on without it: it learns of that when it continues, unless they
 * have ended and a stopped rank keeps their floods, or they ended before, perhaps with the flood behind
 * messages for which it had no room. */
static void check_excluded(const struct sim_comm *w, tuttiResult_t rc)
{
	const struct sim_job *job = sim->job;
	const struct sim_rank *me = &job->rank[sim->process->number];

	for (int r = 0; rc && w->known && job->faults == SIM_STOPS && r < w->n; r++) {
		const struct sim_rank *other = &job->rank[w->member[r]];
		uint64_t since = other->shrunk_ns > job->last_continue_ns ? other->shrunk_ns
									  : job->last_continue_ns;
		bool gone = other->process.ended &&
			    (is_one_stopped(w) || other->process.ended_ns < job->last_continue_ns);

		if (other->shrinks != me->shrinks || !other->shrunk_to || gone ||
		    sim->now_ns < since + SIM_SECOND)
			continue;
		if (!strstr(tuttiGetLastError(NULL), "went on"))
			sim_fail("a rank does not know that others went on without it: %s",
				 tuttiGetLastError(NULL));
		return;
	}
}

/* A rank that knows that the others went on without it says so at once. */
SIM_REPLACE(int, tt_shrink_check, struct tt_shrink *a)
{
	bool excluded = a->parent->ctl->split.excluded_epoch > 0;
	int rc = __real_tt_shrink_check(a);

	if (sim->job && excluded && !rc)
		sim_fail("a rank goes on in a shrink of others that excluded it");
	return rc;
}

void sim_check_shrink(const struct sim_comm *w, tuttiResult_t rc, int n)
{
	struct sim_rank *me = &sim->job->rank[sim->process->number];
	int together;

	if (!rc && 2 * n <= w->n && !sim->minorities)
		sim_fail("a shrink of %d ranks left %d, no majority", w->n, n);
	check_excluded(w, rc);
	me->shrunk_ns = sim->now_ns;
	if ((sim->job->faults != SIM_STOPS && sim->job->faults != SIM_KILLS) || sim->job->misused ||
	    me->harmed || !w->known)
		return;
	me->shrunk_to = n;
	together = count_together(w);
	if (rc && 2 * together > w->n && !sim_lacks_holders())
		sim_fail("a shrink of %d ranks, of which %d answer, failed: %s", w->n, together,
			 tuttiGetLastError(NULL));
	for (int r = 0; r < w->n && together && !rc && !sim_lacks_holders(); r++) {
		const struct sim_rank *other = &sim->job->rank[w->member[r]];

		if (!other->harmed && other->shrunk_to && other->shrunk_to != n)
			sim_fail("a shrink gave this rank %d ranks, and rank %d %d", n, r,
				 other->shrunk_to);
	}
}
