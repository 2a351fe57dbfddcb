/*
 * am.h - letters between any two ranks of a communicator, beside its collectives: what messages,
 * quorums and shrinking are made of
 *
 * A pair that exchanges letters has one authenticated socket of its own, or two where both sides
 * dialled at once. One service thread a rank, made with the first letter, reads all of them and
 * writes what did not go out at once. Deaths break nothing here: who is gone is known rank by rank,
 * and all others go on.
 *
 *   called by    comm (make, close), api (messages), quorum_coordinator.c and shrink.c
 *   calls        control (dial, who is gone, sockets that others dialled)
 *
 * Locks: control's before am's, never the other way round.
 * No call of a user holds the lock while it waits.
 *
 *   am.c       make, thread, who is gone, close
 *   am_connection.c  sockets: letters out and in
 *   am_send.c  a caller's letter, dialing
 *   am_unexpected.c   letters that have come
 *   am_recv.c  who waits for them
 */
#ifndef TT_AM_H
#define TT_AM_H

#include "control/control.h"

/* bytes of letters that are kept, beyond which they wait at their sender */
#define TT_AM_UNEXPECTED_BYTES (64u << 20)

enum tt_am_kind {
	TT_AM_USER_MESSAGE = 1,                /* a user's */
	TT_AM_PROPOSAL, TT_AM_DECISION,       /* shrink.c: to its chair; of its chair, or a standing */
	TT_AM_CONTRIBUTION,                       /* to rank 0: contribution or rtr for a result: quorum */
	TT_AM_OUTCOME, TT_AM_RESULT,       /* rank 0's answer: who was in it; the bytes */
	TT_AM_GOODBYE,                        /* this rank leaves */
	TT_AM_KINDS
};

struct tt_am_header {
	enum tt_am_kind kind;
	int tag;                         /* MESSAGE: the user's */
	/* ... as well; quorums: number of the operation; shrink.c: its number */
	uint64_t version;
	uint64_t bytes;                  /* that follow */
	uint32_t call[4];                /* GIVE: type, op, k, deadline */
	int source;                      /* not on the wire: the connection tells */
};

struct tt_am;

/* The am of a control, without a thread yet; from now on it takes what other ranks dial.
 * 0 | TT_SYSTEM */
int tt_am_make(struct tt_control *ctl, int rank, int nranks, uint32_t timeout_ms,
		 struct tt_am **ret_am);
/* Tell all who have a connection, and wait until their hosts have what was for them (as
 * tt_control_leave); free. */
void tt_am_close(struct tt_am *am);
/* Every wait ends with TT_REMOTE, now and later; tuttiCommAbort. Thread: any. */
void tt_am_abort(struct tt_am *am);

/* Send; head->bytes of data follow. Blocks until data may be used again, at most until deadline_ns.
 * 0 | TT_REMOTE (peer is gone) | TT_TIMEOUT | TT_SYSTEM. Thread: any. */
int tt_am_send(struct tt_am *am, int peer, const struct tt_am_header *head,
		 const void *data, uint64_t deadline_ns);

/* What a receiver wants. */
struct tt_am_match {
	enum tt_am_kind kind;
	int source, tag;                 /* -1: any */
	bool probe;                       /* the letter stays */
	void *to;
	size_t room;
};
/* 0, and the head of what came | 1 nothing came until deadline_ns (0: only look), or the wait was
 * cancelled | TT_REMOTE source is gone and nothing of it is left | TT_ARG too large for room;
 * stays. Thread: any. */
int tt_am_recv(struct tt_am *am, const struct tt_am_match *want, uint64_t deadline_ns,
		 struct tt_am_header *ret_head);
/* Drop messages that have come with a version below `version` (UINT64_MAX: any) and end waits for
 * exactly these. */
uint64_t tt_am_cancel(struct tt_am *am, int source, int tag, uint64_t version);

/* Drop what has come of this kind. */
void tt_am_drop(struct tt_am *am, enum tt_am_kind kind);
/* From now on offers up to this version are answered by this decision, whether or not anybody is in
 * a call. NULL: no more. Thread: any. */
void tt_am_set_decision(struct tt_am *am, uint64_t version, const void *decision, size_t bytes);

/* Alive, left or dead, as known here. */
tuttiRankState_t tt_am_state(struct tt_am *am, int rank);

/* Bytes held; payload bytes and letters sent so far. */
size_t tt_am_memory(struct tt_am *am);
void tt_am_sent(struct tt_am *am, uint64_t *ret_bytes, uint64_t *ret_messages);

#endif
