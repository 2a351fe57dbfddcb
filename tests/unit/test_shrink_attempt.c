/*
 * test_shrink_attempt.c - attempts of a shrink: one rank coordinates by hand
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shrink_internal.h"
#include "tests/support/ranks.h"

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

/* Rank 0 is stopped after the first proposal, and continues while rank 1 asks which ranks answer. A stop
 * that was too short or too long for that is repeated: rank 1 has proposed nothing then, or has
 * coordinated meanwhile. */
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
