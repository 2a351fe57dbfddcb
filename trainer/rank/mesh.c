/* mesh.c - the layout of the ranks (mesh.h) */
#include "trainer/rank/mesh.h"

#include "trainer/rank/rank.h"

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
		{ "timeline", c->timeline != NULL },
		{ "slow", c->slow != NULL },
		{ "on-failure shrink", c->on_failure == TRAIN_FAILURE_SHRINK },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (refused[i].given)
			return train_fail(TRAIN_USAGE,
					  "--mesh %s: --%s is not for models that are cut; omit it",
					  c->mesh, refused[i].option);
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
	struct train_mesh mesh = { .data = 0, .stages = 1 };
	const char *at = c->mesh;

	*ret_mesh = mesh;
	while (at && *at)
		if (parse_axis(at, &at, &mesh))
			return train_fail(TRAIN_USAGE,
					  "--mesh %s: not a layout; use data=D,pipeline=P, such as "
					  "data=2,pipeline=3",
					  c->mesh);
	*ret_mesh = mesh;
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

int train_mesh_split(struct train_rank *t)
{
	struct train_mesh *mesh = &t->mesh;
	int world, replica, rc;

	rc = train_check(tuttiCommCount(t->world, &world), t->world);
	if (rc)
		return rc;
	if (!mesh->data)
		mesh->data = world / mesh->stages;
	if (!mesh->data || mesh->data * mesh->stages != world)
		return train_fail(
			TRAIN_USAGE,
			"--mesh %s: %d stages of %d replicas are not the %d ranks that there "
			"are; start as many ranks as the mesh has",
			t->config->mesh, mesh->stages, mesh->data ? mesh->data : 1, world);
	replica = t->world_rank / mesh->stages;
	mesh->stage = t->world_rank % mesh->stages;
	rc = train_check(tuttiCommSplit(t->world, mesh->stage, replica, &t->comm, NULL), t->world);
	if (!rc)
		rc = train_check(tuttiCommSplit(t->world, replica, mesh->stage, &mesh->comm, NULL),
				 t->world);
	t->rank = replica;
	t->nranks = t->first_server = mesh->data;
	return rc;
}

bool train_is_lead(const struct train_rank *t)
{
	return t->rank == 0 && t->mesh.stage == 0;
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

/* Stage 0: exchanges the arrays of the other stages with the whole array. */
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

int train_mesh_gather(struct train_rank *t, float *host_own, float *whole)
{
	tuttiComm_t comm = t->mesh.comm;

	if (t->mesh.stage > 0)
		return train_check(tuttiSend(host_own, t->model.parameters, tuttiFloat32, 0, comm,
					     NULL),
				   comm);
	copy_stage(&t->model, 0, host_own, whole, false);
	return exchange_stages(t, whole, false);
}

int train_mesh_scatter(struct train_rank *t, float *whole, float *host_own)
{
	tuttiComm_t comm = t->mesh.comm;

	if (t->mesh.stage > 0)
		return train_check(tuttiRecv(host_own, t->model.parameters, tuttiFloat32, 0, comm,
					     NULL),
				   comm);
	copy_stage(&t->model, 0, host_own, whole, true);
	return exchange_stages(t, whole, true);
}
