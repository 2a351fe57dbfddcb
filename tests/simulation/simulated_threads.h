/* simulated_threads.h - coroutines, as the files see them that make simulated threads of them (not for others) */
#ifndef SIMULATED_THREADS_H
#define SIMULATED_THREADS_H

#include <pthread.h>
#include <setjmp.h>
#include <ucontext.h>

#include "tests/simulation/simulation.h"

#define SIM_LOCKS 16 /* most locks that a coroutine holds */

/* Where a coroutine, or the scheduler, goes on. A jump makes no system call; swapcontext makes two. */
struct place {
	jmp_buf at;
	bool begun;
	ucontext_t *begin; /* until it has begun */
};

struct coroutine {
	struct coroutine *next;
	uint64_t number;
	struct sim_process *process;
	struct place place;
	bool done, woken;
	int at; /* in runnable[], -1: it sleeps or is done */
	struct coroutine *next_of_process;
	int timed_at; /* in timed[], -1: it does not sleep, or for ever */
	struct coroutine *next_sleeper, *before_sleeper;
	const void *key;         /* it sleeps until sim_wake(key) ... */
	uint64_t until_ns;       /* ... or this time */
	bool (*is_over)(void *); /* it runs on only then; NULL: always */
	void *wait;              /* argument of is_over */
	void *(*body)(void *);
	void (*process_body)(void *);
	void *arg, *result;
	char *stack;
	int sleeps;              /* until its stack is trimmed */
	struct sim_lines locals; /* its thread-local variables, while they are not in place */
	int error;               /* its errno */
	pthread_mutex_t *held[SIM_LOCKS];
	int nheld;
	char name[16];
};

struct timed_sleep { /* a sleep that ends by itself */
	uint64_t until_ns;
	struct coroutine *sleeper;
};

struct sim_threads {
	struct coroutine *all, **last, *running, **runnable;
	int nrunnable, runnable_room;
	struct timed_sleep *timed; /* heap by time */
	int ntimed, timed_room;
	struct coroutine **due; /* scratch: whose sleep ends now */
	int due_room;
	uint64_t made;
	int living, reapable;        /* of all; done, and joined or main */
	struct coroutine **sleepers; /* [nbuckets] by key */
	size_t nbuckets;
	uint64_t wake_ns; /* no sleep ends before */
	const struct sim_process *latest;
	struct place scheduler;
	void *stacks; /* of threads that are done: each begins with the next one */
	uint64_t random;
	/* the thread-local variables of the program: where, and as they are in a new thread */
	char *locals, *pristine;
	size_t local_bytes;
	struct coroutine *present; /* whose they are, NULL: nobody's */
};

/* simulated_threads.c: a new coroutine of p, which can run; let other coroutines run before this one goes on */
struct coroutine *sim_coroutine_begin(struct sim_process *p);
void sim_switch_out(void);

int __real_pthread_mutex_unlock(pthread_mutex_t *lock);

/* simulated_sleeps.c: add a sleeping coroutine to the heap of sleeps that end by themselves; remove it */
void sim_timed_begin(struct coroutine *c);
void sim_timed_end(struct coroutine *c);

#endif
