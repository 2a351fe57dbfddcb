/* model_linear.c - softmax regression: one layer, a convex problem. Row of the table in model.c;
 * calls layer_dense.c. */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

static int linear_open(struct train_model *m, const char *shape)
{
	if (shape)
		return train_fail(TRAIN_USAGE,
				  "--model linear:%s: linear has no shape; use linear, or mlp:%s",
				  shape, shape);
	return train_layer_add_dense(m, m->classes, false, TRAIN_CUT_NONE);
}

const struct train_model_ops train_model_linear = {
	.name = "linear",
	.syntax = "linear",
	.help = "softmax regression",
	.open = linear_open,
};
