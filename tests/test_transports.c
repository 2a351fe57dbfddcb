/*
 * test_transports.c - the conformance suite: what transport.h promises, for every row of tt_transports
 *
 * Ranks are forked processes and, in a second pass, threads of one process. self runs with one rank, the others with
 * two or more. What only one transport promises stands at the end.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness_traffic.h"

#define LARGE (256u << 10)
#define LOST_WAKE_NS 1000000000ull

/* ---- allocations and claims of memory, counted and refused ------------------------------------------------------- */

static _Atomic uint64_t allocations;
static int claims_left = -1;           /* fallocate fails after so many; -1 never */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

__attribute__((weak)) void *malloc(size_t bytes)
{
	allocations++;
	return __libc_malloc(bytes);
}

__attribute__((weak)) void *calloc(size_t n, size_t bytes)
{
	allocations++;
	return __libc_calloc(n, bytes);
}

__attribute__((weak)) void *aligned_alloc(size_t align, size_t bytes)
{
	allocations++;
	return __libc_memalign(align, bytes);
}
#endif

__attribute__((weak)) int fallocate(int fd, int mode, off_t at, off_t bytes)
{
	if (claims_left == 0) {
		errno = ENOSPC;
		return -1;
	}
	if (claims_left > 0)
		claims_left--;
	return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}

/* ---- running a body as every rank over every transport ----------------------------------------------------------- */

struct setup {
	const struct tt_transport *t;
	void *arg;
};

typedef int body_fn(const struct tt_world *world, void *arg);

static void run_on(const struct tt_transport *t, int nranks, int nchannels, size_t message_bytes, bool threads,
		   body_fn *body, void *arg)
{
	struct harness h = { .nranks = t == &tt_self ? 1 : nranks, .nchannels = nchannels,
			     .message_bytes = message_bytes, .threads = threads, .takes_before_socket = 3 };
	struct setup setup = { t, arg };
	uint64_t failed = harness_run(&h, body, &setup);

	cr_assert(failed == 0, "%s, ranks are %s: ranks %#llx failed", t->name, threads ? "threads" : "processes",
		  (unsigned long long)failed);
}

static void run_all(int nranks, int nchannels, size_t message_bytes, body_fn *body, void *arg)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int threads = 0; threads < 2; threads++)
			run_on(*t, nranks, nchannels, message_bytes, threads, body, arg);
}

static int traffic_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	struct traffic tr = *(const struct traffic *)setup->arg;
	struct rig rig;

	tr.t = setup->t;
	EXPECT(rig_open(&rig, tr.t, world, tr.nchannels) == 0);
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	EXPECT(tr.t->memory(rig.ep) > 0);
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

static int peer_of(const struct tt_world *world)
{
	return world->nranks == 1 ? 0 : 1 - world->rank;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

Test(transports, the_table_is_in_order_of_preference_and_complete, .timeout = 30)
{
	cr_assert(tt_transports[0] == &tt_self && tt_transports[1] == &tt_shm && tt_transports[2] == &tt_tcp);
	for (const struct tt_transport *const *t = tt_transports; *t; t++) {
		char why[64] = "";
		unsigned way = (*t)->flags & (TT_T_RESERVE | TT_T_POST);

		cr_assert(way == TT_T_RESERVE || way == TT_T_POST);
		cr_assert((*t)->probe(why, sizeof(why)) == 1, "%s: %s", (*t)->name, why);
	}
}

Test(transports, messages_of_every_size_arrive_in_order_on_independent_channels, .timeout = 120)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 9, 47, 48, 49, 55, 56, 57, 63, 64, 65, 127, 128, 511, 512, 513, 4095, 4096,
					4097, 5000, 16383, 32767, 32768, 39999, 40000 };
	struct traffic tr = { .nchannels = 3, .messages = 1200, .sizes = sizes,
			      .nsizes = sizeof(sizes) / sizeof(sizes[0]), .seed = 1 };

	run_all(2, 3, 40000, traffic_body, &tr);
}

Test(transports, random_traffic_among_four_ranks_is_right, .timeout = 120)
{
	struct traffic tr = { .nchannels = 2, .messages = 500, .seed = 2 };

	run_all(4, 2, 30000, traffic_body, &tr);
}

Test(transports, message_numbers_and_slots_come_round_many_times, .timeout = 120)
{
	static const size_t sizes[] = { 8, 8, 8, 300, 8, 56, 57 };
	struct traffic tr = { .nchannels = 1, .messages = 100000, .sizes = sizes, .nsizes = 7, .seed = 3 };

	run_all(2, 1, 4096, traffic_body, &tr);
}

Test(transports, large_messages_both_ways_at_once_do_not_deadlock, .timeout = 120)
{
	static const size_t sizes[] = { 4u << 20 };
	struct traffic tr = { .nchannels = 2, .messages = 24, .sizes = sizes, .nsizes = 1, .seed = 4 };

	run_all(2, 2, 4u << 20, traffic_body, &tr);
}

Test(transports, a_slow_reader_loses_nothing, .timeout = 120)
{
	struct traffic tr = { .nchannels = 2, .messages = 1500, .slow_reader = true, .seed = 5 };

	run_all(2, 2, 20000, traffic_body, &tr);
}

/* Nobody reads until the writer is refused; then all that was taken must come. */
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
	sent = harness_meet(world, sent);
	for (uint64_t i = 0; i < sent && world->rank == world->nranks - 1; i++) {
		EXPECT(receive_one(l, buf, 16384, (uint32_t)i) == 0);
		EXPECT(buf[0] == (t->flags & TT_T_RESERVE ? i % 251 : 0) && buf[16383] == buf[0]);
	}
	while (l->completed < l->posted)
		EXPECT(!t->progress || t->progress(rig.ep) >= 0);
	EXPECT(l->received == (world->rank == world->nranks - 1 ? sent : 0));
	harness_meet(world, 0);
	rig_close(&rig);
	free(buf);
	return 0;
}

Test(transports, a_writer_is_refused_before_memory_grows_without_end, .timeout = 120)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		run_on(*t, 2, 1, 16384, false, flood_body, NULL);   /* threads share one zeros[]: forks only */
}

/* ---- wrong calls --------------------------------------------------------------------------------------------------- */

static int mismatch_body(const struct tt_world *world, void *arg)
{
	static const struct { size_t sent, expected; uint32_t stamp; } wrong[] = {
		{ 8, 8, 4712 }, { 8, 16, 4711 }, { 16, 8, 4711 }, { 56, 57, 4711 }, { 57, 56, 4711 }, { 5000, 5000, 4712 },
		{ 5000, 5001, 4711 }, { 8000, 8, 4711 }, { 8, 8000, 4711 }, { 0, 8, 4711 },
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
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, another_stamp_or_length_is_found, .timeout = 60)
{
	run_all(2, 10, 8192, mismatch_body, NULL);
}

/* ---- sleep --------------------------------------------------------------------------------------------------------- */

/* Wait for one message by dozing only; a wake that is lost shows as a doze to its time-out. */
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
			l->t->doze(ep, ticket, 3000000);
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
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, no_wake_is_lost_in_100000_hops, .timeout = 300)
{
	uint64_t rounds = 50000;

	run_on(&tt_shm, 2, 1, 4096, false, ping_pong_body, &rounds);
	rounds = 10000;
	run_on(&tt_shm, 2, 1, 4096, true, ping_pong_body, &rounds);
	run_on(&tt_tcp, 2, 1, 4096, false, ping_pong_body, &rounds);
	run_on(&tt_tcp, 2, 1, 4096, true, ping_pong_body, &rounds);
}

Test(transports, sleepers_are_woken_by_messages_and_by_room, .timeout = 120)
{
	struct traffic tr = { .nchannels = 2, .messages = 2000, .sleepy = true, .seed = 6 };

	run_all(3, 2, 10000, traffic_body, &tr);
}

/* Take or refuse a message, without waiting. */
static bool try_send(struct tt_link *l, const void *buf, size_t bytes)
{
	void *room;

	if (l->t->flags & TT_T_POST) {
		if (l->t->progress)
			l->t->progress(l->ep);
		return l->t->post(l, buf, bytes, 9) == 1;
	}
	room = l->t->reserve(l, bytes);
	if (!room)
		return false;
	memcpy(room, buf, bytes);
	l->t->commit(l, bytes, 9);
	return true;
}

/* Rank 0 only sends, and dozes whenever it is refused; rank 1 only receives, with long pauses. */
static int room_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	size_t bytes = *(const size_t *)setup->arg;
	uint64_t slept_long = 0, refused = 0, start;
	uint8_t *buf = calloc(2, bytes), *in = buf + bytes;
	struct rig rig;
	struct tt_link *l;
	uint32_t ticket;

	EXPECT(rig_open(&rig, setup->t, world, 1) == 0);
	l = rig.links[peer_of(world)];
	for (int i = 0; i < 300 && world->rank == 1; i++) {
		if (i % 60 == 0)
			usleep(20000);
		EXPECT(receive_one(l, in, bytes, 9) == 0);
	}
	for (int i = 0; i < 300 && world->rank == 0; i++)
		while (!try_send(l, buf, bytes)) {
			ticket = setup->t->arm(rig.ep);
			start = tt_now_ns();
			if (try_send(l, buf, bytes)) {
				setup->t->disarm(rig.ep);
				break;
			}
			setup->t->doze(rig.ep, ticket, 3000000);
			setup->t->disarm(rig.ep);
			slept_long += tt_now_ns() - start > LOST_WAKE_NS;
			refused++;
		}
	while (l->completed < l->posted)
		EXPECT(setup->t->progress(rig.ep) >= 0);
	EXPECT(slept_long == 0);
	EXPECT(world->rank == 1 || refused > 0);
	harness_meet(world, 0);
	rig_close(&rig);
	free(buf);
	return 0;
}

Test(transports, a_writer_that_sleeps_is_woken_by_room, .timeout = 120)
{
	static const size_t sizes[] = { 8, 20000, 1 << 20 };

	for (int i = 0; i < 3; i++)
		for (int threads = 0; threads < 2; threads++) {
			run_on(&tt_shm, 2, 1, 1 << 20, threads, room_body, (void *)&sizes[i]);
			if (sizes[i] == 1 << 20)               /* smaller ones all fit into the socket */
				run_on(&tt_tcp, 2, 1, 1 << 20, threads, room_body, (void *)&sizes[i]);
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
	for (int i = 0; i < 20; i++) {             /* and without any wake, the time-out ends it */
		ticket = t->arm(rig.ep);
		t->doze(rig.ep, ticket, 2000);
		t->disarm(rig.ep);
	}
	EXPECT(tt_now_ns() - start > 10000000 && tt_now_ns() - start < 5000000000ull);
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, wake_ends_a_doze_from_another_thread, .timeout = 120)
{
	run_all(2, 1, 4096, wake_body, NULL);
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */

/* Rank 0 sends until it is refused and closes at once, with a message of the peer unread; all that was taken from it must
 * still come, also what the peer's socket had no room for. */
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
	harness_meet(world, 0);
	while (world->rank == 0 && try_send(l, buf, bytes))
		;
	if (world->rank == 0) {
		sent = t->flags & TT_T_POST ? l->completed : l->messages;
		EXPECT(sent > 0);
		rig_close(&rig);
	}
	sent = harness_meet(world, sent);
	for (uint64_t i = 0; world->rank == 1 && i < sent; i++)
		EXPECT(receive_one(l, in, bytes, 9) == 0);
	if (world->rank == 1)
		rig_close(&rig);
	free(buf);
	return 0;
}

Test(transports, what_was_sent_arrives_after_close, .timeout = 60)
{
	for (int threads = 0; threads < 2; threads++) {
		run_on(&tt_shm, 2, 1, 65536, threads, close_body, NULL);
		run_on(&tt_tcp, 2, 1, 65536, threads, close_body, NULL);
	}
}

static int several_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	struct traffic tr = { .t = setup->t, .nchannels = 1, .messages = 300, .seed = 8 };
	struct rig rigs[3];

	for (int i = 0; i < 3; i++) {
		struct rig *rig = &rigs[i];

		/* channel i of the world's sockets, as channel i of endpoint i */
		EXPECT(setup->t->open(world, &rig->ep) == 0);
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
	harness_meet(world, 0);
	rig_close(&rigs[0]);
	rig_close(&rigs[2]);
	return 0;
}

Test(transports, endpoints_of_one_process_do_not_disturb_each_other, .timeout = 60)
{
	run_all(2, 3, 5000, several_body, NULL);
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
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
	int fds = count_fds(), maps = count_lines("/proc/self/maps", "memfd:tutti");

	for (int i = 0; i < 20; i++) {
		bool with_links = setup->t != &tt_tcp || i == 0;       /* the world has one socket for each link */
		struct rig rig;

		EXPECT(rig_open(&rig, setup->t, world, with_links) == 0);
		if (with_links)
			EXPECT(traffic_run(&rig, world, &tr) == 0);
		harness_meet(world, 0);
		rig_close(&rig);
	}
	fds -= setup->t == &tt_tcp ? world->nranks - 1 : 0;            /* which close has closed */
	EXPECT(count_fds() == fds);
	EXPECT(count_lines("/proc/self/maps", "memfd:tutti") == maps);
	EXPECT(count_lines("/proc/net/unix", "@tutti-") == 0);
	return 0;
}

Test(transports, close_leaves_no_descriptor_mapping_or_socket, .timeout = 60)
{
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		run_on(*t, 2, 1, 4096, false, leak_body, NULL);
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
	harness_meet(world, 0);
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
		run_on(*t, 2, 1, 9000, false, allocation_body, NULL);
}

/* ---- self ---------------------------------------------------------------------------------------------------------- */

static int own_pointer_body(const struct tt_world *world, void *arg)
{
	struct rig rig;
	const void *data;
	int number = 5;

	(void)arg;
	EXPECT(rig_open(&rig, &tt_self, world, 1) == 0);
	EXPECT(rig.links[0]->t->post(rig.links[0], &number, sizeof(number), 1) == 1);
	EXPECT(rig.links[0]->completed == 0);
	EXPECT(rig.links[0]->t->peek(rig.links[0], sizeof(number), 1, &data) == 1 && data == &number);
	rig.links[0]->t->release(rig.links[0]);
	EXPECT(rig.links[0]->completed == 1);
	rig_close(&rig);
	return 0;
}

Test(transports, self_gives_the_senders_own_pointer, .timeout = 30)
{
	run_on(&tt_self, 1, 1, 4096, false, own_pointer_body, NULL);
}

/* ---- tcp: deaths ---------------------------------------------------------------------------------------------------- */

/* Rank 1 dies before a message, or in the middle of one. */
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
			tt_tcp.post(l, buf, LARGE, 1);       /* more than the socket takes */
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

/* ---- shm: who shares memory ------------------------------------------------------------------------------------------ */

/* Everybody's view of who reaches whom must be symmetric and equal to what is expected. */
static int reach_body(const struct tt_world *world, void *arg)
{
	const int *group = ((struct setup *)arg)->arg;
	struct traffic tr = { .t = &tt_shm, .nchannels = 1, .messages = 50, .seed = 10 };
	struct rig rig;

	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		EXPECT(tt_shm.reaches(rig.ep, peer) == (peer != world->rank && group[peer] == group[world->rank]));
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

static void reach_in_groups(const int *host_of, const int *group, int nranks, body_fn *body)
{
	struct harness h = { .nranks = nranks, .nchannels = 1, .message_bytes = 4096, .host_of = host_of };

	cr_assert(harness_run(&h, body, &(struct setup){ &tt_shm, (void *)group }) == 0);
}

Test(transports, shm_reaches_the_ranks_of_a_host_only, .timeout = 60)
{
	static const int two[] = { 0, 1, 0, 1, 1 }, all_apart[] = { 0, 1, 2 }, same[] = { 0, 0, 0, 0, 0, 0 };

	reach_in_groups(two, two, 5, reach_body);
	reach_in_groups(all_apart, all_apart, 3, reach_body);
	reach_in_groups(same, same, 6, reach_body);
}

/* Ranks that believe to share a host, but live in network namespaces of their own. */
static int container_body(const struct tt_world *world, void *arg)
{
	const int *group = ((struct setup *)arg)->arg;

	if (group[world->rank] == 1)
		EXPECT(unshare(CLONE_NEWNET) == 0);
	return reach_body(world, arg);
}

Test(transports, shm_leaves_out_who_lives_in_another_container, .timeout = 60)
{
	static const int same[] = { 0, 0, 0, 0 }, lone_leader[] = { 1, 0, 0, 0 }, lone_member[] = { 0, 0, 1, 0 };

	if (geteuid() != 0)
		cr_skip_test("skipped: a network namespace needs root");
	reach_in_groups(same, lone_leader, 4, container_body);
	reach_in_groups(same, lone_member, 4, container_body);
}

/* A limit on file sizes would kill whoever makes the segment; it must only keep shared memory away. */
static int limit_body(const struct tt_world *world, void *arg)
{
	struct rlimit small = { 1 << 16, 1 << 16 };

	EXPECT(setrlimit(RLIMIT_FSIZE, &small) == 0);
	return reach_body(world, arg);
}

/* Too little address space at one rank. */
static int address_space_body(const struct tt_world *world, void *arg)
{
	const int *group = ((struct setup *)arg)->arg;
	struct rlimit small = { 1 << 20, 1 << 20 };

	if (group[world->rank] == 1)
		EXPECT(setrlimit(RLIMIT_AS, &small) == 0);
	return reach_body(world, arg);
}

Test(transports, shm_does_without_ranks_whose_limits_forbid_it, .timeout = 60)
{
	static const int same[] = { 0, 0, 0 }, apart[] = { 0, 1, 2 }, poor[] = { 0, 0, 1 };

	reach_in_groups(same, apart, 3, limit_body);
#if !defined(__SANITIZE_ADDRESS__)
	reach_in_groups(same, poor, 3, address_space_body);
#else
	(void)poor, (void)address_space_body;
#endif
}

/* One rank has few descriptors left. Whatever then works, all must agree on it, and soon. */
static int descriptor_body(const struct tt_world *world, void *arg)
{
	const int *poor = ((struct setup *)arg)->arg;              /* { rank, descriptors left } */
	struct rlimit limit = { 0, 0 };
	struct tt_endpoint *ep;
	uint64_t mine = 0, all[8];

	for (int left = poor[1]; left > 0; limit.rlim_cur++)
		left -= fcntl((int)limit.rlim_cur, F_GETFD) < 0;
	limit.rlim_max = limit.rlim_cur;
	if (world->rank == poor[0])
		EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	EXPECT(tt_shm.open(world, &ep) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		mine |= (uint64_t)tt_shm.reaches(ep, peer) << peer;
	EXPECT(world->allgather(world->ctx, &mine, sizeof(mine), all) == 0);
	for (int peer = 0; peer < world->nranks; peer++)
		EXPECT((mine >> peer & 1) == (all[peer] >> world->rank & 1));
	EXPECT(world->rank == poor[0] || poor[0] == 0 || mine != 0);
	EXPECT(poor[1] < 4 || mine == (7u & ~(1u << world->rank)));
	tt_shm.close(ep);
	return 0;
}

Test(transports, shm_agrees_on_who_lacks_descriptors, .timeout = 60)
{
	uint64_t start = tt_now_ns();

	for (int rank = 0; rank < 3; rank += 2)
		for (int left = 0; left < 5; left++) {
			int poor[2] = { rank, left };
			struct harness h = { .nranks = 3, .nchannels = 1, .message_bytes = 4096 };

			cr_assert(harness_run(&h, descriptor_body, &(struct setup){ &tt_shm, poor }) == 0);
		}
	cr_assert(tt_now_ns() - start < 15000000000ull, "somebody waited for its deadline");
}

/* A stranger finds the sockets' names where the kernel lists them, connects first, says nothing, or says hello as rank 1
 * with a token that it cannot know. */
static void disturb(const char *name, bool speak)
{
	struct { uint8_t token[16]; int32_t rank; } hello = { .rank = 1 };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t bytes = strcspn(name, "\n");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(sa.sun_path + 1, name + 1, bytes - 1);
	connect(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
	if (speak)
		send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
}

static int (*real_allgather)(void *ctx, const void *mine, size_t bytes, void *all);

static int allgather_with_strangers(void *ctx, const void *mine, size_t bytes, void *all)
{
	int rc = real_allgather(ctx, mine, bytes, all);
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512], *name;

	while (fgets(line, sizeof(line), f)) {
		name = strstr(line, "@tutti-");
		for (int i = 0; name && strstr(line, " 00010000 ") && i < 30; i++)     /* it listens */
			disturb(name, i % 3 != 1);
	}
	fclose(f);
	return rc;
}

static int stranger_body(const struct tt_world *world, void *arg)
{
	struct tt_world disturbed = *world;

	real_allgather = world->allgather;
	disturbed.allgather = allgather_with_strangers;
	return reach_body(&disturbed, arg);
}

Test(transports, shm_gives_strangers_nothing_and_goes_on, .timeout = 60)
{
	static const int same[] = { 0, 0, 0 };

	reach_in_groups(same, same, 3, stranger_body);
}

/* ---- shm: memory that is not there ------------------------------------------------------------------------------------ */

static int shortage_body(const struct tt_world *world, void *arg)
{
	int left = *(int *)((struct setup *)arg)->arg;
	struct traffic tr = { .t = &tt_shm, .nchannels = 1, .messages = 200, .seed = 11 };
	struct tt_endpoint *ep;
	struct tt_link *l;
	struct rig rig;

	if (left == 0) {
		EXPECT(tt_shm.open(world, &ep) == 0);
		claims_left = 0;
		EXPECT(tt_shm.connect(ep, peer_of(world), 0, &l) == TT_SYSTEM);
		EXPECT(strstr(tt_error_text(), "bytes of shared memory") != NULL);
		claims_left = -1;
		EXPECT(tt_shm.connect(ep, peer_of(world), 0, &l) == 0);
		harness_meet(world, 0);
		tt_shm.close(ep);
		return 0;
	}
	EXPECT(rig_open(&rig, &tt_shm, world, 1) == 0);
	claims_left = left - 1;                    /* no slot beyond so many */
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	harness_meet(world, 0);
	rig_close(&rig);
	return 0;
}

Test(transports, shm_says_when_memory_is_short_and_works_with_what_it_has, .timeout = 60)
{
	for (int left = 0; left < 4; left++)
		run_on(&tt_shm, 2, 1, 30000, false, shortage_body, &left);
}
