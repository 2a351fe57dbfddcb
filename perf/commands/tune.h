/*
 * tune.h - types and functions of `tutti tune`
 *
 *   cmd_tune.c       parses the options, prints the tables, writes the file
 *   tune_measure.c   starts ranks that measure every allreduce algorithm, interleaved
 *   tune_changes.c   the noise of the measurement, and the choices that a new table changes
 *   tune_fit.c       fits the constants of the simulator to the measurement; computes factors for
 *                    the remaining error
 */
#ifndef TOOL_TUNE_H
#define TOOL_TUNE_H

#include "model/choose.h"
#include "tutti.h"

enum { TOOL_TUNE_ALGORITHMS = 24, TOOL_TUNE_SIZES = 32, TOOL_TUNE_REPEATS = 64 };

/* Measurement for one number of ranks over one transport. */
struct tool_tune_run {
	int np; /* 0: join by the environment; set by tool_tune_measure */
	const char *transport;
	uint64_t bytes[TOOL_TUNE_SIZES];
	int nsizes, repeats; /* repeats: batches per half */
	int nhosts;          /* set by tool_tune_measure */
	uint8_t nic;         /* link class of the NIC in use, TT_NO_NIC: none; set likewise */
};

/* One call, measured in two interleaved halves of the batches. */
struct tool_tune_sample {
	int run;           /* index in tool_tune.runs */
	uint8_t algorithm; /* index in tt_algorithms */
	uint64_t bytes;
	double half_us[2]; /* time of a call: low quantile of the batches */
};

struct tool_tune {
	struct tool_tune_run *runs;
	int nruns;
	struct tool_tune_sample *samples;
	int nsamples;
	int cores; /* cores of this host */
};

/* Measures run number r and appends its samples. *ret_reports: this process prints the results (the
 * parent of local ranks, or rank 0 of a launched job). Returns 0 | 1: error printed. */
int tool_tune_measure(struct tool_tune *t, int r, bool *ret_reports);

/* Fits the constants of cost that the runs can determine. progress: shown on stderr. Returns 0 | 1:
 * error printed. */
int tool_tune_fit(const struct tool_tune *t, struct tt_cost *cost, bool progress);
/* Measures this core's copy and reduction bandwidth, in and out of cache, and sets them in cost. */
void tool_tune_core(struct tt_cost *cost);
/* Replaces the factors of cost by measured (first half) over modelled time, for all samples.
 * Returns 0 | 1: error printed. */
int tool_tune_factors(const struct tool_tune *t, struct tt_cost *cost);
/* Returns the modelled time without factors; 0: failed. */
double tool_tune_model_us(const struct tool_tune *t, const struct tool_tune_sample *s,
			  const struct tt_cost *cost);
/* Returns auto's algorithm for the run; NULL: failed. */
const struct tt_algorithm *tool_tune_choice(const struct tool_tune *t, int run, uint64_t bytes,
					    const struct tt_cost *cost);

/* cmd_tune.c: the sample of a call; NULL: none */
const struct tool_tune_sample *tool_tune_find(const struct tool_tune *t, int run, uint64_t bytes,
					      const struct tt_algorithm *a);

/* tune_changes.c: the factor between the two halves of a call, a quantile of all calls; NAN: no calls. Print the noise,
 * with a warning on stderr where the machine is busy. Print the choices that differ. */
double tool_tune_noise(const struct tool_tune *t, double quantile);
void tool_tune_print_noise(const struct tool_tune *t);
void tool_tune_print_changes(const struct tool_tune *t, const struct tt_cost *before,
			     const struct tt_cost *after);

enum tt_link_class tool_tune_class(const struct tool_tune_run *run);

#endif
