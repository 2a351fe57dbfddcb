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
 * Locks: control's before mail's, never the other way round.
 * No call of a user holds the lock while it waits.
 *
 *   am.c       make, thread, who is gone, close
 *   am_connection.c  sockets: letters out and in
 *   am_send.c  a caller's letter, dialling
 *   am_unexpected.c   letters that have come
 *   am_recv.c  who waits for them
 */
#ifndef TT_MAIL_H
#define TT_MAIL_H

#include "control/control.h"

/* bytes of letters that are kept, beyond which they wait at their sender */
#define TT_MAIL_BOX (64u << 20)

enum tt_mail_kind {
	TT_M_MESSAGE = 1,                /* a user's */
	TT_M_OFFER, TT_M_DECISION,       /* shrink.c: to its chair; of its chair, or a standing */
	TT_M_GIVE,                       /* to rank 0: contribution or wish for a result: quorum */
	TT_M_VERDICT, TT_M_RESULT,       /* rank 0's answer: who was in it; the bytes */
	TT_M_BYE,                        /* this rank leaves */
	TT_M_KINDS
};

struct tt_letter_head {
	enum tt_mail_kind kind;
	int tag;                         /* MESSAGE: the user's */
	/* ... as well; quorums: number of the operation; shrink.c: its number */
	uint64_t version;
	uint64_t bytes;                  /* that follow */
	uint32_t call[4];                /* GIVE: type, op, k, deadline */
	int source;                      /* not on the wire: the connection tells */
};

struct tt_mail;

/* The mail of a control, without a thread yet; from now on it takes what other ranks dial.
 * 0 | TT_SYSTEM */
int tt_mail_make(struct tt_control *ctl, int rank, int nranks, uint32_t timeout_ms,
		 struct tt_mail **ret_mail);
/* Tell all who have a connection, and wait until their hosts have what was for them (as
 * tt_control_leave); free. */
void tt_mail_close(struct tt_mail *mail);
/* Every wait ends with TT_REMOTE, now and later; tuttiCommAbort. Thread: any. */
void tt_mail_cut(struct tt_mail *mail);

/* Send; head->bytes of data follow. Blocks until data may be used again, at most until deadline_ns.
 * 0 | TT_REMOTE (peer is gone) | TT_TIMEOUT | TT_SYSTEM. Thread: any. */
int tt_mail_send(struct tt_mail *mail, int peer, const struct tt_letter_head *head,
		 const void *data, uint64_t deadline_ns);

/* What a receiver wants. */
struct tt_mail_want {
	enum tt_mail_kind kind;
	int source, tag;                 /* -1: any */
	bool look;                       /* the letter stays */
	void *to;
	size_t room;
};
/* 0, and the head of what came | 1 nothing came until deadline_ns (0: only look), or the wait was
 * cancelled | TT_REMOTE source is gone and nothing of it is left | TT_ARG too large for room;
 * stays. Thread: any. */
int tt_mail_recv(struct tt_mail *mail, const struct tt_mail_want *want, uint64_t deadline_ns,
		 struct tt_letter_head *ret_head);
/* Drop messages that have come with a version below `version` (UINT64_MAX: any) and end waits for
 * exactly these. */
uint64_t tt_mail_cancel(struct tt_mail *mail, int source, int tag, uint64_t version);

/* Drop what has come of this kind. */
void tt_mail_forget(struct tt_mail *mail, enum tt_mail_kind kind);
/* From now on offers up to this version are answered by this decision, whether or not anybody is in
 * a call. NULL: no more. Thread: any. */
void tt_mail_stand(struct tt_mail *mail, uint64_t version, const void *decision, size_t bytes);

/* Alive, left or dead, as known here. */
tuttiRankState_t tt_mail_state(struct tt_mail *mail, int rank);

/* Bytes held; payload bytes and letters sent so far. */
size_t tt_mail_memory(struct tt_mail *mail);
void tt_mail_sent(struct tt_mail *mail, uint64_t *ret_bytes, uint64_t *ret_letters);

#endif
