/*
 * advise_fit.h - a sum of known terms with unknown factors, fitted to measured times
 *
 * Called by advise.c.
 */
#ifndef TRAIN_ADVISE_FIT_H
#define TRAIN_ADVISE_FIT_H

enum { ADVISE_TERMS = 5 };

struct advise_point {
	double term[ADVISE_TERMS];
	double measured, predicted; /* measured 0: not measured */
};

/* Sets ret_factor, none of which is negative, to the least squares of relative errors, and each point's
 * predicted to the sum of its terms times their factors. */
void train_advise_fit(struct advise_point *point, int n, double ret_factor[ADVISE_TERMS]);

#endif
