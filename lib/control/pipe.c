/*
 * pipe.c - two rings of bytes in memory, and the events of their ends
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "control/endpoint.h"
#include "control/pipe.h"

#define ROOM_MIN 4096u /* from the beginning, so that a frame fits without memory */

struct tt_pipe {
	struct pipe_ends *both;
	struct tt_pipe *other;
	struct tt_control_endpoint *ep; /* to wake, NULL: none */
	uint8_t *data;                  /* a ring: bytes for this end to receive */
	size_t at, have, room, peak;    /* peak: of have, since the ring was empty */
	bool ended;                     /* the other end sends no more */
	bool shut;                      /* by this end, both ways */
	bool closed;                    /* this end */
	bool writing;                   /* an event is wanted when there is room */
	atomic_uint events;
};

struct pipe_ends {
	pthread_mutex_t lock;
	struct tt_pipe end[2];
};

static void free_ends(struct pipe_ends *both)
{
	pthread_mutex_destroy(&both->lock);
	free(both->end[0].data);
	free(both->end[1].data);
	free(both);
}

bool tt_pipe_make(struct tt_pipe *ret_end[2])
{
	struct pipe_ends *both = calloc(1, sizeof(*both));

	if (!both)
		return false;
	pthread_mutex_init(&both->lock, NULL);
	for (int i = 0; i < 2; i++) {
		both->end[i].both = both;
		both->end[i].other = &both->end[1 - i];
		both->end[i].data = malloc(ROOM_MIN);
		both->end[i].room = ROOM_MIN;
		ret_end[i] = &both->end[i];
	}
	if (both->end[0].data && both->end[1].data)
		return true;
	free_ends(both);
	return false;
}

/* ---- events; the pipe's lock is held --------------------------------------------------------- */

static void update(struct tt_pipe *end)
{
	const struct tt_pipe *other = end->other;
	unsigned now = 0, before;

	if (end->have || end->ended || end->shut)
		now |= EPOLLIN;
	if (end->writing && (other->have <= other->room / 2 || other->closed || other->shut))
		now |= EPOLLOUT;
	before = atomic_exchange(&end->events, now);
	if (now & ~before && end->ep)
		tt_endpoint_wake(end->ep);
}

unsigned tt_pipe_events(const struct tt_pipe *end)
{
	return atomic_load(&end->events);
}

void tt_pipe_attach(struct tt_pipe *end, struct tt_control_endpoint *ep)
{
	pthread_mutex_lock(&end->both->lock);
	end->ep = ep;
	if (atomic_load(&end->events))
		tt_endpoint_wake(ep);
	pthread_mutex_unlock(&end->both->lock);
}

void tt_pipe_watch(struct tt_pipe *end, bool writing)
{
	pthread_mutex_lock(&end->both->lock);
	end->writing = writing;
	update(end);
	pthread_mutex_unlock(&end->both->lock);
}

/* ---- the ends of streams --------------------------------------------------------------------- */

void tt_pipe_shutdown(struct tt_pipe *end, int how)
{
	pthread_mutex_lock(&end->both->lock);
	end->shut |= how == SHUT_RDWR;
	end->other->ended = true;
	update(end);
	update(end->other);
	pthread_mutex_unlock(&end->both->lock);
}

void tt_pipe_close(struct tt_pipe *end)
{
	struct pipe_ends *both = end->both;
	bool last;

	pthread_mutex_lock(&both->lock);
	end->ep = NULL;
	end->closed = end->other->ended = true;
	end->have = 0;
	update(end->other);
	last = end->other->closed;
	pthread_mutex_unlock(&both->lock);
	if (last)
		free_ends(both);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Room for `bytes` more, as far as memory and the limit allow. */
static void grow(struct tt_pipe *to, size_t bytes)
{
	size_t room = to->room, first = to->room - to->at;
	uint8_t *larger;

	while (room < TT_PIPE_ROOM && room < to->have + bytes)
		room *= 2;
	larger = room > to->room ? malloc(room) : NULL;
	if (!larger)
		return;
	first = first < to->have ? first : to->have;
	memcpy(larger, to->data + to->at, first);
	memcpy(larger + first, to->data, to->have - first);
	free(to->data);
	to->data = larger;
	to->at = 0;
	to->room = room;
}

/* The ring is empty: give back memory that the latest bytes did not need. */
static void shrink(struct tt_pipe *end)
{
	bool small = end->peak <= ROOM_MIN;
	uint8_t *smaller;

	end->peak = 0;
	if (!small || end->room == ROOM_MIN || !(smaller = realloc(end->data, ROOM_MIN)))
		return;
	end->data = smaller;
	end->at = 0;
	end->room = ROOM_MIN;
}

/* Copy into the ring what has room; returns the bytes. */
static size_t put(struct tt_pipe *to, const uint8_t *data, size_t bytes)
{
	size_t n, last, first;

	if (to->room - to->have < bytes)
		grow(to, bytes);
	n = to->room - to->have < bytes ? to->room - to->have : bytes;
	last = (to->at + to->have) % to->room;
	first = to->room - last < n ? to->room - last : n;
	memcpy(to->data + last, data, first);
	memcpy(to->data, data + first, n - first);
	to->have += n;
	to->peak = to->have > to->peak ? to->have : to->peak;
	return n;
}

/* Copy from the ring; returns the bytes. */
static size_t get(struct tt_pipe *end, uint8_t *data, size_t bytes)
{
	size_t n = end->have < bytes ? end->have : bytes,
	       first = end->room - end->at < n ? end->room - end->at : n;

	memcpy(data, end->data + end->at, first);
	memcpy(data + first, end->data, n - first);
	end->at = (end->at + n) % end->room;
	end->have -= n;
	if (n && !end->have)
		shrink(end);
	return n;
}

ssize_t tt_pipe_send(struct tt_pipe *end, const void *data, size_t bytes)
{
	struct tt_pipe *to = end->other;
	bool over;
	size_t n;

	pthread_mutex_lock(&end->both->lock);
	over = to->closed || to->shut || to->ended;
	n = over ? 0 : put(to, data, bytes);
	update(to);
	update(end);
	pthread_mutex_unlock(&end->both->lock);
	errno = over ? EPIPE : EAGAIN;
	return n ? (ssize_t)n : -1;
}

ssize_t tt_pipe_recv(struct tt_pipe *end, void *data, size_t bytes)
{
	bool over;
	size_t n;

	pthread_mutex_lock(&end->both->lock);
	n = end->shut ? 0 : get(end, data, bytes);
	over = end->shut || end->ended;
	update(end);
	update(end->other);
	pthread_mutex_unlock(&end->both->lock);
	errno = EAGAIN;
	return n || over ? (ssize_t)n : -1;
}

size_t tt_pipe_memory(const struct tt_pipe *end)
{
	size_t bytes;

	pthread_mutex_lock(&end->both->lock);
	bytes = sizeof(*end->both) / 2 + end->room;
	pthread_mutex_unlock(&end->both->lock);
	return bytes;
}
