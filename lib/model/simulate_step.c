/*
 * simulate_step.c - one cursor of the simulator: run's step.c with prices instead of bytes
 *
 * The walk (tiles, rows, blocks per message, waits between lanes) is that of step.c, so messages
 * agree in number, order and length; tests/unit/test_simulate.c compares both walks. Called by
 * simulate.c.
 */
#include <stdlib.h>
#include <string.h>

#include "model/simulate_internal.h"

/* ---- the walk -------------------------------------------------------------------------------- */

static uint32_t index_of(const struct tt_sim_rank *r, const struct tt_sim_cursor *cu)
{
	return r->steps[cu->steps].at + cu->nth * r->steps[cu->steps].records;
}

static bool may_start(const struct tt_sim *sim, const struct tt_sim_rank *r,
		      const struct tt_sim_cursor *cu, const struct tt_sim_steps *s)
{
	const struct tt_sim_cursor *other;

	if (s->wait_lane == TT_NO_LANE || cu->nth)
		return true;
	other = &r->cursor[s->wait_lane * sim->binding.width + cu->tile % sim->binding.width];
	return other->finished || other->tile > cu->tile ||
	       (other->tile == cu->tile && index_of(r, other) > s->wait_step);
}

static uint32_t message_blocks(const struct tt_sim *sim, const struct tt_sim_cursor *cu,
			       const struct tt_sim_steps *s)
{
	uint32_t left = s->nblocks > cu->sub ? s->nblocks - cu->sub : 0;

	return left < sim->binding.group ? left : sim->binding.group;
}

static size_t length(const struct tt_sim *sim, const struct tt_sim_cursor *cu,
		     const struct tt_sim_steps *s, uint32_t nblocks)
{
	uint32_t block = s->block + (uint32_t)((int32_t)cu->nth * s->stride) + cu->sub;

	return tt_binding_length(&sim->binding, sim->frame.rule, sim->frame.nblocks, block, nblocks,
				 cu->tile);
}

static void next_step(const struct tt_sim *sim, struct tt_sim_rank *r, struct tt_sim_cursor *cu)
{
	if (++cu->nth < r->steps[cu->steps].repeat)
		return;
	cu->nth = 0;
	if (++cu->steps < r->first[cu->lane + 1])
		return;
	cu->steps = r->first[cu->lane];
	cu->tile += sim->binding.width;
	if (cu->tile >= sim->tiles) {
		cu->finished = true;
		r->nfinished++;
	}
}

static void move_on(const struct tt_sim *sim, struct tt_sim_rank *r, struct tt_sim_cursor *cu,
		    const struct tt_sim_steps *s, uint32_t nblocks)
{
	cu->more |= s->nblocks > cu->sub + nblocks;
	if (s->flags & TT_STEP_INTERLEAVED) {
		next_step(sim, r, cu);
	} else if (cu->more) {
		cu->more = false;
		cu->sub += sim->binding.group;
		cu->steps = cu->row_steps;
		cu->nth = cu->row_nth;
	} else {
		cu->sub = 0;
		next_step(sim, r, cu);
		cu->row_steps = cu->steps;
		cu->row_nth = cu->nth;
	}
}

/* ---- the price ------------------------------------------------------------------------------- */

/* Number of times a step stores its result: in its own block, in the receiver's slot. */
static uint64_t stores(const struct tt_sim_steps *s, bool slot)
{
	return slot + (s->has_dst && !(slot && s->flags & TT_STEP_PASSING));
}

static const struct tt_link_cost *link_cost(const struct tt_sim *sim, const struct tt_sim_rank *r,
					    uint32_t peer)
{
	const struct tt_link_cost *link = sim->world.cost->link;

	if (!sim->on_slots)
		return &link[r->class[peer]];
	return r->class[peer] == TT_LINK_GROUPS ? &sim->far_slots : &link[TT_LINK_SLOTS];
}

/* Is the result computed directly into memory that the peer or the NIC reads? Sockets send from the
 * block. */
static bool has_slots(const struct tt_sim_rank *r, uint32_t peer)
{
	enum tt_link_class class = (enum tt_link_class)r->class[peer];

	return tt_link_is_memory(class) || tt_link_is_nic(class);
}

/* Adds the CPU time of one message to parts; returns their sum. */
static uint64_t work(const struct tt_sim *sim, const struct tt_sim_rank *r,
		     const struct tt_sim_steps *s, uint64_t bytes, uint64_t *parts)
{
	const struct tt_prices *price = &sim->prices[r->host];
	bool slot = s->to != TT_SIM_NONE && has_slots(r, s->to), lands = false;
	uint64_t messages = sim->world.cost->core.step_ps, moved = 0, reduced = 0;

	if (s->to != TT_SIM_NONE && r->posted) {
		moved = sim->parts ? tt_sim_bytes_ps(bytes, price->copy_fs) : 0;
		parts[TT_PART_BYTES] += moved;
		return moved;
	}
	for (int i = 0; i < s->nwires; i++) {
		const struct tt_link_cost *l = link_cost(sim, r, s->wire[i]);

		bool memory = tt_link_is_memory((enum tt_link_class)r->class[s->wire[i]]);

		messages += l->recv_ps;
		moved += tt_sim_bytes_ps(bytes, l->recv_fs) *
			 (memory ? price->remote_permille : 1000) / 1000;
		lands |= !has_slots(r, s->wire[i]);
	}
	if (s->to != TT_SIM_NONE) {
		messages += link_cost(sim, r, s->to)->send_ps;
		moved += tt_sim_bytes_ps(bytes, link_cost(sim, r, s->to)->send_fs);
	}
	if (s->op == TT_COMBINE) {
		reduced = tt_sim_bytes_ps(bytes, price->reduce_fs) * (s->nsrc - 1u);
		moved += stores(s, slot) > 1 ? tt_sim_bytes_ps(bytes, price->copy_fs) : 0;
	} else if (!lands || slot) { /* sockets receive into the block itself */
		moved += (sim->on_slots ? 1 : stores(s, slot)) *
			 tt_sim_bytes_ps(bytes, price->copy_fs);
	}
	parts[TT_PART_MESSAGES] += messages;
	parts[TT_PART_BYTES] += moved;
	parts[TT_PART_REDUCE] += reduced;
	return messages + moved + reduced;
}

/* Arrival of a message sent at from_ps; occupies the link and the networks of both hosts, or groups. */
static uint64_t carry(struct tt_sim *sim, struct tt_sim_rank *r, uint32_t to, uint64_t bytes,
		      uint64_t from_ps)
{
	const struct tt_link_cost *l = link_cost(sim, r, to);
	const struct tt_sim_rank *peer = &sim->rank[r->stands[to]];
	bool groups = r->class[to] == TT_LINK_GROUPS;
	struct tt_sim_network *out = groups ? &sim->group[r->group] : &sim->host[r->host].network,
			      *in = groups ? &sim->group[peer->group]
					   : &sim->host[peer->host].network;
	uint64_t start = from_ps > r->link_free_ps[to] ? from_ps : r->link_free_ps[to], end;

	end = r->link_free_ps[to] = start + tt_sim_bytes_ps(bytes, l->link_fs);
	if (l->host_fs && r->class[to] != TT_LINK_SHM && r->class[to] != TT_LINK_TCP) {
		uint64_t ps = tt_sim_bytes_ps(bytes, l->host_fs);

		start = start > out->out_free_ps ? start : out->out_free_ps;
		out->out_free_ps = start + ps;
		in->in_free_ps = (start > in->in_free_ps ? start : in->in_free_ps) + ps;
		end = end > in->in_free_ps ? end : in->in_free_ps;
	}
	return end + l->latency_ps + (bytes > l->large_bytes ? l->large_ps : 0);
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct tt_sim_queue *queue_of(const struct tt_sim *sim, const struct tt_sim_rank *r,
				     uint32_t peer, uint32_t cursor)
{
	return &r->queue[peer * sim->ncursors + cursor];
}

static struct tt_sim_message *append(struct tt_sim *sim, struct tt_sim_queue *q)
{
	if (q->count == q->room) {
		uint32_t room = q->room ? 2 * q->room : 2;
		struct tt_sim_message *more = malloc(room * sizeof(*more));

		if (!more) {
			sim->failed = true;
			return NULL;
		}
		for (uint32_t i = 0; i < q->count; i++)
			more[i] = q->message[(q->head + i) % q->room];
		free(q->message);
		q->message = more;
		q->head = 0;
		q->room = room;
	}
	return &q->message[(q->head + q->count++) % q->room];
}

static void send(struct tt_sim *sim, struct tt_sim_rank *r, uint32_t to, uint32_t cursor,
		 uint64_t bytes)
{
	uint32_t peer = r->stands[to];
	struct tt_sim_rank *p = &sim->rank[peer];
	struct tt_sim_queue *q = queue_of(sim, p, r->mirror[to], cursor);
	struct tt_sim_message *m = append(sim, q);
	const struct tt_link_cost *l = link_cost(sim, r, to);
	uint64_t latency;

	if (!m)
		return;
	m->at_ps = carry(sim, r, to, bytes, r->now_ps);
	memcpy(m->part_ps, r->part_ps, sizeof(m->part_ps));
	latency = l->latency_ps + (bytes > l->large_bytes ? l->large_ps : 0);
	m->part_ps[TT_PART_LATENCY] += latency;
	m->part_ps[TT_PART_BYTES] += m->at_ps - r->now_ps - latency;
	r->sent_bytes[to] += bytes;
	sim->messages[r->class[to]]++;
	if (p->cursor[cursor].wait == TT_SIM_FOR_MESSAGE && &p->queue[p->cursor[cursor].queue] == q)
		tt_sim_notify(sim, peer, cursor, m->at_ps);
}

static void release(struct tt_sim *sim, struct tt_sim_rank *r, uint32_t from, uint32_t cursor)
{
	struct tt_sim_queue *q = queue_of(sim, r, from, cursor);
	uint32_t peer = r->stands[from];

	q->head = (q->head + 1) % q->room;
	q->count--;
	if (sim->rank[peer].cursor[cursor].wait == TT_SIM_FOR_ROOM)
		tt_sim_notify(sim, peer, cursor, r->now_ps);
}

/* ---- one message of a cursor ----------------------------------------------------------------- */

static bool blocked(struct tt_sim_cursor *cu, enum tt_sim_wait wait, uint64_t wake_ps)
{
	cu->wait = wait;
	cu->wake_ps = wake_ps;
	return false;
}

/* Has the peer room for one more message, and have all messages of the sources arrived?
 * *ret_last: the latest of them, or NULL. */
static bool is_ready(struct tt_sim *sim, struct tt_sim_rank *r, uint32_t cursor,
		     const struct tt_sim_steps *s, const struct tt_sim_message **ret_last)
{
	struct tt_sim_cursor *cu = &r->cursor[cursor];

	*ret_last = NULL;
	if (s->to != TT_SIM_NONE) {
		const struct tt_sim_rank *p = &sim->rank[r->stands[s->to]];

		if (queue_of(sim, p, r->mirror[s->to], cursor)->count >=
		    sim->world.cost->link[r->class[s->to]].window)
			return blocked(cu, TT_SIM_FOR_ROOM, TT_SIM_NEVER);
	}
	for (int i = 0; i < s->nwires; i++) {
		const struct tt_sim_queue *q = queue_of(sim, r, s->wire[i], cursor);

		cu->queue = (uint32_t)(q - r->queue);
		if (!q->count)
			return blocked(cu, TT_SIM_FOR_MESSAGE, TT_SIM_NEVER);
		if (!*ret_last || q->message[q->head].at_ps > (*ret_last)->at_ps)
			*ret_last = &q->message[q->head];
	}
	if (*ret_last && (*ret_last)->at_ps > r->now_ps)
		return blocked(cu, TT_SIM_RUNS, (*ret_last)->at_ps);
	return true;
}

/* Extends the critical path: by way of the last message if the rank waited for it, else by way of
 * the rank's own work. idle_ps: end of that work. */
static void account(struct tt_sim_rank *r, const struct tt_sim_message *last, uint64_t idle_ps)
{
	if (last && last->at_ps > idle_ps) {
		memcpy(r->part_ps, last->part_ps, sizeof(r->part_ps));
		idle_ps = last->at_ps;
	}
	r->part_ps[TT_PART_WAIT] += r->now_ps - idle_ps;
}

static void execute(struct tt_sim *sim, struct tt_sim_rank *r, uint32_t cursor,
		    const struct tt_sim_steps *s, uint64_t bytes)
{
	uint64_t ps = work(sim, r, s, bytes, r->part_ps);

	r->now_ps += ps;
	r->idle_ps = r->now_ps;
	r->busy_ps += ps;
	sim->events++;
	for (int i = 0; i < s->nwires; i++)
		release(sim, r, s->wire[i], cursor);
	if (s->to != TT_SIM_NONE) {
		r->posted = sim->on_slots;
		send(sim, r, s->to, cursor, bytes);
	}
}

static void wake_lanes(const struct tt_sim *sim, struct tt_sim_rank *r)
{
	for (uint32_t i = 0; i < sim->ncursors; i++)
		if (r->cursor[i].wait == TT_SIM_FOR_LANE) {
			r->cursor[i].wait = TT_SIM_RUNS;
			r->cursor[i].wake_ps = 0;
		}
}

bool tt_sim_advance(struct tt_sim *sim, uint32_t rank, uint32_t cursor)
{
	struct tt_sim_rank *r = &sim->rank[rank];
	struct tt_sim_cursor *cu = &r->cursor[cursor];
	const struct tt_sim_message *last;
	bool moved = false;

	while (!cu->finished && !moved) {
		const struct tt_sim_steps *s = &r->steps[cu->steps];
		uint32_t nblocks = s->op == TT_NOP ? s->nblocks : message_blocks(sim, cu, s);
		size_t bytes;

		if (!may_start(sim, r, cu, s))
			return blocked(cu, TT_SIM_FOR_LANE, TT_SIM_NEVER);
		bytes = s->op == TT_NOP || !nblocks ? 0 : length(sim, cu, s, nblocks);
		if (bytes) {
			if (!is_ready(sim, r, cursor, s, &last))
				return false;
			account(r, last, r->idle_ps);
			execute(sim, r, cursor, s, bytes);
			moved = true;
		}
		move_on(sim, r, cu, s, nblocks);
		if (sim->frame.nlanes > 1)
			wake_lanes(sim, r);
	}
	cu->wait = TT_SIM_RUNS;
	cu->wake_ps = cu->finished ? TT_SIM_NEVER : 0;
	return moved;
}
