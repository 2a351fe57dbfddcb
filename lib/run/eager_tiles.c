/*
 * eager_tiles.c - Send and Recv of messages of several tiles through shared memory, without operations
 *
 * Called by run.c for what eager.c has left. A message needs no plan, no cursor and no set while its tiles find room
 * in the ring, and its receiver finds them within the spins of a wait. The rest of a message that has to wait longer
 * becomes an operation (p2p.c), which goes on with the first tile that has not moved; it also meets errors again and
 * reports them. Tiles, numbers, stamps and the call log are those of p2p.c.
 *
 * Sends come before receives, which may wait for what this rank's sends cause. At first a send moves AHEAD tiles, then
 * each message moves one in turn: what both directions of a pair have in flight stays in the cache.
 */
#include "plan/bind.h"
#include "run/op.h"

#define AHEAD 4

struct tiled_message {
	struct tiled_message *next; /* that is not done */
	const struct tt_request *request;
	struct tt_link *link;
	uint64_t *counter; /* of messages of this pair and direction */
	size_t bytes, tile, moved;
	struct tt_call call;
	uint32_t stamp;
	bool begun, met; /* met: the fault point of the next tile */
	bool exchanges;
};

static void announce(const struct tiled_message *m)
{
	tt_p2p_announce(m->link, m->request, m->request->in, m->bytes, m->exchanges);
}

/* exchanges: the set of requests receives, too. false: the message needs an operation */
static bool make(struct tiled_message *m, const struct tt_request *r, bool exchanges)
{
	tuttiComm_t c = r->comm;
	struct tt_connectivity facts;
	size_t bytes = r->count * tt_type_bytes(r->type);

	if (r->collective != TT_SENDRECV || r->staging || !c->calls.p2p_sent || bytes == 0 ||
	    bytes >= TT_NONTEMPORAL_BYTES)
		return false;
	m->link = tt_path_link(&c->paths.path[c->paths.p2p_path], TT_P2P_CHANNEL, r->root);
	if (!m->link || !m->link->t->get || tt_control_broken(c->ctl))
		return false;
	m->request = r;
	m->counter = (r->send ? c->calls.p2p_sent : c->calls.p2p_received) + r->root;
	m->bytes = bytes;
	facts = tt_comm_connectivity(c);
	m->tile = tt_connectivity_p2p_tile(&facts, c->paths.world.message_bytes, bytes);
	m->call = (struct tt_call){ .collective = TT_SENDRECV,
				    .type = (uint8_t)r->type,
				    .count = r->count };
	m->moved = 0;
	m->begun = m->met = false;
	m->exchanges = exchanges;
	announce(m);
	/* what the peer reads is an operation's */
	return !r->send || bytes <= m->tile || !m->link->t->zcopy_ops ||
	       !m->link->t->zcopy_ops->can_send(m->link, r->in, m->tile);
}

/* The requests that are not done as a list, sends first. false: none has several tiles, or some needs an operation */
static bool make_all(struct tiled_message *all, const struct tt_request *requests, size_t n,
		     uint64_t done, struct tiled_message **ret_first)
{
	struct tiled_message **end = ret_first, *receives = NULL, **receives_end = &receives;
	bool several = false, exchanges = false;

	for (size_t i = 0; i < n; i++)
		exchanges |= requests[i].collective == TT_SENDRECV && !requests[i].send;

	for (size_t i = 0; i < n; i++) {
		struct tiled_message *m = &all[i];

		if (done >> i & 1)
			continue;
		if (!make(m, &requests[i], exchanges))
			return false;
		several |= m->bytes > m->tile;
		if (requests[i].send) {
			*end = m;
			end = &m->next;
		} else {
			*receives_end = m;
			receives_end = &m->next;
		}
	}
	*receives_end = NULL;
	*end = receives;
	return several;
}

/* A send is logged before its first tile, a receive behind its last one. */
static void log_message(const struct tiled_message *m)
{
	const struct tt_request *r = m->request;

	tt_control_note_message(r->comm->ctl, r->send, r->root, *m->counter + 1, &m->call);
}

static void begin(struct tiled_message *m)
{
	m->stamp = tt_call_stamp(&m->call, *m->counter + 1);
	m->begun = true;
	announce(m); /* another message may have been last */
	if (m->request->send)
		log_message(m);
}

static void finish(struct tiled_message *m)
{
	const struct tt_request *r = m->request;

	if (!r->send) {
		log_message(m);
		r->comm->calls.last_received[r->root] = r->comm->calls.seq;
	}
	++*m->counter;
	tt_control_done_message(r->comm->ctl);
	tt_op_count(r->comm);
}

/* One tile. 1 | 0 no room, or not here yet | < 0 */
static int move_tile(struct tiled_message *m)
{
	const struct tt_request *r = m->request;
	struct tt_link *l = m->link;
	size_t left = m->bytes - m->moved, some = left < m->tile ? left : m->tile;
	int rc;

	if (r->send && !m->met)
		tt_fault_point(r->comm);
	m->met = true;
	rc = r->send ? l->t->put(l, (const char *)r->in + m->moved, some, m->stamp)
		     : tt_fault_point_get(r->comm, l, (char *)r->out + m->moved, some, m->stamp,
					  true);
	if (rc <= 0)
		return rc;
	m->met = false;
	m->moved += some;
	return 1;
}

/* > 0 some moved | 0 | < 0 */
static int advance(struct tiled_message *m)
{
	int moved = 0, rc;

	if (!m->begun)
		begin(m);
	for (unsigned tiles = m->request->send && !m->moved ? AHEAD : 1; tiles > 0; tiles--) {
		rc = move_tile(m);
		if (rc <= 0)
			return rc < 0 ? rc : moved;
		moved = 1;
		if (m->moved == m->bytes) {
			finish(m);
			break;
		}
	}
	return moved;
}

/* Messages of one pair and direction keep their order. */
static bool is_next(const struct tiled_message *first, const struct tiled_message *m)
{
	while (first != m && first->counter != m->counter)
		first = first->next;
	return first == m;
}

/* Advance each message once; those that are done leave the list. > 0 some moved | 0 | < 0 */
static int round_of(struct tiled_message **first)
{
	int moved = 0, rc;

	for (struct tiled_message **at = first, *m; (m = *at);) {
		rc = is_next(*first, m) ? advance(m) : 0;
		if (rc < 0)
			return rc;
		moved |= rc;
		if (m->moved == m->bytes)
			*at = m->next;
		else
			at = &m->next;
	}
	return moved;
}

/* Rounds until all messages are done (true), one meets an error, or the spins of a wait are over */
static bool move(struct tiled_message *first, tuttiComm_t c)
{
	uint32_t idle = 0, spins = 0;
	int rc;

	while ((rc = round_of(&first)) >= 0) {
		if (rc && idle) {
			tt_wait_spun(c);
			idle = 0;
		}
		if (!first)
			return true;
		if (rc)
			continue;
		if (!idle)
			spins = tt_wait_spins(c);
		if (idle++ == spins)
			return false;
		tt_cpu_relax();
	}
	return false;
}

bool tt_eager_tiles(const struct tt_request *requests, size_t n, uint64_t done, uint32_t *ret_tiles)
{
	struct tiled_message all[TT_EAGER_MOST], *first;
	bool made = make_all(all, requests, n, done, &first);

	if (made && move(first, requests->comm))
		return true;
	for (size_t i = 0; i < n; i++)
		if (done >> i & 1 || (made && all[i].moved == all[i].bytes))
			ret_tiles[i] = TT_ALL_TILES;
		else
			ret_tiles[i] = made ? (uint32_t)(all[i].moved / all[i].tile) : 0;
	return false;
}
