/*
 * control_status.h - statuses of ranks, and the deadlock detection that compares them
 *
 * control_status.c makes, receives and compares statuses; control_missing.c names the ranks that do not
 * answer, or have not called; control_status_table.c keeps the statuses of the other ranks, for a minute;
 * control_status_queue.c sends them to the neighbors; control_status_format.c writes and reads their
 * bytes; deadlock.c looks for cycles in the wait-for graph. All functions: locked.
 */
#ifndef TT_CONTROL_STATUS_H
#define TT_CONTROL_STATUS_H

#include "control/call_log.h"

#define TT_PAIRS 8           /* pairs of ranks in a status */
#define TT_STATUS_BYTES 1024 /* of a status, at most */
#define TT_STATUS_OWN (-1)
#define TT_STATUS_UNQUEUED (-2)

struct tt_status {
	int origin, awaited; /* awaited: -1 none or several */
	uint32_t serial;
	/* Does origin ask all ranks for their statuses? NOW: it is at a deadline. An answer asks for
	 * none, so statuses end when no rank waits. */
	enum tt_status_ask { TT_STATUS_ANSWERS, TT_STATUS_ASKS, TT_STATUS_ASKS_NOW } ask;
	uint64_t started, finished;     /* collective numbers */
	struct tt_call_history history; /* number `started` and those before it */
	uint64_t last_received;         /* last operation with a message received from awaited */
	/* no progress; OPEN as in struct tt_blocked */
	enum { TT_BLOCKED_NO, TT_BLOCKED_OPEN, TT_BLOCKED } blocked;
	bool exchanging; /* in exchange number `exchanges`: a split */
	bool leads;      /* origin reports communicators to monitors (control_monitor.c) */
	bool counted;    /* the tally is filled: with the collective that runs */
	struct tt_tally tally;
	uint64_t running_ns; /* as in struct tt_rank_report */
	uint64_t exchanges;
	int nwants, npairs;
	struct tt_wait_edge want[TT_WAIT_EDGES];
	/* messages started with the ranks that wait for one of origin's */
	struct {
		int peer;
		uint64_t started[2];
	} pair[TT_PAIRS];
};

/* The latest status of a rank. */
struct tt_rank_status {
	struct tt_status status;
	uint64_t at_ns;                     /* arrival; of this rank's own: 0 */
	struct tt_rank_status *next_queued; /* in struct tt_status_queue */
	int from; /* the neighbor that sent it, TT_STATUS_OWN or _UNQUEUED: not in the queue */
};

/* The latest statuses that go to the neighbors with the next frames, in order. */
struct tt_status_queue {
	struct tt_rank_status *first, *last; /* NULL: empty */
	uint64_t sent_ns, due_ns;            /* due: TT_NEVER: the queue is empty */
};

/* The part of the statuses of a rank that is kept for ever */
struct tt_rank_past {
	uint32_t serial;   /* serial number of the latest status */
	uint64_t received; /* last operation with a message received of the rank */
};

/* The latest statuses of the ranks. One is allocated when it comes and freed when it is a minute
 * old, since ranks that wait repeat theirs every second; its serial number stays, so that a copy
 * that comes late is not taken for a new one. */
struct tt_status_table {
	struct tt_rank_status own; /* this rank's */
	struct tt_sparse of;       /* struct tt_rank_status of the others */
	struct tt_sparse past;     /* struct tt_rank_past of each rank with a status ever */
	uint64_t expire_due_ns;    /* the next look for old ones, TT_NEVER: there is none */
};

/* Locked, except asked_ns. */
struct tt_statuses {
	struct tt_status_queue queue;
	struct tt_status_table table;
	uint32_t serial;                /* of this rank's latest status */
	enum tt_status_ask ask;         /* ... if it has not been sent yet */
	uint64_t sent_ns, sent_started; /* the latest status sent: time, its `started` */
	uint64_t answer_due_ns;         /* the next status to send, TT_NEVER: none */
	struct tt_blocked blocked;      /* this rank's; holds while these two counters stand: */
	uint64_t blocked_started, blocked_done;
	bool is_blocked;
	uint64_t seen_started,
		seen_ns;    /* the latest collective in a status, and the time of the first */
	uint64_t report_ns; /* the latest question for a report (control_report.c) */
	atomic_uint_fast64_t asked_ns; /* tt_control_waiting's latest status */
};

struct tt_deadlock_state {
	uint64_t check_due_ns; /* the next look at the wait-for graph, TT_NEVER: none */
	bool *in_cycle;        /* [nranks] during that look */
};

/* control_status.c. frame: statuses, of neighbor from; false: the frame is malformed. timers: returns
 * the next time due */
bool tt_status_frame(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
uint64_t tt_status_timers(struct tt_control *ctl, uint64_t now);
/* The last operation in which any rank, as far as this rank knows, received from `rank`. */
uint64_t tt_status_last(struct tt_control *ctl, int rank);
/* This rank waits for `blocked` until its next call or completion. */
void tt_status_waits(struct tt_control *ctl, const struct tt_blocked *blocked);
/* Send this rank's status now, which asks all ranks for theirs at once. */
void tt_status_ask(struct tt_control *ctl, uint64_t now);
/* This rank's status now. */
void tt_status_fill(struct tt_control *ctl, struct tt_status *ret_status);
/* Does the call synchronize: no rank completes it before every rank has started it? */
bool tt_status_needs_all(const struct tt_call *call);

/* control_missing.c */
/* Is rank this one, or has its status come since since_ns? */
bool tt_status_answers(const struct tt_control *ctl, int rank, uint64_t since_ns);
/* At a deadline: ask all ranks; true: "ranks 2 and 5 are not answering: ..." of those that have not
 * answered within wait_ns. Unlocks while it waits. */
bool tt_status_silent(struct tt_control *ctl, uint64_t wait_ns, char *text, size_t bytes);

/* control_status_table.c. make: false: no memory. of: the latest status of rank, without calls if
 * there is none. at_ns: its arrival; 0: none. */
bool tt_status_table_make(struct tt_status_table *table, int nranks);
void tt_status_table_free(struct tt_status_table *table);
const struct tt_status *tt_status_of(const struct tt_control *ctl, int rank);
uint64_t tt_status_at_ns(const struct tt_control *ctl, int rank);
/* Keep a status that has come. NULL: it is no newer one, or there is no memory: it will be repeated */
struct tt_rank_status *tt_status_keep(struct tt_control *ctl, const struct tt_status *status,
				      uint64_t now);
/* past: the kept part of a rank's statuses; zeros: there was none. received: notes that a message
 * of the rank was received in operation number seq (rank -1: of no rank); forgotten without memory.
 * */
struct tt_rank_past tt_status_past(const struct tt_control *ctl, int rank);
void tt_status_received(struct tt_control *ctl, int rank, uint64_t seq);
/* Free statuses that are a minute old. */
void tt_status_expire(struct tt_control *ctl, uint64_t now);
/* Bytes of the statuses and of their table */
size_t tt_status_memory(const struct tt_control *ctl);

/* control_status_queue.c. enqueue: a latest status, which `from` sent; it leaves in the next frames, at
 * once if the latest ones are old enough */
void tt_status_enqueue(struct tt_control *ctl, struct tt_rank_status *latest, int from);
void tt_status_queue_send(struct tt_control *ctl, uint64_t now);

/* control_status_format.c; get: false: the bytes are malformed */
void tt_put_status(struct tt_writer *w, const struct tt_status *status);
void tt_put_tally(struct tt_writer *w, const struct tt_tally *tally);
void tt_get_tally(struct tt_reader *r, struct tt_tally *ret_tally);
bool tt_get_status(struct tt_reader *r, int nranks, struct tt_status *ret_status);

/* deadlock.c. Break the communicator if this rank is in or behind a cycle of ranks that wait for
 * each other. */
void tt_deadlock_check(struct tt_control *ctl);
/* Break the communicator if a message that the status waits for differs from this rank's half of
 * that message, or was lost. */
void tt_deadlock_compare(struct tt_control *ctl, const struct tt_status *status);
/* The call of rank besides its collective, as far as its status shows: "receive of ...", "" if
 * none */
void tt_deadlock_text(const struct tt_control *ctl, int rank, char *text, size_t bytes);
void tt_status_other_text(const struct tt_status *status, char *text, size_t bytes);
/* Has the peer started its half of want, a message of this rank? Unknown counts as yes. */
bool tt_deadlock_met(const struct tt_control *ctl, const struct tt_wait_edge *want);
void tt_wait_edge_text(const struct tt_wait_edge *want, char *text, size_t bytes);

#endif
