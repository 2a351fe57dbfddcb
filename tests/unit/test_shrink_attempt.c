/*
 * test_shrink_attempt.c - attempts of a shrink: one rank coordinates by hand, or dies in the setup; the numbers of
 * decisions
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm_internal.h"
#include "comm/shrink_internal.h"
#include "control/control_internal.h"
#include "tests/support/must.h"

#define TIMEOUT_MS 4000
#define PATIENCE_MS (TIMEOUT_MS / 8)

/* This process is stopped for ms. */
static void pause_for(unsigned ms)
{
	pid_t stopped = getpid(), child = fork();

	if (child == 0) {
		usleep(ms * 1000);
		kill(stopped, SIGCONT);
		_exit(0);
	}
	raise(SIGSTOP);
	waitpid(child, NULL, 0);
}

/* The attempt that rank 1 proposes next, 0: none within ms */
static uint32_t next_attempt(struct tt_shrink *a, unsigned ms)
{
	struct tt_am_header head;
	struct tt_reader r;
	int rc = tt_shrink_next(a, TT_AM_PROPOSAL, 1, ms * 1000000ull, &head, &r);

	return rc ? 0 : (uint32_t)head.tag;
}

/* Rank 0 is stopped after the first proposal, and continues while rank 1 asks which ranks answer. A
 * stop that was too short or too long for that is repeated: rank 1 has proposed nothing then, or
 * has coordinated meanwhile. */
static int propose_again(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	uint8_t buffer[TT_AM_DECISION_BYTES(2)];
	struct tt_shrink a = { .parent = *comm, .buffer = buffer };
	uint32_t first, second;
	tuttiComm_t next;

	(void)nranks, (void)arg;
	if (rank) { /* its only member, when rank 0 has left */
		if (tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT))
			return 1;
		tuttiCommDestroy(next);
		return 0;
	}
	if (tt_shrink_tell(&a, TT_SHRINK_DECIDES, 0))
		return 1;
	first = next_attempt(&a, TIMEOUT_MS);
	for (;;) {
		pause_for(PATIENCE_MS * 3 / 2);
		second = next_attempt(&a, 2 * PATIENCE_MS);
		if (second && second != first + 2)
			break;
		first += second ? 2 : 0;
	}
	fprintf(stderr, "attempt %x, then %x\n", first, second);
	return !first || second != first;
}

Test(shrink_attempt, stays_the_same_while_the_coordinator_does, .timeout = 60)
{
	struct ranks r = { .n = 2, .timeout_ms = TIMEOUT_MS, .limit_s = 55 };

	cr_expect_eq(ranks_run(&r, propose_again), 0);
}

/* Sends a query to rank 2, and waits for its answer. */
static bool ask_rank_2(struct tt_shrink *a)
{
	struct tt_am *am = a->parent->am;
	struct tt_am_header head = { .kind = TT_AM_QUERY, .tag = 1 };
	uint64_t wait_ns = TIMEOUT_MS * 1000000ull;
	atomic_bool stop = false;
	struct tt_reader r;

	return !tt_am_connect(am, 2, tt_now_ns() + wait_ns, &stop) && tt_am_query(am, 2, &head) &&
	       !tt_shrink_next(a, TT_AM_ANSWER, 2, wait_ns, &head, &r);
}

/* Rank 1 coordinates, and has asked rank 2 before this one begins. Rank 0 is in no shrink. */
static int be_asked(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	uint8_t buffer[TT_AM_DECISION_BYTES(3)];
	struct tt_shrink a = { .parent = *comm, .buffer = buffer };
	int one = 1, sum, failed = 0;
	struct tt_am_header head;
	struct tt_reader r;
	tuttiComm_t next;

	(void)nranks, (void)arg;
	if (rank == 1)
		failed = tt_shrink_tell(&a, TT_SHRINK_DECIDES, 1) || !ask_rank_2(&a);
	if (tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, *comm, NULL) || failed)
		return 1;
	if (rank == 1 && !tt_shrink_next(&a, TT_AM_PROPOSAL, 2, TIMEOUT_MS * 1000000ull, &head, &r))
		return (head.tag & 0xffff) != 1;
	if (rank < 2)
		return rank;
	/* its only member, when the others have left */
	if (tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT))
		return 1;
	tuttiCommDestroy(next);
	return 0;
}

Test(shrink_attempt, the_first_is_to_a_lower_rank_that_has_asked, .timeout = 60)
{
	struct ranks r = { .n = 3, .timeout_ms = TIMEOUT_MS, .limit_s = 55 };

	cr_expect_eq(ranks_run(&r, be_asked), 0);
}

/* Rank 0 coordinates, and decides that rank 1 alone goes on; rank 2 is in no shrink. */
static int decide_for_one(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	uint8_t buffer[TT_AM_DECISION_BYTES(3)];
	struct tt_shrink a = { .parent = *comm, .buffer = buffer };
	struct tt_am_header head = { .kind = TT_AM_DECISION };
	struct tt_counted_bits members;
	struct tt_writer w = { 0 };
	tuttiComm_t next = NULL;
	int rc;

	(void)arg;
	if (rank == 2)
		return 0;
	if (rank == 1) {
		rc = tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT);
		return !rc || next || !strstr(tuttiGetLastError(NULL), "1 of 3 ranks are left");
	}
	if (tt_shrink_tell(&a, TT_SHRINK_DECIDES, 0) || !tt_counted_bits_make(&members, nranks))
		return 1;
	tt_counted_bits_add(&members, 1);
	tt_counted_bits_count(&members);
	tt_put(&w, 1, 8); /* epoch */
	tt_put(&w, 0, 1);
	tt_put_text(&w, "");
	tt_put_set(&w, &members);
	head.tag = (int)next_attempt(&a, TIMEOUT_MS);
	head.bytes = w.have;
	rc = tt_am_shrink_send((*comm)->am, 1, &head, w.data,
			       tt_now_ns() + TIMEOUT_MS * 1000000ull);
	tt_counted_bits_free(&members);
	free(w.data);
	return !head.tag || rc;
}

Test(shrink_attempt, a_decision_for_a_minority_is_refused, .timeout = 60)
{
	struct ranks r = { .n = 3, .timeout_ms = TIMEOUT_MS, .limit_s = 55 };

	setenv("TUTTI_SHRINK", "majority", 1);
	cr_expect_eq(ranks_run(&r, decide_for_one), 0);
}

/* ---- after a rank left -------------------------------------------------------------------------- */

/* Takes part in the first exchange of the new communicator, then waits until the parts of its children, ranks 1 and 2,
 * for the second one have come: both keep what they have made. 0 | < 0 */
static int begin_setup(tuttiComm_t c, const struct tt_env *env)
{
	const struct tt_child_parts *child = c->ctl->gather.child;
	uint64_t deadline_ns = tt_deadline_ns(TIMEOUT_MS);
	struct tt_parts all[TT_FIRST_COLUMNS];
	struct tt_rank_facts mine;
	bool come = false;
	int rc = tt_comm_facts(c, c->ctl, env, &mine);

	tt_comm_columns(&mine, &c->paths.announcement, all);
	rc = rc ? rc : tt_control_allgather_columns(c->ctl, all, TT_FIRST_COLUMNS, deadline_ns);
	while (!rc && !come) {
		usleep(1000);
		tt_control_lock(c->ctl);
		come = child[0].data && child[1].data;
		tt_control_unlock(c->ctl);
	}
	return rc;
}

/* Coordinates a shrink, and dies between the two exchanges of its setup. Returns after a failure only. */
static int die_in_setup(tuttiComm_t parent)
{
	uint64_t unit_ns = TIMEOUT_MS * 1000000ull / 8;
	uint8_t buffer[TT_AM_DECISION_BYTES(4)];
	struct tt_shrink a = { .parent = parent,
			       .attempt = 1 << 16,
			       .buffer = buffer,
			       .seen_ns = tt_now_ns(),
			       .timeout_ns = 8 * unit_ns,
			       .limit_ns = 23 * unit_ns,
			       .patience_ns = unit_ns,
			       .slice_ns = unit_ns / 8,
			       .pause_ns = unit_ns / 4 };
	tuttiComm_t c = NULL;
	struct tt_env env;

	WANT(tt_sparse_make(&a.peer, parent->nranks));
	WANT(!tt_comm_child(parent, NULL, &env, &c));
	tt_control_shrinking(parent->ctl);
	WANT(!tt_shrink_decide(&a) && a.members.map.n == 3);
	a.members.label = "shrink";
	a.members.mark = tt_shrink_mark(a.epoch, &a.members);
	c->nranks = a.members.map.n;
	WANT(!tt_shrink_tell(&a, TT_SHRINK_FORMS, -1));
	WANT(!tt_control_form(parent->ctl, &a.members, tt_deadline_ns(TIMEOUT_MS), &c->ctl));
	WANT(!begin_setup(c, &env));
	return raise(SIGKILL);
}

/* Rank 3 leaves, then the others shrink, and rank 0 dies in the setup, which the others could not complete without it.
 * They go on: the rank that left before took no other communicator along. */
static int shrink_after_one_left(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiRankState_t state = tuttiRankAlive;
	tuttiComm_t next;
	int n;

	(void)arg;
	WANT(!tuttiBarrier(*comm, NULL));
	if (rank == nranks - 1)
		return 0;
	while (state == tuttiRankAlive)
		WANT(!tuttiCommRankState(*comm, nranks - 1, &state));
	if (rank == 0)
		return die_in_setup(*comm);
	MUST(tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
	WANT(!tuttiCommCount(next, &n) && n == 2);
	tuttiCommDestroy(next);
	return 0;
}

Test(shrink_attempt, goes_on_after_a_setup_that_failed_beside_a_rank_that_left_before,
     .timeout = 60)
{
	struct ranks r = { .n = 4, .transport = "tcp", .timeout_ms = TIMEOUT_MS, .limit_s = 55 };

	cr_expect_eq(ranks_run(&r, shrink_after_one_left), 1, "the killed rank alone fails");
}

/* ---- waits before an attempt -------------------------------------------------------------------- */

/* The longest and the mean wait of 1,000 ranks after `failed` attempts, in ms */
static double waits(int failed, double *ret_mean)
{
	uint64_t longest = 0, sum = 0;

	for (uint64_t rank = 0; rank < 1000; rank++) {
		uint64_t wait = tt_shrink_backoff_ns(tt_mix(tt_mix(0, rank), 0x10001), failed);

		cr_assert_eq(wait, tt_shrink_backoff_ns(tt_mix(tt_mix(0, rank), 0x10001), failed));
		longest = wait > longest ? wait : longest;
		sum += wait;
	}
	*ret_mean = (double)sum / 1e9;
	return (double)longest / 1e6;
}

Test(shrink_attempt, ranks_that_fail_together_wait_for_random_times_that_double)
{
	double mean, most = 2;

	for (int failed = 1; failed < 40; failed++) {
		double longest = waits(failed, &mean);

		cr_expect(longest < most && longest > 0.95 * most, "%g ms after %d", longest,
			  failed);
		cr_expect(mean > 0.45 * most && mean < 0.55 * most, "mean %g ms after %d", mean,
			  failed);
		most = most < 256 ? 2 * most : most;
	}
}

/* ---- decisions ------------------------------------------------------------------------------- */

#define RANKS 8
#define EPOCHS 32

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The number of the decision of the ranks whose bits are set in mask */
static uint64_t mark_of(uint64_t epoch, unsigned mask)
{
	struct tt_members m = { 0 };
	struct tt_counted_bits bits;
	uint64_t mark;

	cr_assert(tt_counted_bits_make(&bits, RANKS));
	for (int r = 0; r < RANKS; r++)
		if (mask >> r & 1)
			tt_counted_bits_add(&bits, r);
	tt_counted_bits_count(&bits);
	tt_rank_map_take(&m.map, &bits);
	mark = tt_shrink_mark(epoch, &m);
	tt_rank_map_free(&m.map);
	return mark;
}

Test(shrink_attempt, numbers_all_decisions_differently, .timeout = 20)
{
	static uint64_t marks[EPOCHS << RANKS];
	size_t n = 0, equal = 0;

	for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++)
		for (unsigned mask = 1; mask < 1u << RANKS; mask++)
			marks[n++] = mark_of(epoch, mask);
	qsort(marks, n, sizeof(marks[0]), compare);
	for (size_t i = 1; i < n; i++)
		equal += marks[i] == marks[i - 1];
	cr_expect_eq(equal, 0, "%zu of %zu decisions have the number of another one", equal, n);
}
