/*
 * choose.c - choice of the algorithm for a call: the candidate with the shortest predicted time
 *
 * Every entry of the table of algorithms is a candidate. The simulator predicts a candidate's time
 * from its plans and the cost table that all ranks share (simulate.h). Only facts that all ranks
 * agreed on enter, and only integers, so all ranks choose the same algorithm. One choice serves a
 * size class. Up to EXACT ranks, a few tiles of every plan are simulated. Above, the same algorithm
 * is simulated on three smaller groups, each half of the one before, and the differences between
 * them are extrapolated: the differences stay equal in an algorithm of log n steps, double in one
 * of n steps, and halve for bytes that grow as (n - 1) / n.
 *
 * Called by run (plan_cache.c), tuttiCommDescribe and the tools.
 */
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "model/choose.h"

/* EXACT: ranks; MOST_GROUPS: locality groups among fewer ranks of a host; SMALLER: most ranks of a smaller
 * group; ROUNDS: simulated rounds of tiles in flight */
enum { EXACT = 16, MOST_HOSTS = 8, MOST_ON_HOST = 4, MOST_GROUPS = 4, SMALLER = 64, ROUNDS = 4 };

enum { OVERLAPPING = 16 << 10 }; /* largest calls whose overlap counts, in bytes */

/* Time that a rank takes to make a link: a handshake, or room in shared memory; the calls that share
 * it */
enum { HANDSHAKE_US = 2000, ROOM_US = 500, CALLS = 2000 };

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
	for (int k = 0; tt_algorithms[k]; k++) {
		const struct tt_algorithm *a = tt_algorithms[k];
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

struct choice {
	const struct tt_shape *shape;
	const struct tt_call_facts *call;
	size_t bytes;
	uint8_t nic_class; /* of the current candidate */
};

/* Simulated call: the call itself, or a similar call on fewer ranks. */
struct scenario {
	struct tt_topology topology, groups;
	int host_of[SMALLER], group_of[SMALLER];
	struct tt_sim_world world;
};

static size_t bound_bytes(enum tt_collective c, int nranks, size_t bytes)
{
	bool even = c == TT_ALLREDUCE || c == TT_REDUCE || c == TT_BROADCAST;

	return even || !bytes ? bytes : (bytes + (size_t)nranks - 1) / (size_t)nranks;
}

static int run(struct tt_sim *sim, const struct scenario *s, enum tt_collective c, size_t bytes,
	       struct tt_sim_result *ret)
{
	bytes = bound_bytes(c, s->world.nranks, bytes);
	return tt_sim_run(sim, bytes, ROUNDS * tt_sim_width(sim, bytes), ret);
}

/* Simulates a call, and before it one of a byte, whose plans are the same, unless brief is NULL. A call
 * of one cache line is such a brief one. */
static int simulate(const struct scenario *s, const struct tt_candidate *c, size_t bytes,
		    struct tt_sim_result *brief, struct tt_sim_result *ret)
{
	struct tt_sim *sim;
	int rc = tt_sim_open(&s->world, c->algorithm, c->name, 0, NULL, &sim);

	if (rc)
		return rc;
	if (brief && bytes > TT_LINE)
		rc = run(sim, s, c->algorithm->collective, 1, brief);
	if (!rc)
		rc = run(sim, s, c->algorithm->collective, bytes, ret);
	if (brief && bytes <= TT_LINE)
		*brief = *ret;
	tt_sim_close(sim);
	return rc;
}

static struct tt_topology one_host(int nranks)
{
	static const int all_on_host_0[SMALLER];

	return (struct tt_topology){ .nranks = nranks, .nhosts = 1, .host_of = all_on_host_0 };
}

/* Sets all but the topology, which is set already. Tiles are cut as for the call itself. */
static void set_world(struct scenario *s, const struct choice *f, int cores)
{
	const struct tt_call_facts *call = f->call;
	struct tt_connectivity paths = { .nranks = f->shape->nranks,
					 .one_host = s->topology.nhosts == 1,
					 .over_tcp = call->over_tcp,
					 .cores = cores,
					 .readers_own = call->readers_own,
					 .nic_class = f->nic_class };

	s->world = (struct tt_sim_world){
		.nranks = s->topology.nranks,
		.topology = &s->topology,
		.paths = paths,
		.message_bytes = call->message_bytes ? call->message_bytes
						     : tt_connectivity_message_bytes(&paths),
		.cores = cores,
		.cost = call->cost ? call->cost : &tt_cost_builtin
	};
}

/* Sets a topology of nhosts hosts with on_each ranks each. */
static void set_hosts(struct scenario *s, int nhosts, int on_each)
{
	s->topology = (struct tt_topology){ .nranks = nhosts * on_each,
					    .nhosts = nhosts,
					    .host_of = s->host_of };
	for (int r = 0; r < s->topology.nranks; r++)
		s->host_of[r] = r / on_each;
}

/* Divides the ranks of a topology of one host into up to four locality groups, as those of the call. */
static void set_groups(struct scenario *s, const struct tt_topology *of_call)
{
	int n = s->topology.nranks, most = n / 2 < MOST_GROUPS ? n / 2 : MOST_GROUPS,
	    groups = of_call->nhosts < most ? of_call->nhosts : most;

	s->groups = (struct tt_topology){ .nranks = n, .nhosts = groups, .host_of = s->group_of };
	for (int r = 0; r < n; r++)
		s->group_of[r] = r * groups / n;
	s->topology.groups = &s->groups;
}

/* Half of a number of ranks or hosts: a power of two exactly if n is one. */
static int half(int n)
{
	int h = (n + 1) / 2;

	return (n & (n - 1)) && !(h & (h - 1)) && h > 2 ? h - 1 : h;
}

/* Extrapolates by `more` doublings beyond v[0]. v[1], v[2]: values at half and a quarter of its
 * ranks. */
static uint64_t extrapolate_value(const uint64_t v[3], int more)
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

/* Sets a group of x hosts (several hosts) or x ranks (one host). */
static void set_smaller(const struct choice *f, int x, struct scenario *s)
{
	const struct tt_topology *t = f->shape->topology;
	int n = f->shape->nranks, nhosts = t ? t->nhosts : 1, on_each = n / nhosts,
	    cores = f->call->cores;
	bool crowded = cores && on_each > cores;

	if (nhosts == 1) {
		s->topology = one_host(x);
		if (t && t->groups)
			set_groups(s, t->groups);
		set_world(s, f, crowded ? 1 : 0);
	} else {
		int here = on_each < MOST_ON_HOST ? on_each : MOST_ON_HOST;

		set_hosts(s, x, here);
		set_world(s, f, crowded ? (here * cores + on_each - 1) / on_each : 0);
	}
}

/* Simulates a long and a short call on each of three smaller groups, since the cost of bytes grows
 * with the ranks in another way than the cost of steps. */
static int extrapolate(const struct choice *f, struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	bool hosts = t && t->nhosts > 1, crowded;
	int x = hosts ? t->nhosts : f->shape->nranks, more = 0, rc = 0;
	uint64_t longer[3], brief[3], links[3], most[3];

	for (; x > (hosts ? MOST_HOSTS : t && t->groups ? 2 * EXACT : EXACT); more++)
		x = half(x);
	for (int i = 0; i < 3 && !rc; i++, x = half(x)) {
		struct tt_sim_result a, b;
		struct scenario s;

		set_smaller(f, x, &s);
		rc = simulate(&s, c, f->bytes, &b, &a);
		if (rc)
			break;
		brief[i] = b.time_ps;
		longer[i] = a.time_ps > b.time_ps ? a.time_ps - b.time_ps : 0;
		links[i] = a.links;
		most[i] = a.most_links;
		if (i == 0)
			memcpy(c->part_ps, a.part_ps, sizeof(c->part_ps));
		/* the group has as many hosts as the call: nothing to extrapolate */
		if (!more && hosts) {
			c->model_ps = a.time_ps;
			c->links = a.most_links;
			return 0;
		}
	}
	if (rc)
		return rc;
	c->extrapolated = true;
	c->model_ps = extrapolate_value(longer, more) + extrapolate_value(brief, more);
	c->links = extrapolate_value(most, more);
	crowded = !hosts && f->call->cores && f->shape->nranks > f->call->cores;
	if (crowded) {
		c->model_ps /= (uint64_t)f->call->cores;
		c->links = extrapolate_value(links, more) / (uint64_t)f->call->cores;
	}
	return 0;
}

static int exactly(const struct choice *f, struct tt_candidate *c)
{
	struct tt_sim_result result;
	struct scenario s;
	int rc;

	s.topology = f->shape->topology ? *f->shape->topology : one_host(f->shape->nranks);
	set_world(&s, f, f->call->cores);
	rc = simulate(&s, c, f->bytes, NULL, &result);
	if (rc)
		return rc;
	c->model_ps = result.time_ps;
	c->busiest_ps = result.busiest_ps;
	memcpy(c->part_ps, result.part_ps, sizeof(c->part_ps));
	return 0;
}

static int predict(const struct choice *f, struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	const struct tt_cost *cost = f->call->cost ? f->call->cost : &tt_cost_builtin;
	enum tt_link_class link = tt_cost_class(t && t->nhosts > 1, f->call->over_tcp,
						(enum tt_link_class)f->nic_class);
	int rc = f->shape->nranks <= EXACT ? exactly(f, c) : extrapolate(f, c);

	c->applies = !rc;
	if (rc)
		return rc == TT_ARG ? 0 : rc; /* TT_ARG: does not apply */
	c->predicted_ps = tt_cost_corrected(cost, tt_algorithm_number(c->algorithm), link,
					    f->shape->nranks, f->bytes, c->model_ps);
	c->busiest_ps = tt_cost_corrected(cost, tt_algorithm_number(c->algorithm), link,
					  f->shape->nranks, f->bytes, c->busiest_ps);
	return 0;
}

/* Variants matter only on several hosts with several ranks each; elsewhere they repeat others. */
static bool takes_part(const struct tt_shape *s, const struct tt_candidate *c)
{
	const struct tt_topology *t = s->topology && s->topology->nhosts == 1 && s->topology->groups
					      ? s->topology->groups
					      : s->topology;
	bool levels = t && t->nhosts > 1 && t->nhosts < s->nranks;

	return levels || !c->algorithm->variants;
}

/* A call's share of the time to connect. A small call of many ranks may take as long with n / 2 links
 * of every rank as with a few, but its first call takes a minute and gigabytes (256 ranks on two
 * cores: 47 s over tcp with hierarchical-copy, 2.3 s with reduce-to-one; 33 GB of shared memory). */
static uint64_t connecting_ps(const struct choice *f, const struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	bool shared = (!t || t->nhosts == 1) && !f->call->over_tcp;

	return c->links * (shared ? ROOM_US : HANDSHAKE_US) * 1000000 / CALLS;
}

/* Do calls of the same kind overlap, one after the other? The root of a broadcast or scatter only sends, so it begins the
 * next call while the others receive, and each call takes as long as the rank that works longest. Measured by tcp among
 * ranks that share cores; elsewhere the time of a single call decides. */
static bool overlaps(const struct choice *f, const struct tt_candidate *c)
{
	enum tt_collective of = f->shape->collective;
	const struct tt_topology *t = f->shape->topology;

	return (of == TT_BROADCAST || of == TT_SCATTER) && f->bytes <= OVERLAPPING &&
	       c->busiest_ps && f->call->over_tcp && (!t || t->nhosts == 1) && f->call->cores &&
	       f->shape->nranks > f->call->cores;
}

/* Single copy, which reads the buffers of peers, halves the time of an algorithm if they are memory
 * of tuttiMemAlloc. The kind of memory is unknown at the choice, so such an algorithm counts 3/4 of
 * its predicted time; predictions err by as much. Where calls may overlap, a single call and one of many count alike. */
static void weigh(const struct choice *f, struct tt_candidate *c)
{
	const struct tt_topology *t = f->shape->topology;
	bool crowded = f->call->cores && f->shape->nranks > f->call->cores;

	c->in_place = c->algorithm->in_place && f->bytes >= TT_SINGLE_COPY_BYTES &&
		      !f->call->over_tcp && !crowded && (!t || t->nhosts == 1) &&
		      f->shape->nranks <= TT_SINGLE_COPY_RANKS;
	c->counts_ps = c->in_place ? c->predicted_ps - c->predicted_ps / 4 : c->predicted_ps;
	c->overlaps = overlaps(f, c);
	if (c->overlaps)
		c->counts_ps = (c->counts_ps + c->busiest_ps) / 2;
	c->counts_ps += connecting_ps(f, c);
}

/* Appends c, predicted, once for each path between the hosts: tcp, NICs. 0 | < 0 */
static int predict_paths(struct choice *f, const struct tt_candidate *c, struct tt_candidate *list,
			 int *count, int *best)
{
	const uint8_t paths[2] = { TT_NO_NIC, f->call->nic_class };

	for (int i = f->call->nic_only && f->call->nic_class; i < 2 && *count < TT_MOST_CANDIDATES;
	     i++) {
		struct tt_candidate *it = &list[*count];
		int rc;

		if (i && paths[i] == TT_NO_NIC)
			break;
		*it = *c;
		it->nic_class = f->nic_class = paths[i];
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

static struct choice facts_of(const struct tt_shape *shape, const struct tt_call_facts *call)
{
	int class = tt_size_class(call->bytes);

	return (struct choice){ .shape = shape,
				.call = call,
				.bytes = (size_t)1 << (class < 62 ? class : 62) };
}

int tt_plan_nic(const struct tt_shape *shape, const struct tt_call_facts *call,
		const struct tt_algorithm *algorithm, const char name[64])
{
	struct tt_candidate list[2], c = { .algorithm = algorithm };
	struct choice f = facts_of(shape, call);
	int count = 0, best = -1, rc;

	memcpy(c.name, name, sizeof(c.name));
	rc = predict_paths(&f, &c, list, &count, &best);
	return rc ? rc : best < 0 ? TT_NO_NIC : list[best].nic_class;
}

int tt_plan_candidates(const struct tt_shape *shape, const struct tt_call_facts *call,
		       struct tt_candidate list[TT_MOST_CANDIDATES], int *ret_best)
{
	struct choice f = facts_of(shape, call);
	struct tt_candidate c;
	int count = 0, best = -1, rc;

	for (int i = 0; tt_candidate_number(shape->collective, i, &c); i++) {
		c.number = i;
		if (!takes_part(shape, &c))
			continue;
		rc = predict_paths(&f, &c, list, &count, &best);
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
