/*
 * single_copy.h - the single copy of a communicator: what its ranks can read, how calls went, and
 * the call in progress
 *
 * single_copy.c runs the call, single_copy_exchange.c its first phases; single_copy_state.c makes
 * and frees this record; single_copy_pieces.c says which bytes a rank needs of which peer;
 * single_copy_choice.c measures single copy against messages; single_copy_pscw.c is the variant
 * without an address exchange of all ranks. One collective of a communicator is in flight at a
 * time, so one record per communicator suffices.
 */
#ifndef TT_SINGLE_COPY_H
#define TT_SINGLE_COPY_H

#include "base/trial.h"
#include "local/form.h"
#include "run/op.h"

enum tt_smsc_phase {
	TT_SMSC_START,
	TT_SMSC_EXCHANGE, /* addresses of all buffers */
	TT_SMSC_AGREE,    /* can every rank read every other? */
	TT_SMSC_SUM,
	TT_SMSC_FETCH,
	TT_SMSC_COMPLETE /* this rank reads no peer any more; do peers read it? */
};

/* How a call moves its bytes: by messages (or a way after this one in tt_ways), or by reading
 * peers' memory */
enum tt_smsc_by { TT_BY_MESSAGES, TT_BY_READING, TT_BY_ALL };

/* Calls of one collective and size, in place or not: the times are this rank's, all else is equal on all ranks. */
struct tt_smsc_trial {
	struct tt_trial trial;
	bool windows; /* the calls are on windows, not on ordinary memory */
};
#define TT_SMSC_SIZES 7
struct tt_smsc_history {
	unsigned in_vain;              /* address exchanges in a row after which messages ran */
	unsigned skipped;              /* calls without an address exchange */
	struct tt_smsc_trial trial[2]; /* not in place, in place */
};

/* A rank's post of the address exchange. */
struct tt_smsc_addresses {
	struct tt_peer_memory in, out;
	bool in_place, insists;    /* insists: TUTTI_CMA=on */
	uint32_t ns[2][TT_BY_ALL]; /* least times measured, as in struct tt_trial */
};

#define TT_SMSC_BOUNCED (128u << 10) /* bytes of a slice in the bounce buffer, which stays in L2 */
struct tt_single_copy {
	/* can all ranks read the ordinary memory of all ranks? agreed */
	enum { TT_SMSC_UNTRIED, TT_SMSC_UNREADABLE, TT_SMSC_READABLE } memory;
	bool maps; /* all ranks can map the windows of all ranks; agreed */
	struct tt_smsc_history history[TT_SENDRECV][TT_SMSC_SIZES];
	void *bounce; /* a slice per rank, for memory without a pointer; or NULL */
	size_t bounce_bytes;

	/* the current call */
	enum tt_smsc_phase phase;
	bool ordinary, windows; /* kinds of memory in the call */
	bool bounces;           /* some memory must be copied to be read */
	bool follows;           /* the call goes the way of those before, without an exchange */
	bool pscw;              /* single_copy_pscw.c: no exchange */
	bool pairwise; /* single_copy_pscw.c: each pair of ranks completes, no posts of all ranks */
	uint8_t can;   /* this rank's answer to AGREE */
	size_t part;   /* bytes of a rank's part of an allreduce */
	size_t done;   /* bytes of the current piece that are summed or fetched */
	unsigned fetched; /* mask of the peers whose pieces are fetched */
	int fetching;     /* the peer whose piece is half fetched, -1: none */
	struct tt_smsc_addresses of[TT_SINGLE_COPY_RANKS];
	const char *in_at[TT_SINGLE_COPY_RANKS],
		*out_at[TT_SINGLE_COPY_RANKS]; /* NULL: by bounce buffer */
	struct tt_smsc_trial *trial;           /* measures this call, or NULL */
	uint64_t exchanged_ns; /* time at which the addresses of all ranks had arrived */
	enum tt_smsc_by way;   /* way of this call, as the trial chose it */
};

/* single_copy.c. Post data to the slots of this call, in its next phase. Poll the posts of all ranks
 * in this phase: 1 there, data[rank] points at each | 0 | < 0 */
void tt_smsc_post(struct tt_op *op, const void *data, size_t bytes, enum tt_smsc_phase next);
int tt_smsc_poll(struct tt_op *op, size_t bytes, const void **data);

/* single_copy_exchange.c: phases, as tt_way.advance */
int tt_smsc_start(struct tt_op *op);
int tt_smsc_exchange(struct tt_op *op);
int tt_smsc_agree(struct tt_op *op);

/* single_copy_state.c: the open, close and memory of struct tt_way; open_bounce: 0 | TT_SYSTEM */
int tt_smsc_open(tuttiComm_t comm);
void tt_smsc_close(tuttiComm_t comm);
size_t tt_smsc_memory(tuttiComm_t comm);
int tt_smsc_open_bounce(tuttiComm_t comm, size_t bytes);

/* single_copy_pieces.c. Does the collective sum? Is the call large enough, with an algorithm whose
 * bits are those of sums in rank order? */
bool tt_smsc_sums(const struct tt_op *op);
bool tt_smsc_fits(const struct tt_op *op);
struct tt_form tt_smsc_form(const struct tt_op *op);
/* Bytes of rank's input, and of every rank's output, that others read; 0: none. */
size_t tt_smsc_in_bytes(const struct tt_op *op, int rank);
size_t tt_smsc_out_bytes(const struct tt_op *op);
/* The piece that this rank takes of a peer: bytes at `from` of the peer's buffer to `to` of its own
 * output. Of itself: the part that it sums, or copies at the end. */
struct tt_smsc_piece {
	size_t from, to, bytes;
};
struct tt_smsc_piece tt_smsc_piece(const struct tt_op *op, int peer);

/* single_copy_pscw.c: a call without an address exchange; pairwise: one whose pairs of ranks complete.
 * applies, is_pairwise: all ranks answer alike. post:
 * expose this rank's input. start: has peer posted? 1, and then it can be fetched from | 0 | < 0.
 * complete: this rank reads peer no more. test: have all readers of this rank completed? */
bool tt_pscw_is_pairwise(const struct tt_op *op);
bool tt_pscw_applies(const struct tt_op *op);
void tt_pscw_post(struct tt_op *op);
int tt_pscw_start(struct tt_op *op, int peer);
void tt_pscw_complete(struct tt_op *op, int peer);
bool tt_pscw_test(struct tt_op *op);

/* Do ranks share cores? Agreed. */
static inline bool tt_smsc_crowded(tuttiComm_t comm)
{
	return comm->hosts.cores && comm->nranks > comm->hosts.cores;
}

/* single_copy_choice.c. follows: does this call go the way of those before, *ret_way, between two trials
 * of slots and reading? Counts the call; all ranks answer alike, without an exchange. worth: is an address
 * exchange worth its cost, by the results of earlier ones? note: the result of this one, unless its call
 * was a trial of the slower way. */
bool tt_smsc_follows(const struct tt_op *op, enum tt_smsc_by *ret_way);
bool tt_smsc_worth(const struct tt_op *op);
void tt_smsc_note(const struct tt_op *op, bool in_vain);
/* Put this rank's measurements into its post; then, with the posts of all: the way of this call.
 * All ranks answer alike. measure: the call is complete. */
void tt_smsc_report(const struct tt_op *op, struct tt_smsc_addresses *mine);
enum tt_smsc_by tt_smsc_choose(struct tt_op *op);
void tt_smsc_measure(const struct tt_op *op);

#endif
