/*
 * test_verbs_zcopy.c - messages of the verbs transport that go past the rings, and the
 * registrations that they need
 *
 * Two ranks as threads and as processes, over the fake library (tests/scripts/verbs.sh), which knows
 * every key. What must hold: bytes land where they were wanted or in the ring, always right; memory
 * is registered once while it lasts, never used after it went, within the bounds that were set; a
 * steady state registers and allocates nothing, and its work requests are counted.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness_traffic.h"
#include "tests/support/malloc_count.h"
#include "mem/memory.h"
#include "transports/verbs/verbs.h"

#define BYTES (64u << 10)
#define PLACES 12

struct zcopy_side {
	struct rig rig;
	struct tt_link *l;
	struct tt_verbs_ep *ep;
	uint8_t *memory;               /* that lasts: [PLACES * BYTES] */
};

static int open_side(struct zcopy_side *s, const struct tt_world *world)
{
	void *p;

	EXPECT(rig_open(&s->rig, &tt_verbs, world, 1) == 0);
	s->l = s->rig.links[peer_of(world)];
	s->ep = (struct tt_verbs_ep *)s->rig.ep;
	EXPECT(tt_memory_alloc(PLACES * BYTES, &p) == 0);
	s->memory = p;
	return 0;
}

static int close_side(struct zcopy_side *s, const struct tt_world *world)
{
	harness_barrier(world, 0);
	EXPECT(s->ep->cache.count <= s->ep->cache.most &&
	       s->ep->cache.bytes <= s->ep->cache.most_bytes);
	rig_close(&s->rig);
	EXPECT(tt_memory_free(s->memory) == 0);
	return 0;
}

static uint8_t *place(const struct zcopy_side *s, uint32_t i)
{
	return s->memory + i % PLACES * BYTES;
}

static uint8_t byte_of(uint32_t number, size_t i)
{
	return (uint8_t)mix((uint64_t)number << 20 | i >> 4);
}

static void fill(uint8_t *p, size_t bytes, uint32_t number)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = byte_of(number, i);
}

static bool right(const uint8_t *p, size_t bytes, uint32_t number)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != byte_of(number, i))
			return false;
	return true;
}

/* From where it lies, if it can be; all of it has left. */
static int send_placed(struct zcopy_side *s, const struct tt_world *world, const uint8_t *p, size_t bytes,
		       uint32_t number)
{
	uint64_t deadline = tt_deadline_ns(20000);
	int rc;

	while (!(rc = tt_verbs.post(s->l, p, bytes, number)) && tt_now_ns() < deadline)
		EXPECT(tt_verbs.progress(s->rig.ep) >= 0);
	EXPECT(rc == 1);
	while (s->l->completed < s->l->posted && tt_now_ns() < deadline)
		EXPECT(tt_verbs.progress(s->rig.ep) >= 0);
	EXPECT(s->l->completed == s->l->posted);
	return 0;
}

/* 1 it lay at dst | 0 elsewhere; right in any case | -1 */
static int receive_at(struct zcopy_side *s, const struct tt_world *world, const uint8_t *dst,
		      size_t bytes, uint32_t number)
{
	uint64_t deadline = tt_deadline_ns(20000);
	const void *data = NULL;
	int rc;

	while (!(rc = tt_verbs.peek(s->l, bytes, number, &data)) && tt_now_ns() < deadline)
		;
	if (rc != 1 || !right(data, bytes, number)) {
		fprintf(stderr, "rank %d: message %u: %d, %s\n", world->rank, number, rc,
			tt_error_text());
		return -1;
	}
	tt_verbs.release(s->l);
	return data == dst;
}

static void both(body_fn *body)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, 1, BYTES, false, body, NULL) == 0);
	cr_assert(run_on(&tt_verbs, 2, 1, BYTES, true, body, NULL) == 0);
}

/* ---- where messages land --------------------------------------------------------------------- */

/* Wanted in time: each is one work request,
 * and rtrs for several in a row are one of the receiver. */
static int wanted_body(const struct tt_world *world, void *arg)
{
	struct zcopy_side s;
	uint64_t posted;

	(void)arg;
	EXPECT(!open_side(&s, world));
	posted = s.ep->posted;
	for (uint32_t i = 0; i < 8 && world->rank == 1; i++)
		for (int twice = 0; twice < 2; twice++)
			EXPECT(tt_verbs.zcopy_ops->prepost(s.l, i, place(&s, i), BYTES - i, i));
	EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
	harness_barrier(world, 0);
	for (uint32_t i = 0; i < 8 && world->rank == 0; i++) {
		fill(place(&s, i), BYTES - i, i);
		EXPECT(tt_verbs.zcopy_ops->can_send(s.l, place(&s, i), BYTES - i));
		EXPECT(!send_placed(&s, world, place(&s, i), BYTES - i, i));
	}
	for (uint32_t i = 0; i < 8 && world->rank == 1; i++)
		EXPECT(receive_at(&s, world, place(&s, i), BYTES - i, i) == 1);
	/* six rtrs fit the card's inline data */
	EXPECT(s.ep->posted == posted + (world->rank ? 2 : 8));
	EXPECT(s.ep->zcopy_sent == (world->rank ? 0 : 8) && s.ep->zcopy_received == (world->rank ? 8 : 0));
	return close_side(&s, world);
}

Test(verbs_direct, what_is_wanted_in_time_lands_there, .timeout = 60)
{
	both(wanted_body);
}

/* Late rtrs, rtrs for another call or length, small messages,
 * memory that may go: by the ring, and right. */
static int unwanted_body(const struct tt_world *world, void *arg)
{
	static const size_t sizes[] = { BYTES, BYTES, BYTES, TT_VERBS_ZCOPY_BYTES - 1, BYTES };
	uint8_t *own = malloc(BYTES);
	struct zcopy_side s;

	(void)arg;
	EXPECT(own && !open_side(&s, world));
	for (uint32_t i = 0; i < 5; i++) {
		if (world->rank == 1 && i < 4) {
			bool told = tt_verbs.zcopy_ops->prepost(s.l, 0, place(&s, i), sizes[i] - 100 * (i == 1),
						    i + 77 * (i == 2));

			EXPECT(i == 0 || told == (i < 3));
			EXPECT(!tt_verbs.zcopy_ops->prepost(s.l, 1, own, BYTES, 1));
			EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
		}
		if (world->rank == 0) {
			uint8_t *from = i == 4 ? own : place(&s, i);

			fill(from, sizes[i], i);
			EXPECT(tt_verbs.zcopy_ops->can_send(s.l, from, sizes[i]) == (i < 3));
			if (i == 0)                    /* before the rtr */
				EXPECT(!send_placed(&s, world, from, sizes[i], i));
			harness_barrier(world, 0);
			if (i > 0)
				EXPECT(!send_placed(&s, world, from, sizes[i], i));
		} else {
			harness_barrier(world, 0);
			EXPECT(i == 0 || receive_at(&s, world, place(&s, i), sizes[i], i) == 0);
			EXPECT(i != 0 || receive_at(&s, world, place(&s, i), sizes[i], i) >= 0);
		}
	}
	EXPECT(s.ep->zcopy_sent == (world->rank ? 0 : 3));
	EXPECT(s.l->posted == s.l->completed);
	free(own);
	return close_side(&s, world);
}

Test(verbs_direct, what_is_wanted_otherwise_comes_by_the_ring, .timeout = 60)
{
	both(unwanted_body);
}

/* Everything in random order, both ways at once. */
static int random_body(const struct tt_world *world, void *arg)
{
	uint64_t seed = 99, landed = 0;
	struct zcopy_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	for (uint32_t i = 0; i < 600; i++) {
		uint64_t r = mix(seed + i);
		size_t bytes = 1 + (r >> 8) % BYTES;
		uint8_t *from = place(&s, i % (PLACES / 2));

		if (world->rank == (int)(r % 2)) {     /* receives, and may say where; or late */
			uint8_t *dst = place(&s, PLACES / 2 + i % (PLACES / 2));

			if (r >> 40 & 1)
				tt_verbs.zcopy_ops->prepost(s.l, 0, dst, bytes, i);
			EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
			if (r >> 41 & 1)
				harness_barrier(world, 0);
			landed += receive_at(&s, world, dst, bytes, i) == 1;
		} else {
			fill(from, bytes, i);
			if (r >> 41 & 1)
				harness_barrier(world, 0);
			if (r >> 42 & 1)
				EXPECT(!send_placed(&s, world, from, bytes, i));
			else
				EXPECT(send_one(s.l, from, bytes, i) == 0);
		}
	}
	EXPECT(landed == s.ep->zcopy_received && landed > 30);
	return close_side(&s, world);
}

Test(verbs_direct, messages_of_all_kinds_keep_their_order, .timeout = 60)
{
	both(random_body);
}

/* ---- registrations --------------------------------------------------------------------------- */

/* Afterwards counts of everything but messages stand still. */
static int steady_body(const struct tt_world *world, void *arg)
{
	uint64_t registrations = 0, posted = 0, signalled = 0, allocated = 0;
	struct zcopy_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	fill(place(&s, 0), BYTES, 7);
	for (uint32_t i = 0; i < 400; i++) {
		if (i == 80) {
			registrations = s.ep->registrations;
			posted = s.ep->posted;
			signalled = s.ep->signalled;
			harness_barrier(world, 0);
			allocated = allocations;
			harness_barrier(world, 0);
		}
		EXPECT(tt_verbs.zcopy_ops->prepost(s.l, 0, place(&s, 1 + i % 4), BYTES, 7));
		EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
		harness_barrier(world, 0);
		EXPECT(!send_placed(&s, world, place(&s, 0), BYTES, 7));
		EXPECT(receive_at(&s, world, place(&s, 1 + i % 4), BYTES, 7) == 1);
	}
	EXPECT(s.ep->registrations == registrations);
	EXPECT(!COUNTED || allocations == allocated);
	/* a message and a rtr each, and no word */
	EXPECT(s.ep->posted - posted == 640);
	/* the messages, each of which can_zcopy memory */
	EXPECT(s.ep->signalled - signalled == 320);
	return close_side(&s, world);
}

Test(verbs_direct, a_steady_state_registers_and_allocates_nothing, .timeout = 60)
{
	both(steady_body);
}

/* The same addresses again and again, each time another memory. The fake knows keys of what was
 * handed back. */
static int reborn_body(const struct tt_world *world, void *arg)
{
	struct zcopy_side s;
	uint64_t before;

	(void)arg;
	EXPECT(!open_side(&s, world));
	before = s.ep->registrations;
	for (uint32_t i = 0; i < 20; i++) {
		void *p;

		EXPECT(tt_memory_alloc(BYTES, &p) == 0);
		if (world->rank == 1)
			EXPECT(tt_verbs.zcopy_ops->prepost(s.l, 0, p, BYTES, i) &&
			       tt_verbs.progress(s.rig.ep) >= 0);
		harness_barrier(world, 0);
		if (world->rank == 0) {
			fill(p, BYTES, i);
			EXPECT(!send_placed(&s, world, p, BYTES, i));
		} else {
			EXPECT(receive_at(&s, world, p, BYTES, i) == 1);
		}
		EXPECT(s.ep->cache.count == 1);
		EXPECT(tt_memory_free(p) == 0);
		EXPECT(s.ep->cache.count == 0 && s.ep->cache.bytes == 0);
	}
	EXPECT(s.ep->registrations == before + 20);
	return close_side(&s, world);
}

Test(verbs_direct, memory_that_goes_takes_its_registration_along, .timeout = 60)
{
	both(reborn_body);
}

/* Five buffers where two may be registered, or none, or so few bytes that only one fits. */
static int bounds_body(const struct tt_world *world, void *arg)
{
	/* registrations, bytes, buffers that are kept */
	const int *bound = ((struct setup *)arg)->arg;
	struct tt_verbs_settings set = { .devices = "", .gid_index = -1, .timeout = -1, .retries = -1,
				      .registrations = bound[0],
				      .registered_bytes = (size_t)bound[1] };
	struct tt_world narrow = *world;
	struct zcopy_side s;
	void *p[5];

	narrow.ib = &set;
	EXPECT(!open_side(&s, &narrow));
	for (int i = 0; i < 5; i++)
		EXPECT(tt_memory_alloc(BYTES, &p[i]) == 0);
	for (uint32_t i = 0; i < 25; i++) {
		fill(p[i % 5], BYTES, i);
		EXPECT(tt_verbs.zcopy_ops->can_send(s.l, p[i % 5], BYTES) == (bound[2] > 0));
		EXPECT(!send_placed(&s, world, p[i % 5], BYTES, i));
		EXPECT(receive_at(&s, world, NULL, BYTES, i) == 0);
		EXPECT(s.ep->cache.count <= bound[2]);
	}
	EXPECT(s.ep->cache.count == bound[2] && s.ep->zcopy_sent == (bound[2] ? 25 : 0));
	EXPECT(tt_verbs.zcopy_ops->can_send(s.l, s.memory, PLACES * BYTES) == (bound[2] == 2));
	for (int i = 0; i < 5; i++)
		EXPECT(tt_memory_free(p[i]) == 0);
	return close_side(&s, world);
}

Test(verbs_direct, no_more_is_registered_than_allowed, .timeout = 60)
{
	int bounds[][3] = { { 2, 0, 2 }, { 0, 0, 0 }, { 9, BYTES + 5000, 1 } };
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	for (int b = 0; b < 3; b++)
		cr_assert(run_on(&tt_verbs, 2, 1, BYTES, false, bounds_body, bounds[b]) == 0);
}

/* After a failure the peer cannot write into the caller's
 * memory any more, though it was told to. */
static int abandoned_body(const struct tt_world *world, void *arg)
{
	struct zcopy_side s;
	const void *data;

	(void)arg;
	EXPECT(!open_side(&s, world));
	if (world->rank == 1) {
		EXPECT(tt_verbs.zcopy_ops->prepost(s.l, 0, place(&s, 0), BYTES, 1) &&
		       tt_verbs.progress(s.rig.ep) >= 0);
		tt_fail(TT_TIMEOUT, "the cause");
		tt_verbs.zcopy_ops->abandon(s.rig.ep);
		EXPECT(!strcmp(tt_error_text(), "the cause"));
	}
	harness_barrier(world, 0);
	if (world->rank == 0) {
		fill(place(&s, 0), BYTES, 1);
		EXPECT(tt_verbs.post(s.l, place(&s, 0), BYTES, 1) == 1);
	}
	harness_barrier(world, 0);
	if (world->rank == 1) {
		EXPECT(place(&s, 0)[0] == 0 && !memcmp(place(&s, 0), place(&s, 0) + 1, BYTES - 1));
		EXPECT(tt_verbs.peek(s.l, BYTES, 1, &data) == TT_REMOTE);
		EXPECT(strstr(tt_error_text(), "a call before this one failed"));
	} else {
		EXPECT(s.l->completed < s.l->posted);
		tt_verbs.zcopy_ops->abandon(s.rig.ep);
	}
	return close_side(&s, world);
}

Test(verbs_direct, after_a_failure_nothing_lands_any_more, .timeout = 60)
{
	both(abandoned_body);
}
