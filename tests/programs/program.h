/*
 * program.h - a random program of right calls, on one rank
 *
 * A program is a list of steps: calls of all collectives on several communicators, with and without
 * streams; groups; splits; messages; quorum allreduces; memory of all kinds, freed and allocated
 * again. What a step does is drawn from the program's seed, so all ranks know it (program_draw.c);
 * where its buffers lie and when a rank is late is drawn from the rank's own numbers. All inputs
 * are small whole numbers, so every type has one right result.
 */
#ifndef TESTS_PROGRAM_H
#define TESTS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/ranks.h"

#define PROGRAM_RANKS 16
#define PROGRAM_COMMS 5
#define PROGRAM_ARENAS 5
#define PROGRAM_STREAMS 3 /* the first one is NULL */
#define PROGRAM_PENDING 64
#define PROGRAM_GUARD 64 /* bytes around a receive buffer that no call may write */
#define PROGRAM_UNWRITTEN 0x5a

enum program_kind {
	P_ALLREDUCE,
	P_REDUCE,
	P_BROADCAST,
	P_ALLGATHER,
	P_REDUCE_SCATTER,
	P_ALLTOALL,
	P_GATHER,
	P_SCATTER,
	P_ALLGATHERV,
	P_REDUCE_SCATTERV,
	P_ALLTOALLV,
	P_GATHERV,
	P_SCATTERV,
	P_SENDRECV, /* to one rank, from another, in a group */
	P_BARRIER,
	P_KINDS
};
extern const char *const program_kinds[P_KINDS];

/* exists: on its members; me: this rank's number in it, -1: no member; world[i]: rank i's number */
struct program_comm {
	tuttiComm_t comm;
	bool exists;
	int n, me, world[PROGRAM_RANKS];
};

/* A call, the same on all ranks. seed: of its inputs and tables */
struct program_call {
	enum program_kind kind;
	int comm, root, stream;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	size_t count, shift; /* shift: bytes by which the buffers are misaligned */
	bool in_place, gaps; /* gaps: between the parts of uneven collectives */
	bool scaled, user;   /* a pre-multiplied sum by 2; a function of the user */
	uint64_t seed;
};

/* A call of this rank: buffers, and the tables of uneven collectives (of what it receives or, on the
 * root of scatterv and in reduce-scatterv, sends; sent and sent_at: of alltoallv) */
struct program_op {
	struct program_call call;
	int n, me;
	size_t in_bytes, out_bytes;
	char *in, *out;
	size_t counts[PROGRAM_RANKS], at[PROGRAM_RANKS];
	size_t sent[PROGRAM_RANKS], sent_at[PROGRAM_RANKS];
};

struct program_arena {
	int kind;
	char *memory;
	size_t size, used;
	void *handle; /* of tuttiCommRegister, or NULL */
};

struct program_rank {
	int rank, n, step;
	uint64_t seed, own; /* of the program; state of this rank's own numbers */
	struct program_comm comms[PROGRAM_COMMS];
	struct program_arena arenas[PROGRAM_ARENAS];
	tuttiStream_t streams[PROGRAM_STREAMS];
	struct program_op ops[PROGRAM_PENDING]; /* given to streams, not checked yet */
	size_t nops;
};

/* Report what went wrong in the current step. op: or NULL. Returns false. */
bool program_fails(const struct program_rank *r, const struct program_op *op, const char *what);
/* The same with the library's text, if rc is an error. Returns !rc. */
bool program_ok(const struct program_rank *r, const struct program_op *op, tuttiResult_t rc);

/* program_draw.c: below: 0..limit-1 from the rank's own numbers */
uint64_t program_own(struct program_rank *r, uint64_t limit);
struct program_call program_draw(uint64_t seed, int comm, int n, bool in_group);
/* The elements that `from` has for `to` in a call of an uneven collective */
size_t program_part(const struct program_call *call, int from, int to);

/* program_memory.c: open and close all arenas. take: memory with room for guards, for each of n
 * sizes at once; if the arenas are full, waits for the streams, and closes and opens some of them. */
bool program_memory_open(struct program_rank *r);
bool program_memory_close(struct program_rank *r);
bool program_memory_take(struct program_rank *r, size_t bytes, size_t shift, char **ret_memory);
/* Makes room for `bytes` in one arena now, so that the next calls of take do not wait for streams. */
bool program_memory_reserve(struct program_rank *r, size_t bytes);

/* program_call.c: lay out the buffers of a call and fill its inputs; NULL: failed. make: the call */
struct program_op *program_prepare(struct program_rank *r, const struct program_call *call);
bool program_make(struct program_rank *r, struct program_op *op);
/* The ranks to which and from which a P_SENDRECV goes */
int program_next(const struct program_op *op);
int program_previous(const struct program_op *op);

/* program_expect.c: the input of a rank; store a value; check a complete call */
int program_value(const struct program_call *call, int rank, size_t i);
void program_put(tuttiDataType_t type, void *buf, size_t i, int value);
void program_fill(const struct program_op *op, char *in);
bool program_check(const struct program_rank *r, const struct program_op *op);

/* program_steps.c: run step r->step; wait for the streams and check their calls */
bool program_step(struct program_rank *r);
bool program_drain(struct program_rank *r);

#endif
