/*
 * bootstrap_tree.c - the connections of the tree and the ring, on each rank
 *
 * Called by bootstrap and split (connect), and by the service thread (frames of joining). The
 * parent of rank r is rank (r - 1) / 8. Ranks connected in the tree are reported upwards; when all
 * are, rank 0 signs the table of business cards and sends it down, and then the higher of two ring
 * neighbors dials the lower.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

/* ---- the tree -------------------------------------------------------------------------------- */

/* Rank `only`, or all that are attached (-1) */
static void report(struct tt_control *ctl, int only)
{
	struct tt_writer w = { 0 };

	for (int r = only < 0 ? 0 : only; r < (only < 0 ? ctl->nranks : only + 1); r++)
		if (!ctl->join.attached[r / 8]) /* of eight ranks none */
			r |= 7;
		else if (tt_set_has(ctl->join.attached, r))
			tt_put(&w, (uint32_t)r, 4);
	if (w.have || w.failed)
		tt_control_post(ctl, TT_TO_PARENT, -1, TT_F_ATTACHED, &w);
}

void tt_join_attached(struct tt_control *ctl, int rank)
{
	if (tt_set_has(ctl->join.attached, rank))
		return;
	tt_set_add(ctl->join.attached, rank);
	if (ctl->join.root)
		tt_bootstrap_attached(ctl, rank);
	else if (!ctl->join.has_table)
		report(ctl, rank);
}

int tt_join_tree(struct tt_control *ctl, const struct tt_business_card *parent,
		 uint64_t deadline_ns)
{
	struct tt_dial dial = { .to = *parent,
				.me = ctl->rank,
				.rank = parent->rank,
				.purpose = TT_P_CONTROL,
				.deadline_ns = deadline_ns };
	struct tt_duplex duplex;
	int rc = tt_control_connect(ctl, &dial, &duplex);

	if (rc)
		return rc;
	tt_control_lock(ctl);
	rc = tt_control_use(ctl, duplex, parent->rank);
	if (!rc && !ctl->join.has_table)
		report(ctl, -1);
	tt_control_unlock(ctl);
	return rc;
}

int tt_join_ring(struct tt_control *ctl, uint64_t deadline_ns)
{
	int n = ctl->nranks, next = (ctl->rank + 1) % n, before = (ctl->rank + n - 1) % n, rc = 0;

	/* the lower peer first: there this rank connects, and does not wait */
	for (int side = 0; side < 2 && !rc; side++) {
		int peer = (side == 0) == (before < next) ? before : next;

		if (peer != ctl->rank)
			rc = tt_control_reach(ctl, peer, ctl->rank, peer, deadline_ns);
	}
	/* No rank may leave, and close its listener, before every rank is connected. */
	if (!rc)
		rc = tt_control_allgather(ctl, NULL, 0, NULL, deadline_ns);
	tt_control_lock(ctl);
	ctl->join.complete = true;
	tt_control_unlock(ctl);
	return rc;
}

/* ---- frames of joining ----------------------------------------------------------------------- */

static bool got_parent(struct tt_control *ctl, const uint8_t *data, size_t bytes)
{
	struct tt_directory *directory = &ctl->ep->peers.directory;
	struct tt_reader r = { .at = data, .left = bytes };
	uint8_t certificate[TT_SIGNATURE];
	struct tt_business_card record, before;
	bool large;

	tt_get_business_card(&r, &record);
	tt_get_copy(&r, certificate, sizeof(certificate));
	large = r.left;
	if (large)
		tt_get_business_card(&r, &before);
	if (!tt_get_end(&r) || record.rank != tt_tree_parent(ctl->rank) || !record.port ||
	    (large && (before.rank != ctl->rank - 1 || !before.port)) || ctl->join.has_parent)
		return false;
	if (large &&
	    (!tt_directory_put(directory, &record) || !tt_directory_put(directory, &before))) {
		tt_control_no_memory(ctl);
		return true;
	}
	ctl->join.parent = record;
	memcpy(ctl->ep->auth.certificate, certificate, sizeof(certificate));
	ctl->join.has_parent = true;
	tt_control_changed(ctl);
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
	tt_control_send(ctl, TT_TO_CHILDREN, -1, TT_F_MISSING, data, bytes);
	tt_log(TT_LOG_INFO, "rank %d: still joining: %s", ctl->rank, text);
	return true;
}

/* Is the table, or the statement of hosts, which other ranks have passed on, rank 0's? */
static bool is_signed(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	int holds = tt_table_check(ctl->ep, data, bytes);
	char text[128];

	if (holds < 0)
		tt_control_no_memory(ctl);
	if (!holds) {
		snprintf(text, sizeof(text),
			 "rank %d sent rank %d a table of ranks that rank 0 has not signed", from,
			 ctl->rank);
		tt_control_break(ctl, TT_REMOTE, from, 0, text, -1);
	}
	return holds > 0;
}

/* The connection is proof enough of what comes from rank 0 itself. A pipe leads to a rank of this process,
 * which has checked the statement with its own key of rank 0. */
static bool is_proven(struct tt_control *ctl, const struct tt_conn *conn, const uint8_t *data,
		      size_t bytes)
{
	return !conn->peer || conn->duplex.pipe || is_signed(ctl, conn->peer, data, bytes);
}

/* Does the table have the key of rank 0 that this rank knows? */
static bool has_root_key(const struct tt_control *ctl, struct tt_reader records)
{
	struct tt_business_card root;

	return tt_directory_first(records, &root) &&
	       tt_public_key_is(ctl->ep->peers.root_key, root.public_key);
}

/* Of a large job: only holders keep the table. */
static bool got_table(struct tt_control *ctl, const struct tt_conn *conn, const uint8_t *data,
		      size_t bytes)
{
	struct tt_directory *d = &ctl->ep->peers.directory;
	struct tt_reader records;
	int rc = 1;

	if (ctl->join.got_table || !tt_table_open(ctl->ep, tt_table_begin, data, bytes, &records))
		return false;
	if (!is_proven(ctl, conn, data, bytes))
		return true;
	if (!has_root_key(ctl, records))
		return false;
	if (!d->holders.first || tt_is_holder(d->holders, ctl->rank))
		rc = tt_directory_read(d, records.at, records.left);
	if (rc < 0)
		tt_control_no_memory(ctl);
	if (rc <= 0)
		return rc < 0;
	if (d->holders.first)
		tt_holders_pass(ctl, data, bytes);
	else
		tt_control_send(ctl, TT_TO_CHILDREN, -1, TT_F_TABLE, data, bytes);
	ctl->join.got_table = ctl->join.has_table = true;
	tt_control_changed(ctl);
	return true;
}

static bool got_hosts(struct tt_control *ctl, const struct tt_conn *conn, const uint8_t *data,
		      size_t bytes)
{
	struct tt_directory *d = &ctl->ep->peers.directory;
	struct tt_reader r;
	int rc;

	if (ctl->join.has_table || d->holders.first ||
	    !tt_table_open(ctl->ep, tt_hosts_begin, data, bytes, &r))
		return false;
	if (!is_proven(ctl, conn, data, bytes))
		return true;
	rc = tt_holders_get(ctl->ep, r);
	if (rc < 0)
		tt_control_no_memory(ctl);
	if (rc <= 0)
		return rc < 0;
	tt_control_send(ctl, TT_TO_CHILDREN, -1, TT_F_HOSTS, data, bytes);
	ctl->join.has_table = !tt_is_holder(d->holders, ctl->rank); /* needs none */
	tt_control_changed(ctl);
	return true;
}

bool tt_join_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		   const uint8_t *data, size_t bytes)
{
	bool from_above = ctl->rank &&
			  (conn->registration || conn->peer == tt_tree_parent(ctl->rank));

	if (ctl->context)
		return false;

	switch (kind) {
	case TT_F_REGISTER:
		return ctl->join.root && conn->registration &&
		       tt_bootstrap_register(ctl, conn, data, bytes);
	case TT_F_DECLINE:
		return ctl->join.root && conn->registration &&
		       tt_bootstrap_declined(ctl, conn, data, bytes);
	case TT_F_PARENT:
		return from_above && got_parent(ctl, data, bytes);
	case TT_F_RELEASE:
		if (from_above)
			tt_conn_end(conn);
		return from_above;
	case TT_F_ATTACHED:
		return tt_tree_child(conn->peer, ctl->rank) && got_attached(ctl, data, bytes);
	case TT_F_MISSING:
		return from_above && got_missing(ctl, data, bytes);
	case TT_F_TABLE:
		return from_above && got_table(ctl, conn, data, bytes);
	case TT_F_HOSTS:
		return from_above && got_hosts(ctl, conn, data, bytes);
	default:
		return false;
	}
}
