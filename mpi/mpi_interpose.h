/*
 * mpi_interpose.h - shared by the files of mpi/: MPI's collectives on Tutti, for a program that is
 * started with LD_PRELOAD=libtutti-mpi-....so
 *
 *   mpi_calls.c     MPI_Allreduce and the others: take the call, or pass it on
 *   mpi_comms.c     the Tutti communicator of an MPI communicator
 *   mpi_buffers.c   datatypes and operations; data of derived types, packed
 *   mpi_library.c   the MPI library of the process, and what was taken (TUTTI_MPI_STATS)
 */
#ifndef MPI_INTERPOSE_H
#define MPI_INTERPOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "mpi/mpi_abi.h"
#include "tutti.h"

/* mpi_library.c: the functions of MPI under their profiling names (PMPI_), and its handles */
struct mpi_library {
#define FUNCTION(name, ...) int (*name)(__VA_ARGS__);
	MPI_TAKEN(FUNCTION)
	MPI_USED(FUNCTION)
#undef FUNCTION
#define HANDLE(name, object, number) MPI_Comm name;
	MPI_COMMS(HANDLE)
#undef HANDLE
#define HANDLE(name, object, number) MPI_Datatype name;
	MPI_TYPES(HANDLE)
#undef HANDLE
#define HANDLE(name, object, number) MPI_Op name;
	MPI_OPS(HANDLE)
#undef HANDLE
};
/* Loaded by the first call; a process without an MPI library ends with a sentence. */
const struct mpi_library *mpi_library(void);

enum mpi_call {
#define NUMBER(name, ...) mpi_##name,
	MPI_TAKEN(NUMBER)
#undef NUMBER
		MPI_CALLS
};
/* Count a call that began at began_ns (mpi_clock); taken: by Tutti. */
uint64_t mpi_clock(void); /* 0 unless TUTTI_MPI_STATS=1 */
void mpi_count(enum mpi_call call, bool taken, uint64_t began_ns);
void mpi_print_counts(int rank);

/* mpi_comms.c: Tutti's side of an MPI communicator */
struct mpi_tutti {
	MPI_Comm mpi;
	tuttiComm_t comm; /* NULL: all of its calls are passed on, on every rank */
	int rank, n;
	size_t *table[4]; /* [n] counts and displacements of a call */
};
/* The record of comm; the first call joins, on all ranks. NULL: pass on. */
struct mpi_tutti *mpi_tutti_of(MPI_Comm comm);
void mpi_free_world(void);
/* The result of a call of Tutti as MPI's: an error goes to the communicator's error handler. */
int mpi_result(const struct mpi_tutti *t, tuttiResult_t result);

/* mpi_buffers.c */
struct mpi_reduction {
	tuttiDataType_t type;
	tuttiRedOp_t op;
	size_t per;   /* elements of Tutti's type in one of MPI's */
	size_t bytes; /* of an element of Tutti's type */
	/* the function combines elements by MPI_Reduce_local: */
	bool by_mpi;
	MPI_Datatype datatype;
	MPI_Op mpi_op;
	int error; /* the first that MPI_Reduce_local returned */
};
/* Can op on elements of this datatype be taken? The answer is equal on all ranks: MPI wants the same
 * op and the same type from them. */
bool mpi_reduces(MPI_Datatype datatype, MPI_Op op, struct mpi_reduction *ret_reduction);
/* Before and after the call: make and destroy the op of a reduction by MPI_Reduce_local. end
 * returns the result of the call. */
tuttiResult_t mpi_reduction_begin(struct mpi_reduction *reduction, tuttiComm_t comm);
int mpi_reduction_end(struct mpi_reduction *reduction, const struct mpi_tutti *t,
		      tuttiResult_t result);

/* Parts of a buffer as bytes without gaps. Data of predefined types stays where it is; other types
 * are packed into memory of their own. */
struct mpi_side {
	MPI_Comm mpi;
	MPI_Datatype datatype;
	char *user;        /* buffer of the program */
	char *bytes;       /* of the parts: user, or packed */
	size_t size;       /* bytes of an element */
	MPI_Aint extent;   /* distance of elements in user */
	int nparts, count; /* count: elements of each part, without tables */
	const int *counts; /* [nparts] or NULL */
	const int *displs; /* [nparts] or NULL: part p begins count * p later */
	bool packed;
};
/* Describe a side. `filled`: the data of its parts goes in. false: no memory, or MPI cannot pack */
bool mpi_side_open(struct mpi_side *side, MPI_Comm mpi, const void *user, int nparts, int count,
		   const int *counts, const int *displs, MPI_Datatype datatype, bool filled);
/* Bytes and place in `bytes` of part p. Parts of a packed side are adjacent. */
size_t mpi_side_bytes(const struct mpi_side *side, int p);
size_t mpi_side_start(const struct mpi_side *side, int p);
/* Unpack (out: the parts were received) and free. false: MPI cannot */
bool mpi_side_close(struct mpi_side *side, bool out);

#endif
