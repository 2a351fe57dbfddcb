/*
 * nccl_support.h - the parts of the library, beside tutti.h, that libnccl.so.2 (nccl/) is built on
 *
 * The only internal header that nccl/ includes. base/base.h gives result codes, tt_fail, the log,
 * handles and the environment; gpu/cuda.h gives the driver's table, contexts and kinds of memory.
 * The functions below (nccl_support.c) pass calls to the rooms that nccl/ does not include. Thread:
 * any.
 */
#ifndef TT_NCCL_SUPPORT_H
#define TT_NCCL_SUPPORT_H

#include "base/base.h"
#include "base/thread.h"
#include "gpu/cuda.h"
#include "tutti.h"

/* Bytes of one element. type: below tuttiNumTypes */
size_t tt_nccl_type_bytes(tuttiDataType_t type);

/* Makes the open group of the calling thread fail at its end: the group then runs nothing and
 * reports this thread's last error. Outside a group nothing happens. Returns code. */
int tt_nccl_group_fail(int code);

/* The identifier of a communicator whose rank 0 listens at host_port ("host:port"); all processes
 * with the same secret compute the same identifier. 0 | TT_ARG | TT_SYSTEM */
int tt_nccl_id_from_root(const char *host_port, const char *secret, tuttiUniqueId *ret_id);

#endif
