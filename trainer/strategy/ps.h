/*
 * ps.h - parameter servers, worker side: push, pull, settle
 *
 * The parameters and their optimizer are sharded over servers (shards.h), the last ranks of world,
 * which run train_ps_server_run. All data travels as messages (tuttiMsgSend), so a server processes
 * messages from any worker in order of arrival. Called by the strategies with servers.
 */
#ifndef TRAIN_PS_H
#define TRAIN_PS_H

#include "trainer/rank/rank.h"
#include "trainer/strategy/shards.h"
#include "trainer/strategy/strategy.h"

/* Message tags, each with its payload and the meaning of the message's `version`. */
enum {
	TRAIN_PS_INIT = 1, /* worker 0: parameters, then optimizer state; version 0 */
	TRAIN_PS_HELLO,    /* empty; answered by HELLO: each can then detect the other's death */
	TRAIN_PS_PUSH,     /* gradients, node after node, of a sparse table its rows; version of
			      * their parameters */
	TRAIN_PS_PULL,     /* empty, or the numbers of rows; answered by PARAMETERS */
	TRAIN_PS_FETCH, /* empty; the same, of a sparse table the rows that changed after `version` */
	TRAIN_PS_SETTLE,     /* empty; answered by SETTLED once all workers have sent it */
	TRAIN_PS_STATE,      /* empty; answered by STATE: optimizer state */
	TRAIN_PS_STATS,      /* empty; answered by STATS */
	TRAIN_PS_BYE,        /* empty; the worker's last message */
	TRAIN_PS_PARAMETERS, /* the shard, of a sparse table some rows; its version */
	TRAIN_PS_STEPPED, /* sync, after a step: the shard unless the table is sparse, the tail */
	TRAIN_PS_SETTLED, /* the shard; number of live workers */
	TRAIN_PS_ASK,     /* to server 0: empty; version 1: stop; answered by ASK: handout */
};

enum { TRAIN_PS_STALE_MAX = 64 };

/* Statistics of a server. Bytes are of parameters and gradients. */
struct train_ps_stats {
	uint64_t in_bytes, out_bytes, pushes, dropped, applied;
	uint64_t stale_sum, stale_most;     /* staleness: updates between a pull and its push */
	uint64_t gap_most;                  /* steps between the fastest worker and the slowest */
	uint64_t stale[TRAIN_PS_STALE_MAX]; /* histogram: pushes by staleness; the last: or more */
};

/* The rules of a strategy: placement of variables, and the server's handling of pushes. */
struct train_ps_rule {
	bool sync;      /* wait for all workers, sum in the order of --canonical or of ranks */
	bool variables; /* each variable on one server */
	bool ssp, drop; /* --ssp; --stale-drop and --stale-scale */
	bool adagrad;   /* --adagrad */
	bool log;       /* --record, --replay */
	int devices;    /* ranks of a worker, of which the first talks to the servers; 0: one */
};

struct train_ps {
	struct train_ps_rule rule;
	struct train_shards shards;
	bool sparse;       /* the rows of a table are sent one by one (sparse_rows.h) */
	uint32_t *touched; /* sparse: the rows of this worker's next gradient, ascending */
	size_t ntouched;
	float *message;            /* buffer for the largest message */
	uint64_t *version;         /* [servers], of the parameters that this worker has */
	struct train_ps_stats all; /* of all servers, after the last settle */
};

/* train_ps_open - shard the parameters; worker 0 initializes the servers and all workers
 *
 *   Call      by workers and servers
 *   Returns   0 | TRAIN_USAGE | TRAIN_FAILED; close after a failure too */
int train_ps_open(struct train_rank *t, struct train_ps *ps, struct train_ps_rule rule);
void train_ps_close(struct train_rank *t, struct train_ps *ps);

/* Sends `nodes` arrays of gradients, `stride` floats from one to the next, to the servers; with
 * `sync` the tail too. Returns 0 | TRAIN_FAILED. */
int train_ps_push(struct train_rank *t, struct train_ps *ps, const float *gradients, size_t nodes,
		  size_t stride);

/* The same, not counted as bytes of this rank, so that another thread can send. */
int train_ps_send(struct train_rank *t, struct train_ps *ps, const float *gradients, size_t nodes,
		  size_t stride);

/* The bytes of gradients that this takes. */
uint64_t train_ps_push_bytes(struct train_rank *t, const struct train_ps *ps,
			     const float *gradients, size_t nodes, size_t stride);

/* Sets ps->touched to the rows of a sparse table that a batch touches. */
void train_ps_touch(struct train_rank *t, struct train_ps *ps, const struct train_batch *batch);

/* Replaces this worker's parameters by the servers', of a sparse table the rows ps->touched. Returns
 * 0 | TRAIN_FAILED. */
int train_ps_pull(struct train_rank *t, struct train_ps *ps);

/* sync, after a push: waits for the end of the step. The tail becomes the sum over all workers, and the
 * parameters those after the step, unless the table is sparse: a pull precedes each gradient. Returns 0 |
 * TRAIN_FAILED. */
int train_ps_finish(struct train_rank *t, struct train_ps *ps);

/* The halves of a fetch to other memory, which has the parameters of the last one, or the first; of a
 * sparse table the rows that have changed travel. Return 0 | TRAIN_FAILED. */
int train_ps_request(struct train_rank *t, struct train_ps *ps);
int train_ps_receive(struct train_rank *t, struct train_ps *ps, float *to);

/* Implements train_strategy_ops.ask for `workers` workers; and its halves, which return 0 | TRAIN_FAILED. */
int train_ps_ask(struct train_rank *t, int workers, bool stop, struct train_handout *ret_handout);
int train_ps_question(struct train_rank *t, bool stop);
int train_ps_answer(struct train_rank *t, int workers, struct train_handout *ret_handout);

/* Waits until every worker has settled; then all have the same parameters. Dead workers are removed
 * from t->comm. Returns 0 | TRAIN_FAILED. */
int train_ps_settle(struct train_rank *t, struct train_ps *ps, bool last);

/* Implement train_strategy_ops.state and .report. */
int train_ps_state(struct train_rank *t, struct train_ps *ps, float *host);
void train_ps_report(const struct train_ps *ps);

/* The server's loop (ps_server.c), until every worker has ended. Returns 0 | TRAIN_FAILED. */
int train_ps_server_run(struct train_rank *t, struct train_ps *ps);

#endif
