/*
 * model_rnn.c - a recurrent network that predicts each character of a text from those before it:
 * vectors of characters, layers of LSTM or GRU cells, logits
 *
 * Row of the table in model.c; calls the layers. Source: Graves 2013, Generating sequences with
 * recurrent neural networks.
 */
#include "trainer/base/fail.h"
#include "trainer/model/model.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS_MAX = 64, WIDTH_MAX = 4096 };

static int rnn_open(struct train_model *m, const char *shape)
{
	const char *text = shape ? shape : "2x128";
	bool gru = !strncmp(text, "gru:", 4);
	unsigned layers = 0, width = 0;
	int end = 0, rc;

	shape = text + (gru ? 4 : 0);
	if (sscanf(shape, "%3ux%4u%n", &layers, &width, &end) != 2 || shape[end] || layers < 1 ||
	    layers > LAYERS_MAX || width < 1 || width > WIDTH_MAX)
		return train_fail(TRAIN_USAGE,
				  "--model rnn:%s: not LAYERSxWIDTH; use 1 to %d layers of 1 to %d "
				  "cells, such as rnn:2x128 or rnn:gru:2x128",
				  text, LAYERS_MAX, WIDTH_MAX);
	if (!m->device->ops->lstm)
		return train_fail(TRAIN_USAGE,
				  "--model rnn: --device %s has no layers of sequences; use "
				  "--device cpu",
				  m->device->ops->name);
	rc = train_layer_add_embed(m, &(struct train_embedding){
					      .rows = m->classes, .width = width, .grams = 1 });
	for (unsigned i = 0; i < layers && !rc; i++)
		rc = (gru ? train_layer_add_gru : train_layer_add_lstm)(m, width);
	return rc ? rc : train_layer_add_head(m);
}

const struct train_model_ops train_model_rnn = {
	.name = "rnn",
	.syntax = "rnn:[gru:]LAYERSxWIDTH",
	.help = "recurrent network for text, of LSTM or GRU cells",
	.text = true,
	.recurrent = true,
	.open = rnn_open,
};
