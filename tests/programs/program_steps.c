/*
 * program_steps.c - the steps of a program
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/programs/program.h"

#define GROUP 6 /* calls at most */
/* Of a call in a group, at most: 5,000 elements of 16 parts, twice */
#define GROUP_BYTES ((size_t)2 << 20)
#define MESSAGES 3

bool program_drain(struct program_rank *r)
{
	for (int s = 1; s < PROGRAM_STREAMS; s++)
		if (!program_ok(r, NULL, tuttiStreamSynchronize(r->streams[s])))
			return false;
	for (size_t i = 0; i < r->nops; i++)
		if (!program_check(r, &r->ops[i]))
			return false;
	r->nops = 0;
	return true;
}

static bool one_call(struct program_rank *r, uint64_t seed)
{
	int comm = (int)(random_of(seed, 20) % PROGRAM_COMMS);
	struct program_call c;
	struct program_op *op;

	if (r->comms[comm].me < 0)
		return true;
	c = program_draw(seed, comm, r->comms[comm].n, false);
	op = program_prepare(r, &c);
	if (!op || !program_make(r, op))
		return false;
	if (c.stream)
		return true;
	r->nops--;
	return program_check(r, op);
}

/* Calls of several communicators in an order of this rank's own, those of one communicator in one order */
static bool make_in_own_order(struct program_rank *r, struct program_op *ops, size_t n)
{
	bool made[GROUP] = { false }, ok = true;

	for (size_t left = n; left > 0 && ok; left--) {
		size_t k = program_own(r, n), first = 0;

		while (made[k])
			k = (k + 1) % n;
		while (made[first] || ops[first].call.comm != ops[k].call.comm)
			first++;
		made[first] = true;
		ok = program_make(r, &ops[first]);
	}
	return ok;
}

static bool group(struct program_rank *r, uint64_t seed)
{
	size_t calls = 1 + random_of(seed, 21) % GROUP, first;
	struct program_op *ops;
	bool ok;

	if (!program_memory_reserve(r, GROUP * GROUP_BYTES) ||
	    (r->nops + GROUP > PROGRAM_PENDING && !program_drain(r)))
		return false;
	first = r->nops;
	ops = &r->ops[first];
	for (size_t i = 0; i < calls; i++) {
		uint64_t one = random_of(seed, 30 + i);
		int comm = (int)(random_of(one, 20) % PROGRAM_COMMS);
		struct program_call c;

		if (r->comms[comm].me < 0)
			continue;
		c = program_draw(one, comm, r->comms[comm].n, true);
		if (!program_prepare(r, &c))
			return false;
	}
	if (!program_ok(r, NULL, tuttiGroupStart()))
		return false;
	ok = make_in_own_order(r, ops, r->nops - first);
	return program_ok(r, NULL, tuttiGroupEnd()) && ok;
}

/* Members of a split: color 0 of three in five, 1, or none. Sets *ret_new for all ranks. */
static int choose_members(const struct program_rank *r, const struct program_comm *from,
			  uint64_t seed, bool reversed, struct program_comm *ret_new)
{
	int mine = TUTTI_SPLIT_NOCOLOR;

	*ret_new = (struct program_comm){ .me = -1 };
	for (int x = 0; x < from->n; x++) {
		int q = reversed ? from->n - 1 - x : x,
		    draw = (int)(random_of(seed, 40 + (uint64_t)q) % 5),
		    color = draw < 3    ? 0
			    : draw == 3 ? 1
					: TUTTI_SPLIT_NOCOLOR;

		if (from->world[q] == r->rank)
			mine = color;
		if (color)
			continue;
		if (from->world[q] == r->rank)
			ret_new->me = ret_new->n;
		ret_new->world[ret_new->n++] = from->world[q];
	}
	ret_new->exists = ret_new->n > 0;
	return mine;
}

/* Destroys a communicator, or splits another in its place. */
static bool split(struct program_rank *r, uint64_t seed)
{
	struct program_comm *from = &r->comms[random_of(seed, 1) % PROGRAM_COMMS],
			    *to = &r->comms[1 + random_of(seed, 2) % (PROGRAM_COMMS - 1)], new;
	bool reversed = random_of(seed, 3) % 2;
	tuttiComm_t comm;
	int color;

	if (to->exists) {
		comm = to->comm;
		*to = (struct program_comm){ .me = -1 };
		return !comm || (program_drain(r) && program_ok(r, NULL, tuttiCommDestroy(comm)));
	}
	if (!from->exists)
		return true;
	color = choose_members(r, from, seed, reversed, &new);
	if (from->me >= 0) {
		if (!program_ok(r, NULL,
				tuttiCommSplit(from->comm, color, reversed ? -from->me : from->me,
					       &comm, NULL)))
			return false;
		if (color == 1)
			return program_ok(r, NULL, tuttiCommDestroy(comm)) && (*to = new, true);
		new.comm = comm;
	}
	*to = new;
	return true;
}

static size_t message_bytes(uint64_t seed, int i)
{
	uint64_t z = random_of(seed, 10 + (uint64_t)i);

	return z / 3 % (z % 3 ? 300 : 70000);
}

static bool receive_message(struct program_rank *r, uint64_t seed, int i, int from)
{
	size_t bytes = message_bytes(seed, i);
	char *m = malloc(bytes + 1);
	tuttiMsg_t msg;
	bool ok = program_ok(r, NULL,
			     tuttiMsgRecv(m, bytes, from, r->step * MESSAGES + i, -1,
					  r->comms[0].comm, &msg));

	if (ok && msg.bytes != bytes)
		ok = program_fails(r, NULL, "a message of another size");
	for (size_t k = 0; k < bytes && ok; k++)
		if (m[k] != from + i)
			ok = program_fails(r, NULL, "a message with other bytes");
	free(m);
	return ok;
}

/* Message i goes to the i-th rank behind; they are received in the opposite order. */
static bool messages(struct program_rank *r, uint64_t seed)
{
	int n = r->n, count = 1 + (int)(random_of(seed, 1) % MESSAGES);
	bool ok = true;

	for (int i = 0; i < count && ok; i++) {
		size_t bytes = message_bytes(seed, i);
		char *m = malloc(bytes + 1);

		memset(m, r->rank + i, bytes);
		ok = program_ok(r, NULL,
				tuttiMsgSend(m, bytes, (r->rank + i) % n, r->step * MESSAGES + i, 0,
					     r->comms[0].comm));
		free(m);
	}
	for (int i = count - 1; i >= 0 && ok; i--)
		ok = receive_message(r, seed, i, (r->rank + MESSAGES * n - i) % n);
	return ok;
}

static bool quorum(struct program_rank *r, uint64_t seed)
{
	struct program_call c = { .seed = seed, .type = tuttiFloat32 };
	size_t n = random_of(seed, 1) % 3000;
	float *x = malloc((n + 1) * sizeof(*x));
	bool ok;

	for (size_t i = 0; i < n; i++)
		program_put(c.type, x, i, program_value(&c, r->rank, i));
	ok = program_ok(r, NULL,
			tuttiAllReduceQuorum(x, x, n, c.type, tuttiSum, r->n, 0, r->comms[0].comm,
					     NULL, NULL));
	for (size_t i = 0; i < n && ok; i++) {
		int sum = 0;

		for (int q = 0; q < r->n; q++)
			sum += program_value(&c, q, i);
		if (x[i] != (float)sum)
			ok = program_fails(r, NULL, "a quorum allreduce has a wrong sum");
	}
	free(x);
	return ok;
}

bool program_step(struct program_rank *r)
{
	uint64_t seed = random_of(r->seed, 5000 + (uint64_t)r->step),
		 what = random_of(seed, 0) % 20;

	if (program_own(r, 25) == 0)
		usleep((useconds_t)program_own(r, 3000));
	if (what < 12)
		return one_call(r, seed);
	if (what < 15)
		return group(r, seed);
	if (what < 17)
		return split(r, seed);
	if (what == 17)
		return messages(r, seed);
	if (what == 18)
		return quorum(r, seed);
	return program_own(r, 2) || program_drain(r);
}
