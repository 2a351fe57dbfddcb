/* fault.c - fault injection: stragglers and deaths (fault.h) */
#include "trainer/rank/fault.h"

#include "trainer/base/rng.h"
#include "trainer/rank/due_steps.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Finds "RANK mark VALUE" in a comma-separated list. rank < 0: only parses. Returns 1 if found,
 * 0 if not, -1 if the list is malformed. */
static int lookup(const char *list, char mark, int rank, double *ret_value)
{
	int found = 0;

	while (list && *list) {
		char *end;
		long rank_at = strtol(list, &end, 10);
		double value;

		if (end == list || *end != mark || rank_at < 0)
			return -1;
		list = end + 1;
		value = strtod(list, &end);
		if (end == list || (*end && *end != ',') || !(value >= 1.0))
			return -1;
		if (rank_at == rank) {
			*ret_value = value;
			found = 1;
		}
		list = *end ? end + 1 : end;
	}
	return found;
}

int train_fault_check(const struct train_config *c)
{
	double ignored;

	if (lookup(c->slow, ':', -1, &ignored) < 0)
		return train_fail(TRAIN_USAGE,
				  "--slow %s: not a list of RANK:FACTOR; use 3:10, or 3:10,5:2",
				  c->slow);
	if (lookup(c->kill, '@', -1, &ignored) < 0)
		return train_fail(TRAIN_USAGE,
				  "--kill %s: not a list of RANK@STEP; use 2@137, or 2@137,3@5",
				  c->kill);
	return TRAIN_OK;
}

/* The greatest rank of a well-formed list; -1 if the list is empty. */
static long greatest_rank(const char *list)
{
	long greatest = -1;

	while (list && *list) {
		long rank_at = strtol(list, NULL, 10);

		greatest = rank_at > greatest ? rank_at : greatest;
		list = strchr(list, ',');
		list = list ? list + 1 : NULL;
	}
	return greatest;
}

/* The ranks that compute gradients. */
static int workers_of(const struct train_rank *t)
{
	return t->config->mesh ? t->mesh.data * t->mesh.tensor * t->mesh.stages : t->nranks;
}

int train_fault_check_ranks(const struct train_rank *t)
{
	const struct train_config *c = t->config;
	int all = workers_of(t) + t->servers;

	if (greatest_rank(c->slow) >= workers_of(t))
		return train_fail(TRAIN_USAGE,
				  "--slow %s: the workers are ranks 0 to %d; use one of them",
				  c->slow, workers_of(t) - 1);
	if (greatest_rank(c->kill) >= all)
		return train_fail(TRAIN_USAGE, "--kill %s: the ranks are 0 to %d; use one of them",
				  c->kill, all - 1);
	return TRAIN_OK;
}

/* Steps of servers are updates, whose number is not bounded; they are not checked. */
int train_fault_check_steps(const struct train_rank *t)
{
	const char *list = t->config->kill;
	uint64_t steps = train_steps(t);

	while (list && *list) {
		char *end;
		long rank_at = strtol(list, &end, 10);
		double step = strtod(end + 1, &end), part = step - floor(step);

		if (rank_at < workers_of(t) &&
		    ((part != 0.0 && part != 0.5 && part != 0.75) || step >= (double)steps + 1.0))
			return train_fail(
				TRAIN_USAGE,
				"--kill %s: rank %ld never begins step %g; the steps are 1 to %" PRIu64,
				t->config->kill, rank_at, step, steps);
		list = *end ? end + 1 : end;
	}
	return TRAIN_OK;
}

static void sleep_until(uint64_t ns)
{
	struct timespec at = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
		;
}

/* Simulated time since the begin: the forward pass takes a third, the backward pass the rest in
 * proportion to the gradients that are final. */
static uint64_t due_ns(const struct train_rank *t, size_t from)
{
	size_t floats = t->model.parameters + TRAIN_TAIL;
	double final = (double)(floats - from) / (double)floats;

	return (uint64_t)(t->pace_ns * (1.0 + 2.0 * final) / 3.0);
}

void train_fault_begin(struct train_rank *t, uint64_t begin_ns)
{
	const struct train_config *c = t->config;
	double real_ns = (double)t->compute_ns, factor; /* real_ns: of the step before */
	uint32_t random[4];

	t->begin_ns = begin_ns;
	t->slept_ns = 0;
	t->pace_ns = c->sim_compute_ms * 1e6;
	if (c->jitter > 0.0) {
		train_rng((uint64_t)c->seed, TRAIN_RNG_JITTER, (uint32_t)t->world_rank, t->step,
			  random);
		t->pace_ns *= 1.0 + c->jitter * (double)random[0] * 0x1p-32;
	}
	if (lookup(c->slow, ':', t->world_rank, &factor) > 0)
		t->pace_ns = (t->pace_ns > real_ns ? t->pace_ns : real_ns) * factor;
}

void train_fault_sleep(struct train_rank *t, uint64_t until_ns)
{
	uint64_t now = train_time_ns();

	if (until_ns <= now)
		return;
	sleep_until(until_ns);
	t->slept_ns += train_time_ns() - now;
}

void train_fault_delay(struct train_rank *t, size_t from)
{
	if (t->pace_ns > 0.0)
		train_fault_sleep(t, t->begin_ns + due_ns(t, from));
}

/* Kills this process at `now`, in steps. */
static void kill_at(const struct train_rank *t, double now)
{
	double step;

	if (lookup(t->config->kill, '@', t->world_rank, &step) <= 0)
		return;
	/* a worker may have no share of some steps; a server counts every update */
	if (train_is_server(t) ? now == step : now >= step && step > (double)t->first_step)
		kill(getpid(), SIGKILL);
}

void train_fault_kill(const struct train_rank *t)
{
	kill_at(t, (double)t->step);
}

void train_fault_kill_in_evaluation(const struct train_rank *t, uint64_t step)
{
	kill_at(t, (double)step + 0.5);
}

void train_fault_kill_before_record(const struct train_rank *t, uint64_t step)
{
	kill_at(t, (double)step + 0.75);
}
