/* tensor_axis.c - shards of a dimension, and tensors that are cut (tensor_axis.h) */
#include "trainer/model/tensor_axis.h"

#include "trainer/base/fail.h"

#include <string.h>

/* ---- shards ------------------------------------------------------------------------------------- */

static size_t ranks_of(const struct train_tensor_axis *a)
{
	return a->ranks ? a->ranks : 1;
}

size_t train_shards_each(const struct train_tensor_axis *a)
{
	return a->shards ? a->shards / ranks_of(a) : 1;
}

static size_t begin_of(const struct train_tensor_axis *a, size_t whole, size_t shard)
{
	return whole * shard / (a->shards ? a->shards : 1);
}

struct train_node train_rank_range(const struct train_tensor_axis *a, size_t whole, size_t rank)
{
	size_t each = train_shards_each(a);

	return (struct train_node){ begin_of(a, whole, rank * each),
				    begin_of(a, whole, (rank + 1) * each) };
}

size_t train_shards_of(const struct train_tensor_axis *a, size_t whole)
{
	struct train_node own = train_rank_range(a, whole, a->rank);

	return own.last - own.first;
}

struct train_node train_shard_range(const struct train_tensor_axis *a, size_t whole, size_t shard)
{
	size_t first = a->rank * train_shards_each(a), begin = begin_of(a, whole, first);

	return (struct train_node){ begin_of(a, whole, first + shard) - begin,
				    begin_of(a, whole, first + shard + 1) - begin };
}

/* ---- tensors ------------------------------------------------------------------------------------ */

static size_t unit_of(const struct train_tensor *t)
{
	return t->unit ? t->unit : 1;
}

size_t train_tensor_whole_columns(const struct train_tensor *t)
{
	return t->cut == TRAIN_CUT_COLUMNS ? t->whole * unit_of(t) + t->shared : t->columns;
}

size_t train_tensor_whole_count(const struct train_tensor *t)
{
	return (t->cut == TRAIN_CUT_ROWS ? t->whole : t->rows) * train_tensor_whole_columns(t);
}

/* The part of a tensor that a rank has. */
struct tensor_part {
	size_t rows, columns, first_row, first_column, whole_columns;
	size_t shared; /* the last of columns, and of whole_columns */
};

static struct tensor_part part_of(const struct train_tensor *t, const struct train_tensor_axis *a,
				  size_t rank)
{
	struct tensor_part p = { t->rows, t->columns, 0, 0, train_tensor_whole_columns(t), 0 };
	struct train_node range = train_rank_range(a, t->whole, rank);

	if (t->cut == TRAIN_CUT_ROWS) {
		p.first_row = range.first;
		p.rows = range.last - range.first;
	}
	if (t->cut == TRAIN_CUT_COLUMNS) {
		p.first_column = range.first * unit_of(t);
		p.columns = (range.last - range.first) * unit_of(t) + t->shared;
		p.shared = t->shared;
	}
	return p;
}

size_t train_tensor_whole_index(const struct train_tensor *t, const struct train_tensor_axis *a,
				size_t i)
{
	struct tensor_part p = part_of(t, a, a->rank);
	size_t column = i % p.columns, cut = p.columns - p.shared;

	column += column < cut ? p.first_column : p.whole_columns - p.columns;
	return (p.first_row + i / p.columns) * p.whole_columns + column;
}

static void copy(float *own, float *whole, size_t count, bool to_own)
{
	memcpy(to_own ? own : whole, to_own ? whole : own, count * sizeof(*own));
}

void train_tensor_axis_copy(const struct train_model *m, size_t rank, float *own, float *whole,
			    bool to_own)
{
	for (size_t i = 0; i < m->ntensors; i++) {
		const struct train_tensor *t = &m->tensors[i];
		struct tensor_part p = part_of(t, &m->axis, rank);

		for (size_t row = 0; row < p.rows; row++, own += p.columns) {
			float *begin = whole + (p.first_row + row) * p.whole_columns;
			size_t cut = p.columns - p.shared;

			copy(own, begin + p.first_column, cut, to_own);
			copy(own + cut, begin + p.whole_columns - p.shared, p.shared, to_own);
		}
		whole += train_tensor_whole_count(t);
	}
}

size_t train_tensor_axis_parameters(const struct train_model *m, size_t rank)
{
	size_t count = 0;

	for (size_t i = 0; i < m->ntensors; i++) {
		struct tensor_part p = part_of(&m->tensors[i], &m->axis, rank);

		count += p.rows * p.columns;
	}
	return count;
}

int train_tensor_axis_check(const struct train_model *m)
{
	size_t ranks = ranks_of(&m->axis);
	bool cut = false;

	for (size_t i = 0; i < m->ntensors; i++) {
		const struct train_tensor *t = &m->tensors[i];

		if (t->cut == TRAIN_CUT_NONE)
			continue;
		cut = true;
		if (t->whole < ranks)
			return train_fail(
				TRAIN_USAGE,
				"--mesh: a layer of %zu units is too narrow for %zu tensor "
				"ranks; use fewer, or a wider model",
				t->whole, ranks);
	}
	if (cut || ranks == 1)
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE,
			  "--mesh: --model %s has no layer that tensor ranks can divide; use "
			  "mlp, cnn or gpt",
			  m->ops->name);
}

void train_tensor_axis_sum(struct train_model *m, float *data, size_t count)
{
	if (ranks_of(&m->axis) > 1 && !m->failed)
		m->failed = m->axis.sum(m->axis.arg, data, count) != TRAIN_OK;
}
