/*
 * test_doze.c - dozing ranks: a message, free space on a full link and a call of wake end a doze
 *
 * The tests run for every row of tt_transports, as in test_transports.c. A lost wake shows as a
 * doze until its timeout.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/harness_traffic.h"

#define DOZE_US 30000000               /* far longer than any wait on a busy machine */
#define LOST_WAKE_NS (DOZE_US / 2 * 1000ull)

/* Wait for one message by dozing only; *slept_long counts dozes with a lost wake. */
static int doze_receive(struct tt_link *l, uint64_t *slept_long)
{
	struct tt_endpoint *ep = l->ep;
	const void *data;
	int rc;

	while (!(rc = l->t->peek(l, 8, 9, &data))) {
		uint32_t ticket = l->t->arm(ep);
		uint64_t start = tt_now_ns();

		rc = l->t->peek(l, 8, 9, &data);
		if (!rc)
			l->t->doze(ep, ticket, DOZE_US);
		l->t->disarm(ep);
		*slept_long += tt_now_ns() - start > LOST_WAKE_NS;
		if (rc)
			break;
	}
	if (rc > 0)
		l->t->release(l);
	return rc;
}

static int ping_pong_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	uint64_t rounds = *(const uint64_t *)setup->arg, slept_long = 0;
	struct rig rig;
	struct tt_link *l;

	EXPECT(rig_open(&rig, setup->t, world, 1) == 0);
	l = rig.links[peer_of(world)];
	for (uint64_t i = 0; i < rounds; i++) {
		if (world->rank == 0)
			EXPECT(send_one(l, &i, 8, 9) == 0);
		EXPECT(doze_receive(l, &slept_long) == 1);
		if (world->rank == 1)
			EXPECT(send_one(l, &i, 8, 9) == 0);
	}
	EXPECT(slept_long == 0);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(doze, no_wake_is_lost_in_100000_hops, .timeout = 300)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int threads = 0; threads < 2 && *t != &tt_self && runs(*t); threads++) {
			uint64_t rounds = *t == &tt_shm && !threads ? 50000 : 10000;

			cr_assert(run_on(*t, 2, 1, 4096, threads, ping_pong_body, &rounds) == 0);
		}
}

Test(doze, messages_and_free_space_end_a_doze, .timeout = 120)
{
	struct traffic tr = { .nchannels = 2, .messages = 2000, .sleepy = true, .seed = 6 };

	cr_assert(run_all(3, 2, 10000, traffic_body, &tr) == 0);
}

struct full_link { size_t bytes; atomic_bool refused; };

/* Rank 0 only sends, and dozes after each refused send; rank 1 only receives, after the first
 * refusal, with long pauses. */
static int full_link_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	struct full_link *full_link = setup->arg;
	size_t bytes = full_link->bytes;
	uint64_t slept_long = 0, start;
	uint8_t *buf = calloc(2, bytes), *in = buf + bytes;
	struct rig rig;
	struct tt_link *l;
	uint32_t ticket;

	EXPECT(rig_open(&rig, setup->t, world, 1) == 0);
	l = rig.links[peer_of(world)];
	while (world->rank == 1 && !full_link->refused)
		usleep(1000);
	for (int i = 0; i < 300 && world->rank == 1; i++) {
		if (i % 60 == 0)
			usleep(20000);
		EXPECT(receive_one(l, in, bytes, 9) == 0);
	}
	for (int i = 0; i < 300 && world->rank == 0; i++)
		while (!try_send(l, buf, bytes, 9)) {
			full_link->refused = true;
			ticket = setup->t->arm(rig.ep);
			start = tt_now_ns();
			if (try_send(l, buf, bytes, 9)) {
				setup->t->disarm(rig.ep);
				break;
			}
			setup->t->doze(rig.ep, ticket, DOZE_US);
			setup->t->disarm(rig.ep);
			slept_long += tt_now_ns() - start > LOST_WAKE_NS;
		}
	while (l->completed < l->posted) {
		uint64_t before = l->completed;
		int moved = setup->t->progress(rig.ep);

		EXPECT(moved > 0 || (moved == 0 && l->completed == before));
	}
	EXPECT(slept_long == 0);
	harness_barrier(world, 0);
	rig_close(&rig);
	free(buf);
	return 0;
}

Test(doze, free_space_ends_the_doze_of_a_sender, .timeout = 120)
{
	static const size_t sizes[] = { 1 << 20, 20000, 8 };
	struct full_link *full_link = mmap(NULL, sizeof(*full_link), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int i = 0; i < 3 && *t != &tt_self && runs(*t); i++) {
			if ((*t)->flags & TT_T_POST && sizes[i] < 1 << 20)
				/* small messages would all fit into a socket buffer */
				break;
			for (int threads = 0; threads < 2; threads++) {
				*full_link = (struct full_link){ .bytes = sizes[i] };
				cr_assert(run_on(*t, 2, 1, 1 << 20, threads, full_link_body,
						 full_link) == 0);
			}
		}
}

static void *wake_later(void *arg)
{
	struct tt_endpoint *ep = arg;

	usleep(30000);
	ep->t->wake(ep);
	return NULL;
}

static int wake_body(const struct tt_world *world, void *arg)
{
	const struct tt_transport *t = ((struct setup *)arg)->t;
	uint64_t start = tt_now_ns();
	pthread_t thread;
	struct rig rig;
	uint32_t ticket;

	EXPECT(rig_open(&rig, t, world, 1) == 0);
	ticket = t->arm(rig.ep);
	t->wake(rig.ep);
	t->doze(rig.ep, ticket, 20000000);         /* a wake between arm and doze is not lost */
	t->disarm(rig.ep);
	for (int i = 0; i < 3; i++) {
		EXPECT(pthread_create(&thread, NULL, wake_later, rig.ep) == 0);
		ticket = t->arm(rig.ep);
		t->doze(rig.ep, ticket, 20000000);
		t->disarm(rig.ep);
		pthread_join(thread, NULL);
	}
	EXPECT(tt_now_ns() - start < 10000000000ull);
	start = tt_now_ns();
	for (int i = 0; i < 20; i++) {             /* without a wake the timeout ends the doze */
		ticket = t->arm(rig.ep);
		t->doze(rig.ep, ticket, 2000);
		t->disarm(rig.ep);
	}
	EXPECT(tt_now_ns() - start > 10000000 && tt_now_ns() - start < 5000000000ull);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(doze, a_wake_from_another_thread_ends_a_doze, .timeout = 120)
{
	cr_assert(run_all(2, 1, 4096, wake_body, NULL) == 0);
}
