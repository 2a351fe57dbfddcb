/*
 * tune.h - what `tutti tune` is made of
 *
 *   cmd_tune.c       the line; the pages it prints; the file it writes
 *   tune_measure.c   ranks that run every allreduce algorithm, in turn
 *   tune_fit.c       constants by which the simulator comes nearest to what was measured; factors
 *                    for the rest
 */
#ifndef TOOL_TUNE_H
#define TOOL_TUNE_H

#include "model/choose.h"
#include "tutti.h"

enum { TOOL_TUNE_ALGORITHMS = 24, TOOL_TUNE_SIZES = 32, TOOL_TUNE_REPEATS = 64 };

/* What is measured: one number of ranks over one transport. */
struct tool_tune_run {
	int np;                          /* 0: join what the environment says, and set it */
	const char *transport;
	uint64_t bytes[TOOL_TUNE_SIZES];
	int nsizes, repeats;             /* repeats: batches of each half */
	int nhosts;                      /* found out, as: */
	uint8_t card;                    /* the class of the cards that carried it, 0: none did */
};

/* One point: the same call measured in two halves of the batches, in turn. us < 0: not measured. */
struct tool_tune_sample {
	int run;                         /* number of its run */
	uint8_t algorithm;               /* in tt_algorithms */
	uint64_t bytes;
	double half_us[2];               /* of a call: nearly the least of the batches */
};

struct tool_tune {
	struct tool_tune_run *runs;
	int nruns;
	struct tool_tune_sample *samples;
	int nsamples;
	int cores;                       /* of this host */
};

/* Measures run number r; appends its samples. ret_speaks: this process is to tell (the parent of
 * local ranks, or rank 0 of a launched job). 0 | 1 failed: a sentence went to stderr */
int tool_tune_measure(struct tool_tune *t, int r, bool *ret_speaks);

/* Sets the constants of cost that the runs say something about. progress: on stderr */
int tool_tune_fit(const struct tool_tune *t, struct tt_cost *cost, bool progress);
/* What this core copies and adds in and out of cache, straight into cost. */
void tool_tune_core(struct tt_cost *cost);
/* Replaces the factors by measured (first half) over modelled, for all samples. 0 | 1 */
int tool_tune_factors(const struct tool_tune *t, struct tt_cost *cost);
/* What the model says, without factors. 0: failed */
double tool_tune_model_us(const struct tool_tune *t, const struct tool_tune_sample *s,
			const struct tt_cost *cost);
/* What auto would take. NULL: failed */
const struct tt_algorithm *tool_tune_choice(const struct tool_tune *t, int run, uint64_t bytes,
					  const struct tt_cost *cost);

enum tt_link_class tool_tune_class(const struct tool_tune_run *run);

#endif
