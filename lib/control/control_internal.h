/*
 * control_internal.h - shared by the files of control: the parts of struct tt_control and the
 * functions of each protocol
 *
 * A control is the state of one communicator's protocols. Its endpoint (endpoint.h) has the
 * sockets, the thread and the lock; a protocol sees ranks and frames only.
 *
 *   control.c               make, leave; frames in and out
 *   control_data.c          data sockets, and the dialer threads
 *   control_message.c       frames of active messages
 *   control_agree.c         one outcome for all ranks
 *   control_allgather.c     allgather; parts.c: the parts in its messages
 *   control_flood.c         broken, abort, goodbye, deaths
 *   control_observer.c      the observers of higher rooms
 *   control_split.c         a control of some ranks of an existing one
 *   bootstrap.c             join; bootstrap_root.c: rank 0's part; bootstrap_tree.c: tree and ring
 *   call_log.c              the call log; call_text.c: calls as text
 *   control_missing.c       ranks that an operation lacks at its deadline
 *   control_status.c        statuses; control_status_format.c: their bytes;
 *                           control_status_table.c: the latest of each rank
 *   control_report.c        the state of every rank, for operators
 *   control_monitor.c       monitors, which ask for that state over the network
 *   deadlock.c              cycles in the wait-for graph
 */
#ifndef TT_CONTROL_INTERNAL_H
#define TT_CONTROL_INTERNAL_H

#include "base/sparse.h"
#include "control/bootstrap.h"
#include "control/call_log.h"
#include "control/control_status.h"
#include "control/endpoint.h"
#include "control/rank_map.h"

#define TT_FANOUT 8

static inline int tt_tree_parent(int rank)
{
	return (rank - 1) / TT_FANOUT;
}
static inline bool tt_tree_child(int rank, int of)
{
	return rank > 0 && tt_tree_parent(rank) == of;
}
static inline bool tt_tree_edge(int a, int b)
{
	return tt_tree_child(a, b) || tt_tree_child(b, a);
}
static inline bool tt_ring_edge(int a, int b, int n)
{
	return a != b && ((a + 1) % n == b || (b + 1) % n == a);
}

/* Below, "locked" means: the caller holds ctl->ep->lock. */

/* ---- control.c ------------------------------------------------------------------------------- */

/* Make the first control of ep, whose rank r is peer r; one of some ranks of its parent. ep holds the control
 * from now on; locked. 0 | TT_SYSTEM */
int tt_control_make(struct tt_control_endpoint *ep, int rank, int nranks,
		    struct tt_control **ret_ctl);
int tt_control_make_child(struct tt_control *parent, uint64_t context, int rank,
			  const struct tt_rank_map *members, struct tt_control **ret_ctl);
/* Free a control without a goodbye; the endpoint with its last one. Not locked. */
void tt_control_free(struct tt_control *ctl);
/* Number the hosts by the business cards; the first control does it after the join. false: no memory */
bool tt_control_number_hosts(struct tt_control *ctl);
int tt_control_host(const struct tt_control *ctl, int rank);
/* The peer of a rank; the rank of a peer, -1: none */
int tt_control_peer(const struct tt_control *ctl, int rank);
int tt_control_rank(const struct tt_control *ctl, int peer);

/* Frames of ctl, locked. Handle one; false: the frame is malformed */
bool tt_control_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		      const uint8_t *data, size_t bytes);
/* The neighbors of a rank in the tree and the ring; returns their number */
int tt_control_neighbors(const struct tt_control *ctl, int rank, int ret_neighbor[TT_FANOUT + 3]);
bool tt_control_is_neighbor(const struct tt_control *ctl, int rank);
/* Send one to the neighbors in `to`, but not to rank except; -1: to all. Neighbors that are not
 * connected get none. */
enum {
	TT_TO_PARENT = 1, /* in the tree */
	TT_TO_CHILDREN = 2,
	TT_TO_RING = 4,
	TT_TO_NEIGHBORS = 7,
	TT_TO_JOINING = 8,   /* ranks that rank 0 has registered, or rank 0 */
	TT_TO_CONNECTED = 16 /* all ranks with a connection */
};
void tt_control_send(struct tt_control *ctl, unsigned to, int except, enum tt_frame kind,
		     const void *data, size_t bytes);
/* The same with what w has, and free it. Without memory for a frame the control breaks; statuses and
 * lists of missing ranks are repeated. */
void tt_control_post(struct tt_control *ctl, unsigned to, int except, enum tt_frame kind,
		     struct tt_writer *w);

/* ---- control_data.c -------------------------------------------------------------------------- */

struct tt_data_dial { /* from tt_control_dial to tt_control_take */
	struct tt_data_dial *next;
	int peer, channel;
	uint64_t deadline_ns;
	bool begun;      /* a thread has begun it */
	int fd, code;    /* -1 and 0: not finished */
	char text[1024]; /* the sentence of code */
	struct tt_data_keys keys;
};

#define TT_DIALERS 8

struct tt_dialer {
	struct tt_data_dial *dials; /* in order */
	uint64_t started_ns;        /* start of the latest thread */
	struct tt_dialer_thread {
		struct tt_control *ctl;
		bool working; /* the thread will look at dials again */
		bool started; /* the thread must be joined; used by the calling thread */
		pthread_t thread;
	} thread[TT_DIALERS];
};

/* End all dials. Not locked. */
void tt_dialer_stop(struct tt_control *ctl);
/* Keep an accepted data socket for tt_control_take; close those of a context that nobody claimed.
 * Locked. */
void tt_parked_add(struct tt_control_endpoint *ep, const struct tt_hello *h, struct tt_tls *tls);
void tt_parked_close(struct tt_control_endpoint *ep, uint64_t context);

/* ---- control_flood.c, locked ----------------------------------------------------------------- */

struct tt_failure {    /* the failure that set ctl->broken */
	int culprit;   /* -1: none */
	uint64_t last; /* last operation with a message received from culprit */
	char text[1024];
	size_t flooded; /* bytes of the text that other ranks receive */
};

struct tt_goodbye {
	uint64_t after;     /* last operation of the rank */
	uint64_t exchanges; /* its last exchange */
	uint64_t at_ns;     /* arrival */
};

struct tt_departures {
	uint8_t *left;           /* ranks: goodbye received */
	uint8_t *dead;           /* death seen by any rank, at any time */
	uint8_t *over;           /* goodbye or end on the connection to the rank itself */
	struct tt_sparse parted; /* struct tt_goodbye of ranks that left */
	bool leaving;            /* this rank has sent its goodbye */
};

/* The lowest rank from `from` on that is dead or has left; nranks: none */
int tt_flood_next_gone(const struct tt_control *ctl, int from);
/* Break the control; the first break wins. from: the neighbor that reported the failure, -1: this
 * rank. last: the last operation with a message received from culprit. */
void tt_control_break(struct tt_control *ctl, int code, int culprit, uint64_t last,
		      const char *text, int from);
/* Break it because this rank has no memory for a frame. */
void tt_control_no_memory(struct tt_control *ctl);
#define TT_ABORT_BYTES (19 + sizeof(((struct tt_failure *)0)->text))
void tt_control_put_abort(struct tt_writer *w, int origin, int code, int culprit, uint64_t last,
			  const char *text);
/* A connection to peer is made: the peer learns which controls are broken, since the flood does not
 * reach a rank whose neighbors have all left, and which leave. */
void tt_flood_connected(struct tt_control_endpoint *ep, struct tt_conn *conn);
/* The goodbye of a rank that left */
const struct tt_goodbye *tt_flood_goodbye_of(const struct tt_control *ctl, int rank);
/* Frames ABORT, GOODBYE, DEAD of neighbor from; false: the frame is malformed */
bool tt_flood_abort(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
bool tt_flood_goodbye(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
bool tt_flood_dead(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
/* The connection to a rank has ended: a death, unless the rank has left. error: errno, 0: orderly */
void tt_flood_death(struct tt_control *ctl, int rank, int error);
/* Frame LEFT: rank from has left. */
bool tt_flood_left(struct tt_control *ctl, int from);
/* Send this rank's goodbye. */
void tt_flood_leave(struct tt_control *ctl);
/* Break the control if this rank's operation waits for a rank that left before it. */
void tt_flood_check_left(struct tt_control *ctl);
/* The code on this rank of another rank's failure: USAGE and TIMEOUT are everybody's; local causes
 * (memory, descriptors) become TT_REMOTE. */
int tt_flood_code(int code);

/* ---- control_observer.c ---------------------------------------------------------------------- */

#define TT_OBSERVERS 4 /* comm, its GPU, active messages, and a test */

/* Slots change under observers.lock and the endpoint's lock together, so either lock suffices to
 * read. Lock order: observers.lock before the endpoint's. */
struct tt_observers {
	pthread_mutex_t lock; /* held while `broken` of an observer runs */
	bool broken_due;      /* locked: the service thread calls `broken` */
	bool running;         /* locked: the service thread runs `broken` now */
	struct {
		const struct tt_control_observer *table; /* NULL: free slot */
		void *ctx;
		bool notified; /* under observers.lock: `broken` has been called */
	} slot[TT_OBSERVERS];
};

/* Call each observer's `broken` that has not been called yet. Not locked. */
void tt_observers_broken(struct tt_control *ctl);
/* The others: locked. lost: true with the sentence in text */
void tt_observers_connected(struct tt_control *ctl);
void tt_observers_message(struct tt_control *ctl, int rank, enum tt_frame kind, const uint8_t *data,
			  size_t bytes);
uint8_t *tt_observers_destination(struct tt_control *ctl, int rank, size_t *ret_bytes);
void tt_observers_room(struct tt_control *ctl, int rank);
void tt_observers_over(struct tt_control *ctl, int rank, tuttiRankState_t how);
uint64_t tt_observers_timers(struct tt_control *ctl, uint64_t now);
void tt_observers_gone(struct tt_control *ctl, int rank, tuttiRankState_t how);
bool tt_observers_lost(struct tt_control *ctl, int peer, char *text, size_t bytes);
bool tt_observers_tally(struct tt_control *ctl, struct tt_tally *ret_tally,
			uint64_t *ret_running_ns);

/* ---- control_report.c, locked ----------------------------------------------------------------- */

/* The parts of tt_control_ask, tt_control_all_answered and tt_control_report: of one rank */
void tt_report_ask(struct tt_control *ctl, uint64_t since_ns);
bool tt_report_answered(const struct tt_control *ctl, uint64_t since_ns);
void tt_report_of(struct tt_control *ctl, int rank, uint64_t since_ns,
		  struct tt_rank_report *ret_report);

/* ---- control_allgather.c, locked ------------------------------------------------------------- */

struct tt_gather {
	uint64_t number; /* of the latest exchange */
	/* full: the parts of all ranks below have come, and were sent on */
	bool running, full, complete;
	size_t bytes;             /* of each rank, of all columns */
	struct tt_parts *columns; /* [ncolumns] the caller's */
	int ncolumns;
	uint8_t *message; /* the result, until the caller takes it */
	size_t message_bytes;
	struct tt_child_parts {
		uint8_t *
			data; /* of this exchange or, after it is full, of the next; NULL: not come */
		size_t bytes;
	} child[TT_FANOUT];
};

/* Frames of neighbor from; false: malformed */
bool tt_gather_up(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
bool tt_gather_down(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
void tt_gather_free(struct tt_control *ctl);
/* tt_control_allgather_columns, in which ranks that answer at the deadline have late_ns more to come. Not locked. */
int tt_gather_columns(struct tt_control *ctl, struct tt_parts *columns, int ncolumns,
		      uint64_t deadline_ns, uint64_t late_ns);
/* Break the control: this rank has no memory to take part in an exchange. Not locked. < 0 */
int tt_control_absent(struct tt_control *ctl);
/* Break the control if the exchange waits for rank, which has left. */
void tt_gather_gone(struct tt_control *ctl, int rank);

/* ---- control_split.c, locked ----------------------------------------------------------------- */

struct tt_split_state {
	uint64_t begun;           /* splits; calling thread */
	struct tt_control *child; /* split or shrink in progress: the new control, NULL: none yet */
	/* child is of a shrink: only deaths of its members break the child */
	const struct tt_rank_map *shrink_members;
	uint64_t failed; /* number of the latest failed split, and why: */
	int code;
	char text[1024];
	uint64_t shrunk_epoch, excluded_epoch; /* latest shrink; latest without this rank */
};

/* Frames SHRUNK, SPLIT_FAILED of neighbor from; false: malformed */
bool tt_split_shrunk(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
bool tt_split_failed(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes);
/* ctl is broken: so is the child of a split in progress. */
void tt_split_broken(struct tt_control *ctl);
/* Rank of ctl is dead: so is the child of a shrink in progress that has the rank as a member. */
void tt_split_dead(struct tt_control *ctl, int rank);
/* If child is the child of a split or shrink in progress: forget it. */
void tt_split_freed(struct tt_control *ctl, const struct tt_control *child);

/* ---- the control ----------------------------------------------------------------------------- */

struct tt_control {
	struct tt_call_log log; /* these lines and `broken` are all that a call touches */
	atomic_int broken __attribute__((aligned(TT_APART))); /* 0, or the code */

	struct tt_control_endpoint *ep; /* fixed when made, as are: */
	int rank, nranks;
	uint64_t context; /* the number of this control in frames; 0: the endpoint's first */
	uint64_t mark;    /* tt_control_describe; locked, as is: */
	char name[64];
	struct tt_rank_map *map; /* from ranks to peers; NULL: rank r is peer r */

	struct tt_control *next; /* in ep->controls */
	/* as of tt_host_number; fixed before join.complete */
	int *host_of, nhosts;
	const struct tt_counted_bits *host_firsts; /* own_firsts, or the directory's */
	struct tt_counted_bits own_firsts;
	struct tt_dialer dialer;
	struct tt_join_state join;
	struct tt_failure failure;
	struct tt_departures departed;
	struct tt_observers observers;
	struct tt_gather gather;
	struct tt_split_state split;
	struct tt_statuses status;
	struct tt_deadlock_state deadlock;
};

static inline void tt_control_changed(struct tt_control *ctl)
{
	pthread_cond_broadcast(&ctl->ep->changed);
}
static inline void tt_control_lock(struct tt_control *ctl)
{
	pthread_mutex_lock(&ctl->ep->lock);
}
static inline void tt_control_unlock(struct tt_control *ctl)
{
	pthread_mutex_unlock(&ctl->ep->lock);
}

#endif
