/* user_model.c - a model of a program, by its gradient (user_model.h) */
#include "trainer/rank/user_model.h"

#include "trainer/rank/fault.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tutti_train.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 60 };

static const struct train_layer_ops layer_user = { .name = "user" };
static const struct train_model_ops model_user = { .name = "user" };

/* ---- the description ---------------------------------------------------------------------------- */

/* A name is a part of JSON. */
static bool is_name(const char *name)
{
	size_t length = name ? strlen(name) : 0;

	for (size_t i = 0; i < length; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == '"' || name[i] == '\\')
			return false;
	return length > 0 && length <= NAME_MAX_BYTES;
}

static int check_model(const tuttiTrainModel_t *u)
{
	if (u->size != sizeof(*u))
		return train_fail(TRAIN_USAGE,
				  "tuttiTrain: a model has %zu bytes in this library, not %zu; set "
				  "size to sizeof(tuttiTrainModel_t), and compile again",
				  sizeof(*u), u->size);
	if (!is_name(u->name) || !u->tensors || !u->ntensors || !u->samples || !u->loss)
		return train_fail(TRAIN_USAGE,
				  "tuttiTrain: a model needs a name of at most %d bytes without "
				  "quotes, tensors, samples and loss",
				  NAME_MAX_BYTES);
	if (u->samples + u->tests > UINT32_MAX)
		return train_fail(TRAIN_USAGE,
				  "tuttiTrain: %zu samples and %zu tests: too many for 32 bits",
				  u->samples, u->tests);
	for (size_t i = 0; i < u->ntensors; i++)
		if (!is_name(u->tensors[i].name) || !u->tensors[i].rows || !u->tensors[i].columns)
			return train_fail(
				TRAIN_USAGE,
				"tuttiTrain: tensor %zu needs a name of at most %d bytes without "
				"quotes, rows and columns",
				i, NAME_MAX_BYTES);
	return TRAIN_OK;
}

static bool plays(const char *strategy)
{
	const struct train_strategy_ops *const *at = train_strategies;

	while (*at && strcmp((*at)->name, strategy))
		at++;
	return *at && (*at)->plays;
}

int train_user_check(struct train_config *c, const tuttiTrainModel_t *u)
{
	const struct {
		const char *option;
		bool given;
	} refused[] = {
		{ "--strategy a2c and a3c", plays(c->strategy) },
		{ "--data", strcmp(c->data, "auto") != 0 },
		{ "--model", strcmp(c->model, "mlp:256") != 0 },
		{ "--device", strcmp(c->device, "cpu") != 0 },
		{ "--mesh", c->mesh != NULL },
		{ "--zero 2 and 3", c->zero > 1 },
	};

	if (check_model(u))
		return TRAIN_USAGE;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (refused[i].given)
			return train_fail(TRAIN_USAGE,
					  "%s: is for the models of tutti-train; %s is a program's "
					  "own, as a whole and in host memory: omit the option",
					  refused[i].option, u->name);
	c->user = u;
	c->model = u->name;
	return TRAIN_OK;
}

int train_user_data(const struct train_config *config, struct train_data *ret_data)
{
	const tuttiTrainModel_t *u = config->user;

	*ret_data = (struct train_data){
		.name = u->name,
		.pixels = 1,
		.positions = 1,
		.train.samples = u->samples,
		.test.samples = u->tests ? u->tests : u->samples,
	};
	return TRAIN_OK;
}

int train_user_open(struct train_rank *t, size_t max_rows)
{
	const tuttiTrainModel_t *u = t->config->user;
	const struct train_model_size whole = { .chunks = 0 };
	struct train_model *m = &t->model;
	struct train_layer layer = { .ops = &layer_user, .inputs = 1, .outputs = 1, .flops = 1 };
	int rc = TRAIN_OK;

	*m = (struct train_model){ .ops = &model_user,
				   .device = &t->device,
				   .inputs = 1,
				   .positions = 1,
				   .max_rows = max_rows };
	for (size_t i = 0; i < u->ntensors && !rc; i++) {
		bool bias = u->tensors[i].rows == 1;
		struct train_tensor tensor = { .name = u->tensors[i].name,
					       .kind = bias ? "bias" : "weight",
					       .rows = u->tensors[i].rows,
					       .columns = u->tensors[i].columns,
					       .inputs = bias ? 0 : u->tensors[i].rows };

		rc = train_model_add(m, &tensor, &layer);
	}
	if (!rc)
		rc = train_model_add_layer(m, &layer);
	m->piece = m->parameters + 1; /* with the loss, which follows the gradients */
	return rc ? rc : train_model_cut(m, &whole);
}

void train_user_init(const struct train_rank *t, float *host_parameters)
{
	const tuttiTrainModel_t *u = t->config->user;

	if (u->init)
		u->init(u->arg, (uint64_t)t->config->seed, host_parameters);
	else
		train_model_init(&t->model, (uint64_t)t->config->seed, host_parameters);
}

void train_user_trained(struct train_rank *t)
{
	const tuttiTrainModel_t *u = t->config->user;

	if (u && u->trained)
		u->trained(u->arg, train_parameters_download(t));
}

/* ---- a gradient --------------------------------------------------------------------------------- */

struct user_pass {
	struct train_rank *t;
	const uint32_t *samples;
};

_Static_assert(TRAIN_TAIL_LOSS == 0, "a leaf is gradients, and then the loss");

static void gradient_leaf(void *arg, size_t row, size_t rows, float *out)
{
	const struct user_pass *p = arg;
	const tuttiTrainModel_t *u = p->t->config->user;
	size_t count = p->t->model.parameters;

	memset(out, 0, count * sizeof(*out));
	out[count] = (float)u->loss(u->arg, p->t->parameters, p->samples + row, rows, out);
}

int train_user_gradient(struct train_rank *t, const struct train_batch *batch,
			const struct train_ready *ready)
{
	size_t count = t->model.parameters;
	struct user_pass pass = { t, batch->samples };
	uint64_t begin = train_time_ns(), end;
	int rc;

	train_fault_begin(t, begin);
	train_leaves_each(&t->sum, batch->rows, count + 1, gradient_leaf, &pass, t->gradients);
	for (size_t i = 0; i < t->sum.nodes; i++)
		t->gradients[i * t->sum.stride + count + TRAIN_TAIL_STOP] = batch->stop && i == 0;
	train_fault_delay(t, 0);
	rc = train_ready_notify(ready, 0);
	end = train_time_ns();
	t->compute_ns = end - begin - t->slept_ns;
	t->computed_ns += end - begin;
	train_timeline_add(&t->timeline, TRAIN_TIME_COMPUTE, t->step, begin, end);
	return rc;
}

/* ---- the test set ------------------------------------------------------------------------------- */

int train_user_evaluate(struct train_rank *t, double *ret_accuracy, double *ret_loss)
{
	const tuttiTrainModel_t *u = t->config->user;
	size_t first = u->tests ? u->samples : 0, all = t->data->test.samples;
	struct train_share share = train_share_of(all, t->rank, t->nranks);
	double sums[2] = { 0.0, 0.0 };
	int rc;

	for (size_t done = 0; done < share.count;) {
		uint32_t samples[TRAIN_EVALUATE_ROWS];
		size_t rows = 0;

		for (; rows < TRAIN_EVALUATE_ROWS && done < share.count; rows++, done++)
			samples[rows] = (uint32_t)(first + share.first + done);
		sums[0] += u->correct ? (double)u->correct(u->arg, t->parameters, samples, rows)
				      : 0.0;
		sums[1] += u->loss(u->arg, t->parameters, samples, rows, NULL);
	}
	rc = train_check(tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, t->comm, NULL),
			 t->comm);
	*ret_accuracy = sums[0] / (double)all;
	*ret_loss = sums[1] / (double)all;
	return rc;
}
