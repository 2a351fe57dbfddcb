/*
 * bench_options.c - the command line of the benchmarks: nccl-tests' options, then ours
 *
 * Called by bench_main.c. What one option alone cannot show (sizes in the wrong order, an unknown
 * algorithm) is checked here too, so that a bad line ends before any rank is started.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithms.h"
#include "mem/reduce.h"
#include "perf/bench/bench.h"
#include "tools/options.h"

const char *const bench_buffers_names[] = { "auto", "rotate", "same", "cold" };
const char *const bench_place_names[] = { "both", "out", "in" };

#define AT(field) offsetof(struct bench_options, field)

static const struct tool_option options[] = {
	{ 't', "nthreads", TOOL_OPT_INT, "N", AT(threads), "1", 1, 1024,
	  .help = "threads of a process, each with its own ranks" },
	{ 'g', "ngpus", TOOL_OPT_INT, "N", AT(ranks_each), "1", 1, 64,
	  .help = "ranks of a thread, called together in a group;\nof host memory unless there is --device" },
	{ 'b', "minbytes", TOOL_OPT_SIZE, "SIZE", AT(min_bytes), "32M", .help = "first size" },
	{ 'e', "maxbytes", TOOL_OPT_SIZE, "SIZE", AT(max_bytes), "32M", .help = "last size" },
	{ 'i', "stepbytes", TOOL_OPT_SIZE, "SIZE", AT(step_bytes), "1M", 1, 0x1p62,
	  .help = "from one size to the next" },
	{ 'f', "stepfactor", TOOL_OPT_INT, "N", AT(step_factor), "1", 1, 1 << 20,
	  .help = "multiply by this instead, if above 1" },
	{ 'n', "iters", TOOL_OPT_INT, "N", AT(iters), "20", 1, 1e8, .help = "timed iterations" },
	{ 'm', "agg_iters", TOOL_OPT_INT, "N", AT(aggregate), "1", 1, 4096,
	  .help = "calls of an iteration, in one group" },
	{ 'w', "warmup_iters", TOOL_OPT_INT, "N", AT(warmup), "1", 0, 1e8,
	  .help = "iterations before, not timed" },
	{ 'N', "run_cycles", TOOL_OPT_INT, "N", AT(cycles), "1", 0, 1e9,
	  .help = "repeat all sizes; 0: for ever" },
	{ 'p', "parallel_init", TOOL_OPT_INT, "0|1", AT(parallel_init), "0", 0, 1,
	  .help = "accepted for nccl-tests' sake: threads always join\nat the same time" },
	{ 'c', "check", TOOL_OPT_INT, "N", AT(check), "1", 0, 1000,
	  .help = "check every element of N calls before the timed ones,\nand of the last timed ones; 0: never" },
	{ 'o', "op", TOOL_OPT_CHOICE, "OP", AT(op), "sum",
	  .words = "sum prod max min avg band bor bxor mulsum all",
	  .help = "reduction: sum prod max min avg mulsum, for integers\nalso band bor bxor, or all" },
	{ 'd', "datatype", TOOL_OPT_CHOICE, "TYPE", AT(type), "float",
	  .words =
		  "int8|char uint8 int32|int uint32 int64 uint64 half|float16 float|float32 double|float64 bfloat16"
		  " f8e4m3|float8e4m3 f8e5m2|float8e5m2 all",
	  .help = "int8 uint8 int32 uint32 int64 uint64 half float double\nbfloat16 f8e4m3 f8e5m2, or all" },
	{ 'r', "root", TOOL_OPT_INT, "RANK", AT(root), "0", -1, 1e6, .words = "all",
	  .help = "or all, one after the other" },
	{ 'z', "blocking", TOOL_OPT_INT, "0..3", AT(blocking), "0", 0, 3,
	  .help = "1: wait and meet after every call; 2: wait only;\n3: meet after every iteration, not timed" },
	{ 'y', "stream_null", TOOL_OPT_INT, "0|1", AT(null_stream), "auto", 0, 1, .words = "auto",
	  .help = "1: calls return when done (NULL stream);\n0: calls go to a stream, which is waited for;\n"
		  "auto: 1 in host memory, 0 on a GPU" },
	{ 'G', "cudagraph", TOOL_OPT_INT, "N", AT(graph), "0", 0, 1e6,
	  .help = "capture the iterations as a CUDA graph and replay it N\ntimes; needs --device cuda" },
	{ 'C', "report_cputime", TOOL_OPT_INT, "0|1", AT(cpu_time), "0", 0, 1,
	  .help = "1: report the time until the calls returned, not until\nthey were done (differs with -y 0)" },
	{ 'a', "average", TOOL_OPT_INT, "0..3", AT(average), "1", 0, 3,
	  .help = "of all ranks' times: 0 rank 0's, 1 mean, 2 least, 3 most" },
	{ 'R', "local_register", TOOL_OPT_INT, "0|1", AT(reg), "0", 0, 1,
	  .refusal = "symmetric registration needs CUDA; 0 or 1",
	  .help = "1: buffers from tuttiMemAlloc, registered" },
	{ 'T', "timeout", TOOL_OPT_REAL, "SECONDS", AT(timeout_s), "0", 0, 1e6,
	  .help = "deadline of every call; 0: the library's" },
	{ 'S', "report_timestamps", TOOL_OPT_INT, "0|1", AT(timestamps), "0", 0, 1,
	  .help = "when each row was printed" },
	{ 'J', "output_file", TOOL_OPT_TEXT, "FILE", AT(json),
	  .help = "write the results as JSON, too" },
	{ 'M', "memory", TOOL_OPT_INT, "0|1", AT(memory_report), "0", 0, 1,
	  .help = "report the memory that was used" },
	{ 'u', "unalign", TOOL_OPT_INT, "N", AT(unalign), "0", 0, 4096,
	  .help = "shift the buffers by N elements" },
	{ 'I', "per_iter_timing", TOOL_OPT_INT, "0|1", AT(per_iter), "0", 0, 1,
	  .help = "columns of the single iterations: least, most, p99, and\nstandard deviation in % of the mean" },
	{ 'K', "per_iter_skip", TOOL_OPT_INT, "N", AT(per_iter_skip), "0", 0, 1e8,
	  .help = "leave the first N out of these" },
	{ 0, "np", TOOL_OPT_INT, "N", AT(np), "0", 0, 4096,
	  .help = "start N processes here; 0: join what started this one\n(mpirun, srun, torchrun, TUTTI_RANK: tutti_launch(7))" },
	{ 0, "device", TOOL_OPT_TEXT, "NAME", AT(device), "cpu",
	  .help = "cpu: buffers in host memory; cuda: on a GPU, the rank's\nnumber on its host modulo GPUs; cuda:N: all on that one" },
	{ 0, "transport", TOOL_OPT_TEXT, "NAME", AT(transport),
	  .help = "auto, shm, verbs, tcp or self;\nwithout: what TUTTI_TRANSPORT says, or auto" },
	{ 0, "algo", TOOL_OPT_TEXT, "NAME", AT(algo),
	  .help = "an algorithm, auto, or all: each in a row of its own;\nwithout: what TUTTI_ALGO says, or auto" },
	{ 0, "buffers", TOOL_OPT_CHOICE, "KIND", AT(buffers), "auto",
	  .words = "auto rotate same cold",
	  .help = "auto: rotate in host memory, same on a GPU;\n"
		  "rotate: several inputs in turn, rewritten before, untimed;\nsame: one input, written once;\n"
		  "cold: as rotate, then pushed out of the caches" },
	{ 0, "place", TOOL_OPT_CHOICE, "KIND", AT(place), "both", .words = "both out in",
	  .help = "measure out of place, in place (half the memory), or both" },
	{ 0, "pin", TOOL_OPT_FLAG, NULL, AT(pin), .help = "bind each thread to a processor" },
	{ 0, "seed", TOOL_OPT_INT, "N", AT(seed), "1", 0, 9e15,
	  .help = "of the values in the buffers" },
	{ .name = NULL },
};

/* ---- what several options say together ------------------------------------------------------- */

static int check_transport(const struct bench_options *line, const char *tool)
{
	static const char words[] = "auto shm verbs tcp self";

	if (!line->transport || tool_find_word(words, line->transport) >= 0)
		return 0;
	fprintf(stderr, "%s: --transport %s: not one of: %s\n", tool, line->transport, words);
	return 2;
}

static int check_algo(const struct bench_collective *bench, const struct bench_options *line, const char *tool)
{
	if (!line->algo || !strcmp(line->algo, "auto") || !strcmp(line->algo, "all"))
		return 0;
	if (bench->collective == TT_SENDRECV)
		fprintf(stderr, "%s: --algo %s: sends and receives have no algorithms; only auto\n",
			tool, line->algo);
	else if (!tt_algorithm_find(bench->collective, line->algo))
		fprintf(stderr, "%s: --algo %s: %s\n", tool, line->algo, tt_error_text());
	else
		return 0;
	return 2;
}

static int check_sizes(const struct bench_options *line, const char *tool)
{
	if (line->min_bytes > line->max_bytes)
		fprintf(stderr, "%s: -b %llu is larger than -e %llu; give both\n", tool,
			(unsigned long long)line->min_bytes, (unsigned long long)line->max_bytes);
	else if (line->step_factor > 1 && line->min_bytes == 0 && line->max_bytes > 0)
		fprintf(stderr, "%s: -b 0 times -f %lld stays 0; start at -b 1, or step by -i\n",
			tool, (long long)line->step_factor);
	else
		return 0;
	return 2;
}

static int check_values(const struct bench_collective *bench, const struct bench_options *line, const char *tool)
{
	if (bench->combines && line->op < BENCH_ALL_OPS && line->type < BENCH_ALL_TYPES &&
	    !bench_values_defined(line->op, (tuttiDataType_t)line->type))
		fprintf(stderr, "%s: -o %s is for integers only, not for -d %s\n", tool,
			bench_values_op_name(line->op), tt_type_name((tuttiDataType_t)line->type));
	else if (line->per_iter_skip && line->per_iter_skip >= line->iters)
		fprintf(stderr, "%s: -K %lld leaves none of -n %lld iterations\n", tool,
			(long long)line->per_iter_skip, (long long)line->iters);
	else if (line->buffers == BENCH_BUFFERS_COLD && !bench_can_flush())
		fprintf(stderr,
			"%s: --buffers cold: no way known to empty the caches of this processor; use rotate\n",
			tool);
	else
		return 0;
	return 2;
}

/* What --device says, and what follows from it. */
static int check_device(struct bench_options *line, const char *tool)
{
	const char *wrong = NULL;

	line->cuda = tool_cuda_device_parse(line->device, &line->ordinal);
	if (!line->cuda && strcmp(line->device, "cpu")) {
		fprintf(stderr, "%s: --device %s: not one of: cpu cuda cuda:N\n", tool,
			line->device);
		return 2;
	}
	if (line->null_stream < 0)
		line->null_stream = !line->cuda;
	if (line->buffers == BENCH_BUFFERS_AUTO)
		line->buffers = line->cuda ? BENCH_BUFFERS_SAME : BENCH_BUFFERS_ROTATE;
	if (line->graph && !line->cuda)
		wrong = "CUDA graphs need --device cuda";
	else if (line->graph && (line->null_stream || line->blocking))
		wrong = "what waits cannot be captured; leave -y and -z at 0";
	if (wrong)
		fprintf(stderr, "%s: -G %lld: %s\n", tool, (long long)line->graph, wrong);
	else if (line->cuda && line->buffers == BENCH_BUFFERS_COLD)
		fprintf(stderr, "%s: --buffers cold: not on a GPU; use rotate or same\n", tool);
	else
		return 0;
	return 2;
}

const char *bench_options_setting(const char *given, const char *variable)
{
	const char *value = given ? given : getenv(variable);

	return value ? value : "auto";
}

int bench_options_read(const struct bench_collective *bench, const char *tool, int argc, char **argv,
		 struct bench_options *ret_line)
{
	struct tool_usage usage = { tool, bench->help, options };
	struct bench_options *line = ret_line;
	int rc = tool_options_read(&usage, argc, argv, line);

	if (rc)
		return rc;
	line->argc = argc;
	line->argv = argv;
	rc = check_device(line, tool);
	if (!rc)
		rc = check_sizes(line, tool);
	if (!rc)
		rc = check_transport(line, tool);
	if (!rc)
		rc = check_algo(bench, line, tool);
	if (!rc)
		rc = check_values(bench, line, tool);
	return rc || !line->json ? rc : bench_check_file(tool, "-J", line->json);
}
