/* model.c - the table of models, and what all of them share (model.h) */
#include "trainer/model/model.h"

#include "trainer/fail.h"
#include "trainer/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct tt_model_ops *const tt_models[] = { &tt_model_linear, &tt_model_mlp, &tt_model_cnn,
						  NULL };

int tt_model_open(struct tt_model *m, const char *text, struct tt_device *device,
		  const struct tt_model_size *size)
{
	size_t bytes = strcspn(text, ":");
	int rc;

	*m = (struct tt_model){
		.device = device,
		.inputs = size->inputs,
		.classes = size->classes,
		.max_rows = size->max_rows,
		.leaf = size->leaf,
		.piece = TT_SUM_PIECE,
	};
	for (const struct tt_model_ops *const *at = tt_models; *at; at++)
		if (strlen((*at)->name) == bytes && !memcmp((*at)->name, text, bytes))
			m->ops = *at;
	if (!m->ops)
		return tt_train_fail(TT_TRAIN_USAGE,
				     "--model %s: there is no such model; --help lists them",
				     text);
	rc = m->ops->open(m, text[bytes] ? text + bytes + 1 : NULL);
	if (rc)
		tt_model_close(m);
	return rc;
}

void tt_model_close(struct tt_model *m)
{
	if (m->ops)
		m->ops->close(m);
	free(m->tensors);
	memset(m, 0, sizeof(*m));
}

int tt_model_add(struct tt_model *m, size_t count, size_t inputs)
{
	struct tt_tensor *more = realloc(m->tensors, (m->ntensors + 1) * sizeof(*more));

	if (!more)
		return tt_train_fail(TT_TRAIN_FAILED, "no memory for a model of %zu tensors",
				     m->ntensors + 1);
	m->tensors = more;
	more[m->ntensors++] =
		(struct tt_tensor){ .at = m->parameters, .count = count, .inputs = inputs };
	m->parameters += count;
	return TT_TRAIN_OK;
}

void tt_model_start(const struct tt_model *m, uint64_t seed, float *host_parameters)
{
	for (size_t t = 0; t < m->ntensors; t++) {
		const struct tt_tensor *tensor = &m->tensors[t];
		float reach = tensor->inputs ? sqrtf(6.0f / (float)tensor->inputs) : 0.0f;

		for (size_t i = 0; i < tensor->count; i++) {
			uint32_t random[4];

			tt_rng(seed, TT_RNG_WEIGHTS, (uint32_t)t, i, random);
			host_parameters[tensor->at + i] = reach * tt_rng_unit(random[0]);
		}
	}
}
