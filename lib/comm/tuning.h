/* tuning.h - rank 0's table of costs becomes everybody's. Used by comm when ranks join. */
#ifndef TT_TUNING_H
#define TT_TUNING_H

#include "comm/comm.h"

/* At rank 0: reads the file into comm->cost ("" none: the built-in table). *ret_bytes: what has to
 * be handed out, 0 nothing. */
int tt_tuning_read(tuttiComm_t comm, const char *path, uint64_t *ret_bytes);
/* Collective: rank 0's table of so many bytes to all ranks. */
int tt_tuning_share(tuttiComm_t comm, uint64_t bytes);

#endif
