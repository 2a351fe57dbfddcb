/*
 * control_split.c - a control for some ranks of an existing one: split and shrink
 *
 * Called by comm. The ranks are authenticated already: they exchange colors and the ports of new
 * listeners over the parent's tree, and connect with a key derived from the parent's. A split needs
 * no bootstrap root. A rank that cannot connect floods the reason over the parent, since the other
 * ranks wait for that rank on the new control, where it cannot reach them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define ALL_NEIGHBORS (TT_ROLE_PARENT | TT_ROLE_CHILD | TT_ROLE_RING)

struct split_record {
	int32_t color, key, port;
	int32_t failed; /* this rank cannot split */
};

/* Fill members[] in the new order; returns their number, and this rank's number among them. */
static int choose_members(const struct split_record *records, int nranks, int me, int *members,
			  int *ret_rank)
{
	int n = 0;

	for (int r = 0; r < nranks; r++) {
		int at = n;

		if (records[r].color != records[me].color)
			continue;
		for (; at > 0 && records[members[at - 1]].key > records[r].key; at--)
			members[at] = members[at - 1];
		members[at] = r;
		n++;
	}
	for (int i = 0; i < n; i++)
		if (members[i] == me)
			*ret_rank = i;
	return n;
}

/* Set the rank, size, keys and business cards of a control that was made with room for all ranks
 * of the parent. */
static void adopt_members(struct tt_control *ctl, const struct tt_control *parent,
			  const struct tt_members *m)
{
	char label[32];

	ctl->rank = m->rank;
	ctl->nranks = m->n;
	tt_key_make(parent->auth.key->bytes, TT_KEY, m->label, m->mark, ctl->auth.key->bytes,
		    TT_KEY);
	snprintf(label, sizeof(label), "%s nonce", m->label);
	tt_key_make(parent->auth.key->bytes, TT_KEY, label, m->mark, ctl->auth.job, TT_NONCE);
	for (int i = 0; i < m->n; i++) {
		ctl->peers.business_cards[i] = parent->peers.business_cards[m->member[i]];
		ctl->peers.business_cards[i].rank = i;
		ctl->peers.business_cards[i].port = m->port[i];
	}
	ctl->join.has_table = ctl->join.all_listen = true;
	tt_control_number_hosts(ctl);
}

static int connect_all(struct tt_control *ctl, uint64_t deadline_ns)
{
	int rc = tt_control_start(ctl);

	if (!rc && ctl->rank)
		rc = tt_join_tree(ctl, &ctl->peers.business_cards[tt_tree_parent(ctl->rank)],
				  deadline_ns);
	return rc || ctl->nranks == 1 ? rc : tt_join_ring(ctl, deadline_ns);
}

/* ---- failing --------------------------------------------------------------------------------- */

/* The first failure of split `number` wins; locked. */
static void fail_split(struct tt_control *parent, uint64_t number, int code, const char *text,
		       const struct tt_conn *from)
{
	struct tt_writer w = { 0 };

	if (number <= parent->split.failed)
		return;
	parent->split.failed = number;
	parent->split.code = tt_flood_code(code);
	snprintf(parent->split.text, sizeof(parent->split.text), "%s", text);
	tt_put(&w, number, 8);
	tt_put(&w, (uint8_t)-code, 1);
	tt_put_text(&w, parent->split.text);
	tt_conn_send_all(parent, ALL_NEIGHBORS, from, TT_F_SPLIT_FAILED, w.data, w.have);
	free(w.data);
	if (parent->split.child)
		tt_control_raise(parent->split.child, parent->split.code, -1, text);
}

bool tt_split_failed(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t number = tt_get(&r, 8);
	int code = -(int)tt_get_upto(&r, 1, tuttiNumResults);
	char text[sizeof(ctl->split.text)];

	tt_get_text(&r, text, sizeof(text));
	if (!tt_get_end(&r) || !code)
		return false;
	fail_split(ctl, number, code, text, conn);
	return true;
}

static int give_up(struct tt_control *parent, struct tt_control *ctl, int code)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s", tt_error_text());
	tt_control_raise(ctl, code, ctl->rank, text);
	pthread_mutex_lock(&parent->lock);
	parent->split.child = NULL;
	fail_split(parent, parent->split.begun, code, text, NULL);
	pthread_mutex_unlock(&parent->lock);
	tt_control_leave(ctl);
	return tt_fail(code, "%s", text);
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* From here on a failure of another rank breaks the child; an earlier failure breaks it now. */
static void set_child(struct tt_control *parent, struct tt_control *child)
{
	pthread_mutex_lock(&parent->lock);
	parent->split.child = child;
	if (child && parent->split.failed == parent->split.begun)
		tt_control_raise(child, parent->split.code, -1, parent->split.text);
	pthread_mutex_unlock(&parent->lock);
}

static bool any_failed(const struct split_record *records, int nranks)
{
	for (int r = 0; r < nranks; r++)
		if (records[r].failed)
			return true;
	return false;
}

static int connect_members(struct tt_control *parent, struct tt_control *ctl,
			   const struct split_record *records, int *members, uint64_t deadline_ns)
{
	struct tt_members m = { .member = members,
				.port = members + parent->nranks,
				.label = "split" };
	int rc;

	m.n = choose_members(records, parent->nranks, parent->rank, members, &m.rank);
	m.mark = parent->split.begun << 32 | (uint32_t)records[parent->rank].color;
	for (int i = 0; i < m.n; i++)
		m.port[i] = records[members[i]].port;
	adopt_members(ctl, parent, &m);
	set_child(parent, ctl);
	rc = connect_all(ctl, deadline_ns);
	if (rc)
		return give_up(parent, ctl, rc);
	set_child(parent, NULL);
	return 0;
}

/* Takes ctl, which is NULL without a color or after the failure `code`. */
static int split(struct tt_control *parent, struct tt_control *ctl, struct split_record *mine,
		 int code, uint32_t timeout_ms, struct tt_control **ret_ctl)
{
	uint64_t deadline_ns = tt_deadline_ns(timeout_ms);
	struct split_record *records = calloc((size_t)parent->nranks, sizeof(*records));
	/* members, then their ports */
	int *members = calloc(2 * (size_t)parent->nranks, sizeof(*members));
	int rc = TT_SYSTEM;

	if (records && members)
		rc = tt_control_allgather(parent, mine, sizeof(*mine), records, deadline_ns);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory for a split of %d ranks", parent->rank,
			parent->nranks);
	if (!rc && any_failed(records, parent->nranks))
		rc = code ? code
			  : tt_fail(TT_REMOTE, "rank %d: another rank cannot split", parent->rank);
	if (!rc && ctl)
		rc = connect_members(parent, ctl, records, members, deadline_ns);
	else if (ctl)
		tt_control_free(ctl);
	if (!rc)
		*ret_ctl = ctl;
	free(members);
	free(records);
	return rc;
}

int tt_control_split(struct tt_control *parent, int color, int key, int code, uint32_t timeout_ms,
		     struct tt_control **ret_ctl, int *ret_rank, int *ret_nranks)
{
	struct split_record mine = { .color = color < 0 ? -1 : color, .key = key };
	struct tt_control *ctl = NULL;
	char why[1024];
	int rc;

	parent->split.begun++;
	if (!code && color >= 0)
		code = tt_control_make(parent->rank, parent->nranks, &parent->listener.ports, &ctl);
	if (ctl)
		ctl->listener.ports = parent->listener.ports;
	snprintf(why, sizeof(why), "%s", tt_error_text());
	mine.port = ctl ? ctl->listener.port : 0;
	mine.failed = code;
	*ret_ctl = NULL;
	rc = split(parent, ctl, &mine, code, timeout_ms, ret_ctl);
	if (!rc && *ret_ctl) {
		*ret_rank = (*ret_ctl)->rank;
		*ret_nranks = (*ret_ctl)->nranks;
	}
	return rc && code ? tt_fail(code, "%s", why) : rc;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

int tt_control_prepare(struct tt_control *parent, struct tt_control **ret_ctl, int *ret_port)
{
	int rc = tt_control_make(parent->rank, parent->nranks, &parent->listener.ports, ret_ctl);

	if (rc)
		return rc;
	(*ret_ctl)->listener.ports = parent->listener.ports;
	*ret_port = parent->nranks > 1 ? (*ret_ctl)->listener.port : 1;
	return 0;
}

/* A death that the parent learns of meanwhile breaks the child (control_flood.c). */
int tt_control_form(struct tt_control *parent, struct tt_control *ctl,
		    const struct tt_members *members, uint64_t deadline_ns)
{
	int rc, gone = -1;

	adopt_members(ctl, parent, members);
	pthread_mutex_lock(&parent->lock);
	parent->split.child = ctl;
	parent->split.child_members = members;
	for (int i = 0; i < members->n; i++)
		if (parent->departed.dead[members->member[i]] ||
		    parent->departed.left[members->member[i]])
			gone = members->member[i];
	pthread_mutex_unlock(&parent->lock);
	rc = gone >= 0 ? tt_fail(TT_REMOTE, "rank %d: rank %d is gone", parent->rank, gone)
		       : connect_all(ctl, deadline_ns);
	if (rc)
		tt_control_raise(ctl, rc, ctl->rank, tt_error_text());
	return rc;
}

void tt_control_formed(struct tt_control *parent)
{
	pthread_mutex_lock(&parent->lock);
	parent->split.child = NULL;
	parent->split.child_members = NULL;
	pthread_mutex_unlock(&parent->lock);
}

/* Ranks that are not members learn of the shrink, also a stopped rank that continues later. */
static void note_shrunk(struct tt_control *ctl, uint64_t epoch, bool excluded,
			const struct tt_conn *from, const uint8_t *data, size_t bytes)
{
	if (epoch <= ctl->split.shrunk_epoch)
		return;
	ctl->split.shrunk_epoch = epoch;
	if (excluded)
		ctl->split.excluded_epoch = epoch;
	tt_conn_send_all(ctl, ALL_NEIGHBORS, from, TT_F_SHRUNK, data, bytes);
}

bool tt_split_shrunk(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t epoch = tt_get(&r, 8);
	const uint8_t *in = tt_get_bytes(&r, (size_t)ctl->nranks);

	if (!tt_get_end(&r))
		return false;
	note_shrunk(ctl, epoch, !in[ctl->rank], conn, data, bytes);
	return true;
}

void tt_control_announce_shrunk(struct tt_control *ctl, uint64_t epoch,
				const struct tt_members *members)
{
	struct tt_writer w = { 0 };

	tt_put(&w, epoch, 8);
	for (int r = 0; r < ctl->nranks; r++)
		tt_put(&w, 0, 1);
	for (int i = 0; i < members->n && !w.failed; i++)
		w.data[8 + members->member[i]] = 1;
	pthread_mutex_lock(&ctl->lock);
	if (!w.failed)
		note_shrunk(ctl, epoch, false, NULL, w.data, w.have);
	pthread_mutex_unlock(&ctl->lock);
	free(w.data);
}

uint64_t tt_control_excluded(struct tt_control *ctl, uint64_t *ret_shrunk)
{
	uint64_t epoch;

	pthread_mutex_lock(&ctl->lock);
	epoch = ctl->split.excluded_epoch;
	*ret_shrunk = ctl->split.shrunk_epoch;
	pthread_mutex_unlock(&ctl->lock);
	return epoch;
}
