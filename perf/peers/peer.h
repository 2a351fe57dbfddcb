/*
 * peer.h - interface between perf/compare's measuring programs and a communication library
 *
 * peer_bench.c has the main function of every peer program: it pins the rank, opens the peer,
 * receives turns from perf/compare and runs them (peer_turn.c). A turn is one measurement: one
 * collective, one size. A peer (peer_tutti.c, mpi.c, gloo.cc) is a table of functions, so that the
 * same object code measures all libraries: same loop, same buffers, same rewriting of inputs, and a
 * barrier that belongs to none of the libraries.
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

/* In the order of peer_collective_names. */
enum peer_collective {
	PEER_ALLREDUCE,
	PEER_BROADCAST,
	PEER_REDUCE,
	PEER_ALLGATHER,
	PEER_REDUCE_SCATTER,
	PEER_ALLTOALL,
	PEER_GATHER,
	PEER_SCATTER,
	PEER_PINGPONG, /* rank 0 to 1, then 1 to 0; a call is a round trip */
	PEER_SENDRECV, /* to the next rank and from the previous one, at once */
	PEER_COLLECTIVES
};

/* Blocking call: float32, sum, root 0.
 *   count     elements of the message, or of one rank's part (allgather to scatter)
 *   in == out in place
 *   Returns   0 | not 0: the library failed */
typedef int peer_call(const float *in, float *out, size_t count);

struct peer {
	int (*open)(int *ret_rank, int *ret_n); /* join; returns 0 | not 0: failed */
	float *(*alloc)(size_t bytes);          /* page-aligned; NULL: use posix_memalign */
	void (*close)(void);
	peer_call *calls[PEER_COLLECTIVES]; /* NULL: the library has no such call */
};

/* Defined by each peer program. */
extern const struct peer peer;

/* ---- shared_page.c: memory shared by all ranks of one library -------------------------------- */

/* Parameters of one measurement. */
struct peer_turn {
	int collective;
	bool in_place, rewritten, verify;
	size_t bytes;
	size_t offset;    /* address of both buffers, in bytes past the begin of a page */
	double target_us; /* total time of the measured calls */
};

struct peer_page;

/* Maps the memory named by PEER_PAGE. On failure prints an error and exits with 2. */
struct peer_page *peer_page_open(void);
/* crowded: the barrier yields, since ranks outnumber cores. */
void peer_page_join(struct peer_page *p, int rank, int n, bool crowded);

/* Rank 0: posts a turn (NULL: the end) and wakes all ranks. */
void peer_page_put(struct peer_page *p, const struct peer_turn *turn);
/* All ranks: sleeps until the next turn. Returns false at the end. */
bool peer_page_take(struct peer_page *p, struct peer_turn *ret_turn);

/* Barrier of all ranks; spins, or yields if crowded. */
void peer_barrier(struct peer_page *p);
/* Returns the mean of the ranks' values; contains two barriers. */
double peer_mean(struct peer_page *p, double mine);

/* ---- peer_turn.c ----------------------------------------------------------------------------- */

/* Buffers of a rank, each as large as the largest message plus the inputs of a batch and an offset. */
struct peer_rank {
	int rank, n;
	float *in, *out;
	struct peer_page *page;
};

struct peer_result {
	uint64_t calls;   /* measured calls per rank */
	double mean_us;   /* time of a call, mean over batches, ranks */
	double median_us; /* median over batches; mean over ranks */
	double wrong;     /* wrong elements per rank, with verify */
};

extern const char *const peer_collective_names[PEER_COLLECTIVES];

/* Total size of the inputs of a batch, so that rewriting them does not evict them from L2. */
#define PEER_BATCH_BYTES (256 << 10)
#define PEER_MOST_OFFSET 4096

/* Runs one turn. Returns 0 | 1: the library failed. */
int peer_run_turn(const struct peer_rank *me, const struct peer_turn *turn,
		  struct peer_result *ret_result);

#ifdef __cplusplus
}
#endif
#endif
