/*
 * model_embed.c - a large table of vectors that predicts each character of a text from the three before
 * it: the row of a hash of the characters, a feed-forward layer, logits
 *
 * A batch touches few rows of the table: the model of a sparse layer (sparse_rows.h). Row of the table
 * in model.c; calls the layers.
 *
 * Sources: Bengio et al. 2003, A neural probabilistic language model; Bojanowski et al. 2017,
 * Enriching word vectors with subword information, for rows by hash.
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

#include <stdio.h>

enum { ROWS_MAX = 9999999, WIDTH_MAX = 4096, GRAMS = 3 };

static int embed_open(struct train_model *m, const char *shape)
{
	unsigned rows = 0, width = 0;
	int end = 0, rc;

	shape = shape ? shape : "20000x32";
	if (sscanf(shape, "%7ux%4u%n", &rows, &width, &end) != 2 || shape[end] || rows < 1 ||
	    width < 1 || width > WIDTH_MAX)
		return train_fail(TRAIN_USAGE,
				  "--model embed:%s: not ROWSxWIDTH; use 1 to %d rows of 1 to %d "
				  "floats, such as embed:20000x32",
				  shape, ROWS_MAX, WIDTH_MAX);
	if (!m->device->ops->embed)
		return train_fail(TRAIN_USAGE,
				  "--model embed: --device %s has no layers of sequences; use "
				  "--device cpu",
				  m->device->ops->name);
	rc = train_layer_add_embed(m, &(struct train_embedding){
					      .rows = rows, .width = width, .grams = GRAMS });
	if (!rc)
		rc = train_layer_add_feedforward(m);
	return rc ? rc : train_layer_add_head(m);
}

const struct train_model_ops train_model_embed = {
	.name = "embed",
	.syntax = "embed:ROWSxWIDTH",
	.help = "table of vectors for text, of which a batch touches few rows",
	.text = true,
	.open = embed_open,
};
