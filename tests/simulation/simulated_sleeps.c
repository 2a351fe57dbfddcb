/* simulated_sleeps.c - the sleeps that end by themselves, as a binary heap by time (Williams 1964) */
#include "tests/simulation/simulated_threads.h"

static void put_timed(int at, struct timed_sleep s)
{
	sim->threads->timed[at] = s;
	s.sleeper->timed_at = at;
}

/* s is at a place of the heap, or nearer to its top. */
static void rise(int at, struct timed_sleep s)
{
	const struct timed_sleep *timed = sim->threads->timed;

	for (; at && timed[(at - 1) / 2].until_ns > s.until_ns; at = (at - 1) / 2)
		put_timed(at, timed[(at - 1) / 2]);
	put_timed(at, s);
}

void sim_timed_begin(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;

	if (t->ntimed == t->timed_room) {
		t->timed_room = t->timed_room * 2 + 64;
		t->timed = sim_resize(t->timed, (size_t)t->timed_room * sizeof(*t->timed));
	}
	rise(t->ntimed++, (struct timed_sleep){ c->until_ns, c });
}

/* The last one takes its place, and sinks or rises. */
void sim_timed_end(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;
	struct timed_sleep last = t->timed[--t->ntimed];
	int at = c->timed_at;

	c->timed_at = -1;
	if (last.sleeper == c)
		return;
	for (int child; (child = 2 * at + 1) < t->ntimed; at = child) {
		if (child + 1 < t->ntimed &&
		    t->timed[child + 1].until_ns < t->timed[child].until_ns)
			child++;
		if (t->timed[child].until_ns >= last.until_ns)
			break;
		put_timed(at, t->timed[child]);
	}
	rise(at, last);
}
