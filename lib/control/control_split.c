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
#include "control/sent_set.h"

/* The columns of an exchange before the facts */
enum { CHOICES, KEYS, COLUMNS };

struct split_choice {
	int32_t color;
	int32_t failed; /* this rank cannot split */
};

/* ---- members --------------------------------------------------------------------------------- */

struct keyed_rank {
	int32_t key;
	int rank;
};

static int compare_keys(const void *a, const void *b)
{
	const struct keyed_rank *x = a, *y = b;

	return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->rank - y->rank;
}

static bool has_color(const struct tt_parts *choices, int rank, int32_t color)
{
	struct split_choice other;

	tt_part_get(choices, rank, &other);
	return other.color == color;
}

/* The next rank of a color from `from` on, with its key and the end of the ranks with the same key and color; nranks:
 * none */
static int next_run(const struct tt_parts columns[COLUMNS], int nranks, int from, int32_t color,
		    int32_t *ret_key, int *ret_end)
{
	int key_end;

	while (from < nranks && !has_color(&columns[CHOICES], from, color))
		from = tt_part_end(&columns[CHOICES], from);
	if (from == nranks)
		return nranks;
	tt_part_get(&columns[KEYS], from, ret_key);
	*ret_end = tt_part_end(&columns[CHOICES], from);
	key_end = tt_part_end(&columns[KEYS], from);
	*ret_end = key_end < *ret_end ? key_end : *ret_end;
	return from;
}

/* The ranks of a color as bits, and whether their keys do not decrease. false: no memory */
static bool choose_in_order(const struct tt_parts columns[COLUMNS], int nranks, int32_t color,
			    struct tt_counted_bits *bits, bool *ret_in_order)
{
	int32_t before = INT32_MIN, key;

	*ret_in_order = true;
	if (!tt_counted_bits_make(bits, nranks))
		return false;
	for (int r = 0, end; (r = next_run(columns, nranks, r, color, &key, &end)) < nranks;
	     r = end) {
		*ret_in_order &= key >= before;
		before = key;
		tt_counted_bits_fill(bits, r, end - r);
	}
	tt_counted_bits_count(bits);
	return true;
}

/* The members of bits by key, then by rank. false: no memory */
static bool sort_members(const struct tt_parts *keys, const struct tt_counted_bits *bits,
			 struct tt_rank_map *ret_map)
{
	int n = tt_counted_bits_before(bits, bits->n), *ranks = malloc((size_t)n * sizeof(*ranks));
	struct keyed_rank *list = malloc((size_t)n * sizeof(*list));
	bool made = ranks && list;

	for (int i = 0, r = 0; made && i < n; i++, r++) {
		list[i].rank = r = tt_counted_bits_next(bits, r, true);
		tt_part_get(keys, r, &list[i].key);
	}
	if (made)
		qsort(list, (size_t)n, sizeof(*list), compare_keys);
	for (int i = 0; made && i < n; i++)
		ranks[i] = list[i].rank;
	made = made && tt_rank_map_make(ret_map, ranks, n, bits->n);
	free(list);
	free(ranks);
	return made;
}

/* The ranks of this rank's color, in the order of keys. The color is that of the exchange, so this rank is one of them,
 * also if another rank has changed it. 0 | TT_SYSTEM */
static int choose_members(struct tt_control *parent, const struct tt_parts columns[COLUMNS],
			  struct tt_members *m)
{
	struct tt_counted_bits bits = { 0 };
	struct split_choice mine;
	bool in_order, made;

	tt_part_get(&columns[CHOICES], parent->rank, &mine);
	made = choose_in_order(columns, parent->nranks, mine.color, &bits, &in_order);
	if (made && in_order)
		tt_rank_map_take(&m->map, &bits);
	else if (made)
		made = sort_members(&columns[KEYS], &bits, &m->map);
	tt_counted_bits_free(&bits);
	if (!made)
		return tt_fail(TT_SYSTEM,
			       "rank %d: no memory for the members of a split of %d ranks",
			       parent->rank, parent->nranks);
	m->rank = tt_rank_map_rank(&m->map, parent->rank);
	m->label = "split";
	m->mark = parent->split.begun << 32 | (uint32_t)mine.color;
	return 0;
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
	if (ctl->split.shrink_members && tt_rank_map_rank(ctl->split.shrink_members, rank) >= 0)
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
	int rc = tt_control_make_child(parent, context_of(parent, m), m->rank, &m->map, ret_ctl);

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
						      tt_rank_map_peer(&m->map, neighbor[i]),
						      deadline_ns);
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

static bool any_failed(const struct tt_parts *choices, int nranks)
{
	struct split_choice other;

	for (int r = 0; r < nranks; r = tt_part_end(choices, r)) {
		tt_part_get(choices, r, &other);
		if (other.failed)
			return true;
	}
	return false;
}

/* Make the control of the members; locked. */
static int begin_child(struct tt_control *parent, const struct tt_members *m,
		       struct tt_control **ret_ctl)
{
	int rc = make_child(parent, m, ret_ctl);

	if (*ret_ctl && parent->broken)
		tt_split_broken(parent);
	else if (*ret_ctl && parent->split.failed == parent->split.begun)
		tt_control_break(*ret_ctl, parent->split.code, -1, 0, parent->split.text, -1);
	return rc;
}

/* Make and connect the control of this rank's color. A failure is everybody's. */
static int connect_members(struct tt_control *parent, const struct tt_parts columns[COLUMNS],
			   uint64_t deadline_ns, struct tt_control **ret_ctl, struct tt_members *m)
{
	struct tt_control *ctl = NULL;
	char text[1024];
	int rc = choose_members(parent, columns, m);

	if (!rc) {
		tt_control_lock(parent);
		rc = begin_child(parent, m, &ctl);
		tt_control_unlock(parent);
	}
	if (!rc)
		rc = connect_neighbors(parent, ctl, m, deadline_ns);
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

static int split(struct tt_control *parent, struct tt_parts *columns, int ncolumns,
		 uint64_t deadline_ns, struct tt_control **ret_ctl, struct tt_members *m)
{
	const struct split_choice *mine = columns[CHOICES].mine;
	int rc = tt_control_allgather_columns(parent, columns, ncolumns, deadline_ns);

	if (rc)
		return rc;
	if (any_failed(&columns[CHOICES], parent->nranks))
		rc = mine->failed ? mine->failed
				  : tt_fail(TT_REMOTE, "rank %d: another rank cannot split",
					    parent->rank);
	if (!rc && mine->color >= 0)
		rc = connect_members(parent, columns, deadline_ns, ret_ctl, m);
	for (int i = 0; i < (rc ? ncolumns : COLUMNS); i++)
		tt_parts_free(&columns[i]);
	return rc;
}

int tt_control_split(struct tt_control *parent, int color, int key, int code, uint32_t timeout_ms,
		     struct tt_parts *facts, int nfacts, struct tt_control **ret_ctl,
		     struct tt_members *ret_members)
{
	struct split_choice mine = { .color = color < 0 ? -1 : color, .failed = code };
	int32_t my_key = key;
	struct tt_parts columns[COLUMNS + TT_SPLIT_FACTS] = {
		[CHOICES] = { .mine = &mine, .bytes = sizeof(mine) },
		[KEYS] = { .mine = &my_key, .bytes = sizeof(my_key) }
	};
	char why[1024];
	int rc;

	snprintf(why, sizeof(why), "%s", tt_error_text());
	*ret_ctl = NULL;
	*ret_members = (struct tt_members){ 0 };
	for (int i = 0; i < nfacts; i++)
		columns[COLUMNS + i] = facts[i];
	parent->split.begun++;
	begin(parent);
	rc = split(parent, columns, COLUMNS + nfacts, tt_deadline_ns(timeout_ms), ret_ctl,
		   ret_members);
	for (int i = 0; i < nfacts; i++) {
		facts[i] = columns[COLUMNS + i];
		facts[i].members = *ret_ctl ? &ret_members->map : NULL;
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
		parent->split.shrink_members = &members->map;
	for (int r = tt_flood_next_gone(parent, 0); r < parent->nranks;
	     r = tt_flood_next_gone(parent, r + 1))
		if (tt_rank_map_rank(&members->map, r) >= 0)
			gone = r;
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
static bool is_from_the_dead(const struct tt_control *ctl, const struct tt_sent_set *in)
{
	int r = tt_sent_set_next(in, 0);

	while (r < ctl->nranks &&
	       (tt_set_has(ctl->departed.dead, r) || tt_set_has(ctl->departed.left, r)))
		r = tt_sent_set_next(in, r + 1);
	return r == ctl->nranks;
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
	struct tt_sent_set in = tt_get_set(&r, ctl->nranks);

	if (!tt_get_end(&r))
		return false;
	if (!is_from_the_dead(ctl, &in))
		note_shrunk(ctl, epoch, !tt_sent_set_has(&in, ctl->rank), from, data, bytes);
	return true;
}

void tt_control_announce_shrunk(struct tt_control *ctl, uint64_t epoch,
				const struct tt_members *members)
{
	struct tt_writer w = { 0 };

	tt_put(&w, epoch, 8);
	tt_put_set(&w, &members->map.in);
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
