/*
 * timeline.h - time spans of every rank, for chrome://tracing or ui.perfetto.dev
 *
 * A rank records spans; at the start, at each evaluation and at the end rank 0 gathers those of all ranks and adds
 * them to one JSON file, which is complete each time. A pipe or a device gets all spans at the end, so the ranks
 * keep theirs until then. Spans of ranks on different hosts differ by the offset of the hosts' clocks. Time
 * outside of every span is idle, or between steps. A message between stages of a mesh is a span of its sender and
 * one of its receiver, with an arrow: both have the same number. Called by gradient.c, pipeline*.c, strategies and
 * train.c.
 */
#ifndef TRAIN_TIMELINE_H
#define TRAIN_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* From TRAIN_TIME_STEPS on: that and an enum train_step_kind. */
enum train_activity { TRAIN_TIME_COMPUTE, TRAIN_TIME_EXPOSED, TRAIN_TIME_HIDDEN, TRAIN_TIME_STEPS };

/* Rows of a rank; spans of a row do not overlap. */
enum { TRAIN_ROW_COMPUTE, TRAIN_ROW_SUMS, TRAIN_ROW_LINKS, TRAIN_ROWS = TRAIN_ROW_LINKS + 4 };

struct train_span {
	uint64_t step, begin_ns, end_ns;
	uint64_t activity; /* enum train_activity */
	uint64_t row;      /* TRAIN_ROW_COMPUTE ... */
	uint64_t message;  /* the number of a message that is sent or received; 0: none */
	uint64_t chunk, micro;
};

struct train_timeline {
	bool on;
	struct train_span *span;
	size_t n, capacity; /* spans */
};

struct train_rank;

/* Records a span, if on. Without memory the span is dropped. */
void train_timeline_add(struct train_timeline *l, enum train_activity activity, uint64_t step,
			uint64_t begin_ns, uint64_t end_ns);
/* The same; a span takes at least a nanosecond. */
void train_timeline_add_span(struct train_timeline *l, struct train_span span);

/* Call by all workers before the first step. Rank 0 begins the file of --timeline, or reports that it cannot be
 * written. A resumed training, and a worker that becomes rank 0 after a death, add to the file that is there. */
void train_timeline_begin(struct train_rank *t);
/* Adds the spans since the last call to --timeline. Call by all workers; last: no further call for t follows. A file
 * that cannot be written is reported at once, and written by a later call, of a grown training, too. Returns 0 |
 * TRAIN_FAILED, of the file by the last call of the training only. */
int train_timeline_write(struct train_rank *t, bool last);
void train_timeline_close(struct train_timeline *l);

static inline uint64_t train_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
