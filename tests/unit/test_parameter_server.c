/* test_parameter_server.c - a parameter server checks the messages of other ranks, and notices their deaths */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/must.h"
#include "trainer/strategy/ps.h"

#define COUNT 4 /* parameters of the server */

/* Rank `workers` serves the ranks below, its workers. */
static int serve(tuttiComm_t world, int workers, bool sync, const char *expected)
{
	struct train_config config = { .steps = 10, .eval_every = 10, .lr = 0.1 };
	size_t count = COUNT;
	struct train_ps ps = { .shards = { .servers = 1, .count = &count }, .rule.sync = sync };
	struct train_rank t = {
		.config = &config, .world = world, .rank = workers, .nranks = workers
	};

	t.servers = 1;
	t.first_server = workers;
	t.leaves.batch = 1;
	WANT(train_ps_server_run(&t, &ps) == TRAIN_FAILED);
	fprintf(stderr, "server: %s\n", train_error());
	WANT(strstr(train_error(), expected));
	return 0;
}

enum { GO = 90, DONE };

static int with_server(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int liar = *(int *)arg;
	float values[3 * COUNT] = { 0 };

	(void)n;
	if (rank == 1) {
		int rc = serve(*comm, 1, false,
			       liar ? "rank 2 sent a message with tag 3, but the workers are "
				      "ranks 0 to 0"
				    : "worker 0 pushed 20 bytes, and its push has 16");

		MUST(tuttiMsgSend(NULL, 0, 0, DONE, 0, *comm));
		MUST(tuttiMsgSend(NULL, 0, 2, DONE, 0, *comm));
		return rc;
	}
	if (rank == 0) {
		MUST(tuttiMsgSend(values, 2 * COUNT * sizeof(float), 1, TRAIN_PS_INIT, 0, *comm));
		MUST(tuttiMsgSend(NULL, 0, 1, TRAIN_PS_HELLO, 0, *comm));
		MUST(tuttiMsgRecv(NULL, 0, 1, TRAIN_PS_HELLO, -1, *comm, NULL));
		MUST(tuttiMsgSend(NULL, 0, 2, GO, 0, *comm));
	} else {
		MUST(tuttiMsgRecv(NULL, 0, 0, GO, -1, *comm, NULL));
	}
	if (rank == liar) /* a worker's push has COUNT floats */
		MUST(tuttiMsgSend(values, (rank ? COUNT : COUNT + 1) * sizeof(float), 1,
				  TRAIN_PS_PUSH, 0, *comm));
	MUST(tuttiMsgRecv(NULL, 0, 1, DONE, -1, *comm, NULL));
	return 0;
}

Test(parameter_server, a_push_of_a_rank_that_is_no_worker_is_refused, .timeout = 60)
{
	int liar = 2;
	struct ranks r = { .n = 3, .limit_s = 30, .arg = &liar };

	cr_expect_eq(ranks_run(&r, with_server), 0);
}

Test(parameter_server, a_push_of_another_size_is_refused, .timeout = 60)
{
	int liar = 0;
	struct ranks r = { .n = 3, .limit_s = 30, .arg = &liar };

	cr_expect_eq(ranks_run(&r, with_server), 0);
}

/* Rank 2 serves. Rank 1 dies between its greeting and the server's, so that the server's send fails. */
static int with_dead_worker(tuttiComm_t *comm, int rank, int n, void *arg)
{
	float values[2 * COUNT] = { 0 };
	tuttiRankState_t state = tuttiRankAlive;
	int rc;

	(void)n, (void)arg;
	if (rank == 0)
		MUST(tuttiMsgSend(values, sizeof(values), 2, TRAIN_PS_INIT, 0, *comm));
	if (rank < 2) {
		MUST(tuttiMsgSend(NULL, 0, 2, TRAIN_PS_HELLO, 0, *comm));
		MUST(tuttiMsgRecv(NULL, 0, 2, rank ? GO : DONE, -1, *comm, NULL));
		if (rank == 1)
			_exit(0);
		return 0;
	}
	MUST(tuttiMsgProbe(1, TRAIN_PS_HELLO, -1, *comm, NULL));
	MUST(tuttiMsgSend(NULL, 0, 1, GO, 0, *comm));
	while (state != tuttiRankDead) {
		ranks_pause();
		MUST(tuttiCommRankState(*comm, 1, &state));
	}
	rc = serve(*comm, 2, true, "worker 1 died, and ps-sync needs all workers");
	MUST(tuttiMsgSend(NULL, 0, 0, DONE, 0, *comm));
	return rc;
}

Test(parameter_server, a_send_to_a_dead_worker_ends_a_synchronous_training, .timeout = 60)
{
	struct ranks r = { .n = 3, .limit_s = 20 };

	cr_expect_eq(ranks_run(&r, with_dead_worker), 0);
}
