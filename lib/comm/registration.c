/*
 * registration.c - buffers registered by the user: registered memory (mem/registered.h) until
 * deregistered
 *
 * Called by api, and by comm.c when the communicator is freed. A handle is searched in the
 * communicator's list before any access, so a wrong handle is an error, not a crash.
 */
#include <stdlib.h>

#include "comm/accelerator.h"
#include "comm/comm.h"
#include "mem/registered.h"

struct tt_registration {
	struct tt_registration *next;
	struct tt_registered memory;
};

int tt_comm_register(tuttiComm_t c, const void *start, size_t bytes, void **ret_handle)
{
	struct tt_registration *r;

	if (!bytes) {
		*ret_handle = NULL;
		return 0;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return tt_fail(TT_SYSTEM,
			       "rank %d: no memory to record a registration of %zu bytes at %p",
			       c->rank, bytes, start);
	r->memory.ctx = tt_accelerator.context_of(c, start);
	tt_registered_add(&r->memory, start, bytes);
	pthread_mutex_lock(&c->lock);
	r->next = c->memory.registrations;
	c->memory.registrations = r;
	pthread_mutex_unlock(&c->lock);
	*ret_handle = r;
	return 0;
}

int tt_comm_deregister(tuttiComm_t c, void *handle)
{
	struct tt_registration **at, *r;

	if (!handle)
		return 0;
	pthread_mutex_lock(&c->lock);
	for (at = &c->memory.registrations; *at && *at != handle; at = &(*at)->next)
		;
	r = *at;
	if (r)
		*at = r->next;
	pthread_mutex_unlock(&c->lock);
	if (!r)
		return tt_fail(
			TT_ARG,
			"rank %d: %p is no handle of tuttiCommRegister on this communicator, or was deregistered",
			c->rank, handle);
	tt_registered_remove(&r->memory);
	free(r);
	return 0;
}

void tt_comm_deregister_all(tuttiComm_t c)
{
	while (c->memory.registrations)
		tt_comm_deregister(c, c->memory.registrations);
}
