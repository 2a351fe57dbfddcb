/*
 * parts.h - the parts of an exchange in a message
 *
 * Called by control_allgather.c. Parts are in columns, a column in the order of ranks, in groups of eight: a byte,
 * of which a bit says that the rank's part differs from the part before, and the parts that differ. Behind a group
 * in which none does, a byte has the number of further such groups.
 */
#ifndef TT_PARTS_H
#define TT_PARTS_H

#include "control/control.h"
#include "control/frame.h"

/* A column as it is written; w and bytes are set at first. */
struct tt_parts_writer {
	struct tt_writer *w;
	size_t bytes; /* of a part */
	int nparts; /* of the latest group, and those that differ: a bit for each, and where they are */
	unsigned bits;
	const uint8_t *differs[8];
	int ndiffer;
	int clear; /* groups before it without a part that differs, which are not written yet */
};
/* Add a part, which remains until the group ends; NULL: it is equal to the part before. */
void tt_parts_put(struct tt_parts_writer *p, const uint8_t *part);
/* The column ends. */
void tt_parts_put_end(struct tt_parts_writer *p);

/* All columns of a message as they are read; r is set at first. */
struct tt_parts_reader {
	struct tt_reader r;
	unsigned bits; /* of the group's parts to come */
	int nbits;
	int clear;           /* groups to come without a part that differs */
	const uint8_t *part; /* the latest one; NULL: malformed */
};
/* The next part of a column of parts of `bytes` bytes */
void tt_parts_next(struct tt_parts_reader *p, size_t bytes);
/* Behind the parts of a column */
void tt_parts_next_column(struct tt_parts_reader *p);
/* Is the message the parts of nranks ranks, and no more? Counts the runs of each column. */
bool tt_parts_count(struct tt_parts_reader *p, struct tt_parts *columns, int ncolumns, int nranks);
/* Find the runs, which are counted. false: no memory; free the columns in any case */
bool tt_parts_find_runs(struct tt_parts_reader *p, struct tt_parts *columns, int ncolumns,
			int nranks);

#endif
