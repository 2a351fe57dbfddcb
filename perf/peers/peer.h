/*
 * peer.h - one library beside others: what perf/compare measures, and what measures it
 *
 * peer_bench.c has the main of every peer program: it pins the rank, opens the peer, takes turns from
 * perf/compare and runs them (peer_turn.c). A peer (peer_tutti.c, mpi.c, gloo.cc) is a table of functions, so
 * that all libraries are measured by the same object code: same loop, same buffers, same rewriting,
 * same way of meeting, which is none of the libraries'.
 */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_MAX_RANKS 256

/* The names are in peer_turn.c, in this order. */
enum peer_collective {
	PEER_ALLREDUCE,
	PEER_BROADCAST,
	PEER_REDUCE,
	PEER_ALLGATHER,
	PEER_REDUCE_SCATTER,
	PEER_ALLTOALL,
	PEER_COLLECTIVES
};

/* float32, sum, root 0. count: of the whole message for allreduce,
 * broadcast and reduce, of one rank's part for the others; in ==
 * out means in place. Returns 0, or not when the library failed. */
typedef int peer_call(const float *in, float *out, size_t count);

struct peer {
	int (*open)(int *ret_rank, int *ret_n);         /* join; 0 or not */
	/* page-aligned memory of the library's own, or NULL: malloc's */
	float *(*alloc)(size_t bytes);
	void (*close)(void);
	peer_call *calls[PEER_COLLECTIVES];             /* NULL: this library has none */
};

/* defined by each peer program */
extern const struct peer peer;

/* ---- shared_page.c: memory that all ranks of one library share ------------------------------------- */

/* One turn: what perf/compare asks for. */
struct peer_turn {
	int collective;
	bool in_place, rewritten, verify;
	size_t bytes;
	double target_us;                               /* how long its measured calls may take */
};

struct peer_board;

/* Map what the variable PEER_BOARD names; NULL with a sentence on standard error. */
struct peer_board *peer_board_open(void);
void peer_board_join(struct peer_board *b, int rank, int n, bool crowded);

/* Rank 0 hands out a turn, NULL as the end; the others sleep until there is one.
 * True: there is a turn. */
void peer_board_put(struct peer_board *b, const struct peer_turn *turn);
bool peer_board_take(struct peer_board *b, struct peer_turn *ret_turn);

/* All ranks meet, spinning (giving way where ranks outnumber cores). peer_mean: and learn the mean
 * of their values. */
void peer_meet(struct peer_board *b);
double peer_mean(struct peer_board *b, double mine);

/* ---- peer_turn.c ---------------------------------------------------------------------------------- */

/* The buffers of a rank; room for the inputs of a batch besides the largest message. */
struct peer_rank {
	int rank, n;
	float *in, *out;
	struct peer_board *board;
};

struct peer_result {
	uint64_t calls;                                 /* measured, on each rank */
	double mean_us;                                 /* of a call, over calls and ranks */
	double median_us;                               /* of batches' means; mean over ranks */
	double wrong;                                   /* elements a rank, where asked to verify */
};

extern const char *const peer_collective_names[PEER_COLLECTIVES];

/* A batch's inputs stay together within this, so that rewriting them does not push them out of the
 * nearest caches. */
#define PEER_BATCH_BYTES (256 << 10)

/* 0, or not when the library failed. */
int peer_run_turn(const struct peer_rank *me, const struct peer_turn *turn,
		  struct peer_result *ret_result);

#ifdef __cplusplus
}
#endif
#endif
