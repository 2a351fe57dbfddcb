/*
 * am.h - active messages between any two ranks of a communicator, independent of its collectives
 *
 * Users: messages (tuttiMsgSend ...), quorum allreduce, shrink. Messages are frames on the
 * connections of the control endpoint, which all communicators share: a sender writes as much as
 * the connection takes at once, and the endpoint's service thread the rest. A receiver without room
 * gives no credit, so that no message delays other frames. A death breaks nothing: the state of
 * each rank is known separately, and all other pairs continue.
 *
 *   called by    comm (make, close), api (messages), quorum_call.c, quorum_coordinator.c, shrink.c
 *   calls        control (frames, connections, states of ranks)
 *
 * Lock: the endpoint's. A user's call does not hold the lock while it waits.
 *
 *   am.c               make, events of control, states of ranks, close
 *   am_stream.c        streams of messages in frames, credit
 *   am_send.c          send of a caller, connecting
 *   am_shrink.c        messages of shrink, ahead of the streams
 *   am_unexpected.c    matching of incoming messages, unexpected queue
 *   am_recv.c          receive of a caller: posted receives
 */
#ifndef TT_AM_H
#define TT_AM_H

#include "control/control.h"
#include "control/sent_set.h"

/* limit of the unexpected queue in bytes of user messages; beyond it, messages stay at their
 * senders */
#define TT_AM_UNEXPECTED_BYTES (64u << 20)

enum tt_am_kind {
	TT_AM_USER_MESSAGE = 1, /* of the user */
	/* shrink: to the coordinator; from the coordinator */
	TT_AM_PROPOSAL,
	TT_AM_DECISION,
	/* shrink: to any rank; from its service thread */
	TT_AM_QUERY,
	TT_AM_ANSWER,
	/* quorum: to rank 0: contribution, or request for a result only */
	TT_AM_CONTRIBUTION,
	/* quorum: from rank 0: outcome of the contribution; bytes of the result */
	TT_AM_OUTCOME,
	TT_AM_RESULT,
	TT_AM_KINDS
};

/* limits of the messages of shrink among n ranks */
#define TT_AM_PROPOSAL_BYTES 64
#define TT_AM_DECISION_BYTES(n) (1200 + TT_SENT_SET_MOST(n))
#define TT_AM_ANSWER_BYTES(n) (32 + TT_SENT_SET_MOST(n))

struct tt_am_header {
	enum tt_am_kind kind;
	/* USER_MESSAGE: the user's tag; quorum: number of the call; shrink: number of the attempt
	 * or query */
	int tag;
	/* USER_MESSAGE: the user's version; quorum: number of the operation */
	uint64_t version;
	uint64_t bytes; /* size of the body */
	/* CONTRIBUTION: type and flags, op, k, deadline_ms; OUTCOME: see quorum_internal.h */
	uint32_t call[4];
	int source; /* known from the connection, not sent */
};

struct tt_am;

/* Creates the active messages of a control. 0 | TT_SYSTEM */
int tt_am_make(struct tt_control *ctl, int rank, int nranks, uint32_t timeout_ms,
	       struct tt_am **ret_am);
/* Waits until the connections have all messages, 5 s at most; frees. tt_control_leave tells the
 * other ranks. */
void tt_am_close(struct tt_am *am);
/* Ends every wait with TT_REMOTE, now and later, for tuttiCommAbort. Thread: any. */
void tt_am_abort(struct tt_am *am);

/* Makes the connection to peer, unless it exists. Blocks until deadline_ns, or until another thread sets
 * *stop and calls tt_control_notify. 0 | TT_REMOTE (peer is gone, or *stop) | TT_TIMEOUT | TT_SYSTEM.
 * Thread: any. */
int tt_am_connect(struct tt_am *am, int peer, uint64_t deadline_ns, const atomic_bool *stop);

/* Sends a message with a body of head->bytes from data. Blocks until data may be reused, at most
 * until deadline_ns. 0 | TT_REMOTE (peer is gone) | TT_TIMEOUT | TT_SYSTEM. Thread: any. */
int tt_am_send(struct tt_am *am, int peer, const struct tt_am_header *head, const void *data,
	       uint64_t deadline_ns);

/* Criteria and buffer of a receive. */
struct tt_am_match {
	enum tt_am_kind kind;
	int source, tag; /* -1: any */
	bool probe;      /* the message stays queued */
	void *to;
	size_t room;
};
/* Receives a message and its header. 0 | 1 nothing matched until deadline_ns (0: do not wait), or
 * the wait was canceled | TT_REMOTE source is gone and no message from it is queued | TT_ARG the
 * message is larger than room and stays queued. Thread: any. */
int tt_am_recv(struct tt_am *am, const struct tt_am_match *want, uint64_t deadline_ns,
	       struct tt_am_header *ret_head);
/* Drops queued user messages with a version below `version` (UINT64_MAX: all) and ends waits for
 * exactly this source and tag. Returns the number of dropped messages. */
uint64_t tt_am_cancel(struct tt_am *am, int source, int tag, uint64_t version);

/* Drops queued messages of this kind. */
void tt_am_drop(struct tt_am *am, enum tt_am_kind kind);
/* Sends a proposal or a decision to another rank, ahead of the messages of tt_am_send. Blocks until
 * the ranks are connected, at most until deadline_ns. As tt_am_send. Thread: any. */
int tt_am_shrink_send(struct tt_am *am, int peer, const struct tt_am_header *head, const void *data,
		      uint64_t deadline_ns);
/* Sends a query to a rank with a connection, ahead of the messages of tt_am_send; never blocks.
 * false: there is no connection. Without memory the query is dropped. Thread: any. */
bool tt_am_query(struct tt_am *am, int peer, const struct tt_am_header *head);
/* The service thread answers queries with these bytes from now on, whether or not a shrink call is
 * running. answer NULL: with an empty answer, as at first. 0 | TT_SYSTEM: then with an empty
 * answer. Thread: any. */
int tt_am_set_answer(struct tt_am *am, const void *answer, size_t bytes);
/* The latest lower rank that has sent a query; -1: none since tt_am_forget_asker. Thread: any. */
int tt_am_asker(struct tt_am *am);
void tt_am_forget_asker(struct tt_am *am);

/* State of a rank (alive, left or dead), as known to this rank. */
tuttiRankState_t tt_am_state(struct tt_am *am, int rank);
/* The lowest rank from `from` on that has left; the number of ranks: none */
int tt_am_next_left(struct tt_am *am, int from);

/* Bytes of memory held; payload bytes and messages sent so far. */
size_t tt_am_memory(struct tt_am *am);
void tt_am_sent(struct tt_am *am, uint64_t *ret_bytes, uint64_t *ret_messages);

#endif
