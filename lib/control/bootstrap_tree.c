/*
 * bootstrap_tree.c - the connections of the tree and the ring, on each rank
 *
 * Called by bootstrap and split (connect), and by the service thread (frames of joining). The
 * parent of rank r is rank (r - 1) / 8. Ranks connected in the tree are reported upwards; when all
 * are, rank 0 sends the table of business cards down, and then the lower of two ring neighbors
 * dials the higher.
 */
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

/* ---- the tree -------------------------------------------------------------------------------- */

static void report(struct tt_control *ctl, int only)
{
	struct tt_writer w = { 0 };

	for (int r = 0; r < ctl->nranks; r++)
		if (ctl->join.attached[r] && (only < 0 || r == only))
			tt_put(&w, (uint32_t)r, 4);
	if (w.have)
		tt_conn_send_all(ctl, TT_ROLE_PARENT, NULL, TT_F_ATTACHED, w.data, w.have);
	free(w.data);
}

void tt_join_attached(struct tt_control *ctl, int rank)
{
	if (ctl->join.attached[rank])
		return;
	ctl->join.attached[rank] = true;
	if (ctl->join.root)
		tt_bootstrap_attached(ctl, rank);
	else if (!ctl->join.has_table)
		report(ctl, rank);
}

int tt_join_tree(struct tt_control *ctl, const struct tt_business_card *parent,
		 uint64_t deadline_ns)
{
	struct tt_dial dial = { .to = parent, .purpose = TT_P_TREE, .deadline_ns = deadline_ns };
	int fd, rc = tt_control_connect(ctl, &dial, &fd);

	if (rc)
		return rc;
	pthread_mutex_lock(&ctl->lock);
	if (!tt_conn_add(ctl, fd, parent->rank, TT_ROLE_PARENT))
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for a connection", ctl->rank);
	else if (!ctl->join.has_table)
		report(ctl, -1);
	pthread_mutex_unlock(&ctl->lock);
	return rc;
}

/* ---- the ring -------------------------------------------------------------------------------- */

/* Is peer a neighbor in the ring, and not in the tree? */
static bool needs_ring(const struct tt_control *ctl, int peer)
{
	return tt_ring_edge(ctl->rank, peer, ctl->nranks) && !tt_tree_edge(ctl->rank, peer);
}

static int dial_neighbor(struct tt_control *ctl, int peer, uint64_t deadline_ns)
{
	struct tt_dial dial = { .to = &ctl->peers.business_cards[peer],
				.purpose = TT_P_RING,
				.deadline_ns = deadline_ns };
	int fd, rc = tt_control_connect(ctl, &dial, &fd);

	if (rc)
		return rc;
	pthread_mutex_lock(&ctl->lock);
	if (!tt_conn_add(ctl, fd, peer, TT_ROLE_RING))
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for a connection", ctl->rank);
	pthread_mutex_unlock(&ctl->lock);
	return rc;
}

static int await_neighbor(struct tt_control *ctl, int peer, uint64_t deadline_ns)
{
	int rc = 0;

	pthread_mutex_lock(&ctl->lock);
	while (!rc && !ctl->broken && !tt_conn_to(ctl, peer, TT_ROLE_RING))
		if (!tt_control_await(ctl, deadline_ns))
			rc = tt_fail(
				TT_TIMEOUT,
				"rank %d: rank %d, its neighbor in the ring, did not connect in time",
				ctl->rank, peer);
	if (ctl->broken)
		rc = tt_control_fail(ctl);
	pthread_mutex_unlock(&ctl->lock);
	return rc;
}

int tt_join_ring(struct tt_control *ctl, uint64_t deadline_ns)
{
	int n = ctl->nranks, next = (ctl->rank + 1) % n, before = (ctl->rank + n - 1) % n, rc = 0;

	for (int side = 0; side < 2 && !rc; side++) {
		int peer = side ? before : next;

		if (needs_ring(ctl, peer) && peer > ctl->rank)
			rc = dial_neighbor(ctl, peer, deadline_ns);
	}
	for (int side = 0; side < 2 && !rc; side++) {
		int peer = side ? before : next;

		if (needs_ring(ctl, peer) && peer < ctl->rank)
			rc = await_neighbor(ctl, peer, deadline_ns);
	}
	/* No rank may leave, and close its listener, before every rank is connected. */
	if (!rc)
		rc = tt_control_allgather(ctl, NULL, 0, NULL, deadline_ns);
	pthread_mutex_lock(&ctl->lock);
	ctl->join.complete = true;
	pthread_mutex_unlock(&ctl->lock);
	return rc;
}

/* ---- frames of joining ----------------------------------------------------------------------- */

static bool got_parent(struct tt_control *ctl, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	struct tt_business_card record;

	tt_get_business_card(&r, &record);
	if (!tt_get_end(&r) || record.rank != tt_tree_parent(ctl->rank) || !record.port ||
	    ctl->join.has_parent)
		return false;
	ctl->join.parent = record;
	ctl->join.has_parent = true;
	pthread_cond_broadcast(&ctl->changed);
	return true;
}

static bool got_attached(struct tt_control *ctl, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };

	while (r.left && !r.failed) {
		int rank = (int)tt_get_upto(&r, 4, (uint64_t)ctl->nranks - 1);

		if (!r.failed && rank > ctl->rank)
			tt_join_attached(ctl, rank);
	}
	return !r.failed;
}

static bool got_missing(struct tt_control *ctl, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	char text[sizeof(ctl->join.missing)];

	tt_get_text(&r, text, sizeof(text));
	if (!tt_get_end(&r))
		return false;
	memcpy(ctl->join.missing, text, sizeof(text));
	tt_conn_send_all(ctl, TT_ROLE_CHILD, NULL, TT_F_MISSING, data, bytes);
	tt_log(TT_LOG_INFO, "rank %d: still joining: %s", ctl->rank, text);
	return true;
}

static bool got_table(struct tt_control *ctl, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	struct tt_business_card record;

	if (ctl->join.has_table)
		return false;
	for (int rank = 0; rank < ctl->nranks; rank++) {
		tt_get_business_card(&r, &record);
		if (r.failed || record.rank != rank || !record.port)
			return false;
		ctl->peers.business_cards[rank] = record;
	}
	if (!tt_get_end(&r))
		return false;
	tt_conn_send_all(ctl, TT_ROLE_CHILD, NULL, TT_F_TABLE, data, bytes);
	ctl->join.has_table = true;
	pthread_cond_broadcast(&ctl->changed);
	return true;
}

bool tt_join_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		   const uint8_t *data, size_t bytes)
{
	bool from_above = ctl->rank && (conn->roles & (TT_ROLE_PARENT | TT_ROLE_REGISTER));

	switch (kind) {
	case TT_F_REGISTER:
		return ctl->join.root && (conn->roles & TT_ROLE_REGISTER) &&
		       tt_bootstrap_register(ctl, conn, data, bytes);
	case TT_F_DECLINE:
		return ctl->join.root && (conn->roles & TT_ROLE_REGISTER) &&
		       tt_bootstrap_declined(ctl, conn, data, bytes);
	case TT_F_PARENT:
		return from_above && got_parent(ctl, data, bytes);
	case TT_F_RELEASE:
		if (from_above)
			tt_conn_end(ctl, conn);
		return from_above;
	case TT_F_ATTACHED:
		return (conn->roles & TT_ROLE_CHILD) && got_attached(ctl, data, bytes);
	case TT_F_MISSING:
		return from_above && got_missing(ctl, data, bytes);
	case TT_F_TABLE:
		return from_above && got_table(ctl, data, bytes);
	default:
		return false;
	}
}
