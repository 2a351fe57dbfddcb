/*
 * simulated_memory.c - the variables of each simulated process; memory that runs out
 *
 * All processes run in one program, so its variables are swapped when another process runs on. Only
 * pages that were ever written are copied: all are read-only at first, and the first write to a page
 * marks it.
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

extern char __data_start, _end;

struct sim_memory {
	char *at; /* first page of the variables */
	int npages;
	char *pristine;            /* as they were at the beginning */
	int written[WRITTEN_MOST]; /* pages, in the order of their first write */
	int nwritten;
	struct sim_process *owner; /* whose variables are in place, NULL: nobody's */
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

static bool out_of_memory(void)
{
	if (!sim || !sim->process || !sim->process->fail_at || --sim->process->fail_at)
		return false;
	sim_trace("process %d: no memory", sim->process->number);
	errno = ENOMEM;
	return true;
}

SIM_REPLACE(void *, malloc, size_t bytes)
{
	return out_of_memory() ? NULL : __real_malloc(bytes);
}

SIM_REPLACE(void *, calloc, size_t n, size_t bytes)
{
	return out_of_memory() ? NULL : __real_calloc(n, bytes);
}

SIM_REPLACE(void *, realloc, void *old, size_t bytes)
{
	return out_of_memory() ? NULL : __real_realloc(old, bytes);
}

SIM_REPLACE(void *, aligned_alloc, size_t alignment, size_t bytes)
{
	return out_of_memory() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void *sim_alloc(size_t bytes)
{
	return __real_calloc(1, bytes);
}

void *sim_resize(void *old, size_t bytes)
{
	return __real_realloc(old, bytes);
}
