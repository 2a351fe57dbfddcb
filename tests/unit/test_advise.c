/* test_advise.c - the fit of --advise: times that are sums of its terms are predicted exactly, disturbed ones within as much */
#include <criterion/criterion.h>
#include <math.h>

#include "trainer/advise_fit.h"

TestSuite(advise, .timeout = 60);

enum { LAYOUTS = 14, MEASURED = 7 };

/* data, stages and tensor ranks of each layout: each axis alone, which is measured, then the others */
static const int layout[LAYOUTS][3] = {
	{ 1, 1, 1 }, { 2, 1, 1 }, { 8, 1, 1 }, { 1, 2, 1 }, { 1, 4, 1 }, { 1, 1, 2 }, { 1, 1, 4 },
	{ 4, 1, 1 }, { 2, 2, 1 }, { 4, 2, 1 }, { 2, 1, 2 }, { 2, 1, 4 }, { 1, 2, 2 }, { 2, 2, 2 },
};

/* Of 4 micro-batches the first stage waits for as many as there are further stages. */
static struct advise_point point_of(const int l[3])
{
	double micro = 4, share = (micro + l[1] - 1) / micro / l[1];

	return (struct advise_point){
		.term = { 1, share / (l[0] * l[2]), l[0] - 1, l[1] > 1 ? 2 * (micro + l[1] - 2) : 0,
			  l[2] - 1 },
	};
}

/* Fits the measured layouts, disturbed by up to `share`; returns the largest relative error of a prediction. */
static double largest_error(const double factor[ADVISE_TERMS], double share)
{
	static const double sign[MEASURED] = { 1, -1, 1, -1, 1, 1, -1 };
	struct advise_point point[LAYOUTS];
	double times[LAYOUTS] = { 0 }, found[ADVISE_TERMS], most = 0;

	for (int i = 0; i < LAYOUTS; i++) {
		point[i] = point_of(layout[i]);
		for (int k = 0; k < ADVISE_TERMS; k++)
			times[i] += factor[k] * point[i].term[k];
		if (i < MEASURED)
			point[i].measured = times[i] * (1 + share * sign[i]);
	}
	train_advise_fit(point, LAYOUTS, found);
	for (int k = 0; k < ADVISE_TERMS; k++)
		cr_expect_geq(found[k], 0, "factor %d is %g", k, found[k]);
	for (int i = MEASURED; i < LAYOUTS; i++)
		most = fmax(most, fabs(point[i].predicted / times[i] - 1));
	return most;
}

Test(advise, layouts_that_were_not_measured_are_predicted)
{
	const double computing[] = { 2, 600, 0.5, 0.3, 0.4 }, messages[] = { 1, 3, 6, 2, 9 },
		     alone[] = { 0, 5, 0, 0, 0 }, an_hour[] = { 2e3, 4e6, 500, 300, 400 };

	cr_expect_lt(largest_error(computing, 0), 1e-6);
	cr_expect_lt(largest_error(messages, 0), 1e-6);
	cr_expect_lt(largest_error(alone, 0), 1e-6);
	cr_expect_lt(largest_error(an_hour, 0), 1e-6);
}

Test(advise, a_tenth_of_disturbance_is_a_fifth_of_the_prediction_at_most)
{
	const double computing[] = { 2, 600, 0.5, 0.3, 0.4 };

	cr_expect_lt(largest_error(computing, 0.1), 0.2);
}
