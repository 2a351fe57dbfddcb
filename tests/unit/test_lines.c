/*
 * test_lines.c - short messages in the lines of a ring: a message of which lines are missing is not taken, and written
 * lines leave the writer's cache only where no ranks share a core
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

#include "mem/peer_lines.h"
#include "tests/support/harness_traffic.h"
#include "transports/shm/shm_ring.h"

enum { STAMP = 7, BYTES = 300, LINES = 6 };

static void fill(uint8_t *to, size_t bytes, int salt)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)(i * 7 + i / 56 + (size_t)salt);
}

/* The flag of line `missing` of a message is not there yet when rank 1 looks. */
static int missing_line_body(const struct tt_world *world, void *arg)
{
	int missing = *(const int *)arg;
	uint8_t data[BYTES], expected[BYTES];
	struct tt_shm_link *l;
	_Atomic uint64_t *flag;
	struct rig rig;
	uint64_t written;

	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	l = (struct tt_shm_link *)rig.links[!world->rank];
	fill(expected, BYTES, missing);
	flag = &tt_shm_line_at(world->rank ? l->rx : l->tx, (uint64_t)missing)->flag;
	if (world->rank == 0) {
		EXPECT(tt_shm_put(&l->base, expected, BYTES, STAMP) == 1);
		written = atomic_exchange(flag, 0);
		harness_barrier(world, 0);
		harness_barrier(world, 1);
		atomic_store(flag, written);
		harness_barrier(world, 2);
	} else {
		harness_barrier(world, 0);
		EXPECT(tt_shm_get(&l->base, data, BYTES, STAMP, true) == 0);
		harness_barrier(world, 1);
		harness_barrier(world, 2);
		EXPECT(tt_shm_get(&l->base, data, BYTES, STAMP, true) == 1);
		EXPECT(!memcmp(data, expected, BYTES));
	}
	harness_barrier(world, 3);
	rig_close(&rig);
	return 0;
}

Test(lines, a_message_is_taken_when_all_its_lines_are_there, .timeout = 60)
{
	for (int missing = 0; missing < LINES; missing++) {
		struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = 4096 };

		cr_expect(harness_run(&h, missing_line_body, &missing) == 0, "line %d", missing);
	}
}

/* Rank 1 answers messages of all lengths around those of lines and of cells. */
static int demote_body(const struct tt_world *world, void *arg)
{
	static const size_t lengths[] = { 1, 56, 57, 112, 113, 336, 337, 1024, 1025, 4096 };
	enum { MOST = 4096 };
	const bool *crowded = arg;
	struct tt_world mine = *world;
	uint8_t data[MOST], expected[MOST];
	struct tt_link *l;
	struct rig rig;

	mine.crowded = *crowded;
	EXPECT(rig_open(&rig, &tt_shm, &mine, 1) == 0);
	EXPECT(((struct tt_shm_ep *)rig.ep)->segment.demotes == (tt_has_demote && !*crowded));
	l = rig.links[!world->rank];
	EXPECT(((struct tt_shm_link *)l)->demotes == (tt_has_demote && !*crowded));
	for (int i = 0; i < 40; i++) {
		size_t bytes = lengths[(size_t)i % (sizeof(lengths) / sizeof(lengths[0]))];

		fill(expected, bytes, i);
		EXPECT(world->rank || tt_shm_put(l, expected, bytes, STAMP) == 1);
		while (tt_shm_get(l, data, bytes, STAMP, true) == 0)
			sched_yield();
		EXPECT(!memcmp(data, expected, bytes));
		EXPECT(!world->rank || tt_shm_put(l, data, bytes, STAMP) == 1);
	}
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

/* Processors without the instruction take it for one that does nothing. */
Test(lines, leave_the_cache_of_their_writer_where_no_ranks_share_a_core, .timeout = 60)
{
	for (int i = 0; i < 4; i++) {
		struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = 65536 };
		bool crowded = i & 1;

		tt_has_demote = i & 2;
		cr_expect(harness_run(&h, demote_body, &crowded) == 0, "crowded: %d, demote: %d",
			  crowded, tt_has_demote);
	}
}
