/*
 * race_a3c.c - workers of a3c as threads that share parameters, for ThreadSanitizer
 *
 * Whatever workers share is a relaxed atomic, so ThreadSanitizer finds no race; it would find one in any
 * other access to the shared memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/races/race_maps.h"
#include "tests/support/ranks.h"
#include "trainer/data/data.h"
#include "trainer/strategy/strategy.h"
#include "trainer/train_config.h"
#include "trainer/trainer.h"

enum { WORKERS = 3, STEPS = 30 };

static struct train_data data;

static int work(struct train_rank *t)
{
	const struct train_strategy_ops *s = t->strategy;
	struct train_handout h;
	int rc;

	do {
		rc = s->ask(t, false, &h);
		if (!rc && h.kind == TRAIN_HANDOUT_SHARE)
			rc = s->step(t, &(struct train_batch){ .rows = 8 });
		else if (!rc)
			rc = s->settle(t, TRAIN_SETTLE_EVALUATE);
	} while (!rc && h.kind != TRAIN_HANDOUT_END);
	return rc;
}

static int worker(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct train_rank t;
	int rc = train_rank_open(&t, arg, &data, *comm);

	(void)n;
	*comm = NULL; /* of t */
	if (!rc)
		rc = work(&t);
	if (rc)
		printf("# worker %d: %s\n", rank, train_error());
	train_rank_close(&t);
	return rc;
}

int main(void)
{
	char *line[] = { "tutti-train",  "--strategy", "a3c",
			 "--model",      "mlp:8",      "--steps",
			 "30",           "--lr",       "0.01",
			 "--eval-every", "10",         "--global-batch",
			 "24",           NULL };
	struct train_data_options options = { 0 };
	struct train_config config;
	struct ranks r = { .n = WORKERS, .threads = true, .limit_s = 120, .arg = &config };
	int failures;

	race_maps_share();
	if (train_config_read(13, line, &config) || train_data_load("cartpole", &options, &data))
		return 1;
	failures = ranks_run(&r, worker);
	printf("1..1\n%sok 1 - workers as threads share parameters and nothing else\n",
	       failures ? "not " : "");
	return failures != 0;
}
