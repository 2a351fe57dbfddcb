/*
 * shm_ring.h - one link of shared memory: a ring that this rank writes, and a ring that it reads
 *
 * shm.c owns the links and the sleep; shm_link.c makes a link, shm_ring.c moves its messages. Both ends of a ring agree on
 * TT_SHM_LINES and on the number of lines of a message.
 */
#ifndef TT_SHM_RING_H
#define TT_SHM_RING_H

#include "base/trial.h"
#include "transports/shm/shm_segment.h"

#define TT_SHM_WINDOWS 128 /* windows of a rank that its peers keep mapped */
struct tt_shm_mapped {
	void *start;
	size_t bytes;
	uint64_t inode;
};

struct tt_shm_ep {
	struct tt_endpoint base;
	uint32_t nrts; /* RTS of all links that the readers have not released */
	struct tt_shm_segment segment;
	struct tt_shm_bell *bell;   /* NULL: alone */
	struct tt_shm_link **links; /* [nlocal * nchannels] */
	/* numbers of the described windows */
	uint64_t described[TT_SHM_WINDOWS], ndescribed;
	struct tt_shm_mapped *mapped; /* [nlocal * TT_SHM_WINDOWS] mapped windows of peers */
};

static inline struct tt_shm_line *tt_shm_line_at(struct tt_shm_ring *ring, uint64_t number)
{
	return &ring->lines[number % TT_SHM_LINES];
}

/* The flag of a written line: its number, and a hash of stamp and length. */
static inline uint64_t tt_shm_flag(uint64_t number, size_t bytes, uint32_t stamp)
{
	return number << 32 | (stamp ^ (uint32_t)bytes * 0x9e3779b1u);
}

#define TT_SHM_SPREAD 6 /* most lines of a message without a cell */
#define TT_SHM_SMALL (TT_SHM_SPREAD * TT_SHM_INLINE)

/* Cells of one size in a ring: buffers of messages that do not fit into lines. The masks have a bit
 * per cell. */
struct tt_shm_cells {
	uint8_t *at;
	size_t bytes;           /* size of a cell */
	uint32_t claimed, most; /* cells with memory; limit of further claims */
	uint32_t taken, busy;   /* masks: cell of the reserved message; cells in flight or away */
	/* masks: cells that the reader may keep or keeps; that it keeps. Their numbers; limit of ngranted */
	uint32_t granted, away, ngranted, naway, most_granted;
	/* cells of the peer's ring; masks: those that this rank keeps; that of the reserved message */
	uint8_t *theirs;
	uint32_t kept, taken_of_theirs;
	/* a cell has come home: the reader keeps cells; this rank has written to a cell of theirs */
	bool circulates, answers;
	uint32_t taken_by[TT_SHM_LINES]; /* [line % TT_SHM_LINES] cell of the message in flight */
	uint8_t line_of[32];             /* [cell] line % TT_SHM_LINES of its message */
};

/* How long messages come, as the reader measures them (shm_rndv.c) */
#define TT_SHM_RNDV_SIZES 2
enum { TT_SHM_BY_CELLS, TT_SHM_BY_RNDV };
struct tt_shm_rndv {
	struct tt_trial trial[TT_SHM_RNDV_SIZES];
	/* both ways are tried; the system forbids reads, so this rank reads no more */
	bool tries, refuses;
	uint32_t paused; /* messages until this rank reads again: a buffer could not be read */
	/* the message that comes now: its stamp, bytes so far, and time of its first tile. mixed: it is not timed */
	uint32_t stamp;
	bool by_rndv, mixed;
	size_t first, moved;
	uint64_t began_ns;
	/* what was read last: bytes from that address of the peer, to read_to; and the time that it took */
	uint64_t read_from, read_ns;
	size_t read_bytes;
	char *read_to;
	uint32_t read_stamp; /* of its message */
	/* for a caller without a buffer, NULL: not needed yet; number of the line whose tile it has */
	void *bounce;
	uint64_t bounced;
};

struct tt_shm_link {
	struct tt_link base;
	struct tt_shm_segment *segment;
	struct tt_shm_bell *peer_bell;

	/* writing */
	struct tt_shm_ring *tx;
	uint8_t *room;          /* reserved cell, not committed yet */
	uint64_t sent, drained; /* lines; drained: local copy of done */
	uint64_t rts; /* mask of lines, by number % 64: RTS that the reader has not released */
	struct tt_shm_cells small, large; /* cells of a page; cells of message_bytes */
	bool starved, demotes;            /* demotes: copy of the segment's */

	/* reading */
	struct tt_shm_ring *rx;
	uint64_t got;    /* lines released */
	unsigned spread; /* lines of the peeked message */
	/* the cell of the peeked message, of cells (NULL: none), and the bytes in it */
	uint8_t *cell;
	struct tt_shm_cells *cells;
	size_t cell_bytes;
	/* Of the cell: it came home; the writer writes there next, and this rank owns its lines before
	 * (tt_readers_own); this rank may keep it */
	bool returned, goes_back, offered;
	uint64_t kept; /* copy of rx->kept */
	struct tt_shm_rndv rndv;

	/* messages of several lines, contiguous for run */
	alignas(TT_LINE) uint8_t writing[TT_SHM_SMALL], reading[TT_SHM_SMALL];
};

/* The operations of struct tt_transport with these names. */
void *tt_shm_reserve(struct tt_link *link, size_t bytes);
int tt_shm_commit(struct tt_link *link, size_t bytes, uint32_t stamp);
int tt_shm_peek(struct tt_link *link, size_t bytes, uint32_t stamp, const void **ret_data);
void tt_shm_release(struct tt_link *link);
int tt_shm_post(struct tt_link *link, const void *data, size_t bytes, uint32_t stamp);
int tt_shm_put(struct tt_link *link, const void *data, size_t bytes, uint32_t stamp);
int tt_shm_get(struct tt_link *link, void *dst, size_t bytes, uint32_t stamp, bool keep);

/* Looks for lines that the reader has released; if RTS are left, their release wakes this rank. Returns the number of
 * RTS that are complete: released, or copied into a cell because the reader has refused them. */
unsigned tt_shm_ring_look(struct tt_shm_link *link);
/* The tile of the next line, an RTS, shall come in a cell. */
void tt_shm_ring_refuse(struct tt_shm_link *link);

/* shm_rndv.c. progress of struct tt_transport, can_send and abandon of struct tt_zcopy_ops; read: the bytes of an RTS
 * to `to`, NULL: to a buffer of the link; as peek. note: a tile has come. complete: the RTS of a line is complete.
 * copy: the reader's next tile goes into a cell, if the reader has refused to read it. */
int tt_shm_progress(struct tt_endpoint *ep);
bool tt_shm_can_send(struct tt_link *link, const void *buf, size_t bytes);
void tt_shm_abandon(struct tt_endpoint *ep);
int tt_shm_rndv_read(struct tt_shm_link *link, const struct tt_shm_line *line, void *to,
		     size_t bytes, uint32_t stamp, const void **ret_data);
void tt_shm_rndv_note(struct tt_shm_link *link, size_t bytes, uint32_t stamp, bool by_rndv);
void tt_shm_rndv_complete(struct tt_shm_link *link, uint64_t line);
bool tt_shm_rndv_copy(struct tt_shm_link *link);
/* The caller has copied a tile of an RTS from the link's buffer, as for device memory: cells are better then. */
void tt_shm_rndv_prefer_cells(struct tt_shm_link *link);

/* shm_slots.c: struct tt_slot_ops, and the PSCW operations of struct tt_peer_memory_ops. */
void tt_shm_slot_post(struct tt_endpoint *ep, const void *data, size_t bytes, uint64_t number,
		      uint32_t stamp);
void *tt_shm_slot_room(struct tt_endpoint *ep);
int tt_shm_slot_poll(struct tt_endpoint *ep, int peer, size_t bytes, uint64_t number,
		     uint32_t stamp, const void **ret_data);
void tt_shm_slot_release(struct tt_endpoint *ep, uint64_t number, uint16_t stamp);
uint64_t tt_shm_slot_released(struct tt_endpoint *ep, int peer, uint16_t *ret_stamp);

void tt_shm_pscw_post(struct tt_endpoint *ep, const struct tt_peer_memory *mine, uint64_t number,
		      uint32_t stamp);
int tt_shm_pscw_test_start(struct tt_endpoint *ep, int peer, uint64_t number, uint32_t stamp,
			   struct tt_peer_memory *ret);
void tt_shm_pscw_complete(struct tt_endpoint *ep, int peer, uint64_t number);
bool tt_shm_pscw_test_complete(struct tt_endpoint *ep, int peer, uint64_t number);

/* shm_single_copy.c: the other operations of struct tt_peer_memory_ops; close unmaps all
 * windows. */
void tt_shm_describe(struct tt_endpoint *ep, const void *p, size_t bytes,
		     struct tt_peer_memory *ret);
bool tt_shm_attach(struct tt_endpoint *ep, int peer, const struct tt_peer_memory *remote);
const void *tt_shm_pointer(struct tt_endpoint *ep, int peer, const struct tt_peer_memory *remote,
			   size_t bytes);
int tt_shm_read(struct tt_endpoint *ep, int peer, void *to, uint64_t from, size_t bytes);
/* As read. 0 | an errno, ESRCH: the process of peer is gone */
int tt_shm_try_read(struct tt_endpoint *ep, int peer, void *to, uint64_t from, size_t bytes);
void tt_shm_single_copy_close(struct tt_shm_ep *ep);

/* Wake a dozing rank of the host group; all of them. */
void tt_shm_wake(struct tt_shm_segment *segment, int local_rank);
void tt_shm_wake_all(struct tt_shm_segment *segment);

/* shm_link.c. open: a link to peer, with memory for the control pages of both rings and two cells of each size; 0 |
 * TT_SYSTEM. close: NULL is allowed. */
int tt_shm_link_open(struct tt_shm_ep *ep, int peer, int channel, struct tt_shm_link **ret_link);
void tt_shm_link_close(struct tt_shm_link *l);

#endif
