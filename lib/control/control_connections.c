/*
 * control_connections.c - the connections of an endpoint: by peer, and in order
 *
 * Called by every file of control that sends, and by the service thread. Rank 0 has a connection to each
 * rank while the ranks join and shrink, so a hash table leads to the connections of a peer, and counts
 * say whether a walk through all of them would find a pipe, or a dead one.
 */
#include <stdlib.h>

#include "control/control_internal.h"

/* ---- the list and the table ------------------------------------------------------------------- */

static struct tt_conn **bucket_of(struct tt_conn_index *index, int peer)
{
	struct tt_conn **buckets = index->more ? index->more : index->few;
	size_t n = index->more ? index->nmore : TT_CONN_BUCKETS;

	return &buckets[(size_t)peer % n];
}

static void enter_bucket(struct tt_conn_index *index, struct tt_conn *conn)
{
	struct tt_conn **at = bucket_of(index, conn->peer);

	while (*at)
		at = &(*at)->next_of_bucket;
	*at = conn;
	conn->next_of_bucket = NULL;
}

/* Without memory the buckets stay as few, and searches take longer. */
static void add_buckets(struct tt_control_endpoint *ep)
{
	struct tt_conn_index *index = &ep->index;
	size_t n = 4 * index->n;
	struct tt_conn **more = calloc(n, sizeof(struct tt_conn *));

	if (!more)
		return;
	free(index->more);
	index->more = more;
	index->nmore = n;
	for (struct tt_conn *c = ep->conns; c; c = c->next)
		enter_bucket(index, c);
}

static void append(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	conn->next = NULL;
	conn->before = ep->index.last;
	*(conn->before ? &conn->before->next : &ep->conns) = conn;
	ep->index.last = conn;
	enter_bucket(&ep->index, conn);
}

static void take_out(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	struct tt_conn **at = bucket_of(&ep->index, conn->peer);

	while (*at != conn)
		at = &(*at)->next_of_bucket;
	*at = conn->next_of_bucket;
	*(conn->before ? &conn->before->next : &ep->conns) = conn->next;
	*(conn->next ? &conn->next->before : &ep->index.last) = conn->before;
}

void tt_conns_put(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	struct tt_conn_index *index = &ep->index;

	append(ep, conn);
	index->npipes += conn->duplex.pipe != NULL;
	if (++index->n > (index->more ? index->nmore : TT_CONN_BUCKETS))
		add_buckets(ep);
}

/* ---- one connection -------------------------------------------------------------------------- */

/* Both ranks of a pair may connect at once. A rank sends all frames to a peer on the connection that it
 * could use first, so that they stay in order. */
static struct tt_conn *find(struct tt_control_endpoint *ep, int peer, bool over)
{
	struct tt_conn *c = *bucket_of(&ep->index, peer);

	while (c && (c->dead || c->registration || c->unconfirmed || (c->over && !over) ||
		     c->peer != peer))
		c = c->next_of_bucket;
	return c;
}

struct tt_conn *tt_conn_to(struct tt_control_endpoint *ep, int peer)
{
	return find(ep, peer, false);
}

struct tt_conn *tt_conn_from(struct tt_control_endpoint *ep, int peer)
{
	return find(ep, peer, true);
}

bool tt_conn_is_open(struct tt_control_endpoint *ep, int peer)
{
	const struct tt_conn *c = *bucket_of(&ep->index, peer);

	while (c && (c->dead || c->registration || c->over || c->peer != peer))
		c = c->next_of_bucket;
	return c != NULL;
}

struct tt_conn *tt_conn_registered(struct tt_control_endpoint *ep, int peer)
{
	struct tt_conn *c = *bucket_of(&ep->index, peer);

	while (c && (c->dead || !c->registered || c->peer != peer))
		c = c->next_of_bucket;
	return c;
}

int tt_conns_of(struct tt_control_endpoint *ep, int peer)
{
	int n = 0;

	for (const struct tt_conn *c = *bucket_of(&ep->index, peer); c; c = c->next_of_bucket)
		n += !c->dead && !c->registration && c->peer == peer;
	return n;
}

int tt_conns_registering(const struct tt_control_endpoint *ep)
{
	int n = 0;

	for (const struct tt_conn *c = ep->conns; c; c = c->next)
		n += !c->dead && c->registration && !c->registered;
	return n;
}

void tt_conn_confirm(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	take_out(ep, conn);
	append(ep, conn);
	conn->unconfirmed = false;
	pthread_cond_broadcast(&ep->changed);
}

void tt_conn_close(struct tt_control_endpoint *ep, struct tt_conn *conn)
{
	conn->dead = true;
	ep->index.ndead++;
	ep->index.npipes -= conn->duplex.pipe != NULL;
	tt_duplex_unwatch(&conn->duplex);
	tt_duplex_close(&conn->duplex);
}

/* ---- all connections ------------------------------------------------------------------------- */

static unsigned pipe_events(const struct tt_conn *conn)
{
	return conn->duplex.pipe ? tt_pipe_events(conn->duplex.pipe) : 0;
}

bool tt_conn_pipes_ready(const struct tt_control_endpoint *ep)
{
	const struct tt_conn *c = ep->index.npipes ? ep->conns : NULL;

	while (c && !pipe_events(c))
		c = c->next;
	return c != NULL;
}

void tt_conn_pipes_serve(struct tt_control_endpoint *ep)
{
	for (struct tt_conn *c = ep->index.npipes ? ep->conns : NULL; c; c = c->next)
		if (pipe_events(c))
			tt_conn_event(ep, c, pipe_events(c));
}

void tt_conn_close_all(struct tt_control_endpoint *ep)
{
	for (struct tt_conn *c = ep->conns; c; c = c->next)
		if (!c->dead)
			tt_conn_close(ep, c);
}

void tt_conn_reap(struct tt_control_endpoint *ep)
{
	struct tt_conn *next;

	for (struct tt_conn *c = ep->index.ndead ? ep->conns : NULL; c; c = next) {
		next = c->next;
		if (!c->dead)
			continue;
		take_out(ep, c);
		tt_conn_free(c);
		ep->index.n--;
	}
	ep->index.ndead = 0;
}
