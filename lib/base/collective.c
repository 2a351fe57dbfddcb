/* collective.c - the names of collectives and data types; called by every room that prints a call
 * or a plan */
#include "base/collective.h"
#include "tutti.h"

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

const char *tt_datatype_name(unsigned type)
{
	static const char *const names[tuttiNumTypes] = {
		"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
		"float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2",
	};

	return type < tuttiNumTypes ? names[type] : "elements of unknown type";
}
