/*
 * parts.c - the parts of an exchange in a message, and the runs of equal ones in it
 *
 * The bytes read come from another process: tt_parts_count checks all, before the runs are found.
 */
#include <stdlib.h>
#include <string.h>

#include "control/parts.h"

/* ---- writing --------------------------------------------------------------------------------- */

/* Groups without a part that differs, up to 256 at a time */
static void put_clear(struct tt_parts_writer *p)
{
	if (p->clear) {
		tt_put(p->w, 0, 1);
		tt_put(p->w, (uint64_t)p->clear - 1, 1);
	}
	p->clear = 0;
}

static void put_group(struct tt_parts_writer *p)
{
	p->clear += !p->bits;
	if (p->bits || p->clear == 256)
		put_clear(p);
	if (p->bits)
		tt_put(p->w, p->bits, 1);
	for (int i = 0; i < p->ndiffer; i++)
		tt_put_bytes(p->w, p->differs[i], p->bytes);
	p->nparts = p->ndiffer = 0;
	p->bits = 0;
}

void tt_parts_put(struct tt_parts_writer *p, const uint8_t *part)
{
	if (part) {
		p->bits |= 1u << p->nparts;
		p->differs[p->ndiffer++] = part;
	}
	if (++p->nparts == 8)
		put_group(p);
}

void tt_parts_put_end(struct tt_parts_writer *p)
{
	if (p->nparts)
		put_group(p);
	put_clear(p);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void next_group(struct tt_parts_reader *p)
{
	p->bits = 0;
	p->nbits = 8;
	if (p->clear) {
		p->clear--;
		return;
	}
	p->bits = (unsigned)tt_get(&p->r, 1);
	if (!p->bits)
		p->clear = (int)tt_get(&p->r, 1);
}

void tt_parts_next(struct tt_parts_reader *p, size_t bytes)
{
	if (!p->nbits)
		next_group(p);
	if (p->bits & 1)
		p->part = tt_get_bytes(&p->r, bytes);
	p->bits >>= 1;
	p->nbits--;
}

/* Parts that equal the one before, after the latest one: up to n are passed over. Returns their number */
static int skip_equal(struct tt_parts_reader *p, int n)
{
	int skipped = 0;

	while (skipped < n && p->part) {
		int whole = (n - skipped) / 8 < p->clear ? (n - skipped) / 8 : p->clear;

		if (!p->nbits && whole) {
			p->clear -= whole;
			skipped += 8 * whole;
			continue;
		}
		if (!p->nbits)
			next_group(p);
		if (p->bits & 1)
			break;
		tt_parts_next(p, 0);
		skipped++;
	}
	return skipped;
}

/* Behind the parts of a column, which has no further groups */
void tt_parts_next_column(struct tt_parts_reader *p)
{
	p->r.failed |= p->clear > 0;
	p->clear = p->nbits = 0;
	p->part = NULL;
}

/* Are the next n parts whole? *ret_nruns: those that differ from the one before */
static bool count_parts(struct tt_parts_reader *p, size_t each, int n, int *ret_nruns)
{
	*ret_nruns = 0;
	for (int i = 0; each && i < n; i++) {
		tt_parts_next(p, each);
		if (!p->part)
			return false;
		++*ret_nruns;
		i += skip_equal(p, n - 1 - i);
	}
	tt_parts_next_column(p);
	return true;
}

bool tt_parts_count(struct tt_parts_reader *p, struct tt_parts *columns, int ncolumns, int nranks)
{
	for (int i = 0; i < ncolumns; i++)
		if (!count_parts(p, columns[i].bytes, nranks, &columns[i].nruns))
			return false;
	return tt_get_end(&p->r);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* false: no memory */
static bool find_runs(struct tt_parts *column, struct tt_parts_reader *p, int nranks)
{
	int rank = 0;

	column->from = malloc(((size_t)column->nruns + 1) * sizeof(*column->from));
	column->part = malloc(((size_t)column->nruns + 1) * sizeof(*column->part));
	if (!column->from || !column->part)
		return false;
	for (int i = 0; i < column->nruns; i++) {
		tt_parts_next(p, column->bytes);
		column->from[i] = rank;
		column->part[i] = p->part;
		rank += 1 + skip_equal(p, nranks - 1 - rank);
	}
	column->from[column->nruns] = nranks;
	tt_parts_next_column(p);
	return true;
}

bool tt_parts_find_runs(struct tt_parts_reader *p, struct tt_parts *columns, int ncolumns,
			int nranks)
{
	for (int i = 0; i < ncolumns; i++)
		if (columns[i].bytes && !find_runs(&columns[i], p, nranks))
			return false;
	return true;
}

static int run_of(const struct tt_parts *parts, int rank)
{
	int low = 0, high = parts->nruns;

	while (high - low > 1) {
		int middle = (low + high) / 2;

		*(parts->from[middle] <= rank ? &low : &high) = middle;
	}
	return low;
}

void tt_part_get(const struct tt_parts *parts, int rank, void *to)
{
	int among_all = parts->members ? tt_rank_map_peer(parts->members, rank) : rank;

	memcpy(to, parts->part[run_of(parts, among_all)], parts->bytes);
}

int tt_part_end(const struct tt_parts *parts, int rank)
{
	const struct tt_rank_map *m = parts->members;

	if (!m)
		return parts->from[run_of(parts, rank) + 1];
	return m->in_order
		       ? tt_counted_bits_before(
				 &m->in, parts->from[run_of(parts, tt_rank_map_peer(m, rank)) + 1])
		       : rank + 1;
}

void tt_parts_free(struct tt_parts *parts)
{
	free(parts->from);
	free(parts->part);
	free(parts->message);
	parts->from = NULL;
	parts->part = NULL;
	parts->message = NULL;
}
