/*
 * timeline.h - what every rank did when, for chrome://tracing or ui.perfetto.dev
 *
 * A rank notes spans of time; at the end rank 0 writes those of all ranks as one JSON
 * file. Spans of ranks on different hosts are as far apart as the hosts' clocks. What is
 * in no span is idle, or between steps. Called by gradient.c, strategies and train.c.
 */
#ifndef TT_TRAINER_TIMELINE_H
#define TT_TRAINER_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum tt_time { TT_TIME_COMPUTE, TT_TIME_EXPOSED, TT_TIME_HIDDEN };

struct tt_span {
	uint64_t step, begin_ns, end_ns;
	uint64_t what; /* enum tt_time */
};

struct tt_timeline {
	bool on;
	struct tt_span *span;
	size_t n, room;
};

struct tt_trainer;

/* Does nothing unless on; no memory: the span is left out. */
void tt_timeline_add(struct tt_timeline *l, enum tt_time what, uint64_t step, uint64_t begin_ns,
		     uint64_t end_ns);

/* Called by all workers. Returns 0 | TT_TRAIN_FAILED. */
int tt_timeline_write(struct tt_trainer *t, const char *path);
void tt_timeline_close(struct tt_timeline *l);

static inline uint64_t tt_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
