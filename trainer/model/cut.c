/* cut.c - a model that is cut into chunks of layers, for the stages of a pipeline (model.h). Called by
 * model.c, mesh.c and pipeline.c. */
#include "trainer/model/model.h"

#include "tools/plural.h"
#include "trainer/base/fail.h"
#include "trainer/model/tensor_axis.h"

#include <stdlib.h>
#include <string.h>

/* Begins each chunk where the layers before it have their share of the operations; no chunk is
 * empty. */
static void place_chunks(struct train_model *m)
{
	size_t chunks = (size_t)m->chunks, layer = 0;
	double all = 0, done = 0;

	for (size_t l = 0; l < m->layers; l++)
		all += m->layer[l].flops;
	for (size_t c = 1; c < chunks; c++) {
		double share = all * (double)c / (double)chunks;
		size_t last = m->layers - (chunks - c);

		do
			done += m->layer[layer++].flops;
		while (layer < last && done + m->layer[layer].flops / 2 <= share);
		m->chunk_first[c] = layer;
	}
	m->chunk_first[chunks] = m->layers;
}

int train_model_stage_of(const struct train_model *m, size_t layer)
{
	int chunk = 0;

	while (layer >= m->chunk_first[chunk + 1])
		chunk++;
	return chunk % m->stages;
}

size_t train_model_stage_parameters(const struct train_model *m, int stage)
{
	size_t count = 0;

	for (size_t i = 0; i < m->nwhole; i++)
		if (train_model_stage_of(m, m->whole_tensors[i].layer) == stage)
			count += m->whole_tensors[i].count;
	return count;
}

/* Keeps the tensors of the stage, one after the other. */
static void keep_stage(struct train_model *m)
{
	size_t kept = 0, at = 0;

	for (size_t l = 0, end = 0; l < m->layers; l++) {
		m->layer[l].at = end;
		end += train_model_stage_of(m, l) == m->stage ? m->layer[l].parameters : 0;
	}
	for (size_t i = 0; i < m->ntensors; i++) {
		struct train_tensor tensor = m->tensors[i];

		if (train_model_stage_of(m, tensor.layer) != m->stage)
			continue;
		tensor.at = at;
		at += tensor.count;
		m->tensors[kept++] = tensor;
	}
	m->ntensors = kept;
	m->parameters = at;
}

int train_model_cut(struct train_model *m, const struct train_model_size *size)
{
	m->stages = size->chunks ? size->stages : 1;
	m->stage = size->chunks ? size->stage : 0;
	m->chunks = size->chunks ? size->chunks : 1;
	if ((size_t)m->chunks > m->layers)
		return train_fail(TRAIN_USAGE,
				  "--mesh: the model has %zu layer%s, too few for %d chunks; use "
				  "fewer stages, or a model with more layers",
				  m->layers, tool_s((long long)m->layers), m->chunks);
	m->nwhole = m->ntensors;
	m->chunk_first = calloc((size_t)m->chunks + 1, sizeof(*m->chunk_first));
	m->whole_tensors = malloc(m->ntensors * sizeof(*m->whole_tensors));
	if (!m->chunk_first || !m->whole_tensors)
		return train_fail(TRAIN_FAILED, "no memory for a model of %zu layers", m->layers);
	memcpy(m->whole_tensors, m->tensors, m->ntensors * sizeof(*m->tensors));
	for (size_t i = 0; i < m->nwhole; i++) {
		m->whole_tensors[i].at = m->whole_parameters;
		m->whole_tensors[i].count = train_tensor_whole_count(&m->tensors[i]);
		m->whole_parameters += m->whole_tensors[i].count;
	}
	place_chunks(m);
	keep_stage(m);
	return TRAIN_OK;
}
