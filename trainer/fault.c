/* fault.c - stragglers and deaths on purpose (fault.h) */
#include "fault.h"

#include "rng.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Looks for "RANK mark VALUE" in a list with commas. rank < 0: only reads it. Returns 1 when it is
 * there, 0 when not, -1 when the list is none. */
static int look_up(const char *list, char mark, int rank, double *ret_value)
{
	int found = 0;

	while (list && *list) {
		char *end;
		long who = strtol(list, &end, 10);
		double value;

		if (end == list || *end != mark || who < 0)
			return -1;
		list = end + 1;
		value = strtod(list, &end);
		if (end == list || (*end && *end != ',') || !(value >= 1.0))
			return -1;
		if (who == rank) {
			*ret_value = value;
			found = 1;
		}
		list = *end ? end + 1 : end;
	}
	return found;
}

int tt_fault_check(const struct tt_config *c)
{
	double ignored;

	if (look_up(c->slow, ':', -1, &ignored) < 0)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--slow %s: not a list of RANK:FACTOR; use 3:10, or 3:10,5:2",
				     c->slow);
	if (look_up(c->kill, '@', -1, &ignored) < 0)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--kill %s: not a list of RANK@STEP; use 2@137, or 2@137,3@5",
				     c->kill);
	return TT_TRAIN_OK;
}

static void sleep_until(uint64_t ns)
{
	struct timespec at = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
		;
}

void tt_fault_linger(const struct tt_trainer *t, uint64_t begin_ns)
{
	const struct tt_config *c = t->config;
	double wanted = c->sim_compute_ms * 1e6, took = (double)(tt_time_ns() - begin_ns), factor;
	double own = took + (double)t->backward_ns; /* what comes took as long in the step before */
	uint32_t random[4];

	if (c->jitter > 0.0) {
		tt_rng((uint64_t)c->seed, TT_RNG_JITTER, (uint32_t)t->world_rank, t->step, random);
		wanted *= 1.0 + c->jitter * (double)random[0] * 0x1p-32;
	}
	if (look_up(c->slow, ':', t->world_rank, &factor) > 0)
		wanted = (wanted > own ? wanted : own) * factor;
	if (wanted > took + (double)t->backward_ns)
		sleep_until(begin_ns + (uint64_t)wanted - t->backward_ns);
}

void tt_fault_kill(const struct tt_trainer *t)
{
	double step;

	if (look_up(t->config->kill, '@', t->world_rank, &step) > 0 && (double)t->step == step)
		kill(getpid(), SIGKILL);
}
