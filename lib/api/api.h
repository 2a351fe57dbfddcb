/* api.h - what the files of the public floor share */
#ifndef TT_API_H
#define TT_API_H

#include "run/run.h"

/* A tuttiResult_t from a code of the floors below. */
static inline tuttiResult_t tt_result(int code)
{
	return code < 0 ? (tuttiResult_t)-code : code > 0 ? tuttiInProgress : tuttiSuccess;
}

/* arguments.c: is this call possible at all, in a communicator that was entered? Completes the request
 * (pre-multiplied sums). 0 | TT_ARG, TT_USAGE with the sentence, which names the call. */
int tt_request_check(struct tt_request *request, const char *call);

/* memstats.c: bytes that a rank of a communicator holds */
uint64_t tt_memory_held(tuttiComm_t comm, tuttiCommMemStat_t stat);

/* group.c: run the request now or when the group ends. */
tuttiResult_t tt_group_request(const struct tt_request *request);
bool tt_group_open(void);
/* An error inside a group: noted, so that the end of the
 * group reports it and runs nothing. Returns code. */
int tt_group_fail(int code);

/* A join or a split that may have to run beside others of this thread. */
struct tt_joining {
	int (*run)(struct tt_joining *j);
	tuttiComm_t *comm;
	tuttiUniqueId id;
	int nranks, rank;
	tuttiComm_t parent;
	void *ctx;                      /* CUDA context to run in, NULL: the caller's, if any */
	int color, key;
	struct tt_launching *launching; /* launched.c's */
	bool *excluded;                 /* shrink: freed by run */
	int nexcluded;
	bool configured;
	tuttiConfig_t config;
	int result;                     /* before run: why it cannot be, with text */
	char text[1024];
};
/* communicators.c: was it made by the initializer (or is NULL)? Keep it for the join. */
int tt_config_check(const tuttiConfig_t *config);
void tt_config_copy(struct tt_joining *joining, const tuttiConfig_t *config);
tuttiResult_t tt_group_join(const struct tt_joining *joining);

#endif
