/*
 * ptx_run.c - run a block of a translated kernel: its threads are fibers of the calling thread
 *
 * Called by fake_ptx_kernels.c and race_kernels.c. A fiber runs until a barrier, a poll or its end,
 * in an order that changes with each pass. A barrier lets the threads go on when all threads of the
 * block have arrived; a thread that has ended cannot, which is a failure, as in the PTX ISA. Order
 * between fibers comes from barriers only, and ThreadSanitizer knows it from there.
 */
#include "tests/fakes/ptx/ptx_run.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#ifdef PTX_RACES
#include <sanitizer/tsan_interface.h>
#else
#define __tsan_get_current_fiber() NULL
#define __tsan_create_fiber(flags) NULL
#define __tsan_destroy_fiber(fiber) ((void)0)
#define __tsan_switch_to_fiber(fiber, flags) ((void)0)
#define __tsan_switch_to_fiber_no_sync 0
#define __tsan_acquire(at) ((void)0)
#define __tsan_release(at) ((void)0)
#endif

enum { MAX_THREADS = 512, SHARED_BYTES = 48 << 10, STACK_BYTES = 256 << 10, CANARY = 0x5a };

enum state { READY, AT_BARRIER, ENDED };
struct fiber {
	struct ptx_thread thread; /* first: a thread is its fiber */
	enum state state;
	unsigned line; /* AT_BARRIER: of the barrier */
	void *stack;   /* pointer of a fiber that does not run */
	void *tsan;
};

struct ptx_scheduler {
	struct fiber fibers[MAX_THREADS], *running;
	void *stack, *tsan;
	unsigned live, waiting;
	char barrier; /* its address is ThreadSanitizer's name of the block's barrier */
};

/* ---- failures -------------------------------------------------------------------------------- */

/* Prints "KERNEL, MODULE:LINE (SOURCE:LINE): thread T of block B of N: ". */
static void print_place(const struct ptx_thread *g, unsigned line)
{
	const struct ptx_kernel *k = g->block->kernel;
	size_t n = 0;

	while (n + 1 < k->nsources && k->sources[n + 1].ptx_line <= line)
		n++;
	fprintf(stderr, "ptx: %s, %s:%u (%s:%u): thread %u of block %u of %u: ", k->name, k->module,
		line, k->sources[n].file, k->sources[n].line, g->tid, g->block->number,
		g->block->blocks);
}

void ptx_bad_offset(struct ptx_thread *g, const char *space, uint64_t at, unsigned bytes,
		    uint32_t size, unsigned line)
{
	print_place(g, line);
	if (at % bytes)
		fprintf(stderr, "misaligned access of %u bytes at offset %llu of %s memory\n",
			bytes, (unsigned long long)at, space);
	else
		fprintf(stderr, "access of %u bytes at offset %llu of %u bytes of %s memory\n",
			bytes, (unsigned long long)at, size, space);
	abort();
}

static bool contains(const void *from, uint32_t size, uint64_t at, unsigned bytes)
{
	return at >= (uintptr_t)from && at + bytes <= (uintptr_t)from + size;
}

unsigned char *ptx_find(struct ptx_thread *g, uint64_t at, unsigned bytes, unsigned line,
			bool generic)
{
	const struct ptx_kernel *k = g->block->kernel;
	struct ptx_range *r = &g->block->recent[at / PTX_PAGE % PTX_RECENT];

	if (at % bytes) {
		print_place(g, line);
		fprintf(stderr, "misaligned access of %u bytes at %#llx\n", bytes,
			(unsigned long long)at);
		abort();
	}
	if (generic && (contains(g->block->shared, k->shared_bytes, at, bytes) ||
			contains(g->block->params, k->param_bytes, at, bytes) ||
			contains(g->local, k->local_bytes, at, bytes)))
		return (unsigned char *)(uintptr_t)at;
	if (!ptx_find_range(at, &r->from, &r->to) || at + bytes > r->to) {
		print_place(g, line);
		fprintf(stderr,
			"access of %u bytes at %#llx, outside of all memory that the driver allocated\n",
			bytes, (unsigned long long)at);
		abort();
	}
	return (unsigned char *)(uintptr_t)at;
}

static void fail_barrier(const struct ptx_scheduler *s)
{
	const struct fiber *f = s->fibers;

	while (f->state != AT_BARRIER)
		f++;
	print_place(&f->thread, f->line);
	fprintf(stderr,
		"%u of %u threads wait at a barrier that the others have not reached before their end\n",
		s->waiting, f->thread.block->threads);
	abort();
}

/* ---- switching ------------------------------------------------------------------------------- */

/* Stores the caller's registers and stack pointer, and continues at another stack. */
extern void ptx_switch(void **save, void *load);
__asm__(".text\n.globl ptx_switch\n.hidden ptx_switch\n.type ptx_switch, @function\nptx_switch:\n"
	"push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
	".size ptx_switch, . - ptx_switch\n");

static void leave(struct fiber *f)
{
	struct ptx_scheduler *s = f->thread.block->scheduler;

	__tsan_switch_to_fiber(s->tsan, __tsan_switch_to_fiber_no_sync);
	ptx_switch(&f->stack, s->stack);
}

static void enter(struct ptx_scheduler *s, struct fiber *f)
{
	s->running = f;
	__tsan_switch_to_fiber(f->tsan, __tsan_switch_to_fiber_no_sync);
	ptx_switch(&s->stack, f->stack);
}

void ptx_yield(struct ptx_thread *g)
{
	leave((struct fiber *)g);
}

void ptx_barrier(struct ptx_thread *g, unsigned line)
{
	struct fiber *f = (struct fiber *)g;
	struct ptx_scheduler *s = g->block->scheduler;

	f->state = AT_BARRIER;
	f->line = line;
	s->waiting++;
	__tsan_release(&s->barrier);
	leave(f);
	__tsan_acquire(&s->barrier);
}

uint64_t ptx_globaltimer(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- a block --------------------------------------------------------------------------------- */

static __thread struct ptx_scheduler *scheduler;
static __thread unsigned char *stacks; /* a stack begins with the thread's local memory */
static __thread unsigned seed;

static void start(void)
{
	struct fiber *f = scheduler->running;

	f->thread.block->kernel->run(&f->thread);
	f->state = ENDED;
	__tsan_release(&scheduler->barrier);
	leave(f);
	abort();
}

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("ptx: mmap");
		abort();
	}
	return p;
}

static void make_fiber(struct ptx_block *b, uint32_t tid)
{
	struct fiber *f = &b->scheduler->fibers[tid];
	unsigned char *bottom = stacks + (size_t)STACK_BYTES * tid;
	/* stacks at different places of their pages, so that they share no lines of the cache */
	void **top = (void **)(bottom + STACK_BYTES - 64 - tid % 32 * 64);

	*f = (struct fiber){ .thread = { .block = b, .local = bottom, .tid = tid },
			     .tsan = __tsan_create_fiber(0) };
	bottom[b->kernel->local_bytes] = CANARY;
	*--top = NULL; /* the alignment of a function's stack */
	*--top = (void *)start;
	for (int registers = 0; registers < 6; registers++)
		*--top = NULL;
	f->stack = top;
}

/* Runs each thread that is ready, beginning with another one each time. Returns whether a thread has
 * arrived at a barrier or ended. */
static bool run_pass(struct ptx_block *b)
{
	struct ptx_scheduler *s = b->scheduler;
	uint32_t first = (uint32_t)rand_r(&seed) % b->threads;
	bool progress = false;

	for (uint32_t n = 0; n < b->threads; n++) {
		struct fiber *f = &s->fibers[(first + n) % b->threads];

		if (f->state != READY)
			continue;
		enter(s, f);
		progress |= f->state != READY;
		s->live -= f->state == ENDED;
	}
	return progress;
}

static void open_barrier(struct ptx_block *b)
{
	struct ptx_scheduler *s = b->scheduler;

	if (s->live < b->threads)
		fail_barrier(s);
	s->waiting = 0;
	for (uint32_t i = 0; i < b->threads; i++)
		s->fibers[i].state = READY;
}

static void end_fibers(struct ptx_block *b)
{
	for (uint32_t i = 0; i < b->threads; i++) {
		__tsan_destroy_fiber(b->scheduler->fibers[i].tsan);
		if (stacks[(size_t)STACK_BYTES * i + b->kernel->local_bytes] != CANARY) {
			fprintf(stderr, "ptx: %s needs a stack of more than %d bytes\n",
				b->kernel->name, STACK_BYTES);
			abort();
		}
	}
	__tsan_acquire(&b->scheduler->barrier);
}

void ptx_run_block(const struct ptx_kernel *kernel, const void *params, uint32_t threads,
		   uint32_t block, uint32_t blocks)
{
	static __thread unsigned char shared[SHARED_BYTES] __attribute__((aligned(256)));
	struct ptx_block b = { .kernel = kernel,
			       .threads = threads,
			       .number = block,
			       .blocks = blocks,
			       .shared = shared,
			       .params = (void *)(uintptr_t)params };
	unsigned idle = 0;

	if (threads > MAX_THREADS || kernel->shared_bytes > SHARED_BYTES) {
		fprintf(stderr, "ptx: %s: %u threads and %u bytes of shared memory are too many\n",
			kernel->name, threads, kernel->shared_bytes);
		abort();
	}
	if (!scheduler) {
		scheduler = map(sizeof(*scheduler));
		stacks = map((size_t)STACK_BYTES * MAX_THREADS);
	}
	b.scheduler = scheduler;
	scheduler->live = threads;
	scheduler->waiting = 0;
	scheduler->tsan = __tsan_get_current_fiber();
	memset(shared, 0xa5, kernel->shared_bytes); /* a GPU does not clear it */
	for (uint32_t i = 0; i < threads; i++)
		make_fiber(&b, i);
	while (scheduler->live) {
		idle = run_pass(&b) ? 0 : idle + 1;
		if (scheduler->waiting && scheduler->waiting == scheduler->live)
			open_barrier(&b);
		else if (idle > 2)
			nanosleep(&(struct timespec){ 0, 20000 },
				  NULL); /* all poll words of peers */
	}
	end_fibers(&b);
}

#ifdef PTX_RACES
void ptx_dawdle(void)
{
	if (rand_r(&seed) % 16 == 0)
		nanosleep(&(struct timespec){ 0, 200000 }, NULL);
}
#endif
