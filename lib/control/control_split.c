/*
 * control_split.c - a control for some ranks of an existing one: split and shrink
 *
 * Called by comm. A new control has a context number of its own and uses the connections of the
 * endpoint that its parent uses: a split is one allgather of colors and facts over the parent's tree, and
 * then the connections that the new tree and ring need and the endpoint lacks. A rank that cannot
 * go on floods the reason over the parent. While a split is in progress, whatever breaks the
 * parent breaks the new control, so that a death ends every wait, also of ranks that are not
 * neighbors of the dead one in the new control.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

struct split_record {
	int32_t color, key;
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

/* ---- failing --------------------------------------------------------------------------------- */

/* The first failure of split `number` wins; locked. */
static void fail_split(struct tt_control *parent, uint64_t number, int code, const char *text,
		       int from)
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
	tt_control_post(parent, TT_TO_NEIGHBORS, from, TT_F_SPLIT_FAILED, &w);
	if (parent->split.child)
		tt_control_break(parent->split.child, parent->split.code, -1, 0, text, -1);
}

bool tt_split_failed(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t number = tt_get(&r, 8);
	int code = -(int)tt_get_upto(&r, 1, tuttiNumResults);
	char text[sizeof(ctl->split.text)];

	tt_get_text(&r, text, sizeof(text));
	if (!tt_get_end(&r) || !code)
		return false;
	fail_split(ctl, number, code, text, from);
	return true;
}

void tt_split_broken(struct tt_control *ctl)
{
	struct tt_control *child = ctl->split.child;
	int culprit;

	if (child && !ctl->split.shrink_members)
		tt_control_break(child, ctl->broken, -1, 0, tt_control_text(ctl, &culprit), -1);
}

void tt_split_dead(struct tt_control *ctl, int rank)
{
	struct tt_control *child = ctl->split.child;
	char text[96];

	snprintf(text, sizeof(text), "rank %d of the parent communicator died", rank);
	for (int i = 0; ctl->split.shrink_members && i < child->nranks; i++)
		if (ctl->split.shrink_members[i] == rank)
			tt_control_break(child, TT_REMOTE, -1, 0, text, -1);
}

void tt_split_freed(struct tt_control *ctl, const struct tt_control *child)
{
	if (ctl->split.child != child)
		return;
	ctl->split.child = NULL;
	ctl->split.shrink_members = NULL;
}

/* ---- the new control ------------------------------------------------------------------------- */

/* The number of the new control: the same at all members, different from all others. */
static uint64_t context_of(const struct tt_control *parent, const struct tt_members *m)
{
	uint64_t context = tt_mix(parent->context, m->mark);

	for (const char *p = m->label; *p; p++)
		context = tt_mix(context, (uint64_t)*p);
	return context ? context : 1;
}

/* Make the control of the members and start it; locked. 0 | TT_SYSTEM */
static int make_child(struct tt_control *parent, const struct tt_members *m,
		      struct tt_control **ret_ctl)
{
	int *peer_of = malloc((size_t)m->n * sizeof(*peer_of));
	int rc = TT_SYSTEM;

	for (int i = 0; peer_of && i < m->n; i++)
		peer_of[i] = tt_control_peer(parent, m->member[i]);
	if (peer_of)
		rc = tt_control_make(parent->ep, context_of(parent, m), m->rank, m->n, peer_of,
				     ret_ctl);
	else
		tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", parent->rank, m->n);
	free(peer_of);
	if (rc)
		return rc;
	(*ret_ctl)->join.has_table = (*ret_ctl)->join.complete = true;
	parent->split.child = *ret_ctl;
	return 0;
}

/* The connections to the neighbors in the tree and the ring of ctl; first to the lower peers, to
 * which this rank connects without waiting for others. Error texts have the parent's numbers. */
static int connect_neighbors(struct tt_control *parent, struct tt_control *ctl,
			     const struct tt_members *m, uint64_t deadline_ns)
{
	int neighbor[TT_FANOUT + 3], n = tt_control_neighbors(ctl, ctl->rank, neighbor), rc = 0;

	for (int higher = 0; higher < 2; higher++)
		for (int i = 0; i < n && !rc; i++)
			if ((tt_control_peer(ctl, neighbor[i]) > ctl->ep->peer) == higher)
				rc = tt_control_reach(ctl, neighbor[i], parent->rank,
						      m->member[neighbor[i]], deadline_ns);
	return rc;
}

static void begin(struct tt_control *parent)
{
	tt_control_lock(parent);
	tt_endpoint_forming(parent->ep, true);
	tt_control_unlock(parent);
}

void tt_control_formed(struct tt_control *parent)
{
	tt_control_lock(parent);
	tt_split_freed(parent, parent->split.child);
	tt_endpoint_forming(parent->ep, false);
	tt_control_unlock(parent);
}

/* ---- splitting ------------------------------------------------------------------------------- */

static bool any_failed(const struct split_record *records, int nranks)
{
	for (int r = 0; r < nranks; r++)
		if (records[r].failed)
			return true;
	return false;
}

/* Make and connect the control of this rank's color. A failure is everybody's. */
static int connect_members(struct tt_control *parent, const struct split_record *records,
			   int *members, uint64_t deadline_ns, struct tt_control **ret_ctl)
{
	struct tt_members m = { .member = members, .label = "split" };
	struct tt_control *ctl = NULL;
	char text[1024];
	int rc;

	m.n = choose_members(records, parent->nranks, parent->rank, members, &m.rank);
	m.mark = parent->split.begun << 32 | (uint32_t)records[parent->rank].color;
	tt_control_lock(parent);
	rc = make_child(parent, &m, &ctl);
	if (ctl && parent->broken)
		tt_split_broken(parent);
	else if (ctl && parent->split.failed == parent->split.begun)
		tt_control_break(ctl, parent->split.code, -1, 0, parent->split.text, -1);
	tt_control_unlock(parent);
	if (!rc)
		rc = connect_neighbors(parent, ctl, &m, deadline_ns);
	if (!rc) {
		*ret_ctl = ctl;
		return 0;
	}
	snprintf(text, sizeof(text), "%s", tt_error_text());
	tt_control_lock(parent);
	fail_split(parent, parent->split.begun, rc, text, -1);
	tt_control_unlock(parent);
	tt_control_leave(ctl);
	return tt_fail(rc, "%s", text);
}

/* The records of all ranks, and their facts */
static int exchange(struct tt_control *parent, const struct split_record *mine,
		    struct split_record *records, struct tt_parts *facts, int nfacts,
		    uint64_t deadline_ns)
{
	struct tt_parts columns[1 + TT_SPLIT_FACTS] = { { .mine = mine, .bytes = sizeof(*mine) } };
	int rc;

	for (int i = 0; i < nfacts; i++)
		columns[1 + i] = facts[i];
	rc = tt_control_allgather_columns(parent, columns, 1 + nfacts, deadline_ns);
	if (rc)
		return rc;
	for (int r = 0; r < parent->nranks; r++)
		tt_part_get(&columns[0], r, &records[r]);
	tt_parts_free(&columns[0]);
	for (int i = 0; i < nfacts; i++)
		facts[i] = columns[1 + i];
	return 0;
}

static int split(struct tt_control *parent, struct split_record *mine, int code,
		 struct tt_parts *facts, int nfacts, uint64_t deadline_ns,
		 struct tt_control **ret_ctl)
{
	struct split_record *records = calloc((size_t)parent->nranks, sizeof(*records));
	int *members = calloc((size_t)parent->nranks, sizeof(*members));
	int rc = TT_SYSTEM;

	if (records && members)
		rc = exchange(parent, mine, records, facts, nfacts, deadline_ns);
	else
		rc = tt_control_absent(parent);
	if (!rc && any_failed(records, parent->nranks))
		rc = code ? code
			  : tt_fail(TT_REMOTE, "rank %d: another rank cannot split", parent->rank);
	if (!rc && mine->color >= 0)
		rc = connect_members(parent, records, members, deadline_ns, ret_ctl);
	free(records);
	if (rc || !nfacts)
		free(members);
	for (int i = 0; i < nfacts; i++)
		if (rc)
			tt_parts_free(&facts[i]);
		else
			facts[i].rank_of = members;
	return rc;
}

int tt_control_split(struct tt_control *parent, int color, int key, int code, uint32_t timeout_ms,
		     struct tt_parts *facts, int nfacts, struct tt_control **ret_ctl, int *ret_rank,
		     int *ret_nranks)
{
	struct split_record mine = { .color = color < 0 ? -1 : color, .key = key, .failed = code };
	char why[1024];
	int rc;

	snprintf(why, sizeof(why), "%s", tt_error_text());
	*ret_ctl = NULL;
	parent->split.begun++;
	begin(parent);
	rc = split(parent, &mine, code, facts, nfacts, tt_deadline_ns(timeout_ms), ret_ctl);
	if (!rc && *ret_ctl) {
		*ret_rank = (*ret_ctl)->rank;
		*ret_nranks = (*ret_ctl)->nranks;
	}
	return rc && code ? tt_fail(code, "%s", why) : rc;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

void tt_control_shrinking(struct tt_control *parent)
{
	begin(parent);
}

/* A death that the parent learns of meanwhile breaks the child. */
int tt_control_form(struct tt_control *parent, const struct tt_members *members,
		    uint64_t deadline_ns, struct tt_control **ret_ctl)
{
	int rc, gone = -1;

	tt_control_lock(parent);
	rc = make_child(parent, members, ret_ctl);
	if (!rc)
		parent->split.shrink_members = members->member;
	for (int i = 0; i < members->n; i++)
		if (tt_set_has(parent->departed.dead, members->member[i]) ||
		    tt_set_has(parent->departed.left, members->member[i]))
			gone = members->member[i];
	tt_control_unlock(parent);
	if (rc)
		return rc;
	rc = gone >= 0 ? tt_fail(TT_REMOTE, "rank %d: rank %d is gone", parent->rank, gone)
		       : connect_neighbors(parent, *ret_ctl, members, deadline_ns);
	if (rc)
		tt_control_raise(*ret_ctl, rc, (*ret_ctl)->rank, tt_error_text());
	return rc;
}

/* Does this rank know every member to be dead or gone? Ranks that were cut off may have shrunk to
 * themselves; the others go on without them. */
static bool is_from_the_dead(const struct tt_control *ctl, const uint8_t *in)
{
	for (int r = 0; r < ctl->nranks; r++)
		if (tt_set_has(in, r) && !tt_set_has(ctl->departed.dead, r) &&
		    !tt_set_has(ctl->departed.left, r))
			return false;
	return true;
}

/* Ranks that are not members learn of the shrink, also a stopped rank that continues later. */
static void note_shrunk(struct tt_control *ctl, uint64_t epoch, bool excluded, int from,
			const uint8_t *data, size_t bytes)
{
	if (epoch <= ctl->split.shrunk_epoch)
		return;
	ctl->split.shrunk_epoch = epoch;
	if (excluded)
		ctl->split.excluded_epoch = epoch;
	tt_control_send(ctl, TT_TO_NEIGHBORS, from, TT_F_SHRUNK, data, bytes);
}

bool tt_split_shrunk(struct tt_control *ctl, int from, const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	uint64_t epoch = tt_get(&r, 8);
	const uint8_t *in = tt_get_set(&r, ctl->nranks);

	if (!tt_get_end(&r))
		return false;
	if (!is_from_the_dead(ctl, in))
		note_shrunk(ctl, epoch, !tt_set_has(in, ctl->rank), from, data, bytes);
	return true;
}

void tt_control_announce_shrunk(struct tt_control *ctl, uint64_t epoch,
				const struct tt_members *members)
{
	struct tt_writer w = { 0 };

	tt_put(&w, epoch, 8);
	tt_put_set(&w, members->member, members->n, ctl->nranks);
	tt_control_lock(ctl);
	if (!w.failed)
		note_shrunk(ctl, epoch, false, -1, w.data, w.have);
	tt_control_unlock(ctl);
	free(w.data);
}

uint64_t tt_control_excluded(struct tt_control *ctl, uint64_t *ret_shrunk)
{
	uint64_t epoch;

	tt_control_lock(ctl);
	epoch = ctl->split.excluded_epoch;
	*ret_shrunk = ctl->split.shrunk_epoch;
	tt_control_unlock(ctl);
	return epoch;
}
