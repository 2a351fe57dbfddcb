/*
 * shm_segment.h - the memory that the ranks of one host share:
 * how they come to it, and how it is laid out
 *
 *   header | a bell a rank | a board a rank | two pages a rank | ring [writer][reader][channel] ...
 *                                                                         ring = control pages |
 *                                                                         small slots | large slots
 *
 * One sealed memfd a host group. It has no name in any file system, so nothing can be left behind;
 * pages cost nothing until they are claimed. Every field has one writer; fields of different
 * writers lie 128 bytes apart.
 */
#ifndef TT_SHM_SEGMENT_H
#define TT_SHM_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>

#include "transports/transport.h"

/* of a ring: so far a sender runs ahead of a receiver that has no core at the moment */
#define TT_SHM_LINES 64
#define TT_SHM_INLINE 56       /* bytes that travel in a flag's own cache line */
#define TT_SHM_PAGE 4096u
#define TT_SHM_CONTROL (3 * TT_SHM_PAGE)
#define TT_SHM_MAX_CELLS 8     /* of messages of any size */
/* bytes of a ring that are in use at most, if that is two messages */
#define TT_SHM_UNDER_WAY (512u << 10)
#define TT_SHM_SMALL_CELLS 32  /* besides, of up to a page: so far a sender runs ahead with those */

/* A message or part of one: its flag (number of the line, and a mix of stamp and length), and its
 * bytes, or where in the slots they are. Lines lie apart, because processors fetch them in pairs,
 * and the next one is the other side's to write: that costs a third of the latency. */
struct tt_shm_line {
	alignas(TT_APART) union {
		uint8_t payload[TT_SHM_INLINE];
		uint64_t offset;
	};
	_Atomic uint64_t flag;
};

/* The control pages of a ring: one direction of one (pair, channel).
 * Written by the writer, but for done. */
struct tt_shm_ring {
	alignas(TT_APART) _Atomic uint64_t done;       /* lines that the reader has released */
	alignas(TT_APART) _Atomic uint32_t starved;    /* the writer waits for room */
	alignas(TT_APART) struct tt_shm_line lines[TT_SHM_LINES];
};
_Static_assert(offsetof(struct tt_shm_line, flag) == TT_SHM_INLINE &&
		       sizeof(struct tt_shm_ring) <= TT_SHM_CONTROL,
	       "layout");

/* How a rank is woken (word is a futex), and how its memory is found (shm_single_copy.c; written before
 * anybody is let in). */
struct tt_shm_bell {
	alignas(TT_APART) _Atomic uint32_t word;
	_Atomic uint32_t sleeping;                     /* cleared by it or by who rings */
	int32_t pid;
	uint64_t nonce[2], nonce_at;
};

/* What a rank tells all others at once; see shm_slots.c. Written by the rank. */
struct tt_shm_slot_line {
	alignas(TT_LINE) uint8_t payload[TT_SLOT_LINE];
	_Atomic uint64_t flag;
};
struct tt_shm_slot_area {
	alignas(TT_APART) struct tt_shm_slot_line slot[2][TT_SLOT_SMALL / TT_SLOT_LINE];
	alignas(TT_APART) struct tt_shm_slot_line exposed;
	alignas(TT_APART) _Atomic uint64_t completed;       /* the last call whose offers it has read */
};
_Static_assert(sizeof(struct tt_shm_slot_line) == TT_LINE, "layout");

struct tt_shm_header {
	uint32_t magic, version;
	uint8_t token[16];
	uint64_t bytes;
	/* some rank cannot make the others pass one: each pays for its own */
	alignas(TT_APART) _Atomic uint32_t fences;
	struct tt_shm_bell bells[];                    /* [nlocal] */
};

struct tt_shm_segment {
	int fd;                        /* -1: this rank shares memory with nobody */
	struct tt_shm_header *header;
	size_t bytes;
	int nlocal, me, nchannels;
	int *local_of;                 /* [nranks] place in the group, -1: not reached */
	size_t cell_bytes, ring_bytes, slots_at, pages_at, rings_at;
	uint32_t ncells;
	_Atomic size_t claimed;        /* bytes, by this rank */
};

/* How many messages of so many bytes may be under way in a ring */
static inline uint32_t tt_shm_max_cells(size_t bytes)
{
	size_t fit = TT_SHM_UNDER_WAY / bytes;

	return fit < 2 ? 2 : fit < TT_SHM_MAX_CELLS ? (uint32_t)fit : TT_SHM_MAX_CELLS;
}

/* Meets the other ranks of this host. Collective and blocking, as open of transport.h; 0 also when
 * nobody is met. */
int tt_shm_segment_open(const struct tt_world *world, struct tt_shm_segment *ret_segment);
void tt_shm_segment_close(struct tt_shm_segment *segment);

/* shm_layout.c: sizes and places, of a segment of nlocal ranks */
void tt_shm_segment_lay_out(struct tt_shm_segment *segment, const struct tt_world *world);
struct tt_shm_slot_area *tt_shm_segment_slot_area(const struct tt_shm_segment *segment, int local_rank);
/* of a cast */
void *tt_shm_segment_page(const struct tt_shm_segment *segment, int local_rank, uint64_t number);

/* The ring from one place of the group to another; TT_SHM_CONTROL behind it begin its small slots,
 * then its others. */
struct tt_shm_ring *tt_shm_segment_ring(const struct tt_shm_segment *segment, int writer,
					int reader, int channel);

/* Make sure that memory stands behind [p, p + bytes): afterwards touching it cannot fail. 0 | an
 * errno.
 * Claiming twice is fine, but counted twice. */
int tt_shm_segment_claim(struct tt_shm_segment *segment, const void *p, size_t bytes);

/* shm_single_copy.c: tell the others how this rank's memory is found. */
void tt_shm_single_copy_publish(struct tt_shm_segment *segment, bool crowded);

#endif
