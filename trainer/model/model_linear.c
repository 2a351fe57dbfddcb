/* model_linear.c - softmax regression: one layer, a convex problem. Row of the table in model.c;
 * calls dense.c. */
#include "trainer/model/dense.h"
#include "trainer/fail.h"

static int linear_open(struct tt_model *m, const char *shape)
{
	if (shape)
		return tt_train_fail(TT_TRAIN_USAGE,
			"--model linear:%s: linear has no shape; use linear, or mlp:%s", shape,
			shape);
	return tt_dense_open(m, NULL, 0);
}

const struct tt_model_ops tt_model_linear = {
	.name = "linear",
	.syntax = "linear",
	.help = "softmax regression",
	.open = linear_open,
	.close = tt_dense_close,
	.forward = tt_dense_forward,
	.backward = tt_dense_backward,
};
