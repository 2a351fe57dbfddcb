/*
 * bench_collectives.c - table of measured collectives: call, buffer sizes, origin of the result
 *
 * Read by all files of the benchmarks. A new collective needs a row here and its function.
 */
#include <string.h>

#include "perf/bench/bench.h"

/* ---- calls ----------------------------------------------------------------------------------- */

static tuttiResult_t allreduce(const struct bench_call *c)
{
	return tuttiAllReduce(c->send, c->recv, c->count, c->type, c->op, c->comm, c->stream);
}

static tuttiResult_t reduce(const struct bench_call *c)
{
	return tuttiReduce(c->send, c->recv, c->count, c->type, c->op, c->root, c->comm, c->stream);
}

static tuttiResult_t broadcast(const struct bench_call *c)
{
	return tuttiBroadcast(c->send, c->recv, c->count, c->type, c->root, c->comm, c->stream);
}

static tuttiResult_t allgather(const struct bench_call *c)
{
	return tuttiAllGather(c->send, c->recv, c->count, c->type, c->comm, c->stream);
}

static tuttiResult_t reduce_scatter(const struct bench_call *c)
{
	return tuttiReduceScatter(c->send, c->recv, c->count, c->type, c->op, c->comm, c->stream);
}

static tuttiResult_t alltoall(const struct bench_call *c)
{
	return tuttiAlltoAll(c->send, c->recv, c->count, c->type, c->comm, c->stream);
}

static tuttiResult_t gather(const struct bench_call *c)
{
	return tuttiGather(c->send, c->recv, c->count, c->type, c->root, c->comm, c->stream);
}

static tuttiResult_t scatter(const struct bench_call *c)
{
	return tuttiScatter(c->send, c->recv, c->count, c->type, c->root, c->comm, c->stream);
}

/* Ring: sends to the next rank, receives from the previous rank. */
static tuttiResult_t sendrecv(const struct bench_call *c)
{
	tuttiResult_t rc = tuttiGroupStart(), end;

	if (rc)
		return rc;
	rc = tuttiSend(c->send, c->count, c->type, (c->rank + 1) % c->nranks, c->comm, c->stream);
	if (!rc)
		rc = tuttiRecv(c->recv, c->count, c->type, (c->rank + c->nranks - 1) % c->nranks,
			       c->comm, c->stream);
	end = tuttiGroupEnd();
	return rc ? rc : end;
}

/* ---- origin of the result -------------------------------------------------------------------- */

static void from_root(const struct bench_call *c, int part, int *ret_rank, int *ret_part)
{
	*ret_rank = c->root;
	*ret_part = part;
}

static void from_root_my_part(const struct bench_call *c, int part, int *ret_rank, int *ret_part)
{
	(void)part;
	*ret_rank = c->root;
	*ret_part = c->rank;
}

static void from_each(const struct bench_call *c, int part, int *ret_rank, int *ret_part)
{
	(void)c;
	*ret_rank = part;
	*ret_part = 0;
}

static void from_each_my_part(const struct bench_call *c, int part, int *ret_rank, int *ret_part)
{
	*ret_rank = part;
	*ret_part = c->rank;
}

static void from_previous(const struct bench_call *c, int part, int *ret_rank, int *ret_part)
{
	*ret_rank = (c->rank + c->nranks - 1) % c->nranks;
	*ret_part = part;
}

/* ---- bus factor: share of algbw that the busiest link carries (busbw = factor * algbw) ------- */

static double whole(int n)
{
	(void)n;
	return 1;
}

static double all_but_own(int n)
{
	return (n - 1.0) / n;
}

static double twice_all_but_own(int n)
{
	return 2 * (n - 1.0) / n;
}

/* ---- memory factor: least traffic of a memory shared by all ranks, in multiples of the size -- */

static double all_in_all_out(int n, bool in_place)
{
	(void)in_place;
	return 2 * n;
}

static double all_and_one(int n, bool in_place)
{
	(void)in_place;
	return n + 1;
}

/* In place, one rank already holds its copy. */
static double one_to_all(int n, bool in_place)
{
	return in_place ? n : n + 1;
}

static double parts_once(int n, bool in_place)
{
	return in_place ? 2 * (n - 1.0) / n : 2;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct bench_collective bench_collectives[TT_COLLECTIVES] = {
	[TT_ALLREDUCE] = { TT_ALLREDUCE, .combines = true, .in_place = true,
			   .bus_factor = twice_all_but_own, .memory_factor = all_in_all_out,
			   .call = allreduce,
			   .help = "Measures and checks allreduce: every rank gets the reduction of all." },
	[TT_REDUCE] = { TT_REDUCE, .combines = true, .rooted = true, .to_root = true,
			.in_place = true, .bus_factor = whole, .memory_factor = all_and_one,
			.call = reduce,
			.help = "Measures and checks reduce: the root gets the reduction." },
	[TT_BROADCAST] = { TT_BROADCAST, .rooted = true, .in_place = true, .bus_factor = whole,
			   .memory_factor = one_to_all, .call = broadcast, .origin = from_root,
			   .help = "Measures and checks broadcast: every rank gets the root's buffer." },
	[TT_ALLGATHER] = { TT_ALLGATHER, .recv_all = true, .in_place = true,
			   .bus_factor = all_but_own, .memory_factor = one_to_all,
			   .call = allgather, .origin = from_each,
			   .help = "Measures and checks allgather: every rank gets all buffers. Sizes count the result." },
	[TT_REDUCE_SCATTER] = { TT_REDUCE_SCATTER, .combines = true, .send_all = true,
				.in_place = true, .bus_factor = all_but_own,
				.memory_factor = all_and_one, .call = reduce_scatter,
				.help = "Measures and checks reduce-scatter: each rank gets its part of the reduction. Sizes count the input." },
	[TT_ALLTOALL] = { TT_ALLTOALL, .send_all = true, .recv_all = true,
			  .bus_factor = all_but_own, .memory_factor = all_in_all_out,
			  .call = alltoall, .origin = from_each_my_part,
			  .help = "Measures and checks alltoall: part p goes to rank p. Sizes count all parts. Alltoall has no in-place form." },
	[TT_GATHER] = { TT_GATHER, .rooted = true, .to_root = true, .recv_all = true,
			.in_place = true, .bus_factor = all_but_own, .memory_factor = parts_once,
			.call = gather, .origin = from_each,
			.help = "Measures and checks gather: the root gets all buffers. Sizes count the result." },
	[TT_SCATTER] = { TT_SCATTER, .rooted = true, .send_all = true, .in_place = true,
			 .bus_factor = all_but_own, .memory_factor = parts_once, .call = scatter,
			 .origin = from_root_my_part,
			 .help = "Measures and checks scatter: part r of the root's buffer goes to rank r. Sizes count all parts." },
	[TT_SENDRECV] = { TT_SENDRECV, .bus_factor = whole, .memory_factor = all_in_all_out,
			  .call = sendrecv, .origin = from_previous,
			  .help = "Measures and checks send and receive around a ring of ranks. Sendrecv has no in-place form." },
};

/* Compares without underscores, so that links with the names of nccl-tests work. */
static bool names_equal(const char *tool, const char *name)
{
	for (;; tool++, name++) {
		tool += strspn(tool, "_");
		name += strspn(name, "_");
		if (*name == '\0')
			return !strcmp(tool, "perf");
		if (*tool != *name)
			return false;
	}
}

const struct bench_collective *bench_of_tool(const char *tool)
{
	for (int i = 0; i < TT_COLLECTIVES; i++)
		if (names_equal(tool, tt_collective_name((enum tt_collective)i)))
			return &bench_collectives[i];
	return NULL;
}
