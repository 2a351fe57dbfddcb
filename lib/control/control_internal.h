/*
 * control_internal.h - shared by the files of control: the connections, the parts of struct
 * tt_control, and the functions of each file
 *
 * ctl->lock guards every field without another mark. The service thread holds the lock while it
 * works and releases it while it sleeps; callers hold it briefly, and send on connections
 * themselves. Nothing blocks under the lock: sends are non-blocking into a bounded queue.
 *
 *   control.c               make and free, service thread, leave
 *   control_accept.c        listener, unauthenticated connections (pending handshakes)
 *   control_connect.c       connect to a rank; data sockets
 *   control_authenticate.c  handshakes with the servers that a dial has reached
 *   control_admission.c     the descriptors that unauthenticated connections may hold
 *   control_connection.c    frames in and out
 *   control_allgather.c     allgather
 *   control_flood.c         broken, abort, goodbye, deaths
 *   control_observer.c      the observers of higher rooms
 *   control_split.c         a control of some ranks of an existing one
 *   bootstrap.c             join; bootstrap_root.c: rank 0's part; bootstrap_tree.c: tree and ring
 *   call_log.c              the call log; call_text.c: calls as text
 *   control_status.c        statuses, missing ranks; control_status_format.c: their bytes
 *   deadlock.c              cycles in the wait-for graph
 */
#ifndef TT_CONTROL_INTERNAL_H
#define TT_CONTROL_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "control/bootstrap.h"
#include "control/call_log.h"
#include "control/control.h"
#include "control/control_status.h"
#include "control/frame.h"
#include "control/handshake.h"

#define TT_FANOUT 8
#define TT_SECOND 1000000000ull
#define TT_NEVER UINT64_MAX

static inline int tt_tree_parent(int rank)
{
	return (rank - 1) / TT_FANOUT;
}
static inline bool tt_ring_edge(int a, int b, int n)
{
	return a != b && ((a + 1) % n == b || (b + 1) % n == a);
}
static inline bool tt_tree_edge(int a, int b)
{
	return a != b && tt_tree_parent(a > b ? a : b) == (a > b ? b : a);
}

/* Below, "locked" means: the caller holds ctl->lock. */

/* ---- control.c ------------------------------------------------------------------------------- */

/* First member of every object that epoll points at */
enum tt_source { TT_SRC_WAKE, TT_SRC_LISTENER, TT_SRC_UNAUTH, TT_SRC_CONN };

struct tt_service {
	int epoll, wake; /* descriptors; wake: an eventfd that ends the sleep */
	enum tt_source wake_source;
	bool stop;    /* end the thread */
	bool leaving; /* the goodbye is sent: ends of connections are no deaths */
	bool running; /* thread exists */
	pthread_t thread;
};

/* Fixed when made. Proves membership to the peers (handshake.h). */
struct tt_credentials {
	struct tt_key *key;
	uint8_t job[TT_NONCE];
	int epoch;
};

/* Fixed before join.complete, except best_address. */
struct tt_peers {
	struct tt_business_card *business_cards; /* [nranks] */
	/* [nranks] 1 + index of the address that led to the rank, 0: none yet */
	_Atomic uint8_t *best_address;
	int *host_of, nhosts; /* [nranks] */
};

/* Make a control with its listener (ports NULL: without one, it can only connect); start the
 * service thread; free the control without a goodbye. 0 | TT_SYSTEM */
int tt_control_make(int rank, int nranks, const struct tt_ports *ports,
		    struct tt_control **ret_ctl);
int tt_control_start(struct tt_control *ctl);
void tt_control_free(struct tt_control *ctl);
/* End the sleep of the service thread. */
void tt_control_wake(struct tt_control *ctl);
/* Fill peers.host_of and nhosts from the business cards. */
void tt_control_number_hosts(struct tt_control *ctl);
/* Wait for ctl->changed until deadline_ns; locked. false: deadline_ns has passed */
bool tt_control_await(struct tt_control *ctl, uint64_t deadline_ns);
/* Handle one frame of a connection; locked. false: the frame is malformed */
bool tt_control_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		      const uint8_t *data, size_t bytes);

/* ---- control_connection.c, locked ------------------------------------------------------------ */

enum { TT_ROLE_REGISTER = 1, TT_ROLE_PARENT = 2, TT_ROLE_CHILD = 4, TT_ROLE_RING = 8 };

struct tt_conn {
	enum tt_source source;
	struct tt_conn *next;
	int fd, peer;
	unsigned roles;
	bool registered; /* REGISTER: rank 0 has accepted the registration */
	bool over;       /* its end is not a death: goodbye, released, refused */
	int error;       /* errno of its end, 0: orderly */
	bool dead;       /* closed; freed at the end of the service thread's round */
	uint8_t *in;
	size_t in_have, in_room;
	struct tt_writer out; /* bytes that the kernel has not taken yet */
	bool writing;         /* epoll watches for room */
	bool closing;         /* shut down once `out` is empty */
	uint8_t *early;       /* a child's part of an allgather that this rank has not begun */
	size_t early_bytes;
};

/* Frames sent by this rank and their bytes, without MISSING and STATUS, which a busy host repeats;
 * a test counts the cost of joining. */
struct tt_traffic {
	uint64_t frames, bytes;
};

/* Takes fd. NULL: no memory, fd is closed */
struct tt_conn *tt_conn_add(struct tt_control *ctl, int fd, int peer, unsigned roles);
void tt_conn_send(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		  const void *data, size_t bytes);
/* To all connections with one of these roles, but not to except. */
void tt_conn_send_all(struct tt_control *ctl, unsigned roles, const struct tt_conn *except,
		      enum tt_frame kind, const void *data, size_t bytes);
void tt_conn_event(struct tt_control *ctl, struct tt_conn *conn, uint32_t events);
/* Shut down this rank's direction; the end of the connection is no death. */
void tt_conn_end(struct tt_control *ctl, struct tt_conn *conn);
struct tt_conn *tt_conn_to(struct tt_control *ctl, int peer, unsigned roles);
/* Free dead connections. Thread: service */
void tt_conn_reap(struct tt_control *ctl);
/* Is everything sent, and acknowledged by the peers' hosts? */
bool tt_conn_all_sent(struct tt_control *ctl);

/* ---- control_accept.c, locked ---------------------------------------------------------------- */

struct tt_unauth { /* an accepted connection before its proof */
	enum tt_source kind;
	struct tt_unauth *next;
	int fd;
	struct tt_address source; /* without a port; of IPv6 the network of 64 bits */
	uint64_t since_ns;
	bool proving, dead; /* proving: the reply is sent, the proof is awaited */
	bool reserve;       /* has the reserve descriptor: receives TT_V_FULL after its proof */
	struct tt_hello hello;
	uint8_t hello_bytes[TT_HELLO_BYTES], reply[TT_REPLY_BYTES], proof[TT_MAC];
	size_t have; /* bytes received of hello_bytes or proof */
};

struct tt_parked { /* accepted data socket, not yet claimed by tt_control_take */
	struct tt_parked *next;
	int fd, peer, channel;
};

struct tt_listener {
	enum tt_source source;
	int fd, port;
	int reserve_fd;        /* given up for one handshake when descriptors run out */
	struct tt_ports ports; /* for listeners of splits; fixed when made */
	struct tt_unauth *unauth;
	int nunauth;
	uint64_t resume_ns;        /* out of epoll until then, TT_NEVER: in epoll */
	uint64_t crowded_since_ns; /* without room for more handshakes, 0: with */
	/* first and latest rank that received TT_V_FULL after its proof */
	uint64_t full_since_ns, full_last_ns;
	uint64_t warned_ns; /* latest warning about a stranger */
	uint64_t claim_ns;  /* latest tt_control_take that found no socket */
	char trouble[160];  /* latest failure to accept, as a sentence */
	struct tt_parked *parked;
};

void tt_accept_event(struct tt_control *ctl);
void tt_unauth_event(struct tt_control *ctl, struct tt_unauth *u);
/* Returns the next time due, TT_NEVER: none */
uint64_t tt_accept_timers(struct tt_control *ctl, uint64_t now);
/* Free dead unauthenticated connections; all: close the live ones too. */
void tt_unauth_reap(struct tt_control *ctl, bool all);

/* ---- control_admission.c, locked ------------------------------------------------------------- */

enum tt_admission {
	TT_ADMIT,        /* accept a connection */
	TT_ADMIT_LATER,  /* accept none for some milliseconds */
	TT_ADMIT_COMPETE /* accept, then tt_admission_compete */
};
/* May this control accept? *ret_victim: a connection to drop first, or NULL */
enum tt_admission tt_admission_next(struct tt_control *ctl, struct tt_unauth **ret_victim);
/* Does a new connection of source take the place of *ret_victim? */
bool tt_admission_compete(struct tt_control *ctl, const struct tt_address *source,
			  struct tt_unauth **ret_victim);
/* The connection to drop when descriptors have run out, or NULL */
struct tt_unauth *tt_admission_victim(struct tt_control *ctl);
/* An unauthenticated connection begins (1) or ends (-1). */
void tt_admission_count(struct tt_control *ctl, int change);

/* ---- control_connect.c, not locked ----------------------------------------------------------- */

struct tt_dial {
	const struct tt_business_card *to;
	enum tt_purpose purpose;
	int channel;
	bool named;  /* the user named the addresses: loopback is allowed */
	bool anyway; /* also when the control is broken */
	int nports;  /* to listens at one of nports from its port on; 0 is 1 */
	uint64_t deadline_ns;
};
/* Connect to a rank whose business card is known, and authenticate. 0 | TT_REMOTE, TT_TIMEOUT,
 * TT_SYSTEM | the code that broke the control */
int tt_control_connect(struct tt_control *ctl, const struct tt_dial *dial, int *ret_fd);

/* ---- control_authenticate.c, not locked ------------------------------------------------------ */

#define TT_CANDIDATES 96 /* addresses times ports */
#define TT_HANDSHAKES 16 /* at a time */

struct tt_authentication { /* a connection whose server has not proved the secret yet */
	struct tt_sock_target *to;
	int fd;
	uint64_t until_ns;
	struct tt_handshake shake;
};

struct tt_dial_attempt {
	struct tt_control *ctl;
	const struct tt_dial *dial;
	struct tt_patience patience;
	struct tt_sock_target list[TT_CANDIDATES];
	int n;
	struct tt_authentication running[TT_HANDSHAKES];
	int nrunning;
	char last[160]; /* latest refusal by a server, as a sentence */
	char full[160]; /* latest proved TT_V_FULL, as a sentence */
	bool answered;  /* some server answered in this round */
};

/* Takes fd, connected to a target of the list. */
void tt_authenticate_begin(struct tt_dial_attempt *a, struct tt_sock_target *to, int fd);
/* Does a handshake with this target run? */
bool tt_authenticate_runs(const struct tt_dial_attempt *a, const struct tt_sock_target *to);
/* struct tt_patience's stop: is a handshake readable, or the dial over? ctx: the attempt */
bool tt_authenticate_has_news(void *ctx);
/* Go on with the handshakes for wait_ns, or until one ends. 0: this one is authenticated | TT_TIMEOUT: none yet |
 * TT_USAGE: a rank of the job has refused this rank for good, a->last is its sentence */
int tt_authenticate_await(struct tt_dial_attempt *a, uint64_t wait_ns,
			  struct tt_sock_target **ret_to, int *ret_fd);
/* Close the connections of all running handshakes. */
void tt_authenticate_end(struct tt_dial_attempt *a);

/* ---- control_flood.c, locked ----------------------------------------------------------------- */

struct tt_failure {
	int culprit;
	char text[1024];
}; /* of ctl->broken; culprit -1: none */

struct tt_departures {
	bool *left;           /* [nranks] goodbye received */
	bool *dead;           /* [nranks] death seen by any rank, at any time */
	uint64_t *left_after; /* [nranks] last operation of a rank that left */
	uint64_t *left_at_ns; /* [nranks] arrival of the goodbye */
};

/* Break the control; the first break wins. from: the connection that brought it, NULL: this rank.
 * last: the last operation with a message received from culprit. */
void tt_control_break(struct tt_control *ctl, int code, int culprit, uint64_t last,
		      const char *text, const struct tt_conn *from);
void tt_control_put_abort(struct tt_writer *w, int origin, int code, int culprit, uint64_t last,
			  const char *text);
/* Frames ABORT, GOODBYE, DEAD; false: the frame is malformed */
bool tt_flood_abort(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		    size_t bytes);
bool tt_flood_goodbye(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes);
bool tt_flood_dead(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes);
/* A connection has ended; a death unless conn->over. */
void tt_flood_death(struct tt_control *ctl, struct tt_conn *conn);
/* Send this rank's goodbye and end all connections. */
void tt_flood_leave(struct tt_control *ctl);
/* Break the control if this rank's operation waits for a rank that left before it. */
void tt_flood_check_left(struct tt_control *ctl);
/* The code on this rank of another rank's failure: USAGE and TIMEOUT are everybody's; local causes
 * (memory, descriptors) become TT_REMOTE. */
int tt_flood_code(int code);
/* tt_fail with the code and sentence that broke ctl */
int tt_control_fail(struct tt_control *ctl);

/* ---- control_observer.c ---------------------------------------------------------------------- */

#define TT_OBSERVERS 3 /* comm, active messages, and a test */

/* Slots change under observers.lock and ctl->lock together, so either lock suffices to read. Lock
 * order: observers.lock before ctl->lock. */
struct tt_observers {
	pthread_mutex_t lock; /* held while `broken` of an observer runs */
	bool broken_due;      /* under ctl->lock: the service thread calls `broken` */
	struct {
		const struct tt_control_observer *table; /* NULL: free slot */
		void *ctx;
		bool notified; /* under observers.lock: `broken` has been called */
	} slot[TT_OBSERVERS];
};

/* Call each observer's `broken` that has not been called yet. Not locked. */
void tt_observers_broken(struct tt_control *ctl);
/* The others: locked. socket: takes fd. lost: true with the sentence in text */
void tt_observers_socket(struct tt_control *ctl, int peer, int fd);
void tt_observers_gone(struct tt_control *ctl, int rank, tuttiRankState_t how);
bool tt_observers_lost(struct tt_control *ctl, int peer, char *text, size_t bytes);

/* ---- control_allgather.c, locked ------------------------------------------------------------- */

struct tt_gather {
	uint64_t number; /* of the latest exchange */
	bool running, complete;
	size_t bytes; /* of each rank */
	uint8_t *all; /* [nranks][bytes], the caller's */
	bool *have;   /* [nranks] */
	int count;    /* ranks in have */
};

/* Frames; false: malformed */
bool tt_gather_up(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data, size_t bytes);
bool tt_gather_down(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		    size_t bytes);
/* Rank has left: break the control if the exchange waits for it. */
void tt_gather_gone(struct tt_control *ctl, int rank);

/* ---- control_split.c, locked ----------------------------------------------------------------- */

struct tt_split_state {
	uint64_t begun;                         /* splits; calling thread */
	struct tt_control *child;               /* being connected */
	const struct tt_members *child_members; /* of a shrink's child */
	uint64_t failed;                        /* number of the latest failed split, and why: */
	int code;
	char text[1024];
	uint64_t shrunk_epoch, excluded_epoch; /* latest shrink; latest without this rank */
};

/* Frames SHRUNK, SPLIT_FAILED; false: malformed */
bool tt_split_shrunk(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes);
bool tt_split_failed(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes);

/* ---- the control ----------------------------------------------------------------------------- */

struct tt_control {
	struct tt_call_log log; /* these lines and `broken` are all that a call touches */
	atomic_int broken __attribute__((aligned(TT_APART))); /* 0, or the code */

	int rank, nranks; /* fixed when made */
	pid_t pid;        /* of the maker: a forked child must not use the control */
	struct tt_credentials auth;
	struct tt_peers peers;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* signalled on every change that a caller may wait for */
	struct tt_service service;
	struct tt_listener listener;
	struct tt_conn *conns;
	struct tt_traffic sent;
	struct tt_join_state join;
	struct tt_failure failure;
	struct tt_departures departed;
	struct tt_observers observers;
	struct tt_gather gather;
	struct tt_split_state split;
	struct tt_statuses status;
	struct tt_deadlock_state deadlock;
};

#endif
