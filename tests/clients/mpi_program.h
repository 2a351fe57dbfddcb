/*
 * mpi_program.h - shared by the files of mpi_program: MPI as mpi_abi.h states it, so no header of MPI is needed
 */
#ifndef MPI_PROGRAM_H
#define MPI_PROGRAM_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi_abi.h"

#ifdef TUTTI_MPI_ABI
#define MPI_THREAD_MULTIPLE 4096
#else
#define MPI_THREAD_MULTIPLE 3
#endif

#define MPI_MORE(X)                                                                   \
	X(Isend, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)  \
	X(Recv, void *, int, MPI_Datatype, int, int, MPI_Comm, void *)                \
	X(Error_class, int, int *)                                                    \
	X(Abort, MPI_Comm, int)                                                       \
	X(Comm_split, MPI_Comm, int, int, MPI_Comm *)                                 \
	X(Type_vector, int, int, int, MPI_Datatype, MPI_Datatype *)                   \
	X(Type_commit, MPI_Datatype *)                                                \
	X(Type_free, MPI_Datatype *)                                                  \
	X(Init_thread, int *, char ***, int, int *)                                   \
	X(Intercomm_create, MPI_Comm, int, MPI_Comm, int, int, MPI_Comm *)            \
	X(Scan, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)            \
	X(Op_create, void (*)(void *, void *, int *, MPI_Datatype *), int, MPI_Op *)  \
	X(Op_free, MPI_Op *)                                                          \
	X(Comm_create_errhandler, void (*)(MPI_Comm *, int *, ...), MPI_Errhandler *) \
	X(Errhandler_free, MPI_Errhandler *)

#define DECLARE(name, ...) int MPI_##name(__VA_ARGS__);
#define BOTH_FORMS(c, name, started, ...) \
	DECLARE(name, __VA_ARGS__)        \
	DECLARE(started, __VA_ARGS__, MPI_Request *)
MPI_TAKEN(BOTH_FORMS)
MPI_STARTING(DECLARE)
MPI_COMPLETING(DECLARE)
MPI_USED(DECLARE)
MPI_MORE(DECLARE)
#undef BOTH_FORMS
#undef DECLARE

#define MPI_INFOS(X) X(MPI_INFO_NULL, ompi_mpi_info_null, 0x1c000000, 0x130)
#define HANDLE(name, ...) extern MPI_Datatype name;
MPI_TYPES(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) extern MPI_Op name;
MPI_OPS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) extern MPI_Comm name;
MPI_COMMS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) extern MPI_Info name;
MPI_INFOS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) extern MPI_Errhandler name;
MPI_ERRHANDLERS(HANDLE)
#undef HANDLE

extern int rank, n, failures; /* of MPI_COMM_WORLD; failures: facts that are not as they must be */
#define WANT(fact)                                                                            \
	do {                                                                                  \
		if (fact)                                                                     \
			break;                                                                \
		fprintf(stderr, "rank %d, %s:%d: not %s\n", rank, __FILE__, __LINE__, #fact); \
		failures++;                                                                   \
	} while (0)

/* A function of the MPI library itself, by its profiling name (PMPI_) */
void *find_own(const char *name);
/* The function MPI_NAME, which MPI libraries older than MPI 4 lack. */
void *find_persistent(const char *name);

/* The modes of the program, described in mpi_program.c */
void mode_pending(void), mode_started(void), mode_persistent(void), mode_equal(void),
	mode_dups(void), mode_errors(void), mode_arguments(void), mode_orders(void),
	mode_inter(void), mode_threads(void), mode_times(void), mode_large(void);
extern int times; /* of mode_dups, mode_large and mode_times */

#endif
