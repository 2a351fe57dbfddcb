/*
 * simulated_heap.c - memory of a schedule, at the same addresses in every schedule
 *
 * Called by the other files of the simulation, also for the requests of the library. Addresses are
 * reserved once; sim_heap_begin empties them, so a seed finds equal addresses and contents whatever
 * ran before in this program. Freed memory serves later requests of about its size.
 *
 *   | lists | blocks, each behind its head -> | runs of pages -> | large runs -> | heads of runs |
 *
 * Large runs are requests of 16 MiB and more. Of many ranks, blocks of a page and more are runs, so that pages which
 * nobody writes to take no memory, and the kernel gets the pages of most freed runs back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/simulation/simulation.h"

#define HEAD sizeof(struct block_head)
#define PAGE ((size_t)4096)
#define STEPS 64 /* of HEAD bytes; half as many for each doubling of the sizes above */
#define DOUBLINGS 32
#define RUNS 32                         /* sizes of runs: powers of two */
#define BLOCK_MOST ((size_t)128 << 10)  /* a larger block is a run, which few schedules fill */
#define SPARSE_MOST ((size_t)2 << 10)   /* the same, of many ranks */
#define WARM 64                         /* freed runs of a size that keep their pages */
#define LARGE_RUN ((size_t)16 << 20)    /* has the bytes of earlier schedules */
#define REQUEST_MOST ((size_t)8 << 30)  /* a larger one fails */
#define BLOCKS_RANGE ((size_t)64 << 30) /* addresses */
#define RUNS_RANGE ((size_t)1024 << 30) /* addresses */
#define HEADS_RANGE (2 * RUNS_RANGE / PAGE * sizeof(struct run_head))
#define CLEARED_HERE ((size_t)256 << 20) /* the kernel clears what is above */

struct block_head {
	size_t bytes;    /* as requested */
	uint32_t list;   /* of its size */
	uint32_t before; /* from the start of the block: they align the data */
};

struct unused {
	struct unused *next;
};

struct run_head {
	struct block_head block; /* if the run is a block */
	char *next;              /* if it is unused, with: */
	bool clear;              /* has no pages */
};

static struct heap {
	bool sparse;
	char *next_block, *next_run, *next_large;
	struct unused *blocks[STEPS * DOUBLINGS];
	char *runs[RUNS];
	int nruns[RUNS]; /* unused */
} * heap;

int __real_madvise(void *pages, size_t bytes, int advice);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);

static char *all_runs(void)
{
	return (char *)heap + BLOCKS_RANGE;
}

static char *large_runs(void)
{
	return all_runs() + RUNS_RANGE;
}

static struct run_head *run_head(const void *pages)
{
	return (struct run_head *)(void *)(large_runs() + RUNS_RANGE) +
	       (size_t)((const char *)pages - all_runs()) / PAGE;
}

void sim_heap_begin(bool sparse)
{
	if (!heap) {
		heap = __real_mmap(NULL, BLOCKS_RANGE + 2 * RUNS_RANGE + HEADS_RANGE,
				   PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (heap == MAP_FAILED)
			abort();
		if (sparse) {
			__real_madvise(heap, BLOCKS_RANGE + 2 * RUNS_RANGE, MADV_NOHUGEPAGE);
		} else {
			__real_madvise(heap, BLOCKS_RANGE, MADV_HUGEPAGE);
			__real_madvise(large_runs(), RUNS_RANGE, MADV_HUGEPAGE);
		}
	} else {
		size_t used = (size_t)(heap->next_block - (char *)heap);

		__real_madvise(all_runs(), (size_t)(heap->next_run - all_runs()), MADV_DONTNEED);
		if (used > CLEARED_HERE)
			__real_madvise((char *)heap + CLEARED_HERE, used - CLEARED_HERE,
				       MADV_DONTNEED);
		memset(heap, 0, used < CLEARED_HERE ? used : CLEARED_HERE);
	}
	heap->sparse = sparse;
	heap->next_block = (char *)(heap + 1);
	heap->next_run = all_runs();
	heap->next_large = large_runs();
}

/* ---- runs of pages --------------------------------------------------------------------------- */

static int list_of_runs(size_t bytes)
{
	int list = 0;

	while (PAGE << list < bytes)
		list++;
	return list;
}

/* ret_clear: is it zero? */
static char *take_run(int list, bool *ret_clear)
{
	char *run = heap->runs[list];
	size_t room = PAGE << list;
	bool large = room >= LARGE_RUN;
	char **next = large ? &heap->next_large : &heap->next_run;

	*ret_clear = run ? run_head(run)->clear : !large || heap->sparse;
	if (run) {
		heap->runs[list] = run_head(run)->next;
		heap->nruns[list]--;
		return run;
	}
	if (room > (size_t)((large ? large_runs() : all_runs()) + RUNS_RANGE - *next))
		return NULL;
	*next += room;
	return *next - room;
}

static void free_run(char *run, int list)
{
	bool clear = heap->sparse && heap->nruns[list] >= WARM;

	if (clear)
		__real_madvise(run, PAGE << list, MADV_DONTNEED);
	run_head(run)->next = heap->runs[list];
	run_head(run)->clear = clear;
	heap->runs[list] = run;
	heap->nruns[list]++;
}

void *sim_pages(size_t bytes)
{
	int list = list_of_runs(bytes);
	bool clear;
	char *pages = take_run(list, &clear);

	if (pages && !clear)
		__real_madvise(pages, PAGE << list, MADV_DONTNEED);
	return pages;
}

void sim_pages_free(void *pages, size_t bytes)
{
	free_run(pages, list_of_runs(bytes));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The list of the smallest blocks for that many bytes */
static uint32_t list_of(size_t bytes)
{
	size_t steps = bytes / HEAD + 2, left = steps;
	uint32_t doublings = 0;

	while (left >= STEPS)
		left = ((steps - 1) >> ++doublings) + 1;
	return doublings * STEPS + (uint32_t)left;
}

static size_t room_of(uint32_t list)
{
	return (size_t)(list % STEPS) * HEAD << list / STEPS;
}

static bool is_run(const void *data)
{
	return (const char *)data >= all_runs();
}

static char *take_block(uint32_t list, bool *ret_clear)
{
	size_t room = room_of(list);
	struct unused *block = heap->blocks[list];

	*ret_clear = !block;
	if (block) {
		heap->blocks[list] = block->next;
		return (char *)block;
	}
	if (room > (size_t)(all_runs() - heap->next_block))
		return NULL;
	heap->next_block += room;
	return heap->next_block - room;
}

static struct block_head *head_of(const void *data)
{
	return is_run(data) ? &run_head(data)->block : (struct block_head *)(uintptr_t)data - 1;
}

static void *make(size_t alignment, size_t bytes, bool *ret_clear)
{
	size_t more = alignment > HEAD ? alignment : 0, before;
	uint32_t list = bytes > REQUEST_MOST ? 0 : list_of(bytes + more);
	bool run = room_of(list) > (heap->sparse ? SPARSE_MOST : BLOCK_MOST);
	char *start = !list ? NULL
		      : run ? take_run(list_of_runs(bytes), ret_clear)
			    : take_block(list, ret_clear);

	if (!start) {
		errno = ENOMEM;
		return NULL;
	}
	before = more ? -(uintptr_t)(start + HEAD) & (alignment - 1) : 0;
	start += run ? 0 : before + HEAD;
	*head_of(start) = (struct block_head){ bytes, list, (uint32_t)before };
	return start;
}

void *sim_block(size_t alignment, size_t bytes)
{
	bool clear;

	return make(alignment, bytes, &clear);
}

void *sim_alloc(size_t bytes)
{
	bool clear;
	void *data = make(HEAD, bytes, &clear);

	if (!data || clear)
		return data;
	if (!heap->sparse || !is_run(data))
		return memset(data, 0, bytes);
	__real_madvise(data, PAGE << list_of_runs(bytes), MADV_DONTNEED);
	return data;
}

bool sim_is_block(const void *data)
{
	return heap && (const char *)data > (char *)heap &&
	       (const char *)data < large_runs() + RUNS_RANGE;
}

size_t sim_block_bytes(const void *data)
{
	return head_of(data)->bytes;
}

void sim_free(void *data)
{
	const struct block_head *head;
	struct unused *start;

	if (!data)
		return;
	head = head_of(data);
	if (is_run(data)) {
		free_run(data, list_of_runs(head->bytes));
		return;
	}
	start = (void *)((uintptr_t)head - head->before);
	start->next = heap->blocks[head->list];
	heap->blocks[head->list] = start;
}

void *sim_resize(void *old, size_t bytes)
{
	size_t had = old ? sim_block_bytes(old) : 0;
	void *data = sim_block(HEAD, bytes);

	if (!data)
		return NULL;
	if (old)
		memcpy(data, old, had < bytes ? had : bytes);
	sim_free(old);
	return data;
}
