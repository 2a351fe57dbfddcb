/*
 * bench.h - what the files of the benchmarks share: the command line, a collective, a rank, a
 * thread's ranks, figures
 *
 *   bench_main.c        reads the line, starts processes and threads, each running a crew
 *   bench_thread.c        joins the communicators, lets ranks agree on figures
 *   rank_records.c       who the other ranks are, and what they have: memory, GPUs
 *   sweep.c       types, operations, roots, sizes, algorithms: one row each
 *   measure.c     one cell of a row: check, warm up, time, check; figure.c: of all ranks
 *   bench_graph.c       the same calls as a CUDA graph
 *   bench_rank.c        one rank's inputs and results: make, fill, judge (values.c)
 *   bench_buffer.c      where they are: host memory, or a GPU's (cuda_device.c)
 *   bench_collectives.c the table of collectives: how to call them, what lands where
 *   report.c      rank 0 prints; json_results.c has the same as JSON, written by json.c
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdio.h>

#include "base/base.h"
#include "tools/cuda_device.h"
#include "perf/bench/values.h"
#include "plan/plan.h"
#include "tutti.h"

enum { BENCH_BUFFERS_AUTO, BENCH_BUFFERS_ROTATE, BENCH_BUFFERS_SAME, BENCH_BUFFERS_COLD };
enum { BENCH_PLACE_BOTH, BENCH_PLACE_OUT, BENCH_PLACE_IN };
enum { BENCH_ALL_TYPES = tuttiNumTypes, BENCH_ALL_OPS = BENCH_MULSUM + 1 };

/* ---- bench_options.c: the command line ----------------------------------------------------------- */

struct bench_options {
	int64_t threads, ranks_each, np;
	uint64_t min_bytes, max_bytes, step_bytes;
	int64_t step_factor;
	int64_t iters, aggregate, warmup, cycles, check;
	int type, op;
	int64_t graph;                     /* so often a CUDA graph is replayed; 0: no graph */
	int64_t root;                      /* -1: each in turn */
	int64_t blocking, null_stream, average, reg, parallel_init;
	int64_t cpu_time, timestamps, memory_report, unalign, per_iter, per_iter_skip;
	double timeout_s;
	const char *transport, *algo, *json;   /* NULL: not given */
	const char *device;
	bool cuda;                         /* what device says: */
	int ordinal;                       /* -1: by the rank's number on its host */
	int buffers, place;
	bool pin;
	int64_t seed;
	int argc;                          /* for the JSON file */
	char **argv;
};

struct bench_collective;

extern const char *const bench_buffers_names[], *const bench_place_names[];

/* What was given, else what the variable says, else "auto". */
const char *bench_options_setting(const char *given, const char *variable);

/* Reads the command line of bench's tool. 0 | 1: help printed | 2: a sentence went to stderr */
int bench_options_read(const struct bench_collective *bench, const char *tool, int argc, char **argv,
		 struct bench_options *ret_line);

/* ---- bench_collectives.c --------------------------------------------------------------------------- */

struct bench_call {
	const void *send;
	void *recv;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int root, rank, nranks;
	tuttiComm_t comm;
	tuttiStream_t stream;
};

struct bench_collective {
	enum tt_collective collective;
	bool combines, rooted, to_root;
	bool send_all, recv_all;           /* its buffer has nranks parts of count, else one */
	bool in_place;                     /* there is an in-place form */
	const char *help;
	double (*bus_factor)(int nranks);
	/* How many sizes all ranks' memory at least reads and writes together, were it one. */
	double (*memory_factor)(int nranks, bool in_place);
	tuttiResult_t (*call)(const struct bench_call *c);
	/* Not combining: which part of whose send buffer lands
	 * in part `part` of rank's receive buffer. */
	void (*origin)(const struct bench_call *c, int part, int *ret_rank, int *ret_part);
};

extern const struct bench_collective bench_collectives[TT_COLLECTIVES];      /* by collective */

/* The collective that a tool is named after: "allreduce_perf", "all_reduce_perf"; NULL: none. */
const struct bench_collective *bench_of_tool(const char *tool);

/* ---- bench_buffer.c -------------------------------------------------------------------------------- */

struct bench_buffer {
	char *at;                          /* what calls are given */
	char *host;                        /* the same, or its twin on the host */
	size_t bytes;
	bool library;                      /* tuttiMemAlloc's */
};

/* gpu->cu NULL: in host memory. 0, or an error with its sentence; free in any case. */
int bench_buffer_make(struct bench_buffer *b, const struct tool_cuda_device *gpu, size_t bytes,
		   bool library);
void bench_buffer_free(struct bench_buffer *b, const struct tool_cuda_device *gpu);
/* Where on the host is what is `at` in the buffer? */
void *bench_buffer_twin(const struct bench_buffer *b, const void *at);
/* Copies from the twin, or to it, behind what is on the stream, and waits. 0 | TT_CUDA */
int bench_buffer_put(const struct bench_buffer *b, const struct tool_cuda_device *gpu, tt_custream stream,
		  const void *at, size_t bytes);
int bench_buffer_get(const struct bench_buffer *b, const struct tool_cuda_device *gpu, tt_custream stream,
		  const void *at, size_t bytes);

/* ---- bench_rank.c: one rank ------------------------------------------------------------------------ */

/* What one cell of the table measures; the same on all ranks. */
struct bench_cell {
	const struct bench_collective *bench;
	size_t count;                      /* of the call */
	size_t esize;
	tuttiDataType_t type;
	int op, root, algo;                /* op as in values.h; algo: which of the communicators */
	bool in_place;
	size_t send_bytes, recv_bytes;     /* of one call */
	int slots;                         /* so many inputs in turn */
	size_t stride;                     /* from one to the next */
};

struct bench_rank {
	int rank, nranks;
	tuttiComm_t base;                  /* for agreeing; never measured */
	tuttiComm_t *comms;                /* [algos]: measured */
	tuttiRedOp_t *mulsum;              /* [algos]: the operation of the type in work */
	void **handles;                    /* [2 * algos]: registrations */
	struct tool_cuda_device gpu;         /* gpu.cu NULL: host memory */
	/* with a GPU: of this rank's copies, and of its calls unless they block */
	tt_custream own;
	tuttiStream_t stream;              /* of calls; NULL: they block */
	struct bench_buffer inputs, results;  /* results.at NULL: they are in place only */
	void *input, *result;              /* tables of values.h */
	int complaints;
};

/* Bytes that one rank's areas take, for the largest call of the line. */
size_t bench_rank_bytes(const struct bench_options *line, const struct bench_collective *bench);
/* Sets slots and stride: how many inputs of a call's size are used in turn. */
void bench_cell_slots(struct bench_cell *cell, const struct bench_options *line);

/* 0, or 1 after a sentence */
int bench_rank_make(struct bench_rank *s, const struct bench_options *line, const struct bench_collective *bench,
		 int algos);
void bench_rank_free(struct bench_rank *s, int algos);

/* Buffers of call number `slot` of a batch. */
struct bench_call bench_rank_call(const struct bench_rank *s, const struct bench_options *line,
				 const struct bench_cell *cell, int slot);
/* Write the inputs that belong to call number `number`, and poison where the result will be. 0, or
 * 1 after a sentence */
int bench_rank_fill(const struct bench_rank *s, const struct bench_options *line, const struct bench_cell *cell,
		 int slot, uint64_t number, bool poison);
/* Counts the elements of the result that are wrong, and those of the input that were changed. The
 * first goes to stderr. 0, or 1 after a sentence: nothing could be read */
int bench_rank_check(struct bench_rank *s, const struct bench_options *line, const struct bench_cell *cell,
		  int slot, uint64_t number, bool poisoned, uint64_t *ret_wrong);
/* Waits for the calls on its stream; comm is that of the calls. */
tuttiResult_t bench_rank_wait(const struct bench_rank *s, tuttiComm_t comm);
/* Push the buffers of the cell out of the caches. */
void bench_rank_flush(const struct bench_rank *s, const struct bench_cell *cell);
/* 0, or 1: this processor cannot do that */
int bench_can_flush(void);

/* ---- bench_thread.c: the ranks of one thread --------------------------------------------------------- */

/* What every rank tells all others after joining. */
struct bench_rank_record {
	char host[64], cpu[96];
	int64_t pid;
	uint64_t free_bytes;
};

/* And of its GPU. */
struct bench_gpu_record {
	bool failed;                       /* it has none */
	int ordinal;
	struct tt_cuuuid uuid;
	char name[64], pci[20];
};

struct bench_thread {
	const struct bench_options *line;
	const struct bench_collective *bench;
	const char *tool;
	tuttiUniqueId id;
	bool env;                          /* join what the environment says, not id */
	int first, nranks;                 /* my ranks are first .. first + nseats - 1 */
	int nseats;
	struct bench_rank *seats;
	struct bench_rank_record *cards;        /* [nranks] */
	struct bench_gpu_record *gpus;          /* [nranks]; NULL: host memory */
	bool one_gpu;                      /* all ranks share it */
	double copy_gbps;                  /* rank 0's GPU: read + written; 0: no GPU */
	size_t copy_bytes;                 /* of one such copy */
	int algos;
	char (*algo_names)[64];            /* [algos]; "auto" is one of them */
	/* so many were made: names the next one's data; equal on all ranks */
	uint64_t calls;
	double us_per_tick;
	bool wrong;                        /* a result was */
	struct bench_report *report;          /* at rank 0, else NULL */
};

/* Join; the exchange of cards, memory, pinning, buffers. 0 | 1 failed | 2 the line asks for
 * something impossible */
int bench_thread_open(struct bench_thread *c);
/* Leave. After a failure the communicators are aborted,
 * so that other threads of this process do not wait. */
void bench_thread_close(struct bench_thread *c, bool failed);

/* Every rank's record of bytes, in rank order; mine: [nseats] records. 0 | 1 */
int bench_thread_gather(struct bench_thread *c, const void *mine, size_t bytes, void *all);
int bench_thread_barrier(struct bench_thread *c);

/* rank_records.c, after the base communicators are joined: cards, memory, GPUs. 0 | 1 failed | 2 the line
 * asks for something impossible */
int bench_thread_exchange_records(struct bench_thread *c);
/* Which of this host's threads this one is. */
int bench_thread_local_index(const struct bench_thread *c);

/* Print, for each rank of this thread, why a call on its communicator failed. Returns 1. */
int bench_thread_complain(struct bench_thread *c, int algo, const char *what, tuttiResult_t result);

/* ---- measure.c ------------------------------------------------------------------------------- */

struct bench_figure {
	bool measured;                     /* false: there is no such form of this collective */
	double time_us, cpu_us, alg_gbps, bus_gbps, p50_us, p99_us;
	double memory_gbps;                /* of the GPU that all ranks share, or 0 */
	int64_t wrong;                     /* elements, all ranks; -1: not checked */
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;     /* sent in one call, all ranks */
	double *iter_us;                   /* [iters] with -I 1: the slowest rank of each; free */
};

/* What a rank measured of it. */
struct bench_share {
	double time_us, cpu_us, p50_us, p99_us;
	int64_t wrong;
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;
};

/* figure.c; shares, mine_us: [nseats], [iters]. 0 | 1 after a sentence */
int bench_figure_of(struct bench_thread *c, const struct bench_cell *cell, const struct bench_share *shares,
		 struct bench_figure *f);
/* -I 1: of every iteration the time of the slowest rank. */
int bench_figure_slowest(struct bench_thread *c, const double *mine_us, struct bench_figure *f);

int bench_measure(struct bench_thread *c, const struct bench_cell *cell, struct bench_figure *ret_figure);

/* ---- ticks.c --------------------------------------------------------------------------------- */

/* How long a tick of the processor's clock is; takes 2 ms. */
double bench_us_per_tick(void);

/* The q-th part (0..1) of n sorted values, nearest rank. */
double bench_quantile(const double *sorted, size_t n, double q);

/* ---- bench_graph.c: calls captured once, replayed often; a graph for each rank of the crew --------- */

struct bench_graph { void *graph, *exec; };

/* 0 | 1 after a sentence */
int bench_graph_begin(struct bench_thread *c);
int bench_graph_end(struct bench_thread *c, struct bench_graph *graphs);
int bench_graph_launch(struct bench_thread *c, const struct bench_graph *graphs);
void bench_graph_free(struct bench_thread *c, struct bench_graph *graphs);

/* ---- sweep.c --------------------------------------------------------------------------------- */

/* All rows. 0 | 1 a call failed. Wrong results are in c->wrong and do not end it. */
int bench_sweep(struct bench_thread *c);

/* ---- report.c, json_results.c, json.c: rank 0's output -------------------------------------------- */

struct bench_report;

struct bench_row {
	const struct bench_cell *cell;
	size_t bytes;
	char algorithm[64], plan[160];     /* the first word, and all that tuttiCommDescribe said */
	struct bench_figure out, in;
};

struct bench_totals {
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;
	uint64_t library_bytes, buffer_bytes;        /* of the rank that holds most */
};
int bench_thread_totals(struct bench_thread *c, struct bench_totals *ret_totals);

/* NULL after a sentence. */
struct bench_report *bench_report_open(const struct bench_thread *c);
void bench_report_note(const char *name, const char *reason);
void bench_report_table(struct bench_report *r);
void bench_report_progress(struct bench_report *r, const struct bench_cell *cell, const char *algo);
void bench_report_row(struct bench_report *r, const struct bench_row *row);
/* The footer, and the JSON file. error: NULL, or why it ended early. Frees r. 0 | 1 wrong values,
 * or the file failed */
int bench_report_close(struct bench_report *r, const struct bench_totals *totals, const char *error);

/* "12.34" in at most width characters, as nccl-tests shortens */
const char *bench_fit(char *text, int width, double value);

struct bench_json {
	FILE *to;
	int depth;
	bool more;                         /* a comma is due */
};
void bench_json_open(struct bench_json *j, const char *key, char bracket);
void bench_json_close(struct bench_json *j, char bracket);
void bench_json_text(struct bench_json *j, const char *key, const char *value);
void bench_json_int(struct bench_json *j, const char *key, long long value);
void bench_json_real(struct bench_json *j, const char *key, double value);
void bench_json_bool(struct bench_json *j, const char *key, bool value);
void bench_json_null(struct bench_json *j, const char *key);

/* json_results.c: the parts of the JSON file */
void bench_results_head(struct bench_json *j, const struct bench_thread *c, int library);
void bench_results_row(struct bench_json *j, const struct bench_options *line, const struct bench_row *row);
void bench_results_foot(struct bench_json *j, const struct bench_totals *totals, double bus, int wrong,
		     const char *error);
void bench_now_text(char *text, size_t bytes);

/* Before long work: can a file be written there? 0 | 2 after a sentence */
int bench_check_file(const char *tool, const char *option, const char *path);
/* Writes text to path by way of a file beside it, so that path is never half written.
 * 0 | -1 with errno */
int bench_write_file(const char *path, const char *text, size_t bytes);

#endif
