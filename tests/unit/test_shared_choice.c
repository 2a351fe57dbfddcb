/*
 * test_shared_choice.c - ranks of one host share their choices of algorithms (run/plan_cache.c)
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"
#include "run/plan_cache.h"
#include "tests/support/ranks.h"

TestSuite(shared_choice, .timeout = 120);

enum { COUNT = 1 << 12, BYTES = COUNT * sizeof(float), NO_CANDIDATE = 0x7f };

static int sum(tuttiComm_t comm, size_t count)
{
	static float in[COUNT], out[COUNT];

	for (size_t i = 0; i < count; i++)
		in[i] = 1;
	if (tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, comm, NULL))
		return 1;
	for (size_t i = 0; i < count; i++)
		if (out[i] != (float)comm->nranks)
			return 1;
	return 0;
}

static _Atomic uint8_t *note_of(tuttiComm_t comm)
{
	return &comm->paths.notes[TT_ALLREDUCE * TT_SIZE_CLASSES + tt_size_class(BYTES)];
}

/* The candidate that this rank would choose, or, if other, the next one that applies */
static struct tt_candidate candidate(tuttiComm_t comm, bool other)
{
	struct tt_shape shape = { .collective = TT_ALLREDUCE,
				  .nranks = comm->nranks,
				  .rank = comm->rank,
				  .topology = &comm->hosts.topology };
	struct tt_call_facts facts = tt_comm_call_facts(comm, BYTES);
	struct tt_candidate list[TT_MOST_CANDIDATES];
	int best, count = tt_plan_candidates(&shape, &facts, list, &best), i = best;

	cr_assert_gt(count, 1);
	do
		i = other ? (i + 1) % count : i;
	while (!list[i].applies);
	cr_assert_eq(i != best, other);
	return list[i];
}

static bool has_plan(tuttiComm_t comm, const char *name)
{
	for (const struct tt_cached_plan *p = comm->plans->built; p; p = p->next)
		if (!strcmp(p->plan->algorithm, name))
			return true;
	return false;
}

/* Rank 0 leaves a note before the others come to the call. */
static int call_with(tuttiComm_t comm, uint8_t note)
{
	if (comm->rank == 0)
		atomic_store(note_of(comm), note);
	return sum(comm, 1) || sum(comm, COUNT);
}

static int follow(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct tt_candidate noted = candidate(*comm, true);

	(void)nranks, (void)arg;
	if (call_with(*comm, (uint8_t)(1 + noted.number)))
		return 1;
	if (has_plan(*comm, noted.name))
		return 0;
	printf("rank %d has not taken the noted %s\n", rank, noted.name);
	return 1;
}

Test(shared_choice, a_rank_takes_the_choice_of_another_rank_of_its_host)
{
	struct ranks r = { .n = 4, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, follow), 0);
}

static int choose_anew(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct tt_candidate own = candidate(*comm, false);

	(void)nranks, (void)arg;
	if (call_with(*comm, NO_CANDIDATE))
		return 1;
	if (has_plan(*comm, own.name) && atomic_load(note_of(*comm)) == 1 + own.number)
		return 0;
	printf("rank %d: note %d, own choice %s\n", rank, atomic_load(note_of(*comm)), own.name);
	return 1;
}

Test(shared_choice, a_note_without_a_candidate_is_replaced)
{
	struct ranks r = { .n = 4, .transport = "shm" };

	cr_expect_eq(ranks_run(&r, choose_anew), 0);
}

static int choose_alone(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	struct tt_candidate own = candidate(*comm, false);

	(void)rank, (void)nranks, (void)arg;
	return (*comm)->paths.notes || sum(*comm, COUNT) || !has_plan(*comm, own.name);
}

Test(shared_choice, ranks_without_shared_memory_choose_alone)
{
	struct ranks r = { .n = 2, .transport = "tcp" };

	cr_expect_eq(ranks_run(&r, choose_alone), 0);
}
