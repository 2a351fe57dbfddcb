/*
 * am_internal.h - state shared by the files of am: streams, queues
 *
 * The lock of the communicator's endpoint guards everything. Callers release the lock while they
 * wait or copy. "Locked" means that the caller holds the lock; locked functions never block.
 */
#ifndef TT_AM_INTERNAL_H
#define TT_AM_INTERNAL_H

#include <sys/types.h>

#include "am/am.h"
#include "base/rank_set.h"
#include "base/sparse.h"

#define TT_AM_HEADER_BYTES 48

/* Body shared by several outgoing messages. */
struct tt_am_payload {
	int refs;
	size_t bytes;
	uint8_t data[] __attribute__((aligned(64)));
};

/* Outgoing message. A caller's message lives on its stack until done; other messages are freed
 * after the send. */
struct tt_am_outgoing {
	struct tt_am_outgoing *next;
	uint8_t head[TT_AM_HEADER_BYTES];
	const uint8_t *data;
	size_t bytes, sent;            /* header and body together */
	struct tt_am_payload *payload; /* owner of data, or NULL */
	bool from_caller, done;        /* from_caller: on the stack of a caller */
	int rc;
};

/* Message in the unexpected queue: arrived, no posted receive matched. */
struct tt_am_unexpected {
	struct tt_am_unexpected *next;
	struct tt_am_header head;
	uint8_t data[] __attribute__((aligned(64)));
};

/* Posted receive. */
struct tt_am_posted {
	struct tt_am_posted *next;
	const struct tt_am_match *want;
	/* NOTIFIED: a matching message was queued before the receiver woke up, so no later message
	 * may overtake that message */
	enum {
		TT_POSTED_WAITING,
		TT_POSTED_NOTIFIED,
		TT_POSTED_FILLING,
		TT_POSTED_DONE,
		TT_POSTED_CANCELED
	} state;
	struct tt_am_header head; /* state DONE */
};

/* The two streams of bytes between this rank and another: messages, each a header and a body, one
 * after the other, cut into frames. */
struct tt_am_stream {
	int peer;
	/* outgoing */
	struct tt_am_outgoing *sendq, **sendq_last;
	uint64_t sent, limit; /* bytes sent; bytes that the peer takes, in all */
	bool cut;             /* part of a message is missing: nothing more is sent */
	/* incoming */
	uint64_t received, placed; /* bytes; bytes of messages that have a destination */
	uint64_t granted;          /* the peer's limit */
	uint8_t raw[TT_AM_HEADER_BYTES];
	size_t have; /* bytes received of raw, then of the body */
	/* stalled (back-pressure): no room for the body; what comes after its header is held */
	bool in_body, stalled;
	struct tt_am_stream *next_stalled;
	uint8_t *held;
	size_t held_at, held_bytes; /* held[held_at .. held_bytes - 1] */
	struct tt_am_header head;
	/* destination of the body; NULL: discard. The body belongs to: */
	uint8_t *to;
	struct tt_am_unexpected *unexpected; /* this message of the unexpected queue, */
	/* this posted receive, or (both NULL) the quorum coordinator */
	struct tt_am_posted *posted;
};

struct tt_quorum;

struct tt_am {
	struct tt_control *ctl;
	int rank, nranks;
	uint32_t timeout_ms;
	pid_t pid;
	pthread_mutex_t *lock;    /* of the endpoint */
	pthread_cond_t changed;   /* signaled at every change that a caller may wait for */
	atomic_bool aborted;      /* set locked; a connecting thread reads it without the lock */
	uint64_t window;          /* bytes that a peer may send ahead of their destination */
	bool retries;             /* a frame was not sent, for lack of memory; and when to retry: */
	uint64_t retry_ns;        /* UINT64_MAX: not yet decided */
	struct tt_sparse streams; /* of the ranks with something sent or received, and not over */
	struct tt_am_stream *stalled, **stalled_last; /* oldest first */
	uint8_t *left, *dead;                         /* ranks */
	uint64_t seek_ns; /* when a receive asks partitioned ranks again */
	struct tt_am_unexpected *unexpected, **unexpected_last;
	size_t unexpected_bytes, unexpected_most; /* the limit */
	struct tt_am_posted *posted, **posted_last;
	uint64_t sent_bytes, messages;
	uint8_t *answer; /* to queries */
	size_t answer_bytes;
	int asker; /* the latest lower rank that sent a query, -1: none */
	/* rank 0's coordinator, created by the first contribution */
	struct tt_quorum *quorum;
};

/* am.c */
/* records a state; locked */
void tt_am_gone(struct tt_am *am, int rank, tuttiRankState_t how);
static inline tuttiRankState_t tt_am_how_gone(const struct tt_am *am, int rank)
{
	return tt_set_has(am->left, rank)   ? tuttiRankLeft
	       : tt_set_has(am->dead, rank) ? tuttiRankDead
					    : tuttiRankAlive;
}
static inline bool tt_am_lives(const struct tt_am *am, int rank)
{
	return tt_am_how_gone(am, rank) == tuttiRankAlive;
}
/* Waits for a change. Locked. Returns false when deadline_ns has passed. */
bool tt_am_await(struct tt_am *am, uint64_t deadline_ns);

/* am_send.c. Connects to peer, unless a connection exists. Locked, except while connecting. 0 |
 * TT_REMOTE: the peer is gone, or *stop | < 0 */
int tt_am_connect_locked(struct tt_am *am, int peer, uint64_t deadline_ns, const atomic_bool *stop);

/* am_stream.c, locked */
/* The streams of a rank, NULL: nothing sent or received yet, or over */
static inline struct tt_am_stream *tt_stream_at(const struct tt_am *am, int peer)
{
	return tt_sparse_get(&am->streams, peer);
}
/* The streams of a rank, made when missing. NULL: no memory */
struct tt_am_stream *tt_stream_of(struct tt_am *am, int peer);
/* Queues a message and sends as many bytes as credit and connection allow. A caller's message must
 * live until done. */
void tt_stream_enqueue(struct tt_am *am, struct tt_am_stream *s, struct tt_am_outgoing *message);
/* Sends queued messages on. */
void tt_stream_send(struct tt_am *am, struct tt_am_stream *s);
/* Frames of a peer: bytes of its stream; the limit of this rank's stream */
void tt_stream_bytes(struct tt_am *am, int peer, const uint8_t *data, size_t bytes);
void tt_stream_credit(struct tt_am *am, int peer, const uint8_t *data, size_t bytes);
/* The message at which s stalled has a destination now, or none: discard. May free s. */
void tt_stream_resume(struct tt_am *am, struct tt_am_stream *s);
/* Nothing more comes from the peer, or goes to it. May free its streams. */
void tt_stream_over(struct tt_am *am, int peer);
/* Sends again what a lack of memory kept back. */
void tt_stream_retry(struct tt_am *am);
/* Is everything sent to ranks that are alive? */
bool tt_stream_all_sent(const struct tt_am *am);
void tt_stream_free_all(struct tt_am *am);
size_t tt_stream_memory(const struct tt_am *am);
/* Queues a message without waiting. payload: the body, gets one more reference; NULL: no body. */
void tt_am_post(struct tt_am *am, int peer, const struct tt_am_header *head,
		struct tt_am_payload *payload);
void tt_am_header_put(const struct tt_am_header *head, uint8_t ret_raw[TT_AM_HEADER_BYTES]);
bool tt_am_header_get(const uint8_t raw[TT_AM_HEADER_BYTES], struct tt_am_header *ret_head);
/* A message of peer is not allowed: closes the connection. */
void tt_am_malformed(struct tt_am *am, int peer, const struct tt_am_header *head);
void tt_am_payload_drop(struct tt_am_payload *payload);

/* am_shrink.c, locked: a frame of a peer */
void tt_am_shrink_frame(struct tt_am *am, int peer, const uint8_t *data, size_t bytes);

/* am_unexpected.c, locked. A message with its body still to come: */
/* Decides the destination of the body of s->head: sets to, unexpected or posted. false: no room,
 * the stream stalls */
bool tt_unexpected_route(struct tt_am *am, struct tt_am_stream *s);
void tt_unexpected_arrived(struct tt_am *am, struct tt_am_stream *s);
/* stream ended inside a body */
void tt_unexpected_lost(struct tt_am *am, struct tt_am_stream *s);
/* Takes a whole message. false: no room now, or no memory */
bool tt_unexpected_place(struct tt_am *am, const struct tt_am_header *head, const void *data);
/* Takes a message of this rank to itself. 1 taken | 0 no room now | TT_SYSTEM */
int tt_unexpected_put(struct tt_am *am, const struct tt_am_header *head, const void *data);
void tt_unexpected_free(struct tt_am *am);
/* Used by am_recv.c: */
bool tt_unexpected_matches(const struct tt_am_match *want, const struct tt_am_header *head);
/* Allocates a message; its bytes count as queued. NULL: no memory */
struct tt_am_unexpected *tt_unexpected_alloc(struct tt_am *am, const struct tt_am_header *head);
void tt_unexpected_unlink(struct tt_am *am, struct tt_am_unexpected **at);
/* Room was freed: stalled streams go on. */
void tt_unexpected_resume(struct tt_am *am);

/* quorum_coordinator.c, locked, rank 0 only */
/* A contribution begins. Returns the destination of its body; NULL: not accepted: the sender was
 * answered, or its deadline expires */
uint8_t *tt_quorum_begin(struct tt_am *am, const struct tt_am_header *head);
void tt_quorum_arrived(struct tt_am *am, const struct tt_am_header *head);
/* source left or died, perhaps inside a body */
void tt_quorum_lost(struct tt_am *am, int source);
uint64_t tt_quorum_timers(struct tt_am *am, uint64_t now);
void tt_quorum_free(struct tt_am *am);
size_t tt_quorum_memory(const struct tt_am *am);

#endif
