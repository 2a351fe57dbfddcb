/* collective.h - the collectives by number and by name, and the names of data types in messages; shared
 * by plans, calls and tools */
#ifndef TT_COLLECTIVE_H
#define TT_COLLECTIVE_H

enum tt_collective {
	TT_ALLREDUCE,
	TT_REDUCE,
	TT_BROADCAST,
	TT_ALLGATHER,
	TT_REDUCE_SCATTER,
	TT_ALLTOALL,
	TT_GATHER,
	TT_SCATTER,
	TT_SENDRECV, /* has no plan: each call is one transient step */
	TT_COLLECTIVES
};
const char *tt_collective_name(enum tt_collective c); /* allreduce, reduce_scatter ... */
/* The name of a tuttiDataType_t in messages: float32; also of a number that another rank sent */
const char *tt_datatype_name(unsigned type);

#endif
