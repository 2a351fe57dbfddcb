/*
 * model_mlp.c - a multilayer perceptron: fully connected layers of the given widths, with ReLU
 * (max(y, 0)) between them
 *
 * Row of the table in model.c; calls layer_dense.c.
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

#include <ctype.h>
#include <stdlib.h>

enum { WIDTH_MAX = 65536, LAYERS_MAX = 16 };

/* Parses "256" or "300,100". Returns the number of widths, 0 for a malformed list. */
static size_t parse_widths(const char *shape, size_t *widths)
{
	size_t hidden = 0;

	while (hidden < LAYERS_MAX - 1) {
		char *end;
		unsigned long width = isdigit((unsigned char)*shape) ? strtoul(shape, &end, 10) : 0;

		if (width < 1 || width > WIDTH_MAX)
			return 0;
		widths[hidden++] = width;
		if (!*end)
			return hidden;
		if (*end != ',')
			return 0;
		shape = end + 1;
	}
	return 0;
}

static int mlp_open(struct train_model *m, const char *shape)
{
	size_t widths[LAYERS_MAX], hidden = parse_widths(shape ? shape : "256", widths);
	int rc = TRAIN_OK;

	if (!hidden)
		return train_fail(
			TRAIN_USAGE,
			"--model mlp:%s: not a list of widths; use up to %d numbers from 1 "
			"to %d, such as mlp:300,100",
			shape, LAYERS_MAX - 1, WIDTH_MAX);
	/* in pairs: columns, then rows */
	for (size_t l = 0; l < hidden && !rc; l++)
		rc = train_layer_add_dense(m, widths[l], true,
					   l % 2 ? TRAIN_CUT_ROWS : TRAIN_CUT_COLUMNS);
	return rc ? rc
		  : train_layer_add_dense(m, m->classes, false,
					  hidden % 2 ? TRAIN_CUT_ROWS : TRAIN_CUT_NONE);
}

const struct train_model_ops train_model_mlp = {
	.name = "mlp",
	.syntax = "mlp:WIDTH,..",
	.help = "multilayer perceptron with hidden layers of these widths",
	.open = mlp_open,
};
