/*
 * choose.c - the one place that decides which algorithm a call uses: the one that is predicted to
 * be the quickest
 *
 * Every row of the table is a candidate, so a new algorithm takes part by being there. A
 * candidate's plans are simulated on the table of costs that all ranks share (simulate.h); agreed
 * facts only enter, and whole numbers only, so that all ranks come to the same row. What that costs
 * is paid once for a class of sizes: up to EXACT ranks every plan is walked, a few tiles of it;
 * above, the same algorithm is simulated on three smaller groups, halved each time, and the
 * differences are carried on: they stay equal in an algorithm of log n steps, double in one of n
 * steps, and halve for the part of bytes that goes as (n - 1) / n.
 *
 * Called by run (plan_cache.c), tuttiCommDescribe and the tools.
 */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "model/choose.h"

/* ROUNDS: of all tiles in flight */
enum { EXACT = 16, MOST_HOSTS = 8, MOST_ON_HOST = 4, SMALLER = 64, ROUNDS = 4 };

/* ---- candidates ------------------------------------------------------------------------------ */

static int put_name(const struct tt_algorithm *a, const char *argument, size_t length,
		    struct tt_candidate *ret)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*s", (int)length, argument);
	*ret = (struct tt_candidate){ .algorithm = a };
	tt_algorithm_full_name(a, text, ret->name);
	return 1;
}

bool tt_candidate_number(enum tt_collective c, int i, struct tt_candidate *ret)
{
	for (int row = 0; tt_algorithms[row]; row++) {
		const struct tt_algorithm *a = tt_algorithms[row];
		const char *argument = a->argument ? a->argument : "",
			   *more = a->variants ? a->variants : "";

		if (a->collective != c)
			continue;
		if (i-- == 0)
			return put_name(a, argument, strlen(argument), ret);
		for (size_t n; *more; more += n + (more[n] == ' ')) {
			n = strcspn(more, " ");
			if (i-- == 0)
				return put_name(a, more, n, ret);
		}
	}
	return false;
}

/* ---- prediction ------------------------------------------------------------------------------ */

int tt_size_class(size_t bytes)
{
	return bytes > 1 ? 64 - __builtin_clzll((unsigned long long)bytes - 1) : 0;
}

struct facts {
	const struct tt_shape *shape;
	const struct tt_call_facts *call;
	size_t bytes;
	uint8_t card;                    /* of the candidate at hand */
};

/* What is simulated: the call itself, or one like it on fewer ranks. */
struct stage {
	struct tt_topology topology;
	int host_of[SMALLER];
	struct tt_sim_world world;
};

static size_t bound_bytes(enum tt_collective c, int nranks, size_t bytes)
{
	bool even = c == TT_ALLREDUCE || c == TT_REDUCE || c == TT_BROADCAST;

	return even || !bytes ? bytes : (bytes + (size_t)nranks - 1) / (size_t)nranks;
}

static int simulate(const struct stage *s, const struct tt_candidate *c, size_t bytes,
		    struct tt_sim_result *ret)
{
	struct tt_sim *sim;
	int rc = tt_sim_open(&s->world, c->algorithm, c->name, 0, NULL, &sim);

	if (rc)
		return rc;
	bytes = bound_bytes(c->algorithm->collective, s->world.nranks, bytes);
	rc = tt_sim_run(sim, bytes, ROUNDS * tt_sim_width(sim, bytes), ret);
	tt_sim_close(sim);
	return rc;
}

static struct tt_topology one_host(int nranks)
{
	static const int nobody_elsewhere[SMALLER];

	return (struct tt_topology){ .nranks = nranks, .nhosts = 1, .host_of = nobody_elsewhere };
}

/* The topology is there. Tiles are cut as for the call itself. */
static void set_world(struct stage *s, const struct facts *f, int cores)
{
	const struct tt_call_facts *call = f->call;
	struct tt_placement_facts paths = { .nranks = f->shape->nranks, .one_host = s->topology.nhosts == 1,
				  .over_tcp = call->over_tcp, .cores = cores, .card = f->card };

	s->world = (struct tt_sim_world){ .nranks = s->topology.nranks,
					  .topology = &s->topology,
					  .paths = paths,
					  .message_bytes = call->message_bytes
								   ? call->message_bytes
								   : tt_placement_message_bytes(&paths),
					  .cores = cores,
					  .cost = call->cost ? call->cost : &tt_cost_builtin };
}

/* nhosts hosts with so many ranks on each. */
static void set_hosts(struct stage *s, int nhosts, int on_each)
{
	s->topology = (struct tt_topology){ .nranks = nhosts * on_each,
					    .nhosts = nhosts,
					    .host_of = s->host_of };
	for (int r = 0; r < s->topology.nranks; r++)
		s->host_of[r] = r / on_each;
}

/* Half of a number of ranks or hosts, of the same kind: a power of two stays one, others do not
 * become one. */
static int half(int n)
{
	int h = (n + 1) / 2;

	return (n & (n - 1)) && !(h & (h - 1)) && h > 2 ? h - 1 : h;
}

/* Carry a quantity on by `more` doublings beyond the first of
 * three values, each at half of the one before it. */
static uint64_t carry_on(const uint64_t v[3], int more)
{
	uint64_t step = v[0] > v[1] ? v[0] - v[1] : 0, before = v[1] > v[2] ? v[1] - v[2] : 0,
		 sum = v[0];
	uint64_t ratio = before ? (uint64_t)((unsigned __int128)step * 1024 / before) : 1024;

	ratio = ratio > 4096 ? 4096 : ratio;
	while (more-- > 0) {
		step = (uint64_t)((unsigned __int128)step * ratio / 1024);
		sum += step;
	}
	return sum;
}

/* Smaller groups than the call's: `count` of them are x, x/2,
 * x/4 hosts or ranks; x is `more` times halved. */
static void set_smaller(const struct facts *f, int x, struct stage *s)
{
	const struct tt_topology *t = f->shape->topology;
	int n = f->shape->nranks, nhosts = t ? t->nhosts : 1, on_each = n / nhosts,
	    cores = f->call->cores;
	bool crowded = cores && on_each > cores;

	if (nhosts == 1) {
		s->topology = one_host(x);
		set_world(s, f, crowded ? 1 : 0);
	} else {
		int here = on_each < MOST_ON_HOST ? on_each : MOST_ON_HOST;

		set_hosts(s, x, here);
		set_world(s, f, crowded ? (here * cores + on_each - 1) / on_each : 0);
	}
}

/* A long call and a short one on each of three smaller groups: what goes with bytes grows in
 * another way than the rest. */
static int extrapolate(const struct facts *f, struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	bool hosts = t && t->nhosts > 1, crowded;
	int x = hosts ? t->nhosts : f->shape->nranks, more = 0, rc = 0;
	uint64_t longer[3], brief[3];

	for (; x > (hosts ? MOST_HOSTS : EXACT); more++)
		x = half(x);
	for (int i = 0; i < 3 && !rc; i++, x = half(x)) {
		struct tt_sim_result a, b;
		struct stage s;

		set_smaller(f, x, &s);
		if ((rc = simulate(&s, c, 1, &b)) || (rc = simulate(&s, c, f->bytes, &a)))
			break;
		brief[i] = b.time_ps;
		longer[i] = a.time_ps > b.time_ps ? a.time_ps - b.time_ps : 0;
		if (i == 0)
			memcpy(c->part_ps, a.part_ps, sizeof(c->part_ps));
		/* as many hosts as there are: nothing to carry on */
		if (!more && hosts) {
			c->model_ps = a.time_ps;
			return 0;
		}
	}
	if (rc)
		return rc;
	c->extrapolated = true;
	c->model_ps = carry_on(longer, more) + carry_on(brief, more);
	crowded = !hosts && f->call->cores && f->shape->nranks > f->call->cores;
	if (crowded)
		c->model_ps /= (uint64_t)f->call->cores;
	return 0;
}

static int exactly(const struct facts *f, struct tt_candidate *c)
{
	struct tt_sim_result result;
	struct stage s;
	int rc;

	s.topology = f->shape->topology ? *f->shape->topology : one_host(f->shape->nranks);
	set_world(&s, f, f->call->cores);
	rc = simulate(&s, c, f->bytes, &result);
	if (rc)
		return rc;
	c->model_ps = result.time_ps;
	memcpy(c->part_ps, result.part_ps, sizeof(c->part_ps));
	return 0;
}

static uint8_t number_of(const struct tt_algorithm *a)
{
	uint8_t i = 0;

	while (tt_algorithms[i] != a)
		i++;
	return i;
}

static int predict(const struct facts *f, struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	const struct tt_cost *cost = f->call->cost ? f->call->cost : &tt_cost_builtin;
	enum tt_link_class link =
		tt_cost_class(t && t->nhosts > 1, f->call->over_tcp, (enum tt_link_class)f->card);
	int rc = f->shape->nranks <= EXACT ? exactly(f, c) : extrapolate(f, c);

	c->applies = !rc;
	if (rc)
		return rc == TT_ARG ? 0 : rc;            /* it does not apply: others will */
	c->predicted_ps = tt_cost_corrected(cost, number_of(c->algorithm), link, f->shape->nranks,
					    f->bytes, c->model_ps);
	return 0;
}

/* Variants are for several hosts with several ranks; elsewhere they only repeat other rows. */
static bool takes_part(const struct tt_shape *s, const struct tt_candidate *c)
{
	const struct tt_topology *t = s->topology && s->topology->nhosts == 1 && s->topology->groups
					      ? s->topology->groups
					      : s->topology;
	bool levels = t && t->nhosts > 1 && t->nhosts < s->nranks;

	return levels || !c->algorithm->variants;
}

/* Where a row's sums can be made gdr from the buffers of peers, tuttiMemAlloc's memory halves
 * its time; but what memory it will be nobody knows when the choice is made. So it may cost a third
 * more in the prediction, which is no more than that errs by. */
static void weigh(const struct facts *f, struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	bool crowded = f->call->cores && f->shape->nranks > f->call->cores;

	c->in_place = c->algorithm->in_place && f->bytes >= TT_SINGLE_COPY_BYTES && !f->call->over_tcp &&
		      !crowded && (!t || t->nhosts == 1) && f->shape->nranks <= TT_SINGLE_COPY_RANKS;
	c->counts_ps = c->in_place ? c->predicted_ps - c->predicted_ps / 4 : c->predicted_ps;
}

/* Append c for each way between the hosts that there is, predicted. 0 | < 0 */
static int predict_ways(struct facts *f, const struct tt_candidate *c, struct tt_candidate *list,
			int *count, int *best)
{
	const uint8_t ways[2] = { TT_NO_NIC, f->call->card };

	for (int i = f->call->nic_only && f->call->card;
	     i < 2 && *count < TT_MOST_CANDIDATES; i++) {
		struct tt_candidate *it = &list[*count];
		int rc;

		if (i && ways[i] == TT_NO_NIC)
			break;
		*it = *c;
		it->card = f->card = ways[i];
		rc = predict(f, it);
		if (rc)
			return rc;
		weigh(f, it);
		if (it->applies && (*best < 0 || it->counts_ps < list[*best].counts_ps))
			*best = *count;
		++*count;
	}
	return 0;
}

static struct facts facts_of(const struct tt_shape *shape, const struct tt_call_facts *call)
{
	int class = tt_size_class(call->bytes);

	return (struct facts){ .shape = shape,
			       .call = call,
			       .bytes = (size_t)1 << (class < 62 ? class : 62) };
}

int tt_plan_nic(const struct tt_shape *shape, const struct tt_call_facts *call,
		 const struct tt_algorithm *algorithm, const char name[64])
{
	struct tt_candidate list[2], c = { .algorithm = algorithm };
	struct facts f = facts_of(shape, call);
	int count = 0, best = -1, rc;

	memcpy(c.name, name, sizeof(c.name));
	rc = predict_ways(&f, &c, list, &count, &best);
	return rc ? rc : best < 0 ? TT_NO_NIC : list[best].card;
}

int tt_plan_candidates(const struct tt_shape *shape, const struct tt_call_facts *call,
		       struct tt_candidate list[TT_MOST_CANDIDATES], int *ret_best)
{
	struct facts f = facts_of(shape, call);
	struct tt_candidate c;
	int count = 0, best = -1, rc;

	for (int i = 0; tt_candidate_number(shape->collective, i, &c); i++) {
		c.number = i;
		if (!takes_part(shape, &c))
			continue;
		rc = predict_ways(&f, &c, list, &count, &best);
		if (rc)
			return rc;
	}
	if (best < 0)
		return tt_fail(TT_INTERNAL, "no algorithm of %s applies to %d ranks: %s",
			       tt_collective_name(shape->collective), shape->nranks,
			       tt_error_text());
	*ret_best = best;
	return count;
}
