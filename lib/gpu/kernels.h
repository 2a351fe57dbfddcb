/*
 * kernels.h - the contract between the host and the kernels (kernels.cu): signal words, host words,
 * jobs
 *
 * Read by nvcc as C++ and by C compilers. The signal words are device memory of one rank, which its
 * peers write and its kernels wait for; a job is the only parameter of every kernel. The host words are
 * pinned host memory of one rank: a report, by which kernels report failures to the host and the host
 * ends the waits of kernels, and the words that streams, or kernels in place of them, wait for.
 */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define TT_DEV_RANKS 8
#define TT_DEV_BLOCKS 128  /* of one rank, at most */
#define TT_DEV_THREADS 512 /* of a block, at most */
#define TT_BARRIER_THREADS \
	256 /* of a block that waits in barriers: a multiprocessor has room for two */
#define TT_DEV_PIECES 8
#define TT_DEV_MESSAGES 128 /* that a plan may have for one rank */
/* the LL protocol (one-shot, payload with flags): blocks, and bytes that a block sends */
#define TT_LL_BLOCKS 16
#define TT_LL_SLICE 2048
#define TT_LL_BYTES (TT_LL_BLOCKS * TT_LL_SLICE)
/* the FIFO protocol (pipelined chunks with counters of rounds): blocks of one rank at most, rounds
 * between the staging and the use of a chunk, slots of a block's FIFO, bytes of a slot */
#define TT_FIFO_BLOCKS 64
#define TT_FIFO_LAG 2
#define TT_FIFO_SLOTS (2 * TT_FIFO_LAG)
#define TT_FIFO_SLOT_BYTES ((uint64_t)64 << 10)

/* The record that a rank writes to each peer at the start of a call: its buffers, the factor of its
 * input, and the signature of the call (struct tt_call). */
struct tt_dev_record {
	uint64_t in, out, scale, call[2];
};

/* The signal words of one rank, at the start of its IPC buffer. */
struct tt_dev_signals {
	/* barriers that each block has passed with its peers; written by this rank only */
	uint32_t epoch[TT_DEV_BLOCKS];
	uint32_t begun, ended; /* calls; written by this rank's block 0 only */
	uint32_t troubled;     /* a thread of this rank has reported a failure */
	uint32_t blocks_done;  /* of the running kernel, if it signals; written by this rank only */
	/* peers' epochs, written by the peers */
	uint32_t start[TT_DEV_BLOCKS][TT_DEV_RANKS], end[TT_DEV_BLOCKS][TT_DEV_RANKS];
	struct tt_dev_record record[TT_DEV_BLOCKS][TT_DEV_RANKS];
	/* values that peers read and write when ranks join, to test the mapping */
	uint64_t probe[TT_DEV_RANKS];
	/* LL words: 32 bits of payload under 32 bits of epoch; epochs alternate between the two
	 * halves. signature: of the peers' calls, from their block 0, also where the peer's call
	 * does not run by LL */
	uint64_t signature[2][TT_DEV_RANKS][4];
	uint64_t line[2][TT_DEV_RANKS][TT_LL_BLOCKS][TT_LL_SLICE / 4];
	/* FIFO: rounds that each block has completed, written by this rank only; the same of the
	 * peers, written by the peers; the factors of the peers' inputs, by the call's epoch */
	uint32_t rounds[TT_FIFO_BLOCKS];
	uint32_t completed[TT_FIFO_BLOCKS][TT_DEV_RANKS];
	uint64_t scale[2][TT_FIFO_BLOCKS][TT_DEV_RANKS];
};

/* An IPC buffer: the signal words, then memory that peers read. When streams order the ranks: staged
 * input, and a rank's part of a sum. When kernels wait for each other: the FIFO of each block, into
 * which peers write their inputs, and from TT_FIFO_RESULT_AT on results. */
#define TT_DEV_STAGED_AT ((sizeof(struct tt_dev_signals) + 4095) / 4096 * 4096)
#define TT_DEV_STAGED_BYTES ((uint64_t)4 << 20)
#define TT_DEV_RESULT_AT (TT_DEV_STAGED_AT + TT_DEV_STAGED_BYTES)
#define TT_DEV_RESULT_BYTES (TT_DEV_STAGED_BYTES / 2 + 4096)
#define TT_FIFO_RESULT_AT (TT_DEV_STAGED_AT + TT_FIFO_BLOCKS * TT_FIFO_SLOTS * TT_FIFO_SLOT_BYTES)
#define TT_DEV_IPC_BYTES (TT_FIFO_RESULT_AT + TT_FIFO_BLOCKS * TT_FIFO_SLOTS * TT_FIFO_SLOT_BYTES)

enum tt_dev_trouble { TT_DEV_FINE, TT_DEV_LATE, TT_DEV_OTHER_CALL };

struct tt_dev_report {
	uint32_t abort;        /* all waits of kernels must end */
	uint32_t what;         /* enum tt_dev_trouble; the first failure stays */
	uint32_t rank;         /* the missing rank, or the rank in another call */
	uint32_t begun, ended; /* calls that block 0 has begun and ended */
	uint32_t unused;
	uint64_t call[2]; /* signature of the other call */
};

/* A word of 64 bits that a stream, or a kernel alone on it, waits for. `set`: to 1 by a peer's kernel, back to 0
 * after the wait. `ended`: to 1 by this rank's host, for good; then no stream waits. */
struct tt_dev_stream_word {
	uint32_t set, ended;
};
/* Numbers of these words: stream barriers before, within and after a chunk, a word for each peer; arrival of
 * message w of a plan */
enum {
	TT_DEV_ARRIVED = 0,
	TT_DEV_BETWEEN = TT_DEV_ARRIVED + TT_DEV_RANKS,
	TT_DEV_FINISHED = TT_DEV_BETWEEN + TT_DEV_RANKS,
	TT_DEV_MESSAGE = TT_DEV_FINISHED + TT_DEV_RANKS,
	TT_DEV_STREAM_WORDS = TT_DEV_MESSAGE + TT_DEV_MESSAGES
};

/* The host words of one rank, which all ranks of its communicator map. */
struct tt_dev_host_words {
	struct tt_dev_report report;
	uint64_t unused[3]; /* the words begin on a cache line */
	struct tt_dev_stream_word stream[TT_DEV_STREAM_WORDS];
};
#define TT_DEV_HOST_BYTES 4096

/* combine the inputs of the ranks in `from`, in rank order, into the outputs of the ranks in
 * `to` */
struct tt_dev_piece {
	uint32_t from, to;              /* masks of ranks */
	uint64_t from_at, to_at, bytes; /* offsets in every input and output */
};

/* A stream's word of this rank, by number, and the rank that sets it */
struct tt_dev_awaited {
	uint32_t word, rank;
};

enum tt_dev_way {
	TT_DEV_ALONE,   /* no barrier; the job has all addresses */
	TT_DEV_BARRIER, /* barriers; peers' records have addresses */
	TT_DEV_LL,      /* allreduce of piece[0].bytes by the LL protocol */
	TT_DEV_FIFO     /* any collective, by the FIFO protocol (struct tt_dev_fifo) */
};

/*
 * A collective by the FIFO protocol. Blocks cut `bytes` into chunks and share them round by round. In a
 * round a block stages one chunk of its rank's input in the receivers' IPC buffers, combines an earlier
 * chunk that the senders staged here, and collects what was combined still earlier. In two steps a
 * receiver gets a part of the chunk, combines it and sends the result to the ranks in `results`. Masks
 * of ranks:
 */
struct tt_dev_fifo {
	uint64_t
		bytes; /* of the call's count: one part of a buffer that has a part for each rank */
	uint64_t chunk;     /* bytes of each part that a block moves in a round */
	uint64_t unit;      /* in two steps: bytes of a whole chunk that a rank combines */
	uint32_t receivers; /* of this rank's input, 0: it has none */
	uint32_t combines;  /* senders whose chunks this rank combines, 0: it combines none */
	uint32_t results;   /* in two steps: ranks that get what this rank combined */
	uint32_t collects;  /* ranks of whose results, or chunks, this rank copies to its output */
	uint32_t steps;     /* 1 or 2 */
	uint32_t parts;     /* 1: the input has a part for each receiver */
	uint32_t gathers;   /* 1: the output has a part for each sender */
};

/* flags of a job. BEGINS, ENDS: count the call in the report; POSTS: write this rank's record to
 * the peers; CHECKS: compare the peers' records; SCALES: multiply inputs; DIVIDES: divide the
 * result */
enum {
	TT_DEV_BEGINS = 1,
	TT_DEV_ENDS = 2,
	TT_DEV_POSTS = 4,
	TT_DEV_CHECKS = 8,
	TT_DEV_SCALES = 16,
	TT_DEV_DIVIDES = 32
};

struct tt_dev_job {
	uint64_t signals[TT_DEV_RANKS];               /* of every rank, as mapped by this rank */
	uint64_t host_words[TT_DEV_RANKS];            /* likewise */
	uint64_t in[TT_DEV_RANKS], out[TT_DEV_RANKS]; /* ALONE: of all ranks; else [rank] only */
	uint64_t report;
	uint64_t limit_ns; /* of a wait for a peer */
	uint64_t scale;    /* SCALES: double, or the integer's bits */
	uint64_t divisor;  /* DIVIDES: double, or an integer */
	uint64_t call[2];  /* signature of the call */
	uint32_t rank, nranks, way, flags, op, npieces;
	struct tt_dev_piece piece[TT_DEV_PIECES];
	struct tt_dev_fifo fifo; /* FIFO only */
	/* ALONE: mask of ranks of which a stream's word is set when the job is done; its number */
	uint32_t signal_to, signal_word;
	/* ALONE, of one block: words that the job waits for and resets */
	uint32_t nawaited;
	struct tt_dev_awaited awaited[TT_DEV_RANKS];
};

#endif
