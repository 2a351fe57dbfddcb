/*
 * simulated_threads.c - coroutines and their scheduler
 *
 * A coroutine has a stack, and its part of the program's thread-local variables, which is swapped in
 * while it runs. The scheduler takes a random one of those that can run, mostly one of the process
 * that ran last, whose variables are in place. The clock advances with every call, and jumps when all
 * coroutines sleep.
 */
#undef _FORTIFY_SOURCE /* takes a jump to another stack for an error */
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simulation/simulated_threads.h"

#define STACK (256u << 10)
#define PAGE 4096u
#define TRIM 4 /* of many ranks: sleeps until the unused part of a stack is given back */
#define BUCKETS 4096
#define STAYS 16 /* 1 of this number of choices may leave the process */

struct sim *sim;

/* ---- randomness: splitmix64 (Steele, Lea and Flood 2014) --------------------------------------- */

static uint64_t draw(void)
{
	uint64_t z = sim->threads->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t sim_random(uint32_t n)
{
	return (uint32_t)((draw() >> 32) * n >> 32);
}

uint64_t sim_random_scale(uint64_t low, uint64_t high)
{
	int doublings = 0;
	uint64_t bound;

	while (low << (doublings + 1) <= high)
		doublings++;
	bound = low << sim_random((uint32_t)doublings + 1);
	return bound + draw() % bound;
}

/* ---- coroutines ------------------------------------------------------------------------------ */

/* The program itself is the first object of the list. */
static int find_locals(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct sim_threads *t = ctx;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS) {
			t->locals = info->dlpi_tls_data;
			t->local_bytes = info->dlpi_phdr[i].p_memsz;
		}
	return 1;
}

void sim_begin(uint64_t seed, bool tracing, int processes)
{
	struct sim_threads *t;

	sim_heap_begin(processes > SIM_PROCESSES);
	sim = sim_alloc(sizeof(*sim));
	t = sim_alloc(sizeof(*t));
	sim->tracing = tracing;
	sim->threads = t;
	t->random = seed * 0x9e3779b97f4a7c15ull;
	t->wake_ns = SIM_NEVER;
	t->last = &t->all;
	t->nbuckets = processes > SIM_PROCESSES ? BUCKETS + 4 * (size_t)processes : BUCKETS;
	t->sleepers = sim_alloc(t->nbuckets * sizeof(struct coroutine *));
	dl_iterate_phdr(find_locals, t);
	t->pristine = sim_alloc(t->local_bytes + 1);
	memcpy(t->pristine, t->locals, t->local_bytes);
	sim_timers_begin();
	sim_network_begin(processes);
}

static struct coroutine **sleepers(const void *key)
{
	/* keys of many ranks are whole pages apart */
	uint64_t mixed = (uintptr_t)key * 0x9e3779b97f4a7c15ull >> 32;

	return &sim->threads->sleepers[mixed % sim->threads->nbuckets];
}

static void let_run(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;

	if (t->nrunnable == t->runnable_room) {
		t->runnable_room = t->runnable_room * 2 + 64;
		t->runnable = sim_resize(t->runnable,
					 (size_t)t->runnable_room * sizeof(struct coroutine *));
	}
	c->at = t->nrunnable++;
	t->runnable[c->at] = c;
	c->process->nrunnable++;
}

static void let_rest(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;

	t->runnable[c->at] = t->runnable[--t->nrunnable];
	t->runnable[c->at]->at = c->at;
	c->at = -1;
	c->process->nrunnable--;
}

static void end_sleep(struct coroutine *c)
{
	if (c->timed_at >= 0)
		sim_timed_end(c);
	*(c->before_sleeper ? &c->before_sleeper->next_sleeper
			    : sleepers(c->key)) = c->next_sleeper;
	if (c->next_sleeper)
		c->next_sleeper->before_sleeper = c->before_sleeper;
	let_run(c);
}

static void note_due(int n, struct coroutine *c)
{
	struct sim_threads *t = sim->threads;

	if (n == t->due_room) {
		t->due_room = t->due_room * 2 + 64;
		t->due = sim_resize(t->due, (size_t)t->due_room * sizeof(struct coroutine *));
	}
	t->due[n] = c;
}

static int by_number(const void *a, const void *b)
{
	const struct coroutine *x = *(struct coroutine *const *)a,
			       *y = *(struct coroutine *const *)b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* The sleeps of the first n of due[] end, in the order of the coroutines' numbers. */
static void end_due(int n)
{
	struct sim_threads *t = sim->threads;

	if (n > 1)
		qsort(t->due, (size_t)n, sizeof(*t->due), by_number);
	for (int i = 0; i < n; i++)
		end_sleep(t->due[i]);
}

/* ---- switching ------------------------------------------------------------------------------- */

static void jump(struct place *from, struct place *to)
{
	from->begun = true;
	if (_setjmp(from->at))
		return;
	if (to->begun)
		_longjmp(to->at, 1);
	setcontext(to->begin);
}

void sim_switch_out(void)
{
	struct sim_threads *t = sim->threads;
	struct coroutine *c = t->running;

	c->error = errno;
	jump(&c->place, &t->scheduler);
}

/* The thread-local variables are c's from now on; NULL: as in a new thread. */
static void put_locals(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;

	if (c == t->present)
		return;
	if (t->present) {
		t->present->locals.n = 0;
		sim_lines_add(&t->present->locals, t->locals, t->pristine, 0, t->local_bytes);
		sim_lines_undo(&t->present->locals, t->locals, t->pristine, t->local_bytes);
	}
	if (c)
		sim_lines_put(&c->locals, t->locals, t->local_bytes);
	t->present = c;
}

static void switch_in(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;

	t->running = c;
	t->latest = sim->process = c->process;
	sim_memory_switch(c->process);
	put_locals(c);
	errno = c->error;
	jump(&t->scheduler, &c->place);
	t->running = NULL;
	sim->process = NULL;
}

static void finish(struct coroutine *c)
{
	if (c->at < 0)
		end_sleep(c);
	let_rest(c);
	c->done = true;
	sim->threads->living--;
	sim->threads->reapable += !c->body;
	c->process->nthreads--;
	sim_wake(c);
}

static void enter(void)
{
	struct coroutine *c = sim->threads->running;

	sim_free(c->place.begin);
	c->place.begin = NULL;
	if (c->process_body) {
		c->process_body(c->arg);
		c->process->ended = true;
		c->process->ended_ns = sim->now_ns;
	} else {
		c->result = c->body(c->arg);
	}
	finish(c);
	sim_switch_out();
}

static void *take_stack(void)
{
	struct sim_threads *t = sim->threads;
	void **stack = t->stacks;

	if (!stack)
		return sim_pages(STACK);
	t->stacks = *stack;
	return stack;
}

struct coroutine *sim_coroutine_begin(struct sim_process *p)
{
	struct sim_threads *t = sim->threads;
	struct coroutine *c = sim_alloc(sizeof(*c));

	c->stack = take_stack();
	c->place.begin = sim_alloc(sizeof(*c->place.begin));
	getcontext(c->place.begin);
	c->place.begin->uc_stack.ss_sp = c->stack;
	c->place.begin->uc_stack.ss_size = STACK;
	makecontext(c->place.begin, enter, 0);
	c->process = p;
	c->timed_at = -1;
	c->next_of_process = p->threads;
	p->threads = c;
	let_run(c);
	p->nthreads++;
	c->number = t->made++;
	t->living++;
	*t->last = c;
	t->last = &c->next;
	return c;
}

void sim_process_begin(struct sim_process *p, void (*body)(void *), void *arg)
{
	struct coroutine *c = sim_coroutine_begin(p);

	c->process_body = body;
	c->arg = arg;
	snprintf(c->name, sizeof(c->name), "main");
}

/* c sleeps until its key or time. */
static void begin_sleep(struct coroutine *c)
{
	struct coroutine **at = sleepers(c->key);

	let_rest(c);
	c->before_sleeper = NULL;
	c->next_sleeper = *at;
	if (*at)
		(*at)->before_sleeper = c;
	*at = c;
	c->woken = false;
	if (c->until_ns != SIM_NEVER)
		sim_timed_begin(c);
	if (c->until_ns < sim->threads->wake_ns)
		sim->threads->wake_ns = c->until_ns;
}

/* Of many ranks' stacks only the parts in use take memory. */
static void trim_stack(struct coroutine *c)
{
	char here, *unused = (char *)(((uintptr_t)&here / PAGE - 1) * PAGE);

	if (!sim->hop_ns || --c->sleeps > 0)
		return;
	c->sleeps = c->process_body ? 1 : TRIM;
	if (unused > c->stack)
		madvise(c->stack, (size_t)(unused - c->stack), MADV_DONTNEED);
}

bool sim_sleep(const void *key, uint64_t until_ns)
{
	struct coroutine *c = sim->threads->running;

	c->key = key;
	c->until_ns = until_ns;
	begin_sleep(c);
	trim_stack(c);
	sim_switch_out();
	return c->woken;
}

void sim_await(const void *key, uint64_t until_ns, bool (*is_over)(void *), void *wait)
{
	if (is_over(wait))
		return;
	sim->threads->running->is_over = is_over;
	sim->threads->running->wait = wait;
	sim_sleep(key, until_ns);
}

void sim_wake(const void *key)
{
	int n = 0;

	for (struct coroutine *c = *sleepers(key); c; c = c->next_sleeper) {
		if (c->key != key)
			continue;
		c->woken = true;
		note_due(n++, c);
	}
	end_due(n);
}

bool sim_is_main(void)
{
	return sim->threads->running && sim->threads->running->process_body;
}

static void kill_now(void *arg)
{
	sim_kill(arg);
}

void sim_call(void)
{
	struct sim_process *p = sim->process;

	if (sim->hop_ns) {
		sim->now_ns++;
		return;
	}
	sim->now_ns += 200 + sim_random(800);
	if (++p->calls == p->kill_at)
		sim_at(sim->now_ns, kill_now, p);
	if (p->calls == p->stop_at)
		sim_at(sim->now_ns, sim_stop, p);
	if (sim_random(8) == 0 || sim_next_timer() <= sim->now_ns)
		sim_switch_out();
}

void sim_kill(struct sim_process *p)
{
	if (p->dead || p->ended)
		return;
	sim_trace("process %d is killed", p->number);
	p->dead = true;
	sim_killed(p);
	for (struct coroutine *c = sim->threads->all; c; c = c->next) {
		if (c->process != p || c->done)
			continue;
		/* locks that processes share here, but not on a real host */
		while (c->nheld) {
			__real_pthread_mutex_unlock(c->held[--c->nheld]);
			sim_wake(c->held[c->nheld]);
		}
		finish(c);
	}
	sim_network_kill(p);
}

/* ---- the scheduler --------------------------------------------------------------------------- */

/* The runnable coroutine of a process that comes next from a place of runnable[] on */
static struct coroutine *next_of(const struct sim_process *p, int first)
{
	int n = sim->threads->nrunnable, nearest = n;
	struct coroutine *next = NULL;

	for (struct coroutine *c = p->threads; c; c = c->next_of_process) {
		int distance = c->at < 0 ? n : (c->at - first + n) % n;

		if (distance >= nearest)
			continue;
		nearest = distance;
		next = c;
	}
	return next;
}

static struct coroutine *choose(void)
{
	struct sim_threads *t = sim->threads;
	bool stays = sim_random(STAYS) > 0 && t->latest && t->latest->nrunnable;
	int first = t->nrunnable ? (int)sim_random((uint32_t)t->nrunnable) : 0;

	if (stays && !t->latest->stopped)
		return next_of(t->latest, first);
	for (int i = 0; i < t->nrunnable; i++) {
		struct coroutine *c = t->runnable[(first + i) % t->nrunnable];

		if (!c->process->stopped)
			return c;
	}
	return NULL;
}

/* Asks in place of a coroutine that awaits something, without a switch to it. false: it sleeps again */
static bool goes_on(struct coroutine *c)
{
	struct sim_threads *t = sim->threads;
	bool over;

	if (!c->is_over)
		return true;
	t->running = c;
	t->latest = sim->process = c->process;
	over = c->is_over(c->wait);
	t->running = NULL;
	sim->process = NULL;
	if (over)
		c->is_over = NULL;
	else
		begin_sleep(c);
	return over;
}

/* The sleeps whose time has come end, in the order of the coroutines' numbers. */
static void end_sleeps(void)
{
	struct sim_threads *t = sim->threads;
	int n = 0;

	if (sim->now_ns < t->wake_ns)
		return;
	while (t->ntimed && t->timed[0].until_ns <= sim->now_ns) {
		struct coroutine *c = t->timed[0].sleeper;

		sim_timed_end(c);
		note_due(n++, c);
	}
	t->wake_ns = t->ntimed ? t->timed[0].until_ns : SIM_NEVER;
	end_due(n);
}

/* The earliest end of a sleep, or timer */
static uint64_t next_time(void)
{
	uint64_t timer = sim_next_timer(), wake = sim->threads->wake_ns;

	return timer < wake ? timer : wake;
}

static void leave_process(struct coroutine *c)
{
	struct coroutine **at = &c->process->threads;

	while (*at != c)
		at = &(*at)->next_of_process;
	*at = c->next_of_process;
}

static void reap(void)
{
	struct coroutine **at = &sim->threads->all, *c;

	while (sim->threads->reapable && (c = *at)) {
		if (!c->done || c->body) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		if (!c->next)
			sim->threads->last = at;
		leave_process(c);
		sim->threads->reapable--;
		if (c == sim->threads->present)
			put_locals(NULL);
		*(void **)(void *)c->stack = sim->threads->stacks;
		sim->threads->stacks = c->stack;
		sim_free(c->place.begin);
		sim_free(c->locals.line);
		sim_free(c);
	}
}

bool sim_run(uint64_t until_ns)
{
	for (;;) {
		struct coroutine *c;
		uint64_t next;

		if (sim->now_ns > until_ns)
			return false;
		sim_run_timers();
		end_sleeps();
		if ((c = choose())) {
			if (goes_on(c))
				switch_in(c);
			continue;
		}
		reap();
		if (!sim->threads->living)
			return true;
		next = next_time();
		if (next > until_ns)
			return false;
		if (next > sim->now_ns)
			sim->now_ns = next;
	}
}

void sim_end(void)
{
	sim_memory_end();
	put_locals(NULL);
}

void sim_threads_print(void)
{
	for (struct coroutine *c = sim->threads->all; c; c = c->next)
		if (!c->done)
			fprintf(stderr, "  process %d, thread %s%s: %s\n", c->process->number,
				c->name, c->process->stopped ? " (stopped)" : "",
				c->at >= 0 ? "runs" : "sleeps");
}
