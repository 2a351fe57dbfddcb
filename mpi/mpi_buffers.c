/*
 * mpi_buffers.c - MPI's operations as Tutti's, and buffers of derived types as bytes
 *
 * Called by mpi_calls.c and mpi_tasks.c. Ranks may describe the same data by different types, so a copy is always taken:
 * a type that is not predefined is packed by MPI.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi_interpose.h"

#define PIECE (1 << 30) /* most bytes that one call of MPI packs */

static bool op_of(const struct mpi_library *m, MPI_Op op, tuttiRedOp_t *ret_op)
{
	if (op == m->MPI_SUM)
		*ret_op = tuttiSum;
	else if (op == m->MPI_MAX)
		*ret_op = tuttiMax;
	else if (op == m->MPI_MIN)
		*ret_op = tuttiMin;
	else if (op == m->MPI_PROD)
		*ret_op = tuttiProd;
	else if (op == m->MPI_BAND)
		*ret_op = tuttiBand;
	else if (op == m->MPI_BOR)
		*ret_op = tuttiBor;
	else if (op == m->MPI_BXOR)
		*ret_op = tuttiBxor;
	else
		return false;
	return true;
}

/* Elements without gaps, from their address on, can be combined where they lie. Pairs have padding
 * that no program looks at. */
static bool is_dense(const struct mpi_library *m, MPI_Datatype t, MPI_Aint *ret_extent)
{
	MPI_Aint low, true_low, true_extent;
	bool pair = t == m->MPI_FLOAT_INT || t == m->MPI_DOUBLE_INT || t == m->MPI_LONG_INT ||
		    t == m->MPI_SHORT_INT || t == m->MPI_2INT;
	int size;

	return !m->Type_size(t, &size) && !m->Type_get_extent(t, &low, ret_extent) &&
	       !m->Type_get_true_extent(t, &true_low, &true_extent) && size > 0 && low == 0 &&
	       true_low == 0 && true_extent <= *ret_extent && (pair || size == *ret_extent);
}

/* MPI combines the elements, so all ops and types of MPI are right. */
static bool reduces_by_mpi(const struct mpi_library *m, MPI_Datatype datatype, MPI_Op op,
			   struct mpi_reduction *ret_reduction)
{
	MPI_Aint extent;

	if (!is_dense(m, datatype, &extent))
		return false;
	*ret_reduction = (struct mpi_reduction){ .type = tuttiUint8,
						 .per = (size_t)extent,
						 .bytes = 1,
						 .by_mpi = true,
						 .datatype = datatype,
						 .mpi_op = op };
	return true;
}

static void combine(const void *in, void *inout, size_t count, void *arg)
{
	const struct mpi_library *m = mpi_library();
	struct mpi_reduction *r = arg;
	const char *a = in;
	char *b = inout;
	int rc;

	for (size_t n; count; count -= n, a += n * r->per, b += n * r->per) {
		n = count < PIECE ? count : PIECE;
		rc = m->Reduce_local(a, b, (int)n, r->datatype, r->mpi_op);
		if (rc && !r->error)
			r->error = rc;
	}
}

tuttiResult_t mpi_reduction_begin(struct mpi_reduction *r, tuttiComm_t comm)
{
	return r->by_mpi ? tuttiRedOpCreate(&r->op, combine, r, r->per, comm) : tuttiSuccess;
}

void mpi_reduction_end(struct mpi_reduction *r, tuttiComm_t comm)
{
	if (r->by_mpi)
		tuttiRedOpDestroy(r->op, comm);
}

/* Has Tutti the op on elements of the type? */
static bool reduces_by_tutti(const struct mpi_library *m, MPI_Datatype datatype, MPI_Op op,
			     struct mpi_reduction *ret_reduction)
{
	struct mpi_reduction r = { .per = 1 };
	const struct mpi_type *type = mpi_predefined(datatype);
	char kind = type ? type->kind : 0;
	bool bits;
	size_t size;

	if (!kind || !op_of(m, op, &r.op))
		return false;
	size = type->size;
	bits = r.op >= tuttiBand;
	if (kind == 'b')
		kind = bits ? 'u' : 0;
	if (kind == 'c') {
		kind = r.op == tuttiSum ? 'f' : 0;
		r.per = 2;
		size /= 2;
	}
	if (kind == 'f' && !bits && (size == 4 || size == 8))
		r.type = size == 4 ? tuttiFloat32 : tuttiFloat64;
	else if (kind == 'i' && (size == 1 || size == 4 || size == 8))
		r.type = size == 1 ? tuttiInt8 : size == 4 ? tuttiInt32 : tuttiInt64;
	else if (kind == 'u' && (size == 1 || size == 4 || size == 8))
		r.type = size == 1 ? tuttiUint8 : size == 4 ? tuttiUint32 : tuttiUint64;
	else
		return false;
	r.bytes = size;
	*ret_reduction = r;
	return true;
}

/* An op of MPI that is not for elements of the type. MPI_Reduce_local would raise the error on MPI_COMM_WORLD. */
static bool is_wrong(const struct mpi_library *m, MPI_Datatype datatype, MPI_Op op)
{
	bool logical = op == m->MPI_LAND || op == m->MPI_LOR || op == m->MPI_LXOR;
	bool bits = op == m->MPI_BAND || op == m->MPI_BOR || op == m->MPI_BXOR;
	bool sum = op == m->MPI_SUM || op == m->MPI_PROD;
	bool most = op == m->MPI_MAX || op == m->MPI_MIN;
	bool pair = op == m->MPI_MINLOC || op == m->MPI_MAXLOC;
	const struct mpi_type *type = mpi_predefined(datatype);
	int integers, addresses, types = 0, combiner;

	if (!logical && !bits && !sum && !most && !pair)
		return false;
	switch (type ? type->kind : 0) {
	case 'i':
	case 'u':
		return pair;
	case 'f':
		return !sum && !most;
	case 'c':
		return !sum;
	case 'b':
		return !bits;
	default: /* a derived type is made of others */
		return m->Type_get_envelope(datatype, &integers, &addresses, &types, &combiner) ||
		       types;
	}
}

bool mpi_reduces(MPI_Datatype datatype, MPI_Op op, struct mpi_reduction *ret_reduction)
{
	const struct mpi_library *m = mpi_library();
	bool typed = datatype != m->MPI_DATATYPE_NULL, null = !typed || op == m->MPI_OP_NULL;

	if (!null && reduces_by_tutti(m, datatype, op, ret_reduction))
		return true;
	if (null || is_wrong(m, datatype, op)) {
		*ret_reduction = (struct mpi_reduction){ .wrong = typed ? MPI_ERR_OP
									: MPI_ERR_TYPE };
		return true;
	}
	return reduces_by_mpi(m, datatype, op, ret_reduction);
}

/* ---- sides ----------------------------------------------------------------------------------- */

MPI_Count mpi_entry(struct mpi_table table, int p)
{
	return table.width == sizeof(int) ? ((const int *)table.at)[p]
					  : ((const MPI_Count *)table.at)[p];
}

static MPI_Count count_of(const struct mpi_side *s, int p)
{
	return s->counts->at ? mpi_entry(*s->counts, p) : s->count;
}

size_t mpi_side_bytes(const struct mpi_side *s, int p)
{
	return (size_t)count_of(s, p) * s->size;
}

/* Distance of part p from the program's buffer */
static ptrdiff_t place(const struct mpi_side *s, int p)
{
	return (s->displs->at ? mpi_entry(*s->displs, p) : s->count * p) * s->extent;
}

size_t mpi_side_start(const struct mpi_side *s, int p)
{
	size_t at = 0;

	if (!s->packed)
		return (size_t)place(s, p);
	for (int i = 0; i < p; i++)
		at += mpi_side_bytes(s, i);
	return at;
}

/* Move a part between the program's buffer and the packed bytes. */
static bool move_part(const struct mpi_side *s, int p, bool in)
{
	const struct mpi_library *m = mpi_library();
	char *user = s->user + place(s, p), *bytes = s->bytes + mpi_side_start(s, p);
	int most = s->size && s->size < PIECE ? (int)(PIECE / s->size) : 1, n;

	for (MPI_Count left = count_of(s, p); left > 0; left -= n) {
		int at = 0, length;

		n = left < most ? (int)left : most;
		length = (int)((size_t)n * s->size);
		if (in ? m->Pack(user, n, s->datatype, bytes, length, &at, s->mpi)
		       : m->Unpack(bytes, length, &at, user, n, s->datatype, s->mpi))
			return false;
		user += n * s->extent;
		bytes += length;
	}
	return true;
}

bool mpi_side_open(struct mpi_side *s, MPI_Comm mpi, const void *user, int nparts, MPI_Count count,
		   const struct mpi_table *counts, const struct mpi_table *displs,
		   MPI_Datatype datatype, bool filled)
{
	const struct mpi_type *type = mpi_predefined(datatype);
	const struct mpi_library *m;
	MPI_Aint low = 0;
	size_t total;
	int size = 0;

	s->mpi = mpi;
	s->datatype = datatype;
	s->user = s->bytes = (char *)(uintptr_t)user;
	s->size = type ? type->size : 0;
	s->extent = (MPI_Aint)s->size;
	s->nparts = nparts;
	s->count = count;
	s->counts = counts;
	s->displs = displs;
	s->packed = false;
	if (type)
		return true;
	m = mpi_library();
	if (m->Type_size(datatype, &size) || size < 0 /* of 2 GiB and more */ ||
	    m->Type_get_extent(datatype, &low, &s->extent))
		return false;
	s->size = (size_t)size;
	s->packed = true;
	total = mpi_side_start(s, nparts);
	s->bytes = malloc(total + 1);
	for (int p = 0; p < nparts && filled && s->bytes; p++)
		if (!move_part(s, p, true)) {
			free(s->bytes);
			s->bytes = NULL;
		}
	s->packed = s->bytes;
	return s->packed;
}

bool mpi_side_close(struct mpi_side *s, bool out)
{
	bool moved = true;

	if (!s->packed)
		return true;
	for (int p = 0; p < s->nparts && out && moved; p++)
		moved = move_part(s, p, false);
	free(s->bytes);
	s->bytes = NULL;
	s->packed = false; /* a persistent request closes it again if it cannot open it */
	return moved;
}
