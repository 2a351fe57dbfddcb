/*
 * nccl_client.c - a program written against nccl.h that uses libnccl.so.2: runs cases and prints
 * TAP
 *
 * Usage: nccl_client [case ...]. Run by tests/scripts/check_nccl.sh, which compiles the client with
 * our header and with NVIDIA's.
 */
#include <stdlib.h>

#include "tests/nccl/nccl_client.h"

static const struct test {
	const char *name;
	int (*body)(struct client_rank *client, const ncclUniqueId *id);
	struct client_ranks how;
	unsigned may_die;
	const char *claim;
} tests[] = {
	{ "collectives",
	  case_collectives,
	  { .n = 2 },
	  0,
	  "every collective with every type and operation, 2 processes" },
	{ "collectives",
	  case_collectives,
	  { .n = 4, .threads = true },
	  0,
	  "collectives of 4 threads" },
	{ "groups",
	  case_groups,
	  { .n = 4 },
	  0,
	  "sends, receives and collectives in groups, 4 processes" },
	{ "groups", case_groups, { .n = 3, .threads = true }, 0, "groups of 3 threads" },
	{ "split",
	  case_split,
	  { .n = 5 },
	  0,
	  "a communicator is split by color and key, 5 processes" },
	{ "split", case_split, { .n = 4, .threads = true }, 0, "a split of 4 threads" },
	{ "scaled", case_scaled, { .n = 3 }, 0, "a pre-multiplied sum, registered memory" },
	{ "streams",
	  case_streams,
	  { .n = 3, .cuda = true },
	  0,
	  "the default stream, and a graph, of 3 processes" },
	{ "one-thread",
	  case_one_thread,
	  { .n = 1, .joins_itself = true },
	  0,
	  "one thread joins as several ranks" },
	{ "nonblocking",
	  case_nonblocking,
	  { .n = 3, .joins_itself = true },
	  0,
	  "a nonblocking communicator is ready when a watchdog sees it, 3 processes" },
	{ "nonblocking",
	  case_nonblocking,
	  { .n = 3, .joins_itself = true, .threads = true },
	  0,
	  "nonblocking communicators of 3 threads" },
	{ "nonblocking-groups",
	  case_nonblocking_groups,
	  { .n = 3, .joins_itself = true },
	  0,
	  "nonblocking joins, splits and calls in groups; one that is aborted while it joins" },
	{ "process-groups",
	  case_process_groups,
	  { .n = 4, .joins_itself = true },
	  0,
	  "PyTorch's order of calls, with a watchdog, 4 processes" },
	{ "several",
	  case_several,
	  { .n = 3 },
	  0,
	  "several communicators in one group, a stream each" },
	{ "several",
	  case_several,
	  { .n = 3, .threads = true },
	  0,
	  "several communicators of 3 threads" },
	{ "roots",
	  case_roots,
	  { .n = 3 },
	  0,
	  "only roots have what only roots need; calls that move nothing" },
	{ "orders",
	  case_orders,
	  { .n = 3 },
	  0,
	  "24 communicators at once, with work on the way, destroyed in another order on each rank" },
	{ "orders", case_orders, { .n = 3, .threads = true }, 0, "the same with 3 threads" },
	{ "in-place", case_in_place, { .n = 3 }, 0, "every collective in place" },
	{ "operations",
	  case_operations,
	  { .n = 3 },
	  0,
	  "a pre-multiplied sum that is destroyed before its group ends; scalars in stream order" },
	{ "messages",
	  case_messages,
	  { .n = 3 },
	  0,
	  "several messages between two ranks, on two streams, beside collectives" },
	{ "many-ranks",
	  case_many_ranks,
	  { .n = 1, .joins_itself = true },
	  0,
	  "one thread with four ranks: splits, messages, nonblocking, destroyed one by one" },
	{ "devices",
	  case_devices,
	  { .n = 1, .joins_itself = true, .fake = true },
	  0,
	  "one thread with a rank on each of three devices" },
	{ "again",
	  case_again,
	  { .n = 3 },
	  0,
	  "after an abort in the middle of a collective all join anew" },
	{ "again", case_again, { .n = 3, .threads = true }, 0, "the same with 3 threads" },
	{ "frameworks",
	  case_frameworks,
	  { .n = 3 },
	  0,
	  "calls of a thread that joined nothing; ids of other ranks; children that outlive parents" },
	{ "frameworks",
	  case_frameworks,
	  { .n = 3, .threads = true },
	  0,
	  "the same with 3 threads" },
	{ "captured-groups",
	  case_captured_groups,
	  { .n = 3, .cuda = true },
	  0,
	  "a graph of a group of calls, on a communicator that has done nothing before" },
	{ "leaves", case_leaves, { .n = 3 }, 0, "processes that end without destroying anything" },
	{ "exits",
	  case_exits,
	  { .n = 1, .joins_itself = true, .host = true },
	  0,
	  "processes that exit while their threads join" },
	{ "mismatches",
	  case_mismatches,
	  { .n = 3 },
	  0,
	  "calls that do not match are an error of every rank" },
	{ "forks",
	  case_forks,
	  { .n = 2, .host = true },
	  0,
	  "a forked child is refused, and disturbs nobody" },
	{ "abort",
	  case_abort,
	  { .n = 3 },
	  0,
	  "an abort unblocks this rank and the others, 3 processes" },
	{ "abort", case_abort, { .n = 3, .threads = true }, 0, "an abort among 3 threads" },
	{ "abort-join",
	  case_abort_join,
	  { .n = 1, .joins_itself = true },
	  0,
	  "an abort ends a join that nobody answers" },
	{ "killed",
	  case_killed,
	  { .n = 3 },
	  1u << 2,
	  "a killed rank is an asynchronous error of the others" },
	{ "refused",
	  case_refused,
	  { .n = 3, .fake = true },
	  0,
	  "what CUDA refuses one rank, all ranks learn" },
	{ "configs",
	  case_configs,
	  { .n = 1, .joins_itself = true },
	  0,
	  "a config of every size since 2.14 is understood" },
	{ "wrong-uses",
	  case_wrong_uses,
	  { .n = 1 },
	  0,
	  "wrong uses, and what is not built, are refused in words" },
};
#define NTESTS (sizeof(tests) / sizeof(tests[0]))

int main(int argc, char **argv)
{
	int n = 0, bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < NTESTS; i++) {
		struct client_ranks how = tests[i].how;
		bool chosen = argc < 2, cuda = getenv("NCCL_CLIENT_CUDA");
		int failed;

		for (int a = 1; a < argc; a++)
			chosen |= !strcmp(argv[a], tests[i].name);
		if (!chosen || ((how.cuda || how.fake) && !cuda) || (how.host && cuda))
			continue;
		ranks_may_die = tests[i].may_die;
		failed = ranks_run(&how, tests[i].body);
		bad += failed != 0;
		printf("%s %d - %s\n", failed ? "not ok" : "ok", ++n, tests[i].claim);
	}
	printf("1..%d\n", n);
	return bad != 0;
}
