/*
 * simulated_timers.c - functions that are called at a time
 */
#include "tests/simulation/simulation.h"

struct timer {
	uint64_t when_ns, number;
	void (*fn)(void *);
	void *arg;
};

struct sim_timers {
	struct timer *heap; /* by time, then number */
	size_t n, room;
	uint64_t made;
};

void sim_timers_begin(void)
{
	sim->timers = sim_alloc(sizeof(*sim->timers));
}

static bool earlier(const struct timer *a, const struct timer *b)
{
	return a->when_ns < b->when_ns || (a->when_ns == b->when_ns && a->number < b->number);
}

static void exchange(size_t i, size_t j)
{
	struct timer *heap = sim->timers->heap, t = heap[i];

	heap[i] = heap[j];
	heap[j] = t;
}

void sim_at(uint64_t when_ns, void (*fn)(void *), void *arg)
{
	struct sim_timers *t = sim->timers;
	size_t i = t->n++;

	if (t->n > t->room) {
		t->room = t->room * 2 + 256;
		t->heap = sim_resize(t->heap, t->room * sizeof(*t->heap));
	}
	t->heap[i] = (struct timer){ when_ns, t->made++, fn, arg };
	for (; i && earlier(&t->heap[i], &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
		exchange(i, (i - 1) / 2);
}

static struct timer first_timer(void)
{
	struct sim_timers *t = sim->timers;
	struct timer *heap = t->heap, first = heap[0];

	heap[0] = heap[--t->n];
	for (size_t i = 0, child; (child = 2 * i + 1) < t->n; i = child) {
		if (child + 1 < t->n && earlier(&heap[child + 1], &heap[child]))
			child++;
		if (!earlier(&heap[child], &heap[i]))
			break;
		exchange(i, child);
	}
	return first;
}

uint64_t sim_next_timer(void)
{
	return sim->timers->n ? sim->timers->heap[0].when_ns : SIM_NEVER;
}

void sim_run_timers(void)
{
	while (sim_next_timer() <= sim->now_ns) {
		struct timer t = first_timer();

		t.fn(t.arg);
	}
}
