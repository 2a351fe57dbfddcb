/* collective.c - the names of collectives; called by every room that prints a call or a plan */
#include "base/collective.h"

const char *tt_collective_name(enum tt_collective c)
{
	static const char *const name[TT_COLLECTIVES] = {
		[TT_ALLREDUCE] = "allreduce",
		[TT_REDUCE] = "reduce",
		[TT_BROADCAST] = "broadcast",
		[TT_ALLGATHER] = "allgather",
		[TT_REDUCE_SCATTER] = "reduce_scatter",
		[TT_ALLTOALL] = "alltoall",
		[TT_GATHER] = "gather",
		[TT_SCATTER] = "scatter",
		[TT_SENDRECV] = "sendrecv",
	};

	return (unsigned)c < TT_COLLECTIVES ? name[c] : "unknown collective";
}
