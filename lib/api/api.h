/* api.h - declarations shared by the files of lib/api, the public calls */
#ifndef TT_API_H
#define TT_API_H

#include "run/run.h"

/* errors.c: the result of a code that is not 0. An error's sentence goes to the log. */
tuttiResult_t tt_result_other(int code);

/* Converts a TT_ code of the internal functions to a tuttiResult_t. */
static inline tuttiResult_t tt_result(int code)
{
	return tt_likely(!code) ? tuttiSuccess : tt_result_other(code);
}

/* arguments.c: checks the arguments of one call on an entered communicator and completes the
 * request (pre-multiplied sums). call: name for the error text. 0 | TT_ARG, TT_USAGE */
int tt_request_check(struct tt_request *request, const char *call);

/* operators.c: the entry of an op made by tuttiRedOpCreate; NULL: another op, or no communicator */
const struct tt_user_op *tt_user_operator(tuttiComm_t comm, tuttiRedOp_t op);
/* Runs a reduction by a function of the user, by other public calls. counts: [nranks] of a
 * reduce-scatterv whose arguments were checked; else NULL. */
tuttiResult_t tt_user_reduction(struct tt_request *request, const char *call, const size_t *counts);

/* memstats.c: bytes of memory that this rank of comm holds */
uint64_t tt_memory_held(tuttiComm_t comm, tuttiCommMemStat_t stat);

/* group.c: runs the request now, or when the group ends. 0 | < 0 */
int tt_group_request(const struct tt_request *request);
bool tt_group_open(void);
/* Records an error inside a group: the end of the group reports the first one and runs nothing.
 * Returns code. */
int tt_group_fail(int code);

/* A join, split or shrink. Inside a group, joins run concurrently with the other joins of this
 * thread. */
struct tt_joining {
	int (*run)(struct tt_joining *j);
	tuttiComm_t *comm;
	tuttiUniqueId id;
	int nranks, rank;
	tuttiComm_t parent;
	/* CUDA context to run in; NULL: the caller's context, if any */
	void *ctx;
	int color, key;
	struct tt_launching *launching; /* arguments of launched.c */
	bool *excluded;                 /* [nranks] arguments of shrink; freed by run */
	int nexcluded;
	bool configured;
	tuttiConfig_t config;
	int result; /* before run: error code of the arguments, with text */
	char text[1024];
};
/* communicators.c: checks that config is NULL or made by the initializer; copies config into the
 * join. */
int tt_config_check(const tuttiConfig_t *config);
void tt_config_copy(struct tt_joining *joining, const tuttiConfig_t *config);
tuttiResult_t tt_group_join(const struct tt_joining *joining);

#endif
