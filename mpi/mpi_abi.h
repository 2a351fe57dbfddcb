/*
 * mpi_abi.h - the part of an MPI library's binary interface that the interposer uses
 *
 * Written from the MPI standard and the published numbers of each library, so that no header of MPI
 * is needed to build. One of TUTTI_MPI_OMPI (Open MPI 4 and 5), TUTTI_MPI_MPICH (MPICH's ABI: MPICH 3
 * to 5, Intel MPI, MVAPICH) and TUTTI_MPI_ABI (the standard ABI of MPI 5) is defined. Handles are
 * compared by value only.
 */
#ifndef MPI_ABI_H
#define MPI_ABI_H

#include <stdint.h>

#define MPI_SUCCESS 0
#define MPI_ERR_BUFFER 1
#define MPI_ERR_COUNT 2
#define MPI_ERR_TYPE 3

#ifdef TUTTI_MPI_OMPI
typedef struct mpi_comm_object *MPI_Comm;
typedef struct mpi_type_object *MPI_Datatype;
typedef struct mpi_op_object *MPI_Op;
typedef struct mpi_request_object *MPI_Request;
typedef struct mpi_info_object *MPI_Info;
typedef struct mpi_errhandler_object *MPI_Errhandler;
#define MPI_LIBRARIES "libmpi.so.40"
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE NULL
#define MPI_ANY_SOURCE (-1)
#define MPI_ANY_TAG (-1)
#define MPI_ERR_ROOT 8
#define MPI_ERR_OP 10
#define MPI_ERR_ARG 13
#define MPI_ERR_OTHER 16
#define MPI_KEYVAL_INVALID (-1)
#elif defined(TUTTI_MPI_ABI)
typedef struct mpi_comm_object *MPI_Comm;
typedef struct mpi_type_object *MPI_Datatype;
typedef struct mpi_op_object *MPI_Op;
typedef struct mpi_request_object *MPI_Request;
typedef struct mpi_info_object *MPI_Info;
typedef struct mpi_errhandler_object *MPI_Errhandler;
#define MPI_LIBRARIES "libmpi_abi.so.1"
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE NULL
#define MPI_ANY_SOURCE (-1)
#define MPI_ANY_TAG (-2)
#define MPI_ERR_ROOT 8
#define MPI_ERR_OP 10
#define MPI_ERR_ARG 13
#define MPI_ERR_OTHER 16
#define MPI_KEYVAL_INVALID 0
#else
typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef int MPI_Request;
typedef int MPI_Info;
typedef int MPI_Errhandler;
#define MPI_LIBRARIES "libmpich.so.12", "libmpi.so.12" /* Debian's name, and that of all others */
#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((void *)1)
#define MPI_ANY_SOURCE (-2)
#define MPI_ANY_TAG (-1)
#define MPI_ERR_ROOT 7
#define MPI_ERR_OP 9
#define MPI_ERR_ARG 12
#define MPI_ERR_OTHER 15
#define MPI_KEYVAL_INVALID 0x24000000
#endif

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
#define PAIR(number) ((int)(number)) /* numbers of pairs have the highest bit */

/* Handles: name, Open MPI's object, MPICH's number, number of the standard ABI */
#define MPI_COMMS(X)                                              \
	X(MPI_COMM_WORLD, ompi_mpi_comm_world, 0x44000000, 0x101) \
	X(MPI_COMM_SELF, ompi_mpi_comm_self, 0x44000001, 0x102)   \
	X(MPI_COMM_NULL, ompi_mpi_comm_null, 0x04000000, 0x100)

#define MPI_REQUESTS(X) X(MPI_REQUEST_NULL, ompi_request_null, 0x2c000000, 0x180)

#define MPI_ERRHANDLERS(X) X(MPI_ERRORS_RETURN, ompi_mpi_errors_return, 0x54000001, 0x143)

#define MPI_TYPES(X)                                                              \
	X(MPI_DATATYPE_NULL, ompi_mpi_datatype_null, 0x0c000000, 0x200)           \
	X(MPI_CHAR, ompi_mpi_char, 0x4c000101, 0x243)                             \
	X(MPI_SIGNED_CHAR, ompi_mpi_signed_char, 0x4c000118, 0x244)               \
	X(MPI_UNSIGNED_CHAR, ompi_mpi_unsigned_char, 0x4c000102, 0x245)           \
	X(MPI_BYTE, ompi_mpi_byte, 0x4c00010d, 0x247)                             \
	X(MPI_SHORT, ompi_mpi_short, 0x4c000203, 0x208)                           \
	X(MPI_UNSIGNED_SHORT, ompi_mpi_unsigned_short, 0x4c000204, 0x20c)         \
	X(MPI_INT, ompi_mpi_int, 0x4c000405, 0x209)                               \
	X(MPI_UNSIGNED, ompi_mpi_unsigned, 0x4c000406, 0x20d)                     \
	X(MPI_LONG, ompi_mpi_long, 0x4c000807, 0x20a)                             \
	X(MPI_UNSIGNED_LONG, ompi_mpi_unsigned_long, 0x4c000808, 0x20e)           \
	X(MPI_LONG_LONG, ompi_mpi_long_long_int, 0x4c000809, 0x20b)               \
	X(MPI_UNSIGNED_LONG_LONG, ompi_mpi_unsigned_long_long, 0x4c000819, 0x20f) \
	X(MPI_FLOAT, ompi_mpi_float, 0x4c00040a, 0x210)                           \
	X(MPI_DOUBLE, ompi_mpi_double, 0x4c00080b, 0x214)                         \
	X(MPI_INT8_T, ompi_mpi_int8_t, 0x4c000137, 0x240)                         \
	X(MPI_INT16_T, ompi_mpi_int16_t, 0x4c000238, 0x248)                       \
	X(MPI_INT32_T, ompi_mpi_int32_t, 0x4c000439, 0x250)                       \
	X(MPI_INT64_T, ompi_mpi_int64_t, 0x4c00083a, 0x258)                       \
	X(MPI_UINT8_T, ompi_mpi_uint8_t, 0x4c00013b, 0x241)                       \
	X(MPI_UINT16_T, ompi_mpi_uint16_t, 0x4c00023c, 0x249)                     \
	X(MPI_UINT32_T, ompi_mpi_uint32_t, 0x4c00043d, 0x251)                     \
	X(MPI_UINT64_T, ompi_mpi_uint64_t, 0x4c00083e, 0x259)                     \
	X(MPI_AINT, ompi_mpi_aint, 0x4c000843, 0x201)                             \
	X(MPI_OFFSET, ompi_mpi_offset, 0x4c000844, 0x203)                         \
	X(MPI_INTEGER, ompi_mpi_integer, 0x4c00041b, 0x219)                       \
	X(MPI_REAL, ompi_mpi_real, 0x4c00041c, 0x21a)                             \
	X(MPI_DOUBLE_PRECISION, ompi_mpi_dblprec, 0x4c00081f, 0x21c)              \
	X(MPI_C_FLOAT_COMPLEX, ompi_mpi_c_float_complex, 0x4c000840, 0x212)       \
	X(MPI_C_DOUBLE_COMPLEX, ompi_mpi_c_double_complex, 0x4c001041, 0x216)     \
	X(MPI_COMPLEX, ompi_mpi_cplex, 0x4c00081e, 0x21b)                         \
	X(MPI_DOUBLE_COMPLEX, ompi_mpi_dblcplex, 0x4c001022, 0x21d)               \
	X(MPI_FLOAT_INT, ompi_mpi_float_int, PAIR(0x8c000000), 0x228)             \
	X(MPI_DOUBLE_INT, ompi_mpi_double_int, PAIR(0x8c000001), 0x229)           \
	X(MPI_LONG_INT, ompi_mpi_long_int, PAIR(0x8c000002), 0x22a)               \
	X(MPI_SHORT_INT, ompi_mpi_short_int, PAIR(0x8c000003), 0x22c)             \
	X(MPI_2INT, ompi_mpi_2int, 0x4c000816, 0x22b)

#define MPI_OPS(X)                                          \
	X(MPI_OP_NULL, ompi_mpi_op_null, 0x18000000, 0x20)  \
	X(MPI_MAX, ompi_mpi_op_max, 0x58000001, 0x23)       \
	X(MPI_MIN, ompi_mpi_op_min, 0x58000002, 0x22)       \
	X(MPI_SUM, ompi_mpi_op_sum, 0x58000003, 0x21)       \
	X(MPI_PROD, ompi_mpi_op_prod, 0x58000004, 0x24)     \
	X(MPI_LAND, ompi_mpi_op_land, 0x58000005, 0x30)     \
	X(MPI_BAND, ompi_mpi_op_band, 0x58000006, 0x28)     \
	X(MPI_LOR, ompi_mpi_op_lor, 0x58000007, 0x31)       \
	X(MPI_BOR, ompi_mpi_op_bor, 0x58000008, 0x29)       \
	X(MPI_LXOR, ompi_mpi_op_lxor, 0x58000009, 0x32)     \
	X(MPI_BXOR, ompi_mpi_op_bxor, 0x5800000a, 0x2a)     \
	X(MPI_MINLOC, ompi_mpi_op_minloc, 0x5800000b, 0x38) \
	X(MPI_MAXLOC, ompi_mpi_op_maxloc, 0x5800000c, 0x39)

typedef int mpi_copy_fn(MPI_Comm, int, void *, void *, void *, int *);
typedef int mpi_delete_fn(MPI_Comm, int, void *, void *);

/* Collectives that the interposer replaces and passes on to: suffix, name, its form that only starts (with a
 * request as one more parameter), parameters. The persistent form (with an info and a request as two more)
 * is name_init, of MPI 4. C: suffix of the functions with counts of type N and displacements of type D */
#define MPI_COLLECTIVES(X, C, N, D)                                                                \
	X(C, Allreduce, Iallreduce, const void *, void *, N, MPI_Datatype, MPI_Op, MPI_Comm)       \
	X(C, Reduce, Ireduce, const void *, void *, N, MPI_Datatype, MPI_Op, int, MPI_Comm)        \
	X(C, Bcast, Ibcast, void *, N, MPI_Datatype, int, MPI_Comm)                                \
	X(C, Allgather, Iallgather, const void *, N, MPI_Datatype, void *, N, MPI_Datatype,        \
	  MPI_Comm)                                                                                \
	X(C, Allgatherv, Iallgatherv, const void *, N, MPI_Datatype, void *, const N *, const D *, \
	  MPI_Datatype, MPI_Comm)                                                                  \
	X(C, Alltoall, Ialltoall, const void *, N, MPI_Datatype, void *, N, MPI_Datatype,          \
	  MPI_Comm)                                                                                \
	X(C, Alltoallv, Ialltoallv, const void *, const N *, const D *, MPI_Datatype, void *,      \
	  const N *, const D *, MPI_Datatype, MPI_Comm)                                            \
	X(C, Reduce_scatter, Ireduce_scatter, const void *, void *, const N *, MPI_Datatype,       \
	  MPI_Op, MPI_Comm)                                                                        \
	X(C, Reduce_scatter_block, Ireduce_scatter_block, const void *, void *, N, MPI_Datatype,   \
	  MPI_Op, MPI_Comm)                                                                        \
	X(C, Gather, Igather, const void *, N, MPI_Datatype, void *, N, MPI_Datatype, int,         \
	  MPI_Comm)                                                                                \
	X(C, Gatherv, Igatherv, const void *, N, MPI_Datatype, void *, const N *, const D *,       \
	  MPI_Datatype, int, MPI_Comm)                                                             \
	X(C, Scatter, Iscatter, const void *, N, MPI_Datatype, void *, N, MPI_Datatype, int,       \
	  MPI_Comm)                                                                                \
	X(C, Scatterv, Iscatterv, const void *, const N *, const D *, MPI_Datatype, void *, N,     \
	  MPI_Datatype, int, MPI_Comm)
/* Large counts, of MPI 4. Open MPI has none, and a program may look whether they are there, as mpi4py does. */
#ifdef TUTTI_MPI_OMPI
#define MPI_LARGE(X)
#else
#define MPI_LARGE(X) MPI_COLLECTIVES(X, _c, MPI_Count, MPI_Aint)
#endif
#define MPI_TAKEN(X)                   \
	MPI_COLLECTIVES(X, , int, int) \
	X(, Barrier, Ibarrier, MPI_Comm)

/* Functions on requests, replaced, too: those that start persistent ones, and those that complete any */
#define MPI_STARTING(X)         \
	X(Start, MPI_Request *) \
	X(Startall, int, MPI_Request *)
#define MPI_COMPLETING(X)                                     \
	X(Wait, MPI_Request *, void *)                        \
	X(Waitall, int, MPI_Request *, void *)                \
	X(Waitany, int, MPI_Request *, int *, void *)         \
	X(Waitsome, int, MPI_Request *, int *, int *, void *) \
	X(Test, MPI_Request *, int *, void *)                 \
	X(Testall, int, MPI_Request *, int *, void *)         \
	X(Testany, int, MPI_Request *, int *, int *, void *)  \
	X(Testsome, int, MPI_Request *, int *, int *, void *) \
	X(Request_free, MPI_Request *)                        \
	X(Request_get_status, MPI_Request, int *, void *)

/* Further functions of MPI that the interposer calls */
#define MPI_USED(X)                                                                \
	X(Finalize, void)                                                          \
	X(Comm_rank, MPI_Comm, int *)                                              \
	X(Comm_size, MPI_Comm, int *)                                              \
	X(Comm_test_inter, MPI_Comm, int *)                                        \
	X(Comm_create_keyval, mpi_copy_fn *, mpi_delete_fn *, int *, void *)       \
	X(Comm_get_attr, MPI_Comm, int, void *, int *)                             \
	X(Comm_set_attr, MPI_Comm, int, void *)                                    \
	X(Comm_delete_attr, MPI_Comm, int)                                         \
	X(Comm_dup, MPI_Comm, MPI_Comm *)                                          \
	X(Comm_free, MPI_Comm *)                                                   \
	X(Comm_set_errhandler, MPI_Comm, MPI_Errhandler)                           \
	X(Comm_call_errhandler, MPI_Comm, int)                                     \
	X(Type_size, MPI_Datatype, int *)                                          \
	X(Type_dup, MPI_Datatype, MPI_Datatype *)                                  \
	X(Type_free, MPI_Datatype *)                                               \
	X(Type_get_envelope, MPI_Datatype, int *, int *, int *, int *)             \
	X(Type_get_extent, MPI_Datatype, MPI_Aint *, MPI_Aint *)                   \
	X(Type_get_true_extent, MPI_Datatype, MPI_Aint *, MPI_Aint *)              \
	X(Reduce_local, const void *, void *, int, MPI_Datatype, MPI_Op)           \
	X(Pack, const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm)     \
	X(Unpack, const void *, int, int *, void *, int, MPI_Datatype, MPI_Comm)   \
	X(Irecv, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)     \
	X(Recv_init, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) \
	X(Send, const void *, int, MPI_Datatype, int, int, MPI_Comm)               \
	X(Iprobe, int, int, MPI_Comm, int *, void *)

#endif
