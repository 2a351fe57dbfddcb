/* spare_state.c - a copy of rank 0's state, for a rank that missed results (spare_state.h) */
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
	if (t->rank || t->nranks == 1)
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

int train_spare_state_fetch(struct train_spare_state *s, struct train_rank *t, uint64_t least,
			    uint64_t *ret_version)
{
	size_t half = t->model.parameters;
	tuttiMsg_t msg = { 0 };
	int rc = TRAIN_OK;

	for (; !rc && msg.version < least; usleep(1000)) {
		tuttiResult_t result;

		rc = train_check(tuttiMsgSend(NULL, 0, 0, ASK, 0, t->comm), t->comm);
		if (rc)
			return rc;
		do
			result = tuttiMsgRecv(s->copy, bytes_of(t), 0, STATE, -1, t->comm, &msg);
		while (result == tuttiInProgress);
		rc = train_check(result, t->comm);
	}
	if (rc)
		return rc;
	train_parameters_set_host(t, s->copy);
	t->device.ops->put(&t->device, t->state, s->copy + half, half * sizeof(float));
	*ret_version = msg.version;
	return TRAIN_OK;
}
