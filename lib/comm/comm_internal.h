/* comm_internal.h - what makes a communicator, for those of comm's files that make one: comm.c,
 * split.c, shrink.c */
#ifndef TT_COMM_INTERNAL_H
#define TT_COMM_INTERNAL_H

#include "comm/comm.h"

/* One without control, of this size at most; NULL: no memory.
 * tt_comm_free takes it in any state. */
tuttiComm_t tt_comm_alloc(int rank, int nranks);
/* settings.c: config over the parent's (NULL: none) over environment. 0 | TT_ARG */
int tt_comm_settings(tuttiComm_t comm, const struct tuttiComm *parent, const tuttiConfig_t *config,
		     struct tt_env *ret_env);
/* TUTTI_FAULT, for the tests of deaths at every step of a plan: "kill@2:17": rank 2 kills itself
 * before its 17th step. 0 | TT_ARG */
int tt_comm_fault(tuttiComm_t comm, const char *fault);
/* Everything but control, which stands: collective. 0 | what tuttiCommInitRank documents; then all
 * ranks fail. */
int tt_comm_setup(tuttiComm_t comm, const struct tt_env *env);
/* split.c: do the members of a new one agree on its settings? Collective. 0 | TT_USAGE, and what an
 * exchange returns */
int tt_comm_agree(tuttiComm_t comm);
/* split.c: a blank one with the settings of its parent. */
int tt_comm_child(tuttiComm_t parent, const tuttiConfig_t *config, struct tt_env *ret_env,
		  tuttiComm_t *ret_comm);

#endif
