/*
 * bench_options.c - command line of the benchmarks: options of nccl-tests, then options of Tutti
 *
 * Called by bench_main.c. Checks combinations of options and names of algorithms too (sizes in the
 * wrong order, an unknown algorithm), so that a wrong command line fails before a rank starts.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "algorithms/algorithms.h"
#include "mem/reduce.h"
#include "perf/bench/bench.h"
#include "tools/fresh_file.h"
#include "tools/options.h"

const char *const bench_buffers_names[] = { "auto", "rotate", "same", "cold" };
const char *const bench_place_names[] = { "both", "out", "in" };

#define AT(field) offsetof(struct bench_options, field)
#define MAX_LOCAL_RANKS 4096 /* that one command starts */

static const struct tool_option option_table[] = {
	{ 't', "nthreads", TOOL_OPT_INT, "N", AT(threads), "1", 1, 1024,
	  .help = "threads per process, each with its own ranks" },
	{ 'g', "ngpus", TOOL_OPT_INT, "N", AT(ranks_each), "1", 1, 64,
	  .help = "ranks per thread, called together in a group;\nbuffers in host memory unless --device names a GPU" },
	{ 'b', "minbytes", TOOL_OPT_SIZE, "SIZE", AT(min_bytes), "32M", .help = "first size" },
	{ 'e', "maxbytes", TOOL_OPT_SIZE, "SIZE", AT(max_bytes), "32M", .help = "last size" },
	{ 'i', "stepbytes", TOOL_OPT_SIZE, "SIZE", AT(step_bytes), "1M", 1, 0x1p62,
	  .help = "difference between one size and the next" },
	{ 'f', "stepfactor", TOOL_OPT_INT, "N", AT(step_factor), "1", 1, 1 << 20,
	  .help = "factor between sizes; above 1: replaces -i" },
	{ 'n', "iters", TOOL_OPT_INT, "N", AT(iters), "20", 1, 1e8, .help = "timed iterations" },
	{ 'm', "agg_iters", TOOL_OPT_INT, "N", AT(aggregate), "1", 1, 4096,
	  .help = "calls per iteration, in one group" },
	{ 'w', "warmup_iters", TOOL_OPT_INT, "N", AT(warmup), "1", 0, 1e8,
	  .help = "warm-up iterations, not timed" },
	{ 'N', "run_cycles", TOOL_OPT_INT, "N", AT(cycles), "1", 0, 1e9,
	  .help = "repeat all sizes; 0: for ever" },
	{ 'p', "parallel_init", TOOL_OPT_INT, "0|1", AT(parallel_init), "0", 0, 1,
	  .help = "accepted as in nccl-tests; without effect, since\nthreads always join at the same time" },
	{ 'c', "check", TOOL_OPT_INT, "N", AT(check), "1", 0, 1000,
	  .help = "check every element of N calls before the timed calls,\nand of the last timed calls; 0: never" },
	{ 'o', "op", TOOL_OPT_CHOICE, "OP", AT(op), "sum",
	  .words = "sum prod max min avg band bor bxor mulsum all",
	  .help = "reduction: sum prod max min avg mulsum, for integers\nalso band bor bxor, or all" },
	{ 'd', "datatype", TOOL_OPT_CHOICE, "TYPE", AT(type), "float",
	  .words =
		  "int8|char uint8 int32|int uint32 int64 uint64 half|float16 float|float32 double|float64 bfloat16"
		  " f8e4m3|float8e4m3 f8e5m2|float8e5m2 all",
	  .help = "int8 uint8 int32 uint32 int64 uint64 half float double\nbfloat16 f8e4m3 f8e5m2, or all" },
	{ 'r', "root", TOOL_OPT_INT, "RANK", AT(root), "0", -1, 1e6, .words = "all",
	  .help = "root of rooted collectives; all: every rank in turn" },
	{ 'z', "blocking", TOOL_OPT_INT, "0..3", AT(blocking), "0", 0, 3,
	  .help = "1: wait and barrier after every call; 2: wait only;\n3: wait and barrier after every iteration, barrier not timed" },
	{ 'y', "stream_null", TOOL_OPT_INT, "0|1", AT(null_stream), "auto", 0, 1, .words = "auto",
	  .help = "1: calls return when done (NULL stream);\n0: calls are queued on a stream, then waited for;\n"
		  "auto: 1 in host memory, 0 on a GPU" },
	{ 'G', "cudagraph", TOOL_OPT_INT, "N", AT(graph), "0", 0, 1e6,
	  .help = "capture the iterations as a CUDA graph and replay it N\ntimes; needs --device cuda" },
	{ 'C', "report_cputime", TOOL_OPT_INT, "0|1", AT(cpu_time), "0", 0, 1,
	  .help = "1: report the time until the calls return, not until\nthe calls are done (differs with -y 0)" },
	{ 'a', "average", TOOL_OPT_INT, "0..3", AT(average), "1", 0, 3,
	  .help = "reported time: 0 of rank 0, 1 mean over the ranks,\n2 minimum, 3 maximum" },
	{ 'R', "local_register", TOOL_OPT_INT, "0|1", AT(reg), "0", 0, 1,
	  .refusal = "symmetric registration needs CUDA; 0 or 1",
	  .help = "1: buffers of tuttiMemAlloc, registered" },
	{ 'T', "timeout", TOOL_OPT_REAL, "SECONDS", AT(timeout_s), "0", 0, 1e6,
	  .help = "timeout of every call; 0: the library's default" },
	{ 'S', "report_timestamps", TOOL_OPT_INT, "0|1", AT(timestamps), "0", 0, 1,
	  .help = "1: print the time of day in each row" },
	{ 'J', "output_file", TOOL_OPT_TEXT, "FILE", AT(json),
	  .help = "also write the results to FILE, row by row, as JSON" },
	{ 'F', "csv", TOOL_OPT_TEXT, "FILE", AT(csv),
	  .help = "also write the results to FILE, row by row, as CSV" },
	{ 0, "report", TOOL_OPT_TEXT, "FILE", AT(html),
	  .help = "also write FILE at the end: one HTML page with plots, table and conditions" },
	{ 'M', "memory", TOOL_OPT_INT, "0|1", AT(memory_report), "0", 0, 1,
	  .help = "1: report the memory used by a rank" },
	{ 'u', "unalign", TOOL_OPT_INT, "N", AT(unalign), "0", 0, 4096,
	  .help = "shift the buffers by N elements" },
	{ 'I', "per_iter_timing", TOOL_OPT_INT, "0|1", AT(per_iter), "0", 0, 1,
	  .help = "1: columns of single iterations: minimum, maximum, p99,\nand standard deviation in % of the mean" },
	{ 'K', "per_iter_skip", TOOL_OPT_INT, "N", AT(per_iter_skip), "0", 0, 1e8,
	  .help = "-I 1: exclude the first N iterations" },
	{ 0, "np", TOOL_OPT_INT, "N", AT(np), "0", 0, MAX_LOCAL_RANKS,
	  .help = "start N processes on this host; 0: join the launcher's ranks\n(mpirun, srun, torchrun, TUTTI_RANK: tutti_launch(7))" },
	{ 0, "device", TOOL_OPT_TEXT, "NAME", AT(device), "cpu",
	  .help = "cpu: buffers in host memory; cuda: on the GPU with number\nlocal rank modulo GPUs; cuda:N: all ranks on GPU N" },
	{ 0, "transport", TOOL_OPT_TEXT, "NAME", AT(transport),
	  .help = "auto, shm, verbs, tcp or self;\ndefault: TUTTI_TRANSPORT, else auto" },
	{ 0, "algo", TOOL_OPT_TEXT, "NAME", AT(algo),
	  .help = "an algorithm, auto, or all: one row per algorithm;\ndefault: TUTTI_ALGO, else auto" },
	{ 0, "buffers", TOOL_OPT_CHOICE, "KIND", AT(buffers), "auto",
	  .words = "auto rotate same cold",
	  .help = "auto: rotate in host memory, same on a GPU;\n"
		  "rotate: several inputs in turn, rewritten before each batch;\nsame: one input, written once;\n"
		  "cold: as rotate, then flushed from the caches" },
	{ 0, "place", TOOL_OPT_CHOICE, "KIND", AT(place), "both", .words = "both out in",
	  .help = "measure out of place, in place (half the memory), or both" },
	{ 0, "pin", TOOL_OPT_FLAG, NULL, AT(pin), .help = "bind each thread to a processor" },
	{ 0, "seed", TOOL_OPT_INT, "N", AT(seed), "1", 0, 9e15,
	  .help = "seed of the values in the buffers" },
	{ .name = NULL },
};

/* ---- checks across options ------------------------------------------------------------------- */

static int check_transport(const struct bench_options *options, const char *tool)
{
	static const char words[] = "auto shm verbs tcp self";

	if (!options->transport || tool_find_word(words, options->transport) >= 0)
		return 0;
	return tool_refuse(tool, "--transport %s: unknown; one of: %s", options->transport, words);
}

static int check_algo(const struct bench_collective *bench, const struct bench_options *options,
		      const char *tool)
{
	if (!options->algo || !strcmp(options->algo, "auto") || !strcmp(options->algo, "all"))
		return 0;
	if (bench->collective == TT_SENDRECV)
		return tool_refuse(tool,
				   "--algo %s: sends and receives have no algorithms; use auto",
				   options->algo);
	if (!tt_algorithm_find(bench->collective, options->algo))
		return tool_refuse(tool, "--algo %s: %s", options->algo, tt_error_text());
	return 0;
}

static int check_ranks(const struct bench_options *options, const char *tool)
{
	long long np = options->np ? options->np : 1,
		  ranks = np * options->threads * options->ranks_each;

	return ranks <= MAX_LOCAL_RANKS
		       ? 0
		       : tool_refuse(tool,
				     "--np %lld, -t %lld and -g %lld are %lld ranks; at most %d",
				     np, (long long)options->threads,
				     (long long)options->ranks_each, ranks, MAX_LOCAL_RANKS);
}

static int check_sizes(const struct bench_options *options, const char *tool)
{
	if (options->min_bytes > options->max_bytes)
		return tool_refuse(tool, "-b %llu is larger than -e %llu; give both",
				   (unsigned long long)options->min_bytes,
				   (unsigned long long)options->max_bytes);
	if (options->step_factor > 1 && options->min_bytes == 0 && options->max_bytes > 0)
		return tool_refuse(tool, "-b 0 times -f %lld stays 0; start at -b 1, or step by -i",
				   (long long)options->step_factor);
	return 0;
}

static int check_values(const struct bench_collective *bench, const struct bench_options *options,
			const char *tool)
{
	if (bench->combines && options->op < BENCH_ALL_OPS && options->type < BENCH_ALL_TYPES &&
	    !bench_values_defined(options->op, (tuttiDataType_t)options->type))
		return tool_refuse(tool, "-o %s is for integers only, not for -d %s",
				   bench_values_op_name(options->op),
				   tt_type_name((tuttiDataType_t)options->type));
	if (options->per_iter_skip && options->per_iter_skip >= options->iters)
		return tool_refuse(tool, "-K %lld leaves none of -n %lld iterations",
				   (long long)options->per_iter_skip, (long long)options->iters);
	if (options->buffers == BENCH_BUFFERS_COLD && !bench_can_flush())
		return tool_refuse(
			tool,
			"--buffers cold: the caches of this processor cannot be flushed; use rotate");
	return 0;
}

/* Parses --device; sets the defaults of -y and --buffers, which depend on the device. */
static int check_device(struct bench_options *options, const char *tool)
{
	options->cuda = tool_cuda_device_parse(options->device, &options->ordinal);
	if (!options->cuda && strcmp(options->device, "cpu"))
		return tool_refuse(tool, "--device %s: unknown; one of: cpu cuda cuda:N",
				   options->device);
	if (options->null_stream < 0)
		options->null_stream = !options->cuda;
	if (options->buffers == BENCH_BUFFERS_AUTO)
		options->buffers = options->cuda ? BENCH_BUFFERS_SAME : BENCH_BUFFERS_ROTATE;
	if (options->graph && !options->cuda)
		return tool_refuse(tool, "-G %lld: CUDA graphs need --device cuda",
				   (long long)options->graph);
	if (options->graph && (options->null_stream || options->blocking))
		return tool_refuse(
			tool, "-G %lld: calls that wait cannot be captured; leave -y and -z at 0",
			(long long)options->graph);
	if (options->cuda && options->buffers == BENCH_BUFFERS_COLD)
		return tool_refuse(tool,
				   "--buffers cold: not available on a GPU; use rotate or same");
	return 0;
}

/* The files of results can be written, and none would replace another. */
static int check_files(const struct bench_options *options, const char *tool)
{
	const struct {
		const char *option, *path;
	} files[] = { { "-J", options->json },
		      { "-F", options->csv },
		      { "--report", options->html } };
	struct stat st;
	int rc = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !rc; i++) {
		if (!files[i].path)
			continue;
		rc = tool_file_check(tool, files[i].option, files[i].path);
		for (size_t k = 0; k < i && !rc; k++)
			if (files[k].path && !strcmp(files[k].path, files[i].path) &&
			    (stat(files[i].path, &st) || S_ISREG(st.st_mode)))
				rc = tool_refuse(tool, "%s %s: also the file of %s; give another",
						 files[i].option, files[i].path, files[k].option);
	}
	return rc;
}

const char *bench_options_setting(const char *given, const char *variable)
{
	const char *value = given ? given : getenv(variable);

	return value ? value : "auto";
}

int bench_options_read(const struct bench_collective *bench, const char *tool, int argc,
		       char **argv, struct bench_options *ret_options)
{
	struct tool_usage usage = { .tool = tool, .help = bench->help, .options = option_table };
	struct bench_options *options = ret_options;
	int rc = tool_options_read(&usage, argc, argv, options);

	if (rc)
		return rc;
	options->argc = argc;
	options->argv = argv;
	rc = bench_nccl_tests_env(tool, options);
	if (!rc)
		rc = check_device(options, tool);
	if (!rc)
		rc = check_ranks(options, tool);
	if (!rc)
		rc = check_sizes(options, tool);
	if (!rc)
		rc = check_transport(options, tool);
	if (!rc)
		rc = check_algo(bench, options, tool);
	if (!rc)
		rc = check_values(bench, options, tool);
	return rc ? rc : check_files(options, tool);
}
