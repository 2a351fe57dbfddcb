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
/* Completes a communicator that has its control. Collective. 0 | as tuttiCommInitRank; then all
 * ranks fail. */
int tt_comm_setup(tuttiComm_t comm, const struct tt_env *env);
/* join_log.c: TUTTI_LOG=info */
void tt_join_log(tuttiComm_t comm);
/* split.c: checks that the ranks of a new communicator agree on its settings. Collective. 0 |
 * TT_USAGE, or the error of the allgather */
int tt_comm_agree(tuttiComm_t comm);
/* split.c: allocates a communicator with the settings of its parent. */
int tt_comm_child(tuttiComm_t parent, const tuttiConfig_t *config, struct tt_env *ret_env,
		  tuttiComm_t *ret_comm);

#endif
