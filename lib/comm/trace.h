/*
 * trace.h - the flight recorder: the latest calls of a rank with their times, in a file
 *
 * TUTTI_TRACE names a folder. Each rank of each communicator maps a file there, which is a ring of
 * binary records; the kernel keeps the file when the process dies, so no record is lost by a kill or
 * an abort. run/trace_way.c writes the records; `tutti trace` reads the files, also while the job
 * runs. With TUTTI_METRICS the recorder also counts the calls (call_metrics.h).
 */
#ifndef TT_TRACE_H
#define TT_TRACE_H

#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "comm/call_metrics.h"
#include "control/control.h"

#define TT_TRACE_MAGIC 0x3243525449545554ull /* "TUTTIRC2" */
#define TT_TRACE_BYTES (512u << 10)          /* length of a file */
#define TT_TRACE_HEAD 4096                   /* length of its head */
#define TT_TRACE_WAYS 8
#define TT_TRACE_RECORDS ((TT_TRACE_BYTES - TT_TRACE_HEAD) / sizeof(struct tt_trace_record))

/* A call. Thread: written by the thread that runs the communicator's operations; read by other
 * processes at any time. */
struct tt_trace_record {
	atomic_uint_fast64_t number; /* from 1; 0 while the record changes */
	uint64_t start, end;         /* ticks; end 0: the call has not ended */
	uint64_t seq;                /* sequence number of the collective */
	struct tt_call call;
	uint64_t bytes;  /* of call.count elements */
	int32_t awaited; /* rank that the call has waited for long, -1: none, or several */
	uint8_t way;     /* index in head->way */
	uint8_t failed;
	uint16_t unused;
};
_Static_assert(sizeof(struct tt_trace_record) == 64, "one cache line, in every build");

struct tt_trace_clock {
	uint64_t ticks, ns; /* ns: of CLOCK_MONOTONIC */
};

enum tt_trace_state { TT_TRACE_OPEN, TT_TRACE_ENDED, TT_TRACE_FAILED };

struct tt_trace_head {
	uint64_t magic;
	uint32_t record_bytes, nrecords;
	uint64_t comm; /* equal on all ranks of the communicator, and on no other one */
	int32_t rank, nranks, pid, state;
	char host[64], name[64];              /* name: of the communicator, or "" */
	char way[TT_TRACE_WAYS][16];          /* names of the ways of a call */
	struct tt_trace_clock made, later[2]; /* later[latest]: the rate of ticks */
	atomic_uint latest;
	int64_t realtime_ns; /* CLOCK_REALTIME at `made` */
	char error[1024];    /* sentence of the failure */
};
_Static_assert(sizeof(struct tt_trace_head) <= TT_TRACE_HEAD, "the head has its page");

struct tt_way;

struct tt_trace {
	struct tt_trace_head *head; /* the mapping */
	struct tt_trace_record *records;
	struct tt_trace_record *now;   /* the latest record */
	uint64_t last;                 /* its number */
	uint64_t clock_due;            /* ticks: twice the time from `made` to the latest rate */
	const struct tt_way *observer; /* run/trace_way.c */
	struct tt_metrics *metrics;    /* NULL: no TUTTI_METRICS, _RAS or _TOP */
};

/* Map the file of this rank in folder dir; "": memory of the process. metrics: the folder of the
 * metrics, "": the calls are counted without files; NULL: they are not. 0 | TT_ARG: a wrong folder |
 * TT_SYSTEM */
int tt_trace_open(const char *dir, const char *metrics, const struct tt_trace_head *facts,
		  struct tt_trace **ret_trace);
/* The communicator ends; trace may be NULL. */
void tt_trace_close(struct tt_trace *trace);
/* The communicator failed, with this sentence. */
void tt_trace_failed(struct tt_trace *trace, const char *text);
/* Write the rate of ticks into the head. tt_trace_start does so when the time since the latest rate
 * is as long as the time that it was measured over: a start errs little more than the clocks' readings. */
void tt_trace_clock(struct tt_trace *trace);

/* Cheaper than clock_gettime, which alone takes half of the time that a record may cost. */
static inline uint64_t tt_trace_ticks(void)
{
#ifdef __x86_64__
	return __rdtsc();
#else
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
#endif
}

/* A call starts. */
static inline void tt_trace_start(struct tt_trace *t, uint64_t seq, const struct tt_call *call,
				  uint64_t bytes, unsigned way)
{
	struct tt_trace_record *r = t->now + 1;
	uint64_t start = tt_trace_ticks();

	if (tt_unlikely(r == t->records + TT_TRACE_RECORDS))
		r = t->records;
	if (tt_unlikely(start > t->clock_due))
		tt_trace_clock(t);
	atomic_store_explicit(&r->number, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	r->seq = seq;
	r->call = *call;
	r->bytes = bytes;
	r->end = 0;
	r->awaited = -1;
	r->way = (uint8_t)way;
	r->failed = 0;
	r->start = start;
	t->now = r;
	if (t->metrics)
		tt_metrics_start(t->metrics, start);
	atomic_store_explicit(&r->number, ++t->last, memory_order_release);
}

static inline void tt_trace_end(struct tt_trace *t)
{
	struct tt_trace_record *r = t->now;

	r->end = tt_trace_ticks();
	if (t->metrics)
		tt_metrics_count(t->metrics, &r->call, r->bytes, r->end - r->start);
}

/* Remove the latest record: its call has not begun and is tried by another way. */
static inline void tt_trace_cancel(struct tt_trace *t)
{
	atomic_store_explicit(&t->now->number, 0, memory_order_release);
	t->now = t->now == t->records ? t->records + TT_TRACE_RECORDS - 1 : t->now - 1;
	t->last--;
	if (t->metrics)
		tt_metrics_start(t->metrics, 0);
}

#endif
