/*
 * gpu_covering.c - see gpu_covering.h
 *
 * Pairwise coverage, greedy: a row begins with a pair that no row covers yet. Each other factor
 * gets the value that covers most new pairs. (Source: Cohen, Dalal, Fredman, Patton, "The AETG
 * system", 1997.)
 */
#include "tests/gpu/gpu_covering.h"

#include <string.h>

#define OPEN (-1)

static bool fits(const struct covering *c, const int *row, int f, int v)
{
	for (int g = 0; g < FACTORS; g++)
		if (g != f && row[g] != OPEN && !c->may((enum factor)f, v, (enum factor)g, row[g]))
			return false;
	return true;
}

static int new_pairs(const struct covering *c, const int *row, int f, int v)
{
	int count = 0;

	for (int g = 0; g < FACTORS; g++)
		count += g != f && row[g] != OPEN && !c->covered[f][v][g][row[g]];
	return count;
}

/* The best value for factor f of a row; OPEN: no value fits. Rows alternate between equally good
 * values. */
static int best(const struct covering *c, const int *row, int f)
{
	int found = OPEN, most = -1;

	for (int i = 0; i < c->values[f]; i++) {
		int v = (i + c->nrows) % c->values[f], count;

		if (!fits(c, row, f, v))
			continue;
		count = new_pairs(c, row, f, v);
		if (count > most) {
			most = count;
			found = v;
		}
	}
	return found;
}

static void cover(struct covering *c, const int *row)
{
	for (int f = 0; f < FACTORS; f++)
		for (int g = 0; g < FACTORS; g++)
			c->covered[f][row[f]][g][row[g]] = true;
}

/* Adds a row with value v of factor f and w of g; false: no values of the other factors fit. */
static bool add_row(struct covering *c, int f, int v, int g, int w)
{
	int *row = c->row[c->nrows];

	if (c->nrows == MOST_ROWS)
		return false;
	for (int i = 0; i < FACTORS; i++)
		row[i] = i == f ? v : i == g ? w : OPEN;
	for (int i = 0; i < FACTORS; i++)
		if (row[i] == OPEN && (row[i] = best(c, row, i)) == OPEN)
			return false;
	cover(c, row);
	c->nrows++;
	return true;
}

int covering_make(struct covering *c)
{
	int uncovered = 0;

	c->nrows = 0;
	memset(c->covered, 0, sizeof(c->covered));
	for (int f = 0; f < FACTORS; f++)
		for (int g = f + 1; g < FACTORS; g++)
			for (int v = 0; v < c->values[f]; v++)
				for (int w = 0; w < c->values[g]; w++)
					if (!c->covered[f][v][g][w] &&
					    c->may((enum factor)f, v, (enum factor)g, w))
						uncovered += !add_row(c, f, v, g, w);
	return uncovered;
}
