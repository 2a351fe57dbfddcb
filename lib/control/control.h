/*
 * control.h - the control of a communicator: joining, liveness, call log and deadlock detection,
 * beside the data
 *
 * A communicator has one control, over authenticated connections along a tree (fan-out 8, rank
 * 0 is the root) and along the ring of ranks, so that one silent rank cannot cut the others off.
 * The connections belong to the rank's endpoint, which the controls of splits and shrinks share
 * (endpoint.h); a service thread works for all endpoints of the process. The thread relays, answers and
 * accepts whether or not the rank is inside a call.
 *
 *   wake-up          the service thread writes `broken` and calls the observers;
 *                    run polls `broken` in every wait
 *   called by        comm (join, split, leave), run (note, waiting, raise, missing),
 *                    transports (dial, take), am (frames of messages)
 *   calls            base; higher rooms only through struct tt_control_observer
 *
 * Deaths: a connection that ends without a goodbye is a death; the neighbors in tree and ring see
 * the end at once and flood the death. Stops: a rank that has waited long floods its status; every
 * rank answers once a second while some rank waits; a rank without an answer at a deadline is
 * missing. Mismatches: a rank compares a status with its own call of the same sequence number.
 * Every flood carries (origin, serial), and a rank forwards a flood once.
 */
#ifndef TT_CONTROL_H
#define TT_CONTROL_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/collective.h"
#include "control/rank_map.h"
#include "tutti.h"

/* ---- calls ----------------------------------------------------------------------------------- */

#define TT_CALL_BARRIER (tuttiNumOps + 1) /* op of tuttiBarrier's allreduce */
#define TT_CALL_DEVICE 255                /* algorithm of a call by GPU kernels */

/* The signature of a call, equal on all ranks of a collective; also the entry of the call log. */
struct tt_call {
	/* collective: enum tt_collective; op: tuttiNumOps for a pre-multiplied sum; algorithm:
	 * index in the table of algorithms */
	uint8_t collective, type, op, algorithm;
	int32_t root; /* -1: none; SENDRECV: the peer */
	uint64_t count;
};
/* The digest of a signature; every message carries a stamp of 32 bits made from digests. The stamp
 * of a collective covers all calls so far, so that a different call shows at the next collective at
 * the latest; the stamp of a send or receive covers itself and its number. */
uint64_t tt_call_digest(const struct tt_call *call);
static inline uint32_t tt_call_stamp(const struct tt_call *call, uint64_t seq)
{
	return (uint32_t)(tt_mix(tt_call_digest(call), seq) >> 32);
}
/* "operation 17 (allreduce of 1024 float32, sum, ring)" into text */
void tt_call_text(const struct tt_call *call, uint64_t seq, char *text, size_t bytes);
/* Names of algorithms for tt_call_text: name returns the name of an index of the table, NULL: no
 * such row. For the whole process; without a call algorithms are "unknown algorithm".
 * Thread: any, repeated calls with one function are harmless. */
void tt_call_name_algorithms(const char *(*name)(unsigned algorithm));

struct tt_control;
struct tt_data_keys; /* base/sock.h */

/* ---- joining --------------------------------------------------------------------------------- */

struct tt_join {
	const tuttiUniqueId *id;
	int rank, nranks;
	/* "TUTTI_ALGO=auto TUTTI_TRANSPORT=auto ...": must be equal on all ranks */
	const char *settings;
	uint32_t timeout_ms;    /* of the join; later operations bring their own deadline */
	const char *ifname;     /* TUTTI_SOCKET_IFNAME or "" */
	const char *host_id;    /* TUTTI_HOST_ID or "": overrides the identity of this host */
	const char *port_range; /* TUTTI_PORT_RANGE or "" */
	const char *id_folder;  /* TUTTI_TOP or "" */
};

/* unique_id.c: make an id with a port of TUTTI_PORT_RANGE ("": any); make an id from TUTTI_ROOT and
 * TUTTI_SECRET (the same on every rank). 0 | TT_ARG, TT_SYSTEM */
int tt_id_make(const char *ifname, const char *port_range, tuttiUniqueId *ret_id);
int tt_id_from_root(const char *host_port, const char *secret, tuttiUniqueId *ret_id);

/* bootstrap.c: join the ranks of an id. Rank 0 listens at the id's address; each rank registers
 * there, receives its parent's address, connects to its parent; business cards go up the tree, the
 * table of all of them comes down; ring neighbors connect. Starts the service thread. Returns 0 or
 * the codes that tuttiCommInitRank documents. Blocks: until join->timeout_ms. */
int tt_control_join(const struct tt_join *join, struct tt_control **ret_ctl);

/* Report to rank 0 that this rank cannot join (the reason is the thread's last error), so that the
 * other ranks stop waiting; release the id's port. Returns code; the sentence stays. Blocks: until
 * rank 0 listens, 2 s at most. */
int tt_control_decline(const struct tt_join *join, int code);

struct tt_parts;

/* The members of a new control, as a map from their ranks to those in the parent, and this rank's number
 * among them. */
struct tt_members {
	struct tt_rank_map map;
	int rank;
	const char *label; /* label and mark make the new context number differ from others */
	uint64_t mark;
};

/* A control for the ranks of an existing one with the same color, ordered by key, then by rank. The
 * new control uses the listener, the thread and the connections of parent. Collective: every rank
 * of parent calls, in order with its allgathers; color -1: the rank takes part and gets NULL.
 * code: 0, or the reason why this rank cannot split (the sentence is the thread's last error):
 * then no rank splits. After a failure the sentences differ: tt_control_agree. Whatever breaks
 * parent breaks the new control, until tt_control_formed, which the caller calls in any case,
 * after tt_control_agree: no rank may leave parent before every rank is connected. facts: nfacts more
 * parts of each rank of parent, at most TT_SPLIT_FACTS, for the caller to free after success. ret_members: of the new
 * control, for the caller to free in any case; facts, with a color, lead to it. Blocks: until timeout_ms. */
#define TT_SPLIT_FACTS 2
int tt_control_split(struct tt_control *parent, int color, int key, int code, uint32_t timeout_ms,
		     struct tt_parts *facts, int nfacts, struct tt_control **ret_ctl,
		     struct tt_members *ret_members);

void tt_control_formed(struct tt_control *parent);

/* For shrink.c. shrinking: before the first message to another member. form: connect the control of
 * the members; after a failure *ret_ctl is broken, or NULL. A death of a member that the parent
 * learns of breaks the new control too, until tt_control_formed, which the caller calls in any case
 * after shrinking. 0 | < 0 */
void tt_control_shrinking(struct tt_control *parent);
int tt_control_form(struct tt_control *parent, const struct tt_members *members,
		    uint64_t deadline_ns, struct tt_control **ret_ctl);
/* Flood the members of a shrink to all ranks that can be reached. excluded: the epoch of the latest
 * shrink without this rank, 0 none; *ret_shrunk: of the latest. */
void tt_control_announce_shrunk(struct tt_control *ctl, uint64_t epoch,
				const struct tt_members *members);
uint64_t tt_control_excluded(struct tt_control *ctl, uint64_t *ret_shrunk);

/* How long a rank waits before it connects to a rank to which all others connect at the same time:
 * Linux keeps 4,096 connections that are not accepted yet, and the client of a further one tries
 * again after 1, 3, 7 ... seconds. */
#define TT_PACE_RANKS 2048
#define TT_PACE_NS (250 * 1000000ull)
static inline uint64_t tt_control_pace_ns(int rank)
{
	return (uint64_t)rank / TT_PACE_RANKS * TT_PACE_NS;
}

/* "ranks 2, 5 to 9", or with many parts "... and 24 more": the ranks for which which(ctx, rank) is
 * true; returns their number */
int tt_rank_list(int nranks, bool (*which)(const void *ctx, int rank), const void *ctx, char *text,
		 size_t bytes);

/* The hosts of all ranks, as of tt_host_number, and their number; owned by ctl. */
const int *tt_control_hosts(struct tt_control *ctl, const struct tt_counted_bits **ret_firsts,
			    int *ret_nhosts);

/* The name of the host of a rank, as far as it fits */
void tt_control_host_name(const struct tt_control *ctl, int rank, char *name, size_t bytes);

/* Are a and b controls of one communicator? */
bool tt_control_same(const struct tt_control *a, const struct tt_control *b);

/* The number and the name of the communicator, for operators: equal on all ranks; before another thread
 * asks for a report. */
void tt_control_describe(struct tt_control *ctl, uint64_t mark, const char *name);

/* Bytes of memory: records of ranks, connections, received and queued bytes. Thread: any. */
size_t tt_control_memory(struct tt_control *ctl);

/* ---- exchanges ------------------------------------------------------------------------------- */

/* Allgather over the tree: mine[bytes] of each rank into all[nranks][bytes]. Collective: ranks call
 * in the same order. 0 | TT_REMOTE, TT_TIMEOUT. Blocks until deadline, and then, while a rank does not
 * answer, until 0.75 s after it, or 0.3 s after a later call; in a join for 0.25 s. */
int tt_control_allgather(struct tt_control *ctl, const void *mine, size_t bytes, void *all,
			 uint64_t deadline_ns);

/* The parts of all ranks, as runs of equal ones: part[i] is that of the ranks from[i] ... from[i + 1] - 1. */
struct tt_parts {
	const void *mine;
	size_t bytes; /* of each */
	int nruns, *from;
	const uint8_t **part; /* in message, not aligned */
	uint8_t *message;     /* of this column, or of a later one */
	const struct tt_rank_map
		*members; /* of a split: its ranks' ranks in the parent; else NULL */
};
/* One exchange of several parts of each rank, as tt_control_allgather. A part that is equal to the one
 * of the rank before takes a bit, so what differs from rank to rank is a column of its own. mine and
 * bytes are the caller's; after success tt_parts_free, the last column last. */
int tt_control_allgather_columns(struct tt_control *ctl, struct tt_parts *columns, int ncolumns,
				 uint64_t deadline_ns);
void tt_part_get(const struct tt_parts *parts, int rank, void *to);
/* The next rank that may have another part */
int tt_part_end(const struct tt_parts *parts, int rank);
void tt_parts_free(struct tt_parts *parts);

/* Agree on one outcome. Collective. code: this rank's result, with the thread's last error. Returns
 * 0 where every rank gives 0; else every rank returns a failure: a rank with a reason of its own
 * returns that reason, the other ranks the sentence of the first such rank, after `what`, "the
 * split". facts: one more part of each rank, to free after success; NULL: none. Blocks as
 * tt_control_allgather; for ranks that answer 0.3 s more, from the later of deadline and call, in each of
 * two exchanges. */
int tt_control_agree(struct tt_control *ctl, int code, const char *what, struct tt_parts *facts,
		     uint64_t deadline_ns);

/* Data sockets for transports (struct tt_world), with mutual authentication like every connection.
 * The lower rank of a pair dials, which begins to connect and returns: 0 | TT_SYSTEM. Both ranks
 * then call take: 1 a socket, which the caller owns, and its keys, known to these two ranks alone |
 * 0 not connected yet | < 0 broken, or the dial has failed or passed its deadline. once: a later
 * socket of the same channel is a new one, not the sign that the network has lost this one. */
#define TT_DATA_CHANNELS 24 /* of a pair of ranks in a control, at most */
int tt_control_dial(struct tt_control *ctl, int peer, int channel, uint64_t deadline_ns);
int tt_control_take(struct tt_control *ctl, int peer, int channel, bool once, int *ret_fd,
		    struct tt_data_keys *ret_keys);

/* ---- frames of active messages --------------------------------------------------------------- */

/* The lock of the endpoint. "Locked" means: the caller holds the lock. */
pthread_mutex_t *tt_control_mutex(struct tt_control *ctl);
/* Make the connection to a rank, unless it exists; also when the control is broken. Not locked. 0 |
 * TT_REMOTE: the rank is gone, or *stop | < 0. Blocks until deadline, or until another thread sets
 * *stop and calls tt_control_notify. */
int tt_control_reach_rank(struct tt_control *ctl, int rank, uint64_t deadline_ns,
			  const atomic_bool *stop);
void tt_control_notify(struct tt_control *ctl); /* locked */
/* Is there a connection to rank? May more messages of rank come on it? Locked */
bool tt_control_is_connected(const struct tt_control *ctl, int rank);
bool tt_control_is_open(const struct tt_control *ctl, int rank);
/* Fill ret_partitioned[nranks]: the ranks that live as far as this rank knows, and to which no chain of
 * living neighbors leads. If they leave or die, no flood of it arrives here. false: none, or no
 * memory. Locked. */
bool tt_control_find_partitioned(const struct tt_control *ctl, bool *ret_partitioned);
/* Does the connection to rank take a frame of messages now? If not, and if there is a connection,
 * `room` of the observers is called once it does. Locked. */
bool tt_control_has_room(const struct tt_control *ctl, int rank);
/* Send a frame of messages (tt_frame_is_message) in two parts to a connected rank; never blocks.
 * Locked. false: no memory, nothing is sent */
bool tt_control_send_frame(struct tt_control *ctl, int rank, int kind, const struct iovec part[2]);
/* The frame of rank is malformed: close the connection that brought it. Locked. */
void tt_control_malformed(struct tt_control *ctl, int rank);
/* Closes the connection that brought a frame of rank for which there is no memory. Locked. */
void tt_control_frame_no_memory(struct tt_control *ctl, int rank);
/* Call `timers` of the observers soon. */
void tt_control_wake(struct tt_control *ctl);

/* ---- observers: events for higher rooms ------------------------------------------------------ */

#define TT_TALLIES (TT_COLLECTIVES + 1) /* counters of a tally; the last one: barriers */

/* A rank's collectives that have ended, by enum tt_collective, and its barriers. bytes: of count
 * elements. */
struct tt_tally {
	uint64_t calls[TT_TALLIES], bytes[TT_TALLIES], ns[TT_TALLIES];
};

/* A member that is NULL is not called. Contract of every member:
 *   Thread   control's service thread; `broken` without one (one rank): tt_control_raise's caller;
 *            `gone` also the caller of tt_control_observe
 *   Locks    control's lock is held, except for `broken`: no member calls a function of control,
 *            besides tt_control_broken, tt_control_text, and those marked locked
 *   Blocks   no, apart from a short lock of the observer's own
 *   After tt_control_unobserve has returned, no member runs or is called any more. */
struct tt_control_observer {
	/* The communicator broke: wake the threads that sleep in transports. Once; also when the
	 * communicator broke before tt_control_observe. An internal lock is held: the member must
	 * not call tt_control_observe or tt_control_unobserve. */
	void (*broken)(void *ctx);
	/* A data connection can be taken, or cannot be made: wake the threads that sleep in
	 * transports. Thread: also a dialer's. */
	void (*connected)(void *ctx);
	/* A frame of messages of a rank (tt_frame_is_message). May call the locked functions above,
	 * like the next three. */
	void (*message)(void *ctx, int rank, int kind, const uint8_t *data, size_t bytes);
	/* Where the next bytes of messages of a rank go, at most *ret_bytes of them; NULL: no such
	 * place. `message` may have these bytes there, or elsewhere. */
	uint8_t *(*destination)(void *ctx, int rank, size_t *ret_bytes);
	/* The connection to a rank takes frames of messages again. */
	void (*room)(void *ctx, int rank);
	/* No more messages come from a rank: its connection brought its goodbye, or ended. */
	void (*over)(void *ctx, int rank, tuttiRankState_t how);
	/* Do what is due; returns the next time due, UINT64_MAX: none. */
	uint64_t (*timers)(void *ctx, uint64_t now);
	/* A rank died or left: once for each rank, also for ranks that were gone before. */
	void (*gone)(void *ctx, int rank, tuttiRankState_t how);
	/* Rank peer waits long for this rank: was a message to peer lost without an error in any
	 * call of this rank? true with the sentence in text[bytes]: breaks the communicator. */
	bool (*lost)(void *ctx, int peer, char *text, size_t bytes);
	/* Fill ret_tally; *ret_running_ns: the time since the start of the collective in progress,
	 * 0: there is none. false: collectives are not counted. */
	bool (*tally)(void *ctx, struct tt_tally *ret_tally, uint64_t *ret_running_ns);
};

/* Register an observer; table stays valid until unobserve. At most 4 observers of a control (the
 * communicator, its GPU, its active messages, a test). Thread: any but the service thread. */
void tt_control_observe(struct tt_control *ctl, const struct tt_control_observer *table, void *ctx);
/* Remove the observer that was registered with this table and ctx. Blocks: until a running
 * member returns. */
void tt_control_unobserve(struct tt_control *ctl, const struct tt_control_observer *table,
			  void *ctx);

/* ---- the call log: cheap, every call --------------------------------------------------------- */

/* This rank starts (finishes) collective number seq: a few plain stores, read by the service
 * thread. */
void tt_control_note(struct tt_control *ctl, uint64_t seq, const struct tt_call *call);
void tt_control_done(struct tt_control *ctl, uint64_t seq);
/* "operation 4 (allreduce of ...)" that has started and not finished; "": none. Thread: any. */
void tt_control_running(struct tt_control *ctl, char *text, size_t bytes);
/* As note and done, for sends and receives, which are numbered by pair and direction. */
void tt_control_note_message(struct tt_control *ctl, bool send, int peer, uint64_t number,
			     const struct tt_call *call);
void tt_control_done_message(struct tt_control *ctl);

/* ---- failures -------------------------------------------------------------------------------- */

/* 0, or the code that broke the communicator; one relaxed load, polled in every wait. */
int tt_control_broken(const struct tt_control *ctl);
/* The sentence and the number of the failed rank, -1: none or several. Valid once broken. */
const char *tt_control_text(const struct tt_control *ctl, int *ret_culprit);
/* tt_fail with the code and the sentence that broke ctl */
int tt_control_fail(struct tt_control *ctl);

/* This rank's operation failed: break the communicator here and, by flood, everywhere. The first
 * break wins. Thread: any. */
void tt_control_raise(struct tt_control *ctl, int code, int culprit, const char *text);

/* ---- waiting and deadlock detection ---------------------------------------------------------- */

/* The edges of this rank in the wait-for graph while it makes no progress, besides its collective,
 * which is in the call log. */
#define TT_WAIT_EDGES 4
/* a message of this pair that has not completed */
struct tt_wait_edge {
	bool send;
	int peer;
	uint64_t number;
	struct tt_call call;
};
struct tt_blocked {
	int awaited;            /* the rank it waits for, -1: several */
	uint64_t last_received; /* last operation with a message received from awaited */
	/* the rank may begin more operations before these end, so no deadlock is certain */
	bool open;
	bool differs; /* a message of another call came, wherever its sender is now */
	int nwants;   /* entries of want, as many as fit */
	struct tt_wait_edge want[TT_WAIT_EDGES];
};

/* This rank waits long: send its status to all ranks, which answer with theirs. Cheap to call
 * often; sends once a second, with 128 ranks and more less often. A cycle of ranks that wait for each
 * other breaks the communicator (TT_USAGE). */
void tt_control_waiting(struct tt_control *ctl, const struct tt_blocked *blocked);

/* At a deadline: the ranks missing from operation seq, or from the messages of blocked if it has
 * some, and their last operations, as a sentence. Returns the first missing rank, or -1 when every
 * rank answers and is in this operation. Blocks: until all have answered, 0.75 s at most. When the
 * communicator broke meanwhile, the caller reports that break instead. */
int tt_control_missing(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *blocked,
		       char *text, size_t bytes);

/* Asks all ranks whether they live. true: "ranks 2 and 5 are not answering: ..." of those that have
 * neither answered nor left. false at once when the communicator is broken. Blocks: until all have
 * answered, wait_ms at most. */
bool tt_control_silent(struct tt_control *ctl, uint32_t wait_ms, char *text, size_t bytes);

/* ---- the state of every rank, for operators (control_report.c) -------------------------------- */

struct tt_rank_report {
	/* SILENT: no status came since the time in question */
	enum tt_rank_state { TT_RANK_ANSWERS, TT_RANK_SILENT, TT_RANK_LEFT, TT_RANK_DEAD } state;
	int pid;
	char host[64];
	/* of the latest status; there is none: zeros, and no rank is awaited */
	uint64_t started, finished; /* collectives, by number */
	/* since the start of number `started`, 0: it has ended. Not counted: since the rank first
	 * wrote a status about it, so at least this long */
	uint64_t running_ns;
	int awaited;          /* the rank that it has waited for long, -1: none or several */
	char collective[128]; /* "operation 4 (allreduce of ...)": number `started`; "": none */
	char other[128]; /* another call that it has waited in for long: "send of ..."; "": none */
	bool counted;    /* the tally is filled: with the collective that runs */
	struct tt_tally tally; /* zeros: not counted */
};
/* Ask all ranks for their statuses, unless this rank has since since_ns. Thread: any. Blocks: no */
void tt_control_ask(struct tt_control *ctl, uint64_t since_ns);
/* Has every rank that lives sent a status since since_ns? */
bool tt_control_all_answered(struct tt_control *ctl, uint64_t since_ns);
/* The states of all ranks: ret_report[nranks] */
void tt_control_report(struct tt_control *ctl, uint64_t since_ns,
		       struct tt_rank_report *ret_report);

/* Send a goodbye, free. The last control of an endpoint closes the endpoint, too, and blocks until
 * the neighbors have received everything queued for them: mostly some microseconds, at most 5 s (a
 * stopped neighbor), 0.2 s after a failure. */
void tt_control_leave(struct tt_control *ctl);

#endif
