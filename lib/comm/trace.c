/*
 * trace.c - create and map the file of the flight recorder, and write its head
 *
 * Called by comm when a communicator is made, fails or ends. run/trace_way.c writes the records.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/trace.h"

#define CALIBRATE_NS 200000 /* until tt_trace_clock sees a longer time */
#define READINGS 8

/* Reads both clocks READINGS times and returns the pair whose readings are closest: a process that
 * loses its core between the two reads gets a distant pair. */
static struct tt_trace_clock clock_now(void)
{
	struct tt_trace_clock now = { 0, 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < READINGS; i++) {
		uint64_t before = tt_trace_ticks(), ns = tt_now_ns(), apart;

		apart = tt_trace_ticks() - before;
		if (apart < least) {
			now = (struct tt_trace_clock){ before + apart / 2, ns };
			least = apart;
		}
	}
	return now;
}

/* A reader sees the previous pair or this one, never half of each. */
static void set_later(struct tt_trace *t, struct tt_trace_clock now)
{
	struct tt_trace_head *head = t->head;
	unsigned next = !atomic_load_explicit(&head->latest, memory_order_relaxed);

	head->later[next] = now;
	atomic_store_explicit(&head->latest, next, memory_order_release);
	t->clock_due = now.ticks + (now.ticks - head->made.ticks);
}

void tt_trace_clock(struct tt_trace *t)
{
	struct tt_trace_clock now = clock_now();

	if (now.ns - t->head->made.ns > CALIBRATE_NS)
		set_later(t, now);
}

static void start_clock(struct tt_trace *t)
{
	struct timespec real;
	struct tt_trace_clock now;

	clock_gettime(CLOCK_REALTIME, &real);
	t->head->realtime_ns = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec;
	t->head->made = clock_now();
	do
		now = clock_now();
	while (now.ns - t->head->made.ns < CALIBRATE_NS);
	set_later(t, now);
}

/* Creates a file that only the user can access. An older file of this name belongs to a job that has
 * ended. */
static int make_file(const char *path)
{
	int fd;

	if (unlink(path) && errno != ENOENT)
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && (errno = posix_fallocate(fd, 0, TT_TRACE_BYTES))) {
		close(fd);
		unlink(path);
		fd = -1;
	}
	return fd;
}

/* path "": memory of the process */
static void *map(const char *path)
{
	int fd = *path ? make_file(path) : -1, error;
	void *p;

	if (*path && fd < 0)
		return NULL;
	p = mmap(NULL, TT_TRACE_BYTES, PROT_READ | PROT_WRITE,
		 *path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return p == MAP_FAILED ? NULL : p;
}

static int make(const char *dir, const struct tt_trace_head *facts, struct tt_trace **ret_trace)
{
	struct tt_trace *t = calloc(1, sizeof(*t));
	char path[4200] = "";
	int rc;

	if (!t)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for a flight recorder",
			       (int)facts->rank);
	if (*dir)
		snprintf(path, sizeof(path), "%s/%016llx.%d.tutti", dir,
			 (unsigned long long)facts->comm, (int)facts->rank);
	t->head = map(path);
	if (t->head) {
		*ret_trace = t;
		return 0;
	}
	if (*dir)
		rc = tt_fail_folder((int)facts->rank, "TUTTI_TRACE", dir);
	else
		rc = tt_fail(TT_SYSTEM, "rank %d: no memory for the records of TUTTI_METRICS: %m",
			     (int)facts->rank);
	free(t);
	return rc;
}

static int open_metrics(struct tt_trace *t, const char *dir)
{
	const struct tt_trace_head *h = t->head;
	const struct tt_trace_clock *later = &h->later[h->latest];
	struct tt_metrics_facts facts = {
		.comm = h->comm,
		.rank = h->rank,
		.nranks = h->nranks,
		.name = h->name,
		.tick_ns = (double)(later->ns - h->made.ns) /
			   (double)(later->ticks - h->made.ticks),
	};

	return dir ? tt_metrics_open(dir, &facts, &t->metrics) : 0;
}

int tt_trace_open(const char *dir, const char *metrics, const struct tt_trace_head *facts,
		  struct tt_trace **ret_trace)
{
	struct tt_trace *t;
	int rc = make(dir, facts, &t);

	if (rc)
		return rc;
	*t->head = *facts;
	t->head->record_bytes = sizeof(struct tt_trace_record);
	t->head->nrecords = TT_TRACE_RECORDS;
	t->head->pid = (int32_t)getpid();
	t->records = (void *)((char *)t->head + TT_TRACE_HEAD);
	t->now = t->records + TT_TRACE_RECORDS - 1;
	start_clock(t);
	/* a file with the magic number has a whole head */
	atomic_thread_fence(memory_order_release);
	t->head->magic = TT_TRACE_MAGIC;
	rc = open_metrics(t, metrics);
	if (rc) {
		tt_trace_close(t);
		return rc;
	}
	*ret_trace = t;
	return 0;
}

void tt_trace_failed(struct tt_trace *t, const char *text)
{
	snprintf(t->head->error, sizeof(t->head->error), "%s", text);
	/* a file in state failed has the whole sentence */
	atomic_thread_fence(memory_order_release);
	t->head->state = TT_TRACE_FAILED;
	if (t->last && !t->now->end)
		t->now->failed = 1;
	if (t->metrics)
		tt_metrics_failed(t->metrics);
	tt_trace_clock(t);
}

void tt_trace_close(struct tt_trace *t)
{
	if (!t)
		return;
	tt_metrics_close(t->metrics);
	tt_trace_clock(t);
	if (t->head->state == TT_TRACE_OPEN)
		t->head->state = TT_TRACE_ENDED;
	munmap(t->head, TT_TRACE_BYTES);
	free(t);
}
