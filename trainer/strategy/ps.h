/*
 * ps.h - a worker's side of parameter servers: push, pull, settle
 *
 * The parameters and their optimizer are spread over servers (shards.h), which are the last
 * ranks of world and run train_ps_server_run. Everything travels as messages (tuttiMsgSend), so a
 * server takes what comes, whoever sent it. Called by the strategies that have servers.
 */
#ifndef TRAIN_PS_H
#define TRAIN_PS_H

#include "trainer/strategy/shards.h"
#include "trainer/trainer.h"

/* Tags. `version` of a message is what stands behind it. */
enum {
	TRAIN_PS_INIT = 1, /* worker 0: parameters, then the optimizer's state; the optimizer's kind */
	TRAIN_PS_HELLO,    /* nothing; answered by HELLO: from now on each knows when the other dies */
	TRAIN_PS_PUSH,     /* gradients, node after node; the version that they were computed at */
	TRAIN_PS_PULL,     /* nothing; answered by PARAMETERS */
	TRAIN_PS_SETTLE,   /* nothing; answered, once all have, by SETTLED */
	TRAIN_PS_STATE,    /* nothing; answered by STATE: the optimizer's state */
	TRAIN_PS_STATS,    /* nothing; answered by STATS */
	TRAIN_PS_BYE,      /* nothing; no more will come */
	TRAIN_PS_PARAMETERS, /* the shard; its version */
	TRAIN_PS_SETTLED,  /* the shard; how many workers are left */
};

enum { TRAIN_PS_STALE_MAX = 64 };

/* What a server has seen. Bytes are those of parameters and gradients. */
struct train_ps_stats {
	uint64_t in_bytes, out_bytes, pushes, dropped, applied;
	uint64_t stale_sum, stale_most;   /* others' updates between a pull and its push */
	uint64_t gap_most;                /* steps between the fastest worker and the slowest */
	uint64_t stale[TRAIN_PS_STALE_MAX];  /* pushes of so much staleness; the last: or more */
};

/* By which rule are variables placed, and what does a server do with what comes? */
struct train_ps_rule {
	bool sync;      /* wait for all workers, add up in the order of --canonical or of ranks */
	bool variables; /* each on one server */
	bool ssp, drop; /* --ssp; --stale-drop and --stale-scale */
	bool adagrad;   /* --adagrad */
	bool log;       /* --record, --replay */
	int devices;    /* ranks of a worker, of which the first speaks to the servers; 0: one */
};

struct train_ps {
	struct train_ps_rule rule;
	struct train_shards shards;
	float *message;         /* the largest */
	uint64_t *version;      /* [servers], of the parameters that this worker has */
	struct train_ps_stats all; /* of all servers, after the last settle */
};

/* Both sides know the shards. On a worker: worker 0 gives the servers their first parameters, and
 * all
 * workers have them. Returns 0 | TRAIN_USAGE | TRAIN_FAILED. */
int train_ps_open(struct train_rank *t, struct train_ps *ps, struct train_ps_rule rule);
void train_ps_close(struct train_rank *t, struct train_ps *ps);

/* nodes arrays of gradients, `stride` floats apart, go to the servers.
 * With `sync` the tail goes with them. */
int train_ps_push(struct train_rank *t, struct train_ps *ps, const float *gradients, size_t nodes,
	       size_t stride);

/* The servers' parameters become this worker's; sync: those after this step, with the tail. */
int train_ps_pull(struct train_rank *t, struct train_ps *ps);

/* Waits until every worker has settled; then all have the same parameters. Workers that have died
 * are gone from t->comm afterwards. */
int train_ps_settle(struct train_rank *t, struct train_ps *ps, bool last);

/* As train_strategy_ops.state, .tell */
int train_ps_state(struct train_rank *t, struct train_ps *ps, float *host);
void train_ps_tell(const struct train_ps *ps);

/* ps_server.c: what a server does. Returns 0 | TRAIN_FAILED. */
int train_ps_server_run(struct train_rank *t, struct train_ps *ps);

#endif
