/*
 * hierarchical.c - one algorithm inside every host,
 * another between the hosts: few bytes on the slow links
 *
 * hierarchical:INNER/OUTER. An inner algorithm that has a reduce-scatter (ring, two-shot,
 * halving-doubling) uses rails: each host reduce-scatters among its first g ranks, g the size of
 * the smallest host; the i-th ranks of all hosts allreduce part i between them; each host
 * allgathers. Ranks beyond g hand theirs to one of the g before and get the result after. Other
 * inner algorithms reduce to the host's first rank, these allreduce, and broadcast. One host: where
 * its ranks are bound to different parts of it, these groups are the hosts; else the inner
 * algorithm alone. One rank a host: the outer alone. A host's ranks need not be neighbours.
 *
 *   n = 4 on hosts (0 1) (2 3), two-shot/ring:
 *
 *       host 0   0 <--> 1          0, 2 have part 0 of their hosts' sums, 1, 3 part 1;
 *                |      |          0 <-> 2 and 1 <-> 3 allreduce half the buffer each;
 *       host 1   2 <--> 3          then each host gathers its two parts
 *
 *   steps          inner reduce-scatter + outer allreduce of n/g hosts + inner allgather
 *   bytes          m hosts of g ranks, ring outside: 2(m-1) S in all between hosts (flat ring:
 *                  2m(mg-1)/(mg) S)
 *   order of sums  the host's by the inner algorithm, then the hosts' by the outer
 *   restrictions   INNER and OUTER: any allreduce algorithm but this one
 *   source         Cho et al. 2019: BlueConnect; Jia et al. 2018: Highly scalable deep learning
 *                  training system
 */
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "algorithms/forms.h"

/* What an inner algorithm does before and after the hosts talk; others than these reduce and
 * broadcast directly. */
static const struct form {
	const char *name;
	bool rails;
	void (*before)(struct tt_builder *b);
	void (*after)(struct tt_builder *b);
} forms[] = {
	{ "ring", true, tt_ring_reduce_scatter, tt_ring_allgather },
	{ "two-shot", true, tt_linear_reduce_scatter, tt_linear_allgather },
	{ "halving-doubling", true, tt_halving_reduce_scatter, tt_doubling_allgather },
	{ "tree", false, tt_binomial_reduce, tt_binomial_broadcast },
	{ "recursive-doubling", false, tt_binomial_reduce, tt_binomial_broadcast },
	{ NULL, false, tt_linear_reduce, tt_linear_broadcast },
};

/* One side of INNER/OUTER. */
struct half {
	char name[64];
	const struct tt_algorithm *row;
	const char *argument;
};

static bool read_half(struct half *h, const char *text, size_t length)
{
	if (length >= sizeof(h->name))
		return false;
	memcpy(h->name, text, length);
	h->name[length] = '\0';
	h->row = tt_algorithm_look(TT_ALLREDUCE, h->name);
	return h->row && strcmp(h->row->name, "hierarchical") &&
	       !tt_algorithm_argument(h->row, h->name, &h->argument);
}

static bool read_both(const char *argument, struct half *inner, struct half *outer)
{
	const char *slash = strchr(argument, '/');

	return slash && read_half(inner, argument, (size_t)(slash - argument)) &&
	       read_half(outer, slash + 1, strlen(slash + 1));
}

static bool takes(const char *argument)
{
	struct half inner, outer;

	return read_both(argument, &inner, &outer);
}

/* Names the half that is wrong. */
static void explain(const char *argument)
{
	const char *slash = strchr(argument, '/');
	size_t length = slash ? (size_t)(slash - argument) : 0;
	bool inner_is_wrong;
	struct half half;
	char names[512];

	tt_algorithm_names(TT_ALLREDUCE, names);
	if (!slash) {
		tt_fail(TT_ARG,
			"algorithm \"hierarchical:%s\": want hierarchical:INNER/OUTER, as in "
			"hierarchical:two-shot/ring, of%s",
			argument, names + 1);
		return;
	}
	inner_is_wrong = !read_half(&half, argument, length);
	tt_fail(TT_ARG,
		"algorithm \"hierarchical:%s\": \"%.*s\" cannot be its %s algorithm; use any of%s but "
		"hierarchical",
		argument, inner_is_wrong ? (int)length : (int)strlen(slash + 1),
		inner_is_wrong ? argument : slash + 1, inner_is_wrong ? "inner" : "outer",
		names + 1);
}

static const struct form *form_of(const struct tt_algorithm *row)
{
	const struct form *f = forms;

	while (f->name && strcmp(f->name, row->name))
		f++;
	return f;
}

/* ---- the hosts ------------------------------------------------------------------------------- */

/* The hosts, or the groups of the only one. */
static const struct tt_topology *level_of(const struct tt_shape *shape)
{
	const struct tt_topology *t = shape->topology;

	return t && t->nhosts == 1 && t->groups ? t->groups : t;
}

static int hosts_of(const struct tt_shape *shape)
{
	return level_of(shape) ? level_of(shape)->nhosts : 1;
}

/* How many ranks of a host talk to other hosts: as many as the smallest host has. */
static int rails_of(const struct tt_topology *t, const struct form *form)
{
	int *size = form->rails ? calloc((size_t)t->nhosts, sizeof(*size)) : NULL,
	    rails = t->nranks;

	/* without rails, or without memory: building will say so */
	if (!size)
		return 1;
	for (int r = 0; r < t->nranks; r++)
		size[t->host_of[r]]++;
	for (int h = 0; h < t->nhosts; h++)
		rails = size[h] < rails ? size[h] : rails;
	free(size);
	return rails;
}

static struct tt_cut outer_cut(const struct half *outer, int nhosts)
{
	struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = nhosts };

	return outer->row->cut ? outer->row->cut(&shape, outer->argument) : (struct tt_cut){ 1, 1 };
}

static struct tt_cut cut(const struct tt_shape *shape, const char *argument)
{
	int nhosts = hosts_of(shape);
	struct half inner, outer;
	struct tt_cut c = { 1, 1 };

	if (!read_both(argument, &inner, &outer))
		return c;
	if (nhosts == 1)
		return inner.row->cut ? inner.row->cut(shape, inner.argument) : c;
	c = outer_cut(&outer, nhosts);
	if (nhosts < shape->nranks)
		c.blocks *= (uint32_t)rails_of(level_of(shape), form_of(inner.row));
	return c;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* This rank's place. */
struct seat {
	const struct form *form;
	int size, index, rails;
	int *local;              /* [size] the ranks of this host */
	int *across;             /* [nhosts] the index-th ranks of all hosts; index < rails */
};

/* Fills local, size and index: one look at every rank. */
static void sit_down(struct tt_builder *b, struct seat *s)
{
	const struct tt_topology *t = level_of(b->shape);

	for (int r = 0; r < t->nranks; r++) {
		if (t->host_of[r] != t->host_of[b->rank])
			continue;
		if (r == b->rank)
			s->index = s->size;
		s->local[s->size++] = r;
	}
}

/* The index-th rank of every host. seen: [nhosts] zeros */
static void find_across(const struct tt_topology *t, struct seat *s, int *seen)
{
	for (int r = 0; r < t->nranks; r++)
		if (seen[t->host_of[r]]++ == s->index)
			s->across[t->host_of[r]] = r;
}

static bool take_seat(struct tt_builder *b, struct seat *s)
{
	const struct tt_topology *t = level_of(b->shape);
	int *seen = calloc((size_t)t->nhosts, sizeof(*seen));

	s->rails = rails_of(t, s->form);
	s->local = malloc((size_t)(t->nranks + t->nhosts) * sizeof(*s->local));
	if (!s->local || !seen) {
		free(seen);
		tt_builder_fail(b, TT_SYSTEM, "no memory for a plan of %d ranks", b->n);
		return false;
	}
	s->across = s->local + t->nranks;
	sit_down(b, s);
	if (s->index < s->rails)
		find_across(t, s, seen);
	free(seen);
	return true;
}

/* Ranks beyond the rails hand what they have to one of them. */
static void fold_in(struct tt_builder *b, const struct seat *s)
{
	struct tt_group outer = tt_group_enter(b, s->local, s->size, tt_all(b), 1);

	if (s->index >= s->rails)
		tt_step_send(b, s->index % s->rails, tt_all(b));
	for (int i = s->index + s->rails; i < s->size && s->index < s->rails; i += s->rails)
		tt_step_recv_reduce(b, i, tt_all(b), TT_MINE_FIRST);
	tt_group_leave(b, &outer);
}

static void fold_out(struct tt_builder *b, const struct seat *s)
{
	struct tt_group outer = tt_group_enter(b, s->local, s->size, tt_all(b), 1);

	if (s->index >= s->rails)
		tt_step_recv(b, s->index % s->rails, tt_all(b));
	for (int i = s->index + s->rails; i < s->size && s->index < s->rails; i += s->rails)
		tt_step_send(b, i, tt_all(b));
	tt_group_leave(b, &outer);
}

/* What the ranks of a host do among themselves. */
static void inside(struct tt_builder *b, const struct seat *s, void (*what)(struct tt_builder *b))
{
	struct tt_group outer = tt_group_enter(b, s->local, s->form->rails ? s->rails : s->size,
					       tt_all(b), (uint32_t)s->rails);

	what(b);
	tt_group_leave(b, &outer);
}

/* What the index-th ranks of all hosts do with part index. */
static void between(struct tt_builder *b, const struct seat *s, const struct half *outer,
		    int nhosts)
{
	struct tt_span all = tt_all(b), mine;
	struct tt_group whole;

	mine.count = all.count / (uint32_t)s->rails;
	mine.first = all.first + (uint32_t)s->index * mine.count;
	whole = tt_group_enter(b, s->across, nhosts, mine, outer_cut(outer, nhosts).blocks);
	outer->row->build(b, outer->argument);
	tt_group_leave(b, &whole);
}

static void two_levels(struct tt_builder *b, struct seat *s, const struct half *outer)
{
	if (s->form->rails)
		fold_in(b, s);
	if (s->index < s->rails || !s->form->rails)
		inside(b, s, s->form->before);
	if (s->index < s->rails)
		between(b, s, outer, hosts_of(b->shape));
	if (s->index < s->rails || !s->form->rails)
		inside(b, s, s->form->after);
	if (s->form->rails)
		fold_out(b, s);
}

static void build(struct tt_builder *b, const char *argument)
{
	struct half inner, outer;
	struct seat seat = { 0 };

	if (!read_both(argument, &inner, &outer)) {
		tt_builder_fail(b, TT_ARG, "hierarchical does not take \"%s\"", argument);
	} else if (hosts_of(b->shape) == 1) {
		inner.row->build(b, inner.argument);
	} else if (hosts_of(b->shape) == b->n) {
		outer.row->build(b, outer.argument);
	} else {
		seat.form = form_of(inner.row);
		if (take_seat(b, &seat))
			two_levels(b, &seat, &outer);
		free(seat.local);
	}
}

const struct tt_algorithm tt_allreduce_hierarchical = {
	.collective = TT_ALLREDUCE,
	.name = "hierarchical",
	.help = "several hosts, or groups: INNER in each, OUTER between them",
	.source =
		"Cho et al. 2019, BlueConnect: decomposing all-reduce for deep learning on heterogeneous network "
		"hierarchy",
	.argument = "two-shot/ring",
	.form = "INNER/OUTER",
	.variants =
		"two-shot/recursive-doubling two-shot/halving-doubling ring/ring tree/recursive-doubling",
	.takes = takes,
	.explain = explain,
	.cut = cut,
	.build = build,
};
