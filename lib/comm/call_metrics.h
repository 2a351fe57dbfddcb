/*
 * call_metrics.h - counters of a communicator's collectives, in a text file for Prometheus
 *
 * TUTTI_METRICS names a folder. Each rank of each communicator writes a file there every 2 s, which
 * node_exporter's textfile collector reads. The flight recorder (trace.h) counts the calls; without
 * TUTTI_TRACE its records then lie in memory alone.
 */
#ifndef TT_CALL_METRICS_H
#define TT_CALL_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "base/collective.h"
#include "control/control.h"

#define TT_METRICS_BOUNDS 8                  /* bounds of a duration: 1 us, 10 us, ... 10 s */
#define TT_METRICS_ROWS (TT_COLLECTIVES + 1) /* the last one: barriers */

/* The calls of one collective that have ended. Thread: one at a time writes, any reads. */
struct tt_metrics_row {
	atomic_uint_fast64_t bytes, ticks; /* sums */
	/* calls by duration: [i] took at most bound i, and more than the bound before; the last:
	 * longer than all */
	atomic_uint_fast64_t calls[TT_METRICS_BOUNDS + 1];
};

struct tt_metrics_facts {
	uint64_t comm; /* equal on all ranks of the communicator */
	int rank, nranks;
	const char *name; /* of the communicator, or "" */
	double tick_ns;
};

struct tt_metrics {
	struct tt_metrics_row row[TT_METRICS_ROWS];
	uint64_t bound[TT_METRICS_BOUNDS]; /* ticks */
	atomic_uint_fast64_t started;      /* ticks: start of the call that runs, 0: none */
	atomic_bool failed;
	struct tt_metrics_facts facts;
	char *path, *temporary;
	bool warned;             /* a file could not be written */
	struct tt_metrics *next; /* all of the process; the lock of call_metrics.c */
};

/* Count the calls of a communicator. Write the first file of this rank in folder dir, "": none; later
 * ones are written by a thread of the process until tt_metrics_close. 0 | TT_ARG: a wrong folder |
 * TT_SYSTEM */
int tt_metrics_open(const char *dir, const struct tt_metrics_facts *facts,
		    struct tt_metrics **ret_metrics);
/* Write the file now: the communicator failed. Thread: any. */
void tt_metrics_failed(struct tt_metrics *m);
/* Remove the file; of a communicator that failed, it stays. m may be NULL. Blocks: while files are
 * written. */
void tt_metrics_close(struct tt_metrics *m);
/* The calls that have ended; *ret_running_ns: since the start of the one that runs at the time `now` in
 * ticks, 0: none runs. Thread: any. */
void tt_metrics_tally(const struct tt_metrics *m, uint64_t now, struct tt_tally *ret_tally,
		      uint64_t *ret_running_ns);
/* The file's text, at the time `now` in ticks. */
void tt_metrics_text(const struct tt_metrics *m, uint64_t now, FILE *to);

static inline void tt_metrics_add(atomic_uint_fast64_t *sum, uint64_t value)
{
	atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

static inline void tt_metrics_start(struct tt_metrics *m, uint64_t ticks)
{
	atomic_store_explicit(&m->started, ticks, memory_order_relaxed);
}

/* A call has ended. */
static inline void tt_metrics_count(struct tt_metrics *m, const struct tt_call *call,
				    uint64_t bytes, uint64_t ticks)
{
	bool barrier = call->collective == TT_ALLREDUCE && call->op == TT_CALL_BARRIER;
	struct tt_metrics_row *row = &m->row[barrier ? TT_COLLECTIVES : call->collective];
	int i = 0;

	while (i < TT_METRICS_BOUNDS && ticks > m->bound[i])
		i++;
	tt_metrics_add(&row->bytes, bytes);
	tt_metrics_add(&row->ticks, ticks);
	tt_metrics_add(&row->calls[i], 1);
	tt_metrics_start(m, 0);
}

#endif
