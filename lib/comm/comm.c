/*
 * comm.c - make and free a communicator
 *
 * Called by api. Joins through control (who is there), asks the hosts, opens the transports
 * (paths.c) and decides how this rank waits. Everything that ranks must decide alike is decided
 * from what control handed to all of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "gpu/gpu.h"
#include "comm/comm_internal.h"
#include "comm/paths.h"
#include "comm/tuning.h"

static int host_topology(tuttiComm_t c)
{
	c->topology.nranks = c->nranks;
	c->topology.host_of = tt_control_hosts(c->ctl, &c->topology.nhosts);
	c->one_host = c->topology.nhosts == 1;
	return 0;
}

/* What each rank tells the others about itself. */
struct neighbour {
	struct tt_cores cores;
	struct tt_locality place;
	uint64_t tuning_bytes;
	bool device;
};

/* Cores and ranks of one host. here: room for nranks */
static int cores_of_host(tuttiComm_t c, int host, const struct neighbour *all,
			 struct tt_cores *here, int *ret_ranks)
{
	int n = 0;

	for (int r = 0; r < c->nranks; r++)
		if (c->topology.host_of[r] == host)
			here[n++] = all[r].cores;
	*ret_ranks = n;
	return tt_cores_count(here, n);
}

/* The host with the fewest cores for its ranks holds all others up: by it plans are chosen. */
static void find_fewest_cores(tuttiComm_t c, const struct neighbour *all, struct tt_cores *here)
{
	int least_ranks = 0;

	for (int h = 0; h < c->topology.nhosts; h++) {
		int ranks, cores = cores_of_host(c, h, all, here, &ranks);

		if (!least_ranks || (int64_t)cores * least_ranks < (int64_t)c->cores * ranks) {
			c->cores = cores;
			least_ranks = ranks;
		}
	}
}

/* Who shares this rank's processors decides how it waits;
 * the others of the host come to the same answer. */
static int decide_waiting(tuttiComm_t c, const struct neighbour *all, const char *wait)
{
	static const char *const words[] = { [TT_WAIT_SPIN] = "spin", [TT_WAIT_YIELD] = "yield",
					     [TT_WAIT_SLEEP] = "sleep" };
	struct tt_cores *here = malloc((size_t)c->nranks * sizeof(*here));
	int ranks, cores;

	if (!here)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	find_fewest_cores(c, all, here);
	cores = cores_of_host(c, c->topology.host_of[c->rank], all, here, &ranks);
	free(here);
	c->ranks_here = ranks;
	c->crowded = ranks > cores;
	c->policy = c->crowded ? TT_WAIT_YIELD : TT_WAIT_SPIN;
	for (int p = TT_WAIT_SPIN; p <= TT_WAIT_SLEEP; p++)
		if (!strcmp(wait, words[p]))
			c->policy = (enum tt_wait_policy)p;
	tt_log(TT_LOG_DEBUG, "rank %d: %d ranks on %d cores of this host, wait %s", c->rank, ranks,
	       cores, words[c->policy]);
	return 0;
}

/* Ranks that are bound to different parts of a host. Of two ranks there are no groups. */
static int form_groups(tuttiComm_t c, const struct neighbour *all)
{
	struct tt_locality *places = malloc((size_t)c->nranks * sizeof(*places));

	c->group_of = malloc((size_t)c->nranks * sizeof(*c->group_of));
	if (!places || !c->group_of) {
		free(places);
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	}
	for (int r = 0; r < c->nranks; r++)
		places[r] = all[r].place;
	c->groups = (struct tt_topology){ .nranks = c->nranks, .host_of = c->group_of };
	c->groups.nhosts = tt_groups_form(places, c->topology.host_of, c->nranks, c->group_of);
	if (c->groups.nhosts > c->topology.nhosts) {
		c->topology.groups = &c->groups;
		tt_log(TT_LOG_DEBUG, "rank %d: in group %d of %d", c->rank, c->group_of[c->rank],
		       c->groups.nhosts);
	}
	free(places);
	return 0;
}

static int look_around(tuttiComm_t c, const struct tt_env *env)
{
	struct neighbour mine, *all = malloc((size_t)c->nranks * sizeof(*all));
	int rc;

	if (!all)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", c->rank, c->nranks);
	memset(&mine, 0, sizeof(mine));
	tt_cores_mine(&mine.cores);
	if (c->nranks > 2)
		mine.place = tt_locality_read(TT_SYS, mine.cores.mask);
	rc = tt_gpu_open(c, env);
	mine.device = c->gpu && !c->gpu->staged_only;
	if (!rc)
		rc = tt_tuning_read(c, env->tuning, &mine.tuning_bytes);
	if (!rc)
		rc = tt_control_allgather(c->ctl, &mine, sizeof(mine), all,
					  tt_deadline_ns(c->timeout_ms));
	if (!rc && !(rc = decide_waiting(c, all, env->wait)) && c->nranks > 2)
		rc = form_groups(c, all);
	if (!rc)
		rc = tt_tuning_share(c, all[0].tuning_bytes);
	for (int r = 0; !rc && r < c->nranks; r++)
		mine.device &= all[r].device;
	if (!rc && mine.device)
		rc = tt_gpu_meet(c);
	free(all);
	return rc;
}

/* Another rank broke the communicator while this one may
 * be asleep in a transport. Thread: control's. */
static void wake_all(void *ctx)
{
	tuttiComm_t c = ctx;

	for (int i = 0; i < c->nep; i++)
		c->ep[i]->t->wake(c->ep[i]);
}

/* Thread: control's. */
static bool lost(void *ctx, int peer, char *text, size_t bytes)
{
	tuttiComm_t c = ctx;

	for (int i = 0; i < c->npaths; i++) {
		struct tt_endpoint *ep = c->road[i].via[peer];

		if (ep->t->lost && ep->t->lost(ep, peer, text, bytes))
			return true;
	}
	return false;
}

tuttiComm_t tt_comm_blank(int rank, int nranks)
{
	size_t n = (size_t)nranks;
	tuttiComm_t c = tt_handle_new(sizeof(*c));

	if (!c)
		return NULL;
	tt_asymmetric_fence_prepare();
	c->magic = TT_COMM_MAGIC;
	c->fork_count = tt_fork_count();
	c->rank = rank;
	c->nranks = nranks;
	c->npaths = tt_path_make(&c->road[0], nranks) == 0;
	c->p2p_sent = calloc(n, sizeof(uint64_t));
	c->p2p_received = calloc(n, sizeof(uint64_t));
	c->last_received = calloc(n, sizeof(uint64_t));
	pthread_mutex_init(&c->lock, NULL);
	if (c->npaths && c->p2p_sent && c->p2p_received && c->last_received)
		return c;
	tt_comm_free(c);
	return NULL;
}

void tt_comm_free(tuttiComm_t c)
{
	if (!c)
		return;
	atomic_store(&c->magic, 0);
	if (c->ctl) {
		tt_control_on_broken(c->ctl, NULL, NULL);
		tt_control_on_awaited(c->ctl, NULL, NULL);
	}
	tt_gpu_close(c);
	tt_am_close(c->mail);
	tt_paths_close(c);
	tt_comm_deregister_all(c);
	if (c->ctl)
		tt_control_leave(c->ctl);
	free(c->scratch);
	free(c->user_ops);
	for (int i = 0; i < TT_PATHS; i++) {
		free(c->road[i].via);
		free(c->road[i].links);
	}
	free(c->p2p_sent);
	free(c->p2p_received);
	free(c->last_received);
	free(c->group_of);
	tt_cost_free(c->cost);
	pthread_mutex_destroy(&c->lock);
	tt_handle_free(c, sizeof(*c));
}

/* What is left to do once control stands; on failure the other ranks learn it from control at once.
 * No rank is through before all are. */
int tt_comm_furnish(tuttiComm_t c, const struct tt_env *env)
{
	int rc;

	if ((rc = host_topology(c)) || (rc = look_around(c, env)) ||
	    (rc = tt_paths_open(c)) ||
	    (rc = tt_am_make(c->ctl, c->rank, c->nranks, c->timeout_ms, &c->mail)) ||
	    (rc = tt_paths_agree(c))) {
		tt_control_raise(c->ctl, rc, c->rank, tt_error_text());
		return rc;
	}
	tt_control_on_broken(c->ctl, wake_all, c);
	tt_control_on_awaited(c->ctl, lost, c);
	return 0;
}

int tt_comm_join(const tuttiUniqueId *id, int nranks, int rank, const tuttiConfig_t *config,
		 tuttiComm_t *ret_comm)
{
	struct tt_env env;
	char settings[512];
	struct tt_join join = { .id = id, .rank = rank, .nranks = nranks, .settings = "",
				.ifname = "", .host_id = "", .port_range = "" };
	tuttiComm_t c;
	int rc;

	if (nranks < 1 || rank < 0 || rank >= nranks)
		return tt_fail(TT_ARG,
			       "rank %d of %d: nranks must be at least 1 and rank 0..nranks-1",
			       rank, nranks);
	c = tt_comm_blank(rank, nranks);
	if (!c)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a communicator of %d ranks", rank,
			       nranks);
	if ((rc = tt_comm_settings(c, NULL, config, &env)) || (rc = tt_comm_fault(c, env.fault))) {
		tt_control_decline(&join, rc);
		goto free_comm;
	}
	snprintf(settings, sizeof(settings), "version=%d transport=%s algo=%s tile_bytes=%lld",
		 TUTTI_VERSION_CODE, c->transport, c->algo, (long long)c->tile_bytes);
	join.settings = settings;
	join.timeout_ms = c->timeout_ms;
	join.ifname = env.ifname;
	join.host_id = env.host_id;
	join.port_range = env.ports;
	if ((rc = tt_control_join(&join, &c->ctl)) || (rc = tt_comm_furnish(c, &env)))
		goto free_comm;
	*ret_comm = c;
	return 0;
free_comm:
	tt_comm_free(c);
	return rc;
}

int tt_comm_check(tuttiComm_t c)
{
	if (tt_unlikely(!c))
		return tt_fail(TT_ARG, "comm is NULL: join one with tuttiCommInitRank first");
	if (tt_unlikely(!tt_comm_is_live(c)))
		return tt_fail(TT_ARG, "comm %p is not a communicator, or it was destroyed",
			       (void *)c);
	if (tt_unlikely(c->fork_count != tt_fork_count()))
		return tt_fail(TT_ARG,
			"rank %d: this communicator was made before a fork; the child must join its own",
			c->rank);
	return 0;
}

int tt_comm_failed(tuttiComm_t c, int code)
{
	pthread_mutex_lock(&c->lock);
	if (!c->error) {
		c->error = code;
		snprintf(c->error_text, sizeof(c->error_text), "%s", tt_error_text());
	}
	pthread_mutex_unlock(&c->lock);
	return code;
}

void *tt_comm_scratch(tuttiComm_t c, size_t bytes)
{
	void *p;

	if (bytes <= c->scratch_bytes)
		return c->scratch;
	p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!p) {
		tt_fail(TT_SYSTEM, "rank %d: no memory for %zu bytes of scratch", c->rank, bytes);
		return NULL;
	}
	free(c->scratch);
	c->scratch = p;
	c->scratch_bytes = (bytes + 4095) / 4096 * 4096;
	atomic_fetch_add(&c->allocations, 1);
	return p;
}
