/*
 * test_rndv.c - the rendezvous of long messages in shared memory: values, which way was taken, and messages that
 * their sender gives up
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "run/op.h"
#include "run/staging.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "transports/shm/shm_ring.h"

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
	const struct tt_shm_trial *t = ((struct tt_shm_link *)l)->rndv.trial;

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

/* Rank 0 gives up a message that rank 1 has not received, and uses its buffer again. */
static int give_up(tuttiComm_t *comm, int rank, int n, void *arg)
{
	enum { TILE = 65536, WHOLE = 2 << 20 };
	struct tt_link *l;
	char *buffer = malloc(WHOLE);
	int rc, x = 0;

	(void)n, (void)arg;
	WANT(buffer);
	memset(buffer, rank, WHOLE);
	MUST(rank ? tuttiRecv(&x, 1, tuttiInt32, 0, *comm, NULL)
		  : tuttiSend(&x, 1, tuttiInt32, 1, *comm, NULL));
	l = tt_path_link(&(*comm)->paths.path[(*comm)->paths.p2p_path], TT_P2P_CHANNEL, !rank);
	WANT(l && l->t->post);
	if (!rank) {
		l->sending = WHOLE;
		l->sending_from = buffer;
		WANT(l->t->post(l, buffer, TILE, 7) == 1 && l->completed < l->posted);
		l->t->zcopy_ops->abandon(l->ep);
		memset(buffer, 9, WHOLE);
		MUST(tuttiBarrier(*comm, NULL));
	} else {
		MUST(tuttiBarrier(*comm, NULL));
		l->receiving = WHOLE;
		rc = l->t->get(l, buffer, TILE, 7, false);
		WANT(rc == TT_REMOTE && strstr(tt_error_text(), "rank 0 has given up its message"));
	}
	MUST(tuttiBarrier(*comm, NULL));
	free(buffer);
	return 0;
}

Test(rndv, a_message_that_its_sender_gives_up_is_not_read, .timeout = 60)
{
	struct ranks r = { .n = 2, .transport = "shm", .threads = true };

	cr_expect_eq(ranks_run(&r, give_up), 0);
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
