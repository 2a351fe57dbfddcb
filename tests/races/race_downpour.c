/*
 * race_downpour.c - a worker of downpour computes while a fetch or a push is under way, and without races
 *
 * Workers and servers are threads, also for ThreadSanitizer. The linker gives the trainer's messages to the functions
 * below, which hold a fetch or a push until the worker has completed further steps; a worker that waited for its
 * messages would never complete them, and the test would not end.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/races/race_maps.h"
#include "tests/support/ranks.h"
#include "trainer/data/data.h"
#include "trainer/strategy/ps.h"
#include "trainer/train_config.h"
#include "trainer/trainer.h"

enum { WORKERS = 3, SERVERS = 2, STEPS = 24, FETCH = 6, PUSH = 3, SAMPLES = 60, PIXELS = 9 };

static struct train_data data = { .name = "test",
				  .pixels = PIXELS,
				  .positions = 1,
				  .classes = 3,
				  .train.samples = SAMPLES,
				  .test.samples = SAMPLES };
static struct train_config config;

static atomic_int done; /* steps of worker 0 */

/* Message number n of this tag, from or to server 0, waits until worker 0 has taken first + n period steps. */
static struct {
	int tag, first, period, n;
} held;

static void hold(int tag, int server)
{
	int until;

	if (tag != held.tag || server != 1)
		return;
	until = held.first + held.n++ * held.period;
	while (atomic_load(&done) < (until < STEPS ? until : STEPS))
		usleep(1000);
}

#define SEND const void *buff, size_t bytes, int peer, int tag, uint64_t version, tuttiComm_t comm
#define RECEIVE                                                                          \
	void *buff, size_t bytes, int source, int tag, int timeout_ms, tuttiComm_t comm, \
		tuttiMsg_t *msg
tuttiResult_t __real_tuttiMsgSend(SEND), __wrap_tuttiMsgSend(SEND);
tuttiResult_t __real_tuttiMsgRecv(RECEIVE), __wrap_tuttiMsgRecv(RECEIVE);

tuttiResult_t __wrap_tuttiMsgSend(SEND)
{
	hold(tag, peer);
	return __real_tuttiMsgSend(buff, bytes, peer, tag, version, comm);
}

tuttiResult_t __wrap_tuttiMsgRecv(RECEIVE)
{
	hold(tag == TRAIN_PS_PARAMETERS ? tag : -1, source);
	return __real_tuttiMsgRecv(buff, bytes, source, tag, timeout_ms, comm, msg);
}

static int work(struct train_rank *t)
{
	const struct train_strategy_ops *s = t->strategy;
	struct train_handout h;
	int rc;

	do {
		static const uint32_t samples[4] = { 5, 17, 29, 41 };

		rc = s->ask(t, false, &h);
		t->step = h.step;
		if (!rc && h.kind == TRAIN_HANDOUT_SHARE)
			rc = s->step(t, &(struct train_batch){ .samples = samples, .rows = 4 });
		else if (!rc &&
			 !(rc = s->settle(t, h.kind == TRAIN_HANDOUT_END ? TRAIN_SETTLE_END
									 : TRAIN_SETTLE_EVALUATE)))
			s->unsettle(t, TRAIN_SETTLE_EVALUATE);
		if (t->rank == 0)
			atomic_fetch_add(&done, h.kind == TRAIN_HANDOUT_SHARE);
	} while (!rc && h.kind != TRAIN_HANDOUT_END);
	return rc;
}

static int run_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct train_rank t;
	int rc = train_rank_open(&t, &config, &data, *comm);

	(void)n;
	(void)arg;
	*comm = NULL; /* of t */
	if (!rc)
		rc = train_is_server(&t) ? t.strategy->serve(&t) : work(&t);
	if (rc)
		printf("# rank %d: %s\n", rank, train_error());
	train_rank_close(&t);
	return rc;
}

static int failures, points;

static void train(const char *claim, int workers)
{
	struct ranks r = { .n = workers + SERVERS, .threads = true, .limit_s = 120 };
	int failed;

	atomic_store(&done, 0);
	failed = ranks_run(&r, run_rank);
	if (held.tag && held.n < STEPS / held.period)
		failed = 1;
	printf("%sok %d - %s\n", failed ? "not " : "", ++points, claim);
	failures += failed != 0;
}

int main(void)
{
	race_maps_share();
	train_config_defaults(&config);
	config.strategy = "downpour";
	config.model = "mlp:8";
	config.servers = SERVERS;
	config.steps = STEPS;
	config.eval_every = STEPS;
	config.global_batch = 12;
	config.n_fetch = FETCH;
	config.n_push = PUSH;
	data.train.images = calloc(SAMPLES, PIXELS);
	data.train.labels = calloc(SAMPLES, 1);
	data.test = data.train;
	printf("1..3\n");
	held.tag = TRAIN_PS_PARAMETERS, held.first = 4, held.period = FETCH, held.n = 0;
	train("four steps are taken while a fetch is under way", 1);
	held.tag = TRAIN_PS_PUSH, held.first = PUSH + 1, held.period = PUSH, held.n = 0;
	train("a step is taken while a push is under way", 1);
	held.tag = 0;
	config.eval_every = 5;
	train("workers, their threads and servers have no race", WORKERS);
	free(data.train.images);
	free(data.train.labels);
	return failures != 0;
}
