/*
 * simulated_silence.c - ranks that no status or flood comes from: what errors may say of them, how long calls may wait
 *
 * Called by simulated_checks.c after each failed call. Statuses and floods go from neighbor to neighbor, in tree
 * and ring. So a text may say "rank 3 is not answering" if
 *
 *   - rank 3 is silent itself:
 *       kills       it is dead, for 2 s: by then its death is known
 *       stops       it is stopped, or was: a break is reported by later calls, too
 *       no memory   it has none for a status
 *   - or every chain of neighbors from the rank that says so to rank 3 has a rank that is silent or gone (it has left,
 *     died, or lost a connection: its two ends take each other for dead), or goes over a cut.
 *
 * "(stopped?)" needs a silent rank or a cut: where all chains end at ranks that are gone, the text has to say that
 * these have left or died. Of corrupted bytes anything may come.
 *
 * A rank learns of no departure, abort or death behind ranks that are gone: its call ends with the data connection,
 * and it awaits the cause for 2 s. So may the next rank that waits for this one.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "control/control_internal.h"
#include "tests/simulation/simulated_job.h"

#define EARLIER_NS \
	(3 * SIM_SECOND) /* from the making of a text to the first call that returns it, at most */

/* The members of a communicator, as far as they can carry statuses when the text was made, or now */
struct carriers {
	const struct sim_comm *w;
	bool silent[SIM_RANKS];
	bool gone[SIM_RANKS];     /* now */
	bool was_gone[SIM_RANKS]; /* when the text was made, at least these */
};

/* ---- the state of the ranks ------------------------------------------------------------------- */

void sim_depart(const struct sim_comm *w)
{
	struct sim_job *job = sim->job;

	if (job->ndepartures < SIM_DEPARTURES)
		job->departures[job->ndepartures++] = (struct sim_departure){ w->origin,
									      sim->process->number,
									      sim->now_ns };
}

void sim_note_failure(const struct sim_comm *w)
{
	struct sim_job *job = sim->job;

	for (int i = 0; i < job->nfailures; i++)
		if (job->failures[i].key == w->key)
			return;
	if (job->nfailures < SIM_DEPARTURES)
		job->failures[job->nfailures++] = (struct sim_failure){ w->key, sim->now_ns };
}

/* Gone from w, since before_ns */
static bool is_gone(const struct sim_comm *w, int process, uint64_t before_ns)
{
	const struct sim_job *job = sim->job;
	const struct sim_rank *rank = &job->rank[process];

	for (int i = 0; i < job->ndepartures; i++)
		if (job->departures[i].origin == w->origin &&
		    job->departures[i].process == process && job->departures[i].ns < before_ns)
			return true;
	return (rank->process.dead && rank->killed_ns < before_ns) ||
	       (job->faults == SIM_LOSSES && rank->harmed);
}

static bool is_silent(int process, uint64_t made_ns)
{
	const struct sim_rank *rank = &sim->job->rank[process];

	switch (sim->job->faults) {
	case SIM_KILLS:
		return rank->process.dead && rank->killed_ns + SIM_NOTICE_NS > made_ns;
	case SIM_STOPS:
		return rank->stopped_ns || rank->process.dead; /* the schedule ends with kills */
	case SIM_MEMORY:
		return rank->harmed;
	default:
		return false;
	}
}

static struct carriers find_carriers(const struct sim_comm *w)
{
	struct carriers c = { .w = w };
	uint64_t failed_ns = sim->now_ns, made_ns;

	for (int i = 0; i < sim->job->nfailures; i++)
		if (sim->job->failures[i].key == w->key)
			failed_ns = sim->job->failures[i].ns;
	made_ns = failed_ns > EARLIER_NS ? failed_ns - EARLIER_NS : 0;
	for (int r = 0; r < w->n; r++) {
		c.silent[r] = is_silent(w->member[r], made_ns);
		c.gone[r] = is_gone(w, w->member[r], SIM_NEVER);
		c.was_gone[r] = is_gone(w, w->member[r], made_ns);
	}
	return c;
}

/* Does every chain of neighbors have a rank of `gone`, or one that is silent, or a cut? with_silence false: of gone
 * only */
static bool is_separated(const struct carriers *c, int from, int to, const bool gone[SIM_RANKS],
			 bool with_silence)
{
	bool reached[SIM_RANKS] = { false };
	int found[SIM_RANKS] = { from }, nfound = 1;

	if (from == to)
		return false;
	reached[from] = true;
	for (int i = 0; i < nfound; i++) {
		int at = found[i], neighbor[TT_FANOUT + 3],
		    n = tt_control_neighbors(c->w->comm->ctl, at, neighbor);

		for (int k = 0; k < n; k++) {
			int r = neighbor[k];

			if (reached[r] ||
			    (with_silence && sim_is_cut(c->w->member[at], c->w->member[r])))
				continue;
			if (r == to)
				return false;
			if (gone[r] || (with_silence && c->silent[r]))
				continue;
			reached[r] = true;
			found[nfound++] = r;
		}
	}
	return true;
}

uint64_t sim_unheard_ns(const struct sim_comm *w)
{
	const struct sim_job *job = sim->job;
	struct carriers c = find_carriers(w);
	uint64_t last = 0;

	for (int r = 0; r < w->n; r++) {
		const struct sim_rank *member = &job->rank[w->member[r]];

		if (!c.gone[r] || !is_separated(&c, w->rank, r, c.gone, false))
			continue;
		if (member->process.dead && member->killed_ns > last)
			last = member->killed_ns;
		for (int i = 0; i < job->ndepartures; i++)
			if (job->departures[i].origin == w->origin &&
			    job->departures[i].process == w->member[r] &&
			    job->departures[i].ns > last)
				last = job->departures[i].ns;
	}
	return last;
}

/* ---- the sentences ---------------------------------------------------------------------------- */

static bool may_be_absent(const struct carriers *c, int from, int rank)
{
	return c->silent[rank] || is_separated(c, from, rank, c->gone, true);
}

/* Is there a chain that only silent ranks or a cut interrupt, as far as `from` knows? Of a departure behind these it
 * does not know. */
static bool is_hidden(const struct carriers *c, int from, int rank, const bool gone[SIM_RANKS])
{
	bool known[SIM_RANKS];

	for (int r = 0; r < c->w->n; r++)
		known[r] = gone[r] && !is_separated(c, from, r, gone, true);
	return is_separated(c, from, rank, gone, true) &&
	       !is_separated(c, from, rank, known, false);
}

static bool may_be_stopped(const struct carriers *c, int from, int rank)
{
	return c->silent[rank] || is_hidden(c, from, rank, c->gone) ||
	       is_hidden(c, from, rank, c->was_gone);
}

/* Finds the next "rank 3" or "ranks 2, 5 to 7" from *at on; *at is then behind it. Returns the number of
 * ranks; 0: there is none */
static int next_ranks(const char **at, int ranks[SIM_RANKS])
{
	const char *p = *at;
	int n = 0;

	do {
		p = strstr(p, "rank");
		if (!p)
			return 0;
		p += p[4] == 's' ? 5 : 4;
	} while (*p != ' ' || !isdigit((unsigned char)p[1]));
	for (p++; n < SIM_RANKS && isdigit((unsigned char)*p);) {
		char *end;

		ranks[n++] = (int)strtol(p, &end, 10);
		if (!strncmp(end, " to ", 4) && isdigit((unsigned char)end[4]))
			for (int last = (int)strtol(end + 4, &end, 10);
			     n < SIM_RANKS && ranks[n - 1] < last; n++)
				ranks[n] = ranks[n - 1] + 1;
		*at = end;
		p = strncmp(end, ", ", 2) ? end : end + 2;
	}
	return n;
}

/* The rank that says so is one that the text mentions, or this one. */
void sim_check_text(const struct sim_comm *w, const char *what, const char *text)
{
	struct carriers c;
	bool says[SIM_RANKS] = { false };
	int ranks[SIM_RANKS], n;

	if (sim->job->faults == SIM_CORRUPTION || !strstr(text, "not answering"))
		return;
	/* of other ranks, by numbers of a communicator that is not made yet */
	if (!w || !w->known || !strcmp(what, "shrink") || strstr(text, "in the new communicator")) {
		if (strstr(text, "(stopped?)") && !sim_any_silent())
			sim_fail("%s: a rank seems to be stopped, and none is silent: %s", what,
				 text);
		return;
	}
	c = find_carriers(w);
	says[w->rank] = true;
	for (const char *p = text; (n = next_ranks(&p, ranks));) {
		bool absent = !strncmp(p, " is not answering", 17) ||
			      !strncmp(p, " are not answering", 18),
		     stopped = absent && !strncmp(strstr(p, "answering") + 9, " (stopped", 9);

		for (int i = 0; i < n && ranks[i] < w->n; i++) {
			bool may = !absent;

			for (int from = 0; from < w->n && !may; from++)
				may = says[from] && (stopped ? may_be_stopped(&c, from, ranks[i])
							     : may_be_absent(&c, from, ranks[i]));
			if (!may)
				sim_fail("%s: rank %d (process %d) %s: %s", what, ranks[i],
					 w->member[ranks[i]],
					 stopped ? "is not stopped, nor hidden by a silent rank"
						 : "answers",
					 text);
		}
		for (int i = 0; i < n && ranks[i] < w->n && !absent; i++)
			says[ranks[i]] = true;
	}
}
