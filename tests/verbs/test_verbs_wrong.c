/*
 * test_verbs_wrong.c - a peer of the verbs transport that says what is not so: in the cards of the
 * join, in the hello of a queue pair, in immediates, heads, rtrs and keys
 *
 * Two ranks over the fake library (tests/scripts/verbs.sh). Rank 1 is the liar. What must hold: rank 0
 * has an error that names rank 1, or takes no notice; nothing outside of a ring or a table is read
 * or written, which AddressSanitizer and the pages behind a ring tell.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/harness_traffic.h"
#include "mem/memory.h"
#include "transports/verbs/verbs.h"

#define BYTES (64u << 10)

static void both(body_fn *body)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, 1, BYTES, false, body, NULL) == 0);
	cr_assert(run_on(&tt_verbs, 2, 1, BYTES, true, body, NULL) == 0);
}

static bool says(const char *words)
{
	return strstr(tt_error_text(), "rank 1") && strstr(tt_error_text(), words);
}

/* ---- cards ----------------------------------------------------------------------------------- */

/* An allgather that spoils what rank 1 says. */
static struct false_claim {
	const struct tt_world *world;
	void (*spoil)(struct tt_verbs_record *card);
} lie;

static int lying_allgather(void *ctx, const void *mine, size_t bytes, void *all)
{
	int rc = lie.world->allgather(ctx, mine, bytes, all);

	if (bytes == sizeof(struct tt_verbs_record))
		lie.spoil((struct tt_verbs_record *)all + 1);
	return rc;
}

static void many_rails(struct tt_verbs_record *card) { card->nrails = 255; }
static void many_gids(struct tt_verbs_record *card) { card->rail[0].ngids = 255; }
static void first_of_none(struct tt_verbs_record *card) { card->first = 200; }
static void no_rails(struct tt_verbs_record *card) { card->nrails = 0; }

static int cards_body(const struct tt_world *world, void *arg)
{
	static void (*const spoils[])(struct tt_verbs_record *) = { many_rails, many_gids,
								first_of_none, no_rails };
	struct tt_world liar = *world;
	struct tt_endpoint *ep;

	(void)arg;
	lie.world = world;
	liar.allgather = lying_allgather;
	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
		lie.spoil = spoils[i];
		EXPECT(tt_verbs.open(&liar, &ep) == TT_REMOTE);
		EXPECT(says("invalid record"));
	}
	return 0;
}

Test(verbs_wrong, cards_that_cannot_be_are_refused, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, 1, BYTES, false, cards_body, NULL) == 0);
}

/* ---- hellos ---------------------------------------------------------------------------------- */

static struct tt_verbs_hello hello_like(const struct tt_verbs_hello *theirs)
{
	struct tt_verbs_hello h = *theirs;

	memset(h.name, 'x', sizeof(h.name));   /* no end */
	return h;
}

/* The liar: takes the socket, reads rank 0's hello, answers with that, changed. */
static int answer(const struct tt_world *world, int which)
{
	struct tt_verbs_hello theirs, h;
	int fd, rc;

	while (!(rc = world->take(world->ctx, 0, which, &fd)))
		;
	EXPECT(rc == 1 && recv(fd, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs));
	h = hello_like(&theirs);
	if (which == 0)
		h.magic++;
	else if (which == 1)
		h.ring_bytes *= 2;
	else if (which == 2)
		h.ring_bytes = 0;
	else if (which == 3)
		h.mtu = 0;
	EXPECT(send(fd, &h, which == 4 ? 7 : sizeof(h), MSG_NOSIGNAL) > 0);
	close(fd);
	return 0;
}

#define HELLOS 5

static int hello_body(const struct tt_world *world, void *arg)
{
	struct tt_endpoint *ep;
	struct tt_link *l;
	int rc;

	(void)arg;
	EXPECT(tt_verbs.open(world, &ep) == 0);
	for (int which = 0; which < HELLOS && world->rank == 1; which++)
		EXPECT(!answer(world, which));
	for (int which = 0; which < HELLOS && world->rank == 0; which++) {
		EXPECT(tt_verbs.connect(ep, 1, which, &l) == 0);
		while (!(rc = tt_verbs.ready(l)))
			;
		EXPECT(rc < 0 && says("rank 1"));
	}
	harness_barrier(world, 0);
	ep->t->close(ep);
	return 0;
}

Test(verbs_wrong, hellos_that_cannot_be_are_refused, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, HELLOS, BYTES, false, hello_body, NULL) == 0);
}

/* ---- messages -------------------------------------------------------------------------------- */

struct wrong_side { struct rig rig; struct tt_verbs_link *l; struct tt_verbs_ep *ep; };

static int open_side(struct wrong_side *s, const struct tt_world *world)
{
	EXPECT(rig_open(&s->rig, &tt_verbs, world, 1) == 0);
	s->l = (struct tt_verbs_link *)s->rig.links[peer_of(world)];
	s->ep = (struct tt_verbs_ep *)s->rig.ep;
	return 0;
}

static int close_side(struct wrong_side *s, const struct tt_world *world)
{
	harness_barrier(world, 0);
	rig_close(&s->rig);
	return 0;
}

/* Waits until something came or is wrong. */
static int take(struct wrong_side *s, size_t bytes, const void **ret_data)
{
	uint64_t deadline = tt_deadline_ns(20000);
	int rc;

	while (!(rc = tt_verbs.peek(&s->l->base, bytes, 1, ret_data)) && tt_now_ns() < deadline)
		;
	return rc;
}

/* A record whose head is right and lies so near the ring's end that its bytes do not fit. */
static void send_over_the_end(struct wrong_side *s)
{
	struct tt_verbs_link *l = s->l;
	struct tt_verbs_head *h = (struct tt_verbs_head *)l->ring;
	struct tt_verbs_sge piece = { (uintptr_t)l->ring, sizeof(*h), l->tx_mr->lkey };

	*h = (struct tt_verbs_head){ .magic = 0x5476, .version = 1, .bytes = BYTES, .stamp = 1 };
	tt_verbs_send_imm(l, &piece, 1, l->hello.ring + l->ring_bytes - sizeof(*h), l->hello.rkey,
		       (uint32_t)(l->ring_bytes / TT_LINE - 1), true);
}

/* Immediates that say something wrong, one to a rig */
static int imm_body(const struct tt_world *world, void *arg)
{
	int which = *(const int *)((struct setup *)arg)->arg;
	const void *data = NULL;
	struct wrong_side s;

	EXPECT(!open_side(&s, world));
	if (world->rank == 1) {
		if (which == 0)
			tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey,
				       TT_VERBS_LINE_MASK, true);
		else if (which == 1)
			send_over_the_end(&s);
		else if (which == 2)           /* zero copy, without a preposted receive */
			tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey,
				       TT_VERBS_ZCOPY | TT_VERBS_FROM_RING, true);
		else                           /* no head there */
			tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey, 0, true);
		EXPECT(!s.ep->failed);
	} else {
		for (int twice = 0; twice < 2; twice++) {
			EXPECT(take(&s, BYTES, &data) == TT_REMOTE && !data);
			EXPECT(says(which == 0 || which == 1 ? "outside of the ring"
				    : which == 2	     ? "zero-copy message"
							     : "not a message"));
		}
	}
	return close_side(&s, world);
}

Test(verbs_wrong, immediates_that_cannot_be_are_errors, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	for (int which = 0; which < 4; which++)
		for (int threads = 0; threads < 2; threads++)
			cr_assert(run_on(&tt_verbs, 2, 1, BYTES, threads, imm_body, &which) == 0,
				  "%d", which);
}

/* More releases than there were messages: they free nothing. */
static int releases_body(const struct tt_world *world, void *arg)
{
	static uint8_t buf[100];
	struct wrong_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	if (world->rank == 1) {
		for (uint64_t lies = 1; lies < 512; lies += 37) {
			s.l->base.received = lies;
			tt_verbs_send_control(s.l, 0, true);
		}
		s.l->base.received = 0;
		EXPECT(!s.ep->failed);
	}
	harness_barrier(world, 0);
	if (world->rank == 0) {
		for (int i = 0; i < 100; i++)
			EXPECT(tt_verbs.progress(s.rig.ep) >= 0);
		EXPECT(s.l->freed == 0 && s.l->freed_tail == 0);
		EXPECT(send_one(&s.l->base, buf, sizeof(buf), 1) == 0);
	} else {
		EXPECT(receive_one(&s.l->base, buf, sizeof(buf), 1) == 0);
	}
	return close_side(&s, world);
}

Test(verbs_wrong, releases_of_what_was_not_sent_free_nothing, .timeout = 60)
{
	both(releases_body);
}

/* More messages than anybody may have under way: the places of the first would be taken. */
static int flood_body(const struct tt_world *world, void *arg)
{
	struct wrong_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	for (int i = 0; i < TT_VERBS_MESSAGES + 8 && world->rank == 1; i++)
		tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey, 0, true);
	harness_barrier(world, 0);
	if (world->rank == 0) {
		for (int i = 0; i < 100 && !s.ep->failed; i++)
			tt_verbs.progress(s.rig.ep);
		EXPECT(tt_verbs.progress(s.rig.ep) == TT_REMOTE && says("more messages"));
	}
	return close_side(&s, world);
}

Test(verbs_wrong, more_messages_than_credits_are_an_error, .timeout = 60)
{
	both(flood_body);
}

/* ---- rtrs ---------------------------------------------------------------------------------- */

/* Any bytes in the table of rtrs: none of them is one, and messages come by the ring. */
static int garbage_body(const struct tt_world *world, void *arg)
{
	static uint8_t buf[BYTES];
	struct wrong_side s;
	void *from;

	(void)arg;
	EXPECT(!open_side(&s, world) && !tt_memory_alloc(BYTES, &from));
	for (uint32_t i = 0; i < 300; i++) {
		if (world->rank == 1) {
			struct tt_verbs_rtr w;
			uint64_t words[4];

			for (int k = 0; k < 4; k++)
				words[k] = mix(4 * i + (uint32_t)k + 1);
			memcpy(&w, words, sizeof(w));
			w.number = i;          /* the next message, of that length and stamp */
			w.bytes = BYTES;
			w.stamp = i;
			tt_verbs_queue_rtr(s.l, &w);
			tt_verbs_send_rtrs(s.ep);
			EXPECT(!s.ep->failed);
		}
		harness_barrier(world, 0);
		if (world->rank == 0)
			EXPECT(send_one(&s.l->base, from, BYTES, i) == 0);
		else
			EXPECT(receive_one(&s.l->base, buf, BYTES, i) == 0);
	}
	EXPECT(!tt_memory_free(from));
	return close_side(&s, world);
}

Test(verbs_wrong, bytes_that_are_no_wish_are_none, .timeout = 60)
{
	both(garbage_body);
}

/* A rtr for memory that is no longer: the card refuses the key, and the sender says so. */
static int stale_body(const struct tt_world *world, void *arg)
{
	uint64_t deadline = tt_deadline_ns(20000);
	static uint8_t buf[BYTES];
	struct wrong_side s;
	void *p;

	(void)arg;
	EXPECT(!open_side(&s, world) && !tt_memory_alloc(BYTES, &p));
	if (world->rank == 1)
		EXPECT(tt_verbs.zcopy_ops->prepost(&s.l->base, 0, p, BYTES, 1) &&
		       tt_verbs.progress(s.rig.ep) >= 0);
	EXPECT(!tt_memory_free(p));
	harness_barrier(world, 0);
	if (world->rank == 0) {
		EXPECT(try_send(&s.l->base, buf, BYTES, 1));
		while (!s.ep->failed && tt_now_ns() < deadline)
			tt_verbs.progress(s.rig.ep);
		EXPECT(tt_verbs.progress(s.rig.ep) == TT_REMOTE && says("may not be written"));
	}
	return close_side(&s, world);
}

Test(verbs_wrong, a_key_of_memory_that_went_is_refused_by_the_card, .timeout = 60)
{
	both(stale_body);
}
