/*
 * pinned.c - pieces of host memory that CUDA copies from and to, each with a word that streams wait for
 *
 * Called by staged.c and courier.c. Memory of tuttiMemAlloc, so that ranks of the host read it in place, registered with
 * CUDA. Pieces are kept for the next call of about that size: registering takes long, and must not happen where a
 * stream calls back. There are as many as calls were under way at once.
 */
#include <pthread.h>
#include <stdlib.h>

#include "nccl/staged.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nc_piece *idle;                  /* under lock */

/* The smallest idle piece that is large enough, if it is not far too large. */
static struct nc_piece *take_idle(size_t bytes)
{
	struct nc_piece **best = NULL, *p = NULL;

	pthread_mutex_lock(&lock);
	for (struct nc_piece **at = &idle; *at; at = &(*at)->next)
		if ((*at)->bytes >= bytes && (*at)->bytes / 8 <= bytes && (!best || (*at)->bytes < (*best)->bytes))
			best = at;
	if (best) {
		p = *best;
		*best = p->next;
	}
	pthread_mutex_unlock(&lock);
	return p;
}

static int make(const struct tt_cuda *cu, size_t bytes, struct nc_piece **ret_piece)
{
	struct nc_piece *p = calloc(1, sizeof(*p));
	void *memory = NULL;
	int rc = p ? nc_code(tuttiMemAlloc(&memory, bytes)) : tt_fail(TT_SYSTEM, "no memory for a call on device memory");

	if (!rc && (rc = cu->host_register(memory, bytes, TT_CU_HOST_PORTABLE | TT_CU_HOST_MAPPED)))
		rc = tt_cuda_fail(rc, "%zu bytes of host memory to copy through cannot be pinned", bytes);
	if (!rc && (rc = cu->host_device_ptr(&p->word_device, memory, 0))) {
		rc = tt_cuda_fail(rc, "pinned memory has no address on the device");
		cu->host_unregister(memory);
	}
	if (rc) {
		if (memory)
			tuttiMemFree(memory);
		free(p);
		return rc;
	}
	p->word = memory;
	p->data = (char *)memory + NC_PIECE_HEAD;
	p->bytes = bytes;
	*ret_piece = p;
	return 0;
}

int nc_piece_take(const struct tt_cuda *cu, size_t bytes, struct nc_piece **ret_piece)
{
	size_t room = 1 << 16;

	bytes += NC_PIECE_HEAD;
	while (room < bytes)
		room *= 2;
	*ret_piece = take_idle(bytes);
	if (*ret_piece)
		return 0;
	return make(cu, room - bytes < bytes / 4 ? room : (bytes + 0xffff) & ~(size_t)0xffff, ret_piece);
}

void nc_piece_give(struct nc_piece *p)
{
	pthread_mutex_lock(&lock);
	p->next = idle;
	idle = p;
	pthread_mutex_unlock(&lock);
}

/* The memory is shared with a forked child, who must not touch what its parent works with. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	idle = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
