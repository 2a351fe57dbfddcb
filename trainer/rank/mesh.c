/* mesh.c - the layout of the ranks (mesh.h) */
#include "trainer/rank/mesh.h"

#include "tools/plural.h"
#include "trainer/model/tensor_axis.h"
#include "trainer/rank/mesh_order.h"
#include "trainer/rank/rank.h"
#include "trainer/rank/tensor_sum.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { AXIS_MAX = 4096 };

/* ---- options ----------------------------------------------------------------------------------- */

static int parse_axis(const char *text, const char **ret_end, struct train_mesh *mesh)
{
	int *axis = NULL;
	char *end;
	long size;

	if (!strncmp(text, "data=", 5))
		axis = &mesh->data;
	else if (!strncmp(text, "pipeline=", 9))
		axis = &mesh->stages;
	else if (!strncmp(text, "tensor=", 7))
		axis = &mesh->tensor;
	if (!axis)
		return -1;
	size = strtol(strchr(text, '=') + 1, &end, 10);
	if (size < 1 || size > AXIS_MAX || (*end && *end != ','))
		return -1;
	*axis = (int)size;
	*ret_end = *end ? end + 1 : end;
	return 0;
}

/* Options that know nothing of stages. */
static int check_options(const struct train_config *c)
{
	const struct {
		const char *option;
		bool given;
	} refused[] = {
		{ "hashes", c->hashes != NULL },
		{ "slow", c->slow != NULL },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (refused[i].given)
			return train_fail(TRAIN_USAGE,
					  "--mesh %s: --%s is not for models that are cut; omit it",
					  c->mesh, refused[i].option);
	if (c->on_failure == TRAIN_FAILURE_SHRINK && !c->save)
		return train_fail(TRAIN_USAGE,
				  "--mesh %s: --on-failure shrink continues from a checkpoint; add "
				  "--save FILE",
				  c->mesh);
	if (c->canonical != TRAIN_CANONICAL_TREE && c->canonical != TRAIN_CANONICAL_CHAIN)
		return train_fail(
			TRAIN_USAGE,
			"--mesh %s: micro-batches are summed over leaves; add --canonical "
			"tree or --canonical chain",
			c->mesh);
	return TRAIN_OK;
}

int train_mesh_parse(const struct train_config *c, struct train_mesh *ret_mesh)
{
	struct train_mesh mesh = { .data = 0, .stages = 1, .tensor = 1 };
	const char *at = c->mesh;

	*ret_mesh = mesh;
	while (at && *at)
		if (parse_axis(at, &at, &mesh))
			return train_fail(
				TRAIN_USAGE,
				"--mesh %s: not a layout; use data=D,tensor=T,pipeline=P, "
				"such as data=2,pipeline=3",
				c->mesh);
	*ret_mesh = mesh;
	if (c->shards & (c->shards - 1))
		return train_fail(TRAIN_USAGE,
				  "--shards %" PRId64 ": shards are added up as a binary tree; use "
				  "1, 2, 4, 8, 16, 32 or 64",
				  c->shards);
	if ((mesh.tensor & (mesh.tensor - 1)) || mesh.tensor > 64)
		return train_fail(TRAIN_USAGE,
				  "--mesh %s: %d tensor ranks cannot divide the shards, a power of "
				  "2; use 1, 2, 4, 8, 16, 32 or 64",
				  c->mesh, mesh.tensor);
	if (c->shards % mesh.tensor)
		return train_fail(TRAIN_USAGE,
				  "--mesh %s: %d tensor ranks cannot divide --shards %" PRId64
				  "; add --shards %d, on one device too",
				  c->mesh, mesh.tensor, c->shards,
				  mesh.tensor < 8 ? 8 : mesh.tensor);
	if (c->mesh)
		return check_options(c);
	if (strcmp(c->schedule, "1f1b") || c->micro)
		return train_fail(
			TRAIN_USAGE,
			"--%s: has no effect without --mesh; add --mesh pipeline=2, or omit "
			"it",
			c->micro ? "micro" : "schedule");
	return TRAIN_OK;
}

/* ---- communicators ----------------------------------------------------------------------------- */

static int split(struct train_rank *t, int color, int key, tuttiComm_t *ret_comm)
{
	return train_check(tuttiCommSplit(t->world, color, key, ret_comm, NULL), t->world);
}

int train_mesh_split(struct train_rank *t)
{
	struct train_mesh *mesh = &t->mesh;
	int each = mesh->stages * mesh->tensor, world, replica, rc;

	rc = train_check(tuttiCommCount(t->world, &world), t->world);
	if (rc)
		return rc;
	if (!mesh->data)
		mesh->data = world / each;
	if (!mesh->data)
		mesh->data = 1;
	if (mesh->data * each != world)
		return train_fail(TRAIN_USAGE,
				  "--mesh %s: data=%d,tensor=%d,pipeline=%d needs %d rank%s, "
				  "and has %d; start as many ranks as the mesh has",
				  t->config->mesh, mesh->data, mesh->tensor, mesh->stages,
				  mesh->data * each, tool_s(mesh->data * each), world);
	rc = train_place_ranks(t);
	if (rc)
		return rc;
	replica = t->world_rank / each;
	mesh->tensor_rank = t->world_rank % mesh->tensor;
	mesh->stage = t->world_rank / mesh->tensor % mesh->stages;
	rc = split(t, t->world_rank % each, replica, &t->comm);
	if (!rc)
		rc = split(t, replica * mesh->tensor + mesh->tensor_rank, mesh->stage, &mesh->comm);
	if (!rc && mesh->tensor > 1)
		rc = split(t, replica * mesh->stages + mesh->stage, mesh->tensor_rank,
			   &mesh->tensor_comm);
	t->rank = replica;
	t->nranks = t->first_server = mesh->data;
	return rc;
}

void train_mesh_close(struct train_rank *t)
{
	train_tensor_sum_close(t);
	if (t->mesh.comm)
		tuttiCommDestroy(t->mesh.comm);
	if (t->mesh.tensor_comm)
		tuttiCommDestroy(t->mesh.tensor_comm);
}

bool train_is_lead(const struct train_rank *t)
{
	return t->rank == 0 && t->mesh.stage == 0 && t->mesh.tensor_rank == 0;
}

/* ---- parameters of all stages ------------------------------------------------------------------ */

/* Copies the tensors of a stage between their places in the whole array and an array of their own. */
static void copy_stage(const struct train_model *m, int stage, float *own, float *whole,
		       bool to_own)
{
	for (size_t i = 0; i < m->nwhole; i++) {
		const struct train_tensor *tensor = &m->whole_tensors[i];
		size_t bytes = tensor->count * sizeof(*own);

		if (train_model_stage_of(m, tensor->layer) != stage)
			continue;
		if (to_own)
			memcpy(own, whole + tensor->at, bytes);
		else
			memcpy(whole + tensor->at, own, bytes);
		own += tensor->count;
	}
}

/* The first stage: exchanges the arrays of the other stages with the whole array. */
static int exchange_stages(struct train_rank *t, float *whole, bool scatter)
{
	const struct train_model *m = &t->model;
	tuttiComm_t comm = t->mesh.comm;
	float *array = malloc(m->whole_parameters * sizeof(*array));
	int rc = TRAIN_OK;

	if (!array)
		return train_fail(TRAIN_FAILED, "no memory for %zu parameters",
				  m->whole_parameters);
	for (int stage = 1; stage < t->mesh.stages && !rc; stage++) {
		size_t n = train_model_stage_parameters(m, stage);

		if (scatter)
			copy_stage(m, stage, array, whole, true);
		rc = train_check(scatter ? tuttiSend(array, n, tuttiFloat32, stage, comm, NULL)
					 : tuttiRecv(array, n, tuttiFloat32, stage, comm, NULL),
				 comm);
		if (!rc && !scatter)
			copy_stage(m, stage, array, whole, false);
	}
	free(array);
	return rc;
}

/* Tensor rank 0: exchanges the arrays of the group's other ranks with the stage's. */
static int exchange_group(struct train_rank *t, float *stage, bool scatter)
{
	const struct train_model *m = &t->model;
	tuttiComm_t comm = t->mesh.tensor_comm;
	int rc = TRAIN_OK;

	for (size_t r = 1; r < (size_t)t->mesh.tensor && !rc; r++) {
		size_t n = train_tensor_axis_parameters(m, r);
		float *array = malloc(n * sizeof(*array));

		if (!array)
			return train_fail(TRAIN_FAILED, "no memory for %zu parameters", n);
		if (scatter)
			train_tensor_axis_copy(m, r, array, stage, true);
		rc = train_check(scatter ? tuttiSend(array, n, tuttiFloat32, (int)r, comm, NULL)
					 : tuttiRecv(array, n, tuttiFloat32, (int)r, comm, NULL),
				 comm);
		if (!rc && !scatter)
			train_tensor_axis_copy(m, r, array, stage, false);
		free(array);
	}
	return rc;
}

/* Tensor rank 0 of a stage: the stage's array, to or from the first stage. */
static int exchange_stage(struct train_rank *t, float *stage, float *whole, bool scatter)
{
	size_t n = train_model_stage_parameters(&t->model, t->mesh.stage);
	tuttiComm_t comm = t->mesh.comm;

	if (t->mesh.stage > 0)
		return train_check(scatter ? tuttiRecv(stage, n, tuttiFloat32, 0, comm, NULL)
					   : tuttiSend(stage, n, tuttiFloat32, 0, comm, NULL),
				   comm);
	copy_stage(&t->model, 0, stage, whole, scatter);
	return exchange_stages(t, whole, scatter);
}

static int exchange(struct train_rank *t, float *own, float *whole, bool scatter)
{
	const struct train_model *m = &t->model;
	tuttiComm_t comm = t->mesh.tensor_comm;
	float *stage;
	int rc = TRAIN_OK;

	if (t->mesh.tensor_rank > 0)
		return train_check(scatter ? tuttiRecv(own, m->parameters, tuttiFloat32, 0, comm,
						       NULL)
					   : tuttiSend(own, m->parameters, tuttiFloat32, 0, comm,
						       NULL),
				   comm);
	stage = malloc(train_model_stage_parameters(m, t->mesh.stage) * sizeof(*stage));
	if (!stage)
		return train_fail(TRAIN_FAILED, "no memory for the parameters of stage %d",
				  t->mesh.stage);
	if (!scatter) {
		train_tensor_axis_copy(m, 0, own, stage, false);
		rc = exchange_group(t, stage, false);
	}
	if (!rc)
		rc = exchange_stage(t, stage, whole, scatter);
	if (!rc && scatter) {
		train_tensor_axis_copy(m, 0, own, stage, true);
		rc = exchange_group(t, stage, true);
	}
	free(stage);
	return rc;
}

int train_mesh_gather(struct train_rank *t, float *host_own, float *whole)
{
	return exchange(t, host_own, whole, false);
}

int train_mesh_scatter(struct train_rank *t, float *whole, float *host_own)
{
	return exchange(t, host_own, whole, true);
}
