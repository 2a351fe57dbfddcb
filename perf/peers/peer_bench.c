/*
 * peer_bench.c - main function of every peer program: one rank of one library
 *
 * perf/compare starts n processes, directly or through mpirun. Rank 0 reads turns from the pipe
 * PEER_TURNS, one per line, and writes one line per turn to the pipe PEER_RESULTS:
 *   turn     collective bytes offset out|in same|rewritten verify(0|1) target_us
 *   result   ready (once), then for each turn: calls mean_us median_us wrong, or `none` (the
 *            library has no such call)
 * The program ends at the end of the pipe PEER_TURNS. Calls shared_page.c, peer_turn.c and the
 * peer's table of functions.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "perf/peers/peer.h"

/* ---- binding: one rank per core -------------------------------------------------------------- */

/* Returns the rank from the launcher's environment, before the library starts; -1: unknown. */
static int launcher_rank(void)
{
	static const char *const variables[] = { "PEER_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK" };

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (getenv(variables[i]))
			return atoi(getenv(variables[i]));
	return -1;
}

/* Binds the process before the library starts, so that the library sees the allowed processors.
 * PEER_BIND=0: unbound. */
static void bind_rank(int rank)
{
	cpu_set_t allowed, one;
	int seen = 0;

	if (!getenv("PEER_BIND") || atoi(getenv("PEER_BIND")) == 0 || rank < 0)
		return;
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || seen++ != rank % CPU_COUNT(&allowed))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
	}
}

/* ---- buffers --------------------------------------------------------------------------------- */

static float *buffer(size_t bytes)
{
	void *p = NULL;

	if (peer.alloc)
		p = peer.alloc(bytes);
	else if (posix_memalign(&p, 4096, bytes))
		p = NULL;
	if (!p) {
		fprintf(stderr, "no memory for %zu bytes\n", bytes);
		exit(2);
	}
	return p;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static FILE *pipe_of(const char *variable, const char *mode)
{
	const char *path = getenv(variable);
	FILE *f = path ? fopen(path, mode) : NULL;

	if (!f) {
		fprintf(stderr, "%s=%s: %m\n", variable, path ? path : "");
		exit(2);
	}
	setvbuf(f, NULL, _IOLBF, 0);
	return f;
}

static bool parse(const char *line, struct peer_turn *t)
{
	char name[32], place[8], buffers[16];
	int verify;

	if (sscanf(line, "%31s %zu %zu %7s %15s %d %lf", name, &t->bytes, &t->offset, place,
		   buffers, &verify, &t->target_us) != 7 ||
	    t->offset % sizeof(float) || t->offset > PEER_MOST_OFFSET)
		return false;
	t->in_place = !strcmp(place, "in");
	t->rewritten = !strcmp(buffers, "rewritten");
	t->verify = verify;
	for (t->collective = 0; t->collective < PEER_COLLECTIVES; t->collective++)
		if (!strcmp(name, peer_collective_names[t->collective]))
			return true;
	return false;
}

/* Rank 0: reads the next turn from the pipe and posts the turn on the shared page. */
static void fetch(struct peer_page *page, FILE *turns, FILE *results)
{
	struct peer_turn turn;
	char line[256];

	while (fgets(line, sizeof(line), turns)) {
		if (!parse(line, &turn)) {
			fprintf(stderr, "not a turn: %s", line);
			exit(2);
		}
		if (peer.calls[turn.collective]) {
			peer_page_put(page, &turn);
			return;
		}
		fprintf(results, "none\n");
	}
	peer_page_put(page, NULL);
}

static int take_turns(const struct peer_rank *me)
{
	FILE *turns = NULL, *results = me->rank == 0 ? pipe_of("PEER_RESULTS", "w") : NULL;
	struct peer_result r;
	struct peer_turn turn;

	if (results) {
		fprintf(results, "ready\n");
		/* blocks until perf/compare, which waits for `ready`, opens the other end */
		turns = pipe_of("PEER_TURNS", "r");
	}
	for (;;) {
		if (results)
			fetch(me->page, turns, results);
		if (!peer_page_take(me->page, &turn))
			return 0;
		if (peer_run_turn(me, &turn, &r))
			return 1;
		if (results)
			fprintf(results, "%llu %.9g %.9g %.9g\n", (unsigned long long)r.calls,
				r.mean_us, r.median_us, r.wrong);
	}
}

int main(void)
{
	const char *room = getenv("PEER_MAX_BYTES"), *crowded = getenv("PEER_CROWDED");
	size_t bytes = (room ? strtoull(room, NULL, 10) : 0) + PEER_BATCH_BYTES + PEER_MOST_OFFSET;
	struct peer_rank me = { 0 };
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bind_rank(launcher_rank());
	me.page = peer_page_open();
	if (peer.open(&me.rank, &me.n))
		return 2;
	peer_page_join(me.page, me.rank, me.n, crowded && atoi(crowded));
	me.in = buffer(bytes);
	me.out = buffer(bytes);
	peer_barrier(me.page);
	rc = take_turns(&me);
	if (!rc)
		peer.close();
	return rc;
}
