/*
 * endpoint.h - the control endpoint of a rank: one authenticated connection to each peer in use, for
 * all controls that descend from one unique id
 *
 * A peer is a rank of the first communicator. Splits and shrinks make no endpoint: their controls
 * use the connections of this one, and a frame names its control by the context number. A
 * connection is made when a control first needs it, and stays until the endpoint closes. The
 * higher peer of a pair connects to the lower one.
 *
 * ep->lock guards every field without another mark, and all controls of the endpoint. The service
 * thread holds the lock while it works and releases it while it sleeps; callers hold it briefly,
 * and send on connections themselves. Nothing blocks under the lock: sends are non-blocking into a
 * bounded queue. "Locked" means: the caller holds ep->lock.
 *
 *   endpoint.c              make and free, contexts
 *   service.c               the thread that works for all endpoints of the process
 *   control_listener.c      the listener of the process, for all its endpoints
 *   control_accept.c        unauthenticated connections (pending handshakes)
 *   control_admission.c     the descriptors that unauthenticated connections may hold
 *   control_connect.c       connect to a peer
 *   control_dials.c         dials whose callers have met their deadline
 *   control_local.c         ... of this process
 *   control_authenticate.c  handshakes with the servers that a dial has reached
 *   control_identity.c      proofs that both sides are the ranks that they say
 *   control_holders.c       business cards of a large job: who has them, and answers
 *   control_connection.c    frames in and out
 *   control_monitor.c       connections of monitors
 *   duplex.c, pipe.c, tls.c the bytes below: TLS to another process, a pipe within this one
 */
#ifndef TT_ENDPOINT_H
#define TT_ENDPOINT_H

#include <pthread.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/sparse.h"
#include "control/control.h"
#include "control/directory.h"
#include "control/duplex.h"
#include "control/frame.h"
#include "control/hello.h"
#include "control/identity.h"

#define TT_SECOND 1000000000ull
#define TT_NEVER UINT64_MAX

/* First member of every object that epoll points at */
enum tt_source { TT_SRC_WAKE, TT_SRC_LISTENER, TT_SRC_UNAUTH, TT_SRC_CONN, TT_SRC_MONITOR };
struct tt_watched {
	enum tt_source source;
	struct tt_control_endpoint *ep; /* of a connection */
};

/* An endpoint in the care of the service thread */
struct tt_served {
	struct tt_control_endpoint *next;
	bool user;    /* counts as a user of the descriptors; calling thread */
	bool entered; /* by its maker, before other threads know the endpoint */
	bool leaving; /* service.c's lock */
	atomic_bool woken;
	uint64_t due_ns; /* of the next timer; thread: service */
};

/* Fixed when made, except certificate. Proves membership to the peers (tls.h), and the rank
 * (control_identity.c). */
struct tt_credentials {
	struct tt_key *key;
	struct tt_tls_context *tls;
	uint8_t job[TT_NONCE];
	bool from_root; /* the user chose the port, for all communicators of the job */
	int epoch;
	struct tt_identity identity;
	/* of this rank's key, by rank 0; for peers that have no table yet */
	uint8_t certificate[TT_SIGNATURE];
};

/* Fixed before the first join is complete, except best_address, dialed, and records of the directory that
 * a holder has brought. */
struct tt_peers {
	struct tt_business_card mine;    /* this rank's business card */
	uint8_t root_key[TT_PUBLIC_KEY]; /* rank 0's public key; zeros: not known yet */
	struct tt_directory directory;   /* until joined, only of ranks that have registered here */
	/* locked: 1 + index of the address that led to a peer, as a pointer; peers to which a sender
	 * of messages connects */
	struct tt_sparse best_address;
	uint8_t *dialed;
	struct tt_outstanding_dial *outstanding; /* locked */
};

/* ---- connections ----------------------------------------------------------------------------- */

/* A connection to a peer; or, while ranks join, the registration of a rank at rank 0. */
struct tt_conn {
	struct tt_watched watched;
	struct tt_conn *next, *before, *next_of_bucket;
	struct tt_duplex duplex;
	int peer;
	bool registration; /* ends when the rank is connected in the tree */
	bool registered;   /* rank 0 has accepted the registration */
	bool unconfirmed;  /* the peer dialed, and may have given up: carries nothing to it yet */
	bool over;         /* its end is not a death: END, released, refused */
	bool no_memory;    /* shut down: no memory for the rest of a frame */
	int error;         /* errno of its end, 0: orderly */
	bool dead;         /* closed; freed at the end of the service thread's round */
	uint8_t *in;       /* an incomplete frame */
	size_t in_have, in_room;
	struct tt_frame_head message; /* the frame of messages that comes in now ... */
	size_t message_left;          /* ... and its bytes still to come */
	bool brings_messages; /* messages have come here: the peer sends them all on one connection */
	struct tt_writer out; /* bytes that the kernel has not taken yet, behind: */
	size_t out_sent;      /* bytes that it has */
	unsigned turn;        /* of the controls, to send messages */
	size_t burst;         /* bytes of messages since the service thread was here */
	bool writing;         /* epoll watches for room */
	bool closing;         /* shut down once `out` is empty */
	/* of the registration: the client's */
	uint8_t public_key[TT_PUBLIC_KEY];
};

/* Control connections that a peer may have here. A pair of ranks uses one; more come from threads that dial at
 * the same time. */
#define TT_PEER_CONNS 8
/* ... and registrations that come after the table, of all ranks, until they end */
#define TT_LATE_CONNS 64

#define TT_CONN_BUCKETS 16

/* control_connections.c: the connections of an endpoint, besides their list */
struct tt_conn_index {
	struct tt_conn *last; /* of the list */
	struct tt_conn
		*few[TT_CONN_BUCKETS]; /* by peer, in the order of the list; unless there are: */
	struct tt_conn **more;         /* [nmore] */
	size_t nmore, n;
	int npipes, ndead;
};

/* Frames sent and their bytes, without MISSING and STATUS, which a busy host repeats; a test counts
 * the cost of joining. */
struct tt_traffic {
	uint64_t frames, bytes;
};

/* ---- listeners ------------------------------------------------------------------------------- */

struct tt_unauth { /* an accepted connection before its proof */
	struct tt_watched watched;
	struct tt_unauth *next;
	struct tt_listener *listener;
	struct tt_control_endpoint *ep; /* endpoint that the client has named; NULL: none yet */
	/* the rank of a client with another version of the protocol; -1: the version is this one */
	int other_version;
	int fd;
	struct tt_tls *tls;       /* owns fd; NULL: not begun */
	struct tt_address source; /* without a port; of IPv6 the network of 64 bits */
	uint64_t since_ns;
	bool dead;
	bool proven;  /* TLS is established */
	bool reserve; /* has the reserve descriptor: receives TT_V_FULL after its proof */
};

struct tt_parked { /* accepted data socket; fd -1: claimed by tt_control_take */
	struct tt_parked *next;
	uint64_t context;
	int fd, peer, channel;
	struct tt_data_keys keys;
};

struct tt_listener { /* guarded by the lock of the listeners, with its connections */
	struct tt_watched watched;
	struct tt_listener *next;
	int fd, port;
	bool of_root;                          /* at the port of a unique id, for its rank 0 */
	bool watching;                         /* in epoll */
	uint64_t netns;                        /* inode of the network namespace */
	int users;                             /* endpoints that have opened it; 0: closed */
	struct tt_control_endpoint *endpoints; /* that a connection may name, newest first */
	struct tt_unauth *unauth;
	int nunauth;
	uint64_t *in_vain;         /* control_admission.c, NULL: none */
	uint64_t resume_ns;        /* pauses until then, TT_NEVER: accepts */
	uint64_t crowded_since_ns; /* since when handshakes have no room; 0: there is room */
};

struct tt_listening {                 /* of an endpoint */
	struct tt_listener *listener; /* NULL: none; fixed while open */
	int port;
	/* the lock of the listeners: */
	struct tt_control_endpoint *next;
	bool entered;
	/* the endpoint's lock: first and latest rank that received TT_V_FULL after its proof */
	uint64_t full_since_ns, full_last_ns;
	/* latest warning about an earlier attempt; another secret or version; another key */
	uint64_t warned_ns[3];
	char trouble[160]; /* latest failure to accept, as a sentence */
	struct tt_parked *parked;
};

/* ---- the endpoint ---------------------------------------------------------------------------- */

/* In the list of the process; guarded by the list's lock. */
struct tt_local {
	struct tt_control_endpoint *next;
	bool entered;
	bool open; /* ranks of this process may connect */
};

struct tt_control_endpoint {
	int peer, npeers; /* this rank's number and the number of ranks at the first join */
	pid_t pid;        /* of the maker: a forked child must not use the endpoint */
	struct tt_credentials auth;
	struct tt_peers peers;
	struct tt_local local;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* signalled on every change that a caller may wait for */
	struct tt_served served;
	struct tt_listening listening;
	struct tt_conn *conns; /* in the order in which this rank could use them */
	struct tt_conn_index index;
	struct tt_monitor *monitors;
	struct tt_traffic sent;
	struct tt_control *controls; /* oldest first */
	bool ended;                  /* has said END to all peers, before its controls are freed */
	char *id_file;               /* path of the unique id for monitors, or NULL */
	int forming;                 /* splits and shrinks in progress on this rank */
	struct tt_early *early;      /* frames of controls that are not made yet, oldest first */
	struct tt_early *early_last; /* of them; undefined: none */
	size_t early_bytes;
	struct tt_sparse early_of; /* their bytes by peer, as a pointer */
};

/* ---- endpoint.c ------------------------------------------------------------------------------ */

/* Make an endpoint; take the key, the job and the attempt from id; listen; prepare for sessions of TLS;
 * give it to the service thread; take it back and free it. Not locked. 0 | TT_SYSTEM */
int tt_endpoint_make(int peer, int npeers, struct tt_control_endpoint **ret_ep);
int tt_endpoint_authenticate(struct tt_control_endpoint *ep, const struct tt_id *id);
int tt_endpoint_listen(struct tt_control_endpoint *ep, const struct tt_ports *ports);
int tt_endpoint_tls(struct tt_control_endpoint *ep);
int tt_endpoint_start(struct tt_control_endpoint *ep);
void tt_endpoint_free(struct tt_control_endpoint *ep);
/* Have all its communicators been left? A connection that is made from then on needs an END. Locked. */
bool tt_endpoint_leaves(const struct tt_control_endpoint *ep);
/* Tell all peers, or one, that the endpoint closes; locked. */
void tt_endpoint_end(struct tt_control_endpoint *ep);
void tt_endpoint_end_conn(struct tt_control_endpoint *ep, struct tt_conn *conn);
/* The service thread visits the endpoint soon. */
void tt_endpoint_wake(struct tt_control_endpoint *ep);
/* The word for the secret in error texts */
static inline const char *tt_secret_name(const struct tt_control_endpoint *ep)
{
	return ep->auth.from_root ? "TUTTI_SECRET" : "secret";
}
/* Wait for ep->changed until deadline_ns; locked. false: deadline_ns has passed */
bool tt_endpoint_await(struct tt_control_endpoint *ep, uint64_t deadline_ns);

/* Contexts, locked. find: NULL: none. enter: frames that came early are handled now. leave: the
 * control is unknown to the service thread from now on; waits while an observer of it runs. */
struct tt_control *tt_endpoint_find(const struct tt_control_endpoint *ep, uint64_t context);
void tt_endpoint_enter(struct tt_control_endpoint *ep, struct tt_control *ctl);
void tt_endpoint_leave(struct tt_control_endpoint *ep, struct tt_control *ctl);
/* While a split or shrink is in progress, frames of unknown contexts are kept. */
void tt_endpoint_forming(struct tt_control_endpoint *ep, bool begin);
/* A connection to a peer is in use from now on, made for a context. */
void tt_endpoint_connected(struct tt_control_endpoint *ep, struct tt_conn *conn, uint64_t context);
/* Handle a frame. false: the frame is malformed */
bool tt_endpoint_frame(struct tt_control_endpoint *ep, struct tt_conn *conn,
		       const struct tt_frame_head *head, const uint8_t *data);

/* ---- service.c, not locked ------------------------------------------------------------------- */

/* The service thread and its descriptors exist while there are endpoints. open: the descriptors; enter:
 * the thread works for ep; leave: no more, but first it handles the events that have been reported,
 * so the descriptors of ep are closed before, and its memory is freed after; close. 0 | TT_SYSTEM */
int tt_service_open(struct tt_control_endpoint *ep);
int tt_service_enter(struct tt_control_endpoint *ep);
void tt_service_leave(struct tt_control_endpoint *ep);
void tt_service_close(struct tt_control_endpoint *ep);
/* The rest: any thread. Visit ep soon. */
void tt_service_wake(struct tt_control_endpoint *ep);
/* As epoll_ctl; watched begins with a struct tt_watched. false: errno has the reason */
bool tt_service_watch(int op, int fd, uint32_t events, void *watched);
int tt_service_epoll(void);
/* The reserve descriptor of the process: open it, unless it is; give it up. false: given up before */
void tt_service_keep_reserve(void);
bool tt_service_give_reserve(void);

/* ---- control_connection.c, locked ------------------------------------------------------------ */

/* Takes duplex. NULL: no memory, duplex is closed */
struct tt_conn *tt_conn_add(struct tt_control_endpoint *ep, struct tt_duplex duplex, int peer,
			    bool registration);
void tt_conn_send(struct tt_control_endpoint *ep, struct tt_conn *conn, uint64_t context,
		  enum tt_frame kind, const void *data, size_t bytes);
/* The same, for a payload in two parts. false: no memory, nothing is sent */
bool tt_conn_send_parts(struct tt_control_endpoint *ep, struct tt_conn *conn, uint64_t context,
			enum tt_frame kind, const struct iovec part[2]);
/* Does the queue take a frame of messages? When it does again, tt_observers_room is called. */
bool tt_conn_has_room(const struct tt_conn *conn);
void tt_conn_event(struct tt_control_endpoint *ep, struct tt_conn *conn, uint32_t events);
/* Shut down this rank's direction; the end of the connection is no death. */
void tt_conn_end(struct tt_conn *conn);
void tt_conn_free(struct tt_conn *conn);
/* The bytes that are not sent yet, or not acknowledged by the peer's host */
size_t tt_conn_unsent(const struct tt_conn *conn);
/* The peer sent a malformed frame: close the connection, break the controls that have the peer. */
void tt_conn_malformed(struct tt_control_endpoint *ep, struct tt_conn *conn);
/* The same for a frame that this rank has no memory for */
void tt_conn_no_memory(struct tt_control_endpoint *ep, struct tt_conn *conn);

/* ---- control_connections.c, locked ----------------------------------------------------------- */

/* A new connection, the last one of the list */
void tt_conns_put(struct tt_control_endpoint *ep, struct tt_conn *conn);
/* The connection to a peer; NULL: none, or the peer has ended it */
struct tt_conn *tt_conn_to(struct tt_control_endpoint *ep, int peer);
/* The connection that a peer's frames came on; NULL: closed */
struct tt_conn *tt_conn_from(struct tt_control_endpoint *ep, int peer);
/* May frames of the peer still come, on a connection in use or on one that it has not confirmed yet? */
bool tt_conn_is_open(struct tt_control_endpoint *ep, int peer);
/* Rank 0: the connection by which a rank has registered; NULL: none */
struct tt_conn *tt_conn_registered(struct tt_control_endpoint *ep, int peer);
/* The open connections of a peer that are no registrations; registrations that rank 0 has not accepted */
int tt_conns_of(struct tt_control_endpoint *ep, int peer);
int tt_conns_registering(const struct tt_control_endpoint *ep);
/* The peer confirms the connection that it dialed: this rank can use the connection from now on. */
void tt_conn_confirm(struct tt_control_endpoint *ep, struct tt_conn *conn);
/* Close it, without an event for anybody. */
void tt_conn_close(struct tt_control_endpoint *ep, struct tt_conn *conn);
/* Is an event of a pipe due? Handle those that are. Thread: service */
bool tt_conn_pipes_ready(const struct tt_control_endpoint *ep);
void tt_conn_pipes_serve(struct tt_control_endpoint *ep);
/* Close all, without an event for anybody. */
void tt_conn_close_all(struct tt_control_endpoint *ep);
/* Free dead connections. Thread: service, or ep is not served */
void tt_conn_reap(struct tt_control_endpoint *ep);

/* ---- control_monitor.c, locked; thread: service ----------------------------------------------- */

/* May one more monitor ask? */
bool tt_monitor_may_ask(const struct tt_control_endpoint *ep);
/* Is this rank, which is not rank 0 of the job, the one that reports some communicator? */
bool tt_monitor_leads(const struct tt_control_endpoint *ep);
/* Takes tls: a monitor has its welcome, and awaits a report. */
void tt_monitor_add(struct tt_control_endpoint *ep, struct tt_tls *tls);
void tt_monitor_event(struct tt_monitor *m, uint32_t events);
/* Send the reports that are due, drop monitors that are late; returns the next time due */
uint64_t tt_monitor_timers(struct tt_control_endpoint *ep, uint64_t now);
/* Close all connections; free those that are closed. */
void tt_monitor_close_all(struct tt_control_endpoint *ep);
void tt_monitor_reap(struct tt_control_endpoint *ep);

/* ---- control_listener.c, not locked ---------------------------------------------------------- */

/* open: ep listens at a port, from now on; enter: connections may be for ep; leave: no more, and
 * those without a proof are dropped; the last one closes the listener. 0 | TT_SYSTEM */
int tt_listener_open(struct tt_control_endpoint *ep, const struct tt_ports *ports);
int tt_listener_enter(struct tt_control_endpoint *ep);
void tt_listener_leave(struct tt_control_endpoint *ep);
/* The endpoint that a client names, NULL: none. The lock of the listeners is held. */
struct tt_control_endpoint *tt_listener_find(const struct tt_listener *l,
					     const struct tt_psk_identity *client);
/* Thread: service. An event of a listener or of an unauthenticated connection; run timers and free
 * what has ended, once all events are handled: returns the next time due, TT_NEVER: none */
void tt_listeners_event(struct tt_watched *watched);
uint64_t tt_listeners_visit(uint64_t now);
/* Free what has ended. There is no service thread. */
void tt_listeners_reap(void);

/* ---- control_accept.c; the lock of the listeners is held -------------------------------------- */

void tt_accept_event(struct tt_listener *l);
void tt_unauth_event(struct tt_unauth *u);
/* Returns the next time due, TT_NEVER: none */
uint64_t tt_accept_timers(struct tt_listener *l, uint64_t now);
/* Free dead unauthenticated connections. */
void tt_unauth_reap(struct tt_listener *l);
/* Drop the unauthenticated connections that are for ep; NULL: all */
void tt_accept_forget(struct tt_listener *l, const struct tt_control_endpoint *ep);
/* Close the listener and all unauthenticated connections. */
void tt_accept_close(struct tt_listener *l);
/* Does ep welcome a rank of this process? key: the rank's. Then it takes the pipe. Only ep is locked. */
bool tt_accept_local(struct tt_control_endpoint *ep, const struct tt_hello *h,
		     const uint8_t key[TT_PUBLIC_KEY], struct tt_pipe *pipe);
/* ---- control_identity.c ---------------------------------------------------------------------- */

/* The client; any thread, the lock may be held, none is taken: complete a message that has its hello.
 * false: no memory. check: did a server with this key (zeros: any key) sign the verdict on this hello?
 * 1 | 0 | TT_SYSTEM */
bool tt_hello_sign(const struct tt_control_endpoint *ep, struct tt_tls *tls,
		   struct tt_hello_message *message);
int tt_verdict_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
		     const uint8_t hello[TT_HELLO_BYTES], const uint8_t key[TT_PUBLIC_KEY],
		     const struct tt_verdict_message *message);
/* The server, locked: TT_V_WELCOME: the client is rank hello->from, or its registration |
 * TT_V_IMPOSTOR | TT_V_EARLY | 0: no memory. sign: complete a message that has its verdict. false: no memory */
enum tt_verdict tt_hello_check(const struct tt_control_endpoint *ep, struct tt_tls *tls,
			       const struct tt_hello *hello,
			       const struct tt_hello_message *message);
bool tt_verdict_sign(const struct tt_control_endpoint *ep, struct tt_tls *tls,
		     const uint8_t hello[TT_HELLO_BYTES], struct tt_verdict_message *message);
/* Rank 0, locked: append the certificate of a rank that has registered. The table of business cards, and
 * the hosts with the holders, are statements: begin one, and sign it behind the rest. A group of the
 * holders' table, from `at` on, has a signature of its own. Without memory the writer fails. */
void tt_certificate_put(const struct tt_control_endpoint *ep, int rank, struct tt_writer *w);
void tt_table_begin(const struct tt_control_endpoint *ep, struct tt_writer *table);
void tt_hosts_begin(const struct tt_control_endpoint *ep, struct tt_writer *hosts);
void tt_group_sign(const struct tt_control_endpoint *ep, int group, size_t at,
		   struct tt_writer *table);
void tt_table_sign(const struct tt_control_endpoint *ep, struct tt_writer *table);
/* Locked. open: the rest of a statement of this job that begins so; false: it is none. check: has rank 0
 * signed it, or a group with its signature? 1 | 0 | TT_SYSTEM: no memory */
bool tt_table_open(const struct tt_control_endpoint *ep,
		   void begin_it(const struct tt_control_endpoint *ep, struct tt_writer *w),
		   const uint8_t *table, size_t bytes, struct tt_reader *ret_records);
int tt_table_check(const struct tt_control_endpoint *ep, const uint8_t *table, size_t bytes);
int tt_group_check(const struct tt_control_endpoint *ep, int group, const uint8_t *records,
		   size_t bytes);

/* ---- control_admission.c; the lock of the listeners is held ----------------------------------- */

enum tt_admission {
	TT_ADMIT,        /* accept a connection */
	TT_ADMIT_LATER,  /* accept none for some milliseconds */
	TT_ADMIT_COMPETE /* accept, then tt_admission_compete */
};
/* May the listener accept? *ret_victim: a connection to drop first, or NULL */
enum tt_admission tt_admission_next(struct tt_listener *l, struct tt_unauth **ret_victim);
/* Does a new connection of source take the place of *ret_victim? */
bool tt_admission_compete(struct tt_listener *l, const struct tt_address *source,
			  struct tt_unauth **ret_victim);
/* The connection to drop when descriptors have run out, or NULL */
struct tt_unauth *tt_admission_victim(struct tt_listener *l);
/* An unauthenticated connection begins (1) or ends (-1). */
void tt_admission_count(struct tt_listener *l, int change);
/* First messages that were answered, while their clients proved nothing (random: tt_tls_random) */
void tt_admission_note_in_vain(struct tt_listener *l, uint64_t random);
bool tt_admission_was_in_vain(const struct tt_listener *l, uint64_t random);

/* ---- control_connect.c, not locked ----------------------------------------------------------- */

struct tt_dial {
	struct tt_business_card to;
	bool known;   /* from the directory, not from an earlier stage of the join */
	int me, rank; /* numbers of this rank and of `to` in error texts */
	enum tt_purpose purpose;
	int channel;
	bool named;   /* the user named the addresses: loopback is allowed */
	bool network; /* over the network also within this process */
	/* ends the attempt, which goes on when the control is broken; NULL: a break ends it */
	const atomic_bool *stop;
	int nports; /* to listens at one of nports from its port on; 0 is 1 */
	uint64_t deadline_ns;
	/* set by tt_control_connect */
	uint8_t hello[TT_HELLO_BYTES], server_key[TT_PUBLIC_KEY];
};
/* Connect to a rank whose business card is known, and authenticate. 0; nothing in *ret_duplex: another thread
 * has connected this rank's control to the peer | TT_REMOTE, TT_TIMEOUT, TT_SYSTEM | the code that broke the
 * control */
int tt_control_connect(struct tt_control *ctl, struct tt_dial *dial, struct tt_duplex *ret_duplex);
struct tt_dial_attempt;
/* The parts of tt_control_connect. begin: find the addresses; end_ns is the deadline, and may be changed. go_on: until
 * the deadline; handshakes may run still where rc is not 0. Returns as tt_control_connect. */
int tt_attempt_begin(struct tt_control *ctl, struct tt_dial *dial, struct tt_dial_attempt *ret_a);
int tt_attempt_go_on(struct tt_control *ctl, struct tt_dial_attempt *a,
		     struct tt_duplex *ret_duplex);
/* Use the connection to a peer that this rank has dialed, for a context; locked. 0 | TT_SYSTEM */
int tt_endpoint_use(struct tt_control_endpoint *ep, uint64_t context, struct tt_duplex duplex,
		    int peer);
/* ... for ctl, if the dial brought one; locked. 0 | TT_SYSTEM */
int tt_control_use(struct tt_control *ctl, struct tt_duplex duplex, int peer);
/* A dial of a rank of ctl, to be completed */
struct tt_dial tt_dial_of(struct tt_control *ctl, int rank, enum tt_purpose purpose,
			  uint64_t deadline_ns);
/* Make the connection to rank, one of ctl's, unless it exists: the higher peer connects, the lower
 * one waits. me, named: numbers of the two ranks in error texts. Returns as tt_control_connect. */
int tt_control_reach(struct tt_control *ctl, int rank, int me, int named, uint64_t deadline_ns);

/* ---- control_holders.c ------------------------------------------------------------------------ */

/* Jobs of more ranks have holders: rank 0's values count. Tests change them. */
extern struct tt_large {
	int above;
	struct tt_holders holders; /* every: 0: by the number of ranks */
} tt_large;

/* Locked, rank 0: has the job holders? Append the statement of hosts and holders, or the records
 * of all ranks as the holders get them; without memory the writer fails. */
bool tt_holders_needed(const struct tt_control *ctl);
void tt_holders_put(struct tt_control_endpoint *ep, struct tt_writer *w);
void tt_holders_pack(const struct tt_control_endpoint *ep, struct tt_writer *w);
/* Locked, the other ranks. 1 | 0: malformed | TT_SYSTEM */
int tt_holders_get(struct tt_control_endpoint *ep, struct tt_reader r);
/* Send the table to the children whose part of the tree has holders; locked. */
void tt_holders_pass(struct tt_control *ctl, const void *table, size_t bytes);
/* Not locked, blocks: fill dial->to by the answer of a holder. 0 | as tt_control_connect */
int tt_holders_ask(struct tt_control *ctl, struct tt_dial *dial);
/* Answer a rank that asks for the record of peer; locked. Takes tls. */
void tt_holders_answer(const struct tt_control_endpoint *ep, int peer, struct tt_tls *tls);

/* ---- control_local.c, not locked -------------------------------------------------------------- */

/* Put ep into the list of the process; ranks of the process that dial wait until it opens, and
 * connect then; take ep out of the list. */
void tt_local_enter(struct tt_control_endpoint *ep);
void tt_local_open(struct tt_control_endpoint *ep);
void tt_local_leave(struct tt_control_endpoint *ep);
/* The number of other communicators of the same job that this process has as the same rank */
int tt_local_earlier(const struct tt_control_endpoint *ep);
/* Connect to a rank of this process, which has its end of the pipe then; *ret_key is the rank's.
 * false: it is not here, or does not welcome this rank */
bool tt_local_connect(struct tt_control *ctl, const struct tt_dial *dial,
		      const struct tt_patience *patience, uint8_t ret_key[TT_PUBLIC_KEY],
		      struct tt_pipe **ret_pipe);
/* Wait until the rank is here, wait_ns at most. */
void tt_local_await(struct tt_control *ctl, const struct tt_dial *dial,
		    const struct tt_patience *patience, uint64_t wait_ns);

/* ---- control_authenticate.c; any thread, the lock may be held, none is taken ------------------- */

#define TT_CANDIDATES 96 /* addresses times ports */
#define TT_HANDSHAKES 16 /* at a time */

struct tt_authentication { /* a connection whose server has not proved the secret yet */
	struct tt_sock_target *to;
	struct tt_tls *tls;
	uint64_t until_ns;       /* until the hello is sent; then the dial's end_ns holds */
	bool proved, asked;      /* asked: the hello is sent, the verdict is awaited */
	enum tt_verdict verdict; /* received, 0: none */
	bool proved_rank;        /* by the rank's signature, as far as its key is known */
};

struct tt_dial_attempt {
	struct tt_control_endpoint *ep;
	struct tt_control *ctl; /* of the call that waits; NULL: none */
	const struct tt_dial *dial;
	struct tt_patience patience; /* of that call */
	uint64_t end_ns;             /* of the dial: its handshakes end then at the latest */
	struct tt_sock_target list[TT_CANDIDATES];
	int n;
	bool one_listener; /* at all addresses of a port: the rank's network namespace is this one's */
	struct tt_authentication running[TT_HANDSHAKES];
	int nrunning;
	char last[160];      /* latest refusal by a server, as a sentence */
	char full[160];      /* latest proved TT_V_FULL, as a sentence */
	bool early;          /* the latest refusal is TT_V_EARLY */
	bool answered;       /* some server answered in this round */
	uint64_t refused_ns; /* when a round first brought refusals only, 0: none has */
	/* of the authenticated one */
	uint8_t server_key[TT_PUBLIC_KEY];
};

/* Takes fd, connected to a target of the list. 0 | TT_SYSTEM: this rank cannot begin a session */
int tt_authenticate_begin(struct tt_dial_attempt *a, struct tt_sock_target *to, int fd);
/* Does a handshake with the listener of this target run? */
bool tt_authenticate_runs(const struct tt_dial_attempt *a, const struct tt_sock_target *to);
/* struct tt_patience's stop: is a handshake readable, or the dial over? ctx: the attempt */
bool tt_authenticate_has_news(void *ctx);
/* Go on with the handshakes for wait_ns, until one ends, or until the patience's deadline. 0: this one is
 * authenticated | TT_TIMEOUT: none yet | TT_USAGE: the rank has refused this one for good, a->last is its sentence |
 * TT_SYSTEM: no memory */
int tt_authenticate_await(struct tt_dial_attempt *a, uint64_t wait_ns,
			  struct tt_sock_target **ret_to, struct tt_tls **ret_tls);
/* Close the connections of all running handshakes. */
void tt_authenticate_end(struct tt_dial_attempt *a);

/* ---- control_dials.c --------------------------------------------------------------------------- */

#define TT_DIAL_NS (30 * TT_SECOND) /* of a dial after the deadline of its latest call */
#define TT_QUESTIONS 16             /* of an endpoint that are outstanding at a time */

struct tt_outstanding_dial { /* a connection of messages (TT_P_CONTROL), or a question (TT_P_RECORD) */
	struct tt_outstanding_dial *next;
	struct tt_dial dial;
	struct tt_dial_attempt attempt;
	struct tt_tls *welcomed; /* a holder's answer comes there; NULL: not yet */
	uint64_t left_ns;        /* when the latest caller left it */
	uint64_t due_ns;         /* of the next look */
};

/* Connect as tt_control_connect, but go on with the outstanding dial of an earlier call, if any; at the deadline leave a
 * dial whose server has to answer to the service thread. dial->hello and server_key stay unset. TT_TIMEOUT, maybe with
 * a dial left | else as tt_control_connect. Not locked */
int tt_dials_connect(struct tt_control *ctl, struct tt_dial *dial, struct tt_duplex *ret_duplex);
/* Locked. Go on with outstanding dials, returns the next time due (thread: service); end all; bytes of memory */
uint64_t tt_dials_timers(struct tt_control_endpoint *ep, uint64_t now);
void tt_dials_end(struct tt_control_endpoint *ep);
size_t tt_dials_memory(const struct tt_control_endpoint *ep);

#endif
