/* average_state.c - the state of a rank of local SGD beyond parameters and velocity
 * (average_state.h) */
#include "trainer/strategy/average_state.h"

static float *alloc(struct train_rank *t, size_t bytes)
{
	return t->comm_device->ops->alloc(t->comm_device, bytes ? bytes : 1);
}

static void copy(struct train_rank *t, float *to, const float *from)
{
	t->comm_device->ops->copy(t->comm_device, to, from, t->model.parameters * sizeof(float));
}

int train_average_open(struct train_rank *t, struct train_average_state *a)
{
	size_t bytes = t->model.parameters * sizeof(float), extra = bytes;
	bool missing;

	if (t->config->average == TRAIN_AVERAGE_SUPERVISOR) /* rank 0 may change after deaths */
		extra *= t->rank == 0 || t->config->on_failure == TRAIN_FAILURE_SHRINK ? t->nranks
										       : 0;
	a->saved = alloc(t, bytes);
	a->center = alloc(t, bytes);
	a->extra = alloc(t, extra);
	missing = !a->saved || !a->center || !a->extra;
	for (int i = 0; i < TRAIN_AVERAGE_ARRAYS; i++) {
		a->own[i] = alloc(t, bytes);
		missing |= !a->own[i];
	}
	return missing ? train_fail(TRAIN_FAILED, "no memory to average %zu bytes", bytes)
		       : TRAIN_OK;
}

void train_average_close(struct train_rank *t, struct train_average_state *a)
{
	float *arrays[] = { a->saved, a->center, a->extra };

	for (int i = 0; i < 3; i++)
		t->comm_device->ops->free(t->comm_device, arrays[i]);
	for (int i = 0; i < TRAIN_AVERAGE_ARRAYS; i++)
		t->comm_device->ops->free(t->comm_device, a->own[i]);
}

/* ---- an evaluation or a checkpoint ---------------------------------------------------------- */

/* The arrays that an average changes; parameters: mapped. The supervisor's extra is scratch.
 * Returns their number. */
static int list_arrays(struct train_rank *t, struct train_average_state *a, float *parameters,
		       float *ret_array[TRAIN_AVERAGE_ARRAYS])
{
	int how = t->config->average;

	ret_array[0] = parameters;
	ret_array[1] = a->center;
	ret_array[2] = a->extra;
	return how == TRAIN_AVERAGE_DILOCO ? 3 : how == TRAIN_AVERAGE_EASGD ? 2 : 1;
}

void train_average_keep(struct train_rank *t, struct train_average_state *a)
{
	float *array[TRAIN_AVERAGE_ARRAYS];
	int n = list_arrays(t, a, train_parameters_map(t), array);

	for (int i = 0; i < n; i++)
		copy(t, a->own[i], array[i]);
	a->own_apart = a->apart;
	a->own_soon = a->soon;
	a->own_averages = a->averages;
}

void train_average_put_back(struct train_rank *t, struct train_average_state *a)
{
	float *array[TRAIN_AVERAGE_ARRAYS];
	int n = list_arrays(t, a, train_parameters_map(t), array);

	for (int i = 0; i < n; i++)
		copy(t, array[i], a->own[i]);
	train_parameters_unmap(t);
	a->apart = a->own_apart;
	a->soon = a->own_soon;
	a->averages = a->own_averages;
}

/* The velocity, then the arrays of train_average_keep. */
size_t train_average_own_arrays(const struct train_rank *t)
{
	int how = t->config->average;

	return how == TRAIN_AVERAGE_DILOCO ? 4 : how == TRAIN_AVERAGE_EASGD ? 3 : 2;
}

void train_average_own_state(struct train_rank *t, struct train_average_state *a, float *host)
{
	size_t n = t->model.parameters, arrays = train_average_own_arrays(t);

	t->device.ops->get(&t->device, host, t->state, n * sizeof(*host));
	for (size_t i = 1; i < arrays; i++)
		t->comm_device->ops->get(t->comm_device, host + i * n, a->own[i - 1],
					 n * sizeof(*host));
}

void train_average_own_restore(struct train_rank *t, struct train_average_state *a,
			       const float *host)
{
	size_t n = t->model.parameters, arrays = train_average_own_arrays(t);

	t->device.ops->put(&t->device, t->state, host, n * sizeof(*host));
	for (size_t i = 1; i < arrays; i++)
		t->comm_device->ops->put(t->comm_device, a->own[i - 1], host + i * n,
					 n * sizeof(*host));
	a->own_apart = true;
	train_average_put_back(t, a);
}
