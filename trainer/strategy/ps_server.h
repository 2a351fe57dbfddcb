/*
 * ps_server.h - the state of a parameter server, for its files alone
 *
 *	ps_server.c	receives, sums, descends, answers
 *	ps_handout.c	hands out work
 */
#ifndef TRAIN_PS_SERVER_H
#define TRAIN_PS_SERVER_H

#include "trainer/strategy/arrival_order.h"
#include "trainer/strategy/ps.h"
#include "trainer/strategy/ps_store.h"
#include "trainer/strategy/ps_table.h"

/* A worker's state on the server. */
struct train_ps_client {
	uint64_t clock;    /* pushes */
	bool pull_pending; /* delayed by --ssp until the slowest worker catches up */
	uint32_t *wanted;  /* sparse: the rows of this pull; NULL: those that changed */
	size_t nwanted;
	uint64_t since;       /* after this version */
	bool asks, asks_stop; /* an ASK that a warm start delays; its stop flag */
	bool settling, gone;
};

struct train_ps_server {
	struct train_rank *t;
	struct train_ps *ps;
	struct train_ps_store store;
	struct train_ps_client *client; /* [workers] */
	int workers, number;
	uint64_t version;
	struct train_node *node; /* sync: nodes received in this step */
	void **at;
	size_t nodes, arrived;
	float *received, *message;   /* sync: data of every node; buffer for the largest message */
	struct train_ps_table table; /* if it is sparse, received is not used, and */
	uint32_t *packed;            /* a push or an answer */
	struct train_ps_stats stats;
	struct train_arrival_order arrivals;
	/* server 0: shares handed out, of all steps; the step after which workers settle */
	uint64_t handed, pause;
	bool stopping; /* a worker received a stop signal */
};

/* Sends to a worker; one that is gone gets nothing. Returns 0 | TRAIN_FAILED. */
int train_ps_reply(struct train_ps_server *s, int worker, int tag, uint64_t version, const void *at,
		   size_t bytes);

/* ---- work (ps_handout.c) -------------------------------------------------------------------- */

/* The ranks of a worker. */
int train_ps_devices(const struct train_ps_server *s);
/* A step's batch has a share for each worker, whichever worker takes it. */
uint64_t train_ps_shares(const struct train_ps_server *s);
/* The pushes of a warm start, one worker's, in this run. */
uint64_t train_ps_warm_pushes(const struct train_ps_server *s);
/* Answers the questions that no warm start delays. Returns 0 | TRAIN_FAILED. */
int train_ps_answer_questions(struct train_ps_server *s);

#endif
