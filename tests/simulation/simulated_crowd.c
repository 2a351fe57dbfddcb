/*
 * simulated_crowd.c - many ranks: the cost of a join, a death and a shrink
 *
 * Each message takes one hop, the same time for all; calls of the library take none, so the times are
 * those of the protocols alone. The computations of a rank (handshakes, signatures) are not in them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "control/endpoint.h"
#include "tests/simulation/simulation.h"
#include "tutti.h"

#define END_NS (3600 * SIM_SECOND)
#define EXCHANGES 2

enum phase { JOIN, EXCHANGE, SPLIT, DEATH, SHRINK, PHASES };

struct member {
	struct sim_process process;
	uint64_t sent, received, bytes; /* before the phase */
	int64_t held[PHASES];           /* memory after the phase */
	bool passed[PHASES];
};

struct crowd {
	int n, dying;
	int arrived[PHASES], failed;
	uint64_t began_ns[PHASES], ended_ns[PHASES];
	struct member *member;
	tuttiUniqueId id;
	bool has_id, splits;
	enum phase last;
};

/* Of the ranks that have passed the phase */
struct cost {
	uint64_t sent, sent_most, received_most, bytes, bytes_most;
	int most; /* rank with bytes_most */
};

static struct crowd *crowd;

static void begin_phase(enum phase phase)
{
	crowd->began_ns[phase] = sim->now_ns;
	for (int r = 0; r < crowd->n; r++) {
		struct member *m = &crowd->member[r];

		m->sent = m->process.sent;
		m->received = m->process.received;
		m->bytes = m->process.sent_bytes + m->process.received_bytes;
	}
}

static struct cost cost_of(enum phase phase)
{
	struct cost c = { 0 };

	for (int r = 0; r < crowd->n; r++) {
		const struct member *m = &crowd->member[r];
		uint64_t sent = m->process.sent - m->sent,
			 received = m->process.received - m->received,
			 bytes = m->process.sent_bytes + m->process.received_bytes - m->bytes;

		if (!m->passed[phase])
			continue;
		c.sent += sent;
		c.bytes += bytes;
		c.sent_most = sent > c.sent_most ? sent : c.sent_most;
		c.received_most = received > c.received_most ? received : c.received_most;
		c.most = bytes > c.bytes_most ? r : c.most;
		c.bytes_most = bytes > c.bytes_most ? bytes : c.bytes_most;
	}
	return c;
}

static void print(enum phase phase)
{
	static const char *const names[] = { "join", "exchange", "split", "death", "shrink" };
	struct cost c = cost_of(phase);
	uint64_t time_ns = crowd->ended_ns[phase] - crowd->began_ns[phase];
	double n = crowd->arrived[phase];

	printf("%-8s %6d %11.3f %8.0f %9.1f %9llu %9llu %11.0f %12llu of rank %d\n", names[phase],
	       crowd->arrived[phase], 1e-6 * (double)time_ns, (double)time_ns / (double)sim->hop_ns,
	       (double)c.sent / n, (unsigned long long)c.sent_most,
	       (unsigned long long)c.received_most, (double)c.bytes / n,
	       (unsigned long long)c.bytes_most, c.most);
	fflush(stdout);
}

/* This rank has passed a phase. All wait for the last one of `expected`, which prints the costs. */
static void pass(struct member *m, enum phase phase, int expected)
{
	m->passed[phase] = true;
	m->held[phase] = m->process.held;
	if (++crowd->arrived[phase] < expected) {
		while (crowd->arrived[phase] < expected && !crowd->failed)
			sim_sleep(&crowd->arrived[phase], SIM_NEVER);
		return;
	}
	crowd->ended_ns[phase] = sim->now_ns;
	print(phase);
	sim_wake(&crowd->arrived[phase]);
}

static bool failed(const struct member *m, const char *what, tuttiResult_t rc)
{
	if (!rc)
		return false;
	if (!crowd->failed++)
		fprintf(stderr, "simulation: rank %d of %d: %s: %s\n", m->process.number, crowd->n,
			what, tuttiGetLastError(NULL));
	for (int p = 0; p < PHASES; p++)
		sim_wake(&crowd->arrived[p]);
	return true;
}

/* Look for the death whenever something has come. */
static void await_death(struct member *m, tuttiComm_t comm)
{
	tuttiRankState_t state = tuttiRankAlive;

	while (!crowd->began_ns[DEATH] && !crowd->failed)
		sim_sleep(&crowd->began_ns[DEATH], SIM_NEVER);
	while (!tuttiCommRankState(comm, crowd->dying, &state) && state != tuttiRankDead &&
	       !m->process.dead)
		sim_sleep(&m->process, sim->now_ns + sim->hop_ns);
}

static tuttiResult_t join(const struct member *m, tuttiComm_t *ret_comm)
{
	if (m->process.number == 0) {
		tuttiResult_t rc = tuttiGetUniqueId(&crowd->id);

		if (rc)
			return rc;
		crowd->has_id = true;
		begin_phase(JOIN);
		sim_wake(&crowd->has_id);
	}
	while (!crowd->has_id)
		sim_sleep(&crowd->has_id, SIM_NEVER);
	return tuttiCommInitRank(ret_comm, crowd->n, crowd->id, m->process.number);
}

/* The first rank that is here begins the phase. */
static void enter(enum phase phase)
{
	if (!crowd->began_ns[phase])
		begin_phase(phase);
}

static int exchange(const struct member *m, tuttiComm_t comm)
{
	int32_t mine = m->process.number, *all = malloc((size_t)crowd->n * sizeof(*all));
	int rc = all ? 0 : TT_SYSTEM;

	enter(EXCHANGE);
	for (int i = 0; !rc && i < EXCHANGES; i++)
		rc = tt_control_allgather(comm->ctl, &mine, sizeof(mine), all,
					  sim->now_ns + END_NS);
	free(all);
	return rc;
}

/* The split has all ranks in their order: the connections are there, so its cost is that of its exchanges. */
static bool exchange_and_split(struct member *m, tuttiComm_t comm)
{
	tuttiComm_t copy;

	if (failed(m, "exchange", exchange(m, comm)))
		return false;
	pass(m, EXCHANGE, crowd->n);
	enter(SPLIT);
	if (failed(m, "split", tuttiCommSplit(comm, 0, m->process.number, &copy, NULL)))
		return false;
	pass(m, SPLIT, crowd->n);
	return !failed(m, "destroy", tuttiCommDestroy(copy));
}

static void kill_one(void *arg)
{
	struct member *m = arg;

	begin_phase(DEATH);
	sim_wake(&crowd->began_ns[DEATH]);
	sim_kill(&m->process);
}

static void member_main(void *arg)
{
	struct member *m = arg;
	tuttiComm_t comm, next;
	int n;

	if (failed(m, "join", join(m, &comm)))
		return;
	pass(m, JOIN, crowd->n);
	if (crowd->splits && !exchange_and_split(m, comm))
		return;
	if (crowd->last == JOIN)
		return;
	if (m->process.number == 0 && !crowd->failed)
		sim_at(sim->now_ns + SIM_SECOND, kill_one, &crowd->member[crowd->dying]);
	await_death(m, comm);
	pass(m, DEATH, crowd->n - 1);
	if (crowd->last == DEATH)
		return;
	enter(SHRINK);
	if (failed(m, "shrink", tuttiCommShrink(comm, NULL, 0, &next, NULL, TUTTI_SHRINK_ABORT)) ||
	    failed(m, "count", tuttiCommCount(next, &n)))
		return;
	if (n != crowd->n - 1 && !crowd->failed++)
		fprintf(stderr, "simulation: the shrink left %d ranks of %d\n", n, crowd->n - 1);
	pass(m, SHRINK, crowd->n - 1);
}

int sim_crowd(const struct sim_crowd_plan *plan)
{
	int64_t held[PHASES] = { 0 }, most = 0;
	enum phase last = !strcmp(plan->until, "join")    ? JOIN
			  : !strcmp(plan->until, "death") ? DEATH
							  : SHRINK;
	int n = plan->n;

	tt_large.above = plan->above;
	sim_begin(1, plan->trace, n);
	sim->hop_ns = plan->hop_ns;
	sim->algorithm = "auto";
	crowd = sim_alloc(sizeof(*crowd));
	*crowd = (struct crowd){ .n = n, .dying = n / 2, .splits = plan->split, .last = last };
	crowd->member = sim_alloc((size_t)n * sizeof(*crowd->member));
	for (int r = 0; r < n; r++) {
		struct member *m = &crowd->member[r];

		m->process.number = m->process.host = r;
		sim_process_begin(&m->process, member_main, m);
	}
	printf("%d ranks, %.0f us a hop\n"
	       "phase     ranks          ms     hops  messages of which     and  bytes of a       bytes\n"
	       "                                       a rank      most received         rank        most\n",
	       n, 1e-3 * (double)plan->hop_ns);
	sim_memory_begin();
	sim_run(END_NS);
	for (int r = 0; r < n; r++) {
		for (int p = 0; p < PHASES; p++)
			held[p] += crowd->member[r].held[p];
		most = crowd->member[r].process.held_most > most
			       ? crowd->member[r].process.held_most
			       : most;
	}
	printf("memory of a rank: %.1f kB after the join, ", 1e-3 * (double)held[JOIN] / n);
	if (last == SHRINK)
		printf("%.1f kB after the shrink; ", 1e-3 * (double)held[SHRINK] / (n - 1));
	printf("at most %.1f kB\n", 1e-3 * (double)most);
	return crowd->failed || crowd->arrived[last] != n - (last != JOIN);
}
