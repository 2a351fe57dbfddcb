/*
 * mpi_arguments.c - wrong arguments of a collective: refused before the rank takes part, with MPI's class of the error
 *
 * Called by mpi_calls.c. MPI says which arguments each rank gives: a type that only the root needs may be null elsewhere
 * (mpi4py does so). A null type of no elements is right.
 */
#include <stdio.h>

#include "mpi/mpi_interpose.h"

#define WRONG(class, ...) (snprintf(k->why, sizeof(k->why), __VA_ARGS__), class)

/* Is the type committed? MPI_Pack of no elements says so, and raises the error on the communicator itself. */
static int check_type(struct mpi_task *k, MPI_Datatype type)
{
	char none[1];
	int at = 0;

	if (mpi_predefined(type))
		return MPI_SUCCESS;
	k->raised = mpi_library()->Pack(none, 0, type, none, 0, &at, k->t->mpi);
	return k->raised ? WRONG(MPI_ERR_TYPE, "the datatype is not committed") : MPI_SUCCESS;
}

/* A buffer with elements, or without. type: NULL in reductions. An address of a derived type may be absolute. */
static int check_buffer(struct mpi_task *k, const void *buffer, bool elements,
			const MPI_Datatype *type)
{
	if (buffer == MPI_IN_PLACE)
		return WRONG(MPI_ERR_BUFFER, "MPI_IN_PLACE is not for this buffer");
	if (!elements)
		return MPI_SUCCESS;
	if (type && *type == mpi_library()->MPI_DATATYPE_NULL)
		return WRONG(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL");
	if (!buffer && (!type || mpi_predefined(*type)))
		return WRONG(MPI_ERR_BUFFER, "the buffer is NULL");
	return type ? check_type(k, *type) : MPI_SUCCESS;
}

static int check_count(struct mpi_task *k, const void *buffer, MPI_Count count,
		       const MPI_Datatype *type)
{
	if (count < 0)
		return WRONG(MPI_ERR_COUNT, "the count is %lld", (long long)count);
	return check_buffer(k, buffer, count, type);
}

/* A part of each rank */
static int check_counts(struct mpi_task *k, const void *buffer, const struct mpi_table *counts,
			const struct mpi_table *displs, const MPI_Datatype *type)
{
	bool elements = false;

	if (!counts->at)
		return WRONG(MPI_ERR_ARG, "the table of counts is NULL");
	for (int p = 0; p < k->t->n; p++) {
		MPI_Count count = mpi_entry(*counts, p);

		if (count < 0)
			return WRONG(MPI_ERR_COUNT, "the count of rank %d is %lld", p,
				     (long long)count);
		elements = elements || count;
	}
	if (elements && displs->width && !displs->at)
		return WRONG(MPI_ERR_ARG, "the table of displacements is NULL");
	return check_buffer(k, buffer, elements, type);
}

/* The parts of all ranks: one count, or tables */
static int check_all(struct mpi_task *k, const void *buffer, const MPI_Datatype *type)
{
	const struct mpi_given *g = &k->given;

	return g->counts.width ? check_counts(k, buffer, &g->counts, &g->displs, type)
			       : check_count(k, buffer, g->count, type);
}

static int check_reduction(struct mpi_task *k, bool gets)
{
	const struct mpi_given *g = &k->given;
	int class = k->reduction.wrong;

	if (class)
		return WRONG(class, "the operation is not for elements of the datatype");
	class = gets ? check_all(k, g->out, NULL) : MPI_SUCCESS;

	return class || (gets && g->in == MPI_IN_PLACE) ? class : check_all(k, g->in, NULL);
}

static int check_scatter(struct mpi_task *k, bool at_root)
{
	const struct mpi_given *g = &k->given;
	int class = at_root ? check_all(k, g->in, &g->type) : MPI_SUCCESS;

	return class || (at_root && g->out == MPI_IN_PLACE)
		       ? class
		       : check_count(k, g->out, g->out_count, &g->out_type);
}

/* Gathers, and exchanges of all with all */
static int check_gather(struct mpi_task *k, bool gets)
{
	const struct mpi_given *g = &k->given;
	int class = gets ? check_all(k, g->out, &g->type) : MPI_SUCCESS;

	if (class || (gets && g->in == MPI_IN_PLACE))
		return class;
	return g->in_counts.width
		       ? check_counts(k, g->in, &g->in_counts, &g->in_displs, &g->in_type)
		       : check_count(k, g->in, g->in_count, &g->in_type);
}

int mpi_check(struct mpi_task *k)
{
	const struct mpi_given *g = &k->given;
	bool at_root = g->root == MPI_ALL || g->root == k->t->rank;

	if (k->begin == mpi_begin_barrier)
		return MPI_SUCCESS;
	if (g->root != MPI_ALL && (g->root < 0 || g->root >= k->t->n))
		return WRONG(MPI_ERR_ROOT, "the root is %d of %d ranks", g->root, k->t->n);
	if (k->begin == mpi_begin_bcast)
		return check_count(k, g->out, g->out_count, &g->out_type);
	if (k->begin == mpi_begin_scatter)
		return check_scatter(k, at_root);
	if (k->begin == mpi_begin_reduce)
		return check_reduction(k, at_root);
	if (k->begin == mpi_begin_allreduce || k->begin == mpi_begin_reduce_scatter)
		return check_reduction(k, true);
	return check_gather(k, at_root);
}

int mpi_refuse(struct mpi_task *k, const char *call)
{
	fprintf(stderr, "libtutti-mpi: rank %d: %s: %s\n", k->t->rank, call, k->why);
	if (!k->raised)
		mpi_library()->Comm_call_errhandler(k->t->mpi, k->error);
	return k->error;
}
