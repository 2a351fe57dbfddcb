/*
 * test_transports.c - the conformance suite: the contracts of transport.h, for every row of
 * tt_transports
 *
 * Ranks are forked processes and, in a second pass, threads of one process. self runs with one
 * rank, the other transports with two or more. Contracts of a single transport are tested at the
 * end, and in test_segment.c.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/descriptors.h"
#include "tests/support/harness_traffic.h"
#include "tests/support/malloc_count.h"

#define LARGE (256u << 10)

/* ---- messages -------------------------------------------------------------------------------- */

Test(transports, the_table_is_in_order_of_preference_and_complete, .timeout = 30)
{
	cr_assert(tt_transports[0] == &tt_self && tt_transports[1] == &tt_shm &&
		  tt_transports[2] == &tt_verbs && tt_transports[3] == &tt_tcp);
	for (const struct tt_transport *const *t = tt_transports; *t; t++) {
		char why[256] = "";
		int found = (*t)->probe(why, sizeof(why));
		unsigned kind = (*t)->flags & (TT_T_RESERVE | TT_T_POST);

		cr_assert(kind == TT_T_RESERVE || kind == TT_T_POST);
		cr_assert(found == 1 || (*t == &tt_verbs && found == 0 && why[0]), "%s: %s",
			  (*t)->name, why);
	}
}

Test(transports, messages_of_every_size_arrive_in_order_on_independent_channels, .timeout = 120)
{
	static const size_t sizes[] = { 0,    1,    7,     8,     9,     47,    48,
					49,   55,   56,    57,    63,    64,    65,
					127,  128,  511,   512,   513,   4095,  4096,
					4097, 5000, 16383, 32767, 32768, 39999, 40000 };
	struct traffic tr = { .nchannels = 3,
			      .messages = 1200,
			      .sizes = sizes,
			      .nsizes = sizeof(sizes) / sizeof(sizes[0]),
			      .seed = 1 };

	cr_assert(run_all(2, 3, 40000, traffic_body, &tr) == 0);
}

Test(transports, random_traffic_among_four_ranks_is_right, .timeout = 120)
{
	struct traffic tr = { .nchannels = 2, .messages = 500, .seed = 2 };

	cr_assert(run_all(4, 2, 30000, traffic_body, &tr) == 0);
}

Test(transports, message_numbers_and_slots_wrap_around_many_times, .timeout = 120)
{
	static const size_t sizes[] = { 8, 8, 8, 300, 8, 56, 57 };
	struct traffic tr = {
		.nchannels = 1, .messages = 100000, .sizes = sizes, .nsizes = 7, .seed = 3
	};

	cr_assert(run_all(2, 1, 4096, traffic_body, &tr) == 0);
}

Test(transports, large_messages_in_both_directions_do_not_deadlock, .timeout = 120)
{
	static const size_t sizes[] = { 4u << 20 };
	struct traffic tr = {
		.nchannels = 2, .messages = 24, .sizes = sizes, .nsizes = 1, .seed = 4
	};

	cr_assert(run_all(2, 2, 4u << 20, traffic_body, &tr) == 0);
}

Test(transports, a_slow_receiver_loses_no_message, .timeout = 120)
{
	struct traffic tr = { .nchannels = 2, .messages = 1500, .slow_reader = true, .seed = 5 };

	cr_assert(run_all(2, 2, 20000, traffic_body, &tr) == 0);
}

/* Rank r posts bytes that follow from (number, r) to its slot; every rank checks the bytes of all
 * other ranks. In the last round rank 1 makes a different call. */
static uint8_t slot_byte(uint64_t number, int rank, size_t at)
{
	return (uint8_t)mix(number * 64 + (uint64_t)rank + (at << 32));
}

static int await_slot(const struct rig *rig, int peer, size_t bytes, uint64_t number,
		      uint32_t stamp, const uint8_t **ret)
{
	int rc;

	while (!(rc = rig->ep->slot_ops->poll(rig->ep, peer, bytes, number, stamp,
					      (const void **)ret)))
		sched_yield();
	return rc;
}

/* Where this rank writes post `number`: in turn in either half, at other offsets */
static uint8_t *place_of(const struct tt_slot_ops *ops, struct tt_endpoint *ep, uint64_t number,
			 size_t bytes, uint8_t small[TT_SLOT_SMALL])
{
	size_t at = number % 2 * TT_SLOT_HALF, pages = (TT_SLOT_HALF - bytes) / TT_SLOT_PAGE + 1;

	if (bytes <= TT_SLOT_SMALL)
		return small;
	return (uint8_t *)ops->room(ep) + at + mix(number) % pages * TT_SLOT_PAGE;
}

static int slot_body(const struct tt_world *world, void *arg)
{
	const struct tt_transport *t = ((struct setup *)arg)->t;
	size_t most = TT_SLOT_BYTES;
	uint8_t mine[TT_SLOT_SMALL];
	const uint8_t *lines;
	struct rig rig;

	EXPECT(rig_open(&rig, t, world, 1) == 0);
	for (uint64_t k = 1; k <= 3000; k++) {
		size_t bytes = 1 + mix(k) % (k % 50 ? TT_SLOT_SMALL : most),
		       line = bytes > TT_SLOT_SMALL ? bytes : TT_SLOT_LINE;
		bool last = k == 3000;

		uint8_t *data = place_of(t->slot_ops, rig.ep, k, bytes, mine);

		for (size_t i = 0; i < bytes; i++)
			data[i] = slot_byte(k, world->rank, i);
		t->slot_ops->post(rig.ep, data, bytes, k, (uint32_t)k + (last && world->rank == 1));
		for (int r = 0; r < world->nranks; r++) {
			if (r == world->rank)
				continue;
			if (last && (r == 1 || world->rank == 1)) {
				EXPECT(await_slot(&rig, r, bytes, k,
						  (uint32_t)k + (world->rank == 1),
						  &lines) == TT_USAGE);
				continue;
			}
			EXPECT(await_slot(&rig, r, bytes, k, (uint32_t)k, &lines) == 1);
			for (size_t i = 0; i < bytes; i++)
				EXPECT(lines[i / line * 64 + i % line] == slot_byte(k, r, i));
		}
	}
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

/* One rank posts in a round, the others read and release, some rounds later if the post is small. A
 * post that overwrote an unread one would be missed for ever. */
static bool await_release(const struct rig *rig, const struct tt_world *world, uint64_t number)
{
	bool stamped = true;

	for (int r = 0; r < world->nranks; r++) {
		uint64_t released = 0;
		uint16_t stamp = 0;

		while (r != world->rank &&
		       (released = rig->ep->slot_ops->released(rig->ep, r, &stamp)) < number)
			sched_yield();
		stamped &= r == world->rank || stamp == (uint16_t)(3 * released);
	}
	return stamped;
}

static int release_body(const struct tt_world *world, void *arg)
{
	const struct tt_slot_ops *ops = ((struct setup *)arg)->t->slot_ops;
	uint64_t page[2] = { 0 };
	const uint8_t *lines;
	struct rig rig;

	EXPECT(rig_open(&rig, ((struct setup *)arg)->t, world, 1) == 0);
	for (uint64_t k = 1; k <= 1000; k++) {
		size_t bytes = 1 + mix(k) % (k % 7 ? TT_SLOT_SMALL : TT_SLOT_BYTES),
		       line = bytes > TT_SLOT_SMALL ? bytes : TT_SLOT_LINE;
		int giver = (int)(mix(k / 40) % (uint64_t)world->nranks);

		if (giver == world->rank) {
			uint8_t small[TT_SLOT_SMALL],
				*data = place_of(ops, rig.ep, k, bytes, small);

			EXPECT(await_release(&rig, world,
					     k > TT_SLOT_DEPTH ? k - TT_SLOT_DEPTH : 0));
			EXPECT(await_release(&rig, world, bytes > TT_SLOT_SMALL ? page[k % 2] : 0));
			for (size_t i = 0; i < bytes; i++)
				data[i] = slot_byte(k, giver, i);
			ops->post(rig.ep, data, bytes, k, (uint32_t)k);
			page[k % 2] = bytes > TT_SLOT_SMALL ? k : page[k % 2];
		} else {
			if (mix(k + (uint64_t)world->rank) % 64 == 0)
				usleep(300);
			EXPECT(await_slot(&rig, giver, bytes, k, (uint32_t)k, &lines) == 1);
			for (size_t i = 0; i < bytes; i++)
				EXPECT(lines[i / line * 64 + i % line] == slot_byte(k, giver, i));
		}
		if (bytes > TT_SLOT_SMALL || k % (TT_SLOT_DEPTH / 2) == 0)
			ops->release(rig.ep, k, (uint16_t)(3 * k));
	}
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, slot_posts_wait_for_readers_that_release_them, .timeout = 120)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++) {
		if (!(*t)->slot_ops || !runs(*t))
			continue;
		cr_assert(run_on(*t, 3, 1, 4096, true, release_body, NULL) == 0);
		cr_assert(run_on(*t, 2, 1, 4096, false, release_body, NULL) == 0);
	}
}

Test(transports, slot_posts_reach_every_rank_without_acknowledgement, .timeout = 120)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++) {
		if (!(*t)->slot_ops || !runs(*t))
			continue;
		cr_assert(run_on(*t, 4, 1, 4096, false, slot_body, NULL) == 0);
		cr_assert(run_on(*t, 3, 1, 4096, true, slot_body, NULL) == 0);
		cr_assert(run_on(*t, 2, 1, 4096, false, slot_body, NULL) == 0);
	}
}

/* No rank receives until the sender is refused; then every accepted message must arrive. */
static int flood_body(const struct tt_world *world, void *arg)
{
	const struct tt_transport *t = ((struct setup *)arg)->t;
	static const uint8_t zeros[16384];
	uint64_t sent = 0, limit = 20000;
	struct rig rig;
	struct tt_link *l;
	uint8_t *buf = malloc(16384);

	EXPECT(rig_open(&rig, t, world, 1) == 0);
	l = rig.links[peer_of(world)];
	for (; world->rank == 0 && sent < limit; sent++) {
		void *room = t->flags & TT_T_RESERVE ? t->reserve(l, 16384) : NULL;

		if (room)
			memset(room, (int)(sent % 251), 16384), t->commit(l, 16384, (uint32_t)sent);
		else if ((t->flags & TT_T_RESERVE) || t->post(l, zeros, 16384, (uint32_t)sent) == 0)
			break;
	}
	if (world->rank == 0)
		EXPECT(sent < limit && sent > 0);
	sent = harness_barrier(world, sent);
	for (uint64_t i = 0; i < sent && world->rank == world->nranks - 1; i++) {
		EXPECT(receive_one(l, buf, 16384, (uint32_t)i) == 0);
		EXPECT(buf[0] == (t->flags & TT_T_RESERVE ? i % 251 : 0) && buf[16383] == buf[0]);
	}
	while (l->completed < l->posted)
		EXPECT(!t->progress || t->progress(rig.ep) >= 0);
	EXPECT(l->received == (world->rank == world->nranks - 1 ? sent : 0));
	harness_barrier(world, 0);
	rig_close(&rig);
	free(buf);
	return 0;
}

Test(transports, a_writer_is_refused_before_memory_grows_without_bound, .timeout = 120)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		/* threads would share zeros[]: processes only */
		cr_assert(!runs(*t) || run_on(*t, 2, 1, 16384, false, flood_body, NULL) == 0);
}

/* ---- mismatched calls ------------------------------------------------------------------------ */

static int mismatch_body(const struct tt_world *world, void *arg)
{
	static const struct {
		size_t sent, expected;
		uint32_t stamp;
	} wrong[] = {
		{ 8, 8, 4712 },    { 8, 16, 4711 },      { 16, 8, 4711 },      { 56, 57, 4711 },
		{ 57, 56, 4711 },  { 5000, 5000, 4712 }, { 5000, 5001, 4711 }, { 8000, 8, 4711 },
		{ 8, 8000, 4711 }, { 0, 8, 4711 },
	};
	const struct tt_transport *t = ((struct setup *)arg)->t;
	static const uint8_t buf[8192];
	struct rig rig;

	EXPECT(rig_open(&rig, t, world, 10) == 0);
	for (int c = 0; c < 10; c++) {
		struct tt_link *l = rig.links[peer_of(world) * 10 + c];
		uint8_t in[8192];

		if (world->rank == 0) {
			EXPECT(send_one(l, buf, 100, 1) == 0);
			EXPECT(send_one(l, buf, wrong[c].sent, 4711) == 0);
		}
		if (world->rank == world->nranks - 1) {
			EXPECT(receive_one(l, in, 100, 1) == 0);
			tt_error_clear();
			EXPECT(receive_one(l, in, wrong[c].expected, wrong[c].stamp) == TT_USAGE);
			EXPECT(strstr(tt_error_text(), "rank") != NULL);
			EXPECT(receive_one(l, in, wrong[c].expected, wrong[c].stamp) == TT_USAGE);
		}
	}
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, another_stamp_or_length_is_an_error, .timeout = 60)
{
	cr_assert(run_all(2, 10, 8192, mismatch_body, NULL) == 0);
}

/* ---- close ----------------------------------------------------------------------------------- */

/* Rank 0 sends until a send is refused and closes at once, with a message of the peer unread. Every
 * accepted message must still arrive, also messages for which the peer's socket had no space. */
static int close_body(const struct tt_world *world, void *arg)
{
	const struct tt_transport *t = ((struct setup *)arg)->t;
	const size_t bytes = 65536;
	uint8_t *buf = calloc(2, bytes), *in = buf + bytes;
	struct rig rig;
	struct tt_link *l;
	uint64_t sent = 0;

	EXPECT(rig_open(&rig, t, world, 1) == 0);
	l = rig.links[peer_of(world)];
	if (world->rank == 1)
		EXPECT(send_one(l, buf, 100, 5) == 0);
	harness_barrier(world, 0);
	while (world->rank == 0 && try_send(l, buf, bytes, 9))
		;
	if (world->rank == 0) {
		sent = t->flags & TT_T_POST ? l->completed : l->messages;
		EXPECT(sent > 0);
		rig_close(&rig);
	}
	sent = harness_barrier(world, sent);
	for (uint64_t i = 0; world->rank == 1 && i < sent; i++)
		EXPECT(receive_one(l, in, bytes, 9) == 0);
	if (world->rank == 1)
		rig_close(&rig);
	free(buf);
	return 0;
}

Test(transports, messages_sent_before_close_arrive, .timeout = 60)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int threads = 0; threads < 2 && *t != &tt_self && runs(*t); threads++)
			cr_assert(run_on(*t, 2, 1, 65536, threads, close_body, NULL) == 0);
}

static int several_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	struct traffic tr = { .t = setup->t, .nchannels = 1, .messages = 300, .seed = 8 };
	struct rig rigs[3];

	for (int i = 0; i < 3; i++) {
		struct rig *rig = &rigs[i];

		/* channel i of the world's sockets, as channel i of endpoint i */
		EXPECT(harness_open(world, setup->t, &rig->ep) == 0);
		rig->nchannels = 1;
		rig->links = calloc((size_t)world->nranks, sizeof(*rig->links));
		for (int peer = 0; peer < world->nranks; peer++) {
			int rc = !setup->t->reaches(rig->ep, peer);

			if (rc)
				continue;
			EXPECT(setup->t->connect(rig->ep, peer, i, &rig->links[peer]) == 0);
			while (!(rc = setup->t->ready(rig->links[peer])))
				sched_yield();
			EXPECT(rc == 1);
		}
	}
	for (int i = 2; i >= 0; i--)
		EXPECT(traffic_run(&rigs[i], world, &tr) == 0);
	rig_close(&rigs[1]);
	EXPECT(traffic_run(&rigs[0], world, &tr) == 0);
	EXPECT(traffic_run(&rigs[2], world, &tr) == 0);
	harness_barrier(world, 0);
	rig_close(&rigs[0]);
	rig_close(&rigs[2]);
	return 0;
}

Test(transports, endpoints_of_one_process_do_not_disturb_each_other, .timeout = 60)
{
	cr_assert(run_all(2, 3, 5000, several_body, NULL) == 0);
}

static int count_lines(const char *path, const char *with)
{
	FILE *f = fopen(path, "r");
	char line[512];
	int n = 0;

	while (fgets(line, sizeof(line), f))
		n += strstr(line, with) != NULL;
	fclose(f);
	return n;
}

static int leak_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	struct traffic tr = { .t = setup->t, .nchannels = 1, .messages = 20, .seed = 9 };
	bool dials = setup->t == &tt_tcp || setup->t == &tt_verbs;
	int fds = count_descriptors(), maps = count_lines("/proc/self/maps", "memfd:tutti");

	for (int i = 0; i < 20; i++) {
		/* the world has one socket for each link */
		bool with_links = !dials || i == 0;
		struct rig rig;

		EXPECT(rig_open(&rig, setup->t, world, with_links) == 0);
		if (with_links)
			EXPECT(traffic_run(&rig, world, &tr) == 0);
		harness_barrier(world, 0);
		rig_close(&rig);
	}
	fds -= dials ? world->nranks - 1 : 0; /* closed by the endpoints */
	EXPECT(count_descriptors() == fds);
	EXPECT(count_lines("/proc/self/maps", "memfd:tutti") == maps);
	return 0;
}

Test(transports, close_leaves_no_descriptor_mapping_or_socket, .timeout = 60)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		cr_assert(!runs(*t) || run_on(*t, 2, 1, 4096, false, leak_body, NULL) == 0);
}

static int allocation_body(const struct tt_world *world, void *arg)
{
	const struct tt_transport *t = ((struct setup *)arg)->t;
	static const size_t sizes[] = { 8, 300, 9000 };
	static uint8_t buf[9000], in[9000];
	uint64_t before = 0;
	struct rig rig;
	struct tt_link *l;

	EXPECT(rig_open(&rig, t, world, 1) == 0);
	l = rig.links[peer_of(world)];
	for (uint32_t i = 0; i < 3000; i++) {
		if (i == 300)
			before = allocations;
		EXPECT(send_one(l, buf, sizes[i % 3], i) == 0);
		EXPECT(receive_one(l, in, sizes[i % 3], i) == 0);
	}
	EXPECT(allocations == before);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, nothing_is_allocated_once_links_are_ready, .timeout = 60)
{
	uint64_t before = allocations;
	void *volatile probe = malloc(100);

	free(probe);
	if (allocations == before)
		cr_skip_test("skipped: malloc cannot be counted in this build");
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		cr_assert(!runs(*t) || run_on(*t, 2, 1, 9000, false, allocation_body, NULL) == 0);
}

/* ---- self ------------------------------------------------------------------------------------ */

static int own_pointer_body(const struct tt_world *world, void *arg)
{
	struct rig rig;
	const void *data;
	int number = 5;

	(void)arg;
	EXPECT(rig_open(&rig, &tt_self, world, 1) == 0);
	EXPECT(rig.links[0]->t->post(rig.links[0], &number, sizeof(number), 1) == 1);
	EXPECT(rig.links[0]->completed == 0);
	EXPECT(rig.links[0]->t->peek(rig.links[0], sizeof(number), 1, &data) == 1 &&
	       data == &number);
	rig.links[0]->t->release(rig.links[0]);
	EXPECT(rig.links[0]->completed == 1);
	rig_close(&rig);
	return 0;
}

Test(transports, self_delivers_the_pointer_of_the_sender, .timeout = 30)
{
	cr_assert(run_on(&tt_self, 1, 1, 4096, false, own_pointer_body, NULL) == 0);
}

/* ---- tcp: deaths ----------------------------------------------------------------------------- */

/* Rank 1 dies before a message or, with half, in the middle of a message. */
static int death_body(const struct tt_world *world, void *arg)
{
	bool half = *(bool *)((struct setup *)arg)->arg;
	static uint8_t buf[LARGE];
	struct rig rig;
	struct tt_link *l;
	int rc = 0;

	EXPECT(rig_open(&rig, &tt_tcp, world, 1) == 0);
	l = rig.links[peer_of(world)];
	if (world->rank == 1) {
		for (int i = 0; half && i < 64; i++)
			tt_tcp.post(l, buf, LARGE, 1); /* more than the socket buffer */
		raise(SIGKILL);
	}
	while (rc == 0)
		rc = receive_one(l, buf, LARGE, 1);
	EXPECT(rc == TT_REMOTE);
	EXPECT(strstr(tt_error_text(), "rank 1") != NULL);
	for (rc = 1; rc >= 0; rc = rc < 0 ? rc : tt_tcp.progress(rig.ep))
		rc = tt_tcp.post(l, buf, LARGE, 2);
	EXPECT(rc == TT_REMOTE);
	rig_close(&rig);
	return 0;
}

Test(transports, tcp_names_a_peer_that_died, .timeout = 60)
{
	for (int half = 0; half < 2; half++) {
		bool arg = half;
		struct harness h = { .nranks = 2, .nchannels = 1, .message_bytes = LARGE };

		cr_assert(harness_run(&h, death_body, &(struct setup){ &tt_tcp, &arg }) == 2);
	}
}
