/*
 * simulated_memory.c - the variables of each simulated process; memory that runs out, or was freed
 *
 * All processes run in one program, so its variables are swapped when another process runs on. Only
 * pages that were ever written are copied: all are read-only at first, and the first write to a page
 * marks it.
 */
#include <errno.h>
#include <malloc.h>
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
void __real_free(void *data);

struct freed {
	void *data;
	size_t bytes;
};

struct sim_memory {
	char *at; /* first page of the variables */
	int npages;
	char *pristine;            /* as they were at the beginning */
	int written[WRITTEN_MOST]; /* pages, in the order of their first write */
	int nwritten;
	struct sim_process *owner; /* whose variables are in place, NULL: nobody's */
	struct freed freed[KEPT];  /* the latest ones, from nfreed on in turn */
	unsigned nfreed;
};

/* ---- the variables --------------------------------------------------------------------------- */

static void mark_written(int signal_number, siginfo_t *info, void *context)
{
	struct sim_memory *m = sim->memory;
	size_t page = (size_t)((char *)info->si_addr - m->at) / PAGE;

	(void)context;
	if ((char *)info->si_addr < m->at || page >= (size_t)m->npages ||
	    m->nwritten == WRITTEN_MOST) {
		signal(signal_number, SIG_DFL); /* a real fault, which repeats */
		return;
	}
	for (int i = 0; i < m->nwritten; i++)
		if (m->written[i] == (int)page)
			signal(signal_number, SIG_DFL);
	m->written[m->nwritten++] = (int)page;
	mprotect(m->at + page * PAGE, PAGE, PROT_READ | PROT_WRITE);
}

/* Before the first page of the variables lies what the loader has made read-only. */
void sim_memory_begin(void)
{
	struct sim_memory *m = sim->memory = sim_alloc(sizeof(*m));
	uintptr_t first = (uintptr_t)&__data_start / PAGE * PAGE;
	uintptr_t end = ((uintptr_t)&_end + PAGE - 1) / PAGE * PAGE;
	struct sigaction action = { .sa_sigaction = mark_written, .sa_flags = SA_SIGINFO };

	m->at = (char *)first;
	m->npages = (int)((end - first) / PAGE);
	m->pristine = sim_alloc((size_t)m->npages * PAGE);
	memcpy(m->pristine, m->at, (size_t)m->npages * PAGE);
	sigaction(SIGSEGV, &action, NULL);
	mprotect(m->at, (size_t)m->npages * PAGE, PROT_READ);
}

void sim_memory_switch(struct sim_process *p)
{
	struct sim_memory *m = sim->memory;

	if (p == m->owner)
		return;
	if (!p->variables)
		p->variables = sim_resize(NULL, WRITTEN_MOST * PAGE);
	for (int i = 0; i < m->nwritten; i++) {
		size_t at = (size_t)m->written[i] * PAGE, copy = (size_t)i * PAGE;
		bool has = i < p->npages;

		if (m->owner)
			memcpy(m->owner->variables + copy, m->at + at, PAGE);
		memcpy(m->at + at, has ? p->variables + copy : m->pristine + at, PAGE);
	}
	if (m->owner)
		m->owner->npages = m->nwritten;
	m->owner = p;
}

/* ---- memory that runs out --------------------------------------------------------------------- */

static bool out_of_memory(size_t bytes)
{
	if (!sim || !sim->process || !sim->process->fail_at ||
	    bytes < sim->process->fail_from_bytes ||
	    (sim->process->fail_in_threads && sim_is_main()) || --sim->process->fail_at)
		return false;
	sim_trace("process %d: no memory", sim->process->number);
	errno = ENOMEM;
	return true;
}

/* A process of a crowd holds data, or no more. */
static void *count(void *data, int sign)
{
	struct sim_process *p = sim && sim->hop_ns ? sim->process : NULL;

	if (!p || !data)
		return data;
	p->held += sign * (int64_t)malloc_usable_size(data);
	if (p->held > p->held_most)
		p->held_most = p->held;
	return data;
}

SIM_REPLACE(void *, malloc, size_t bytes)
{
	return out_of_memory(bytes) ? NULL : count(__real_malloc(bytes), 1);
}

SIM_REPLACE(void *, calloc, size_t n, size_t bytes)
{
	return out_of_memory(n * bytes) ? NULL : count(__real_calloc(n, bytes), 1);
}

SIM_REPLACE(void *, realloc, void *old, size_t bytes)
{
	return out_of_memory(bytes) ? NULL : count(__real_realloc(count(old, -1), bytes), 1);
}

SIM_REPLACE(void *, aligned_alloc, size_t alignment, size_t bytes)
{
	return out_of_memory(bytes) ? NULL : count(__real_aligned_alloc(alignment, bytes), 1);
}

/* ---- freed memory ----------------------------------------------------------------------------- */

static void check_freed(const struct freed *f)
{
	static const uint8_t zeros[KEPT_BYTES];

	if (f->data && memcmp(f->data, zeros, f->bytes))
		sim_fail("%zu bytes were written to after they had been freed", f->bytes);
	__real_free(f->data);
}

/* Freed memory of the library stays for a while, and nobody may write to it. It is zero, so that most
 * other uses of it crash. */
SIM_REPLACE(void, free, void *data)
{
	size_t bytes = data ? malloc_usable_size(data) : 0;
	struct freed *f;

	count(data, -1);
	if (!sim || !sim->memory || !sim->process || !data || bytes > KEPT_BYTES) {
		__real_free(data);
		return;
	}
	f = &sim->memory->freed[sim->memory->nfreed++ % KEPT];
	check_freed(f);
	*f = (struct freed){ memset(data, 0, bytes), bytes };
}

void sim_memory_end(void)
{
	for (int i = 0; i < KEPT; i++)
		check_freed(&sim->memory->freed[i]);
}

void *sim_alloc(size_t bytes)
{
	return __real_calloc(1, bytes);
}

void *sim_resize(void *old, size_t bytes)
{
	return __real_realloc(old, bytes);
}

void sim_free(void *data)
{
	__real_free(data);
}
