/*
 * am_internal.h - what the files of mail, and quorum_coordinator.c, share: connections, the box, the service
 * thread's state
 *
 * mail->lock guards everything; the service thread lets it go only while it sleeps, callers while
 * they wait. "locked" means that the caller holds it. Reads and writes of sockets never block.
 */
#ifndef TT_MAIL_INSIDE_H
#define TT_MAIL_INSIDE_H

#include <pthread.h>
#include <sys/types.h>

#include "am/am.h"

#define TT_HEAD_BYTES 48

/* Bytes that several parcels send. */
struct tt_shared { int users; size_t bytes; uint8_t data[] __attribute__((aligned(64))); };

/* A letter on its way out. A caller's lies on its stack until done; others are freed when sent. */
struct tt_parcel {
	struct tt_parcel *next;
	uint8_t head[TT_HEAD_BYTES];
	const uint8_t *data;
	size_t bytes, sent;              /* of head and data together */
	struct tt_shared *shared;        /* that data lies in, or NULL */
	bool callers, done;
	int rc;
};

/* A letter that has come. */
struct tt_letter {
	struct tt_letter *next;
	struct tt_letter_head head;
	uint8_t data[] __attribute__((aligned(64)));
};

/* Somebody waits. */
struct tt_waiter {
	struct tt_waiter *next;
	const struct tt_mail_want *want;
	/* CALLED: a letter for it was kept before it woke up,
	 * so that no later one may overtake that */
	enum { TT_W_WAITING, TT_W_CALLED, TT_W_FILLING, TT_W_DONE, TT_W_CANCELLED } state;
	struct tt_letter_head head;      /* DONE */
};

struct tt_mail_conn {
	struct tt_mail_conn *next;
	int fd, peer;
	/* dead: freed at the end of the round; watched: in epoll, for: */
	bool dead, watched;
	uint32_t events;
	struct tt_parcel *out, **out_last;
	/* in */
	uint8_t raw[TT_HEAD_BYTES];
	size_t have;                     /* of raw, then of the body */
	/* held: no room for the body, nothing is read until there is */
	bool in_body, held;
	struct tt_letter_head head;
	uint8_t *to;                     /* the body goes there; NULL: it is thrown away */
	struct tt_letter *letter;        /* ... which is in this one, */
	struct tt_waiter *waiter;        /* or what this one waits for, or else quorum's */
};

struct tt_quorum;

struct tt_mail {
	struct tt_control *ctl;
	int rank, nranks;
	uint32_t timeout_ms;
	pid_t pid;
	pthread_mutex_t lock;
	pthread_cond_t changed;          /* anything a caller may wait for */
	pthread_t thread;
	int epoll, wake;
	bool threaded, stop, cut;
	struct tt_mail_conn *conns, **out;       /* [nranks]: the one for letters to it */
	bool *dialling;                  /* [nranks] */
	uint8_t *gone;                   /* [nranks] tuttiRankState_t */
	struct tt_letter *box, **box_last;
	size_t box_bytes;
	struct tt_waiter *waiters, **waiters_last;
	uint64_t sent_bytes, letters;
	struct tt_shared *standing;      /* the answer to offers up to standing_version, or NULL */
	uint64_t standing_version;
	struct tt_quorum *quorum;        /* rank 0's books, made by the first contribution */
};

/* am.c */
/* locked; the thread, if there is none yet. 0 | TT_SYSTEM */
int tt_mail_start(struct tt_mail *mail);
void tt_mail_gone(struct tt_mail *mail, int rank, tuttiRankState_t how);        /* locked */
/* Wait for a change; locked. false: deadline_ns has passed */
bool tt_mail_await(struct tt_mail *mail, uint64_t deadline_ns);

/* am_connection.c, locked */
/* takes fd. 0 | TT_SYSTEM */
int tt_mail_conn_add(struct tt_mail *mail, int peer, int fd);
void tt_mail_conn_event(struct tt_mail *mail, struct tt_mail_conn *conn, uint32_t events);
void tt_mail_conn_watch(struct tt_mail *mail, struct tt_mail_conn *conn);
void tt_mail_conn_end(struct tt_mail *mail, struct tt_mail_conn *conn, tuttiRankState_t how);
/* free dead ones; service thread */
void tt_mail_bury(struct tt_mail *mail);
/* Queue a letter without waiting; the service thread's way. data: NULL, or in shared, which gets
 * one more user. */
void tt_mail_post(struct tt_mail *mail, int peer, const struct tt_letter_head *head,
		  struct tt_shared *shared);
/* Queue a parcel and send what the kernel takes. A caller's must stay until it is done. */
void tt_mail_append(struct tt_mail *mail, struct tt_mail_conn *conn, struct tt_parcel *parcel);
void tt_letter_put(const struct tt_letter_head *head, uint8_t ret_raw[TT_HEAD_BYTES]);
void tt_shared_drop(struct tt_shared *shared);
/* some connection with it, or NULL */
struct tt_mail_conn *tt_mail_live(const struct tt_mail *mail, int peer);

/* am_unexpected.c, locked */
/* Where does the body of conn->head go? Sets to, letter, waiter, or held. */
void tt_box_place(struct tt_mail *mail, struct tt_mail_conn *conn);
void tt_box_arrived(struct tt_mail *mail, struct tt_mail_conn *conn);
void tt_box_lost(struct tt_mail *mail, struct tt_mail_conn *conn);      /* it ended amid a body */
/* A letter of this rank to itself: 1 taken | 0 no room now | TT_SYSTEM */
int tt_box_put(struct tt_mail *mail, const struct tt_letter_head *head, const void *data);
void tt_box_free(struct tt_mail *mail);
/* For am_recv.c: */
bool tt_box_fits(const struct tt_mail_want *want, const struct tt_letter_head *head);
/* Room for one, which counts from now on. NULL: no memory */
struct tt_letter *tt_box_letter(struct tt_mail *mail, const struct tt_letter_head *head);
void tt_box_unlink(struct tt_mail *mail, struct tt_letter **at);
/* There is room again: connections that were held read on. */
void tt_box_make_way(struct tt_mail *mail);

/* quorum_coordinator.c, locked: rank 0 */
/* A contribution begins: where its body goes; NULL: it is not wanted, and has been answered */
uint8_t *tt_quorum_place(struct tt_mail *mail, const struct tt_letter_head *head);
void tt_quorum_arrived(struct tt_mail *mail, const struct tt_letter_head *head);
/* it is gone, perhaps amid a body */
void tt_quorum_lost(struct tt_mail *mail, int source);
uint64_t tt_quorum_timers(struct tt_mail *mail, uint64_t now);
void tt_quorum_free(struct tt_mail *mail);
size_t tt_quorum_memory(const struct tt_mail *mail);

#endif
