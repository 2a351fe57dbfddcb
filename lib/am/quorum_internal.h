/*
 * quorum_internal.h - protocol between a quorum call (quorum_call.c) and rank 0's coordinator
 * (quorum_coordinator.c)
 */
#ifndef TT_QUORUM_INTERNAL_H
#define TT_QUORUM_INTERNAL_H

#include <unistd.h>

#include "am/am_internal.h"

/* flags in call[0] of a CONTRIBUTION, beside the type: no contribution, only a result wanted; a
 * late rank wants the result of its own operation */
#define TT_QUORUM_RESULT_ONLY 0x100u
#define TT_QUORUM_EVERY 0x200u

/* call[] of an OUTCOME: [0] tuttiQuorumMine_t, [1] number of contributions, [2], [3] low and high half
 * of the newest number. Refusals: [0] DIFFERS, [1..3] rank, bytes and k of the first contribution; [0]
 * AHEAD: the operation is not open yet; [0] NO_MEMORY: of rank 0 */
enum { TT_OUTCOME_DIFFERS = 16, TT_OUTCOME_AHEAD, TT_OUTCOME_NO_MEMORY };

#endif
