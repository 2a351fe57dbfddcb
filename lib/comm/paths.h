/* paths.h - a communicator's transports: open them, choose one for each pair, connect links.
 * Used by comm and run. */
#ifndef TT_PATHS_H
#define TT_PATHS_H

#include "comm/comm.h"

/* Room for a road, which leads nowhere yet. 0 | TT_SYSTEM */
int tt_path_make(struct tt_path *path, int nranks);
/* Opens the transports that the setting allows and fills path[0],
 * NULL for ranks that none reaches. Collective. */
int tt_paths_open(tuttiComm_t comm);
/* Is everybody reached, and are there cards between all hosts, so that there are two roads?
 * Collective; no rank is through before all have come. 0 | TT_USAGE, the same
 * on all ranks | < 0 */
int tt_paths_agree(tuttiComm_t comm);
void tt_paths_close(tuttiComm_t comm);

#endif
