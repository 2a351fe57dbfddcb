/* shrink_internal.h - state of one tuttiCommShrink, shared by shrink.c, shrink_decide.c, shrink_ask.c
 *
 * Times are times in which this rank ran: a stop (SIGSTOP) counts as a moment, so that a rank that
 * continues does not take the others for silent. */
#ifndef TT_SHRINK_INTERNAL_H
#define TT_SHRINK_INTERNAL_H

#include "base/sparse.h"
#include "comm/comm.h"
#include "control/frame.h"

/* The answers of a rank to a query */
enum tt_shrink_phase {
	TT_SHRINK_ABSENT,  /* the rank is not in this shrink */
	TT_SHRINK_DECIDES, /* the rank follows a coordinator, or is one */
	TT_SHRINK_FORMS,   /* the rank has a decision, and connects */
	TT_SHRINK_COMPLETED
};

/* Another rank, as this rank knows it. The coordinator knows all; the others know the ranks that they ask, and
 * those that are barred. */
struct tt_shrink_peer {
	bool barred;       /* on the caller's list, or no member of the latest decision */
	bool silent;       /* the rank did not answer the latest query in time */
	bool known;        /* the rank has answered in this attempt, or is silent */
	bool answered;     /* the rank has answered the latest query */
	uint32_t query;    /* number of the latest query; 0: none yet */
	uint32_t proposed; /* coordinator: the attempt that the rank has proposed; 0: none, with: */
	uint64_t answered_ns;       /* time of its first answer in this call, 0: none yet */
	uint64_t completed;         /* the epoch that it knows to be complete, 0: none */
	enum tt_shrink_phase phase; /* its latest answer, with: */
	int coordinator;  /* the rank that it follows, itself if it coordinates, -1: none */
	uint32_t attempt; /* its attempt */
	uint64_t epoch;   /* COMPLETED: the epoch, which includes this rank */
};

struct tt_shrink {
	tuttiComm_t parent;
	struct tt_sparse peer; /* struct tt_shrink_peer, by rank */
	bool paced;            /* this rank has waited for its turn to connect */
	bool listed;           /* the caller has a list of ranks to exclude */
	uint64_t digest;       /* of the list */
	/* numbers of this rank's latest attempt and latest query, different from those of its
	 * earlier calls */
	uint32_t attempt, queries;
	int answered_to; /* all ranks below have answered the latest query, or were not asked */
	uint64_t known_epoch; /* newest epoch known before this call */
	uint64_t epoch;       /* newest epoch known; then the decided epoch */
	uint64_t without;     /* an epoch without this rank, 0: none known */
	/* the communicator of the latest decision, which this rank failed to set up and others may
	 * have completed; NULL, 0: none */
	tuttiComm_t kept;
	uint64_t kept_epoch;
	struct tt_members members;
	uint8_t *buffer;               /* receive buffer for one message */
	uint64_t timeout_ns, limit_ns; /* of the communicator; of this call, without a last query */
	/* ranks without an answer are silent when no rank has answered for this time */
	uint64_t patience_ns;
	uint64_t slice_ns; /* of waits; and the longest time that a slice counts: */
	uint64_t pause_ns;
	uint64_t ran_ns, seen_ns; /* time since the call began; the clock, then */
};

/* ---- shrink.c -------------------------------------------------------------------------------- */

/* A rank; zeros: nothing is known of it */
const struct tt_shrink_peer *tt_shrink_peer(const struct tt_shrink *a, int rank);
/* The same, to be changed. NULL: no memory, tt_fail was called */
struct tt_shrink_peer *tt_shrink_note(struct tt_shrink *a, int rank);

/* The number of a decision. Another epoch or other members give another number, so that no frame of a
 * setup that failed belongs to a later one. */
uint64_t tt_shrink_mark(uint64_t epoch, const struct tt_members *members);

/* The random wait before the next attempt, of all ranks that have failed together; failed: attempts so far, of
 * which each doubles the longest wait; seed: different at each rank */
uint64_t tt_shrink_backoff_ns(uint64_t seed, int failed);

/* ---- shrink_ask.c ---------------------------------------------------------------------------- */

/* The time since the call began. most_ns: what may have passed since the last look at the clock */
uint64_t tt_shrink_clock(struct tt_shrink *a, uint64_t most_ns);
/* Goes the call on? 0 | TT_REMOTE: the others went on without this rank | TT_TIMEOUT */
int tt_shrink_check(struct tt_shrink *a);
/* Waits until the call has taken until_ns. 0 | the result of tt_shrink_check: the call does not go on */
int tt_shrink_wait(struct tt_shrink *a, uint64_t until_ns);
bool tt_shrink_is_gone(const struct tt_shrink *a, int rank);
/* Receives the next message from source (-1: any) within wait_ns. As tt_am_recv. */
int tt_shrink_next(struct tt_shrink *a, enum tt_am_kind kind, int source, uint64_t wait_ns,
		   struct tt_am_header *ret_head, struct tt_reader *ret_r);
/* Sets the answer of this rank to later queries. 0 | TT_SYSTEM */
int tt_shrink_tell(struct tt_shrink *a, enum tt_shrink_phase phase, int coordinator);
/* Sends a query to a rank; tt_shrink_receive takes the answers that have come. */
void tt_shrink_query(struct tt_shrink *a, int rank);
void tt_shrink_receive(struct tt_shrink *a);
/* Sends a query to the ranks from, ..., to - 1 that are neither gone nor barred, at once, and waits for
 * their answers. Ranks without an answer are silent then. 0 | TT_SYSTEM */
int tt_shrink_ask(struct tt_shrink *a, int from, int to);

/* ---- shrink_decide.c ------------------------------------------------------------------------- */

/* Agree on a->members and a->epoch with the other ranks. 0 | < 0 */
int tt_shrink_decide(struct tt_shrink *a);

#endif
