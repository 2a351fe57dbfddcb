/*
 * ps_threads.h - a worker's pushes and fetches in threads of their own, beside its computing
 *
 *	push thread	sends, in the order of the calls: gradients, requests of parameters, questions for work
 *	fetch thread	receives the parameters of a request
 *
 * One push, one fetch and one question can be under way; a call that begins a further one waits for
 * the one before it. A fetch has the worker's earlier pushes, since one thread sends both. Called by
 * strategy_downpour.c; calls ps_worker.c.
 */
#ifndef TRAIN_PS_THREADS_H
#define TRAIN_PS_THREADS_H

#include "trainer/strategy/ps.h"

struct train_ps_threads;

/* ps is open, and belongs to the caller's thread. Returns 0 | TRAIN_FAILED; close after a failure too. */
int train_ps_threads_open(struct train_rank *t, struct train_ps *ps,
			  struct train_ps_threads **ret_threads);
void train_ps_threads_close(struct train_ps_threads *x);

/* Begins a push of a copy of `gradients`. Returns 0 | TRAIN_FAILED. */
int train_ps_push_begin(struct train_ps_threads *x, const float *gradients);

/* Begins a fetch. Call after train_ps_fetched. Returns 0 | TRAIN_FAILED. */
int train_ps_fetch_begin(struct train_ps_threads *x);

/* Replaces the worker's parameters by those of a fetch that is complete; does nothing if there is
 * none. wait: for a fetch that is under way. Returns 0 | TRAIN_FAILED. */
int train_ps_fetched(struct train_ps_threads *x, bool wait);

/* Sends a question for work; train_ps_answer receives its answer. Returns 0 | TRAIN_FAILED. */
int train_ps_question_begin(struct train_ps_threads *x, bool stop);

/* Waits until nothing is under way, and the parameters of a fetch are here. Returns 0 | TRAIN_FAILED. */
int train_ps_threads_wait(struct train_ps_threads *x);

/* Forgets the parameters of a fetch that is complete. */
void train_ps_fetch_drop(struct train_ps_threads *x);

#endif
