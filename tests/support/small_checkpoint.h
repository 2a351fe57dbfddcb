/* small_checkpoint.h - writes a checkpoint of three parameters after 7 steps; for test_checkpoint.c and
 * test_failing_calls.c */
#ifndef TESTS_SMALL_CHECKPOINT_H
#define TESTS_SMALL_CHECKPOINT_H

#include "trainer/checkpoint.h"
#include "trainer/strategy/strategy.h"

/* The first parameter is `first`. 0 | TRAIN_FAILED */
static inline int save_small_checkpoint(const char *path, float first)
{
	static const struct train_strategy_ops strategy = { .name = "none" };
	float parameters[3] = { first, 2, 3 }, velocity[3] = { 0 };
	struct train_config config = { .save = path, .model = "mlp" };
	struct train_data data = { .name = "synth" };
	struct train_rank t = { .config = &config,
				.data = &data,
				.strategy = &strategy,
				.device.ops = &train_device_cpu,
				.parameters = parameters,
				.state = velocity };

	t.model.parameters = t.model.whole_parameters = 3;
	return train_checkpoint_save(&t, path, 7);
}

#endif
