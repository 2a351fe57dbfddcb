/*
 * shm_layout.c - the layout of a segment, and the allocation of its pages
 *
 * In this order: the header with a bell for every rank, the slot areas, the pages of large slot
 * posts, the rings of every pair and channel. Called by shm_segment.c (layout) and shm*.c
 * (offsets).
 */
#include <errno.h>
#include <fcntl.h>

#include "transports/shm/shm_segment.h"

static size_t up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

void tt_shm_segment_lay_out(struct tt_shm_segment *s, const struct tt_world *w)
{
	s->nchannels = w->nchannels;
	s->cell_bytes = up(w->message_bytes ? w->message_bytes : 1, TT_SHM_PAGE);
	/* enough cells for messages of half the size */
	s->ncells = tt_shm_max_cells(s->cell_bytes / 2) + tt_shm_max_away(s->cell_bytes);
	s->ring_bytes = TT_SHM_CONTROL + TT_SHM_SMALL_CELLS * TT_SHM_PAGE +
			s->ncells * s->cell_bytes;
	s->slots_at = up(sizeof(*s->header) + (size_t)s->nlocal * sizeof(struct tt_shm_bell),
			 TT_APART);
	s->pages_at = up(s->slots_at + (size_t)s->nlocal * sizeof(struct tt_shm_slot_area),
			 TT_SHM_PAGE);
	s->pages_bytes = s->nlocal > TT_SLOT_RANKS ? 0 : 2 * TT_SLOT_HALF;
	s->rings_at = s->pages_at + (size_t)s->nlocal * s->pages_bytes;
	s->bytes = s->rings_at +
		   (size_t)s->nlocal * (size_t)s->nlocal * (size_t)s->nchannels * s->ring_bytes;
}

struct tt_shm_ring *tt_shm_segment_ring(const struct tt_shm_segment *s, int writer, int reader,
					int channel)
{
	size_t index = ((size_t)writer * (size_t)s->nlocal + (size_t)reader) *
			       (size_t)s->nchannels +
		       (size_t)channel;

	return (void *)((char *)s->header + s->rings_at + index * s->ring_bytes);
}

int tt_shm_segment_claim(struct tt_shm_segment *s, const void *p, size_t bytes)
{
	off_t at = (const char *)p - (const char *)s->header;
	int rc;

	do
		rc = fallocate(s->fd, 0, at, (off_t)bytes);
	while (rc && errno == EINTR);
	if (rc)
		return errno;
	s->claimed += bytes;
	return 0;
}
