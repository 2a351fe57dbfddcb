/* model.c - the table of models, and their common part (model.h) */
#include "trainer/model/model.h"

#include "trainer/base/fail.h"
#include "trainer/base/rng.h"
#include "trainer/model/tensor_axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct train_model_ops *const train_models[] = { &train_model_linear,
						       &train_model_mlp,
						       &train_model_cnn,
						       &train_model_gpt,
						       &train_model_rnn,
						       &train_model_embed,
						       NULL };

/* Memory of the passes. */
static int open_memory(struct train_model *m)
{
	size_t scratch = 0;

	for (size_t l = 0; l < m->layers; l++) {
		const struct train_layer *layer = &m->layer[l];
		size_t floats = layer->ops->scratch ? layer->ops->scratch(m, layer) : 0;

		scratch = floats > scratch ? floats : scratch;
		m->piece = layer->piece > m->piece ? layer->piece : m->piece;
	}
	if (scratch)
		m->scratch = m->device->ops->alloc(m->device, scratch * sizeof(float));
	if (scratch && !m->scratch)
		return train_fail(TRAIN_FAILED, "no memory for a leaf of %zu samples", m->leaf);
	if (m->chunks > 1)
		return TRAIN_OK;
	return train_activations_open(m, 0, m->layers, m->max_rows, &m->whole);
}

int train_model_open(struct train_model *m, const char *text, struct train_device *device,
		     const struct train_model_size *size)
{
	size_t bytes = strcspn(text, ":");
	int rc;

	*m = (struct train_model){
		.device = device,
		.inputs = size->inputs,
		.classes = size->classes,
		.max_rows = size->max_rows,
		.leaf = size->leaf,
		.piece = TRAIN_SUM_PIECE,
		.positions = size->positions ? size->positions : 1,
		.axis = size->axis,
	};
	for (const struct train_model_ops *const *at = train_models; *at; at++)
		if (strlen((*at)->name) == bytes && !memcmp((*at)->name, text, bytes))
			m->ops = *at;
	if (!m->ops)
		return train_fail(TRAIN_USAGE,
				  "--model %s: there is no such model; --help lists them", text);
	if (m->ops->text != size->text)
		return train_fail(TRAIN_USAGE,
				  "--model %s: is for %s; use --data %s, or --model %s", text,
				  m->ops->text ? "text" : "images",
				  m->ops->text ? "text:FILE" : "fashion or synth",
				  m->ops->text ? "mlp:256" : "gpt:2x64");
	rc = m->ops->open(m, text[bytes] ? text + bytes + 1 : NULL);
	if (!rc)
		rc = train_tensor_axis_check(m);
	if (!rc)
		rc = train_model_cut(m, size);
	if (!rc)
		rc = open_memory(m);
	if (rc)
		train_model_close(m);
	return rc;
}

void train_model_close(struct train_model *m)
{
	if (m->device) {
		train_activations_close(m, &m->whole);
		m->device->ops->free(m->device, m->scratch);
	}
	free(m->layer);
	free(m->tensors);
	free(m->whole_tensors);
	free(m->chunk_first);
	memset(m, 0, sizeof(*m));
}

int train_model_add(struct train_model *m, const struct train_tensor *tensor,
		    struct train_layer *layer)
{
	struct train_tensor *more = realloc(m->tensors, (m->ntensors + 1) * sizeof(*more));

	if (!more)
		return train_fail(TRAIN_FAILED, "no memory for a model of %zu tensors",
				  m->ntensors + 1);
	m->tensors = more;
	more += m->ntensors;
	*more = *tensor;
	more->at = m->parameters;
	more->count = tensor->rows * tensor->columns;
	more->layer = m->layers;
	more->number = (uint32_t)m->ntensors++;
	m->parameters += more->count;
	layer->parameters += more->count;
	return TRAIN_OK;
}

int train_model_add_layer(struct train_model *m, const struct train_layer *layer)
{
	struct train_layer *more = realloc(m->layer, (m->layers + 1) * sizeof(*more));

	if (!more)
		return train_fail(TRAIN_FAILED, "no memory for a model of %zu layers",
				  m->layers + 1);
	m->layer = more;
	more[m->layers] = *layer;
	more[m->layers++].at = m->parameters - layer->parameters;
	return TRAIN_OK;
}

size_t train_model_outputs(const struct train_model *m)
{
	return m->layers ? m->layer[m->layers - 1].outputs : m->inputs;
}

float *train_model_forward(struct train_model *m, const float *parameters, const float *x,
			   size_t rows)
{
	return train_chunk_forward(&m->whole, parameters, x, rows);
}

int train_model_backward(struct train_model *m, const float *parameters, float *dlogits,
			 const struct train_leaf_sum *sum, float *gradients,
			 const struct train_ready *ready)
{
	return train_chunk_backward(&m->whole, parameters, dlogits, sum, gradients, ready);
}

void train_model_init(const struct train_model *m, uint64_t seed, float *host_parameters)
{
	for (size_t t = 0; t < m->ntensors; t++) {
		const struct train_tensor *tensor = &m->tensors[t];
		float bound = tensor->inputs ? sqrtf(6.0f / (float)tensor->inputs) : 0.0f;

		for (size_t i = 0; i < tensor->count; i++) {
			size_t whole = train_tensor_whole_index(tensor, &m->axis, i);
			uint32_t random[4];

			train_rng(seed, TRAIN_RNG_WEIGHTS, tensor->number, whole, random);
			host_parameters[tensor->at + i] = tensor->inputs
								  ? bound * train_rng_unit(
										    random[0])
								  : tensor->value;
		}
	}
}
