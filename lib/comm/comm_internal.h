/* comm_internal.h - steps of creating a communicator, shared by comm.c, split.c and shrink.c */
#ifndef TT_COMM_INTERNAL_H
#define TT_COMM_INTERNAL_H

#include "comm/comm.h"

/* Allocates a communicator without control; nranks: upper bound of its size. NULL: no memory.
 * tt_comm_free frees it in any state. */
tuttiComm_t tt_comm_alloc(int rank, int nranks);
/* settings.c: settings from config, else parent (NULL: none), else environment. 0 | TT_ARG */
int tt_comm_settings(tuttiComm_t comm, const struct tuttiComm *parent, const tuttiConfig_t *config,
		     struct tt_env *ret_env);
/* settings.c: TUTTI_FAULT, for tests of deaths at every step of a plan. "kill@2:17": rank 2 kills
 * itself before its 17th step. 0 | TT_ARG */
int tt_comm_fault(tuttiComm_t comm, const char *fault);

/* A communicator is set up in two exchanges of all its ranks: of their facts and announcements (transport.h), which
 * the ranks have before they know each other, and of facts about paths, when each rank has opened its transports. A
 * split exchanges both among the ranks of the parent. */
enum { TT_COLUMN_FACTS, TT_COLUMN_ANNOUNCED, TT_FIRST_COLUMNS };
struct tt_rank_facts {
	char transport[16], algo[64];
	struct tt_cores cores;
	struct tt_locality locality;
	uint64_t tuning_bytes, mark; /* mark of rank 0: of the communicator */
	uint64_t machine;            /* 0: unknown, or TUTTI_HOST_ID says otherwise */
	bool device, readers_own; /* readers_own: of this process's processor (mem/peer_lines.h) */
};
static inline void tt_comm_columns(const struct tt_rank_facts *facts,
				   const struct tt_announcement *announcement,
				   struct tt_parts ret[TT_FIRST_COLUMNS])
{
	ret[TT_COLUMN_FACTS] = (struct tt_parts){ .mine = facts, .bytes = sizeof(*facts) };
	ret[TT_COLUMN_ANNOUNCED] = (struct tt_parts){ .mine = announcement->bytes,
						      .bytes = TT_ANNOUNCED };
}

static inline void tt_comm_free_columns(struct tt_parts all[TT_FIRST_COLUMNS])
{
	for (int i = 0; i < TT_FIRST_COLUMNS; i++)
		tt_parts_free(&all[i]);
}

/* Finds the facts of this rank, opens its accelerator, and announces it to all ranks of ctl, which is the
 * communicator's or its parent's. 0 | TT_ARG, TT_CUDA, TT_SYSTEM */
int tt_comm_facts(tuttiComm_t comm, struct tt_control *ctl, const struct tt_env *env,
		  struct tt_rank_facts *ret_facts);
/* Prepares a communicator that has its control, with the first exchange's parts of all its ranks; mark: its own, 0:
 * the one of rank 0. After a failure control tells the other ranks at once. 0 | < 0 */
int tt_comm_prepare(tuttiComm_t comm, const struct tt_env *env,
		    const struct tt_parts all[TT_FIRST_COLUMNS], uint64_t mark);
/* Completes it, with tt_path_facts of all its ranks. 0 | < 0, the same on all ranks */
int tt_comm_complete(tuttiComm_t comm, const struct tt_parts *all);
/* All of these, with two exchanges. Collective. 0 | as tuttiCommInitRank; then all ranks fail. */
int tt_comm_setup(tuttiComm_t comm, const struct tt_env *env);
/* join_log.c: logs ranks, hosts, paths and algorithms, if TUTTI_LOG is info */
void tt_join_log(tuttiComm_t comm);
/* split.c: allocates a communicator with the settings of its parent. */
int tt_comm_child(tuttiComm_t parent, const tuttiConfig_t *config, struct tt_env *ret_env,
		  tuttiComm_t *ret_comm);

#endif
