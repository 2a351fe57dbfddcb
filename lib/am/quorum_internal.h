/* quorum_internal.h - what rank 0's books (quorum_coordinator.c) and
 * a caller (quorum_call.c) say to each other */
#ifndef TT_QUORUM_INTERNAL_H
#define TT_QUORUM_INTERNAL_H

#include <unistd.h>

#include "am/am_internal.h"

/* In call[0] of a GIVE, beside the type. */
#define TT_QUORUM_RESULT_ONLY 0x100u
#define TT_QUORUM_EVERY 0x200u

/* In call[0] of a VERDICT, beside tuttiQuorumMine_t. DIFFERS: call[1..3] are the first rank, its
 * bytes and its k */
enum { TT_OUTCOME_DIFFERS = 16, TT_OUTCOME_AHEAD };

#endif
