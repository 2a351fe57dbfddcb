/*
 * shm_segment.h - the memory that the ranks of one host share: how they open it, and its layout
 *
 *   header, notes, a bell per rank | a slot area per rank | two halves of pages per rank |
 *   ring [writer][reader][channel] ...        ring = control pages | small cells | large cells
 *
 * One sealed memfd per host group. A memfd has no name in any file system, so nothing can be left
 * behind; its pages cost nothing until they are claimed. Every field but the notes has one writer; fields
 * of different writers lie 128 bytes apart.
 */
#ifndef TT_SHM_SEGMENT_H
#define TT_SHM_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>

#include "transports/transport.h"

/* lines of a ring: how far a sender runs ahead of a receiver that waits for a core */
#define TT_SHM_LINES 64
#define TT_SHM_INLINE 56 /* payload bytes in the cache line of a flag */
#define TT_SHM_PAGE 4096u
#define TT_SHM_CONTROL (3 * TT_SHM_PAGE)
#define TT_SHM_MAX_CELLS 8 /* most large cells in flight in a ring */
#define TT_SHM_MAX_AWAY 16 /* most cells of a ring that its reader keeps: a message of 1 MiB */
/* limit of the bytes in flight in a ring; at least two messages */
#define TT_SHM_UNDER_WAY (512u << 10)
#define TT_SHM_SMALL_CELLS 32 /* most cells of a page, for messages up to a page */

/* A message or a part of one: its flag (number of the line, and a hash of stamp and length), and
 * its payload, or the offset of its cell in a ring. Lines lie 128 bytes apart, because processors fetch cache
 * lines in pairs, and sharing a pair with the next line costs a third of the latency. */
struct tt_shm_line {
	alignas(TT_APART) union {
		uint8_t payload[TT_SHM_INLINE];
		struct {
			uint64_t offset;
			bool nontemporal;
			bool granted;  /* the reader may keep the cell */
			bool returned; /* a cell of the reader's own ring */
			/* no cell, until the reader refuses the tile: offset is its address in the writer's buffer */
			_Atomic bool rts;
			uint64_t bytes; /* rts: of the tile */
			uint64_t rest;  /* rts: of the message from the tile on */
		};
	};
	_Atomic uint64_t flag;
};

/* The control pages of a ring: one direction of one (pair, channel). The sender writes all fields
 * except done, kept, refused and reads. */
struct tt_shm_ring {
	alignas(TT_APART) _Atomic uint64_t done; /* lines released by the reader */
	_Atomic uint64_t kept; /* mask of lines, by number % 64: the reader keeps their cells */
	_Atomic uint64_t
		refused; /* number of the last line with an RTS that the reader could not read */
	_Atomic uint32_t reads; /* mask of sizes of messages that the reader wants by rendezvous */
	/* the writer waits for a free line or cell */
	alignas(TT_APART) _Atomic uint32_t starved;
	_Atomic uint32_t withdrawn; /* the writer's buffers are not to be read any more */
	alignas(TT_APART) struct tt_shm_line lines[TT_SHM_LINES];
};
_Static_assert(offsetof(struct tt_shm_line, flag) == TT_SHM_INLINE &&
		       sizeof(struct tt_shm_ring) <= TT_SHM_CONTROL,
	       "layout");

/* The doorbell of a rank (word is a futex), and the identity of its process for single copy
 * (shm_single_copy.c; written before the group is agreed). */
struct tt_shm_bell {
	alignas(TT_APART) _Atomic uint32_t word;
	/* cleared by the rank or by the rank that rings */
	_Atomic uint32_t sleeping;
	int32_t pid;
	uint64_t nonce[2], nonce_at;
};

/* The slots of a rank, read by all others; see shm_slots.c. Written by the rank. */
struct tt_shm_slot_line {
	alignas(TT_LINE) union {
		uint8_t payload[TT_SLOT_LINE];
		uint64_t offset; /* of a post in the pages of all ranks */
	};
	_Atomic uint64_t flag;
};
struct tt_shm_slot_area {
	alignas(TT_APART) struct tt_shm_slot_line slot[TT_SLOT_DEPTH][TT_SLOT_SMALL / TT_SLOT_LINE];
	/* last round of posts that this rank released: number << 16 | stamp */
	alignas(TT_APART) _Atomic uint64_t released;
	alignas(TT_APART) struct tt_shm_slot_line exposed;
	/* [local rank] last call in which this rank completed its reads of that rank's buffer */
	alignas(TT_APART) _Atomic uint64_t completed[TT_PSCW_RANKS];
};
_Static_assert(sizeof(struct tt_shm_slot_line) == TT_LINE, "layout");

struct tt_shm_header {
	uint32_t magic, version;
	uint64_t bytes;
	/* 1: each rank issues its own fences, because membarrier is costly here or missing */
	alignas(TT_APART) _Atomic uint32_t fences;
	alignas(TT_APART) _Atomic uint8_t notes[TT_NOTES]; /* written by any rank */
	struct tt_shm_bell bells[];                        /* [nlocal] */
};

struct tt_shm_segment {
	int fd; /* -1: this rank shares no memory */
	struct tt_shm_header *header;
	size_t bytes;
	int nlocal, me, nchannels;
	int *local_of; /* [nranks] local rank in the group, -1: not reached */
	size_t cell_bytes, ring_bytes, pages_bytes, slots_at, pages_at, rings_at;
	uint32_t ncells;
	/* written lines leave this core's cache at once (tt_demote_line): other cores read them, since no ranks share one */
	bool demotes;
	_Atomic size_t claimed; /* bytes claimed by this rank */
};

/* Most messages of bytes in flight in a ring */
static inline uint32_t tt_shm_max_cells(size_t bytes)
{
	size_t fit = TT_SHM_UNDER_WAY / bytes;

	return fit < 2 ? 2 : fit < TT_SHM_MAX_CELLS ? (uint32_t)fit : TT_SHM_MAX_CELLS;
}

/* Most large cells that a reader keeps: none where few are in flight */
static inline uint32_t tt_shm_max_away(size_t cell_bytes)
{
	return tt_shm_max_cells(cell_bytes) < 4 ? 0 : TT_SHM_MAX_AWAY;
}

/* announce, open and settle of transport.h. open returns 0, also without a segment (header NULL: this rank has not
 * joined) | TT_SYSTEM | TT_TIMEOUT | the result of world->broken */
int tt_shm_segment_announce(struct tt_announcement *ret);
bool tt_shm_segment_settle(struct tt_shm_segment *segment, int nranks,
			   bool (*has_joined)(const void *ctx, int rank), const void *ctx);
int tt_shm_segment_open(const struct tt_world *world, struct tt_shm_segment *ret_segment);
void tt_shm_segment_close(struct tt_shm_segment *segment);

/* shm_layout.c: sizes and offsets of a segment of nlocal ranks */
void tt_shm_segment_lay_out(struct tt_shm_segment *segment, const struct tt_world *world);

static inline struct tt_shm_slot_area *tt_shm_segment_slot_area(const struct tt_shm_segment *s,
								int local_rank)
{
	return (struct tt_shm_slot_area *)((char *)s->header + s->slots_at) + local_rank;
}

/* The memory for a rank's slot posts of more than TT_SLOT_SMALL bytes */
static inline char *tt_shm_segment_pages(const struct tt_shm_segment *s, int local_rank)
{
	return (char *)s->header + s->pages_at + (size_t)local_rank * s->pages_bytes;
}

/* The ring from one local rank to another; its small cells begin TT_SHM_CONTROL bytes behind, then
 * its large cells. */
struct tt_shm_ring *tt_shm_segment_ring(const struct tt_shm_segment *segment, int writer,
					int reader, int channel);

/* Allocate the pages of [p, p + bytes); afterwards access cannot fail for lack of memory. Returns
 * 0 | an errno. A second claim of a page is harmless, but counted twice. */
int tt_shm_segment_claim(struct tt_shm_segment *segment, const void *p, size_t bytes);

/* shm_single_copy.c: publish the identity of this rank's process to the group. */
void tt_shm_single_copy_publish(struct tt_shm_segment *segment, bool crowded);

#endif
