/*
 * control_split.c - a control for some ranks of an existing one
 *
 * Called by comm. The ranks know and trust each other already: they exchange colours and the ports
 * of new listeners over the parent's tree, and connect by a key made from the parent's. Nobody
 * keeps a desk. A rank that cannot connect floods the reason over the parent, since the others wait
 * for it where it cannot reach them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define EVERYBODY (TT_ROLE_PARENT | TT_ROLE_CHILD | TT_ROLE_RING)

struct offer {
	int32_t color, key, port;
	int32_t failed;                  /* this rank cannot split */
};

/* members[] in the new order; returns how many, and this rank's place. */
static int choose_members(const struct offer *offers, int nranks, int me, int *members,
			  int *ret_rank)
{
	int n = 0;

	for (int r = 0; r < nranks; r++) {
		int at = n;

		if (offers[r].color != offers[me].color)
			continue;
		for (; at > 0 && offers[members[at - 1]].key > offers[r].key; at--)
			members[at] = members[at - 1];
		members[at] = r;
		n++;
	}
	for (int i = 0; i < n; i++)
		if (members[i] == me)
			*ret_rank = i;
	return n;
}

/* The new control was made before its rank and size were known, with room for all. ports: by rank
 * in the parent. */
static void settle(struct tt_control *ctl, const struct tt_control *parent,
		   const struct tt_members *m)
{
	char label[32];

	ctl->rank = m->rank;
	ctl->nranks = m->n;
	tt_key_make(parent->key.bytes, TT_KEY, m->label, m->mark, ctl->key.bytes, TT_KEY);
	snprintf(label, sizeof(label), "%s nonce", m->label);
	tt_key_make(parent->key.bytes, TT_KEY, label, m->mark, ctl->job, TT_NONCE);
	for (int i = 0; i < m->n; i++) {
		ctl->cards[i] = parent->cards[m->member[i]];
		ctl->cards[i].rank = i;
		ctl->cards[i].port = m->port[i];
	}
	ctl->has_table = ctl->all_listen = true;
	tt_control_number_hosts(ctl);
}

static int connect_all(struct tt_control *ctl, uint64_t deadline_ns)
{
	int rc = tt_control_start(ctl);

	if (!rc && ctl->rank)
		rc = tt_join_tree(ctl, &ctl->cards[tt_tree_parent(ctl->rank)], deadline_ns);
	return rc || ctl->nranks == 1 ? rc : tt_join_ring(ctl, deadline_ns);
}

/* ---- failing --------------------------------------------------------------------------------- */

/* The first failure of split `number` wins; locked. */
static void fail_split(struct tt_control *parent, uint64_t number, int code, const char *text,
		       const struct tt_conn *from)
{
	struct tt_writer w = { 0 };

	if (number <= parent->split_failed)
		return;
	parent->split_failed = number;
	parent->split_code = tt_flood_code(code);
	snprintf(parent->split_text, sizeof(parent->split_text), "%s", text);
	tt_put(&w, number, 8);
	tt_put(&w, (uint8_t)-code, 1);
	tt_put_text(&w, parent->split_text);
	tt_conn_send_all(parent, EVERYBODY, from, TT_F_SPLIT_FAILED, w.data, w.have);
	free(w.data);
	if (parent->child)
		tt_control_raise(parent->child, parent->split_code, -1, text);
}

bool tt_split_failed(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		     size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t number = tt_get(&r, 8);
	int code = -(int)tt_get_upto(&r, 1, tuttiNumResults);
	char text[sizeof(ctl->split_text)];

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
	parent->child = NULL;
	fail_split(parent, parent->splits, code, text, NULL);
	pthread_mutex_unlock(&parent->lock);
	tt_control_leave(ctl);
	return tt_fail(code, "%s", text);
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* From here on a failure elsewhere breaks the child; it may have come before. */
static void set_child(struct tt_control *parent, struct tt_control *child)
{
	pthread_mutex_lock(&parent->lock);
	parent->child = child;
	if (child && parent->split_failed == parent->splits)
		tt_control_raise(child, parent->split_code, -1, parent->split_text);
	pthread_mutex_unlock(&parent->lock);
}

static bool any_failed(const struct offer *offers, int nranks)
{
	for (int r = 0; r < nranks; r++)
		if (offers[r].failed)
			return true;
	return false;
}

static int connect_members(struct tt_control *parent, struct tt_control *ctl,
			   const struct offer *offers, int *members, uint64_t deadline_ns)
{
	struct tt_members m = { .member = members,
				.port = members + parent->nranks,
				.label = "split" };
	int rc;

	m.n = choose_members(offers, parent->nranks, parent->rank, members, &m.rank);
	m.mark = parent->splits << 32 | (uint32_t)offers[parent->rank].color;
	for (int i = 0; i < m.n; i++)
		m.port[i] = offers[members[i]].port;
	settle(ctl, parent, &m);
	set_child(parent, ctl);
	rc = connect_all(ctl, deadline_ns);
	if (rc)
		return give_up(parent, ctl, rc);
	set_child(parent, NULL);
	return 0;
}

/* Takes ctl, which is NULL without a color, or when code says why there is none. */
static int split(struct tt_control *parent, struct tt_control *ctl, struct offer *mine, int code,
		 uint32_t timeout_ms, struct tt_control **ret_ctl)
{
	uint64_t deadline_ns = tt_deadline_ns(timeout_ms);
	struct offer *offers = calloc((size_t)parent->nranks, sizeof(*offers));
	/* and their ports */
	int *members = calloc(2 * (size_t)parent->nranks, sizeof(*members));
	int rc = TT_SYSTEM;

	if (offers && members)
		rc = tt_control_allgather(parent, mine, sizeof(*mine), offers, deadline_ns);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory for a split of %d ranks", parent->rank,
			parent->nranks);
	if (!rc && any_failed(offers, parent->nranks))
		rc = code ? code
			  : tt_fail(TT_REMOTE, "rank %d: another rank cannot split", parent->rank);
	if (!rc && ctl)
		rc = connect_members(parent, ctl, offers, members, deadline_ns);
	else if (ctl)
		tt_control_free(ctl);
	if (!rc)
		*ret_ctl = ctl;
	free(members);
	free(offers);
	return rc;
}

int tt_control_split(struct tt_control *parent, int color, int key, int code, uint32_t timeout_ms,
		     struct tt_control **ret_ctl, int *ret_rank, int *ret_nranks)
{
	struct offer mine = { .color = color < 0 ? -1 : color, .key = key };
	struct tt_control *ctl = NULL;
	char why[1024];
	int rc;

	parent->splits++;
	if (!code && color >= 0)
		code = tt_control_make(parent->rank, parent->nranks, &parent->ports, &ctl);
	if (ctl)
		ctl->ports = parent->ports;
	snprintf(why, sizeof(why), "%s", tt_error_text());
	mine.port = ctl ? ctl->port : 0;
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

int tt_control_offer(struct tt_control *parent, struct tt_control **ret_ctl, int *ret_port)
{
	int rc = tt_control_make(parent->rank, parent->nranks, &parent->ports, ret_ctl);

	if (rc)
		return rc;
	(*ret_ctl)->ports = parent->ports;
	*ret_port = parent->nranks > 1 ? (*ret_ctl)->port : 1;
	return 0;
}

/* A death that the parent hears of meanwhile breaks the child (control_flood.c). */
int tt_control_form(struct tt_control *parent, struct tt_control *ctl,
		    const struct tt_members *members, uint64_t deadline_ns)
{
	int rc, gone = -1;

	settle(ctl, parent, members);
	pthread_mutex_lock(&parent->lock);
	parent->child = ctl;
	parent->child_members = members;
	for (int i = 0; i < members->n; i++)
		if (parent->dead[members->member[i]] || parent->left[members->member[i]])
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
	parent->child = NULL;
	parent->child_members = NULL;
	pthread_mutex_unlock(&parent->lock);
}

/* Those who are not in it learn that the others went on without them,
 * also when they wake up later. */
static void note_shrunk(struct tt_control *ctl, uint64_t epoch, bool excluded,
			const struct tt_conn *from, const uint8_t *data, size_t bytes)
{
	if (epoch <= ctl->shrunk_epoch)
		return;
	ctl->shrunk_epoch = epoch;
	if (excluded)
		ctl->excluded_epoch = epoch;
	tt_conn_send_all(ctl, EVERYBODY, from, TT_F_SHRUNK, data, bytes);
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

void tt_control_tell_shrunk(struct tt_control *ctl, uint64_t epoch,
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
	epoch = ctl->excluded_epoch;
	*ret_shrunk = ctl->shrunk_epoch;
	pthread_mutex_unlock(&ctl->lock);
	return epoch;
}
