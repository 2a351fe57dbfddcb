/* tuning.h - the cost table of rank 0, for all ranks. Used by comm when ranks join. */
#ifndef TT_TUNING_H
#define TT_TUNING_H

#include "comm/comm.h"

/* Rank 0: reads the file into comm->cost ("": the built-in table). *ret_bytes: size of the packed
 * table, 0: none */
int tt_tuning_read(tuttiComm_t comm, const char *path, uint64_t *ret_bytes);
/* Broadcasts the packed table of rank 0, of `bytes` as its facts say. Collective. 0 | TT_SYSTEM | TT_REMOTE: the size is
 * wrong */
int tt_tuning_share(tuttiComm_t comm, uint64_t bytes);

#endif
