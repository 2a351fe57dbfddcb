/*
 * bench.h - types and functions shared by the files of the benchmarks
 *
 *   bench_main.c         parses the options, starts processes and threads
 *   bench_options.c      table of command-line options, checks across options
 *   nccl_tests_env.c     variables of nccl-tests: groups of ranks, least bandwidth
 *   bench_thread.c       ranks of one thread: communicators, exchange of figures
 *   rank_records.c       exchanges one record per rank: host, free memory, GPU
 *   sweep.c              loops over types, operations, roots, sizes, algorithms: one row each
 *   measure.c            measures one cell of a row: check, warm up, time, check
 *   limits.c             limits of the machine, for the report: copy, flag, wire
 *   figure.c             combines the figures of all ranks
 *   bench_graph.c        captures the calls as a CUDA graph and replays the graph
 *   bench_rank.c         inputs and results of one rank: allocate, fill, check (values.c)
 *   bench_buffer.c       one buffer in host memory or in GPU memory (cuda_device.c)
 *   bench_collectives.c  table of collectives: call, sizes, origin of each part of the result
 *   report.c             output of rank 0; the same results in files (results_file.c): as JSON
 *                        (json_results.c, json.c) and CSV (csv_results.c)
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

/* ---- bench_options.c: the command line; nccl_tests_env.c ------------------------------------- */

/* Groups of ranks that measure at the same time: by a number made of the process's number. */
struct bench_split {
	enum bench_split_how {
		BENCH_SPLIT_NONE,
		BENCH_SPLIT_AND,
		BENCH_SPLIT_OR,
		BENCH_SPLIT_MOD,
		BENCH_SPLIT_DIV
	} how;
	int number;
};

struct bench_options {
	int64_t threads, ranks_each, np;
	uint64_t min_bytes, max_bytes, step_bytes;
	int64_t step_factor;
	int64_t iters, aggregate, warmup, cycles, check;
	int type, op;
	int64_t graph; /* number of replays of the CUDA graph; 0: no graph */
	int64_t root;  /* -1: every rank, one after the other */
	int64_t blocking, null_stream, average, reg, parallel_init;
	int64_t cpu_time, timestamps, memory_report, unalign, per_iter, per_iter_skip;
	double timeout_s;
	const char *transport, *algo, *json, *csv, *html; /* NULL: not given */
	const char *device;
	bool cuda;          /* parsed from device */
	int ordinal;        /* parsed from device; -1: local rank modulo GPUs */
	int buffers, place; /* BENCH_BUFFERS_..., BENCH_PLACE_... */
	bool pin;
	int64_t seed;
	double min_bus_gbps; /* NCCL_TESTS_MIN_BW; 0: none */
	struct bench_split split;
	int argc; /* copied into the JSON file */
	char **argv;
};

struct bench_collective;

extern const char *const bench_buffers_names[], *const bench_place_names[];

/* Returns `given`, else the value of the environment variable, else "auto". */
const char *bench_options_setting(const char *given, const char *variable);

/* Parses the command line of the benchmark. Returns 0 | 1: help printed | 2: error printed. */
int bench_options_read(const struct bench_collective *bench, const char *tool, int argc,
		       char **argv, struct bench_options *ret_options);

/* Reads the variables of nccl-tests. Returns 0 | 2: error printed. */
int bench_nccl_tests_env(const char *tool, struct bench_options *options);
/* The number of the group of a process; its text, such as "MOD 8" */
int bench_split_color(const struct bench_split *split, int process);
const char *bench_split_text(const struct bench_split *split, char *text, size_t bytes);

/* ---- bench_collectives.c --------------------------------------------------------------------- */

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
	bool send_all, recv_all; /* the buffer has nranks parts of count, else one */
	bool in_place;           /* the collective has an in-place form */
	const char *help;
	double (*bus_factor)(int nranks); /* busbw / algbw */
	/* Least traffic (read + write) of a memory shared by all ranks, in multiples of the size. */
	double (*memory_factor)(int nranks, bool in_place);
	tuttiResult_t (*call)(const struct bench_call *c);
	/* Collectives that do not combine: rank and part of the send buffer that arrives in part
	 * `part` of this rank's receive buffer. */
	void (*origin)(const struct bench_call *c, int part, int *ret_rank, int *ret_part);
};

extern const struct bench_collective bench_collectives[TT_COLLECTIVES]; /* by tt_collective */

/* Returns the collective in the tool's name ("allreduce_perf", "all_reduce_perf"); NULL: none. */
const struct bench_collective *bench_of_tool(const char *tool);

/* ---- bench_buffer.c -------------------------------------------------------------------------- */

struct bench_buffer {
	char *at;   /* address passed to the collective, host or device */
	char *host; /* equal to at, or a pinned host copy of device memory */
	size_t bytes;
	bool library; /* allocated by tuttiMemAlloc */
};

/* Allocates the buffer; gpu->cu NULL: in host memory. Returns 0, or an error code (tt_error_text).
 * Owns: the caller calls bench_buffer_free, after an error too. */
int bench_buffer_make(struct bench_buffer *b, const struct tool_cuda_device *gpu, size_t bytes,
		      bool library);
void bench_buffer_free(struct bench_buffer *b, const struct tool_cuda_device *gpu);
/* Returns the address in the host copy that corresponds to address `at` of the buffer. */
void *bench_buffer_host(const struct bench_buffer *b, const void *at);
/* Copies bytes from the host copy to the buffer (put) or back (get), in the order of the stream;
 * blocks until done. Returns 0 | TT_CUDA. */
int bench_buffer_put(const struct bench_buffer *b, const struct tool_cuda_device *gpu,
		     tt_custream stream, const void *at, size_t bytes);
int bench_buffer_get(const struct bench_buffer *b, const struct tool_cuda_device *gpu,
		     tt_custream stream, const void *at, size_t bytes);

/* ---- bench_rank.c: one rank ------------------------------------------------------------------ */

/* Parameters of one cell of the table; equal on all ranks. */
struct bench_cell {
	const struct bench_collective *bench;
	size_t count; /* argument of the call */
	size_t esize; /* bytes of one element */
	tuttiDataType_t type;
	int op, root, algo; /* op as in values.h; algo: index of the communicator */
	bool in_place;
	size_t send_bytes, recv_bytes; /* per call */
	int slots;                     /* number of input buffers, used in rotation */
	size_t stride;                 /* bytes from one slot to the next */
};

struct bench_rank {
	int rank, nranks;
	tuttiComm_t base;            /* exchanges figures; never measured */
	tuttiComm_t group;           /* becomes base: of this rank's group */
	tuttiComm_t *comms;          /* [algos]: measured */
	tuttiRedOp_t *mulsum;        /* [algos]: pre-multiplied sum of the current type */
	void **handles;              /* [2 * algos]: buffer registrations */
	struct tool_cuda_device gpu; /* gpu.cu NULL: host memory */
	tt_custream cu_stream;       /* GPU only: stream of copies, and of calls with -y 0 */
	tuttiStream_t stream;        /* stream of calls; NULL: calls block */
	struct bench_buffer inputs, results; /* results.at NULL: in-place calls only */
	void *input, *result;                /* tables of values.h */
	int complaints;                      /* wrong buffers reported so far */
};

/* Returns the buffer bytes of one rank for the largest call of the sweep. */
size_t bench_rank_bytes(const struct bench_options *options, const struct bench_collective *bench);
/* Sets slots and stride for the cell's size. */
void bench_cell_slots(struct bench_cell *cell, const struct bench_options *options);

/* Allocates and registers the buffers. Returns 0 | 1: error printed. */
int bench_rank_make(struct bench_rank *r, const struct bench_options *options,
		    const struct bench_collective *bench, int algos);
void bench_rank_free(struct bench_rank *r, int algos);

/* Returns the arguments of a call that uses input slot `slot`. */
struct bench_call bench_rank_call(const struct bench_rank *r, const struct bench_options *options,
				  const struct bench_cell *cell, int slot);
/* Writes the inputs of call number `number` into the slot; with poison, also fills the result and
 * its guard bytes with a pattern. Returns 0 | 1: error printed. */
int bench_rank_fill(const struct bench_rank *r, const struct bench_options *options,
		    const struct bench_cell *cell, int slot, uint64_t number, bool poison);
/* Counts wrong elements of the result and changed elements of the input; prints the first one to
 * stderr. Returns 0 | 1: the buffers could not be copied to the host, error printed. */
int bench_rank_check(struct bench_rank *r, const struct bench_options *options,
		     const struct bench_cell *cell, int slot, uint64_t number, bool poisoned,
		     uint64_t *ret_wrong);
/* Waits for the calls on the rank's stream; comm: communicator of the calls. Returns the first
 * error of stream or communicator. */
tuttiResult_t bench_rank_wait(const struct bench_rank *r, tuttiComm_t comm);
/* Flushes the buffers of the cell from the processor's caches. */
void bench_rank_flush(const struct bench_rank *r, const struct bench_cell *cell);
/* Returns 1, or 0: no known instruction flushes the caches of this processor. */
int bench_can_flush(void);

/* ---- bench_thread.c: the ranks of one thread ------------------------------------------------- */

enum { BENCH_SETTINGS = 17 }; /* options that must be equal on all ranks */

/* Record that every rank sends to all ranks after the communicators are created. */
struct bench_rank_record {
	char host[64], cpu[96]; /* host name, processor name */
	int64_t pid;
	uint64_t free_bytes; /* free memory of the host */
	bool reports;        /* --report is given: if by rank 0, all ranks measure limits */
	int64_t settings[BENCH_SETTINGS];
};

/* Record of a rank's GPU, sent to all ranks. */
struct bench_gpu_record {
	bool failed; /* the rank has no GPU */
	int ordinal;
	struct tt_cuuuid uuid;
	char name[64], pci[20];
};

/* Limits of the machine (limits.c); 0: not measured. */
struct bench_limits {
	double copy_gbps; /* a core that copies copy_bytes while the other ranks do so; the slowest */
	size_t copy_bytes;
	double flag_us;   /* until another core of rank 0's host sees a store */
	double wire_gbps; /* plain bytes over a TCP connection, in one direction */
	char wire[160];   /* its ends */
};

/* The ranks of one thread. */
struct bench_thread {
	const struct bench_options *options;
	const struct bench_collective *bench;
	const char *tool;
	tuttiUniqueId id;
	bool env;          /* join by the environment (tuttiCommInitEnv), not by id */
	int first, nranks; /* this thread runs ranks first .. first + nown - 1 */
	int group;         /* these ranks are a group of all ranks; 0: they are all */
	bool reports;      /* has rank 0 of all ranks */
	int nown;
	struct bench_rank *ranks;          /* [nown] */
	struct bench_rank_record *records; /* [nranks] */
	struct bench_gpu_record *gpus;     /* [nranks]; NULL: host memory */
	bool one_gpu;                      /* all ranks share one GPU */
	double copy_gbps;  /* copy bandwidth of rank 0's GPU, read + written; 0: none */
	size_t copy_bytes; /* size of one copy of that measurement */
	struct bench_limits limits;
	int algos;
	char (*algo_names)[64]; /* [algos]; may contain "auto" */
	uint64_t calls;         /* calls so far, equal on all ranks; numbers the input data */
	double us_per_tick;
	bool wrong;                  /* a result was wrong */
	struct bench_report *report; /* rank 0 only, else NULL */
};

/* Creates the communicators, exchanges records, checks memory, pins, allocates buffers.
 * Returns 0 | 1 failed | 2 the options are impossible for these ranks. */
int bench_thread_open(struct bench_thread *t);
/* Frees everything. failed: aborts the communicators, so that other threads of this process do not
 * wait for this one. */
void bench_thread_close(struct bench_thread *t, bool failed);

/* Allgather of one record per rank, in rank order. mine: [nown] records of `bytes`; all: [nranks].
 * Returns 0 | 1: error printed. */
int bench_thread_gather(struct bench_thread *t, const void *mine, size_t bytes, void *all);
int bench_thread_barrier(struct bench_thread *t);

/* rank_records.c; call after the base communicators exist: exchanges records, checks memory, takes
 * GPUs. Returns 0 | 1 failed | 2 the options are impossible for these ranks. */
int bench_thread_exchange_records(struct bench_thread *t);
/* Returns the number of this thread among the threads of its host. */
int bench_thread_local_index(const struct bench_thread *t);

/* limits.c; called by all threads at the same time: sets t->limits. Blocks: 3 s at most, 0.3 s as a rule.
 * Returns 0 | 1: error printed. */
int bench_limits_measure(struct bench_thread *t);

/* The exit status of a call that makes a communicator: 0 | 2 for a setting that the library refuses |
 * 1 for any other failure */
int bench_status(tuttiResult_t rc);

/* Prints, for each rank of this thread, why a call on its communicator failed (algo -1: on the base
 * communicator). Returns 1. */
int bench_thread_complain(struct bench_thread *t, int algo, const char *what, tuttiResult_t result);

/* ---- measure.c ------------------------------------------------------------------------------- */

struct bench_figure {
	bool measured; /* false: the collective has no such form */
	double time_us, cpu_us, alg_gbps, bus_gbps, p50_us, p99_us;
	double memory_gbps; /* memory traffic of the GPU shared by all ranks, or 0 */
	int64_t wrong;      /* wrong elements of all ranks; -1: not checked */
	uint64_t shm_bytes, tcp_bytes, verbs_bytes; /* sent by all ranks in one call */
	double *iter_us; /* [iters], -I 1: time of the slowest rank; caller frees */
};

/* Figures measured by one rank. */
struct bench_rank_figure {
	double time_us, cpu_us, p50_us, p99_us;
	int64_t wrong;
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;
};

/* figure.c: combines the figures of all ranks; mine: [nown]. Returns 0 | 1: error printed. */
int bench_figure_of(struct bench_thread *t, const struct bench_cell *cell,
		    const struct bench_rank_figure *mine, struct bench_figure *f);
/* -I 1: sets iter_us to the time of the slowest rank of each iteration. mine_us: [iters]. */
int bench_figure_slowest(struct bench_thread *t, const double *mine_us, struct bench_figure *f);

/* Measures one cell; called by all threads at the same time. Returns 0 | 1: error printed. */
int bench_measure(struct bench_thread *t, const struct bench_cell *cell,
		  struct bench_figure *ret_figure);

/* ---- ticks.c --------------------------------------------------------------------------------- */

/* Measures the length of one tick of the processor's clock. Blocks: 2 ms. */
double bench_us_per_tick(void);

/* Sorts n values in ascending order. */
void bench_sort(double *values, size_t n);

/* Returns the q-quantile (0..1) of n sorted values, nearest rank. */
double bench_quantile(const double *sorted, size_t n, double q);

/* ---- bench_graph.c: capture calls once, replay them; one graph per rank of the thread -------- */

struct bench_graph {
	void *graph, *exec;
};

/* graphs: [nown]. Each returns 0 | 1: error printed. */
int bench_graph_begin(struct bench_thread *t);
int bench_graph_end(struct bench_thread *t, struct bench_graph *graphs);
int bench_graph_launch(struct bench_thread *t, const struct bench_graph *graphs);
void bench_graph_free(struct bench_thread *t, struct bench_graph *graphs);

/* ---- sweep.c --------------------------------------------------------------------------------- */

/* Measures and reports all rows. Returns 0 | 1: a call failed. Wrong results set `wrong` and do not
 * end the sweep. */
int bench_sweep(struct bench_thread *t);

/* ---- report.c, json_results.c, json.c: output of rank 0 -------------------------------------- */

struct bench_report;

struct bench_row {
	const struct bench_cell *cell;
	size_t bytes;
	char algorithm[64], plan[160]; /* algorithm's name; text of tuttiCommDescribe */
	struct bench_figure out, in;
};

struct bench_totals {
	uint64_t shm_bytes, tcp_bytes, verbs_bytes;
	uint64_t library_bytes, buffer_bytes; /* maximum over the ranks */
};
/* Sums the counters of all ranks. Returns 0 | 1: error printed. */
int bench_thread_totals(struct bench_thread *t, struct bench_totals *ret_totals);

/* Prints the head of the output. Returns NULL: no memory, error printed. */
struct bench_report *bench_report_open(const struct bench_thread *t);
/* Prints that the algorithm `name` is not measured, and the reason. */
void bench_report_note(const char *name, const char *reason);
void bench_report_table(struct bench_report *r);
void bench_report_progress(struct bench_report *r, const struct bench_cell *cell, const char *algo);
void bench_report_row(struct bench_report *r, const struct bench_row *row);
/* Prints the foot, writes the JSON file, frees r. totals: NULL, unknown. error: NULL, or the reason
 * of an early end. Returns 0 | 1: wrong values, or output failed. */
int bench_report_close(struct bench_report *r, const struct bench_totals *totals,
		       const char *error);

/* Formats value ("12.34") in at most width characters; shortens decimals as nccl-tests does. */
const char *bench_fit(char *text, int width, double value);

struct bench_json {
	FILE *to;
	int depth;
	bool more; /* the next member needs a comma */
};
void bench_json_open(struct bench_json *j, const char *key, char bracket);
void bench_json_close(struct bench_json *j, char bracket);
void bench_json_text(struct bench_json *j, const char *key, const char *value);
void bench_json_int(struct bench_json *j, const char *key, long long value);
void bench_json_real(struct bench_json *j, const char *key, double value);
void bench_json_us(struct bench_json *j, const char *key, int64_t ns); /* us, exactly */
void bench_json_bool(struct bench_json *j, const char *key, bool value);
void bench_json_null(struct bench_json *j, const char *key);

/* results_file.c: a file of results, whole after every row; rank 0 only. Its errors are printed once,
 * and end nothing before the end. */
struct bench_results_file {
	const char *tool, *option, *path;
	int fd;
	bool regular; /* else a pipe or a device, whose foot comes at the end */
	bool failed;
	size_t bytes; /* written, without the foot */
};
void bench_results_file_open(struct bench_results_file *f);
/* Appends text, and a foot that the next text replaces. */
void bench_results_file_write(struct bench_results_file *f, const char *text, const char *foot);
/* Writes the last foot. Returns 0 | 1: failed, now or before */
int bench_results_file_close(struct bench_results_file *f, const char *foot);

/* csv_results.c: the line of names; the lines of a row, one for each place */
extern const char bench_csv_names[];
void bench_csv_row(FILE *to, const struct bench_options *options, const struct bench_row *row);

/* html_results.c: rows collected for the HTML file, which is written at the end. open: NULL: no memory.
 * error, bus: as in bench_results_foot. write: 0 | 1: error printed */
struct bench_html *bench_html_open(void);
void bench_html_row(struct bench_html *h, const struct bench_options *options,
		    const struct bench_row *row);
int bench_html_write(const struct bench_html *h, const struct bench_thread *t, const char *path,
		     const char *error, double bus);
void bench_html_free(struct bench_html *h);

/* json_results.c: head, rows and foot of the JSON file */
void bench_results_head(struct bench_json *j, const struct bench_thread *t);
void bench_results_row(struct bench_json *j, const struct bench_options *options,
		       const struct bench_row *row);
void bench_results_foot(struct bench_json *j, const struct bench_options *options,
			const struct bench_totals *totals, double bus, int wrong,
			const char *error);
void bench_now_text(char *text, size_t bytes);

#endif
