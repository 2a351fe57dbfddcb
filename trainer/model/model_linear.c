/* model_linear.c - softmax regression: one layer, a convex problem. Row of the table in model.c;
 * calls dense.c. */
#include "trainer/base/fail.h"
#include "trainer/model/dense.h"

static int linear_open(struct train_model *m, const char *shape)
{
	if (shape)
		return train_fail(TRAIN_USAGE,
				  "--model linear:%s: linear has no shape; use linear, or mlp:%s",
				  shape, shape);
	return train_dense_open(m, NULL, 0);
}

const struct train_model_ops train_model_linear = {
	.name = "linear",
	.syntax = "linear",
	.help = "softmax regression",
	.open = linear_open,
	.close = train_dense_close,
	.forward = train_dense_forward,
	.backward = train_dense_backward,
};
