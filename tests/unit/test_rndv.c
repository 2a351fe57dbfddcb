/*
 * test_rndv.c - the rendezvous of long messages in shared memory: values, which way was taken, reads that fail, and
 * messages that their sender gives up
 *
 * The linker gives the library's calls of process_vm_readv to this file (--wrap).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "plan/bind.h"
#include "run/op.h"
#include "run/staging.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "transports/shm/shm_ring.h"

/* From call number `at` on, 0: never. part: that call reads a part of its bytes, and the next one fails. once: only that
 * call fails. why: an errno, 0: none fails */
static struct {
	_Atomic long calls;
	long at;
	bool part, once;
	int why;
} reads;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
				const struct iovec *remote, unsigned long nremote,
				unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
				const struct iovec *remote, unsigned long nremote,
				unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
				const struct iovec *remote, unsigned long nremote,
				unsigned long flags)
{
	long number = ++reads.calls;
	struct iovec half = { local->iov_base, local->iov_len / 2 + 1 };

	if (reads.part && number == reads.at)
		return __real_process_vm_readv(pid, &half, 1, remote, nremote, flags);
	if (reads.at && reads.why && (reads.once ? number == reads.at : number >= reads.at)) {
		errno = reads.why;
		return -1;
	}
	return __real_process_vm_readv(pid, local, nlocal, remote, nremote, flags);
}

static int element(int seed, size_t i)
{
	return seed * 1000003 + (int)(i % 65521);
}

static void fill(int *p, int seed, size_t count)
{
	for (size_t i = 0; i < count; i++)
		p[i] = element(seed, i);
}

static bool holds(const int *p, int seed, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (p[i] != element(seed, i))
			return false;
	return true;
}

#define MESSAGES 24
struct messages {
	const char *cma;
	int least, most; /* of the messages that a rank reads */
};

/* Both ways of both lengths have been timed. */
static bool both_tried(tuttiComm_t c, int peer)
{
	struct tt_link *l = tt_path_link(&c->paths.path[c->paths.p2p_path], TT_P2P_CHANNEL, peer);
	const struct tt_trial *t = ((struct tt_shm_link *)l)->rndv.trial;

	return t[0].judged && t[1].judged;
}

/* Messages of three lengths around the ring, of which two may go by rendezvous, then one without the caches */
static int send_around(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const size_t counts[] = { 300000, 1100000, 70000, 300001 };
	const size_t most = 2200000;
	const struct messages *w = arg;
	int *in = malloc(most * sizeof(int)), *out = malloc(most * sizeof(int)), read = 0;
	int next = (rank + 1) % n, before = (rank + n - 1) % n;

	WANT(in && out);
	for (int i = 0; i < 4 * MESSAGES + 1; i++) {
		size_t count = i == 4 * MESSAGES ? most : counts[i / MESSAGES];
		uint64_t so_far = (*comm)->paths.slots ? (*comm)->paths.slots->read_bytes : 0;

		fill(in, rank + i, count);
		MUST(tuttiGroupStart());
		MUST(tuttiSend(in, count, tuttiInt32, next, *comm, NULL));
		MUST(tuttiRecv(out, count, tuttiInt32, before, *comm, NULL));
		MUST(tuttiGroupEnd());
		WANT(holds(out, before + i, count));
		read += (*comm)->paths.slots && (*comm)->paths.slots->read_bytes > so_far;
	}
	free(in);
	free(out);
	WANT(read >= w->least && read <= w->most);
	WANT(strcmp(w->cma, "auto") || both_tried(*comm, before));
	return 0;
}

Test(rndv, long_messages_are_read_where_that_is_faster, .timeout = 200)
{
	static struct messages modes[] = { { "off", 0, 0 },
					   { "on", 3 * MESSAGES - 6, 3 * MESSAGES },
					   { "auto", 4, 3 * MESSAGES - 6 } };

	for (int n = 2; n <= 4; n += 2)
		for (int i = 0; i < 6; i++) {
			struct ranks r = {
				.n = n, .transport = "shm", .threads = i % 2, .arg = &modes[i / 2]
			};

			setenv("TUTTI_CMA", modes[i / 2].cma, 1);
			cr_expect_eq(ranks_run(&r, send_around), 0, "%d %s, TUTTI_CMA=%s", n,
				     i % 2 ? "threads" : "processes", modes[i / 2].cma);
		}
}

/* Messages of 1 to 4 MiB around the ring, from this buffer. 0, or a line number; *ret_read: messages that were read */
static int exchange(tuttiComm_t c, int rank, int n, int *in, int first, int messages, int *ret_read)
{
	const size_t most = 1100000;
	int *out = malloc(most * sizeof(int)), next = (rank + 1) % n, before = (rank + n - 1) % n;

	WANT(out);
	for (int i = first; i < first + messages; i++) {
		size_t count = i % 2 ? most : 300000;
		uint64_t so_far = c->paths.slots->read_bytes;

		fill(in, rank + i, count);
		MUST(tuttiGroupStart());
		MUST(tuttiSend(in, count, tuttiInt32, next, c, NULL));
		MUST(tuttiRecv(out, count, tuttiInt32, before, c, NULL));
		MUST(tuttiGroupEnd());
		WANT(holds(out, before + i, count));
		*ret_read += c->paths.slots->read_bytes > so_far;
	}
	free(out);
	return 0;
}

enum { BUFFER = 4400000, FEW = 8 };

static int fail_reads(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int *in = malloc(BUFFER), read = 0, rc;

	(void)arg;
	WANT(in);
	reads.calls = 0;
	rc = exchange(*comm, rank, n, in, 0, FEW, &read);
	free(in);
	WANT(reads.calls >= reads.at);
	WANT(reads.why ? read <= reads.at : read >= FEW - 1);
	return rc;
}

Test(rndv, a_tile_that_cannot_be_read_is_copied_by_its_sender, .timeout = 200)
{
	static const int why[] = { EPERM, EFAULT, ESRCH, ENOMEM, 0 };

	setenv("TUTTI_CMA", "on", 1);
	for (int n = 2; n <= 4; n += 2)
		for (int i = 0; i < 5; i++)
			for (int at = 1; at <= 5; at++) {
				struct ranks r = { .n = n, .transport = "shm" };

				reads.at = at;
				reads.why = why[i];
				reads.part = at > 1 && (!why[i] || at % 2);
				cr_expect_eq(ranks_run(&r, fail_reads), 0, "%d ranks, %s, call %d",
					     n, strerror(why[i]), at);
			}
}

/* One read fails: the next PAUSE messages come in cells, then reads go on, unless the system forbids them. */
enum { PAUSE = 128 };
static int fail_once(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int *in = malloc(BUFFER), early = 0, paused = 0, late = 0, rc;

	(void)arg;
	WANT(in);
	reads.calls = 0;
	rc = exchange(*comm, rank, n, in, 0, FEW, &early);
	rc = rc ? rc : exchange(*comm, rank, n, in, FEW, PAUSE - FEW, &paused);
	rc = rc ? rc : exchange(*comm, rank, n, in, PAUSE, 2 * FEW, &late);
	free(in);
	WANT(early > 0 && early < FEW && paused == 0);
	WANT(reads.why == EFAULT || reads.why == ENOMEM ? late >= FEW : late == 0);
	return rc;
}

Test(rndv, a_buffer_that_cannot_be_read_costs_only_some_messages_their_read, .timeout = 60)
{
	static const int why[] = { EFAULT, ENOMEM, EPERM, ESRCH };

	setenv("TUTTI_CMA", "on", 1);
	for (int i = 0; i < 4; i++) {
		struct ranks r = { .n = 2, .transport = "shm" };

		reads.at = 4;
		reads.once = true;
		reads.why = why[i];
		cr_expect_eq(ranks_run(&r, fail_once), 0, "%s", strerror(why[i]));
	}
}

/* The kernel reads no secret memory for others, as it reads no mapping of a device; the process itself may. */
static int send_secrets(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int fd = (int)syscall(SYS_memfd_secret, 0), *in, *ordinary = malloc(BUFFER), read = 0, rc;

	(void)arg;
	WANT(ordinary && fd >= 0 && !ftruncate(fd, BUFFER));
	in = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	WANT(in != MAP_FAILED);
	rc = exchange(*comm, rank, n, rank ? ordinary : in, 0, FEW, &read);
	WANT(rank == 1 ? read == 0 : read >= FEW - 1);
	munmap(in, BUFFER);
	close(fd);
	free(ordinary);
	return rc;
}

Test(rndv, a_buffer_that_no_peer_can_read_is_copied_by_its_owner, .timeout = 60)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	struct ranks r = { .n = 2, .transport = "shm" };

	if (fd < 0)
		cr_skip_test("no secret memory: memfd_secret: %s", strerror(errno));
	close(fd);
	setenv("TUTTI_CMA", "on", 1);
	cr_expect_eq(ranks_run(&r, send_secrets), 0);
}

/* Another process has the number of rank 0's, and what rank 0 had at the same addresses. */
static int take_number(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)(*comm)->paths.slots;
	int *in = malloc(BUFFER), read = 0, rc;
	pid_t child = -1;

	(void)arg;
	WANT(in);
	rc = exchange(*comm, rank, n, in, 0, FEW, &read);
	if (!rank) {
		child = fork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			raise(SIGSTOP);
			_exit(0);
		}
		WANT(child > 0 && waitpid(child, NULL, WUNTRACED) == child);
		ep->bell->pid = child;
	}
	MUST(tuttiBarrier(*comm, NULL));
	WANT(read >= FEW - 1);
	read = 0;
	rc = rc ? rc : exchange(*comm, rank, n, in, FEW, FEW, &read);
	if (child > 0)
		WANT(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	WANT(rank == 1 ? read == 0 : read >= FEW - 1);
	free(in);
	return rc;
}

Test(rndv, a_process_that_has_the_number_of_the_senders_is_not_read, .timeout = 60)
{
	struct ranks r = { .n = 2, .transport = "shm" };

	setenv("TUTTI_CMA", "on", 1);
	cr_expect_eq(ranks_run(&r, take_number), 0);
}

/* Threads that wait without messages, which would wake each other: the other thread's steps so far. */
struct ring_of_threads {
	_Atomic int tiles, steps[2];
};

static void await_step(struct ring_of_threads *t, int rank, int number)
{
	while (t->steps[rank] < number)
		sched_yield();
}

/* The other rank's word, which changes if it is woken; that rank looks asleep from here on. */
static uint32_t arm_other(struct tt_link *l)
{
	struct tt_shm_bell *bell = ((struct tt_shm_link *)l)->peer_bell;

	bell->sleeping = 1;
	return bell->word;
}

static bool is_woken(struct tt_link *l, uint32_t word)
{
	return ((struct tt_shm_link *)l)->peer_bell->word != word;
}

/* The link to the other of two ranks, NULL: none. It is connected by a message. */
static struct tt_link *connect_pair(tuttiComm_t c, int rank)
{
	int x = 0, rc = rank ? tuttiRecv(&x, 1, tuttiInt32, 0, c, NULL)
			     : tuttiSend(&x, 1, tuttiInt32, 1, c, NULL);
	struct tt_link *l = tt_path_link(&c->paths.path[c->paths.p2p_path], TT_P2P_CHANNEL, !rank);

	return !rc && l && l->t->post ? l : NULL;
}

/* The tile of an RTS is refused when all cells that the sender may take are behind it. Each side wakes the other one
 * once. */
static int fill_the_ring(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { TILE = 65536, WHOLE = 2 << 20 };
	struct tt_link *l;
	char *buffer = malloc(WHOLE);
	struct ring_of_threads *t = arg;
	uint32_t word;
	bool done;

	(void)n;
	WANT(buffer);
	memset(buffer, 1 + rank, WHOLE);
	l = connect_pair(*comm, rank);
	WANT(l);
	if (!rank) {
		l->sending = WHOLE;
		l->sending_from = buffer;
		WANT(l->t->post(l, buffer, TILE, 7) == 1);
		t->tiles = 1;
		while (l->t->put(l, buffer, TILE, 7))
			++t->tiles;
		t->steps[0] = 1;
		await_step(t, 1, 1);
		word = arm_other(l);
		done = l->t->progress(l->ep) > 0 && l->completed == l->posted && is_woken(l, word);
		t->steps[0] = 2;
		WANT(done);
	} else {
		reads.at = 1;
		await_step(t, 0, 1);
		word = arm_other(l);
		done = l->t->get(l, buffer, TILE, 7, false) == 0 && is_woken(l, word);
		word = arm_other(l);
		done = done && l->t->get(l, buffer, TILE, 7, false) == 0 && !is_woken(l, word);
		t->steps[1] = 1;
		WANT(t->tiles > 1 && done);
		await_step(t, 0, 2);
		for (int i = 0; i < t->tiles; i++) {
			memset(buffer, 0, TILE);
			WANT(l->t->get(l, buffer, TILE, 7, true) == 1);
			WANT(buffer[0] == 1 && buffer[TILE - 1] == 1);
		}
		WANT(l->t->get(l, buffer, TILE, 7, true) == 0);
	}
	MUST(tuttiBarrier(*comm, NULL));
	free(buffer);
	return 0;
}

Test(rndv, a_cell_is_left_for_a_tile_that_cannot_be_read, .timeout = 60)
{
	struct ring_of_threads t = { 0 };
	struct ranks r = { .n = 2, .transport = "shm", .threads = true, .arg = &t };

	reads.why = EFAULT;
	cr_expect_eq(ranks_run(&r, fill_the_ring), 0);
}

/* A caller without a buffer, as for device memory, copies each tile from the link's. */
static int only_look(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { TILE = 65536, WHOLE = 2 << 20, GAP = 64 };
	struct tt_shm_link *l;
	char *buffer = malloc(WHOLE);
	const void *data;
	int x = 0;

	(void)n, (void)arg;
	WANT(buffer);
	memset(buffer, 1 + rank, WHOLE);
	MUST(rank ? tuttiRecv(&x, 1, tuttiInt32, 0, *comm, NULL)
		  : tuttiSend(&x, 1, tuttiInt32, 1, *comm, NULL));
	l = (struct tt_shm_link *)tt_path_link(&(*comm)->paths.path[(*comm)->paths.p2p_path],
					       TT_P2P_CHANNEL, !rank);
	if (!rank) {
		l->base.sending = WHOLE;
		l->base.sending_from = buffer;
		WANT(tt_shm_post(&l->base, buffer, TILE, 7) == 1);
		MUST(tuttiBarrier(*comm, NULL));
		MUST(tuttiBarrier(*comm, NULL));
		WANT(tt_shm_ring_look(l) == 1);
	} else {
		for (int i = 0; i < TT_SHM_RNDV_SIZES; i++)
			l->rndv.trial[i] = (struct tt_trial){ .way = TT_SHM_BY_RNDV,
							      .prefers = TT_SHM_BY_RNDV,
							      .judged = true,
							      .gap = GAP };
		l->rx->reads = 3;
		MUST(tuttiBarrier(*comm, NULL));
		reads.calls = 0;
		for (int i = 0; i < 2; i++)
			WANT(tt_shm_peek(&l->base, TILE, 7, &data) == 1 &&
			     ((const char *)data)[TILE - 1] == 1);
		WANT(reads.calls == 1);
		tt_shm_release(&l->base);
		WANT(l->rx->reads == 0);
		for (int i = 0; i < TT_SHM_RNDV_SIZES; i++) {
			const struct tt_trial *t = &l->rndv.trial[i];

			WANT(t->way == TT_SHM_BY_CELLS && t->judged && t->gap == GAP &&
			     t->left == GAP);
		}
		MUST(tuttiBarrier(*comm, NULL));
	}
	MUST(tuttiBarrier(*comm, NULL));
	free(buffer);
	return 0;
}

Test(rndv, a_caller_that_only_looks_takes_cells_from_then_on_until_the_next_trial, .timeout = 60)
{
	struct ranks r = { .n = 2, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, only_look), 0);
}

/* Rank 0 gives up a message, and uses its buffer again: before rank 1 has read it; before its read, which fails; after
 * that read, which has failed; after rank 1 has read all of it ahead, with the first of two tiles. */
enum giving_up { UNREAD, BEFORE_FAILURE, REFUSED, READ_AHEAD };

static int give_up(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { TILE = 65536, WHOLE = 2 << 20 };
	enum giving_up when = *(const enum giving_up *)arg;
	struct tt_link *l;
	char *buffer = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	int rc;

	(void)n;
	WANT(buffer != MAP_FAILED);
	memset(buffer, 1 + rank, WHOLE);
	l = connect_pair(*comm, rank);
	WANT(l);
	if (!rank) {
		l->sending = WHOLE;
		l->sending_from = buffer;
		WANT(l->t->post(l, buffer, TILE, 7) == 1 &&
		     l->t->post(l, buffer + TILE, TILE, 7) == 1 && l->completed < l->posted);
		MUST(tuttiBarrier(*comm, NULL));
		MUST(tuttiBarrier(*comm, NULL));
		l->t->zcopy_ops->abandon(l->ep);
		if (when == READ_AHEAD)
			memset(buffer, 9, WHOLE);
		else
			munmap(buffer, WHOLE); /* a read, or a copy, of it fails */
		WANT(l->t->progress(l->ep) >= 0);
		MUST(tuttiBarrier(*comm, NULL));
		MUST(tuttiBarrier(*comm, NULL));
		return 0;
	}
	l->receiving = WHOLE;
	MUST(tuttiBarrier(*comm, NULL));
	reads.at = when == REFUSED;
	if (when == REFUSED)
		WANT(l->t->get(l, buffer, TILE, 7, false) == 0);
	if (when == READ_AHEAD)
		WANT(l->t->get(l, buffer, TILE, 7, false) == 1);
	MUST(tuttiBarrier(*comm, NULL));
	MUST(tuttiBarrier(*comm, NULL));
	reads.at = when == BEFORE_FAILURE;
	rc = l->t->get(l, buffer + (when == READ_AHEAD ? TILE : 0), TILE, 7, false);
	if (when == READ_AHEAD) {
		WANT(rc == 1);
		for (int i = 0; i < 2 * TILE; i++)
			WANT(buffer[i] == 1);
	} else {
		WANT(rc == TT_REMOTE && strstr(tt_error_text(), "rank 0 has given up its message"));
	}
	MUST(tuttiBarrier(*comm, NULL));
	munmap(buffer, WHOLE);
	return 0;
}

Test(rndv, a_message_that_its_sender_gives_up_is_not_read, .timeout = 60)
{
	for (enum giving_up when = UNREAD; when <= READ_AHEAD; when++) {
		struct ranks r = { .n = 2, .transport = "shm", .threads = when % 2, .arg = &when };

		reads.why = EFAULT;
		reads.calls = reads.at = 0;
		cr_expect_eq(ranks_run(&r, give_up), 0, "case %d", when);
	}
}

/* Rank 1 ends before the last tile of a message. Rank 0's send waits for that tile. */
enum { LAST = 4, COUNT = 300000 };
static int send_to_the_end(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int *buffer = malloc(COUNT * sizeof(int)), sent = 0;

	(void)n, (void)arg;
	WANT(buffer);
	(*comm)->paths.world.crowded = true;
	fill(buffer, 7, COUNT);
	while (sent < 2 * LAST && !(rank ? tuttiRecv(buffer, COUNT, tuttiInt32, 0, *comm, NULL)
					 : tuttiSend(buffer, COUNT, tuttiInt32, 1, *comm, NULL)))
		sent++;
	WANT(rank == 0 && sent == LAST - 1);
	WANT(strstr(tuttiGetLastError(*comm), "rank 1 died"));
	free(buffer);
	return 0;
}

static int count_tiles(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_connectivity facts = tt_comm_connectivity(*comm);
	size_t bytes = COUNT * sizeof(int),
	       tile = tt_connectivity_p2p_tile(&facts, (*comm)->paths.world.message_bytes, bytes);

	(void)n;
	if (!rank)
		*(int *)arg = (int)((bytes + tile - 1) / tile);
	return 0;
}

Test(rndv, a_fault_strikes_before_a_tile_is_released, .timeout = 60)
{
	int tiles = 0;
	char fault[32];
	struct ranks count = { .n = 2, .transport = "shm", .threads = true, .arg = &tiles },
		     r = { .n = 2, .transport = "shm" };

	cr_assert_eq(ranks_run(&count, count_tiles), 0);
	cr_assert(tiles > 1);
	setenv("TUTTI_CMA", "on", 1);
	snprintf(fault, sizeof(fault), "exit@1:%d", LAST * tiles);
	setenv("TUTTI_FAULT", fault, 1);
	cr_expect_eq(ranks_run(&r, send_to_the_end), 1, "rank 1 ends, rank 0 is right");
}

/* A rank that only sends, and has a core of its own, copies; so does one whose buffer is still filled from a device. */
static int announce(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct tt_staging staging;
	struct tt_request r = { .collective = TT_SENDRECV, .send = true, .comm = *comm };
	struct tt_link l = { 0 };
	char buffer[1];

	(void)rank, (void)n, (void)arg;
	(*comm)->paths.world.crowded = false;
	tt_p2p_announce(&l, &r, buffer, 4 << 20, true);
	WANT(l.sending == 4 << 20 && l.sending_from == buffer && !l.receiving);
	tt_p2p_announce(&l, &r, buffer, 4 << 20, false);
	WANT(l.sending == 0);
	(*comm)->paths.world.crowded = true;
	tt_p2p_announce(&l, &r, buffer, 4 << 20, false);
	WANT(l.sending == 4 << 20);
	r.staging = &staging;
	tt_p2p_announce(&l, &r, buffer, 4 << 20, true);
	WANT(l.sending == 0);
	return 0;
}

Test(rndv, a_peer_reads_no_buffer_that_is_filled_meanwhile_or_sent_one_way, .timeout = 60)
{
	struct ranks r = { .n = 1, .threads = true };

	cr_expect_eq(ranks_run(&r, announce), 0);
}
