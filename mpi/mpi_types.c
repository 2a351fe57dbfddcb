/*
 * mpi_types.c - the datatypes that MPI defines: elements without gaps, of a size that is looked up once
 *
 * Called by the other files of mpi/, several times in each collective, so a thread keeps the latest type that it found.
 */
#include <pthread.h>
#include <stddef.h>

#include "mpi/mpi_interpose.h"

/* Predefined types; the null type first, since a library without Fortran has it for Fortran's types, too */
static const struct {
	size_t at; /* of the handle in struct mpi_library */
	char kind;
} defined[] = {
#define TYPE(name, kind)                                 \
	{                                                \
		offsetof(struct mpi_library, name), kind \
	}
	TYPE(MPI_DATATYPE_NULL, 0),
	TYPE(MPI_INT, 'i'),
	TYPE(MPI_DOUBLE, 'f'),
	TYPE(MPI_FLOAT, 'f'),
	TYPE(MPI_BYTE, 'b'),
	TYPE(MPI_CHAR, 0),
	TYPE(MPI_LONG, 'i'),
	TYPE(MPI_UNSIGNED, 'u'),
	TYPE(MPI_UNSIGNED_LONG, 'u'),
	TYPE(MPI_LONG_LONG, 'i'),
	TYPE(MPI_UNSIGNED_LONG_LONG, 'u'),
	TYPE(MPI_SHORT, 0),
	TYPE(MPI_UNSIGNED_SHORT, 0),
	TYPE(MPI_SIGNED_CHAR, 'i'),
	TYPE(MPI_UNSIGNED_CHAR, 'u'),
	TYPE(MPI_INT8_T, 'i'),
	TYPE(MPI_INT16_T, 0),
	TYPE(MPI_INT32_T, 'i'),
	TYPE(MPI_INT64_T, 'i'),
	TYPE(MPI_UINT8_T, 'u'),
	TYPE(MPI_UINT16_T, 0),
	TYPE(MPI_UINT32_T, 'u'),
	TYPE(MPI_UINT64_T, 'u'),
	TYPE(MPI_AINT, 'i'),
	TYPE(MPI_OFFSET, 'i'),
	TYPE(MPI_INTEGER, 'i'),
	TYPE(MPI_REAL, 'f'),
	TYPE(MPI_DOUBLE_PRECISION, 'f'),
	TYPE(MPI_C_FLOAT_COMPLEX, 'c'),
	TYPE(MPI_C_DOUBLE_COMPLEX, 'c'),
	TYPE(MPI_COMPLEX, 'c'),
	TYPE(MPI_DOUBLE_COMPLEX, 'c'),
#undef TYPE
};

enum { TYPES = sizeof(defined) / sizeof(defined[0]) };
static struct mpi_type types[TYPES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread const struct mpi_type *latest;

/* Called in a collective, so between MPI_Init and MPI_Finalize. */
static void describe_all(void)
{
	const struct mpi_library *m = mpi_library();

	for (size_t i = 0; i < TYPES; i++) {
		struct mpi_type *t = &types[i];
		int size = 0;

		t->handle = *(const MPI_Datatype *)((const char *)m + defined[i].at);
		t->kind = defined[i].kind;
		if (t->handle == m->MPI_DATATYPE_NULL || m->Type_size(t->handle, &size))
			continue;
		t->size = (size_t)size;
	}
}

const struct mpi_type *mpi_predefined(MPI_Datatype handle)
{
	const struct mpi_type *t = latest;

	if (t && t->handle == handle)
		return t;
	pthread_once(&once, describe_all);
	for (size_t i = 0; i < TYPES; i++)
		if (types[i].handle == handle &&
		    (types[i].size || handle == mpi_library()->MPI_DATATYPE_NULL))
			return latest = &types[i];
	return NULL;
}
