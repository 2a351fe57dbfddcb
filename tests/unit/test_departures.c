/*
 * test_departures.c - receives from a rank that left after all of its neighbors in tree and ring
 */
#include <criterion/criterion.h>
#include <unistd.h>

#include "tests/support/must.h"
#include "tests/support/ranks.h"

#define PUSH 1 /* a tag */

static void await_left(tuttiComm_t comm, int rank)
{
	tuttiRankState_t state = tuttiRankAlive;

	while (!tuttiCommRankState(comm, rank, &state) && state != tuttiRankLeft)
		usleep(1000);
}

/* Ranks 0, 2 and 4, the neighbors of 1 and of 3, leave before rank 1 does, so no flood reaches rank 3.
 * They leave the communicator `comms[0]`; all leave the others when rank 3 has its answer. */
static int leave_behind_the_neighbors(tuttiComm_t comms[2], int rank)
{
	tuttiRankState_t state;
	tuttiMsg_t m;
	int x;

	if (rank == 1 || rank == 3)
		for (int r = 0; r <= rank + 1; r += 2)
			await_left(comms[0], r);
	if (rank != 3) {
		WANT(!tuttiCommDestroy(comms[0]));
		return comms[1] ? tuttiBarrier(comms[1], NULL) : 0;
	}
	WANT(tuttiMsgRecv(&x, sizeof(x), 1, PUSH, -1, comms[0], &m) == tuttiRemoteError);
	WANT(!tuttiCommRankState(comms[0], 1, &state) && state != tuttiRankAlive);
	WANT(!tuttiCommDestroy(comms[0]));
	return comms[1] ? tuttiBarrier(comms[1], NULL) : 0;
}

static int leave_behind(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t comms[2] = { *comm, NULL };

	(void)nranks, (void)arg;
	*comm = NULL;
	return leave_behind_the_neighbors(comms, rank);
}

Test(departures, after_those_of_all_neighbors_end_a_receive, .timeout = 60)
{
	cr_assert_eq(ranks_run(&(struct ranks){ .n = 5 }, leave_behind), 0);
}

static int leave_one_behind(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	tuttiComm_t comms[2] = { NULL, *comm };

	(void)nranks, (void)arg;
	WANT(!tuttiCommSplit(*comm, 0, rank, &comms[0], NULL));
	return leave_behind_the_neighbors(comms, rank);
}

Test(departures, from_one_communicator_end_a_receive_there, .timeout = 60)
{
	cr_assert_eq(ranks_run(&(struct ranks){ .n = 5 }, leave_one_behind), 0);
}
