/*
 * timeline.h - what every rank did when, for chrome://tracing or ui.perfetto.dev
 *
 * A rank notes spans of time; at the end rank 0 writes those of all ranks as one JSON
 * file. Spans of ranks on different hosts are as far apart as the hosts' clocks. What is
 * in no span is idle, or between steps. Called by gradient.c, strategies and train.c.
 */
#ifndef TRAIN_TIMELINE_H
#define TRAIN_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum train_activity { TRAIN_TIME_COMPUTE, TRAIN_TIME_EXPOSED, TRAIN_TIME_HIDDEN };

struct train_span {
	uint64_t step, begin_ns, end_ns;
	uint64_t what; /* enum train_activity */
};

struct train_timeline {
	bool on;
	struct train_span *span;
	size_t n, room;
};

struct train_rank;

/* Does nothing unless on; no memory: the span is left out. */
void train_timeline_add(struct train_timeline *l, enum train_activity what, uint64_t step, uint64_t begin_ns,
		     uint64_t end_ns);

/* Called by all workers. Returns 0 | TRAIN_FAILED. */
int train_timeline_write(struct train_rank *t, const char *path);
void train_timeline_close(struct train_timeline *l);

static inline uint64_t train_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
