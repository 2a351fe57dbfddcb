/*
 * control_split.c - a control for some ranks of an existing one
 *
 * Called by comm. The ranks know and trust each other already: they exchange colours and the ports of new listeners
 * over the parent's tree, and connect by a key made from the parent's. Nobody keeps a desk.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control_inside.h"

struct offer {
	int32_t color, key, port;
	int32_t failed;                  /* this rank could not make its listener */
};

/* members[] in the new order; returns how many, and this rank's place. */
static int choose_members(const struct offer *offers, int nranks, int me, int *members, int *ret_rank)
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

/* The new control was made before its rank and size were known, with room for all. */
static void settle(struct tt_control *ctl, const struct tt_control *parent, const struct offer *offers,
		   const int *members, int n, int rank, uint64_t number)
{
	uint64_t mark = number << 32 | (uint32_t)offers[parent->rank].color;

	ctl->rank = rank;
	ctl->nranks = n;
	tt_key_make(parent->key.bytes, TT_KEY, "split", mark, ctl->key.bytes, TT_KEY);
	tt_key_make(parent->key.bytes, TT_KEY, "split nonce", mark, ctl->job, TT_NONCE);
	for (int i = 0; i < n; i++) {
		ctl->cards[i] = parent->cards[members[i]];
		ctl->cards[i].rank = i;
		ctl->cards[i].port = offers[members[i]].port;
	}
	ctl->has_table = true;
	tt_control_number_hosts(ctl);
}

static int connect_all(struct tt_control *ctl, uint64_t deadline_ns)
{
	int rc = tt_control_start(ctl);

	if (!rc && ctl->rank)
		rc = tt_join_tree(ctl, &ctl->cards[tt_tree_parent(ctl->rank)], deadline_ns);
	return rc || ctl->nranks == 1 ? rc : tt_join_ring(ctl, deadline_ns);
}

static int give_up(struct tt_control *ctl, int code)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s", tt_error_text());
	tt_control_raise(ctl, code, ctl->rank, text);
	tt_control_leave(ctl);
	return tt_fail(code, "%s", text);
}

static int first_failed(const struct offer *offers, int nranks)
{
	for (int r = 0; r < nranks; r++)
		if (offers[r].failed)
			return r;
	return -1;
}

static int split(struct tt_control *parent, struct tt_control *ctl, const struct offer *mine, struct offer *offers,
		 int *members, uint32_t timeout_ms, struct tt_control **ret_ctl)
{
	uint64_t deadline_ns = tt_deadline_ns(timeout_ms);
	int rc = tt_control_allgather(parent, mine, sizeof(*mine), offers, deadline_ns), bad, rank = 0, n;

	*ret_ctl = NULL;
	bad = rc ? -1 : first_failed(offers, parent->nranks);
	if (bad >= 0 && bad != parent->rank)
		rc = tt_fail(TT_REMOTE, "rank %d: the split failed: rank %d could not open a socket to listen",
			     parent->rank, bad);
	if (rc || bad >= 0 || mine->color < 0) {
		if (ctl)
			tt_control_free(ctl);
		return rc;
	}
	n = choose_members(offers, parent->nranks, parent->rank, members, &rank);
	settle(ctl, parent, offers, members, n, rank, parent->splits);
	rc = connect_all(ctl, deadline_ns);
	if (rc)
		return give_up(ctl, rc);
	*ret_ctl = ctl;
	return 0;
}

int tt_control_split(struct tt_control *parent, int color, int key, uint32_t timeout_ms, struct tt_control **ret_ctl,
		     int *ret_rank, int *ret_nranks)
{
	struct offer mine = { .color = color < 0 ? -1 : color, .key = key };
	struct offer *offers = calloc((size_t)parent->nranks, sizeof(*offers));
	int *members = calloc((size_t)parent->nranks, sizeof(*members));
	struct tt_control *ctl = NULL;
	int made, rc;
	char why[1024];

	if (!offers || !members) {
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for a split of %d ranks", parent->rank, parent->nranks);
		goto free_lists;
	}
	parent->splits++;
	made = color < 0 ? 0 : tt_control_make(parent->rank, parent->nranks, 0, &ctl);
	snprintf(why, sizeof(why), "%s", made ? tt_error_text() : "");
	mine.port = ctl ? ctl->port : 0;
	mine.failed = made != 0;
	rc = split(parent, ctl, &mine, offers, members, timeout_ms, ret_ctl);
	if (!rc && made)
		rc = tt_fail(made, "%s", why);
	if (!rc && *ret_ctl) {
		*ret_rank = (*ret_ctl)->rank;
		*ret_nranks = (*ret_ctl)->nranks;
	}
free_lists:
	free(members);
	free(offers);
	return rc;
}
