/*
 * gpu_covering.c - see gpu_covering.h
 *
 * Greedy: a row begins with a pair that is in no row yet, and takes
 * for each other factor the value with which most pairs are new. (The
 * idea: Cohen, Dalal, Fredman, Patton, "The AETG system", 1997.)
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

static int news(const struct covering *c, const int *row, int f, int v)
{
	int count = 0;

	for (int g = 0; g < FACTORS; g++)
		count += g != f && row[g] != OPEN && !c->covered[f][v][g][row[g]];
	return count;
}

/* The best value for factor f of a row; OPEN: none fits.
 * Values take turns where several are best. */
static int best(const struct covering *c, const int *row, int f)
{
	int found = OPEN, most = -1;

	for (int i = 0; i < c->values[f]; i++) {
		int v = (i + c->nrows) % c->values[f], count;

		if (!fits(c, row, f, v))
			continue;
		count = news(c, row, f, v);
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

/* A row in which v of f and w of g are; false: nothing goes with both of them. */
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
	int left = 0;

	c->nrows = 0;
	memset(c->covered, 0, sizeof(c->covered));
	for (int f = 0; f < FACTORS; f++)
		for (int g = f + 1; g < FACTORS; g++)
			for (int v = 0; v < c->values[f]; v++)
				for (int w = 0; w < c->values[g]; w++)
					if (!c->covered[f][v][g][w] &&
					    c->may((enum factor)f, v, (enum factor)g, w))
						left += !add_row(c, f, v, g, w);
	return left;
}
