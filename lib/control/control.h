/*
 * control.h - what the ranks of a communicator tell each other beside the data: joining, deaths,
 * who waits for whom
 *
 * A communicator has one control: authenticated TCP connections along a tree (fan-out 8, rank 0 on
 * top) and along the ring of ranks, so that one silent rank cannot cut the others off, and one
 * service thread a rank that sleeps in epoll. The thread relays, answers and accepts whether or not
 * the rank is inside a call.
 *
 *   who wakes whom   the service thread writes `broken` and calls on_broken;
 *                    run polls `broken` in every wait
 *   called by        comm (join, split, leave), run (note, waiting, raise, missing),
 *                    transports (dial, take)
 *
 * Deaths: a connection that ends without a goodbye is a death; its tree and ring neighbours see it
 * at once and flood it. Stops: a rank that has waited long floods its status; everyone answers once
 * a second while somebody waits; who has not answered when a deadline passes is missing.
 * Mismatches: a status is compared with what this rank did under the same sequence number. Every
 * flood carries (origin, serial) and is passed on once.
 */
#ifndef TT_CONTROL_H
#define TT_CONTROL_H

#include <stdatomic.h>

#include "base/base.h"
#include "tutti.h"

#define TT_CALL_BARRIER (tuttiNumOps + 1)     /* as op: not an allreduce of the user's */
#define TT_CALL_DEVICE 255                     /* as algorithm: by GPU kernels */

/* What a call is, so that two ranks can compare; also the call board's entry. */
struct tt_call {
	/* op: tuttiNumOps for a pre-multiplied sum; algorithm: index in its table */
	uint8_t collective, type, op, algorithm;
	int32_t root;                              /* -1 where there is none; SENDRECV: the peer */
	uint64_t count;
};
/* What makes the stamp that rides on every message. A collective's is a digest of all calls so far,
 * so that one that was different shows at the next at the latest; a send's or receive's is of
 * itself and its number. */
uint64_t tt_call_digest(const struct tt_call *call);
static inline uint64_t tt_mix(uint64_t h, uint64_t value)
{
	h = (h ^ value) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}
static inline uint32_t tt_call_stamp(const struct tt_call *call, uint64_t seq)
{
	return (uint32_t)(tt_mix(tt_call_digest(call), seq) >> 32);
}
/* "operation 17 (allreduce of 1024 float32, sum, ring)" into text */
void tt_call_text(const struct tt_call *call, uint64_t seq, char *text, size_t bytes);

struct tt_control;

struct tt_join {
	const tuttiUniqueId *id;
	int rank, nranks;
	/* "TUTTI_ALGO=auto TUTTI_TRANSPORT=auto ...": must be equal on all ranks */
	const char *settings;
	uint32_t timeout_ms;         /* for joining; later operations bring their own deadline */
	const char *ifname;          /* TUTTI_SOCKET_IFNAME or "" */
	const char *host_id;         /* TUTTI_HOST_ID or "": overrides what tells hosts apart */
	const char *port_range;      /* TUTTI_PORT_RANGE or "" */
};

/* unique_id.c: make an id with a port of TUTTI_PORT_RANGE ("": any); make one from TUTTI_ROOT and
 * TUTTI_SECRET (the same on every rank) */
int tt_id_make(const char *ifname, const char *port_range, tuttiUniqueId *ret_id);
int tt_id_from_root(const char *host_port, const char *secret, tuttiUniqueId *ret_id);

/* bootstrap.c: meet. Rank 0 listens at the id's address; each rank registers there, learns its
 * parent's address, connects to it; cards go up the tree, the table comes down; ring neighbours
 * connect. Returns 0 or what tuttiCommInitRank documents. Starts the service thread. */
int tt_control_join(const struct tt_join *join, struct tt_control **ret_ctl);

/* This rank fails before it could join, for the reason that is this thread's last sentence: tell
 * rank 0, so that the others need not wait for it. Returns code; the sentence stays. Blocks: until
 * rank 0 is there, 2 s at most. */
int tt_control_decline(const struct tt_join *join, int code);

/* A control for the ranks of an existing one that give the same color, ordered by key, then by
 * rank. Collective: every rank of parent calls it, in order with its allgathers; color -1: takes
 * part and gets NULL. code: 0, or why this rank cannot split (this thread's last sentence): then no
 * rank does. After a failure the sentences differ: tt_control_agree. */
int tt_control_split(struct tt_control *parent, int color, int key, int code, uint32_t timeout_ms,
		     struct tt_control **ret_ctl, int *ret_rank, int *ret_nranks);

/* The members of a new control: their ranks in its parent,
 * where they listen for it, this rank's place. */
struct tt_members {
	int *member, *port, n, rank;     /* [n] */
	const char *label;               /* with mark: what makes its key another one */
	uint64_t mark;
};

/* For shrink.c. offer: a control that listens and knows nobody; tt_control_leave frees it. form:
 * connect it with the others; after a failure it is broken. A death that the parent hears of breaks
 * it too, until formed. */
int tt_control_offer(struct tt_control *parent, struct tt_control **ret_ctl, int *ret_port);
int tt_control_form(struct tt_control *parent, struct tt_control *ctl,
		    const struct tt_members *members, uint64_t deadline_ns);
void tt_control_formed(struct tt_control *parent);
/* All ranks that can hear it learn who went on. excluded: the epoch without this rank, 0 none;
 * *ret_shrunk: the newest. */
void tt_control_tell_shrunk(struct tt_control *ctl, uint64_t epoch,
			    const struct tt_members *members);
uint64_t tt_control_excluded(struct tt_control *ctl, uint64_t *ret_shrunk);

/* "ranks 2, 5 and 9": those of which(ctx, rank) is true; returns how many */
int tt_rank_list(int nranks, bool (*which)(const void *ctx, int rank), const void *ctx, char *text,
		 size_t bytes);

/* Topology: host_of[nranks] and how many; owned by ctl. */
const int *tt_control_hosts(struct tt_control *ctl, int *ret_nhosts);

/* Are they ranks of one communicator? */
bool tt_control_same(const struct tt_control *a, const struct tt_control *b);

/* Bytes it holds: records of ranks, connections, what they have received and could not send yet.
 * Thread: any. */
size_t tt_control_memory(struct tt_control *ctl);

/* Collective over the tree; ranks call it in the same order. 0 | TT_REMOTE, TT_TIMEOUT. Blocks
 * until deadline. */
int tt_control_allgather(struct tt_control *ctl, const void *mine, size_t bytes, void *all,
			 uint64_t deadline_ns);

/* How did it go everywhere? Collective. code: this rank's result, with this thread's last sentence.
 * 0 where all say 0; else every rank returns a failure: a rank with a reason of its own that one,
 * the others the first such rank's sentence, after what, "the split". Blocks until deadline. */
int tt_control_agree(struct tt_control *ctl, int code, const char *what, uint64_t deadline_ns);

/* Data sockets for tcp (struct tt_world): authenticated both ways like everything else. */
int tt_control_dial(struct tt_control *ctl, int peer, int channel, uint64_t deadline_ns,
		    int *ret_fd);
/* 1 | 0 not yet */
int tt_control_take(struct tt_control *ctl, int peer, int channel, int *ret_fd);

/* Sockets of the same kind for mail, also when the control is broken; a peer that is gone is
 * TT_REMOTE. What others dial, and who died or left, is told to mail by the service thread, which
 * holds control's lock then; NULL: no more. A second call tells again who is gone already. */
int tt_control_dial_am(struct tt_control *ctl, int peer, uint64_t deadline_ns, int *ret_fd);
void tt_control_on_am(struct tt_control *ctl, void (*socket)(void *ctx, int peer, int fd),
			void (*gone)(void *ctx, int rank, tuttiRankState_t how), void *ctx);

/* ---- the call board: cheap, every call ------------------------------------------------------- */

/* This rank starts (finishes) collective number seq.
 * A few plain stores; the service thread reads them. */
void tt_control_note(struct tt_control *ctl, uint64_t seq, const struct tt_call *call);
void tt_control_done(struct tt_control *ctl, uint64_t seq);
/* The same for sends and receives, which are numbered by pair and direction. */
void tt_control_note_message(struct tt_control *ctl, bool send, int peer, uint64_t number,
			     const struct tt_call *call);
void tt_control_done_message(struct tt_control *ctl);

/* ---- trouble --------------------------------------------------------------------------------- */

/* 0, or the code that broke the communicator; one relaxed load, polled in every wait. */
int tt_control_broken(const struct tt_control *ctl);
/* The sentence and, if one rank is to blame, its number (else -1). Valid once broken. */
const char *tt_control_text(const struct tt_control *ctl, int *ret_culprit);

/* This rank's operation failed: break the communicator here and, by flood, everywhere. First one
 * wins. Thread: any. */
void tt_control_raise(struct tt_control *ctl, int code, int culprit, const char *text);

/* What a rank is in while nothing moves, besides its collective, which is on the board. */
#define TT_WAIT_EDGES 4
/* a message of that pair */
struct tt_wait_edge { bool send; int peer; uint64_t number; struct tt_call call; };
struct tt_blocked {
	int awaited;                 /* the rank it waits for, -1: several */
	uint64_t last_received;              /* the last operation in which this rank last_received of it */
	/* it may begin more operations before these end, so nothing certain follows */
	bool open;
	bool differs;                /* something else came, wherever its sender is now */
	int nwants;                  /* as many as fit */
	struct tt_wait_edge want[TT_WAIT_EDGES];
};

/* This rank waits long: tell all, ask all. Cheap to call often; sends once a second. When the ranks
 * turn out to wait for each other for ever, the communicator breaks (TT_USAGE). */
void tt_control_waiting(struct tt_control *ctl, const struct tt_blocked *stuck);

/* At a deadline: who is missing for operation seq, or for the messages of stuck if it has some, and
 * what it did last, as a sentence. Returns the first missing rank, or -1 when every rank answers
 * and is in this operation. Blocks: until all have answered, 1 s at most. When the communicator
 * broke meanwhile, that is what to tell instead. */
int tt_control_missing(struct tt_control *ctl, uint64_t seq, const struct tt_blocked *stuck,
		       char *text, size_t bytes);

/* Called by the service thread right after the communicator broke (run wakes its sleepers). Set
 * before use. */
void tt_control_on_broken(struct tt_control *ctl, void (*fn)(void *ctx), void *ctx);

/* Another rank waits long for this one: was a message to it lost without any call of this rank
 * noticing? True with the sentence, which then breaks the communicator. Called by the service
 * thread, which holds control's lock. NULL: no more. */
void tt_control_on_awaited(struct tt_control *ctl,
			   bool (*lost)(void *ctx, int peer, char *text, size_t bytes), void *ctx);

/* Say goodbye, stop the service thread, close, free. Blocks until the
 * neighbours have what was for them, mostly some microseconds, at
 * most 5 s (a neighbour that is stopped), 0.2 s after a failure. */
void tt_control_leave(struct tt_control *ctl);

#endif
