/*
 * model_cnn.c - a small convolutional network: two 5 x 5 convolutions, each with ReLU and 2 x 2
 * max pooling, and a fully connected layer
 *
 *	x [28 x 28] -> conv 8 -> pool [8 x 14 x 14] -> conv 16 -> pool [16 x 7 x 7] -> dense
 *
 * Of the first convolution a tensor rank has some planes, of the second the weights for these: its planes
 * are sums over ranks. Row of the table in model.c; calls layer_convolution.c and layer_dense.c.
 *
 * Source: LeCun, Bottou, Bengio, Haffner 1998, Gradient-based learning applied to document
 * recognition.
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

static int cnn_open(struct train_model *m, const char *shape)
{
	size_t side = 1;
	int rc;

	if (shape)
		return train_fail(TRAIN_USAGE, "--model cnn:%s: cnn has one shape only; use cnn",
				  shape);
	while (side * side < m->inputs)
		side++;
	if (side * side != m->inputs || side % 4)
		return train_fail(TRAIN_USAGE,
				  "--model cnn: needs square images whose side is a multiple of 4, "
				  "not %zu pixels; use mlp:256",
				  m->inputs);
	rc = train_layer_add_convolution(m, 8, TRAIN_CUT_COLUMNS);
	if (!rc)
		rc = train_layer_add_convolution(m, 16, TRAIN_CUT_ROWS);
	return rc ? rc : train_layer_add_dense(m, m->classes, false, TRAIN_CUT_NONE);
}

const struct train_model_ops train_model_cnn = {
	.name = "cnn",
	.syntax = "cnn",
	.help = "two convolutions of 5 x 5 (8 and 16 planes), pooled, and a dense layer",
	.open = cnn_open,
};
