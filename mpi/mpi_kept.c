/*
 * mpi_kept.c - arguments of a call that only starts: tables of counts, and datatypes
 *
 * Called by mpi_requests.c. A program may free a datatype while a call uses it, says MPI. It may not free
 * a table of counts, but does: mpi4py makes the tables for one call. So a task has copies of those that it
 * reads; the rest may be no addresses.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi_interpose.h"

/* The tables and the type of all parts are those of the root, or of each rank. */
static bool has_all(const struct mpi_task *k)
{
	return k->given.root == MPI_ALL || k->given.root == k->t->rank;
}

static bool keep_tables(struct mpi_task *k)
{
	struct mpi_given *g = &k->given;
	struct mpi_table *tables[] = { &g->in_counts, &g->in_displs, &g->counts, &g->displs };
	size_t n = (size_t)k->t->n;
	char *to;

	if (!has_all(k) || (!g->counts.at && !g->in_counts.at))
		return true;
	to = k->tables = malloc(4 * n * sizeof(MPI_Count));
	for (size_t i = 0; i < 4 && to; i++, to += n * sizeof(MPI_Count))
		if (tables[i]->at)
			tables[i]->at = memcpy(to, tables[i]->at, n * tables[i]->width);
	return k->tables;
}

static bool keep_type(struct mpi_task *k, MPI_Datatype *type)
{
	if (mpi_predefined(*type))
		return true;
	if (mpi_library()->Type_dup(*type, type))
		return false;
	k->types[k->ntypes++] = *type;
	return true;
}

bool mpi_keep(struct mpi_task *k)
{
	struct mpi_given *g = &k->given;

	return keep_tables(k) &&
	       (!g->in_type || g->in == MPI_IN_PLACE || keep_type(k, &g->in_type)) &&
	       (!g->type || !has_all(k) || keep_type(k, &g->type)) &&
	       (!g->out_type || g->out == MPI_IN_PLACE || keep_type(k, &g->out_type));
}

void mpi_free_kept(struct mpi_task *k)
{
	for (int i = 0; i < k->ntypes; i++)
		mpi_library()->Type_free(&k->types[i]);
	free(k->tables);
}
