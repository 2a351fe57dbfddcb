/* spare_state.c - a copy of another rank's state, for a rank that missed results (spare_state.h) */
#include "trainer/strategy/spare_state.h"

#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ASK = 1, STATE = 2, LOOK_MS = 100 };

static size_t bytes_of(const struct train_rank *t)
{
	return 2 * t->model.parameters * sizeof(float);
}

static uint64_t copy_state(struct train_spare_state *s)
{
	struct train_rank *t = s->t;
	size_t half = t->model.parameters;
	uint64_t version;

	pthread_mutex_lock(&s->lock);
	t->device.ops->get(&t->device, s->copy, t->parameters, half * sizeof(float));
	t->device.ops->get(&t->device, s->copy + half, t->state, half * sizeof(float));
	version = s->version;
	s->copies++;
	pthread_mutex_unlock(&s->lock);
	return version;
}

static void *answer(void *arg)
{
	struct train_spare_state *s = arg;

	while (!atomic_load(&s->stop)) {
		tuttiMsg_t msg;
		tuttiResult_t result = tuttiMsgRecv(NULL, 0, TUTTI_ANY, ASK, LOOK_MS, s->t->comm,
						    &msg);
		uint64_t version;

		if (result == tuttiInProgress)
			continue;
		if (result != tuttiSuccess) /* no rank is left to request */
			break;
		version = copy_state(s);
		tuttiMsgSend(s->copy, bytes_of(s->t), msg.source, STATE, version, s->t->comm);
	}
	return NULL;
}

int train_spare_state_open(struct train_spare_state *s, struct train_rank *t)
{
	uint64_t copies = s->copies;
	int rc;

	*s = (struct train_spare_state){ .t = t, .copies = copies };
	s->copy = malloc(bytes_of(t));
	if (!s->copy)
		return train_fail(TRAIN_FAILED, "no memory for a copy of the state");
	if (t->nranks == 1)
		return TRAIN_OK;
	pthread_mutex_init(&s->lock, NULL);
	rc = tt_thread_start(&s->thread, "train-spare", answer, s);
	s->running = !rc;
	return rc ? train_fail(TRAIN_FAILED, "cannot create a thread that answers spare ranks: %s",
			       strerror(rc))
		  : TRAIN_OK;
}

void train_spare_state_close(struct train_spare_state *s)
{
	atomic_store(&s->stop, true);
	if (s->running) {
		pthread_join(s->thread, NULL);
		pthread_mutex_destroy(&s->lock);
	}
	s->running = false;
	free(s->copy);
	s->copy = NULL;
}

void train_spare_state_lock(struct train_spare_state *s)
{
	if (s->running)
		pthread_mutex_lock(&s->lock);
}

void train_spare_state_unlock(struct train_spare_state *s)
{
	if (s->running)
		pthread_mutex_unlock(&s->lock);
}

/* Asks a rank. *ret_version: of its state. */
static tuttiResult_t ask(struct train_rank *t, int rank, float *state, uint64_t *ret_version)
{
	tuttiMsg_t msg = { 0 };
	tuttiResult_t result = tuttiMsgSend(NULL, 0, rank, ASK, 0, t->comm);

	if (result != tuttiSuccess)
		return result;
	do
		result = tuttiMsgRecv(state, bytes_of(t), rank, STATE, -1, t->comm, &msg);
	while (result == tuttiInProgress);
	*ret_version = msg.version;
	return result;
}

/* Asks all ranks, until one has the state. Fails if all are dead. */
static int ask_all(struct train_rank *t, uint64_t least, float *state, uint64_t *ret_version)
{
	int dead = 0;

	*ret_version = 0;
	for (int rank = 0; rank < t->nranks && *ret_version < least; rank++) {
		tuttiResult_t result = rank == t->rank ? tuttiSuccess
						       : ask(t, rank, state, ret_version);

		dead += result == tuttiRemoteError;
		if (result != tuttiSuccess && (result != tuttiRemoteError || dead == t->nranks - 1))
			return train_check(result, t->comm);
	}
	return TRAIN_OK;
}

int train_spare_state_fetch(struct train_spare_state *s, struct train_rank *t, uint64_t least,
			    uint64_t *ret_version)
{
	size_t half = t->model.parameters;
	float *state = malloc(bytes_of(t));
	uint64_t version = 0;
	int rc = state ? ask_all(t, least, state, &version)
		       : train_fail(TRAIN_FAILED, "no memory for a copy of the state");

	for (; !rc && version < least; rc = ask_all(t, least, state, &version))
		usleep(1000);
	if (!rc) {
		train_spare_state_lock(s);
		train_parameters_set_host(t, state);
		t->device.ops->put(&t->device, t->state, state + half, half * sizeof(float));
		*ret_version = s->version = version;
		train_spare_state_unlock(s);
	}
	free(state);
	return rc;
}
