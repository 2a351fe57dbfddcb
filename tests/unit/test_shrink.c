/*
 * test_shrink.c - shrink to the surviving ranks: after kills and stops, by a list, repeatedly
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/descriptors.h"
#include "tests/support/must.h"

#define COUNT 1000

struct shrink_case {
	int victims[8], nvictims;
	bool late; /* victims die after the others began to shrink */
	int rounds, silent_ms;
	unsigned seed;
	_Atomic int survivors, pids[128], resumed, passed, size, opened;
};

static struct shrink_case *share_case(const struct shrink_case *p)
{
	struct shrink_case *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*shared = *p;
	return shared;
}

static int run(int n, const char *transport, int timeout_ms, int killed, rank_fn *fn,
	       struct shrink_case *p)
{
	struct ranks r = {
		.n = n, .transport = transport, .timeout_ms = timeout_ms, .arg = p, .limit_s = 55
	};

	return ranks_run(&r, fn) - killed;
}

static bool is_victim(const struct shrink_case *p, int rank)
{
	for (int i = 0; i < p->nvictims; i++)
		if (p->victims[i] == rank)
			return true;
	return false;
}

/* An allreduce of mine, scaled by the index, gives expected, scaled likewise.
 * 0 | 1: wrong sum | the error of the call */
static int check_sum(tuttiComm_t comm, float mine, float expected)
{
	float in[COUNT], out[COUNT];
	tuttiResult_t rc;

	for (int i = 0; i < COUNT; i++)
		in[i] = mine * (float)(i + 1);
	rc = tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiSum, comm, NULL);
	if (rc)
		return rc;
	for (int i = 0; i < COUNT; i++)
		WANT(in[i] == mine * (float)(i + 1) && out[i] == expected * (float)(i + 1));
	return 0;
}

/* Victims die at once or during the shrink; the other ranks retry and get the exact sum of the
 * survivors. */
static int survive(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct shrink_case *p = arg;
	float in[COUNT] = { 1 }, out[COUNT], expected = 0;
	tuttiComm_t next = NULL, before = NULL;
	tuttiResult_t rc;
	int n, expected_rank;

	for (int r = 0; r < nranks; r++)
		expected += is_victim(p, r) ? 0 : (float)(r + 1);
	/* a victim may die while others are in this call */
	tuttiAllReduce(in, out, COUNT, tuttiFloat32, tuttiSum, *comm, NULL);
	if (is_victim(p, rank) && (!p->late || rank == p->victims[p->nvictims - 1])) {
		usleep((unsigned)(random_of(p->seed, (unsigned)rank) % 3000));
		raise(SIGKILL);
	}
	if (is_victim(p, rank)) {
		ualarm((unsigned)(1000 + random_of(p->seed, (unsigned)rank) % 30000), 0);
		signal(SIGALRM, SIG_DFL);
	}
	for (n = nranks; n > nranks - p->nvictims;) {
		while (!(rc = (tuttiResult_t)check_sum(*comm,
						       is_victim(p, rank) ? 0 : (float)(rank + 1),
						       expected)))
			; /* wait until the victims have died */
		WANT(rc == tuttiRemoteError);
		WANT(!tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
		tuttiCommDestroy(before);
		before = *comm;
		*comm = next;
		WANT(!tuttiCommCount(next, &n));
	}
	rc = (tuttiResult_t)check_sum(*comm, (float)(rank + 1), expected);
	tuttiCommDestroy(before);
	WANT(!rc && !tuttiCommCount(next, &n) && n == nranks - p->nvictims);
	expected_rank = 0;
	for (int r = 0; r < rank; r++)
		expected_rank += !is_victim(p, r);
	WANT(!tuttiCommUserRank(next, &n) && n == expected_rank);
	p->survivors++;
	return 0;
}

static void check(int n, const char *transport, struct shrink_case c)
{
	struct shrink_case *p = share_case(&c);

	cr_expect_eq(run(n, transport, 20000, p->nvictims, survive, p), 0, "%d ranks, %s, seed %u",
		     n, transport, p->seed);
	cr_expect_eq(p->survivors, n - p->nvictims, "%d ranks, %s: %d survived", n, transport,
		     p->survivors);
}

Test(shrink, gives_the_survivors_their_sum, .timeout = 60)
{
	check(2, "shm", (struct shrink_case){ .victims = { 1 }, .nvictims = 1 });
	check(2, "tcp", (struct shrink_case){ .victims = { 0 }, .nvictims = 1 });
	check(3, "shm", (struct shrink_case){ .victims = { 1 }, .nvictims = 1 });
	check(4, "tcp", (struct shrink_case){ .victims = { 0 }, .nvictims = 1 });
	check(5, "shm", (struct shrink_case){ .victims = { 0, 1, 3 }, .nvictims = 3 });
	check(8, "tcp", (struct shrink_case){ .victims = { 7, 2 }, .nvictims = 2 });
}

Test(shrink, works_on_32_ranks_after_three_deaths, .timeout = 60)
{
	check(32, NULL, (struct shrink_case){ .victims = { 0, 8, 31 }, .nvictims = 3 });
}

/* The first victim breaks the communicator. Other victims, also the coordinator, die during the
 * shrink. */
Test(shrink, starts_over_when_more_ranks_die_meanwhile, .timeout = 600)
{
	for (unsigned seed = 0; seed < 6; seed++)
		check(6, seed % 2 ? "tcp" : "shm",
		      (struct shrink_case){
			      .victims = { 0, 1, 4 }, .nvictims = 3, .late = true, .seed = seed });
}

/* As above, but the old communicator is destroyed at once, so a rank delayed by a death may get no
 * answer. The shrink of that rank may fail, with an error text; no rank hangs or gets a wrong
 * sum. */
static int hurry(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct shrink_case *p = arg;
	tuttiComm_t next;
	tuttiResult_t rc;
	int n = nranks;

	if (is_victim(p, rank)) {
		ualarm((unsigned)(1000 + random_of(p->seed, (unsigned)rank) % 30000), 0);
		signal(SIGALRM, SIG_DFL);
	}
	for (int calls = 0; calls < 20 || n > nranks - p->nvictims; calls++) {
		rc = (tuttiResult_t)check_sum(*comm, 1, (float)n);
		if (!rc)
			continue;
		WANT(rc == tuttiRemoteError);
		if (tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT)) {
			WANT(strstr(tuttiGetLastError(NULL), "the others went on"));
			p->resumed++;
			return 0;
		}
		tuttiCommDestroy(*comm);
		*comm = next;
		WANT(!tuttiCommCount(next, &n));
	}
	p->survivors++;
	return 0;
}

Test(shrink, leaves_no_rank_hanging_when_the_old_communicator_is_destroyed_too_early,
     .timeout = 600)
{
	const unsigned rounds = 3;
	int excluded = 0;

	for (unsigned seed = 0; seed < rounds; seed++) {
		struct shrink_case *p = share_case(&(struct shrink_case){
			.victims = { 0, 1, 4 }, .nvictims = 3, .seed = seed });

		cr_expect_eq(run(6, seed % 2 ? "tcp" : "shm", 20000, 3, hurry, p), 0, "seed %u",
			     seed);
		cr_expect_eq(p->survivors + p->resumed, 3, "seed %u: %d and %d", seed, p->survivors,
			     p->resumed);
		excluded += p->resumed;
	}
	cr_log_info("%d of %u ranks were excluded", excluded, 3 * rounds);
}

/* ---- stopped --------------------------------------------------------------------------------- */

/* Rank 1 is stopped; the others time out, shrink and go on; then rank 1 continues, and its shrink
 * reports that rank 1 is excluded. */
static int wake_up(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct shrink_case *p = arg;
	tuttiComm_t next = NULL;
	tuttiResult_t rc;

	p->pids[rank] = getpid();
	WANT(!check_sum(*comm, 1, (float)nranks));
	if (rank == 1) {
		raise(SIGSTOP);
		while (!(rc = tuttiBarrier(*comm, NULL)))
			;
		WANT(rc == tuttiRemoteError || rc == tuttiTimeout);
		WANT(tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT) ==
			     tuttiRemoteError &&
		     !next);
		WANT(strstr(tuttiGetLastError(NULL), "went on without this rank"));
		p->resumed = 1;
		return 0;
	}
	WANT(tuttiBarrier(*comm, NULL) == tuttiTimeout);
	WANT(!tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
	WANT(!check_sum(next, 1, (float)(nranks - 1)));
	if (p->rounds) /* destroyed before rank 1 continues */
		tuttiCommDestroy(*comm);
	WANT(!tuttiBarrier(next, NULL));
	if (rank == 0)
		kill(p->pids[1], SIGCONT);
	for (int i = 0; i < 2000 && !p->resumed; i++)
		usleep(10000);
	WANT(p->resumed);
	WANT(!check_sum(next, 2, (float)(2 * (nranks - 1))));
	if (p->rounds)
		*comm = next;
	else
		tuttiCommDestroy(next);
	return 0;
}

Test(shrink, refuses_an_excluded_rank_that_comes_back, .timeout = 60)
{
	struct shrink_case *p = share_case(&(struct shrink_case){ .rounds = 0 });

	cr_expect_eq(run(4, NULL, 3000, 0, wake_up, p), 0);
	p = share_case(&(struct shrink_case){ .rounds = 1 });
	cr_expect_eq(run(3, "tcp", 3000, 0, wake_up, p), 0);
}

#define RANKS 28

/* A process continues this one after ms. */
static void continue_later(unsigned long long ms)
{
	pid_t stopped = getpid();

	if (fork())
		return;
	usleep((unsigned)ms * 1000);
	kill(stopped, SIGCONT);
	_exit(0);
}

/* The lowest ranks are stopped; the others time out, shrink to one communicator and go on. The
 * stopped ranks continue after that, or (p->late) at different times of the shrink: each is refused,
 * or in time, and then in the same communicator. All stay until all have ended. */
static int outlive_silent_ranks(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct shrink_case *p = arg;
	bool stops = rank < p->nvictims;
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t old = NULL, next = NULL;
	tuttiResult_t rc;
	int n, size = 0, descriptors;

	config.timeout_ms = p->silent_ms; /* the join may take longer */
	WANT(!tuttiCommSplit(*comm, 0, 0, &old, &config));
	p->pids[rank] = getpid();
	WANT(!tuttiBarrier(old, NULL));
	if (stops && p->late)
		continue_later((unsigned)p->silent_ms +
			       random_of(p->seed, (unsigned)rank) % (unsigned)p->silent_ms);
	if (stops)
		raise(SIGSTOP);
	while (!tuttiBarrier(old, NULL))
		;
	descriptors = count_descriptors();
	rc = tuttiCommShrink(old, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT);
	if (rank == nranks - 1)
		p->opened = count_descriptors() - descriptors;
	WANT(!rc || stops);
	/* a rank that continues meanwhile may also have shared an attempt that failed */
	WANT(!rc || p->late || strstr(tuttiGetLastError(NULL), "went on without this rank"));
	if (!rc) {
		WANT(!tuttiCommCount(next, &n));
		WANT(p->late ? n >= nranks - p->nvictims : n == nranks - p->nvictims);
		atomic_compare_exchange_strong(&p->size, &size, n);
		WANT(p->size == n);
		WANT(!check_sum(next, 1, (float)n));
	}
	p->survivors += !stops;
	for (int r = 0; rank == nranks - 1 && !p->late && r < p->nvictims; r++) {
		while (p->survivors < nranks - p->nvictims)
			usleep(1000);
		kill(p->pids[r], SIGCONT);
	}
	for (p->passed++; p->passed < nranks;)
		usleep(1000);
	tuttiCommDestroy(next);
	tuttiCommDestroy(old);
	return 0;
}

/* On a busy machine live ranks may be silent for a while, too; then once more with a longer time-out.
 * Returns the number of failed ranks. ret_opened: descriptors that the last rank opened; or NULL */
static int outlive(int nranks, const char *transport, const struct shrink_case *wanted,
		   int *ret_opened)
{
	struct ranks r = { .n = nranks, .transport = transport, .limit_s = 100 };
	int failed = 1;

	for (int silent_ms = 4000; silent_ms <= 20000 && failed; silent_ms *= 5) {
		struct shrink_case *p = share_case(wanted);

		p->silent_ms = silent_ms;
		r.arg = p;
		failed = ranks_run(&r, outlive_silent_ranks);
		if (ret_opened)
			*ret_opened = p->opened;
	}
	return failed;
}

/* Each of them, one after the other, would take longer than the test. */
Test(shrink, takes_no_longer_for_many_silent_ranks, .timeout = 300)
{
	cr_expect_eq(outlive(16, "tcp", &(struct shrink_case){ .nvictims = 12 }, NULL), 0);
	setenv("TUTTI_SHRINK", "majority", 1);
	cr_expect_eq(outlive(16, NULL, &(struct shrink_case){ .nvictims = 7 }, NULL), 0);
}

/* The last rank asks 8 lower ranks, not all, and connects to its new neighbors. A busy machine may make
 * all 8 silent once. */
Test(shrink, asks_few_ranks_when_the_lowest_is_silent, .timeout = 400)
{
	int opened = RANKS;

	for (int i = 0; i < 3 && opened > RANKS / 2; i++)
		cr_assert_eq(outlive(RANKS, NULL, &(struct shrink_case){ .nvictims = 1 }, &opened),
			     0);
	cr_expect(opened <= RANKS / 2, "%d descriptors", opened);
}

Test(shrink, gives_one_communicator_when_stopped_ranks_continue_meanwhile, .timeout = 600)
{
	for (unsigned seed = 0; seed < 4; seed++) {
		struct shrink_case *p = share_case(&(struct shrink_case){
			.nvictims = 5, .late = true, .seed = seed, .silent_ms = 4000 });

		setenv("TUTTI_SHRINK", seed % 2 ? "majority" : "any", 1);
		cr_expect_eq(run(11, NULL, 0, 0, outlive_silent_ranks, p), 0, "seed %u", seed);
	}
}

/* ---- by a list ------------------------------------------------------------------------------- */

static int listed(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	int out[] = { 1, 3 }, wrong[] = { 9 }, self[] = { rank }, n;
	tuttiComm_t next = NULL;

	(void)arg;
	WANT(tuttiCommShrink(*comm, wrong, 1, &next, NULL, TUTTI_SHRINK_DEFAULT) ==
	     tuttiInvalidArgument);
	WANT(tuttiCommShrink(*comm, self, 1, &next, NULL, TUTTI_SHRINK_DEFAULT) ==
	     tuttiInvalidArgument);
	WANT(tuttiCommShrink(*comm, out, 2, NULL, NULL, TUTTI_SHRINK_DEFAULT) ==
	     tuttiInvalidArgument);
	WANT(!tuttiBarrier(*comm, NULL));
	if (rank != 1 && rank != 3) {
		WANT(!tuttiCommShrink(*comm, out, 2, &next, NULL, TUTTI_SHRINK_DEFAULT));
		WANT(!tuttiCommCount(next, &n) && n == nranks - 2);
		WANT(!check_sum(next, 1, (float)(nranks - 2)));
		tuttiCommDestroy(next);
	}
	WANT(!tuttiBarrier(*comm, NULL)); /* the old communicator still works */
	return 0;
}

Test(shrink, excludes_the_listed_ranks, .timeout = 60)
{
	cr_expect_eq(run(5, NULL, 0, 0, listed, NULL), 0);
	cr_expect_eq(run(4, "tcp", 0, 0, listed, NULL), 0);
}

static int differ(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	int out[] = { rank == 0 ? 3 : 2 };
	tuttiComm_t next;
	tuttiResult_t rc;

	(void)nranks, (void)arg;
	if (rank == 0 || rank == 1) {
		rc = tuttiCommShrink(*comm, out, 1, &next, NULL, TUTTI_SHRINK_DEFAULT);
		WANT(rc == tuttiInvalidUsage || rc == tuttiTimeout);
		WANT(strstr(tuttiGetLastError(NULL), "list") ||
		     strstr(tuttiGetLastError(NULL), "did not call"));
	}
	return tuttiBarrier(*comm, NULL) != tuttiSuccess;
}

Test(shrink, reports_lists_that_differ, .timeout = 60)
{
	cr_expect_eq(run(4, NULL, 3000, 0, differ, NULL), 0);
}

static int abort_first(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t next;
	float x[4] = { 0 };

	(void)arg;
	if (rank) /* rank 0 does not make the call */
		WANT(tuttiAllReduce(x, x, 4, tuttiFloat32, tuttiSum, *comm, NULL) ==
		     tuttiRemoteError);
	else
		usleep(50000);
	WANT(!tuttiCommShrink(*comm, NULL, 0, &next, NULL,
			      rank ? TUTTI_SHRINK_DEFAULT : TUTTI_SHRINK_ABORT));
	WANT(!check_sum(next, 1, (float)nranks));
	tuttiCommDestroy(*comm);
	*comm = next;
	return 0;
}

Test(shrink, can_abort_running_operations_first, .timeout = 60)
{
	cr_expect_eq(run(3, NULL, 0, 0, abort_first, NULL), 0);
	cr_expect_eq(run(1, NULL, 0, 0, abort_first, NULL), 0);
}

/* ---- after a rank left ----------------------------------------------------------------------- */

/* The last rank leaves, then the others shrink, and the one before the last dies meanwhile. The other
 * ranks get a communicator: nobody went on without them. */
static int shrink_after_one_left(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct shrink_case *p = arg;
	tuttiComm_t next = NULL;
	tuttiRankState_t state = tuttiRankAlive;
	int n = nranks;

	WANT(!tuttiBarrier(*comm, NULL));
	p->passed++;
	while (p->passed <
	       nranks) /* an error of one rank may overtake the end of another's barrier */
		usleep(1000);
	if (rank == nranks - 1)
		return 0;
	while (state == tuttiRankAlive)
		WANT(!tuttiCommRankState(*comm, nranks - 1, &state));
	if (rank == nranks - 2) {
		signal(SIGALRM, SIG_DFL);
		ualarm((unsigned)(1000 + random_of(p->seed, 1) % 30000), 0);
	}
	while (n > nranks - 2) {
		WANT(!tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
		WANT(!tuttiCommCount(next, &n));
		while (n > nranks - 2 && !tuttiBarrier(next, NULL))
			;
		tuttiCommDestroy(*comm);
		*comm = next;
	}
	WANT(!tuttiBarrier(*comm, NULL));
	return 0;
}

Test(shrink, goes_on_after_one_rank_left_and_another_dies_meanwhile, .timeout = 600)
{
	for (unsigned i = 0; i < 12; i++) {
		struct shrink_case *p = share_case(&(struct shrink_case){ .seed = 40 + i });

		cr_expect_eq(run(4 + (int)(i % 3), i % 2 ? "tcp" : "shm", 20000, 1,
				 shrink_after_one_left, p),
			     0, "try %u", i);
	}
}

/* ---- majority -------------------------------------------------------------------------------- */

/* The victims die; the others shrink where they are a majority, and are refused where not. */
static int shrink_by_majority(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	const struct shrink_case *p = arg;
	tuttiComm_t next = NULL;
	tuttiResult_t rc;

	WANT(!tuttiBarrier(*comm, NULL));
	if (is_victim(p, rank))
		raise(SIGKILL);
	while (!tuttiBarrier(*comm, NULL))
		;
	rc = tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT);
	if (2 * (nranks - p->nvictims) > nranks) {
		WANT(!rc);
		WANT(!tuttiCommDestroy(next));
	} else {
		WANT(rc == tuttiRemoteError && !next);
		WANT(strstr(tuttiGetLastError(NULL), "no majority"));
	}
	return 0;
}

Test(shrink, of_half_the_ranks_is_refused_where_a_majority_is_asked_for, .timeout = 60)
{
	setenv("TUTTI_SHRINK", "majority", 1);
	for (int dead = 1; dead <= 3; dead++) {
		struct shrink_case *p = share_case(
			&(struct shrink_case){ .victims = { 0, 2, 3 }, .nvictims = dead });

		cr_expect_eq(run(4, NULL, 6000, dead, shrink_by_majority, p), 0, "%d dead", dead);
	}
}

/* Ranks that would decide differently do not join. */
static int join_with_another_rule(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	const struct ranks *r = arg;

	setenv("TUTTI_SHRINK", rank == 1 ? "majority" : "any", 1);
	WANT(tuttiCommInitRank(comm, nranks, r->id, rank) == tuttiInvalidUsage);
	WANT(strstr(tuttiGetLastError(NULL), "rank 1 has shrink=majority"));
	return 0;
}

Test(shrink, rules_that_differ_are_refused_when_ranks_join, .timeout = 60)
{
	static struct ranks r = { .n = 3, .no_join = true, .limit_s = 50, .arg = &r };

	cr_expect_eq(ranks_run(&r, join_with_another_rule), 0);
}

/* ---- again and again ------------------------------------------------------------------------- */

/* The highest rank dies, then the lowest, and so on, until one rank is left. */
static int until_alone(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t next;
	int me = rank, n = nranks, first = 0, last = nranks - 1, sums = 0;
	struct shrink_case *p = arg;

	for (int round = 0; n > 1; round++) {
		int dies = round % 2 ? first++ : last--;

		WANT(!check_sum(*comm, 1, (float)n));
		p->passed++;
		for (sums += n; rank == dies && p->passed < sums;)
			usleep(1000); /* rank dies after all ranks have the sum */
		if (rank == dies)
			raise(SIGKILL);
		WANT(tuttiBarrier(*comm, NULL) == tuttiRemoteError);
		WANT(!tuttiCommShrink(*comm, NULL, 0, &next, NULL, TUTTI_SHRINK_DEFAULT));
		tuttiCommDestroy(*comm);
		*comm = next;
		WANT(!tuttiCommUserRank(next, &me) && !tuttiCommCount(next, &n));
		WANT(me == rank - first && n == last - first + 1);
	}
	WANT(!check_sum(*comm, 1, 1));
	return 0;
}

Test(shrink, works_repeatedly_until_one_rank_is_left, .timeout = 60)
{
	cr_expect_eq(run(6, NULL, 20000, 5, until_alone, share_case(&(struct shrink_case){ 0 })),
		     0);
}
