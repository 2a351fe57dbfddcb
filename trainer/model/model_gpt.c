/*
 * model_gpt.c - a transformer that predicts each character of a text from those before it: vectors of
 * characters and positions, blocks of attention and feed-forward layers, logits
 *
 * Row of the table in model.c; calls the layers. Source: Radford et al. 2019, Language models are
 * unsupervised multitask learners.
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

#include <stdio.h>

enum { BLOCKS_MAX = 64, WIDTH_MAX = 4096 };

static int gpt_open(struct train_model *m, const char *shape)
{
	unsigned blocks = 0, width = 0;
	int end = 0, rc;

	shape = shape ? shape : "2x64";
	if (sscanf(shape, "%3ux%4u%n", &blocks, &width, &end) != 2 || shape[end] || blocks < 1 ||
	    blocks > BLOCKS_MAX || width < 1 || width > WIDTH_MAX || width % TRAIN_HEADS)
		return train_fail(TRAIN_USAGE,
				  "--model gpt:%s: not BLOCKSxWIDTH; use 1 to %d blocks, and a "
				  "multiple of %d up to %d, such as gpt:2x64",
				  shape, BLOCKS_MAX, TRAIN_HEADS, WIDTH_MAX);
	if (!m->device->ops->norm)
		return train_fail(TRAIN_USAGE,
				  "--model gpt: --device %s has no layers of sequences; use "
				  "--device cpu",
				  m->device->ops->name);
	if (m->axis.shards > TRAIN_HEADS)
		return train_fail(TRAIN_USAGE,
				  "--shards %zu: --model gpt has %d heads; use at most %d",
				  m->axis.shards, TRAIN_HEADS, TRAIN_HEADS);
	rc = train_layer_add_embed(m, &(struct train_embedding){ .rows = m->classes,
								 .width = width,
								 .grams = 1,
								 .places = true });
	for (unsigned i = 0; i < blocks && !rc; i++) {
		rc = train_layer_add_attention(m);
		if (!rc)
			rc = train_layer_add_feedforward(m);
	}
	return rc ? rc : train_layer_add_head(m);
}

const struct train_model_ops train_model_gpt = {
	.name = "gpt",
	.syntax = "gpt:BLOCKSxWIDTH",
	.help = "transformer for text, of 8 heads",
	.text = true,
	.open = gpt_open,
};
