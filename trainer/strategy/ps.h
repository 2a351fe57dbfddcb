/*
 * ps.h - a worker's side of parameter servers: push, pull, settle
 *
 * The parameters and their optimizer are spread over servers (shards.h), which are the last
 * ranks of world and run tt_server_run. Everything travels as messages (tuttiMsgSend), so a
 * server takes what comes, whoever sent it. Called by the strategies that have servers.
 */
#ifndef TT_TRAINER_PS_H
#define TT_TRAINER_PS_H

#include "trainer/strategy/shards.h"
#include "trainer/trainer.h"

/* Tags. `version` of a message is what stands behind it. */
enum {
	TT_PS_INIT = 1, /* worker 0: parameters, then the optimizer's state; the optimizer's kind */
	TT_PS_HELLO,    /* nothing; answered by HELLO: from now on each knows when the other dies */
	TT_PS_PUSH,     /* gradients, node after node; the version that they were computed at */
	TT_PS_PULL,     /* nothing; answered by PARAMETERS */
	TT_PS_SETTLE,   /* nothing; answered, once all have, by SETTLED */
	TT_PS_STATE,    /* nothing; answered by STATE: the optimizer's state */
	TT_PS_STATS,    /* nothing; answered by STATS */
	TT_PS_BYE,      /* nothing; no more will come */
	TT_PS_PARAMETERS, /* the shard; its version */
	TT_PS_SETTLED,  /* the shard; how many workers are left */
};

enum { TT_PS_STALE_MAX = 64 };

/* What a server has seen. Bytes are those of parameters and gradients. */
struct tt_ps_stats {
	uint64_t in_bytes, out_bytes, pushes, dropped, applied;
	uint64_t stale_sum, stale_most;   /* others' updates between a pull and its push */
	uint64_t gap_most;                /* steps between the fastest worker and the slowest */
	uint64_t stale[TT_PS_STALE_MAX];  /* pushes of so much staleness; the last: or more */
};

/* By which rule are variables placed, and what does a server do with what comes? */
struct tt_ps_rule {
	bool sync;      /* wait for all workers, add up in the order of --canonical or of ranks */
	bool variables; /* each on one server */
	bool ssp, drop; /* --ssp; --stale-drop and --stale-scale */
	bool adagrad;   /* --adagrad */
	bool log;       /* --record, --replay */
	int devices;    /* ranks of a worker, of which the first speaks to the servers; 0: one */
};

struct tt_ps {
	struct tt_ps_rule rule;
	struct tt_shards shards;
	float *message;         /* the largest */
	uint64_t *version;      /* [servers], of the parameters that this worker has */
	struct tt_ps_stats all; /* of all servers, after the last settle */
};

/* Both sides know the shards. On a worker: worker 0 gives the servers their first parameters, and
 * all
 * workers have them. Returns 0 | TT_TRAIN_USAGE | TT_TRAIN_FAILED. */
int tt_ps_open(struct tt_trainer *t, struct tt_ps *ps, struct tt_ps_rule rule);
void tt_ps_close(struct tt_trainer *t, struct tt_ps *ps);

/* nodes arrays of gradients, `stride` floats apart, go to the servers.
 * With `sync` the tail goes with them. */
int tt_ps_push(struct tt_trainer *t, struct tt_ps *ps, const float *gradients, size_t nodes,
	       size_t stride);

/* The servers' parameters become this worker's; sync: those after this step, with the tail. */
int tt_ps_pull(struct tt_trainer *t, struct tt_ps *ps);

/* Waits until every worker has settled; then all have the same parameters. Workers that have died
 * are gone from t->comm afterwards. */
int tt_ps_settle(struct tt_trainer *t, struct tt_ps *ps, bool last);

/* As tt_strategy_ops.state, .tell */
int tt_ps_state(struct tt_trainer *t, struct tt_ps *ps, float *host);
void tt_ps_tell(const struct tt_ps *ps);

/* ps_server.c: what a server does. Returns 0 | TT_TRAIN_FAILED. */
int tt_server_run(struct tt_trainer *t, struct tt_ps *ps);

#endif
