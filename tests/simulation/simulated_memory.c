/*
 * simulated_memory.c - the variables of each simulated process; memory that runs out, or was freed
 *
 * All processes run in one program, so its variables are swapped when another process runs on. Only
 * pages that were ever written are looked at: all are read-only at first, and the first write to a page
 * marks it. Of these a process keeps the lines that differ from the program's beginning.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simulation/simulation.h"

#define PAGE 4096u
#define WRITTEN_MOST 64
#define KEPT 256 /* freed pieces of memory */
#define KEPT_BYTES 32768u

extern char __data_start, _end;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);

struct line {
	uint32_t at;
	char data[SIM_LINE];
};

struct sim_memory {                /* of a schedule */
	struct sim_process *owner; /* whose variables are in place, NULL: nobody's */
	void *freed[KEPT];         /* the latest ones, from nfreed on in turn */
	unsigned nfreed;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static size_t line_bytes(size_t at, size_t end)
{
	return end - at < SIM_LINE ? end - at : SIM_LINE;
}

_Static_assert(SIM_LINE == 64, "four pairs");

/* Most lines are equal, and memcmp would take a sixth of a schedule's time. */
static bool is_equal(const char *a, const char *b, size_t bytes)
{
	typedef uint64_t pair __attribute__((vector_size(16), aligned(1), may_alias));
	const pair *x = (const pair *)a, *y = (const pair *)b;
	pair differs;

	if (bytes < SIM_LINE)
		return !memcmp(a, b, bytes);
	differs = (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]);
	return !(differs[0] | differs[1]);
}

void sim_lines_add(struct sim_lines *l, const char *now, const char *pristine, size_t from,
		   size_t end)
{
	for (size_t at = from; at < end; at += SIM_LINE) {
		size_t bytes = line_bytes(at, end);

		if (is_equal(now + at, pristine + at, bytes))
			continue;
		if (l->n == l->room) {
			l->room += l->room / 2 + 8;
			l->line = sim_resize(l->line, l->room * sizeof(*l->line));
		}
		l->line[l->n].at = (uint32_t)at;
		memcpy(l->line[l->n++].data, now + at, bytes);
	}
}

void sim_lines_put(const struct sim_lines *l, char *now, size_t end)
{
	for (size_t i = 0; i < l->n; i++)
		memcpy(now + l->line[i].at, l->line[i].data, line_bytes(l->line[i].at, end));
}

void sim_lines_undo(const struct sim_lines *l, char *now, const char *pristine, size_t end)
{
	for (size_t i = 0; i < l->n; i++)
		memcpy(now + l->line[i].at, pristine + l->line[i].at,
		       line_bytes(l->line[i].at, end));
}

/* ---- the variables --------------------------------------------------------------------------- */

/* Of the program; they stay for later schedules. */
static struct variables {
	char *at; /* first page */
	int npages;
	char *pristine;            /* as they are before a schedule */
	int written[WRITTEN_MOST]; /* pages, in the order of their first write */
	int nwritten;
} * variables;

static void mark_written(int signal_number, siginfo_t *info, void *context)
{
	struct variables *v = variables;
	size_t page = (size_t)((char *)info->si_addr - v->at) / PAGE;

	(void)context;
	if ((char *)info->si_addr < v->at || page >= (size_t)v->npages ||
	    v->nwritten == WRITTEN_MOST) {
		signal(signal_number, SIG_DFL); /* a real fault, which repeats */
		return;
	}
	for (int i = 0; i < v->nwritten; i++)
		if (v->written[i] == (int)page)
			signal(signal_number, SIG_DFL);
	v->written[v->nwritten++] = (int)page;
	mprotect(v->at + page * PAGE, PAGE, PROT_READ | PROT_WRITE);
}

/* Before the first page of the variables lies what the loader has made read-only. */
static void find_variables(void)
{
	uintptr_t first = (uintptr_t)&__data_start / PAGE * PAGE;
	uintptr_t end = ((uintptr_t)&_end + PAGE - 1) / PAGE * PAGE;
	struct sigaction action = { .sa_sigaction = mark_written, .sa_flags = SA_SIGINFO };
	struct variables *v = variables = __real_calloc(1, sizeof(*v));

	v->at = (char *)first;
	v->npages = (int)((end - first) / PAGE);
	v->pristine = memcpy(__real_malloc(end - first), v->at, end - first);
	sigaction(SIGSEGV, &action, NULL);
}

void sim_memory_begin(void)
{
	sim->memory = sim_alloc(sizeof(*sim->memory));
	if (!variables)
		find_variables();
	variables->nwritten = 0;
	mprotect(variables->at, (size_t)variables->npages * PAGE, PROT_READ);
}

/* The variables that p has written become p's copy; the program has those of its beginning. */
static void save(struct sim_process *p)
{
	const struct variables *v = variables;
	size_t end = (size_t)v->npages * PAGE;

	p->variables.n = 0;
	for (int i = 0; i < v->nwritten; i++)
		sim_lines_add(&p->variables, v->at, v->pristine, (size_t)v->written[i] * PAGE,
			      ((size_t)v->written[i] + 1) * PAGE);
	sim_lines_undo(&p->variables, v->at, v->pristine, end);
}

void sim_memory_switch(struct sim_process *p)
{
	if (p == sim->memory->owner)
		return;
	if (sim->memory->owner)
		save(sim->memory->owner);
	if (p)
		sim_lines_put(&p->variables, variables->at, (size_t)variables->npages * PAGE);
	sim->memory->owner = p;
}

/* ---- memory that runs out --------------------------------------------------------------------- */

static bool out_of_memory(size_t bytes)
{
	if (!sim || !sim->process || !sim->process->fail_at ||
	    bytes < sim->process->fail_from_bytes ||
	    (sim->process->fail_to_bytes && bytes >= sim->process->fail_to_bytes) ||
	    (sim->process->fail_in_threads && sim_is_main()) || --sim->process->fail_at)
		return false;
	sim_trace("process %d: no memory", sim->process->number);
	errno = ENOMEM;
	return true;
}

/* A process holds data, or no more. */
static void *count(void *data, int sign)
{
	struct sim_process *p = sim ? sim->process : NULL;

	if (!p || !data)
		return data;
	p->held += sign * (int64_t)sim_block_bytes(data);
	if (p->held > p->held_most)
		p->held_most = p->held;
	return data;
}

/* Requests of the program itself, before a schedule, are the C library's. */
SIM_REPLACE(void *, malloc, size_t bytes)
{
	if (!sim)
		return __real_malloc(bytes);
	return out_of_memory(bytes) ? NULL : count(sim_block(0, bytes), 1);
}

SIM_REPLACE(void *, calloc, size_t n, size_t bytes)
{
	size_t all;

	if (!sim)
		return __real_calloc(n, bytes);
	if (__builtin_mul_overflow(n, bytes, &all))
		all = SIZE_MAX;
	return out_of_memory(all) ? NULL : count(sim_alloc(all), 1);
}

SIM_REPLACE(void *, realloc, void *old, size_t bytes)
{
	if (!sim || (old && !sim_is_block(old)))
		return __real_realloc(old, bytes);
	return out_of_memory(bytes) ? NULL : count(sim_resize(count(old, -1), bytes), 1);
}

SIM_REPLACE(void *, aligned_alloc, size_t alignment, size_t bytes)
{
	if (!sim)
		return __real_aligned_alloc(alignment, bytes);
	return out_of_memory(bytes) ? NULL : count(sim_block(alignment, bytes), 1);
}

/* Pages of no file */
SIM_REPLACE(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *pages = fd < 0 && sim ? sim_pages(bytes) : NULL;

	if (!sim)
		return __real_mmap(at, bytes, protection, flags, fd, offset);
	errno = ENOMEM;
	return pages ? pages : MAP_FAILED;
}

SIM_REPLACE(int, munmap, void *pages, size_t bytes)
{
	if (!sim)
		return __real_munmap(pages, bytes);
	sim_pages_free(pages, bytes);
	return 0;
}

/* Advice about dumps and forks would divide the memory of the schedules. */
SIM_REPLACE(int, madvise, void *pages, size_t bytes, int advice)
{
	return sim && advice != MADV_DONTNEED ? 0 : __real_madvise(pages, bytes, advice);
}

/* ---- freed memory ----------------------------------------------------------------------------- */

static void check_freed(void *data)
{
	static const uint8_t zeros[KEPT_BYTES];

	if (data && memcmp(data, zeros, sim_block_bytes(data)))
		sim_fail("%zu bytes were written to after they had been freed",
			 sim_block_bytes(data));
	sim_free(data);
}

/* Freed memory of the library stays for a while, and nobody may write to it. It is zero, so that most
 * other uses of it crash. */
SIM_REPLACE(void, free, void *data)
{
	void **kept;

	if (!sim_is_block(data)) { /* the C library has made it */
		__real_free(data);
		return;
	}
	count(data, -1);
	if (!sim->memory || !sim->process || sim_block_bytes(data) > KEPT_BYTES) {
		sim_free(data);
		return;
	}
	kept = &sim->memory->freed[sim->memory->nfreed++ % KEPT];
	check_freed(*kept);
	*kept = memset(data, 0, sim_block_bytes(data));
}

/* All processes have ended. */
void sim_memory_end(void)
{
	for (int i = 0; i < KEPT; i++)
		check_freed(sim->memory->freed[i]);
	sim_memory_switch(NULL);
}
