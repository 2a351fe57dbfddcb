/* simulate_heap.h - priority queue of events, earliest first; for simulate.c only */
#ifndef TT_SIMULATE_HEAP_H
#define TT_SIMULATE_HEAP_H

#include <stdlib.h>

#include "model/simulate_internal.h"

/* At equal times the lower rank comes first, so results are the same on every machine. */
static inline bool tt_sim_before(const struct tt_sim_event *a, const struct tt_sim_event *b)
{
	return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->rank < b->rank;
}

static inline void tt_sim_push(struct tt_sim *sim, uint64_t at_ps, uint32_t rank)
{
	struct tt_sim_event e = { at_ps, rank };
	size_t i = sim->nheap++;

	if (sim->nheap > sim->heap_room) {
		size_t room = 2 * sim->heap_room + 64;
		struct tt_sim_event *more = realloc(sim->heap, room * sizeof(*more));

		if (!more) {
			sim->failed = true;
			sim->nheap--;
			return;
		}
		sim->heap = more;
		sim->heap_room = room;
	}
	for (; i && tt_sim_before(&e, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
		sim->heap[i] = sim->heap[(i - 1) / 2];
	sim->heap[i] = e;
}

static inline struct tt_sim_event tt_sim_pop(struct tt_sim *sim)
{
	struct tt_sim_event top = sim->heap[0], last = sim->heap[--sim->nheap];
	size_t i = 0;

	for (size_t child; (child = 2 * i + 1) < sim->nheap; i = child) {
		if (child + 1 < sim->nheap &&
		    tt_sim_before(&sim->heap[child + 1], &sim->heap[child]))
			child++;
		if (!tt_sim_before(&sim->heap[child], &last))
			break;
		sim->heap[i] = sim->heap[child];
	}
	if (sim->nheap)
		sim->heap[i] = last;
	return top;
}

#endif
