/*
 * am_internal.h - what the files of am, and quorum_coordinator.c, share: connections, the box, the service
 * thread's state
 *
 * am->lock guards everything; the service thread lets it go only while it sleeps, from_caller while
 * they wait. "locked" means that the caller holds it. Reads and writes of sockets never block.
 */
#ifndef TT_AM_INTERNAL_H
#define TT_AM_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "am/am.h"

#define TT_AM_HEADER_BYTES 48

/* Bytes that several parcels send. */
struct tt_am_payload { int refs; size_t bytes; uint8_t data[] __attribute__((aligned(64))); };

/* A letter on its way out. A caller's lies on its stack until done; others are freed when sent. */
struct tt_am_outgoing {
	struct tt_am_outgoing *next;
	uint8_t head[TT_AM_HEADER_BYTES];
	const uint8_t *data;
	size_t bytes, sent;              /* of head and data together */
	struct tt_am_payload *payload;        /* that data lies in, or NULL */
	bool from_caller, done;
	int rc;
};

/* A letter that has come. */
struct tt_am_unexpected {
	struct tt_am_unexpected *next;
	struct tt_am_header head;
	uint8_t data[] __attribute__((aligned(64)));
};

/* Somebody waits. */
struct tt_am_posted {
	struct tt_am_posted *next;
	const struct tt_am_match *want;
	/* CALLED: a letter for it was kept before it woke up,
	 * so that no later one may overtake that */
	enum { TT_POSTED_WAITING, TT_POSTED_NOTIFIED, TT_POSTED_FILLING, TT_POSTED_DONE, TT_POSTED_CANCELED } state;
	struct tt_am_header head;      /* DONE */
};

struct tt_am_conn {
	struct tt_am_conn *next;
	int fd, peer;
	/* dead: freed at the end of the round; watched: in epoll, for: */
	bool dead, watched;
	uint32_t events;
	struct tt_am_outgoing *sendq, **sendq_last;
	/* in */
	uint8_t raw[TT_AM_HEADER_BYTES];
	size_t have;                     /* of raw, then of the body */
	/* held: no room for the body, nothing is read until there is */
	bool in_body, stalled;
	struct tt_am_header head;
	uint8_t *to;                     /* the body goes there; NULL: it is thrown away */
	struct tt_am_unexpected *unexpected;        /* ... which is in this one, */
	struct tt_am_posted *posted;        /* or what this one waits for, or else quorum's */
};

struct tt_quorum;

struct tt_am {
	struct tt_control *ctl;
	int rank, nranks;
	uint32_t timeout_ms;
	pid_t pid;
	pthread_mutex_t lock;
	pthread_cond_t changed;          /* anything a caller may wait for */
	pthread_t thread;
	int epoll, wake;
	bool threaded, stop, aborted;
	struct tt_am_conn *conns, **send_conn;       /* [nranks]: the one for letters to it */
	bool *dialing;                  /* [nranks] */
	uint8_t *gone;                   /* [nranks] tuttiRankState_t */
	struct tt_am_unexpected *unexpected, **unexpected_last;
	size_t unexpected_bytes;
	struct tt_am_posted *posted, **posted_last;
	uint64_t sent_bytes, messages;
	struct tt_am_payload *decision;      /* the answer to offers up to decision_version, or NULL */
	uint64_t decision_version;
	struct tt_quorum *quorum;        /* rank 0's books, made by the first contribution */
};

/* am.c */
/* locked; the thread, if there is none yet. 0 | TT_SYSTEM */
int tt_am_start(struct tt_am *am);
void tt_am_gone(struct tt_am *am, int rank, tuttiRankState_t how);        /* locked */
/* Wait for a change; locked. false: deadline_ns has passed */
bool tt_am_await(struct tt_am *am, uint64_t deadline_ns);

/* am_connection.c, locked */
/* takes fd. 0 | TT_SYSTEM */
int tt_am_conn_add(struct tt_am *am, int peer, int fd);
void tt_am_conn_event(struct tt_am *am, struct tt_am_conn *conn, uint32_t events);
void tt_am_conn_watch(struct tt_am *am, struct tt_am_conn *conn);
void tt_am_conn_end(struct tt_am *am, struct tt_am_conn *conn, tuttiRankState_t how);
/* free dead ones; service thread */
void tt_am_conn_reap(struct tt_am *am);
/* Queue a letter without waiting; the service thread's way. data: NULL, or in shared, which gets
 * one more user. */
void tt_am_post(struct tt_am *am, int peer, const struct tt_am_header *head,
		  struct tt_am_payload *payload);
/* Queue a parcel and send what the kernel takes. A caller's must stay until it is done. */
void tt_am_enqueue(struct tt_am *am, struct tt_am_conn *conn, struct tt_am_outgoing *message);
void tt_am_header_put(const struct tt_am_header *head, uint8_t ret_raw[TT_AM_HEADER_BYTES]);
void tt_am_payload_drop(struct tt_am_payload *payload);
/* some connection with it, or NULL */
struct tt_am_conn *tt_am_conn_find(const struct tt_am *am, int peer);

/* am_unexpected.c, locked */
/* Where does the body of conn->head go? Sets to, letter, waiter, or held. */
void tt_unexpected_route(struct tt_am *am, struct tt_am_conn *conn);
void tt_unexpected_arrived(struct tt_am *am, struct tt_am_conn *conn);
void tt_unexpected_lost(struct tt_am *am, struct tt_am_conn *conn);      /* it ended amid a body */
/* A letter of this rank to itself: 1 taken | 0 no room now | TT_SYSTEM */
int tt_unexpected_put(struct tt_am *am, const struct tt_am_header *head, const void *data);
void tt_unexpected_free(struct tt_am *am);
/* For am_recv.c: */
bool tt_unexpected_matches(const struct tt_am_match *want, const struct tt_am_header *head);
/* Room for one, which counts from now on. NULL: no memory */
struct tt_am_unexpected *tt_unexpected_alloc(struct tt_am *am, const struct tt_am_header *head);
void tt_unexpected_unlink(struct tt_am *am, struct tt_am_unexpected **at);
/* There is room again: connections that were held read on. */
void tt_unexpected_resume(struct tt_am *am);

/* quorum_coordinator.c, locked: rank 0 */
/* A contribution begins: where its body goes; NULL: it is not wanted, and has been answered */
uint8_t *tt_quorum_begin(struct tt_am *am, const struct tt_am_header *head);
void tt_quorum_arrived(struct tt_am *am, const struct tt_am_header *head);
/* it is gone, perhaps amid a body */
void tt_quorum_lost(struct tt_am *am, int source);
uint64_t tt_quorum_timers(struct tt_am *am, uint64_t now);
void tt_quorum_free(struct tt_am *am);
size_t tt_quorum_memory(const struct tt_am *am);

#endif
