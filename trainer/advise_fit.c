/* advise_fit.c - least squares with factors that are not negative (advise_fit.h) */
#include "trainer/advise_fit.h"

#include <stdbool.h>

/* Solves m x = right (symmetric, positive; Gauss with a share of 1e-9 added to the diagonal, so that fewer
 * measurements than terms have a solution, too). x of a term that is left out, or 0 in all measurements, is 0. */
static void solve(const double matrix[ADVISE_TERMS][ADVISE_TERMS],
		  const double vector[ADVISE_TERMS], const bool left_out[ADVISE_TERMS],
		  double x[ADVISE_TERMS])
{
	double m[ADVISE_TERMS][ADVISE_TERMS], right[ADVISE_TERMS];

	for (int i = 0; i < ADVISE_TERMS; i++) {
		for (int j = 0; j < ADVISE_TERMS; j++)
			m[i][j] = left_out[i] || left_out[j] ? 0 : matrix[i][j];
		m[i][i] = m[i][i] > 0 ? m[i][i] * (1 + 1e-9) : 1;
		right[i] = left_out[i] ? 0 : vector[i];
	}
	for (int i = 0; i < ADVISE_TERMS; i++)
		for (int j = i + 1; j < ADVISE_TERMS; j++) {
			double factor = m[j][i] / m[i][i];

			for (int k = i; k < ADVISE_TERMS; k++)
				m[j][k] -= factor * m[i][k];
			right[j] -= factor * right[i];
		}
	for (int i = ADVISE_TERMS - 1; i >= 0; i--) {
		x[i] = right[i];
		for (int k = i + 1; k < ADVISE_TERMS; k++)
			x[i] -= m[i][k] * x[k];
		x[i] /= m[i][i];
	}
}

/* Solves without the terms that would be negative, the most negative first. */
static void solve_positive(const double m[ADVISE_TERMS][ADVISE_TERMS],
			   const double right[ADVISE_TERMS], double x[ADVISE_TERMS])
{
	bool left_out[ADVISE_TERMS] = { false };
	int worst;

	do {
		worst = -1;
		solve(m, right, left_out, x);
		for (int i = 0; i < ADVISE_TERMS; i++)
			if (x[i] < 0 && (worst < 0 || x[i] < x[worst]))
				worst = i;
		if (worst >= 0)
			left_out[worst] = true;
	} while (worst >= 0);
}

void train_advise_fit(struct advise_point *point, int n, double ret_factor[ADVISE_TERMS])
{
	double m[ADVISE_TERMS][ADVISE_TERMS] = { { 0 } }, right[ADVISE_TERMS] = { 0 };

	for (int p = 0; p < n; p++) {
		const double *term = point[p].term, ms = point[p].measured;

		for (int i = 0; i < ADVISE_TERMS && ms > 0; i++) {
			for (int j = 0; j < ADVISE_TERMS; j++)
				m[i][j] += term[i] * term[j] / (ms * ms);
			right[i] += term[i] / ms;
		}
	}
	solve_positive(m, right, ret_factor);
	for (int p = 0; p < n; p++) {
		point[p].predicted = 0;
		for (int i = 0; i < ADVISE_TERMS; i++)
			point[p].predicted += ret_factor[i] * point[p].term[i];
	}
}
