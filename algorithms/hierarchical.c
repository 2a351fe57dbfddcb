/*
 * hierarchical.c - one algorithm within every host, another between hosts: few bytes on slow links
 *
 * hierarchical:INNER/OUTER. An inner algorithm with a reduce-scatter (ring, two-shot,
 * halving-doubling) uses rails: each host reduce-scatters among its first g ranks, g being the size
 * of the smallest host; the i-th ranks of all hosts allreduce part i; each host allgathers. Ranks
 * beyond g send their values to one of the g first ranks before, and get the result after. Other
 * inner algorithms reduce to the host's first rank, the first ranks allreduce, and broadcast within
 * their hosts. One host: if its ranks are bound to different parts of the host, these groups are
 * taken for hosts; else only the inner algorithm runs. One rank per host: only the outer algorithm
 * runs. Ranks of a host need not be consecutive.
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
 *   order of sums  within a host by the inner algorithm, then over hosts by the outer
 *   restrictions   INNER and OUTER: any allreduce algorithm but this one
 *   source         Cho et al. 2019: BlueConnect; Jia et al. 2018: Highly scalable deep learning
 *                  training system
 */
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "algorithms/forms.h"

/* Steps of an inner algorithm before and after the exchange between hosts. Last entry: all other
 * algorithms. */
static const struct inner_form {
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
	const struct tt_algorithm *algorithm;
	const char *argument;
};

static bool read_half(struct half *h, const char *text, size_t length)
{
	if (length >= sizeof(h->name))
		return false;
	memcpy(h->name, text, length);
	h->name[length] = '\0';
	h->algorithm = tt_algorithm_look(TT_ALLREDUCE, h->name);
	return h->algorithm && strcmp(h->algorithm->name, "hierarchical") &&
	       !tt_algorithm_argument(h->algorithm, h->name, &h->argument);
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

/* Reports the half that is wrong. */
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
			"algorithm \"hierarchical:%s\": use hierarchical:INNER/OUTER, as in "
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

static const struct inner_form *form_of(const struct tt_algorithm *inner)
{
	const struct inner_form *f = forms;

	while (f->name && strcmp(f->name, inner->name))
		f++;
	return f;
}

/* ---- the hosts ------------------------------------------------------------------------------- */

/* The hosts, or the groups of a single host. */
static const struct tt_topology *level_of(const struct tt_shape *shape)
{
	const struct tt_topology *t = shape->topology;

	return t && t->nhosts == 1 && t->groups ? t->groups : t;
}

static int hosts_of(const struct tt_shape *shape)
{
	return level_of(shape) ? level_of(shape)->nhosts : 1;
}

/* Number of rails (ranks of a host that exchange with other hosts): size of the smallest host. */
static int rails_of(const struct tt_topology *t, const struct inner_form *form)
{
	int *size = form->rails ? calloc((size_t)t->nhosts, sizeof(*size)) : NULL,
	    rails = t->nranks;

	/* no rails; or no memory, which build reports */
	if (!size)
		return 1;
	for (int r = 0; r < t->nranks; r++)
		size[tt_topology_host(t, r)]++;
	for (int h = 0; h < t->nhosts; h++)
		rails = size[h] < rails ? size[h] : rails;
	free(size);
	return rails;
}

static struct tt_cut outer_cut(const struct half *outer, int nhosts)
{
	struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = nhosts };

	return outer->algorithm->cut ? outer->algorithm->cut(&shape, outer->argument)
				     : (struct tt_cut){ 1, 1 };
}

static struct tt_cut cut(const struct tt_shape *shape, const char *argument)
{
	int nhosts = hosts_of(shape);
	struct half inner, outer;
	struct tt_cut c = { 1, 1 };

	if (!read_both(argument, &inner, &outer))
		return c;
	if (nhosts == 1)
		return inner.algorithm->cut ? inner.algorithm->cut(shape, inner.argument) : c;
	c = outer_cut(&outer, nhosts);
	if (nhosts < shape->nranks)
		c.blocks *= (uint32_t)rails_of(level_of(shape), form_of(inner.algorithm));
	return c;
}

static struct tt_symmetry symmetry_of(const struct half *half, const struct tt_shape *shape)
{
	return half->algorithm->symmetry ? half->algorithm->symmetry(shape, half->argument)
					 : (struct tt_symmetry){ .kind = TT_ASYMMETRIC };
}

/* Several hosts: they are alike in the outer algorithm. */
static struct tt_symmetry symmetry(const struct tt_shape *shape, const char *argument)
{
	struct tt_shape hosts = { .collective = TT_ALLREDUCE, .nranks = hosts_of(shape) };
	struct half inner, outer;

	if (!read_both(argument, &inner, &outer))
		return (struct tt_symmetry){ .kind = TT_ASYMMETRIC };
	return hosts.nranks == 1 ? symmetry_of(&inner, shape) : symmetry_of(&outer, &hosts);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* This rank's host: its ranks, its rails, and this rank's index. */
struct host_group {
	const struct inner_form *form;
	int size, index, rails;
	int *local;  /* [size] the ranks of this host */
	int *across; /* [nhosts] the index-th ranks of all hosts; index < rails */
};

/* Fills local, size and index in one pass over all ranks. */
static void find_local(struct tt_builder *b, struct host_group *s)
{
	const struct tt_topology *t = level_of(b->shape);

	for (int r = 0; r < t->nranks; r++) {
		if (tt_topology_host(t, r) != tt_topology_host(t, b->rank))
			continue;
		if (r == b->rank)
			s->index = s->size;
		s->local[s->size++] = r;
	}
}

/* Fills across: the index-th rank of every host. seen: [nhosts] zeros. */
static void find_across(const struct tt_topology *t, struct host_group *s, int *seen)
{
	for (int r = 0; r < t->nranks; r++)
		if (seen[tt_topology_host(t, r)]++ == s->index)
			s->across[tt_topology_host(t, r)] = r;
}

static bool host_group_open(struct tt_builder *b, struct host_group *s)
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
	find_local(b, s);
	if (s->index < s->rails)
		find_across(t, s, seen);
	free(seen);
	return true;
}

/* Ranks beyond the rails send their values to a rank of a rail. */
static void fold_in(struct tt_builder *b, const struct host_group *s)
{
	struct tt_group outer = tt_group_enter(b, s->local, s->size, tt_all(b), 1);

	if (s->index >= s->rails)
		tt_step_send(b, s->index % s->rails, tt_all(b));
	for (int i = s->index + s->rails; i < s->size && s->index < s->rails; i += s->rails)
		tt_step_recv_reduce(b, i, tt_all(b), TT_MINE_FIRST);
	tt_group_leave(b, &outer);
}

static void fold_out(struct tt_builder *b, const struct host_group *s)
{
	struct tt_group outer = tt_group_enter(b, s->local, s->size, tt_all(b), 1);

	if (s->index >= s->rails)
		tt_step_recv(b, s->index % s->rails, tt_all(b));
	for (int i = s->index + s->rails; i < s->size && s->index < s->rails; i += s->rails)
		tt_step_send(b, i, tt_all(b));
	tt_group_leave(b, &outer);
}

/* Steps within a host. */
static void inside(struct tt_builder *b, const struct host_group *s,
		   void (*steps)(struct tt_builder *b))
{
	struct tt_group outer = tt_group_enter(b, s->local, s->form->rails ? s->rails : s->size,
					       tt_all(b), (uint32_t)s->rails);

	steps(b);
	tt_group_leave(b, &outer);
}

/* Steps of the index-th ranks of all hosts, with part index. */
static void between(struct tt_builder *b, const struct host_group *s, const struct half *outer,
		    int nhosts)
{
	struct tt_span all = tt_all(b), mine;
	struct tt_group whole;

	mine.count = all.count / (uint32_t)s->rails;
	mine.first = all.first + (uint32_t)s->index * mine.count;
	whole = tt_group_enter(b, s->across, nhosts, mine, outer_cut(outer, nhosts).blocks);
	outer->algorithm->build(b, outer->argument);
	tt_group_leave(b, &whole);
}

static void two_levels(struct tt_builder *b, struct host_group *s, const struct half *outer)
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
	struct host_group host = { 0 };

	if (!read_both(argument, &inner, &outer)) {
		tt_builder_fail(b, TT_ARG, "hierarchical does not take \"%s\"", argument);
	} else if (hosts_of(b->shape) == 1) {
		inner.algorithm->build(b, inner.argument);
	} else if (hosts_of(b->shape) == b->n) {
		outer.algorithm->build(b, outer.argument);
	} else {
		host.form = form_of(inner.algorithm);
		if (host_group_open(b, &host))
			two_levels(b, &host, &outer);
		free(host.local);
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
	.symmetry = symmetry,
	.build = build,
};
