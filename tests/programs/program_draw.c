/*
 * program_draw.c - what a call does, from a seed
 */
#include "tests/programs/program.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

const char *const program_kinds[P_KINDS] = { "allreduce",       "reduce",           "broadcast",
					     "allgather",       "reduce-scatter",   "alltoall",
					     "gather",          "scatter",          "allgatherv",
					     "reduce-scatterv", "alltoallv",        "gatherv",
					     "scatterv",        "send and receive", "barrier" };

uint64_t program_own(struct program_rank *r, uint64_t limit)
{
	r->own = random_of(r->own, 77);
	return r->own % limit;
}

static size_t draw_count(uint64_t seed, enum program_kind kind)
{
	static const size_t counts[] = { 0,    1,    2,    3,    4,    7,    8,     15,    16,
					 17,   31,   33,   63,   64,   65,   100,   127,   128,
					 129,  255,  256,  257,  511,  513,  1000,  1023,  1024,
					 1025, 2048, 4095, 4096, 4097, 8192, 10000, 16384, 16385 };
	uint64_t size = random_of(seed, 4), any = random_of(seed, 5);
	size_t count = size % 5 ? counts[any % ELEMENTS(counts)] : any % 60000;
	bool one_part = kind == P_ALLREDUCE || kind == P_BROADCAST || kind == P_REDUCE ||
			kind == P_SENDRECV;

	if (size % 40 == 1)
		count = any % 480000;
	return one_part ? count : count / 3;
}

/* Functions of the user and scaled sums, which groups do not take */
static void draw_own_op(uint64_t seed, struct program_call *c)
{
	if (seed % 10 == 0 && c->kind != P_REDUCE_SCATTERV) {
		c->user = true;
		c->type = tuttiInt32;
		c->count &= ~(size_t)1; /* pairs */
		c->shift = 0;
	} else if (seed % 10 == 1 && (c->type == tuttiInt32 || c->type == tuttiFloat32)) {
		c->scaled = true;
		c->op = tuttiSum;
	}
}

struct program_call program_draw(uint64_t seed, int comm, int n, bool in_group)
{
	static const tuttiDataType_t types[] = { tuttiInt32,   tuttiFloat32, tuttiUint8,
						 tuttiFloat64, tuttiInt64,   tuttiInt8,
						 tuttiUint32,  tuttiFloat16, tuttiBfloat16 };
	static const tuttiRedOp_t ops[] = { tuttiSum,  tuttiSum, tuttiMax, tuttiMin,
					    tuttiBand, tuttiBor, tuttiBxor };
	struct program_call c = { .seed = seed, .comm = comm };
	bool reduces;

	c.kind = (enum program_kind)(random_of(seed, 1) % (P_KINDS + 4));
	if (c.kind >= P_KINDS)
		c.kind = P_ALLREDUCE;
	c.type = types[random_of(seed, 2) % (random_of(seed, 12) % 3 ? 3 : ELEMENTS(types))];
	c.op = ops[random_of(seed, 3) % (c.type < tuttiFloat16 ? ELEMENTS(ops) : 4)];
	c.count = draw_count(seed, c.kind);
	c.root = (int)(random_of(seed, 6) % (unsigned)n);
	c.in_place = random_of(seed, 7) % 3 == 0 && c.kind != P_SENDRECV && c.kind != P_ALLTOALLV;
	c.stream = random_of(seed, 8) % 3
			   ? 0
			   : 1 + (int)(random_of(seed, 8) / 3 % (PROGRAM_STREAMS - 1));
	c.shift = random_of(seed, 9) % 3 ? 0 : random_of(seed, 10) % PROGRAM_GUARD;
	c.gaps = random_of(seed, 11) % 2;
	reduces = c.kind == P_ALLREDUCE || c.kind == P_REDUCE || c.kind == P_REDUCE_SCATTER ||
		  c.kind == P_REDUCE_SCATTERV;
	if (in_group && c.count > 5000)
		c.count = 5000;
	if (!in_group && reduces)
		draw_own_op(random_of(seed, 13), &c);
	return c;
}

size_t program_part(const struct program_call *c, int from, int to)
{
	uint64_t z = random_of(c->seed ^ 0x55, (uint64_t)from * PROGRAM_RANKS + (uint64_t)to);

	return z % 4 ? (z >> 8) % (c->count + 1) : 0;
}
