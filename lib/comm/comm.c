/*
 * comm.c - create and free a communicator
 *
 * Called by api. Steps: join through control, exchange facts about ranks and hosts, open the
 * transports (paths.c), choose the wait policy of this rank. Every decision that must be equal on
 * all ranks uses only data that control delivered to all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/accelerator.h"
#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "comm/paths.h"
#include "comm/ras.h"
#include "comm/trace.h"
#include "comm/tuning.h"
#include "control/unique_id.h"

static void find_hosts(tuttiComm_t c)
{
	c->hosts.topology.nranks = c->nranks;
	c->hosts.topology.host_of = tt_control_hosts(c->ctl, &c->hosts.topology.host_firsts,
						     &c->hosts.topology.nhosts);
	c->hosts.one_host = c->hosts.topology.nhosts == 1;
}

static struct tt_rank_facts facts_of(const struct tt_parts *all, int rank)
{
	struct tt_rank_facts facts;

	tt_part_get(all, rank, &facts);
	facts.transport[sizeof(facts.transport) - 1] = facts.algo[sizeof(facts.algo) - 1] = '\0';
	return facts;
}

/* A join compares settings in control. A split compares here: each rank may have its own config. */
static int compare_settings(tuttiComm_t c, const struct tt_parts *all)
{
	struct tt_rank_facts root = facts_of(all, 0);

	for (int r = tt_part_end(all, 0); r < c->nranks; r = tt_part_end(all, r)) {
		struct tt_rank_facts other = facts_of(all, r);

		if (strcmp(other.transport, root.transport) || strcmp(other.algo, root.algo))
			return tt_fail(
				TT_USAGE,
				"rank 0 splits with transport %s, algo %s, rank %d with transport %s, "
				"algo %s: they must be equal",
				root.transport, root.algo, r, other.transport, other.algo);
	}
	return 0;
}

/* Counts the cores of one host. */
static int cores_of_host(const struct tt_host_ranks *hosts, int host, const struct tt_parts *all)
{
	struct tt_cores sum = { 0 };

	for (int i = hosts->first[host]; i < hosts->first[host + 1]; i++) {
		struct tt_rank_facts facts = facts_of(all, hosts->rank[i]);

		tt_cores_add(&sum, &facts.cores);
	}
	return tt_cores_count(&sum);
}

/* The host with the fewest cores per rank delays all others, so the choice of plans uses that
 * host. */
static void find_fewest_cores(tuttiComm_t c, const struct tt_host_ranks *hosts,
			      const struct tt_parts *all)
{
	int least_ranks = 0, run_end = 0, before = 0;

	for (int h = 0; h < hosts->nhosts; h++) {
		int first = hosts->first[h], end = hosts->first[h + 1], ranks = end - first, cores;

		/* as many ranks as on the host before, and all with its facts */
		if (ranks == before && hosts->rank[end - 1] < run_end)
			continue;
		run_end = tt_part_end(all, hosts->rank[first]);
		before = hosts->rank[end - 1] < run_end ? ranks : 0;
		cores = cores_of_host(hosts, h, all);
		if (!least_ranks ||
		    (int64_t)cores * least_ranks < (int64_t)c->hosts.cores * ranks) {
			c->hosts.cores = cores;
			least_ranks = ranks;
		}
	}
}

/* The wait policy depends on the ranks that share this rank's cores. All ranks of a host get the
 * same answer. */
static void choose_wait_policy(tuttiComm_t c, int ranks, int cores, const char *wait)
{
	static const char *const names[] = {
		[TT_WAIT_SPIN] = "spin", [TT_WAIT_YIELD] = "yield", [TT_WAIT_SLEEP] = "sleep"
	};

	c->hosts.ranks_here = ranks;
	c->hosts.crowded = ranks > cores;
	c->wait.policy = c->hosts.crowded ? TT_WAIT_YIELD : TT_WAIT_SPIN;
	for (int p = TT_WAIT_SPIN; p <= TT_WAIT_SLEEP; p++)
		if (!strcmp(wait, names[p]))
			c->wait.policy = (enum tt_wait_policy)p;
	tt_log(TT_LOG_DEBUG, "rank %d: %d ranks on %d cores of this host, wait %s", c->rank, ranks,
	       cores, names[c->wait.policy]);
}

/* Groups the ranks that are bound to different parts of a host. Two ranks form no groups. Groups that are
 * the hosts are none. */
static int form_groups(tuttiComm_t c, const struct tt_host_ranks *hosts, const struct tt_parts *all)
{
	struct tt_locality *localities = malloc((size_t)c->nranks * sizeof(*localities));

	c->hosts.group_of = malloc((size_t)c->nranks * sizeof(*c->hosts.group_of));
	if (!localities || !c->hosts.group_of) {
		free(localities);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	}
	for (int r = 0; r < c->nranks; r++)
		localities[r] = facts_of(all, r).locality;
	c->hosts.groups = (struct tt_topology){ .nranks = c->nranks, .host_of = c->hosts.group_of };
	c->hosts.groups.nhosts = tt_groups_form(localities, hosts, c->nranks, c->hosts.group_of);
	if (c->hosts.groups.nhosts > c->hosts.topology.nhosts) {
		c->hosts.topology.groups = &c->hosts.groups;
		tt_log(TT_LOG_DEBUG, "rank %d: in group %d of %d", c->rank,
		       c->hosts.group_of[c->rank], c->hosts.groups.nhosts);
	} else {
		free(c->hosts.group_of);
		c->hosts.group_of = NULL;
	}
	free(localities);
	return 0;
}

static int cores_of_rank(const struct tt_parts *all, int rank)
{
	struct tt_rank_facts facts = facts_of(all, rank);

	return tt_cores_count(&facts.cores);
}

/* Derives cores and wait policy where no host has two ranks: reads facts once for each run of ranks with equal facts. */
static void judge_lone_ranks(tuttiComm_t c, const struct tt_parts *all, const char *wait)
{
	c->hosts.cores = cores_of_rank(all, 0);
	for (int r = tt_part_end(all, 0); r < c->nranks; r = tt_part_end(all, r)) {
		int cores = cores_of_rank(all, r);

		c->hosts.cores = cores < c->hosts.cores ? cores : c->hosts.cores;
	}
	choose_wait_policy(c, 1, cores_of_rank(all, c->rank), wait);
}

/* Derives cores, wait policy and locality groups from the facts of all ranks. */
static int judge_hosts(tuttiComm_t c, const struct tt_parts *all, const char *wait)
{
	int host = tt_topology_host(&c->hosts.topology, c->rank), rc;
	struct tt_host_ranks hosts;

	if (c->hosts.topology.nhosts == c->nranks) {
		judge_lone_ranks(c, all, wait);
		return 0;
	}
	rc = tt_host_ranks_make(&c->hosts.topology, &hosts);
	if (rc)
		return tt_fail(rc, "rank %d: %s", c->rank, tt_error_text());
	find_fewest_cores(c, &hosts, all);
	choose_wait_policy(c, hosts.first[host + 1] - hosts.first[host],
			   cores_of_host(&hosts, host, all), wait);
	if (c->nranks > 2)
		rc = form_groups(c, &hosts, all);
	tt_host_ranks_free(&hosts);
	return rc;
}

struct host_machine {
	uint64_t machine;
	int rank; /* the host's first one */
};

static int compare_machines(const void *a, const void *b)
{
	const struct host_machine *x = a, *y = b;

	return x->machine != y->machine ? (x->machine < y->machine ? -1 : 1) : x->rank - y->rank;
}

/* Warns, on rank 0, of two hosts on one machine: hosts are network namespaces, as containers often
 * have, and share no memory. At most one warning a process, and one more for ranks with GPUs */
static void warn_of_namespaces(tuttiComm_t c, const struct tt_parts *all, bool device)
{
	static atomic_bool warned[2];
	int n = c->hosts.topology.nhosts, found = 0;
	struct host_machine *hosts = c->rank || n < 2 ? NULL : calloc((size_t)n, sizeof(*hosts));

	if (!hosts)
		return;
	for (int r = c->nranks; r-- > 0;)
		hosts[tt_topology_host(&c->hosts.topology, r)] = (struct host_machine){
			facts_of(all, r).machine, r
		};
	qsort(hosts, (size_t)n, sizeof(*hosts), compare_machines);
	for (int h = 1; h < n && !found; h++)
		found = hosts[h].machine && hosts[h].machine == hosts[h - 1].machine ? h : 0;
	if (found && !atomic_exchange(&warned[device], true))
		tt_log(device ? TT_LOG_WARN : TT_LOG_INFO,
		       "rank 0: ranks %d and %d are on one machine in different network namespaces, as containers are: their messages go over the network%s; start the containers in the host's network namespace (docker --network=host, Kubernetes hostNetwork)",
		       hosts[found - 1].rank, hosts[found].rank,
		       device ? ", and GPU memory through host memory" : "");
	free(hosts);
}

static int use_facts(tuttiComm_t c, const struct tt_env *env, const struct tt_parts *all)
{
	bool device = true;
	int rc = judge_hosts(c, all, env->wait);

	if (!rc)
		rc = tt_tuning_share(c, facts_of(all, 0).tuning_bytes);
	for (int r = 0; !rc && r < c->nranks; r = tt_part_end(all, r)) {
		device &= facts_of(all, r).device;
		c->hosts.readers_own |= facts_of(all, r).readers_own;
	}
	if (!rc)
		warn_of_namespaces(c, all, device);
	if (!rc && device && !c->gpu) /* a rank between has changed them */
		rc = tt_fail(
			TT_INTERNAL,
			"rank %d: the facts of the ranks say that it has a GPU, and it has none",
			c->rank);
	if (!rc && device)
		rc = tt_accelerator.exchange(c);
	return rc;
}

int tt_comm_facts(tuttiComm_t c, struct tt_control *ctl, const struct tt_env *env,
		  struct tt_rank_facts *ret_facts)
{
	struct tt_rank_facts *mine = ret_facts;
	int rc;

	memset(mine, 0, sizeof(*mine)); /* equal facts have equal bytes */
	snprintf(mine->transport, sizeof(mine->transport), "%s", c->settings.transport);
	snprintf(mine->algo, sizeof(mine->algo), "%s", c->settings.algo);
	mine->machine = *env->host_id ? 0 : tt_id_machine();
	tt_cores_mine(&mine->cores);
	mine->readers_own = tt_readers_own;
	if (c->nranks > 2)
		mine->locality = tt_locality_read(TT_SYS, mine->cores.mask);
	rc = tt_accelerator.open(c, env, &mine->device);
	rc = rc ? rc : tt_tuning_read(c, env->tuning, &mine->tuning_bytes);
	return rc ? rc : tt_paths_announce(c, ctl);
}

/* Wakes this rank, which may sleep in a transport: another rank broke the communicator, or has
 * connected. Thread: control's, or a dialer's. */
static void wake_all(void *ctx)
{
	tuttiComm_t c = ctx;

	for (int i = 0; i < c->paths.nep; i++)
		c->paths.ep[i]->t->wake(c->paths.ep[i]);
}

/* Asks the transports for a lost message to peer. Thread: control's. */
static bool lost(void *ctx, int peer, char *text, size_t bytes)
{
	tuttiComm_t c = ctx;

	for (int i = 0; i < c->paths.npaths; i++) {
		struct tt_endpoint *ep = tt_path_via(&c->paths.path[i], peer);

		if (ep->t->fault_ops && ep->t->fault_ops->lost &&
		    ep->t->fault_ops->lost(ep, peer, text, bytes))
			return true;
	}
	return false;
}

/* The counts of this rank's collectives. Thread: any. */
static bool tally(void *ctx, struct tt_tally *ret_tally, uint64_t *ret_running_ns)
{
	tuttiComm_t c = ctx;

	if (!c->trace || !c->trace->metrics)
		return false;
	tt_metrics_tally(c->trace->metrics, tt_trace_ticks(), ret_tally, ret_running_ns);
	return true;
}

static const struct tt_control_observer observer = {
	.broken = wake_all, .connected = wake_all, .lost = lost, .tally = tally
};

/* The name of an algorithm by its index in the table, for the error texts of control. */
static const char *algorithm_name(unsigned algorithm)
{
	for (unsigned i = 0; tt_algorithms[i]; i++)
		if (i == algorithm)
			return tt_algorithms[i]->name;
	return NULL;
}

tuttiComm_t tt_comm_alloc(int rank, int nranks)
{
	tuttiComm_t c = tt_handle_new(sizeof(*c));

	if (!c)
		return NULL;
	tt_asymmetric_fence_prepare();
	tt_call_name_algorithms(algorithm_name);
	c->magic = TT_COMM_MAGIC;
	c->fork_count = tt_forks;
	c->rank = rank;
	c->nranks = nranks;
	c->paths.announcement.fd = -1;
	c->paths.npaths = 1;
	c->paths.path[0].ep = c->paths.ep;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

void tt_comm_free(tuttiComm_t c)
{
	if (!c)
		return;
	atomic_store(&c->magic, 0);
	tt_ras_leave(c->ras);
	if (c->ctl)
		tt_control_unobserve(c->ctl, &observer, c);
	tt_accelerator.close(c);
	tt_am_close(c->am);
	tt_paths_close(c);
	tt_comm_deregister_all(c);
	if (c->ctl)
		tt_control_leave(c->ctl);
	tt_trace_close(c->trace);
	free(c->memory.scratch);
	free(c->memory.user_ops);
	for (int i = 0; i < TT_PATHS; i++) {
		tt_path_free(&c->paths.path[i]);
		tt_path_free(&c->paths.nic_path[i]);
	}
	free(c->calls.p2p_sent);
	free(c->calls.last_received);
	free(c->hosts.group_of);
	tt_cost_free(c->cost);
	pthread_mutex_destroy(&c->lock);
	tt_handle_free(c, sizeof(*c));
}

static int open_trace(tuttiComm_t c, const struct tt_env *env)
{
	struct tt_trace_head facts = { .comm = c->mark, .rank = c->rank, .nranks = c->nranks };
	bool counts = *env->metrics || *env->ras || *env->top;

	if (!*env->trace && !counts)
		return 0;
	tt_control_host_name(c->ctl, c->rank, facts.host, sizeof(facts.host));
	snprintf(facts.name, sizeof(facts.name), "%s", c->settings.name);
	return tt_trace_open(env->trace, counts ? env->metrics : NULL, &facts, &c->trace);
}

/* Adds the communicator to the RAS service, if TUTTI_RAS is set. */
static int enter_ras(tuttiComm_t c, const struct tt_env *env)
{
	struct tt_ras_member member = {
		.ctl = c->ctl, .comm = c->mark, .rank = c->rank, .nranks = c->nranks
	};

	return *env->ras ? tt_ras_enter(env->ras, &member, &c->ras) : 0;
}

/* Reports a failure to the other ranks, which may wait for this one. A wrong setting is wrong usage
 * for all ranks. */
static int raise_failure(tuttiComm_t c, int rc)
{
	if (rc)
		tt_control_raise(c->ctl, rc == TT_ARG ? TT_USAGE : rc, c->rank, tt_error_text());
	return rc;
}

static int prepare(tuttiComm_t c, const struct tt_env *env,
		   const struct tt_parts all[TT_FIRST_COLUMNS])
{
	int rc;

	find_hosts(c);
	if ((rc = use_facts(c, env, &all[TT_COLUMN_FACTS])) || (rc = open_trace(c, env)) ||
	    (rc = tt_paths_open(c, &all[TT_COLUMN_ANNOUNCED])) ||
	    (rc = tt_am_make(c->ctl, c->rank, c->nranks, c->settings.timeout_ms, &c->am)))
		return rc;
	tt_control_describe(c->ctl, c->mark, c->settings.name);
	return enter_ras(c, env);
}

int tt_comm_prepare(tuttiComm_t c, const struct tt_env *env,
		    const struct tt_parts all[TT_FIRST_COLUMNS], uint64_t mark)
{
	int rc = compare_settings(c, &all[TT_COLUMN_FACTS]); /* every rank finds the same */

	c->mark = mark ? mark : facts_of(&all[TT_COLUMN_FACTS], 0).mark;
	return rc ? rc : raise_failure(c, prepare(c, env, all));
}

int tt_comm_complete(tuttiComm_t c, const struct tt_parts *all)
{
	int rc = tt_paths_agree(c, all);

	if (rc)
		return raise_failure(c, rc);
	tt_control_observe(c->ctl, &observer, c);
	tt_join_log(c);
	return 0;
}

/* No rank returns before all ranks have called. */
int tt_comm_setup(tuttiComm_t c, const struct tt_env *env)
{
	struct tt_rank_facts mine;
	struct tt_path_facts path;
	struct tt_parts all[TT_FIRST_COLUMNS], paths = { .mine = &path, .bytes = sizeof(path) };
	int rc = tt_comm_facts(c, c->ctl, env, &mine);

	tt_comm_columns(&mine, &c->paths.announcement, all);
	mine.mark = c->rank ? 0 : tt_mix(tt_now_ns(), (uint64_t)getpid());
	rc = rc ? rc
		: tt_control_allgather_columns(c->ctl, all, TT_FIRST_COLUMNS, c->setup_deadline_ns);
	if (rc)
		return raise_failure(c, rc);
	rc = tt_comm_prepare(c, env, all, 0);
	tt_comm_free_columns(all);
	if (rc)
		return rc;
	if ((rc = tt_paths_facts(c, &path)) ||
	    (rc = tt_control_allgather_columns(c->ctl, &paths, 1, c->setup_deadline_ns)))
		return raise_failure(c, rc);
	rc = tt_comm_complete(c, &paths);
	tt_parts_free(&paths);
	return rc;
}

int tt_comm_check_ranks(const char *call, int rank, int nranks)
{
	if (nranks >= 1 && nranks <= TT_RANKS_MOST && rank >= 0 && rank < nranks)
		return 0;
	return tt_fail(TT_ARG,
		       "%s: rank %d of %d: nranks must be 1 to %d, and rank 0 to nranks - 1", call,
		       rank, nranks, TT_RANKS_MOST);
}

/* Completes a join by the settings of c. settings: memory for those that must agree, as text */
static void describe_join(tuttiComm_t c, const struct tt_env *env, char settings[512],
			  struct tt_join *join)
{
	snprintf(settings, 512,
		 "version=%d transport=%s algo=%s tile_bytes=%lld shrink=%s encrypt=%s",
		 TUTTI_VERSION_CODE, c->settings.transport, c->settings.algo,
		 (long long)c->settings.tile_bytes, c->settings.majority ? "majority" : "any",
		 env->encrypt);
	join->settings = settings;
	join->timeout_ms = c->settings.timeout_ms;
	join->ifname = env->ifname;
	join->host_id = env->host_id;
	join->port_range = env->ports;
	join->id_folder = env->top;
}

int tt_comm_join(const tuttiUniqueId *id, int nranks, int rank, const tuttiConfig_t *config,
		 tuttiComm_t *ret_comm)
{
	struct tt_env env;
	char settings[512];
	struct tt_join join = { .id = id,
				.rank = rank,
				.nranks = nranks,
				.settings = "",
				.ifname = "",
				.host_id = "",
				.port_range = "",
				.id_folder = "" };
	tuttiComm_t c;
	int rc;

	if ((rc = tt_comm_check_ranks("tuttiCommInitRank", rank, nranks)))
		return rc;
	c = tt_comm_alloc(rank, nranks);
	if (!c) {
		tt_fail(TT_SYSTEM, "rank %d: no memory for a communicator of %d ranks", rank,
			nranks);
		return tt_control_decline(&join, TT_SYSTEM);
	}
	if ((rc = tt_comm_settings(c, NULL, config, &env)) || (rc = tt_comm_fault(c, env.fault))) {
		tt_control_decline(&join, rc);
		goto free_comm;
	}
	describe_join(c, &env, settings, &join);
	c->setup_deadline_ns = tt_deadline_ns(c->settings.timeout_ms);
	if ((rc = tt_control_join(&join, &c->ctl)) || (rc = tt_comm_setup(c, &env)))
		goto free_comm;
	*ret_comm = c;
	return 0;
free_comm:
	tt_comm_free(c);
	return rc;
}

int tt_comm_refuse(tuttiComm_t c)
{
	if (!c)
		return tt_fail(TT_ARG, "comm is NULL: join one with tuttiCommInitRank first");
	if (!tt_comm_is_live(c))
		return tt_fail(TT_ARG, "comm %p is not a communicator, or it was destroyed",
			       (void *)c);
	return tt_fail(
		TT_ARG,
		"rank %d: this communicator was made before a fork; the child must join its own",
		c->rank);
}

int tt_comm_failed(tuttiComm_t c, int code)
{
	pthread_mutex_lock(&c->lock);
	if (!c->failure.code) {
		c->failure.code = code;
		snprintf(c->failure.text, sizeof(c->failure.text), "%s", tt_error_text());
		if (c->trace)
			tt_trace_failed(c->trace, c->failure.text);
	}
	pthread_mutex_unlock(&c->lock);
	return code;
}

struct tt_call_facts tt_comm_call_facts(tuttiComm_t c, size_t bytes)
{
	return (struct tt_call_facts){
		.bytes = bytes,
		.over_tcp = c->paths.over_tcp,
		.cores = c->hosts.cores,
		.readers_own = c->hosts.readers_own,
		.message_bytes = c->paths.world.message_bytes,
		.cost = c->cost,
		.nic_class = c->paths.nic_class,
		.nic_only = c->paths.npaths == 1,
	};
}

void *tt_comm_scratch(tuttiComm_t c, size_t bytes)
{
	void *p;

	if (bytes <= c->memory.scratch_bytes)
		return c->memory.scratch;
	p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!p) {
		tt_fail(TT_SYSTEM, "rank %d: no memory for %zu bytes of scratch", c->rank, bytes);
		return NULL;
	}
	free(c->memory.scratch);
	c->memory.scratch = p;
	c->memory.scratch_bytes = (bytes + 4095) / 4096 * 4096;
	atomic_fetch_add(&c->memory.allocations, 1);
	return p;
}
