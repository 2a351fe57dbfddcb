/*
 * mpi_interpose.h - shared by the files of mpi/: MPI's collectives on Tutti, for a program that is
 * started with LD_PRELOAD=libtutti-mpi-....so
 *
 *   mpi_calls.c     MPI_Allreduce, MPI_Iallreduce and the others: take the call, refuse it, or pass it on
 *   mpi_arguments.c wrong arguments
 *   mpi_tasks.c     each collective by a call of Tutti
 *   mpi_requests.c  requests of calls that only start, and the functions that complete them
 *   mpi_persistent.c  requests that start many times
 *   mpi_kept.c      arguments of calls that only start
 *   mpi_comms.c     the Tutti communicator of an MPI communicator
 *   mpi_types.c     the datatypes that MPI defines
 *   mpi_buffers.c   operations; data of derived types, packed
 *   mpi_library.c   the MPI library of the process, and what was taken (TUTTI_MPI_STATS)
 */
#ifndef MPI_INTERPOSE_H
#define MPI_INTERPOSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "mpi/mpi_abi.h"
#include "tutti.h"

/* MPI's functions that the library replaces */
#define EXPORT __attribute__((visibility("default")))
EXPORT int MPI_Finalize(void);
#define DECLARE(name, ...) EXPORT int MPI_##name(__VA_ARGS__);
#define FORMS(c, name, started, ...)                    \
	DECLARE(name##c, __VA_ARGS__)                   \
	DECLARE(started##c, __VA_ARGS__, MPI_Request *) \
	DECLARE(name##_init##c, __VA_ARGS__, MPI_Info, MPI_Request *)
MPI_TAKEN(FORMS)
MPI_LARGE(FORMS)
MPI_STARTING(DECLARE)
MPI_COMPLETING(DECLARE)
#undef FORMS
#undef DECLARE

/* Open MPI's functions of Fortran call those of C by their profiling names, so these are replaced, too.
 * Of a function of the same file. */
#ifdef TUTTI_MPI_OMPI
#define PROFILED(name, ...) \
	EXPORT int PMPI_##name(__VA_ARGS__) __attribute__((alias("MPI_" #name)));
#else
#define PROFILED(name, ...)
#endif

/* mpi_library.c: the functions of MPI under their profiling names (PMPI_), and its handles */
struct mpi_library {
#define FUNCTION(name, ...) int (*name)(__VA_ARGS__);
/* persistent and large forms are NULL in a library older than MPI 4 */
#define FORMS(c, name, started, ...)                   \
	int (*name##c)(__VA_ARGS__);                   \
	int (*started##c)(__VA_ARGS__, MPI_Request *); \
	int (*name##_init##c)(__VA_ARGS__, MPI_Info, MPI_Request *);
	MPI_TAKEN(FORMS)
	MPI_LARGE(FORMS)
	MPI_STARTING(FUNCTION)
	MPI_COMPLETING(FUNCTION)
	MPI_USED(FUNCTION)
#undef FORMS
#undef FUNCTION
#define HANDLE(name, ...) MPI_Comm name;
	MPI_COMMS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Request name;
	MPI_REQUESTS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Errhandler name;
	MPI_ERRHANDLERS(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Datatype name;
	MPI_TYPES(HANDLE)
#undef HANDLE
#define HANDLE(name, ...) MPI_Op name;
	MPI_OPS(HANDLE)
#undef HANDLE
};
/* Loaded by the first call; a process without an MPI library ends with a sentence. */
const struct mpi_library *mpi_library(void);

enum mpi_call {
#define NUMBER(c, name, started, ...) mpi_##name##c, mpi_##started##c, mpi_##name##_init##c,
	MPI_TAKEN(NUMBER) MPI_LARGE(NUMBER)
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
	bool tried;       /* to join */
	tuttiComm_t comm; /* NULL, once tried: all of its calls are passed on, on every rank */
	int rank, n;
	size_t *table[4];     /* [n] counts and displacements of a call */
	tuttiStream_t stream; /* of calls that only start; NULL before the first */
	atomic_int running;   /* of these, not yet complete */
	atomic_int holders;   /* the MPI communicator and persistent requests */
};
/* Wait until no call that was only started runs, and drive MPI's progress meanwhile. */
void mpi_drain(struct mpi_tutti *t);
/* One holder of t more, and one less: the last frees t. */
void mpi_hold(struct mpi_tutti *t);
void mpi_release(struct mpi_tutti *t);
void mpi_free_world(void);
/* The result of a call of Tutti as MPI's: an error goes to the communicator's error handler. */
int mpi_result(const struct mpi_tutti *t, tuttiResult_t result);

/* mpi_types.c: a type that MPI defines, of which elements lie without gaps */
struct mpi_type {
	MPI_Datatype handle;
	char kind; /* i and u integers, f floats, c complex (f twice), b bytes; 0: not for reductions */
	size_t size; /* bytes of an element; 0: of the null type */
};
/* NULL: a type of the program, or a pair */
const struct mpi_type *mpi_predefined(MPI_Datatype handle);

/* mpi_buffers.c */
struct mpi_reduction {
	int wrong; /* MPI's class of the error: the op is not for the datatype */
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
/* Can op on elements of this datatype be taken, or is it wrong? The answer is equal on all ranks: MPI wants the same
 * op and the same type from them. */
bool mpi_reduces(MPI_Datatype datatype, MPI_Op op, struct mpi_reduction *ret_reduction);
/* Make and destroy the op of a reduction by MPI_Reduce_local, before and after the call of Tutti. */
tuttiResult_t mpi_reduction_begin(struct mpi_reduction *reduction, tuttiComm_t comm);
void mpi_reduction_end(struct mpi_reduction *reduction, tuttiComm_t comm);

/* Counts or displacements of parts, as the program gives them */
struct mpi_table {
	const void *at; /* [n] int or MPI_Count; or NULL */
	size_t width;   /* bytes of an entry */
};
MPI_Count mpi_entry(struct mpi_table table, int p);

/* Parts of a buffer as bytes without gaps. Data of predefined types stays where it is; other types
 * are packed into memory of their own. */
struct mpi_side {
	MPI_Comm mpi;
	MPI_Datatype datatype;
	char *user;      /* buffer of the program */
	char *bytes;     /* of the parts: user, or packed */
	size_t size;     /* bytes of an element */
	MPI_Aint extent; /* distance of elements in user */
	int nparts;
	MPI_Count count;                         /* elements of each part, without tables */
	const struct mpi_table *counts, *displs; /* displs empty: part p begins count * p later */
	bool packed;
};
/* Describe a side; the tables, which may be empty, stay the caller's. `filled`: the data of its parts goes in. false: no
 * memory, or MPI cannot pack */
bool mpi_side_open(struct mpi_side *side, MPI_Comm mpi, const void *user, int nparts,
		   MPI_Count count, const struct mpi_table *counts, const struct mpi_table *displs,
		   MPI_Datatype datatype, bool filled);
/* Bytes and place in `bytes` of part p. Parts of a packed side are adjacent. */
size_t mpi_side_bytes(const struct mpi_side *side, int p);
size_t mpi_side_start(const struct mpi_side *side, int p);
/* Unpack (out: the parts were received) and free. false: MPI cannot */
bool mpi_side_close(struct mpi_side *side, bool out);

/* mpi_tasks.c: a call that Tutti takes */

/* The parameters of MPI's call; those that a collective lacks are 0. */
struct mpi_given {
	const void *in;
	void *out;
	MPI_Count in_count, count, out_count;
	struct mpi_table in_counts, in_displs, counts, displs;
	MPI_Datatype in_type, type, out_type;
	int root;    /* MPI_ALL: every rank gets all */
	bool uneven; /* the parts are counts and displs, which only a rank with all of them knows */
};
#define MPI_ALL (-1)

struct mpi_task;
typedef tuttiResult_t mpi_begin_fn(struct mpi_task *k);
struct mpi_task {
	mpi_begin_fn *begin; /* its call of Tutti; again for each start of a persistent request */
	struct mpi_given given;
	struct mpi_tutti *t;
	tuttiStream_t stream;    /* NULL: the call waits */
	struct mpi_side in, out; /* all 0: none */
	bool receives;           /* the data of out comes by the call */
	struct mpi_reduction reduction;
	char *part; /* in place: the result, which goes to the start of `out` at the end; or NULL */
	size_t bytes; /* of the part */
	int error;    /* of the task itself: a wrong argument, or MPI could not pack */
	/* mpi_arguments.c */
	char why[64]; /* the sentence of a wrong argument */
	bool raised;  /* the MPI library has called the error handler */
	/* mpi_kept.c */
	char *tables;          /* the four tables of given; or NULL */
	MPI_Datatype types[3]; /* duplicates */
	int ntypes;
	/* mpi_requests.c */
	struct mpi_task *next;
	MPI_Request request;
	tuttiResult_t result;
	atomic_bool reached;
	int tag;         /* of the message that completes the request */
	bool given_back; /* the program has called MPI_Request_free */
	/* mpi_persistent.c */
	bool persistent;
	struct mpi_task *next_persistent;
};
mpi_begin_fn mpi_begin_allreduce, mpi_begin_reduce, mpi_begin_reduce_scatter, mpi_begin_bcast,
	mpi_begin_gather, mpi_begin_scatter, mpi_begin_alltoall, mpi_begin_alltoallv,
	mpi_begin_barrier;
/* The end of a task whose call of Tutti is complete: unpack, free; the result as MPI's. */
int mpi_end_task(struct mpi_task *k, tuttiResult_t result);

/* mpi_comms.c */
/* Find k->t of comm; the first right call with may_join joins, on all ranks. k->error: wrong arguments, which other ranks
 * need not have given. false: pass on */
bool mpi_take(struct mpi_task *k, MPI_Comm comm, bool may_join);

/* mpi_arguments.c */
/* The class of a wrong argument of this rank, with its sentence in k->why; or MPI_SUCCESS */
int mpi_check(struct mpi_task *k);
/* The result of a call with a wrong argument: k->error, after the communicator's error handler */
int mpi_refuse(struct mpi_task *k, const char *call);

/* mpi_requests.c */
/* free() frees a task that no request has. */
struct mpi_task *mpi_new_task(mpi_begin_fn *begin, const struct mpi_given *given);
/* Give the task the stream of comm, which joins Tutti if it may. k->error: wrong arguments. false: pass on */
bool mpi_may_start(struct mpi_task *k, MPI_Comm comm, bool may_join);
/* Make the request of a task, which belongs to the request then; on failure the task is gone. */
int mpi_make_request(struct mpi_task *k);
void mpi_free_task(struct mpi_task *k);
/* Start a task on its stream. Its request is completed, also after a failure, in the program's thread. */
void mpi_run(struct mpi_task *k);
/* Make the request of a task and start it. */
int mpi_start(struct mpi_task *k, MPI_Request *ret_request);
/* Complete the requests whose calls are complete. */
void mpi_complete_requests(void);
void mpi_end_requests(void); /* before MPI_Finalize */

/* mpi_kept.c: arguments of a call that only starts. The program may free them when the call returns. */
bool mpi_keep(struct mpi_task *k); /* false: no memory */
void mpi_free_kept(struct mpi_task *k);

/* mpi_persistent.c */
/* Make the persistent request of a task. */
int mpi_make_persistent(struct mpi_task *k, MPI_Request *ret_request);
/* Free a persistent request that does not run. false: it is none of these */
bool mpi_free_persistent(MPI_Request *request, int *ret_rc);

#endif
