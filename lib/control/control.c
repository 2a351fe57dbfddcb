/*
 * control.c - make a control, leave; its frames in and out
 *
 * Called by bootstrap and split (make), by the endpoint (frames) and by comm (leave, hosts).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control/control_internal.h"

/* limit for the peers' hosts to acknowledge everything at leaving */
#define GOODBYE_MS 5000
#define GOODBYE_BROKEN_MS 200 /* ... when only the goodbye is left to send */
#define GOODBYE_IDLE_MS 50    /* ... and no byte is acknowledged: a stopped peer */
#define POLL_LEAST_NS 200000  /* between two looks at what the hosts have */

/* ---- make and free --------------------------------------------------------------------------- */

static bool allocate(struct tt_control *ctl)
{
	ctl->join.attached = tt_set_make(ctl->nranks);
	ctl->departed.left = tt_set_make(ctl->nranks);
	ctl->departed.dead = tt_set_make(ctl->nranks);
	ctl->departed.over = tt_set_make(ctl->nranks);
	return ctl->join.attached && ctl->departed.left && ctl->departed.dead &&
	       ctl->departed.over && tt_sparse_make(&ctl->departed.parted, ctl->nranks) &&
	       tt_sparse_make(&ctl->log.pair, ctl->nranks) &&
	       tt_status_table_make(&ctl->status.table, ctl->nranks);
}

/* false: no memory */
static bool map_peers(struct tt_control *ctl, const struct tt_rank_map *members,
		      const struct tt_rank_map *outer)
{
	ctl->map = calloc(1, sizeof(*ctl->map));
	return ctl->map && tt_rank_map_compose(ctl->map, members, outer, ctl->ep->npeers);
}

static void release(struct tt_control *ctl)
{
	pthread_mutex_destroy(&ctl->observers.lock);
	tt_gather_free(ctl);
	if (ctl->map)
		tt_rank_map_free(ctl->map);
	free(ctl->map);
	free(ctl->host_of);
	tt_counted_bits_free(&ctl->own_firsts);
	free(ctl->join.attached);
	free(ctl->departed.left);
	free(ctl->departed.dead);
	free(ctl->departed.over);
	tt_status_table_free(&ctl->status.table);
	tt_sparse_free_all(&ctl->departed.parted);
	tt_sparse_free_all(&ctl->log.pair);
	free(ctl);
}

/* members: of outer's map; NULL: rank r is peer r */
static int make(struct tt_control_endpoint *ep, uint64_t context, int rank, int nranks,
		const struct tt_rank_map *members, const struct tt_rank_map *outer,
		struct tt_control **ret_ctl)
{
	struct tt_control *ctl = aligned_alloc(TT_APART,
					       (sizeof(*ctl) + TT_APART - 1) / TT_APART * TT_APART);

	if (!ctl)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for the control of %d ranks", rank,
			       nranks);
	memset(ctl, 0, sizeof(*ctl));
	ctl->ep = ep;
	ctl->context = context;
	ctl->rank = rank;
	ctl->nranks = nranks;
	ctl->log.gone_after = ctl->status.answer_due_ns = TT_NEVER;
	ctl->deadlock.check_due_ns = ctl->status.queue.due_ns = TT_NEVER;
	ctl->status.blocked.awaited = ctl->failure.culprit = -1;
	pthread_mutex_init(&ctl->observers.lock, NULL);
	if (!allocate(ctl) ||
	    (members && !(map_peers(ctl, members, outer) && tt_control_number_hosts(ctl)))) {
		release(ctl);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", rank, nranks);
	}
	tt_endpoint_enter(ep, ctl);
	*ret_ctl = ctl;
	return 0;
}

int tt_control_make(struct tt_control_endpoint *ep, int rank, int nranks,
		    struct tt_control **ret_ctl)
{
	return make(ep, 0, rank, nranks, NULL, NULL, ret_ctl);
}

int tt_control_make_child(struct tt_control *parent, uint64_t context, int rank,
			  const struct tt_rank_map *members, struct tt_control **ret_ctl)
{
	return make(parent->ep, context, rank, members->n, members, parent->map, ret_ctl);
}

void tt_control_free(struct tt_control *ctl)
{
	struct tt_control_endpoint *ep = ctl->ep;
	bool last;

	tt_dialer_stop(ctl);
	pthread_mutex_lock(&ep->lock);
	tt_endpoint_leave(ep, ctl);
	for (struct tt_control *parent = ep->controls; parent; parent = parent->next)
		tt_split_freed(parent, ctl);
	tt_bootstrap_close(ctl);
	last = !ep->controls;
	pthread_mutex_unlock(&ep->lock);
	release(ctl);
	if (last)
		tt_endpoint_free(ep);
}

size_t tt_control_memory(struct tt_control *ctl)
{
	struct tt_control_endpoint *ep = ctl->ep;
	size_t bytes = sizeof(*ctl) + tt_counted_bits_memory(&ctl->own_firsts) +
		       4 * TT_SET_BYTES(ctl->nranks);

	bytes += ctl->host_of ? (size_t)ctl->nranks * sizeof(*ctl->host_of) : 0;

	if (ctl->map)
		bytes += sizeof(*ctl->map) + tt_rank_map_memory(ctl->map);
	pthread_mutex_lock(&ep->lock);
	bytes += tt_status_memory(ctl) + tt_sparse_memory(&ctl->log.pair) +
		 tt_sparse_memory(&ctl->departed.parted);
	if (ctl == ep->controls) { /* the oldest one answers for the endpoint */
		bytes += sizeof(*ep) + TT_SET_BYTES(ep->npeers) + ep->early_bytes +
			 tt_sparse_memory(&ep->peers.best_address) +
			 tt_sparse_memory(&ep->early_of) +
			 tt_directory_memory(&ep->peers.directory) + tt_dials_memory(ep);
		for (const struct tt_conn *c = ep->conns; c; c = c->next)
			bytes += sizeof(*c) + c->in_room + c->out.room +
				 (c->dead ? 0 : tt_duplex_memory(&c->duplex));
	}
	for (int i = 0; i < TT_FANOUT; i++)
		bytes += ctl->gather.child[i].bytes;
	pthread_mutex_unlock(&ep->lock);
	return bytes;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

int tt_control_peer(const struct tt_control *ctl, int rank)
{
	return ctl->map ? tt_rank_map_peer(ctl->map, rank) : rank;
}

int tt_control_rank(const struct tt_control *ctl, int peer)
{
	if (ctl->map)
		return tt_rank_map_rank(ctl->map, peer);
	return peer < ctl->nranks ? peer : -1;
}

/* Fill host_of, by a hash table, half empty, of 1 + the lowest rank of each host; host: of each peer. Does
 * no other host come between the ranks of one? */
static bool number_hosts(struct tt_control *ctl, const uint64_t *host, int *lowest, size_t room)
{
	bool together = true;

	ctl->nhosts = 0;
	for (int r = 0; r < ctl->nranks; r++) {
		uint64_t id = host[tt_control_peer(ctl, r)];
		size_t at = tt_mix(0, id) % room;

		if (r && id == host[tt_control_peer(ctl, r - 1)]) {
			ctl->host_of[r] = ctl->host_of[r - 1];
			continue;
		}
		while (lowest[at] && host[tt_control_peer(ctl, lowest[at] - 1)] != id)
			at = (at + 1) % room;
		together &= !lowest[at];
		if (!lowest[at]) {
			lowest[at] = r + 1;
			ctl->host_of[r] = ctl->nhosts++;
		}
		ctl->host_of[r] = ctl->host_of[lowest[at] - 1];
	}
	return together;
}

/* Bits instead of numbers. Without memory the numbers stay. */
static void pack_hosts(struct tt_control *ctl)
{
	struct tt_counted_bits firsts;

	if (!tt_counted_bits_make(&firsts, ctl->nranks + 1)) {
		tt_counted_bits_free(&firsts);
		return;
	}
	for (int r = 0; r < ctl->nranks; r++)
		if (!r || ctl->host_of[r] != ctl->host_of[r - 1])
			tt_counted_bits_add(&firsts, r);
	tt_counted_bits_count(&firsts);
	ctl->own_firsts = firsts;
	ctl->host_firsts = &ctl->own_firsts;
	free(ctl->host_of);
	ctl->host_of = NULL;
}

/* Of a split or shrink in the order of the peers, whose hosts are bits: a host begins between two ranks where
 * one begins between their peers. false: no memory */
static bool map_hosts(struct tt_control *ctl, const struct tt_counted_bits *firsts)
{
	const struct tt_counted_bits *in = &ctl->map->in;

	if (!tt_counted_bits_make(&ctl->own_firsts, ctl->nranks + 1))
		return false;
	for (int peer = 0, gap = 0, rank = 0, end; rank < ctl->nranks;
	     rank += end - peer, gap = end) {
		peer = tt_counted_bits_next(in, gap, true);
		end = tt_counted_bits_next(in, peer, false);
		tt_counted_bits_add_range(&ctl->own_firsts, rank, firsts, peer, end);
		if (tt_counted_bits_before(firsts, peer) > tt_counted_bits_before(firsts, gap))
			tt_counted_bits_add(&ctl->own_firsts, rank);
	}
	tt_counted_bits_count(&ctl->own_firsts);
	ctl->host_firsts = &ctl->own_firsts;
	ctl->nhosts = tt_counted_bits_before(&ctl->own_firsts, ctl->nranks);
	return true;
}

bool tt_control_number_hosts(struct tt_control *ctl)
{
	const struct tt_directory *d = &ctl->ep->peers.directory;
	size_t room = 2, n = (size_t)ctl->nranks;
	uint64_t *host; /* of a peer */
	int *lowest;
	bool made;

	if (!ctl->map && d->firsts.group && !d->host) {
		ctl->host_firsts = &d->firsts;
		ctl->nhosts = tt_counted_bits_before(&d->firsts, ctl->nranks);
		return true;
	}
	if (ctl->map && ctl->map->in_order && d->firsts.group && !d->host)
		return map_hosts(ctl, &d->firsts);
	host = malloc((size_t)ctl->ep->npeers * sizeof(*host));
	while (room < 2 * n)
		room *= 2;
	lowest = calloc(room, sizeof(*lowest));
	ctl->host_of = malloc(n * sizeof(*ctl->host_of));
	made = host && lowest && ctl->host_of;
	if (made)
		tt_directory_hosts(d, host);
	if (made && number_hosts(ctl, host, lowest, room))
		pack_hosts(ctl);
	free(lowest);
	free(host);
	return made;
}

int tt_control_host(const struct tt_control *ctl, int rank)
{
	return tt_host_number(ctl->host_of, ctl->host_firsts, rank);
}

const int *tt_control_hosts(struct tt_control *ctl, const struct tt_counted_bits **ret_firsts,
			    int *ret_nhosts)
{
	*ret_firsts = ctl->host_firsts;
	*ret_nhosts = ctl->nhosts;
	return ctl->host_of;
}

void tt_control_host_name(const struct tt_control *ctl, int rank, char *name, size_t bytes)
{
	struct tt_business_card record;

	tt_directory_get(&ctl->ep->peers.directory, tt_control_peer(ctl, rank), &record);
	snprintf(name, bytes, "%s", record.name);
}

bool tt_control_same(const struct tt_control *a, const struct tt_control *b)
{
	/* the communicators of one TUTTI_ROOT are one job, with a key pair of rank 0 each */
	return a->context == b->context &&
	       !memcmp(a->ep->auth.job, b->ep->auth.job, sizeof(a->ep->auth.job)) &&
	       !memcmp(a->ep->peers.root_key, b->ep->peers.root_key, TT_PUBLIC_KEY);
}

int tt_rank_list(int nranks, bool (*which)(const void *ctx, int rank), const void *ctx, char *text,
		 size_t bytes)
{
	char numbers[120] = "";
	size_t have = 0;
	int n = 0, shown = 0;

	for (int r = 0, end; r < nranks; r = end) {
		end = r + 1;
		if (!which(ctx, r))
			continue;
		while (end < nranks && which(ctx, end))
			end++;
		if (end == r + 2) /* two ranks are no range */
			end--;
		n += end - r;
		if (have + 32 > sizeof(numbers))
			continue;
		have += (size_t)snprintf(numbers + have, sizeof(numbers) - have,
					 end > r + 1 ? "%s%d to %d" : "%s%d",
					 n > end - r ? ", " : "", r, end - 1);
		shown = n;
	}
	if (n > shown)
		snprintf(text, bytes, "ranks %s and %d more", numbers, n - shown);
	else
		snprintf(text, bytes, "rank%s %s", n > 1 ? "s" : "", numbers);
	return n;
}

/* ---- frames ---------------------------------------------------------------------------------- */

bool tt_control_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		      const uint8_t *data, size_t bytes)
{
	int from;

	if (conn->registration && !conn->registered && kind != TT_F_REGISTER &&
	    kind != TT_F_DECLINE)
		return true; /* the goodbye of a refused rank */
	if (kind == TT_F_REGISTER || kind == TT_F_DECLINE)
		return tt_join_frame(ctl, conn, kind, data, bytes);
	from = tt_control_rank(ctl, conn->peer);
	if (from < 0)
		return false;
	switch (kind) {
	case TT_F_GATHER_UP:
		return tt_gather_up(ctl, from, data, bytes);
	case TT_F_GATHER_DOWN:
		return tt_gather_down(ctl, from, data, bytes);
	case TT_F_ABORT:
		return tt_flood_abort(ctl, from, data, bytes);
	case TT_F_STATUS:
		return tt_status_frame(ctl, from, data, bytes);
	case TT_F_DEAD:
		return tt_flood_dead(ctl, from, data, bytes);
	case TT_F_GOODBYE:
		return tt_flood_goodbye(ctl, from, data, bytes);
	case TT_F_LEFT:
		return tt_flood_left(ctl, from);
	case TT_F_SHRUNK:
		return tt_split_shrunk(ctl, from, data, bytes);
	case TT_F_SPLIT_FAILED:
		return tt_split_failed(ctl, from, data, bytes);
	case TT_F_MESSAGE:
	case TT_F_CREDIT:
	case TT_F_SHRINK:
		tt_observers_message(ctl, from, kind, data, bytes);
		return true;
	default:
		return tt_join_frame(ctl, conn, kind, data, bytes);
	}
}

/* The neighbors of a rank in `to`, of which JOINING has none */
static int neighbors(int rank, int n, unsigned to, int *ret_neighbor)
{
	int next = (rank + 1) % n, before = (rank + n - 1) % n, count = 0;

	if (to & TT_TO_PARENT && rank)
		ret_neighbor[count++] = tt_tree_parent(rank);
	for (int i = 1; to & TT_TO_CHILDREN && i <= TT_FANOUT && rank * TT_FANOUT + i < n; i++)
		ret_neighbor[count++] = rank * TT_FANOUT + i;
	if (to & TT_TO_RING && next != rank && !tt_tree_edge(rank, next))
		ret_neighbor[count++] = next;
	if (to & TT_TO_RING && before != next && !tt_tree_edge(rank, before))
		ret_neighbor[count++] = before;
	return count;
}

int tt_control_neighbors(const struct tt_control *ctl, int rank, int ret_neighbor[TT_FANOUT + 3])
{
	return neighbors(rank, ctl->nranks, TT_TO_NEIGHBORS, ret_neighbor);
}

bool tt_control_is_neighbor(const struct tt_control *ctl, int rank)
{
	int neighbor[TT_FANOUT + 3], n = tt_control_neighbors(ctl, ctl->rank, neighbor);

	for (int i = 0; i < n; i++)
		if (neighbor[i] == rank)
			return true;
	return false;
}

void tt_control_send(struct tt_control *ctl, unsigned to, int except, enum tt_frame kind,
		     const void *data, size_t bytes)
{
	int neighbor[TT_FANOUT + 3], n = neighbors(ctl->rank, ctl->nranks, to, neighbor);
	struct tt_control_endpoint *ep = ctl->ep;

	for (int i = 0; i < n; i++) {
		struct tt_conn *conn = neighbor[i] == except
					       ? NULL
					       : tt_conn_to(ep, tt_control_peer(ctl, neighbor[i]));

		if (conn)
			tt_conn_send(ep, conn, ctl->context, kind, data, bytes);
	}
	for (struct tt_conn *c = ep->conns; c && to & TT_TO_CONNECTED; c = c->next)
		if (tt_conn_to(ep, c->peer) == c && tt_control_rank(ctl, c->peer) >= 0 &&
		    tt_control_rank(ctl, c->peer) != except)
			tt_conn_send(ep, c, ctl->context, kind, data, bytes);
	for (struct tt_conn *c = ep->conns; c && to & TT_TO_JOINING && !ctl->context; c = c->next)
		if (c->registration && c->peer != except)
			tt_conn_send(ep, c, ctl->context, kind, data, bytes);
}

void tt_control_post(struct tt_control *ctl, unsigned to, int except, enum tt_frame kind,
		     struct tt_writer *w)
{
	if (!w->failed)
		tt_control_send(ctl, to, except, kind, w->data, w->have);
	else if (!tt_frame_is_repeated(kind))
		tt_control_no_memory(ctl);
	free(w->data);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* The bytes that the hosts of all ranks do not have yet. A peer that is no rank of ctl was left
 * before, or excluded by a shrink, and may be stopped. */
static size_t unsent(const struct tt_control *ctl)
{
	size_t bytes = 0;

	for (const struct tt_conn *c = ctl->ep->conns; c; c = c->next)
		if (!c->registration && tt_control_rank(ctl, c->peer) >= 0)
			bytes += tt_conn_unsent(c);
	return bytes;
}

static void await_sent(struct tt_control *ctl)
{
	bool broken = tt_control_broken(ctl);
	uint64_t end = tt_deadline_ns(broken ? GOODBYE_BROKEN_MS : GOODBYE_MS),
		 idle = broken ? tt_deadline_ns(GOODBYE_IDLE_MS) : end, began = tt_now_ns(), pause;
	size_t before = 0, left;

	while ((left = unsent(ctl)) && tt_now_ns() < end && tt_now_ns() < idle) {
		if (broken && left != before)
			idle = tt_deadline_ns(GOODBYE_IDLE_MS);
		before = left;
		tt_control_unlock(ctl);
		pause = tt_poll_interval_ns(began, POLL_LEAST_NS);
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause }, NULL);
		tt_control_lock(ctl);
	}
}

/* In a forked child everything except the memory belongs to the parent. */
void tt_control_leave(struct tt_control *ctl)
{
	if (!ctl || ctl->ep->pid != getpid())
		return;
	if (ctl->ep->served.entered) {
		tt_control_lock(ctl);
		tt_flood_leave(ctl);
		if (tt_endpoint_leaves(ctl->ep)) { /* else the endpoint sends on */
			tt_endpoint_end(ctl->ep);
			await_sent(ctl);
		}
		tt_control_unlock(ctl);
	}
	tt_control_free(ctl);
}
