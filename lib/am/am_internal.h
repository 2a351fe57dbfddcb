/*
 * am_internal.h - state shared by the files of am: connections, queues, service thread
 *
 * am->lock guards everything. The service thread releases the lock only while it sleeps, callers
 * only while they wait or copy. "Locked" means that the caller holds am->lock. Socket reads and
 * writes never block.
 */
#ifndef TT_AM_INTERNAL_H
#define TT_AM_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "am/am.h"

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

struct tt_am_conn {
	struct tt_am_conn *next;
	int fd, peer;
	/* dead: freed at the end of the service thread's round; watched: in epoll, with `events` */
	bool dead, watched;
	uint32_t events;
	struct tt_am_outgoing *sendq, **sendq_last;
	/* incoming */
	uint8_t raw[TT_AM_HEADER_BYTES];
	size_t have; /* bytes received of raw, then of the body */
	/* stalled (back-pressure): no room for the body, so nothing is read */
	bool in_body, stalled;
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
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signaled at every change that a caller may wait for */
	pthread_t thread;
	int epoll, wake;
	bool threaded, stop;
	atomic_bool aborted; /* set locked; a dial reads it without the lock */
	struct tt_am_conn *conns;
	struct tt_am_conn **send_conn; /* [nranks] connection for messages to a rank, or NULL */
	bool *dialing;                 /* [nranks] a caller dials this rank */
	uint8_t *gone;                 /* [nranks] tuttiRankState_t */
	struct tt_am_unexpected *unexpected, **unexpected_last;
	size_t unexpected_bytes;
	struct tt_am_posted *posted, **posted_last;
	uint64_t sent_bytes, messages;
	/* standing decision: answers proposals with a version up to decision_version; NULL: none */
	struct tt_am_payload *decision;
	uint64_t decision_version;
	/* rank 0's coordinator, created by the first contribution */
	struct tt_quorum *quorum;
};

/* am.c */
/* Starts the service thread, if not running. Locked. 0 | TT_SYSTEM */
int tt_am_start(struct tt_am *am);
/* records a state; locked */
void tt_am_gone(struct tt_am *am, int rank, tuttiRankState_t how);
/* Waits for a change. Locked. Returns false when deadline_ns has passed. */
bool tt_am_await(struct tt_am *am, uint64_t deadline_ns);

/* am_connection.c, locked */
/* Adds a connection and takes ownership of fd. 0 | TT_SYSTEM */
int tt_am_conn_add(struct tt_am *am, int peer, int fd);
void tt_am_conn_event(struct tt_am *am, struct tt_am_conn *conn, uint32_t events);
void tt_am_conn_watch(struct tt_am *am, struct tt_am_conn *conn);
/* The message at which conn stalled has a destination now: read on. */
void tt_am_conn_resume(struct tt_am *am, struct tt_am_conn *conn);
void tt_am_conn_end(struct tt_am *am, struct tt_am_conn *conn, tuttiRankState_t how);
/* Frees dead connections. Service thread only. */
void tt_am_conn_reap(struct tt_am *am);
/* Queues a message without waiting; used by the service thread. payload: the body, gets one more
 * reference; NULL: no body. */
void tt_am_post(struct tt_am *am, int peer, const struct tt_am_header *head,
		struct tt_am_payload *payload);
/* Queues a message and sends as many bytes as the kernel takes. A caller's message must live until
 * done. */
void tt_am_enqueue(struct tt_am *am, struct tt_am_conn *conn, struct tt_am_outgoing *message);
void tt_am_header_put(const struct tt_am_header *head, uint8_t ret_raw[TT_AM_HEADER_BYTES]);
void tt_am_payload_drop(struct tt_am_payload *payload);
/* Some live connection with peer, or NULL. */
struct tt_am_conn *tt_am_conn_find(const struct tt_am *am, int peer);

/* am_unexpected.c, locked. A message with its body still to come: */
/* Decides the destination of the body of conn->head. Sets to, unexpected or posted, or stalled. */
void tt_unexpected_route(struct tt_am *am, struct tt_am_conn *conn);
void tt_unexpected_arrived(struct tt_am *am, struct tt_am_conn *conn);
/* connection ended inside a body */
void tt_unexpected_lost(struct tt_am *am, struct tt_am_conn *conn);
/* Takes a message of this rank to itself. 1 taken | 0 no room now | TT_SYSTEM */
int tt_unexpected_put(struct tt_am *am, const struct tt_am_header *head, const void *data);
void tt_unexpected_free(struct tt_am *am);
/* Used by am_recv.c: */
bool tt_unexpected_matches(const struct tt_am_match *want, const struct tt_am_header *head);
/* Allocates a message; its bytes count as queued. NULL: no memory */
struct tt_am_unexpected *tt_unexpected_alloc(struct tt_am *am, const struct tt_am_header *head);
void tt_unexpected_unlink(struct tt_am *am, struct tt_am_unexpected **at);
/* Room was freed: stalled connections read on. */
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
