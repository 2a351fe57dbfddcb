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
#ifndef TT_BENCH_H
#define TT_BENCH_H

#include <stdio.h>

#include "base/base.h"
#include "tools/cuda_device.h"
#include "perf/bench/values.h"
#include "plan/plan.h"
#include "tutti.h"

enum { TT_BUFFERS_AUTO, TT_BUFFERS_ROTATE, TT_BUFFERS_SAME, TT_BUFFERS_COLD };
enum { TT_PLACE_BOTH, TT_PLACE_OUT, TT_PLACE_IN };
enum { TT_ALL_TYPES = tuttiNumTypes, TT_ALL_OPS = TT_MULSUM + 1 };

/* ---- bench_options.c: the command line ----------------------------------------------------------- */

struct tt_line {
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

struct tt_bench;

extern const char *const tt_buffers_names[], *const tt_place_names[];

/* What was given, else what the variable says, else "auto". */
const char *tt_line_setting(const char *given, const char *variable);

/* Reads the command line of bench's tool. 0 | 1: help printed | 2: a sentence went to stderr */
int tt_line_read(const struct tt_bench *bench, const char *tool, int argc, char **argv,
		 struct tt_line *ret_line);

/* ---- bench_collectives.c --------------------------------------------------------------------------- */

struct tt_perf_call {
	const void *send;
	void *recv;
	size_t count;
	tuttiDataType_t type;
	tuttiRedOp_t op;
	int root, rank, nranks;
	tuttiComm_t comm;
	tuttiStream_t stream;
};

struct tt_bench {
	enum tt_collective collective;
	bool combines, rooted, to_root;
	bool send_all, recv_all;           /* its buffer has nranks parts of count, else one */
	bool in_place;                     /* there is an in-place form */
	const char *help;
	double (*bus_factor)(int nranks);
	/* How many sizes all ranks' memory at least reads and writes together, were it one. */
	double (*memory_factor)(int nranks, bool in_place);
	tuttiResult_t (*call)(const struct tt_perf_call *c);
	/* Not combining: which part of whose send buffer lands
	 * in part `part` of rank's receive buffer. */
	void (*origin)(const struct tt_perf_call *c, int part, int *ret_rank, int *ret_part);
};

extern const struct tt_bench tt_benches[TT_COLLECTIVES];      /* by collective */

/* The collective that a tool is named after: "allreduce_perf", "all_reduce_perf"; NULL: none. */
const struct tt_bench *tt_bench_of_tool(const char *tool);

/* ---- bench_buffer.c -------------------------------------------------------------------------------- */

struct tt_buffer {
	char *at;                          /* what calls are given */
	char *host;                        /* the same, or its twin on the host */
	size_t bytes;
	bool library;                      /* tuttiMemAlloc's */
};

/* gpu->cu NULL: in host memory. 0, or an error with its sentence; free in any case. */
int tt_buffer_make(struct tt_buffer *b, const struct tt_cuda_device *gpu, size_t bytes,
		   bool library);
void tt_buffer_free(struct tt_buffer *b, const struct tt_cuda_device *gpu);
/* Where on the host is what is `at` in the buffer? */
void *tt_buffer_twin(const struct tt_buffer *b, const void *at);
/* Copies from the twin, or to it, behind what is on the stream, and waits. 0 | TT_CUDA */
int tt_buffer_put(const struct tt_buffer *b, const struct tt_cuda_device *gpu, tt_custream stream,
		  const void *at, size_t bytes);
int tt_buffer_get(const struct tt_buffer *b, const struct tt_cuda_device *gpu, tt_custream stream,
		  const void *at, size_t bytes);

/* ---- bench_rank.c: one rank ------------------------------------------------------------------------ */

/* What one cell of the table measures; the same on all ranks. */
struct tt_cell {
	const struct tt_bench *bench;
	size_t count;                      /* of the call */
	size_t esize;
	tuttiDataType_t type;
	int op, root, algo;                /* op as in values.h; algo: which of the communicators */
	bool in_place;
	size_t send_bytes, recv_bytes;     /* of one call */
	int slots;                         /* so many inputs in turn */
	size_t stride;                     /* from one to the next */
};

struct tt_seat {
	int rank, nranks;
	tuttiComm_t base;                  /* for agreeing; never measured */
	tuttiComm_t *comms;                /* [algos]: measured */
	tuttiRedOp_t *mulsum;              /* [algos]: the operation of the type in work */
	void **handles;                    /* [2 * algos]: registrations */
	struct tt_cuda_device gpu;         /* gpu.cu NULL: host memory */
	/* with a GPU: of this rank's copies, and of its calls unless they block */
	tt_custream own;
	tuttiStream_t stream;              /* of calls; NULL: they block */
	struct tt_buffer inputs, results;  /* results.at NULL: they are in place only */
	void *input, *result;              /* tables of values.h */
	int complaints;
};

/* Bytes that one rank's areas take, for the largest call of the line. */
size_t tt_seat_bytes(const struct tt_line *line, const struct tt_bench *bench);
/* Sets slots and stride: how many inputs of a call's size are used in turn. */
void tt_cell_slots(struct tt_cell *cell, const struct tt_line *line);

/* 0, or 1 after a sentence */
int tt_seat_make(struct tt_seat *s, const struct tt_line *line, const struct tt_bench *bench,
		 int algos);
void tt_seat_free(struct tt_seat *s, int algos);

/* Buffers of call number `slot` of a batch. */
struct tt_perf_call tt_seat_call(const struct tt_seat *s, const struct tt_line *line,
				 const struct tt_cell *cell, int slot);
/* Write the inputs that belong to call number `number`, and poison where the result will be. 0, or
 * 1 after a sentence */
int tt_seat_fill(const struct tt_seat *s, const struct tt_line *line, const struct tt_cell *cell,
		 int slot, uint64_t number, bool poison);
/* Counts the elements of the result that are wrong, and those of the input that were changed. The
 * first goes to stderr. 0, or 1 after a sentence: nothing could be read */
int tt_seat_judge(struct tt_seat *s, const struct tt_line *line, const struct tt_cell *cell,
		  int slot, uint64_t number, bool poisoned, uint64_t *ret_wrong);
/* Waits for the calls on its stream; comm is that of the calls. */
tuttiResult_t tt_seat_wait(const struct tt_seat *s, tuttiComm_t comm);
/* Push the buffers of the cell out of the caches. */
void tt_seat_cool(const struct tt_seat *s, const struct tt_cell *cell);
/* 0, or 1: this processor cannot do that */
int tt_can_cool(void);

/* ---- bench_thread.c: the ranks of one thread --------------------------------------------------------- */

/* What every rank tells all others after joining. */
struct tt_rank_card {
	char host[64], cpu[96];
	int64_t pid;
	uint64_t free_bytes;
};

/* And of its GPU. */
struct tt_gpu_card {
	bool failed;                       /* it has none */
	int ordinal;
	struct tt_cuuuid uuid;
	char name[64], pci[20];
};

struct tt_crew {
	const struct tt_line *line;
	const struct tt_bench *bench;
	const char *tool;
	tuttiUniqueId id;
	bool env;                          /* join what the environment says, not id */
	int first, nranks;                 /* my ranks are first .. first + nseats - 1 */
	int nseats;
	struct tt_seat *seats;
	struct tt_rank_card *cards;        /* [nranks] */
	struct tt_gpu_card *gpus;          /* [nranks]; NULL: host memory */
	bool one_gpu;                      /* all ranks share it */
	double copy_gbps;                  /* rank 0's GPU: read + written; 0: no GPU */
	size_t copy_bytes;                 /* of one such copy */
	int algos;
	char (*algo_names)[64];            /* [algos]; "auto" is one of them */
	/* so many were made: names the next one's data; equal on all ranks */
	uint64_t calls;
	double us_per_tick;
	bool wrong;                        /* a result was */
	struct tt_report *report;          /* at rank 0, else NULL */
};

/* Join; the exchange of cards, memory, pinning, buffers. 0 | 1 failed | 2 the line asks for
 * something impossible */
int tt_crew_open(struct tt_crew *c);
/* Leave. After a failure the communicators are aborted,
 * so that other threads of this process do not wait. */
void tt_crew_close(struct tt_crew *c, bool failed);

/* Every rank's record of bytes, in rank order; mine: [nseats] records. 0 | 1 */
int tt_crew_gather(struct tt_crew *c, const void *mine, size_t bytes, void *all);
int tt_crew_meet(struct tt_crew *c);

/* rank_records.c, after the base communicators are joined: cards, memory, GPUs. 0 | 1 failed | 2 the line
 * asks for something impossible */
int tt_crew_know(struct tt_crew *c);
/* Which of this host's threads this one is. */
int tt_crew_local_index(const struct tt_crew *c);

/* Print, for each rank of this thread, why a call on its communicator failed. Returns 1. */
int tt_crew_complain(struct tt_crew *c, int algo, const char *what, tuttiResult_t result);

/* ---- measure.c ------------------------------------------------------------------------------- */

struct tt_figure {
	bool measured;                     /* false: there is no such form of this collective */
	double time_us, cpu_us, alg_gbps, bus_gbps, p50_us, p99_us;
	double memory_gbps;                /* of the GPU that all ranks share, or 0 */
	int64_t wrong;                     /* elements, all ranks; -1: not checked */
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;     /* sent in one call, all ranks */
	double *iter_us;                   /* [iters] with -I 1: the slowest rank of each; free */
};

/* What a rank measured of it. */
struct tt_share {
	double time_us, cpu_us, p50_us, p99_us;
	int64_t wrong;
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;
};

/* figure.c; shares, mine_us: [nseats], [iters]. 0 | 1 after a sentence */
int tt_figure_of(struct tt_crew *c, const struct tt_cell *cell, const struct tt_share *shares,
		 struct tt_figure *f);
/* -I 1: of every iteration the time of the slowest rank. */
int tt_figure_slowest(struct tt_crew *c, const double *mine_us, struct tt_figure *f);

int tt_measure(struct tt_crew *c, const struct tt_cell *cell, struct tt_figure *ret_figure);

/* ---- ticks.c --------------------------------------------------------------------------------- */

/* How long a tick of the processor's clock is; takes 2 ms. */
double tt_us_per_tick(void);

/* The q-th part (0..1) of n sorted values, nearest rank. */
double tt_quantile(const double *sorted, size_t n, double q);

/* ---- bench_graph.c: calls captured once, replayed often; a graph for each rank of the crew --------- */

struct tt_graph { void *graph, *exec; };

/* 0 | 1 after a sentence */
int tt_graph_begin(struct tt_crew *c);
int tt_graph_end(struct tt_crew *c, struct tt_graph *graphs);
int tt_graph_launch(struct tt_crew *c, const struct tt_graph *graphs);
void tt_graph_free(struct tt_crew *c, struct tt_graph *graphs);

/* ---- sweep.c --------------------------------------------------------------------------------- */

/* All rows. 0 | 1 a call failed. Wrong results are in c->wrong and do not end it. */
int tt_sweep(struct tt_crew *c);

/* ---- report.c, json_results.c, json.c: rank 0's output -------------------------------------------- */

struct tt_report;

struct tt_row {
	const struct tt_cell *cell;
	size_t bytes;
	char algorithm[64], plan[160];     /* the first word, and all that tuttiCommDescribe said */
	struct tt_figure out, in;
};

struct tt_totals {
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;
	uint64_t library_bytes, buffer_bytes;        /* of the rank that holds most */
};
int tt_crew_totals(struct tt_crew *c, struct tt_totals *ret_totals);

/* NULL after a sentence. */
struct tt_report *tt_report_open(const struct tt_crew *c);
void tt_report_note(const char *name, const char *reason);
void tt_report_table(struct tt_report *r);
void tt_report_progress(struct tt_report *r, const struct tt_cell *cell, const char *algo);
void tt_report_row(struct tt_report *r, const struct tt_row *row);
/* The footer, and the JSON file. error: NULL, or why it ended early. Frees r. 0 | 1 wrong values,
 * or the file failed */
int tt_report_close(struct tt_report *r, const struct tt_totals *totals, const char *error);

/* "12.34" in at most width characters, as nccl-tests shortens */
const char *tt_fit(char *text, int width, double value);

struct tt_json {
	FILE *to;
	int depth;
	bool more;                         /* a comma is due */
};
void tt_json_open(struct tt_json *j, const char *key, char bracket);
void tt_json_close(struct tt_json *j, char bracket);
void tt_json_text(struct tt_json *j, const char *key, const char *value);
void tt_json_int(struct tt_json *j, const char *key, long long value);
void tt_json_real(struct tt_json *j, const char *key, double value);
void tt_json_bool(struct tt_json *j, const char *key, bool value);
void tt_json_null(struct tt_json *j, const char *key);

/* json_results.c: the parts of the JSON file */
void tt_results_head(struct tt_json *j, const struct tt_crew *c, int library);
void tt_results_row(struct tt_json *j, const struct tt_line *line, const struct tt_row *row);
void tt_results_foot(struct tt_json *j, const struct tt_totals *totals, double bus, int wrong,
		     const char *error);
void tt_now_text(char *text, size_t bytes);

/* Before long work: can a file be written there? 0 | 2 after a sentence */
int tt_check_file(const char *tool, const char *option, const char *path);
/* Writes text to path by way of a file beside it, so that path is never half written.
 * 0 | -1 with errno */
int tt_write_file(const char *path, const char *text, size_t bytes);

#endif
