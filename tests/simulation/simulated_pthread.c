/* simulated_pthread.c - threads, locks, sleeps and the clock of the library, by coroutines */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulation/simulated_threads.h"

SIM_REPLACE(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr,
	    void *(*body)(void *), void *arg)
{
	struct coroutine *c = sim_coroutine_begin(sim->process);

	(void)attr;
	c->body = body;
	c->arg = arg;
	*thread = (pthread_t)c;
	sim_call();
	return 0;
}

SIM_REPLACE(int, pthread_setname_np, pthread_t thread, const char *name)
{
	struct coroutine *c = (struct coroutine *)thread;

	snprintf(c->name, sizeof(c->name), "%s", name);
	return 0;
}

SIM_REPLACE(int, pthread_join, pthread_t thread, void **result)
{
	struct coroutine *c = (struct coroutine *)thread;

	sim_call();
	while (!c->done)
		sim_sleep(c, SIM_NEVER);
	if (result)
		*result = c->result;
	c->body = NULL;
	sim->threads->reapable++;
	return 0;
}

static void forget_lock(pthread_mutex_t *lock)
{
	for (int i = 0; i < sim->threads->running->nheld; i++)
		if (sim->threads->running->held[i] == lock)
			sim->threads->running->held[i] =
				sim->threads->running->held[--sim->threads->running->nheld];
}

SIM_REPLACE(int, pthread_mutex_lock, pthread_mutex_t *lock)
{
	if (!sim || !sim->threads->running) /* before a fork of the simulation itself */
		return pthread_mutex_trylock(lock);
	if (!sim->hop_ns && sim_random(16) == 0)
		sim_switch_out();
	while (pthread_mutex_trylock(lock))
		sim_sleep(lock, SIM_NEVER);
	if (sim->threads->running->nheld == SIM_LOCKS)
		abort();
	sim->threads->running->held[sim->threads->running->nheld++] = lock;
	return 0;
}

SIM_REPLACE(int, pthread_mutex_unlock, pthread_mutex_t *lock)
{
	__real_pthread_mutex_unlock(lock);
	if (sim && sim->threads->running) {
		sim_wake(lock);
		forget_lock(lock);
	}
	return 0;
}

SIM_REPLACE(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *lock,
	    const struct timespec *until)
{
	uint64_t until_ns = (uint64_t)until->tv_sec * SIM_SECOND + (uint64_t)until->tv_nsec;
	bool woken;

	__wrap_pthread_mutex_unlock(lock);
	woken = until_ns > sim->now_ns && sim_sleep(cond, until_ns);
	__wrap_pthread_mutex_lock(lock);
	return woken ? 0 : ETIMEDOUT;
}

SIM_REPLACE(int, pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *lock)
{
	__wrap_pthread_mutex_unlock(lock);
	sim_sleep(cond, SIM_NEVER);
	__wrap_pthread_mutex_lock(lock);
	return 0;
}

SIM_REPLACE(int, pthread_cond_broadcast, pthread_cond_t *cond)
{
	sim_wake(cond);
	return 0;
}

/* Wakes all: a wake without a reason is allowed. */
SIM_REPLACE(int, pthread_cond_signal, pthread_cond_t *cond)
{
	sim_wake(cond);
	return 0;
}

SIM_REPLACE(int, nanosleep, const struct timespec *time, struct timespec *left)
{
	(void)left;
	sim_call();
	sim_sleep(NULL,
		  sim->now_ns + (uint64_t)time->tv_sec * SIM_SECOND + (uint64_t)time->tv_nsec);
	return 0;
}

SIM_REPLACE(int, usleep, useconds_t us)
{
	sim_call();
	sim_sleep(NULL, sim->now_ns + us * 1000ull);
	return 0;
}

SIM_REPLACE(int, sched_yield, void)
{
	sim_call();
	sim_switch_out();
	return 0;
}

SIM_REPLACE(int, clock_gettime, clockid_t clock, struct timespec *ret_time)
{
	uint64_t now;

	sim->now_ns += sim->hop_ns ? 1 : 50;
	if (sim->threads->running && !sim->hop_ns && sim_random(64) == 0)
		sim_switch_out();
	now = sim->now_ns;
	if (clock == CLOCK_REALTIME) /* it is set forth and back by up to an hour */
		now += (1700000000 + (uint64_t)sim_random(3600)) * SIM_SECOND;
	ret_time->tv_sec = (time_t)(now / SIM_SECOND);
	ret_time->tv_nsec = (long)(now % SIM_SECOND);
	return 0;
}
