/*
 * kernels.h - what the host and the kernels (kernels.cu) agree on: a rank's desk, a job, a report
 *
 * Read by nvcc as C++ and by C compilers. A desk is device memory of one rank in which its peers
 * write; a job is the one parameter of every kernel; a report is host memory through which kernels
 * and host tell each other of trouble.
 */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include <stdint.h>

#define TT_DEV_RANKS 8
#define TT_DEV_BLOCKS 128                      /* of one rank, at most */
#define TT_DEV_THREADS 512
#define TT_DEV_PIECES 8
#define TT_DEV_WORDS 128                       /* messages that a plan may have for one rank */
/* one-shot with flags: each block sends so many bytes: */
#define TT_FLAGGED_BLOCKS 16
#define TT_FLAGGED_SLICE 2048
#define TT_FLAGGED_BYTES (TT_FLAGGED_BLOCKS * TT_FLAGGED_SLICE)

/* What a rank tells its peers when it comes to a call: where its buffers are, by what its input is
 * multiplied, and which call it is in (struct tt_call). */
struct tt_dev_record { uint64_t in, out, scale, call[2]; };

struct tt_dev_signals {
	/* jobs that this rank's block has met its peers in; it alone writes it */
	uint32_t epoch[TT_DEV_BLOCKS];
	uint32_t begun, ended;                 /* jobs; its block 0 alone writes them */
	uint32_t troubled;                     /* a thread of this rank tells of trouble, or has */
	/* peers' epochs */
	uint32_t start[TT_DEV_BLOCKS][TT_DEV_RANKS], end[TT_DEV_BLOCKS][TT_DEV_RANKS];
	struct tt_dev_record card[TT_DEV_BLOCKS][TT_DEV_RANKS];
	/* written by streams, 1 and 0: all have come; message w of a plan is there */
	uint32_t arrived[TT_DEV_RANKS], between[TT_DEV_RANKS], left[TT_DEV_RANKS],
		told[TT_DEV_WORDS];
	/* what peers must be able to read and write, tried when they join */
	uint64_t proof[TT_DEV_RANKS];
	/* one-shot: 32 bits of payload under 32 bits of epoch, by turns in the two halves */
	uint64_t line[2][TT_DEV_RANKS][TT_FLAGGED_BLOCKS][TT_FLAGGED_SLICE / 4];
};

/* An area: a desk, then what peers read when streams order the ranks:
 * staged input, and the part of a sum. */
#define TT_DEV_STAGED_AT ((sizeof(struct tt_dev_signals) + 4095) / 4096 * 4096)
#define TT_DEV_STAGED_BYTES ((uint64_t)4 << 20)
#define TT_DEV_RESULT_AT (TT_DEV_STAGED_AT + TT_DEV_STAGED_BYTES)
#define TT_DEV_RESULT_BYTES (TT_DEV_STAGED_BYTES / 2 + 4096)
#define TT_DEV_AREA_BYTES (TT_DEV_RESULT_AT + TT_DEV_RESULT_BYTES)

enum tt_dev_trouble { TT_DEV_FINE, TT_DEV_LATE, TT_DEV_OTHER_CALL };

struct tt_dev_report {
	uint32_t abort;                        /* the host wants all waiting to end */
	uint32_t what;                         /* enum tt_dev_trouble; the first one stays */
	uint32_t rank;                         /* who is missing, or in another call: */
	uint32_t begun, ended;                 /* jobs of which block 0 ... */
	uint32_t unused;
	uint64_t call[2];
};

/* combine the inputs of the ranks in `from`, in rank order,
 * into the outputs of the ranks in `to` */
struct tt_dev_piece {
	uint32_t from, to;                     /* masks */
	uint64_t from_at, to_at, bytes;
};

enum tt_dev_way {
	TT_DEV_ALONE,                          /* meets nobody: addresses stand in the job */
	TT_DEV_MEET,                           /* meets before and after; cards tell addresses */
	TT_DEV_FLAGGED                         /* allreduce of piece[0].bytes: payload with flags */
};
enum { TT_DEV_BEGINS = 1, TT_DEV_ENDS = 2, TT_DEV_POSTS = 4, TT_DEV_CHECKS = 8, TT_DEV_SCALES = 16,
	TT_DEV_DIVIDES = 32 };

struct tt_dev_job {
	uint64_t desk[TT_DEV_RANKS];
	uint64_t in[TT_DEV_RANKS], out[TT_DEV_RANKS];   /* ALONE; else this rank's own at [rank] */
	uint64_t report;
	uint64_t limit_ns;                     /* of waiting for a peer */
	uint64_t scale;                        /* SCALES: double, or the integer's bits */
	uint64_t divisor;                      /* DIVIDES: double, or an integer */
	uint64_t call[2];
	uint32_t rank, nranks, way, flags, op, npieces;
	struct tt_dev_piece piece[TT_DEV_PIECES];
};

#endif
