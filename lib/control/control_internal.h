/*
 * control_internal.h - what the files of control share: the connections, the service thread's state,
 * who does what
 *
 * One lock guards everything that is not marked otherwise. The service thread holds it while it
 * works and lets it go while it sleeps; callers take it briefly, and send on connections
 * themselves. Nothing under it blocks: sends are non-blocking into a bounded queue.
 *
 *   control.c          make, service thread, leave
 *   bootstrap.c        join
 *   bootstrap_root.c     rank 0's side of joining
 *   bootstrap_tree.c     the tree and the ring come to be
 *   control_split.c    some ranks of an existing control
 *   control_accept.c   the listener and its guests (pending handshakes)
 *   control_connect.c     connect to a rank; data sockets
 *   control_connection.c     frames in and out
 *   control_allgather.c   allgather
 *   control_flood.c    broken, abort, goodbye, deaths
 *   call_log.c    the call board
 *   call_text.c     calls in words
 *   control_status.c   statuses, who is missing; control_status_format.c: as bytes
 *   deadlock.c    who waits for whom for ever
 */
#ifndef TT_CONTROL_INTERNAL_H
#define TT_CONTROL_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "control/control.h"
#include "control/handshake.h"
#include "control/frame.h"

#define TT_FANOUT 8
#define TT_CALL_LOG_ENTRIES 64            /* calls that the board remembers */
#define TT_HISTORY_RUNS 8               /* runs of equal calls that a status tells */
#define TT_MESSAGES 16           /* messages that a pair remembers, each way */
#define TT_PAIRS 8               /* pairs that a status tells */
#define TT_GUESTS 64             /* handshakes under way, at most */
#define TT_SECOND 1000000000ull
#define TT_NEVER UINT64_MAX

/* first member of what epoll points at */
enum tt_source { TT_SRC_WAKE, TT_SRC_LISTENER, TT_SRC_GUEST, TT_SRC_CONN };

enum { TT_ROLE_REGISTER = 1, TT_ROLE_PARENT = 2, TT_ROLE_CHILD = 4, TT_ROLE_RING = 8 };

struct tt_conn {
	enum tt_source source;
	struct tt_conn *next;
	int fd, peer;
	unsigned roles;
	bool registered;         /* REGISTER: rank 0 has accepted what the rank says of itself */
	bool over;               /* its end is not a death: goodbye, released, refused */
	int error;               /* with which it ended, 0: orderly */
	bool dead;               /* closed; freed at the end of the service thread's round */
	uint8_t *in;
	size_t in_have, in_room;
	struct tt_writer out;    /* what the kernel has not taken yet */
	bool writing;            /* epoll watches for room */
	bool closing;            /* no more is said after that */
	uint8_t *early;          /* a child's part of an allgather that this rank has not begun */
	size_t early_bytes;
};

struct tt_guest {                /* a connection that has not proved anything yet */
	enum tt_source source;
	struct tt_guest *next;
	int fd;
	uint64_t since_ns;
	bool proving, dead;      /* proving: the reply is out, the proof is awaited */
	struct tt_hello hello;
	uint8_t said[TT_HELLO_BYTES], reply[TT_REPLY_BYTES], proof[TT_MAC];
	size_t have;             /* of said or proof */
};

struct tt_parked {               /* an accepted data socket that tt_control_take has not taken */
	struct tt_parked *next;
	int fd, peer, channel;
};

/* One line of the board: seq is 0 while the words change.
 * Written by the calling thread, read by any. */
struct tt_call_log_entry { atomic_uint_fast64_t seq, word[2]; };

/* Messages with one rank; [0] received, [1] sent. Made by the first. */
struct tt_pair {
	atomic_uint_fast64_t started[2];
	struct tt_call_log_entry line[2][TT_MESSAGES];
};

/* The newest calls, newest first; calls that repeat are told once. */
struct tt_call_history {
	int nruns;
	struct { uint8_t times; struct tt_call call; } run[TT_HISTORY_RUNS];
};

struct tt_status {
	int origin, awaited;             /* awaited: -1 none or several */
	uint32_t serial;
	bool urgent;                     /* at a deadline: answer at once */
	uint64_t started, finished;      /* collective numbers */
	struct tt_call_history trail;           /* number `started` and those before it */
	uint64_t last_received;                  /* last operation in which awaited was last_received of */
	/* nothing moves; OPEN as in struct tt_blocked */
	enum { TT_BLOCKED_NO, TT_BLOCKED_OPEN, TT_BLOCKED } stuck;
	bool exchanging;                 /* in exchange number `exchanges`: a split */
	uint64_t exchanges;
	int nwants, npairs;
	struct tt_wait_edge want[TT_WAIT_EDGES];
	/* with ranks that want a message of it */
	struct { int peer; uint64_t started[2]; } pair[TT_PAIRS];
};

struct tt_bootstrap;

struct tt_control {
	/* what a call touches */
	struct tt_call_log_entry board[TT_CALL_LOG_ENTRIES] __attribute__((aligned(TT_APART)));
	atomic_uint_fast64_t started, finished;
	_Atomic(struct tt_pair *) *pair;         /* [nranks] NULL until a message */
	atomic_uint_fast64_t messages_done;
	atomic_uint_fast64_t gone_after;         /* the least after which some rank left */
	atomic_int broken __attribute__((aligned(TT_APART)));

	/* fixed when made, or before joined is set */
	int rank, nranks;
	pid_t pid;
	struct tt_key key;
	uint8_t job[TT_NONCE];
	int epoch;
	struct tt_ports ports;                   /* for listeners */
	uint64_t splits;                         /* begun; calling thread */
	struct tt_business_card *cards;                   /* [nranks] */
	/* [nranks] 1 + number of the address that reached it; 0: none yet */
	_Atomic uint8_t *best;
	int *host_of, nhosts;
	bool threaded;
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t changed;                  /* anything a caller may wait for */
	int epoll, wake, listener, spare, port;
	enum tt_source wake_source, listener_source;
	bool stop, leaving;
	struct tt_conn *conns;
	struct tt_guest *guests;
	int nguests;
	/* the listener is out of epoll: no guest may come, or no descriptor */
	bool deaf;
	uint64_t hear_again_ns, full_since_ns, full_last_ns;
	uint64_t taking_ns;                      /* when tt_control_take last found nothing */
	/* sent so far, but for who is waited for, which a busy host repeats: a test counts what
	 * joining costs */
	uint64_t frames, frame_bytes;
	char accept_trouble[160];
	struct tt_parked *parked;

	/* joining */
	bool joined;                             /* tree and ring stand */
	bool all_listen;                         /* every rank does, or it is gone */
	struct tt_bootstrap *desk;                    /* rank 0 */
	bool has_parent, has_table;
	struct tt_business_card parent;
	bool *attached;                          /* [nranks] in the tree below this rank */
	char missing[512];                       /* rank 0's latest word on who is not there */

	/* trouble */
	int culprit;
	char text[1024];
	bool hook_due, hook_ran;                 /* hook_ran: under hook_lock */
	bool *left;                              /* [nranks] said goodbye */
	bool *dead;                              /* [nranks] seen by any rank, at any time */
	void (*on_socket)(void *ctx, int peer, int fd);                  /* mail's */
	void (*on_gone)(void *ctx, int rank, tuttiRankState_t how);
	void *am_ctx;
	bool (*lost)(void *ctx, int peer, char *text, size_t bytes);     /* of transports */
	void *lost_ctx;
	uint64_t *left_after, *left_at_ns;
	pthread_mutex_t hook_lock;               /* held while the hook runs */
	void (*hook)(void *ctx);
	void *hook_ctx;

	/* allgather */
	uint64_t gathers;                        /* begun */
	bool gathering, gathered;
	size_t gather_bytes;
	uint8_t *gather_all;
	bool *gather_have;                       /* [nranks] */
	int gather_count;

	/* splitting */
	struct tt_control *child;                /* being connected */
	const struct tt_members *child_members;  /* shrinking: of it */
	uint64_t split_failed;                   /* of the last split that came to nothing: */
	int split_code;
	char split_text[1024];

	/* of the newest shrinking; of the newest without this rank */
	uint64_t shrunk_epoch, excluded_epoch;

	/* statuses */
	struct tt_status *status;                /* [nranks] the latest of each */
	uint64_t *status_at_ns;                  /* 0 none yet */
	uint64_t *last_received;                         /* [nranks] last operation any rank last_received it in */
	uint32_t serial;
	uint64_t told_ns, told_started, answer_due_ns;
	struct tt_blocked stuck;                   /* as of: */
	uint64_t stuck_started, stuck_done;
	bool is_stuck;
	uint64_t look_due_ns;                    /* at who waits for whom */
	bool *deadlocked;                            /* [nranks] scratch of that look */
	atomic_uint_fast64_t asked_ns;           /* when tt_control_waiting last did something */
};

static inline int tt_tree_parent(int rank) { return (rank - 1) / TT_FANOUT; }
static inline bool tt_ring_edge(int a, int b, int n)
{
	return a != b && ((a + 1) % n == b || (b + 1) % n == a);
}
static inline bool tt_tree_edge(int a, int b)
{
	return a != b && tt_tree_parent(a > b ? a : b) == (a > b ? b : a);
}

/* Below, "locked" means: ctl->lock is held by the caller. */

/* control.c: an empty control with its listener (ports NULL: none, it can only connect); start its
 * service thread; free it without ceremony */
int tt_control_make(int rank, int nranks, const struct tt_ports *ports,
		    struct tt_control **ret_ctl);
int tt_control_start(struct tt_control *ctl);
void tt_control_free(struct tt_control *ctl);
void tt_control_wake(struct tt_control *ctl);
void tt_control_number_hosts(struct tt_control *ctl);
/* Wait for a change until deadline_ns; locked. false: it has passed. */
bool tt_control_await(struct tt_control *ctl, uint64_t deadline_ns);

/* control_connection.c, locked */
/* takes fd; NULL: closed it */
struct tt_conn *tt_conn_add(struct tt_control *ctl, int fd, int peer, unsigned roles);
void tt_conn_send(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		  const void *data, size_t bytes);
/* To all connections with one of these roles, but not to except. */
void tt_conn_send_all(struct tt_control *ctl, unsigned roles, const struct tt_conn *except,
		      enum tt_frame kind, const void *data, size_t bytes);
void tt_conn_event(struct tt_control *ctl, struct tt_conn *conn, uint32_t events);
/* our side says no more; its end is no death */
void tt_conn_end(struct tt_control *ctl, struct tt_conn *conn);
struct tt_conn *tt_conn_to(struct tt_control *ctl, int peer, unsigned roles);
/* Free what is dead. Service thread only. */
void tt_conn_bury(struct tt_control *ctl);
/* and acknowledged by the peers' hosts */
bool tt_conn_all_sent(struct tt_control *ctl);
/* One frame of a connection; false: no rank of Tutti sends that. */
bool tt_control_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		      const uint8_t *data, size_t bytes);

/* control_accept.c, locked */
void tt_accept_event(struct tt_control *ctl);
void tt_guest_event(struct tt_control *ctl, struct tt_guest *guest);
/* when it wants to be called again */
uint64_t tt_accept_timers(struct tt_control *ctl, uint64_t now);
void tt_guest_bury(struct tt_control *ctl, bool all);

/* control_connect.c; not locked. An authenticated connection to a rank whose card is known. 0 |
 * TT_REMOTE, TT_TIMEOUT, TT_SYSTEM | what broke the control. */
struct tt_dial {
	const struct tt_business_card *to;
	enum tt_purpose purpose;
	int channel;
	bool named;                      /* the user named the addresses: loopback ones are meant */
	bool anyway;                     /* also when the control is broken */
	/* it listens at one of so many from its port on; 0, 1: at its port */
	int nports;
	uint64_t deadline_ns;
};
int tt_control_connect(struct tt_control *ctl, const struct tt_dial *dial, int *ret_fd);

/* control_flood.c, locked. The first break wins; from: where it came from, NULL this rank. last:
 * the last operation in which culprit was last_received of. */
void tt_control_break(struct tt_control *ctl, int code, int culprit, uint64_t last,
		      const char *text, const struct tt_conn *from);
void tt_control_put_abort(struct tt_writer *w, int origin, int code, int culprit, uint64_t last,
			  const char *text);
bool tt_flood_abort(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		    size_t bytes);
bool tt_flood_goodbye(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes);
void tt_flood_death(struct tt_control *ctl, struct tt_conn *conn);
bool tt_flood_dead(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes);
void tt_flood_leave(struct tt_control *ctl);
/* does this rank's operation wait for one that left? */
void tt_flood_check_left(struct tt_control *ctl);
/* on_broken is due; lets the lock go meanwhile */
void tt_flood_hook(struct tt_control *ctl);
/* What failed at another rank for its own reasons (memory,
 * descriptors) is that rank's failure here. */
int tt_flood_code(int code);
/* tt_fail with what broke ctl */
int tt_control_fail(struct tt_control *ctl);

/* control_allgather.c, locked */
bool tt_gather_up(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes);
bool tt_gather_down(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		    size_t bytes);
void tt_gather_gone(struct tt_control *ctl, int rank);                  /* said goodbye */

/* call_log.c: the call that this rank made as operation seq, or for a message (false: not
 * remembered); the calls up to last */
bool tt_call_log_read(struct tt_control *ctl, uint64_t seq, struct tt_call *ret_call);
bool tt_call_log_message(struct tt_control *ctl, bool send, int peer, uint64_t number,
		      struct tt_call *ret_call);
bool tt_call_log_history(struct tt_control *ctl, uint64_t last, struct tt_call_history *ret_trail);
/* The earliest call of a trail that ends at last, and that this rank made differently: its number,
 * 0: none known. */
uint64_t tt_call_log_differs(struct tt_control *ctl, uint64_t last, const struct tt_call_history *trail,
			  struct tt_call *ret_mine, struct tt_call *ret_theirs);
void tt_put_call(struct tt_writer *w, const struct tt_call *call);
void tt_get_call(struct tt_reader *r, struct tt_call *ret_call);
void tt_put_call_history(struct tt_writer *w, const struct tt_call_history *trail);
void tt_get_call_history(struct tt_reader *r, struct tt_call_history *ret_trail);
/* "operation 4 (allreduce of ...)", or only the number when the call is not remembered */
void tt_call_log_name(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes);

/* control_split.c, locked */
bool tt_split_shrunk(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes);
bool tt_split_failed(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes);

/* control_status_format.c; get: false: no rank of Tutti sends that */
void tt_put_status(struct tt_writer *w, const struct tt_status *status);
bool tt_get_status(const void *data, size_t bytes, int nranks, struct tt_status *ret_status);

/* control_status.c, locked */
bool tt_status_frame(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes);
uint64_t tt_status_timers(struct tt_control *ctl, uint64_t now);
/* The last operation in which rank was last_received of by anybody this rank knows of. */
uint64_t tt_status_last(struct tt_control *ctl, int rank);

/* what this rank is doing now */
void tt_status_fill(struct tt_control *ctl, struct tt_status *ret_status);
/* Nobody finishes one of these before every rank has begun it. */
bool tt_status_needs_all(const struct tt_call *call);

/* deadlock.c, locked. Break the communicator if this
 * rank and others wait for each other for ever. */
void tt_deadlock_check(struct tt_control *ctl);
/* Does a message that the origin of a status wants differ from the one this rank made of it? Then
 * that breaks it. */
void tt_deadlock_compare(struct tt_control *ctl, const struct tt_status *status);
/* What rank is in beside its collective, as far as its status tells:
 * "a receive of ...", "" if nothing */
void tt_deadlock_text(const struct tt_control *ctl, int rank, char *text, size_t bytes);
/* The other half of want, a message of this rank, has been begun by its peer? */
bool tt_deadlock_met(const struct tt_control *ctl, const struct tt_wait_edge *want);
void tt_wait_edge_text(const struct tt_wait_edge *want, char *text, size_t bytes);

/* bootstrap_root.c, locked, rank 0: register ranks, tell them their parents, hand out the table */
int tt_bootstrap_open(struct tt_control *ctl, const struct tt_join *join);
void tt_bootstrap_close(struct tt_control *ctl);
void tt_bootstrap_entered(struct tt_control *ctl, struct tt_conn *conn);
bool tt_bootstrap_declined(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes);
bool tt_bootstrap_register(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes);
void tt_bootstrap_attached(struct tt_control *ctl, int rank);
void tt_bootstrap_stranger(struct tt_control *ctl, int claimed);             /* had another secret */
/* as many as there are have come */
bool tt_bootstrap_seen_all(const struct tt_control *ctl);
/* "ranks 2, 5 never came" */
void tt_bootstrap_missing(struct tt_control *ctl, char *text, size_t bytes);
uint64_t tt_bootstrap_timers(struct tt_control *ctl, uint64_t now);

/* bootstrap_tree.c: frames of joining, and a rank that now hangs below this one (locked); connect to
 * the parent of the tree; to the neighbours of the ring, and wait until all have (not locked,
 * block). 0 | < 0 */
bool tt_join_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		   const uint8_t *data, size_t bytes);
void tt_join_attached(struct tt_control *ctl, int rank);
int tt_join_tree(struct tt_control *ctl, const struct tt_business_card *parent, uint64_t deadline_ns);
int tt_join_ring(struct tt_control *ctl, uint64_t deadline_ns);

/* call_text.c: "allreduce of 1024 float32 (sum)" */
void tt_call_describe(const struct tt_call *call, bool with_algorithm, char *text, size_t bytes);
bool tt_call_equal(const struct tt_call *a, const struct tt_call *b);

#endif
