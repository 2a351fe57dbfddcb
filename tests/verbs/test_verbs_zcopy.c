/*
 * test_verbs_zcopy.c - zero-copy messages of the verbs transport, and their memory registrations
 *
 * Two ranks as threads and as processes, over the fake library (tests/scripts/verbs.sh), which checks
 * every key. Claims: messages arrive in the receive buffer or in the ring, always with the right
 * bytes; memory is registered once in its life, never used after it is freed, and registrations stay
 * within their bounds; a steady state registers and allocates nothing, and its work requests are
 * counted.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness_traffic.h"
#include "tests/support/malloc_count.h"
#include "mem/memory.h"
#include "transports/verbs/verbs.h"

#define BYTES (64u << 10)
#define SLOTS 12

struct zcopy_side {
	struct rig rig;
	struct tt_link *l;
	struct tt_verbs_ep *ep;
	uint8_t *memory; /* of tt_memory_alloc: [SLOTS * BYTES] */
};

static int open_side(struct zcopy_side *s, const struct tt_world *world)
{
	void *p;

	EXPECT(rig_open(&s->rig, &tt_verbs, world, 1) == 0);
	s->l = s->rig.links[peer_of(world)];
	s->ep = (struct tt_verbs_ep *)s->rig.ep;
	EXPECT(tt_memory_alloc(SLOTS * BYTES, &p) == 0);
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

static uint8_t *slot(const struct zcopy_side *s, uint32_t i)
{
	return s->memory + i % SLOTS * BYTES;
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

static bool is_filled(const uint8_t *p, size_t bytes, uint32_t number)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != byte_of(number, i))
			return false;
	return true;
}

/* Posts from p, zero copy if possible, and waits until the send is complete. */
static int send_from(struct zcopy_side *s, const struct tt_world *world, const uint8_t *p,
		     size_t bytes, uint32_t number)
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

/* Returns 1: the message arrived at dst | 0: elsewhere | -1: no message, or wrong bytes */
static int receive_at(struct zcopy_side *s, const struct tt_world *world, const uint8_t *dst,
		      size_t bytes, uint32_t number)
{
	uint64_t deadline = tt_deadline_ns(20000);
	const void *data = NULL;
	int rc;

	while (!(rc = tt_verbs.peek(s->l, bytes, number, &data)) && tt_now_ns() < deadline)
		;
	if (rc != 1 || !is_filled(data, bytes, number)) {
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

/* ---- where messages arrive ------------------------------------------------------------------- */

/* With early RTRs each message is one work request, and consecutive RTRs share one work request of the
 * receiver. */
static int early_rtr_body(const struct tt_world *world, void *arg)
{
	struct zcopy_side s;
	uint64_t posted;

	(void)arg;
	EXPECT(!open_side(&s, world));
	posted = s.ep->posted;
	for (uint32_t i = 0; i < 8 && world->rank == 1; i++)
		for (int twice = 0; twice < 2; twice++)
			EXPECT(tt_verbs.zcopy_ops->prepost(s.l, i, slot(&s, i), BYTES - i, i));
	EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
	harness_barrier(world, 0);
	for (uint32_t i = 0; i < 8 && world->rank == 0; i++) {
		fill(slot(&s, i), BYTES - i, i);
		EXPECT(tt_verbs.zcopy_ops->can_send(s.l, slot(&s, i), BYTES - i));
		EXPECT(!send_from(&s, world, slot(&s, i), BYTES - i, i));
	}
	for (uint32_t i = 0; i < 8 && world->rank == 1; i++)
		EXPECT(receive_at(&s, world, slot(&s, i), BYTES - i, i) == 1);
	/* six RTRs fit into the HCA's inline data */
	EXPECT(s.ep->posted == posted + (world->rank ? 2 : 8));
	EXPECT(s.ep->zcopy_sent == (world->rank ? 0 : 8) &&
	       s.ep->zcopy_received == (world->rank ? 8 : 0));
	return close_side(&s, world);
}

Test(verbs_zcopy, messages_with_an_early_rtr_are_written_to_the_receive_buffer, .timeout = 60)
{
	both(early_rtr_body);
}

/* Messages use the ring, with the right bytes, after late RTRs, RTRs for another call or length, for
 * small messages, and for memory that tt_memory_alloc did not allocate. */
static int ring_body(const struct tt_world *world, void *arg)
{
	static const size_t sizes[] = { BYTES, BYTES, BYTES, TT_VERBS_ZCOPY_BYTES - 1, BYTES };
	uint8_t *own = malloc(BYTES);
	struct zcopy_side s;

	(void)arg;
	EXPECT(own && !open_side(&s, world));
	for (uint32_t i = 0; i < 5; i++) {
		if (world->rank == 1 && i < 4) {
			bool posted = tt_verbs.zcopy_ops->prepost(s.l, 0, slot(&s, i),
								  sizes[i] - 100 * (i == 1),
								  i + 77 * (i == 2));

			EXPECT(i == 0 || posted == (i < 3));
			EXPECT(!tt_verbs.zcopy_ops->prepost(s.l, 1, own, BYTES, 1));
			EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
		}
		if (world->rank == 0) {
			uint8_t *from = i == 4 ? own : slot(&s, i);

			fill(from, sizes[i], i);
			EXPECT(tt_verbs.zcopy_ops->can_send(s.l, from, sizes[i]) == (i < 3));
			if (i == 0) /* before the RTR */
				EXPECT(!send_from(&s, world, from, sizes[i], i));
			harness_barrier(world, 0);
			if (i > 0)
				EXPECT(!send_from(&s, world, from, sizes[i], i));
		} else {
			harness_barrier(world, 0);
			EXPECT(i == 0 || receive_at(&s, world, slot(&s, i), sizes[i], i) == 0);
			EXPECT(i != 0 || receive_at(&s, world, slot(&s, i), sizes[i], i) >= 0);
		}
	}
	EXPECT(s.ep->zcopy_sent == (world->rank ? 0 : 3));
	EXPECT(s.l->posted == s.l->completed);
	free(own);
	return close_side(&s, world);
}

Test(verbs_zcopy, messages_without_a_matching_rtr_use_the_ring, .timeout = 60)
{
	both(ring_body);
}

/* Messages of all kinds in random order, in both directions at once. */
static int random_body(const struct tt_world *world, void *arg)
{
	uint64_t seed = 99, in_place = 0;
	struct zcopy_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	for (uint32_t i = 0; i < 600; i++) {
		uint64_t r = mix(seed + i);
		size_t bytes = 1 + (r >> 8) % BYTES;
		uint8_t *from = slot(&s, i % (SLOTS / 2));

		if (world->rank == (int)(r % 2)) { /* receives, with an early, a late or no RTR */
			uint8_t *dst = slot(&s, SLOTS / 2 + i % (SLOTS / 2));

			if (r >> 40 & 1)
				tt_verbs.zcopy_ops->prepost(s.l, 0, dst, bytes, i);
			EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
			if (r >> 41 & 1)
				harness_barrier(world, 0);
			in_place += receive_at(&s, world, dst, bytes, i) == 1;
		} else {
			fill(from, bytes, i);
			if (r >> 41 & 1)
				harness_barrier(world, 0);
			if (r >> 42 & 1)
				EXPECT(!send_from(&s, world, from, bytes, i));
			else
				EXPECT(send_one(s.l, from, bytes, i) == 0);
		}
	}
	EXPECT(in_place == s.ep->zcopy_received && in_place > 30);
	return close_side(&s, world);
}

Test(verbs_zcopy, messages_of_all_kinds_keep_their_order, .timeout = 60)
{
	both(random_body);
}

/* ---- registrations --------------------------------------------------------------------------- */

/* After a warm-up only the counts of messages grow. */
static int steady_body(const struct tt_world *world, void *arg)
{
	uint64_t registrations = 0, posted = 0, signalled = 0, allocated = 0;
	struct zcopy_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	fill(slot(&s, 0), BYTES, 7);
	for (uint32_t i = 0; i < 400; i++) {
		if (i == 80) {
			registrations = s.ep->registrations;
			posted = s.ep->posted;
			signalled = s.ep->signalled;
			harness_barrier(world, 0);
			allocated = allocations;
			harness_barrier(world, 0);
		}
		EXPECT(tt_verbs.zcopy_ops->prepost(s.l, 0, slot(&s, 1 + i % 4), BYTES, 7));
		EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
		harness_barrier(world, 0);
		EXPECT(!send_from(&s, world, slot(&s, 0), BYTES, 7));
		EXPECT(receive_at(&s, world, slot(&s, 1 + i % 4), BYTES, 7) == 1);
	}
	EXPECT(s.ep->registrations == registrations);
	EXPECT(!COUNTED || allocations == allocated);
	/* a message and an RTR each, no control message */
	EXPECT(s.ep->posted - posted == 640);
	/* the messages: each zero-copy send is signaled */
	EXPECT(s.ep->signalled - signalled == 320);
	return close_side(&s, world);
}

Test(verbs_zcopy, a_steady_state_registers_and_allocates_nothing, .timeout = 60)
{
	both(steady_body);
}

/* Rank 1 knows address and key of memory that rank 0 only sends from, and writes there. */
static int sent_from_body(const struct tt_world *world, void *arg)
{
	struct {
		uint64_t at;
		uint32_t lkey, rkey;
	} key[2], mine = { 0 };
	struct zcopy_side s;
	struct tt_verbs_link *l;
	struct tt_verbs_region *r;
	uint64_t deadline = tt_deadline_ns(20000);
	int rc = 0;

	(void)arg;
	EXPECT(!open_side(&s, world));
	l = (struct tt_verbs_link *)s.l;
	fill(slot(&s, 0), BYTES, 7);
	r = tt_verbs_region_get(s.ep, l->rail, slot(&s, 0), BYTES, false, &mine.lkey, &mine.rkey);
	EXPECT(r);
	tt_verbs_region_put(s.ep, r);
	mine.at = (uintptr_t)slot(&s, 0);
	EXPECT(!world->allgather(world->ctx, &mine, sizeof(mine), key));
	if (world->rank == 1) {
		struct tt_verbs_sge piece = { (uintptr_t)l->ring, 64, l->tx_mr->lkey };

		tt_verbs_send_imm(l, &piece, 1, key[0].at, key[0].rkey, 0, true);
		while (!(rc = tt_verbs_poll(s.ep)) && tt_now_ns() < deadline)
			;
		EXPECT(rc < 0 && strstr(tt_error_text(), "memory may not be written"));
	}
	harness_barrier(world, 0);
	EXPECT(is_filled(slot(&s, 0), BYTES, 7));
	return close_side(&s, world);
}

Test(verbs_zcopy, memory_that_is_only_sent_from_cannot_be_written_by_a_peer, .timeout = 60)
{
	both(sent_from_body);
}

/* A table of this thread whose reg_mr refuses memory on one port, or only remote writes to it */
static _Thread_local const struct tt_verbs_table *real;
static _Thread_local const struct tt_verbs_pd *refused_pd;
static _Thread_local bool refuses_writes, refuses_all;

static struct tt_verbs_mr *refuse(struct tt_verbs_pd *pd, void *at, size_t bytes, int access)
{
	if (pd == refused_pd &&
	    (refuses_all || (refuses_writes && access & TT_VERBS_REMOTE_WRITE))) {
		errno = ENOMEM;
		return NULL;
	}
	return real->reg_mr(pd, at, bytes, access);
}

static bool get(struct zcopy_side *s, int rail, bool arrives, struct tt_verbs_region **ret_r)
{
	uint32_t lkey, rkey;

	*ret_r = tt_verbs_region_get(s->ep, &s->ep->rail[rail], s->memory, BYTES, arrives, &lkey,
				     &rkey);
	return *ret_r != NULL;
}

/* Memory that is sent from and received into at once has two registrations, within the limit. */
static int in_place_body(const struct tt_world *world, void *arg)
{
	const size_t room = SLOTS * BYTES + 5000; /* of one registration, and not of two */
	struct tt_verbs_region *sent, *received;
	struct zcopy_side s;
	size_t one;

	(void)arg;
	EXPECT(!open_side(&s, world));
	EXPECT(get(&s, 0, false, &sent));
	one = s.ep->cache.bytes;
	s.ep->cache.most_bytes = room;
	EXPECT(one >= SLOTS * BYTES && one <= room);
	EXPECT(!get(&s, 0, true, &received) && s.ep->cache.bytes == one);
	s.ep->cache.most_bytes = 2 * room;
	EXPECT(get(&s, 0, true, &received) && received == sent && s.ep->cache.bytes == 2 * one);
	tt_verbs_region_put(s.ep, sent);
	tt_verbs_region_put(s.ep, received);
	EXPECT(tt_memory_free(s.memory) == 0 && s.ep->cache.bytes == 0);
	EXPECT(tt_memory_alloc(SLOTS * BYTES, (void **)&s.memory) == 0);
	s.ep->cache.most_bytes = room; /* one after the other: the second replaces the first */
	EXPECT(get(&s, 0, false, &sent));
	tt_verbs_region_put(s.ep, sent);
	EXPECT(get(&s, 0, true, &received) && s.ep->cache.bytes == one);
	tt_verbs_region_put(s.ep, received);
	return close_side(&s, world);
}

Test(verbs_zcopy, both_registrations_of_memory_count, .timeout = 60)
{
	both(in_place_body);
}

/* An HCA that refuses remote writes to memory still sends from there, and the other HCA takes both. */
static int refused_body(const struct tt_world *world, void *arg)
{
	struct tt_verbs_region *r;
	struct tt_verbs_table table;
	struct zcopy_side s;
	size_t one;

	(void)arg;
	EXPECT(!open_side(&s, world) && s.ep->nrails == 2);
	real = s.ep->ib;
	table = *real;
	table.reg_mr = refuse;
	refused_pd = s.ep->rail[0].pd;
	s.ep->ib = &table;
	for (int again = 0; again < 2; again++) {
		refuses_writes = !again; /* what was refused once is not tried again */
		EXPECT(!get(&s, 0, true, &r) && get(&s, 0, false, &r));
		tt_verbs_region_put(s.ep, r);
		one = s.ep->cache.bytes;
		EXPECT(one >= SLOTS * BYTES && one <= SLOTS * BYTES + 5000);
	}
	refuses_all = true;
	EXPECT(get(&s, 1, true, &r) && s.ep->cache.bytes == 2 * one);
	tt_verbs_region_put(s.ep, r);
	EXPECT(tt_memory_free(s.memory) == 0 && s.ep->cache.bytes == 0);
	EXPECT(tt_memory_alloc(SLOTS * BYTES, (void **)&s.memory) == 0);
	EXPECT(!get(&s, 0, false, &r) && s.ep->cache.bytes == 0);
	s.ep->ib = real;
	refuses_all = false;
	return close_side(&s, world);
}

Test(verbs_zcopy, an_hca_that_refuses_memory_refuses_one_right_on_one_port, .timeout = 60)
{
	setenv("TUTTI_TEST_VERBS_HCAS", "2", 1);
	both(refused_body);
}

/* New memory at the same address in each round. The fake knows keys of deregistered
 * memory. */
static int reused_address_body(const struct tt_world *world, void *arg)
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
			EXPECT(!send_from(&s, world, p, BYTES, i));
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

Test(verbs_zcopy, freed_memory_loses_its_registration, .timeout = 60)
{
	both(reused_address_body);
}

/* Five buffers; the bounds admit two registrations, none, or the bytes of one buffer. */
static int bounds_body(const struct tt_world *world, void *arg)
{
	/* registrations, bytes, buffers that stay registered */
	const int *bound = ((struct setup *)arg)->arg;
	struct tt_verbs_settings set = { .devices = "",
					 .gid_index = -1,
					 .timeout = -1,
					 .retries = -1,
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
		EXPECT(!send_from(&s, world, p[i % 5], BYTES, i));
		EXPECT(receive_at(&s, world, NULL, BYTES, i) == 0);
		EXPECT(s.ep->cache.count <= bound[2]);
	}
	EXPECT(s.ep->cache.count == bound[2] && s.ep->zcopy_sent == (bound[2] ? 25 : 0));
	EXPECT(tt_verbs.zcopy_ops->can_send(s.l, s.memory, SLOTS * BYTES) == (bound[2] == 2));
	for (int i = 0; i < 5; i++)
		EXPECT(tt_memory_free(p[i]) == 0);
	return close_side(&s, world);
}

Test(verbs_zcopy, registrations_stay_within_their_bounds, .timeout = 60)
{
	int bounds[][3] = { { 2, 0, 2 }, { 0, 0, 0 }, { 9, BYTES + 5000, 1 } };
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	for (int b = 0; b < 3; b++)
		cr_assert(run_on(&tt_verbs, 2, 1, BYTES, false, bounds_body, bounds[b]) == 0);
}

/* After a failure the peer cannot write to the caller's memory any more, although it has an
 * RTR. */
static int abandoned_body(const struct tt_world *world, void *arg)
{
	struct zcopy_side s;
	const void *data;

	(void)arg;
	EXPECT(!open_side(&s, world));
	if (world->rank == 1) {
		EXPECT(tt_verbs.zcopy_ops->prepost(s.l, 0, slot(&s, 0), BYTES, 1) &&
		       tt_verbs.progress(s.rig.ep) >= 0);
		tt_fail(TT_TIMEOUT, "the cause");
		tt_verbs.zcopy_ops->abandon(s.rig.ep);
		EXPECT(!strcmp(tt_error_text(), "the cause"));
	}
	harness_barrier(world, 0);
	if (world->rank == 0) {
		fill(slot(&s, 0), BYTES, 1);
		EXPECT(tt_verbs.post(s.l, slot(&s, 0), BYTES, 1) == 1);
	}
	harness_barrier(world, 0);
	if (world->rank == 1) {
		EXPECT(slot(&s, 0)[0] == 0 && !memcmp(slot(&s, 0), slot(&s, 0) + 1, BYTES - 1));
		EXPECT(tt_verbs.peek(s.l, BYTES, 1, &data) == TT_REMOTE);
		EXPECT(strstr(tt_error_text(), "a call before this one failed"));
	} else {
		EXPECT(s.l->completed < s.l->posted);
		tt_verbs.zcopy_ops->abandon(s.rig.ep);
	}
	return close_side(&s, world);
}

Test(verbs_zcopy, nothing_is_written_to_a_receive_buffer_after_a_failure, .timeout = 60)
{
	both(abandoned_body);
}
