/*
 * peer_bench.c - the main of every peer program: one rank of one library, measured turn by turn
 *
 * Started n times by perf/compare, directly or through mpirun. Rank 0 reads turns from the pipe
 * PEER_TURNS, one a line, and answers each with a line into the pipe PEER_RESULTS:
 *   turn     collective bytes out|in same|rewritten verify(0|1) target_us
 *   answer   ready (once), then for each turn: calls mean_us median_us wrong, or `none` (this
 *            library has no such call)
 * The end of the pipe is the end of the program. Calls shared_page.c and peer_turn.c, and the peer it is
 * linked with.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "perf/peers/peer.h"

/* ---- one rank a core ------------------------------------------------------------------------- */

/* Which rank this will be, before the library knows. */
static int rank_to_be(void)
{
	static const char *const variables[] = { "PEER_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK" };

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (getenv(variables[i]))
			return atoi(getenv(variables[i]));
	return -1;
}

/* Before the library starts, so that it sees what it may use. Unbound when PEER_BIND is 0. */
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

	if (sscanf(line, "%31s %zu %7s %15s %d %lf", name, &t->bytes, place, buffers, &verify,
		   &t->target_us) != 6)
		return false;
	t->in_place = !strcmp(place, "in");
	t->rewritten = !strcmp(buffers, "rewritten");
	t->verify = verify;
	for (t->collective = 0; t->collective < PEER_COLLECTIVES; t->collective++)
		if (!strcmp(name, peer_collective_names[t->collective]))
			return true;
	return false;
}

/* Rank 0: the next turn from the pipe onto the board. */
static void fetch(struct peer_board *board, FILE *turns, FILE *results)
{
	struct peer_turn turn;
	char line[256];

	while (fgets(line, sizeof(line), turns)) {
		if (!parse(line, &turn)) {
			fprintf(stderr, "not a turn: %s", line);
			exit(2);
		}
		if (peer.calls[turn.collective]) {
			peer_board_put(board, &turn);
			return;
		}
		fprintf(results, "none\n");
	}
	peer_board_put(board, NULL);
}

static int take_turns(const struct peer_rank *me)
{
	FILE *turns = NULL, *results = me->rank == 0 ? pipe_of("PEER_RESULTS", "w") : NULL;
	struct peer_result r;
	struct peer_turn turn;

	if (results) {
		fprintf(results, "ready\n");
		/* whose other end is opened when we are ready */
		turns = pipe_of("PEER_TURNS", "r");
	}
	for (;;) {
		if (results)
			fetch(me->board, turns, results);
		if (!peer_board_take(me->board, &turn))
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
	size_t bytes = (room ? strtoull(room, NULL, 10) : 0) + PEER_BATCH_BYTES;
	struct peer_rank me = { 0 };
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bind_rank(rank_to_be());
	me.board = peer_board_open();
	if (peer.open(&me.rank, &me.n))
		return 2;
	peer_board_join(me.board, me.rank, me.n, crowded && atoi(crowded));
	me.in = buffer(bytes);
	me.out = buffer(bytes);
	peer_meet(me.board);
	rc = take_turns(&me);
	if (!rc)
		peer.close();
	return rc;
}
