/*
 * shm_ring.c - messages through a ring in shared memory
 *
 * Called through tt_shm by run. A ring is 64 lines, and cells for messages that do not fit into lines:
 *
 *   up to 56 B    | payload ............ flag |             payload and flag in a line: one transfer
 *   up to 336 B   | payload ............ flag | x 2..6      several lines: their transfers overlap
 *   more          | offset, stores ..... flag | --> a cell  two transfers in a row; stores: 1 if the
 *                                                         cell was written by non-temporal stores
 *                 | address, rts ....... flag | --> the writer's buffer, which the reader reads (shm_rndv.c)
 *
 * flag = number of the line and a hash of stamp and length, stored last. The reader compares the flag with the expected
 * one: equal means that the line is written; the same number with another hash means that the peer is in another call.
 * An RTS that the reader refuses changes behind its flag: `rts` is stored last then, and the reader loads only that.
 * The reader counts the released lines in `done`; the writer reads `done` only when its copy of the count leaves no free
 * line. Every word has one writer, no operation is read-modify-write, and neither side touches a line of the other
 * without need.
 *
 * Cells have two sizes, a page and message_bytes; for messages of half the large size twice as many large cells may be
 * used. Cells are claimed one by one, when all claimed ones are busy; so rarely used links cost little memory, and a
 * lack of memory later only shortens the ring. The writer takes the lowest free cell, which is the most likely in
 * cache: that saves more than the load of `done` costs.
 *
 * Cells change hands: a reader may keep a cell, if the writer has granted it, and writes its own next message
 * there. So the bytes of two ranks that answer each other cross between their cores once, not twice. The cell
 * goes home with that message. A writer grants up to TT_SHM_MAX_AWAY cells, and never all that are claimed; a
 * reader keeps one cell until it has answered. So a stream in one direction has enough cells.
 *
 * A sender may run far ahead with small messages: where ranks share a core, each switch between
 * them costs more than a message (broadcast, 4 ranks on 2 cores, 4 B: 1.3 us a call with 16 lines,
 * 0.7 with 64).
 *
 * A writer checks whether its reader sleeps, in a line that seldom changes, and without a fence;
 * see shm.c.
 */
#include <string.h>

#include "base/fence.h"
#include "base/futex.h"
#include "mem/copy.h"
#include "mem/peer_lines.h"
#include "transports/shm/shm_ring.h"

/* Lines of a message; 1 also for a message in a cell. */
static unsigned spread_of(size_t bytes)
{
	if (bytes <= TT_SHM_INLINE || bytes > TT_SHM_SMALL)
		return 1;
	return ((unsigned)bytes + TT_SHM_INLINE - 1) / TT_SHM_INLINE;
}

/* ---- waking ---------------------------------------------------------------------------------- */

static void ring_bell(struct tt_shm_bell *bell)
{
	if (tt_likely(!atomic_load_explicit(&bell->sleeping, memory_order_relaxed)))
		return;
	/* before the exchange: a rank that finds sleeping cleared relies on the changed word */
	atomic_fetch_add(&bell->word, 1);
	if (atomic_exchange(&bell->sleeping, 0))
		tt_futex_wake(&bell->word);
}

/* Order earlier stores before later loads. Usually the sleeping rank issues the fence: see
 * shm.c. */
static void fence(const struct tt_shm_header *header)
{
	if (tt_unlikely(atomic_load_explicit(&header->fences, memory_order_relaxed)))
		tt_full_fence();
}

static void wake_reader(struct tt_shm_link *l)
{
	fence(l->segment->header);
	ring_bell(l->peer_bell);
}

static void wake_writer(struct tt_shm_link *l)
{
	fence(l->segment->header);
	if (tt_unlikely(atomic_load_explicit(&l->rx->starved, memory_order_relaxed)))
		ring_bell(l->peer_bell);
}

void tt_shm_wake(struct tt_shm_segment *s, int local_rank)
{
	fence(s->header);
	ring_bell(&s->header->bells[local_rank]);
}

void tt_shm_wake_all(struct tt_shm_segment *s)
{
	fence(s->header);
	for (int i = 0; i < s->nlocal; i++)
		if (i != s->me)
			ring_bell(&s->header->bells[i]);
}

/* ---- free lines and cells -------------------------------------------------------------------- */

/* A cell is free again. */
static void set_free(struct tt_shm_cells *s, uint32_t cell)
{
	s->busy &= ~cell;
	s->naway -= (s->away & cell) != 0;
	s->away &= ~cell;
	s->ngranted -= (s->granted & cell) != 0;
	s->granted &= ~cell;
}

static void give_back(struct tt_shm_cells *s, uint64_t line, bool kept)
{
	uint32_t cell = s->taken_by[line % TT_SHM_LINES];

	if (kept) {
		s->away |= cell;
		s->naway += cell != 0;
	} else {
		set_free(s, cell);
	}
	s->taken_by[line % TT_SHM_LINES] = 0;
}

/* Free the lines and cells that the reader has released. */
static void reclaim(struct tt_shm_link *l)
{
	uint64_t done = atomic_load_explicit(&l->tx->done, memory_order_acquire),
		 kept = atomic_load_explicit(&l->tx->kept, memory_order_relaxed);

	for (; l->drained < done; l->drained++) {
		bool keeps = kept >> (l->drained % TT_SHM_LINES) & 1;

		give_back(&l->small, l->drained, keeps);
		give_back(&l->large, l->drained, keeps);
		if (tt_unlikely(l->rts >> (l->drained % TT_SHM_LINES) & 1))
			tt_shm_rndv_complete(l, l->drained);
	}
	if (tt_unlikely(l->rts) && tt_shm_rndv_copy(l))
		wake_reader(l);
}

static struct tt_shm_cells *cells_for(struct tt_shm_link *l, size_t bytes)
{
	return bytes <= TT_SHM_PAGE ? &l->small : &l->large;
}

/* Most cells in use for messages of bytes, without those that the reader keeps: fewer for larger messages, to stay
 * in the cache. */
static uint32_t most_of(const struct tt_shm_cells *s, size_t bytes)
{
	uint32_t most = bytes <= TT_SHM_PAGE ? s->most : tt_shm_max_cells(bytes) + s->naway;

	return most < s->most ? most : s->most;
}

/* Claim one more cell. Without memory the ring keeps its length. */
static bool grow(struct tt_shm_link *l, struct tt_shm_cells *s, size_t bytes)
{
	if (s->claimed >= most_of(s, bytes) || l->sent - l->drained == TT_SHM_LINES)
		return false;
	if (tt_shm_segment_claim(l->segment, s->at + s->claimed * s->bytes, s->bytes)) {
		s->most = s->claimed;
		return false;
	}
	s->claimed++;
	return true;
}

/* Take a cell that this rank keeps. */
static bool pick_theirs(struct tt_shm_link *l, struct tt_shm_cells *s)
{
	if (!s->kept || l->sent - l->drained == TT_SHM_LINES)
		return false;
	s->taken_of_theirs = s->kept & -s->kept;
	s->taken = 0;
	s->answers = true;
	l->room = s->theirs + (uint32_t)__builtin_ctz(s->kept) * s->bytes;
	return true;
}

/* Is a large cell left for the tile of an RTS that the reader refuses? */
static bool leaves_one(const struct tt_shm_link *l, const struct tt_shm_cells *s)
{
	return !l->rts || s != &l->large || s->claimed - (uint32_t)__builtin_popcount(s->busy) >= 2;
}

/* Take the lowest free cell: sets room and taken. */
static bool pick(struct tt_shm_link *l, struct tt_shm_cells *s, size_t bytes)
{
	uint32_t i, in_flight = s->busy & ~s->away;

	if (pick_theirs(l, s))
		return true;
	if (in_flight & (in_flight - 1))
		reclaim(l);
	i = s->busy == UINT32_MAX ? 32 : (uint32_t)__builtin_ctz(~s->busy);
	if (i >= s->claimed || i >= most_of(s, bytes) || l->sent - l->drained == TT_SHM_LINES ||
	    tt_unlikely(!leaves_one(l, s)))
		return false;
	s->taken = 1u << i;
	l->room = s->at + i * s->bytes;
	return true;
}

static bool find_room(struct tt_shm_link *l, size_t bytes)
{
	if (bytes <= TT_SHM_SMALL)
		return l->sent + spread_of(bytes) - l->drained <= TT_SHM_LINES;
	return pick(l, cells_for(l, bytes), bytes);
}

/* Nothing is free: set starved, so that a release wakes this rank, and check once more, because the
 * reader may have released before it could see starved. */
static bool starve(struct tt_shm_link *l, size_t bytes)
{
	if (l->starved)
		return false;
	l->starved = true;
	atomic_store_explicit(&l->tx->starved, 1, memory_order_relaxed);
	tt_full_fence();
	reclaim(l);
	return find_room(l, bytes);
}

static __attribute__((noinline)) bool make_room(struct tt_shm_link *l, size_t bytes)
{
	reclaim(l);
	if (!find_room(l, bytes) &&
	    !(bytes > TT_SHM_SMALL && grow(l, cells_for(l, bytes), bytes) && find_room(l, bytes)) &&
	    !starve(l, bytes))
		return false;
	if (l->starved) {
		l->starved = false;
		atomic_store_explicit(&l->tx->starved, 0, memory_order_relaxed);
	}
	return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

void *tt_shm_reserve(struct tt_link *link, size_t bytes)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;

	if (l->room)
		return l->room;
	if (tt_unlikely(!find_room(l, bytes)) && !make_room(l, bytes))
		return NULL;
	if (bytes <= TT_SHM_INLINE)
		return tt_shm_line_at(l->tx, l->sent)->payload;
	return bytes <= TT_SHM_SMALL ? l->writing : l->room;
}

static void put_flag(const struct tt_shm_link *l, struct tt_shm_line *line, uint64_t flag)
{
	atomic_store_explicit(&line->flag, flag, memory_order_release);
	if (l->demotes)
		tt_demote_line(line);
}

/* Copies of a constant size are no calls; only the last line is not full. */
static void spread(struct tt_shm_link *l, const uint8_t *from, size_t bytes, uint64_t flag)
{
	struct tt_shm_line *line = tt_shm_line_at(l->tx, l->sent);

	for (uint64_t i = 1; bytes > TT_SHM_INLINE; i++) {
		memcpy(line->payload, from, TT_SHM_INLINE);
		put_flag(l, line, flag);
		flag += 1ull << 32;
		from += TT_SHM_INLINE;
		bytes -= TT_SHM_INLINE;
		line = tt_shm_line_at(l->tx, l->sent + i);
	}
	memcpy(line->payload, from, bytes);
	put_flag(l, line, flag);
}

/* May the reader keep the cell? One claimed cell stays here, for a reader that does not answer. */
static bool grant(struct tt_shm_link *l, struct tt_shm_cells *s, size_t bytes)
{
	if (!s->taken || s->ngranted >= s->most_granted)
		return false;
	if (s->ngranted + 1 >= s->claimed && !(s->circulates && grow(l, s, bytes)))
		return false;
	s->granted |= s->taken;
	s->ngranted++;
	return true;
}

static void fill_in(struct tt_shm_link *l, struct tt_shm_cells *s, struct tt_shm_line *line,
		    size_t bytes)
{
	line->returned = s->taken_of_theirs != 0;
	line->offset = (uint64_t)(l->room -
				  (uint8_t *)(line->returned ? (void *)l->rx : (void *)l->tx));
	line->nontemporal = l->base.nontemporal;
	atomic_store_explicit(&line->rts, false, memory_order_relaxed);
	line->granted = grant(l, s, bytes);
	s->kept &= ~s->taken_of_theirs;
	s->taken_of_theirs = 0;
	s->taken_by[l->sent % TT_SHM_LINES] = s->taken;
	if (s->taken)
		s->line_of[__builtin_ctz(s->taken)] = (uint8_t)(l->sent % TT_SHM_LINES);
	s->busy |= s->taken;
	l->room = NULL;
}

/* data: of a message of several lines */
static inline int commit(struct tt_shm_link *l, const void *data, size_t bytes, uint32_t stamp)
{
	struct tt_shm_line *line = tt_shm_line_at(l->tx, l->sent);
	uint64_t flag = tt_shm_flag(l->sent + 1, bytes, stamp);
	unsigned lines = spread_of(bytes);

	if (lines > 1) {
		spread(l, data, bytes, flag);
	} else if (bytes <= TT_SHM_INLINE) {
		put_flag(l, line, flag);
	} else {
		fill_in(l, cells_for(l, bytes), line, bytes);
		put_flag(l, line, flag);
	}
	l->sent += lines;
	l->base.messages++;
	l->base.sent_bytes += bytes;
	wake_reader(l);
	return 0;
}

int tt_shm_commit(struct tt_link *link, size_t bytes, uint32_t stamp)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;

	return commit(l, l->writing, bytes, stamp);
}

int tt_shm_post(struct tt_link *link, const void *data, size_t bytes, uint32_t stamp)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;
	struct tt_shm_line *line = tt_shm_line_at(l->tx, l->sent);

	if (!find_room(l, 1) && !make_room(l, 1))
		return 0;
	line->offset = (uintptr_t)data;
	line->bytes = bytes;
	line->rest = (uint64_t)(link->sending_from + link->sending - (const char *)data);
	atomic_store_explicit(&line->rts, true, memory_order_relaxed);
	l->rts |= 1ull << (l->sent % TT_SHM_LINES);
	((struct tt_shm_ep *)link->ep)->nrts++;
	put_flag(l, line, tt_shm_flag(l->sent + 1, bytes, stamp));
	l->sent++;
	link->posted++;
	link->messages++;
	link->sent_bytes += bytes;
	wake_reader(l);
	return 1;
}

/* Does the reader wait for this message? It has no earlier one in a cell. */
static bool is_awaited(struct tt_shm_link *l, size_t bytes)
{
	const struct tt_shm_cells *s = cells_for(l, bytes);

	return !(s->busy & ~s->away);
}

unsigned tt_shm_ring_look(struct tt_shm_link *l)
{
	uint64_t before = l->base.completed;

	reclaim(l);
	if (l->rts && !l->starved)
		starve(l, 1);
	return (unsigned)(l->base.completed - before);
}

int tt_shm_put(struct tt_link *link, const void *data, size_t bytes, uint32_t stamp)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;
	void *room = tt_shm_reserve(link, bytes);

	if (!room)
		return 0;
	link->nontemporal = false;
	if (room != l->writing)
		tt_copy(room, data, bytes);
	if (bytes > TT_SHM_SMALL && bytes <= TT_DEMOTE_MOST && l->demotes && is_awaited(l, bytes))
		tt_demote_lines(room, bytes);
	commit(l, data, bytes, stamp);
	return 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static __attribute__((noinline)) int other_call(const struct tt_shm_link *l, size_t bytes,
						uint32_t stamp)
{
	return tt_fail(
		TT_USAGE,
		"rank %d: message %llu of rank %d (channel %d) is not the %zu bytes of call %08x that "
		"are expected: the ranks make different calls",
		l->base.ep->world->rank, (unsigned long long)l->base.received, l->base.peer,
		l->base.channel, bytes, stamp);
}

static uint64_t get_flag(struct tt_shm_line *line)
{
	return atomic_load_explicit(&line->flag, memory_order_acquire);
}

/* The first flag is there. The others are loaded before the comparison, so that the transfers of their lines overlap;
 * not before the first one: a reader that polls all lines takes each from the writer before it is written (ping-pong
 * of 256 B, Xeon, us: 0.58, so 0.46). */
static int gather(struct tt_shm_link *l, uint8_t *to, size_t bytes, uint64_t expected,
		  unsigned lines)
{
	uint64_t differs = 0;
	unsigned i = 1;

	for (; i < lines; i++)
		differs |= get_flag(tt_shm_line_at(l->rx, l->got + i)) ^
			   (expected + ((uint64_t)i << 32));
	if (differs)
		return 0;
	i = 0;
	for (; bytes > TT_SHM_INLINE; bytes -= TT_SHM_INLINE, to += TT_SHM_INLINE)
		memcpy(to, tt_shm_line_at(l->rx, l->got + i++)->payload, TT_SHM_INLINE);
	memcpy(to, tt_shm_line_at(l->rx, l->got + i)->payload, bytes);
	return 1;
}

static int in_cell(struct tt_shm_link *l, const struct tt_shm_line *line, size_t bytes,
		   const void **ret_data)
{
	struct tt_shm_cells *s = cells_for(l, bytes);
	uint8_t *ring = (uint8_t *)(line->returned ? l->tx : l->rx),
		*first = line->returned ? s->at : s->theirs;
	size_t end = l->segment->ring_bytes, offset = line->offset,
	       cell = offset - (size_t)(first - ring);

	if (tt_unlikely(offset > end || bytes > end - offset || cell % s->bytes ||
			cell / s->bytes >= (line->returned ? s->claimed : 32)))
		return tt_fail(TT_INTERNAL, "rank %d: rank %d sent an offset outside of its ring",
			       l->base.ep->world->rank, l->base.peer);
	l->cell = ring + offset;
	l->cells = s;
	l->cell_bytes = bytes;
	l->returned = line->returned;
	l->offered = line->granted;
	l->goes_back = tt_readers_own && !line->returned && !line->nontemporal;
	*ret_data = l->cell;
	return 1;
}

/* room: for a message of several lines, or the bytes of an RTS */
static inline int peek(struct tt_shm_link *l, void *room, size_t bytes, uint32_t stamp,
		       const void **ret_data)
{
	struct tt_shm_line *line = tt_shm_line_at(l->rx, l->got);
	uint64_t flag, expected = tt_shm_flag(l->got + 1, bytes, stamp);
	unsigned lines = spread_of(bytes);

	l->spread = lines;
	l->cells = NULL;
	flag = get_flag(line);
	if (flag != expected)
		return flag >> 32 == expected >> 32 ? other_call(l, bytes, stamp) : 0;
	if (bytes <= TT_SHM_INLINE) {
		*ret_data = line->payload;
		return 1;
	}
	if (lines > 1) {
		*ret_data = room;
		return gather(l, room, bytes, expected, lines);
	}
	if (tt_likely(!atomic_load_explicit(&line->rts, memory_order_acquire)))
		return in_cell(l, line, bytes, ret_data);
	return tt_shm_rndv_read(l, line, room, bytes, stamp, ret_data);
}

void tt_shm_ring_refuse(struct tt_shm_link *l)
{
	atomic_store_explicit(&l->rx->refused, l->got + 1, memory_order_release);
	wake_writer(l);
}

int tt_shm_peek(struct tt_link *link, size_t bytes, uint32_t stamp, const void **ret_data)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;

	return peek(l, bytes > TT_SHM_SMALL ? NULL : l->reading, bytes, stamp, ret_data);
}

/* A cell is home, perhaps before this rank has seen that the reader kept it. */
static void take_home(struct tt_shm_cells *s, size_t i)
{
	uint32_t cell = 1u << i, *taken_by = &s->taken_by[s->line_of[i]];

	if (*taken_by == cell)
		*taken_by = 0;
	s->circulates = true;
	set_free(s, cell);
}

/* The message's cell: home again, kept, or left to the writer, whose next stores find lines that this rank owns */
static void settle_cell(struct tt_shm_link *l, bool keeps)
{
	struct tt_shm_cells *s = l->cells;
	uint64_t line = 1ull << (l->got % TT_SHM_LINES), kept = l->kept & ~line;

	if (l->returned) {
		take_home(s, (size_t)(l->cell - s->at) / s->bytes);
	} else if (keeps) {
		s->kept |= 1u << ((size_t)(l->cell - s->theirs) / s->bytes);
		kept |= line;
	}
	if (kept != l->kept)
		atomic_store_explicit(&l->rx->kept, kept, memory_order_relaxed);
	l->kept = kept;
	l->cells = NULL;
}

static inline void release(struct tt_shm_link *l)
{
	l->got += l->spread;
	l->base.received++;
	atomic_store_explicit(&l->rx->done, l->got, memory_order_release);
	wake_writer(l);
}

void tt_shm_release(struct tt_link *link)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;

	if (l->cells) {
		if (l->goes_back)
			tt_own_lines(l->cell, l->cell_bytes);
		settle_cell(l, false);
	} else if (tt_unlikely(l->rndv.bounced == l->got + 1))
		tt_shm_rndv_prefer_cells(l);
	release(l);
}

static __attribute__((noinline)) void get_cell(struct tt_shm_link *l, void *dst, bool keep,
					       uint32_t stamp)
{
	/* one cell until this rank has answered: a stream in one direction needs no more */
	bool keeps = keep && l->offered && !l->returned && (!l->cells->kept || l->cells->answers);

	if (l->goes_back && !keeps)
		tt_copy_and_own(dst, l->cell, l->cell_bytes);
	else
		tt_copy_and_keep(dst, l->cell, l->cell_bytes);
	if (l->cells == &l->large && l->base.receiving)
		tt_shm_rndv_note(l, l->cell_bytes, stamp, false);
	settle_cell(l, keeps);
}

int tt_shm_get(struct tt_link *link, void *dst, size_t bytes, uint32_t stamp, bool keep)
{
	struct tt_shm_link *l = (struct tt_shm_link *)link;
	const void *data;
	int rc = peek(l, dst, bytes, stamp, &data);

	if (rc <= 0)
		return rc;
	if (l->cells)
		get_cell(l, dst, keep, stamp);
	else if (bytes <= TT_SHM_INLINE)
		memcpy(dst, data, bytes);
	else if (tt_unlikely(bytes > TT_SHM_SMALL))
		tt_shm_rndv_note(l, bytes, stamp, true);
	release(l);
	return 1;
}
