/*
 * call_log.h - the call log: the latest calls of this rank, and the history that a status carries
 *
 * Written by run through tt_control_note and its relatives (control.h); read by control_status.c
 * and deadlock.c. The log is first in struct tt_control: these are the cache lines of a call.
 */
#ifndef TT_CALL_LOG_H
#define TT_CALL_LOG_H

#include "base/sparse.h"
#include "control/control.h"
#include "control/frame.h"

#define TT_CALL_LOG_ENTRIES 64 /* collectives in the log */
#define TT_MESSAGES 16         /* messages of a pair of ranks in the log, each direction */
#define TT_HISTORY_RUNS 8      /* runs of equal calls in a history */

/* One entry; seq is 0 while the words change. Thread: written by the calling thread, read by any. */
struct tt_call_log_entry {
	atomic_uint_fast64_t seq, word[2];
};

/* Messages with one rank; [0] received, [1] sent. Allocated by the first message. */
struct tt_pair {
	atomic_uint_fast64_t started[2];
	struct tt_call_log_entry entry[2][TT_MESSAGES];
};

struct tt_call_log {
	struct tt_call_log_entry entry[TT_CALL_LOG_ENTRIES] __attribute__((aligned(TT_APART)));
	atomic_uint_fast64_t started, finished; /* collective numbers */
	struct tt_sparse pair;                  /* struct tt_pair of each rank with a message */
	atomic_uint_fast64_t messages_done;
	/* the least operation after which a rank left; TT_NEVER: every rank is here */
	atomic_uint_fast64_t gone_after;
};

/* The latest calls, latest first; equal calls in a row are one run. */
struct tt_call_history {
	int nruns;
	struct {
		uint8_t times;
		struct tt_call call;
	} run[TT_HISTORY_RUNS];
};

/* Read the collective of this rank with number seq, or a message of a pair. false: overwritten, or
 * never logged */
bool tt_call_log_read(struct tt_control *ctl, uint64_t seq, struct tt_call *ret_call);
bool tt_call_log_message(struct tt_control *ctl, bool send, int peer, uint64_t number,
			 struct tt_call *ret_call);
/* The calls up to number last. false: number last has been overwritten */
bool tt_call_log_history(struct tt_control *ctl, uint64_t last,
			 struct tt_call_history *ret_history);
/* The earliest call that differs between this rank's log and another rank's history, which ends at
 * number last. Returns the call's number, 0: no difference known. */
uint64_t tt_call_log_differs(struct tt_control *ctl, uint64_t last,
			     const struct tt_call_history *history, struct tt_call *ret_mine,
			     struct tt_call *ret_theirs);
/* "operation 4 (allreduce of ...)"; only the number when the call is not in the log */
void tt_call_log_name(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes);

void tt_put_call(struct tt_writer *w, const struct tt_call *call);
void tt_get_call(struct tt_reader *r, struct tt_call *ret_call);
void tt_put_call_history(struct tt_writer *w, const struct tt_call_history *history);
void tt_get_call_history(struct tt_reader *r, struct tt_call_history *ret_history);

/* call_text.c: "allreduce of 1024 float32 (sum)" */
void tt_call_describe(const struct tt_call *call, bool with_algorithm, char *text, size_t bytes);
/* An index of a tally: the collective's number, or TT_COLLECTIVES: a barrier */
static inline int tt_call_kind(const struct tt_call *call)
{
	return call->collective >= TT_COLLECTIVES ||
			       (call->collective == TT_ALLREDUCE && call->op == TT_CALL_BARRIER)
		       ? TT_COLLECTIVES
		       : call->collective;
}
bool tt_call_equal(const struct tt_call *a, const struct tt_call *b);

#endif
