/*
 * test_verbs_wrong.c - wrong messages of a verbs peer: records of the init, hellos of queue pairs,
 * immediates, heads, RTRs and keys
 *
 * Two ranks over the fake library (tests/scripts/verbs.sh). Rank 1 sends wrong messages. Claims: rank 0
 * has an error that names rank 1, or ignores the message; no byte outside of a ring or a table is
 * read or written, as AddressSanitizer and the guard pages behind a ring show.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/harness_traffic.h"
#include "mem/memory.h"
#include "base/sock.h"
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

static bool error_says(const char *text)
{
	return strstr(tt_error_text(), "rank 1") && strstr(tt_error_text(), text);
}

/* ---- records --------------------------------------------------------------------------------- */

/* An allgather that changes the record of rank 1 */
static struct changed_record {
	const struct tt_world *world;
	void (*change)(struct tt_verbs_record *record);
} changed;

static int changed_allgather(void *ctx, const void *mine, size_t bytes, void *all)
{
	int rc = changed.world->allgather(ctx, mine, bytes, all);

	if (bytes == sizeof(struct tt_verbs_record))
		changed.change((struct tt_verbs_record *)all + 1);
	return rc;
}

static void many_rails(struct tt_verbs_record *record)
{
	record->nrails = 255;
}
static void many_gids(struct tt_verbs_record *record)
{
	record->rail[0].ngids = 255;
}
static void first_too_large(struct tt_verbs_record *record)
{
	record->first = 200;
}
static void no_rails(struct tt_verbs_record *record)
{
	record->nrails = 0;
}

static int records_body(const struct tt_world *world, void *arg)
{
	static void (*const changes[])(struct tt_verbs_record *) = { many_rails, many_gids,
								     first_too_large, no_rails };
	struct tt_world wrong = *world;
	struct tt_endpoint *ep;

	(void)arg;
	changed.world = world;
	wrong.allgather = changed_allgather;
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		changed.change = changes[i];
		EXPECT(tt_verbs.open(&wrong, &ep) == TT_REMOTE);
		EXPECT(error_says("invalid record"));
	}
	return 0;
}

Test(verbs_wrong, invalid_records_are_refused, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, 1, BYTES, false, records_body, NULL) == 0);
}

/* ---- hellos ---------------------------------------------------------------------------------- */

static struct tt_verbs_hello hello_like(const struct tt_verbs_hello *theirs)
{
	struct tt_verbs_hello h = *theirs;

	memset(h.name, 'x', sizeof(h.name)); /* no terminating NUL */
	return h;
}

/* Take the socket of a channel, and read rank 0's hello as it is on the wire. */
static int take_hello(const struct tt_world *world, int channel, int *ret_fd,
		      struct tt_data_keys *ret_keys, struct tt_verbs_hello *ret_hello)
{
	int rc;

	while (!(rc = world->take(world->ctx, 0, channel, ret_fd, ret_keys)))
		;
	EXPECT(rc == 1 &&
	       recv(*ret_fd, ret_hello, sizeof(*ret_hello), MSG_WAITALL) == sizeof(*ret_hello));
	return 0;
}

static bool seal_once(const uint8_t key[32], bool seal, struct tt_verbs_hello *hello)
{
	struct tt_seal s;
	bool good = tt_seal_make(&s, key, seal) &&
		    tt_seal_whole(&s, hello, TT_VERBS_HELLO_SEALED, hello->tag);

	tt_seal_free(&s);
	return good;
}

/* Rank 1 takes the socket, reads rank 0's hello, and answers with a changed copy of the hello. */
static int answer(const struct tt_world *world, int which)
{
	struct tt_verbs_hello theirs, h;
	struct tt_data_keys keys;
	int fd;

	EXPECT(!take_hello(world, which, &fd, &keys, &theirs));
	EXPECT(seal_once(keys.recv, false, &theirs));
	h = hello_like(&theirs);
	if (which == 0)
		h.magic++;
	else if (which == 1)
		h.ring_bytes *= 2;
	else if (which == 2)
		h.ring_bytes = 0;
	else if (which == 3)
		h.mtu = 0;
	EXPECT(seal_once(keys.send, true, &h));
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
		EXPECT(rc < 0 && error_says("rank 1"));
	}
	harness_barrier(world, 0);
	ep->t->close(ep);
	return 0;
}

Test(verbs_wrong, invalid_hellos_are_refused, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, HELLOS, BYTES, false, hello_body, NULL) == 0);
}

/* Does a part of a hello that is not zero lie on the wire as it is? */
static bool reveals(const struct tt_verbs_hello *wire, const void *part, size_t bytes)
{
	return memmem(wire, sizeof(*wire), part, bytes) != NULL;
}

/* Rank 1 sends rank 0's hello back with its own key, one bit of it changed. */
static int answer_altered(const struct tt_world *world, int bit)
{
	struct tt_verbs_hello wire, plain;
	struct tt_data_keys keys;
	int fd;

	EXPECT(!take_hello(world, bit, &fd, &keys, &wire));
	plain = wire;
	EXPECT(seal_once(keys.recv, false, &plain));
	EXPECT(!reveals(&wire, &plain.magic, sizeof(plain.magic)) &&
	       !reveals(&wire, &plain.rkey, sizeof(plain.rkey)) &&
	       !reveals(&wire, &plain.ring, sizeof(plain.ring)) && !reveals(&wire, plain.name, 4));
	EXPECT(seal_once(keys.send, true, &plain));
	((uint8_t *)&plain)[bit * 9] ^= (uint8_t)(1 << bit % 8);
	EXPECT(send(fd, &plain, sizeof(plain), MSG_NOSIGNAL) == sizeof(plain));
	close(fd);
	return 0;
}

#define ALTERED 12 /* bits, of keys and addresses, and of the tag */

static int altered_body(const struct tt_world *world, void *arg)
{
	struct tt_endpoint *ep;
	struct tt_link *l;
	int rc;

	(void)arg;
	EXPECT(tt_verbs.open(world, &ep) == 0);
	for (int bit = 0; bit < ALTERED && world->rank == 1; bit++)
		EXPECT(!answer_altered(world, bit));
	for (int bit = 0; bit < ALTERED && world->rank == 0; bit++) {
		EXPECT(tt_verbs.connect(ep, 1, bit, &l) == 0);
		while (!(rc = tt_verbs.ready(l)))
			;
		EXPECT(rc == TT_REMOTE && error_says("queue pair was altered on the way"));
	}
	harness_barrier(world, 0);
	ep->t->close(ep);
	return 0;
}

Test(verbs_wrong, keys_and_addresses_of_a_queue_pair_are_secret_and_unaltered_on_the_wire,
     .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, ALTERED, BYTES, false, altered_body, NULL) == 0);
}

/* ---- messages -------------------------------------------------------------------------------- */

struct verbs_wrong_side {
	struct rig rig;
	struct tt_verbs_link *l;
	struct tt_verbs_ep *ep;
};

static int open_side(struct verbs_wrong_side *s, const struct tt_world *world)
{
	EXPECT(rig_open(&s->rig, &tt_verbs, world, 1) == 0);
	s->l = (struct tt_verbs_link *)s->rig.links[peer_of(world)];
	s->ep = (struct tt_verbs_ep *)s->rig.ep;
	return 0;
}

static int close_side(struct verbs_wrong_side *s, const struct tt_world *world)
{
	harness_barrier(world, 0);
	rig_close(&s->rig);
	return 0;
}

/* Waits until a message arrives or the link fails. */
static int await_message(struct verbs_wrong_side *s, size_t bytes, const void **ret_data)
{
	uint64_t deadline = tt_deadline_ns(20000);
	int rc;

	while (!(rc = tt_verbs.peek(&s->l->base, bytes, 1, ret_data)) && tt_now_ns() < deadline)
		;
	return rc;
}

/* Sends a message whose head is valid and so near the ring's end that the payload does not fit. */
static void send_past_the_end(struct verbs_wrong_side *s)
{
	struct tt_verbs_link *l = s->l;
	struct tt_verbs_head *h = (struct tt_verbs_head *)l->ring;
	struct tt_verbs_sge piece = { (uintptr_t)l->ring, sizeof(*h), l->tx_mr->lkey };

	*h = (struct tt_verbs_head){ .magic = 0x5476, .version = 1, .bytes = BYTES, .stamp = 1 };
	tt_verbs_send_imm(l, &piece, 1, l->hello.ring + l->ring_bytes - sizeof(*h), l->hello.rkey,
			  (uint32_t)(l->ring_bytes / TT_LINE - 1), true);
}

/* Invalid immediates, one per link */
static int imm_body(const struct tt_world *world, void *arg)
{
	int which = *(const int *)((struct setup *)arg)->arg;
	const void *data = NULL;
	struct verbs_wrong_side s;

	EXPECT(!open_side(&s, world));
	if (world->rank == 1) {
		if (which == 0)
			tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey,
					  TT_VERBS_LINE_MASK, true);
		else if (which == 1)
			send_past_the_end(&s);
		else if (which == 2) /* zero copy, without a preposted receive */
			tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey,
					  TT_VERBS_ZCOPY | TT_VERBS_FROM_RING, true);
		else /* no head at that line */
			tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey, 0, true);
		EXPECT(!s.ep->failed);
	} else {
		for (int twice = 0; twice < 2; twice++) {
			EXPECT(await_message(&s, BYTES, &data) == TT_REMOTE && !data);
			EXPECT(error_says(which == 0 || which == 1 ? "outside of the ring"
					  : which == 2             ? "zero-copy message"
								   : "not a message"));
		}
	}
	return close_side(&s, world);
}

Test(verbs_wrong, invalid_immediates_are_errors, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	for (int which = 0; which < 4; which++)
		for (int threads = 0; threads < 2; threads++)
			cr_assert(run_on(&tt_verbs, 2, 1, BYTES, threads, imm_body, &which) == 0,
				  "%d", which);
}

/* Releases of more messages than were sent free no ring space. */
static int releases_body(const struct tt_world *world, void *arg)
{
	static uint8_t buf[100];
	struct verbs_wrong_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	if (world->rank == 1) {
		for (uint64_t n = 1; n < 512; n += 37) {
			s.l->base.received = n;
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

Test(verbs_wrong, releases_of_unsent_messages_free_nothing, .timeout = 60)
{
	both(releases_body);
}

/* More messages than credits: they would overwrite the slots of the first. */
static int flood_body(const struct tt_world *world, void *arg)
{
	struct verbs_wrong_side s;

	(void)arg;
	EXPECT(!open_side(&s, world));
	for (int i = 0; i < TT_VERBS_MESSAGES + 8 && world->rank == 1; i++)
		tt_verbs_send_imm(s.l, NULL, 0, s.l->hello.ring, s.l->hello.rkey, 0, true);
	harness_barrier(world, 0);
	if (world->rank == 0) {
		for (int i = 0; i < 100 && !s.ep->failed; i++)
			tt_verbs.progress(s.rig.ep);
		EXPECT(tt_verbs.progress(s.rig.ep) == TT_REMOTE && error_says("more messages"));
	}
	return close_side(&s, world);
}

Test(verbs_wrong, more_messages_than_credits_are_an_error, .timeout = 60)
{
	both(flood_body);
}

/* ---- RTRs ------------------------------------------------------------------------------------ */

/* Random bytes in the RTR table match no message, so messages use the ring. */
static int garbage_body(const struct tt_world *world, void *arg)
{
	static uint8_t buf[BYTES];
	struct verbs_wrong_side s;
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
			w.number = i; /* number, length and stamp of the next message */
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

Test(verbs_wrong, garbage_in_the_rtr_table_is_no_rtr, .timeout = 60)
{
	both(garbage_body);
}

/* An RTR for freed memory: the HCA refuses the key, and the sender reports the refusal. */
static int stale_key_body(const struct tt_world *world, void *arg)
{
	uint64_t deadline = tt_deadline_ns(20000);
	static uint8_t buf[BYTES];
	struct verbs_wrong_side s;
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
		EXPECT(tt_verbs.progress(s.rig.ep) == TT_REMOTE &&
		       error_says("may not be written"));
	}
	return close_side(&s, world);
}

Test(verbs_wrong, a_key_of_freed_memory_is_refused_by_the_hca, .timeout = 60)
{
	both(stale_key_body);
}
