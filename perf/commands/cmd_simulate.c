/*
 * cmd_simulate.c - `tutti simulate`: predicted time of a call on hypothetical ranks and hosts
 *
 * Called by the table in tutti_main.c. Calls lib/model/simulate.c; parses the options and shows
 * progress. simulate_print.c prints the results.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "perf/bench/bench.h"
#include "perf/commands/cmd.h"
#include "perf/commands/hypothetical.h"
#include "perf/commands/simulate_print.h"
#include "perf/commands/simulate_svg.h"
#include "tools/fresh_file.h"

enum { MANY_MESSAGES = 20000000, MANY_RANKS = 32768, MOST_STEPS_OF_ALL = 200000000 };
enum { TILE_LEAST = 4096, TILE_MOST = 16 << 20 }; /* the range of TUTTI_TILE_BYTES */

static const struct tool_option options[] = {
	{ 'n', "np", TOOL_OPT_INT, "N", offsetof(struct simulate_options, np), NULL, 1,
	  TT_SIM_RANKS, NULL, NULL, "number of ranks" },
	{ 0, "hosts", TOOL_OPT_TEXT, "M", offsetof(struct simulate_options, hosts), "1", 0, 0, NULL,
	  NULL, "number of hosts, or number of ranks on each host: 2,3,1" },
	{ 0, "groups", TOOL_OPT_INT, "G", offsetof(struct simulate_options, groups), "1", 1,
	  TT_SIM_RANKS, NULL, NULL,
	  "locality groups (packages, NUMA nodes or L3 caches) that the ranks\nof each host are bound to" },
	{ 'b', "bytes", TOOL_OPT_SIZE, "S", offsetof(struct simulate_options, bytes), "1M", 0, 0,
	  NULL, NULL, "size of the call's larger buffer" },
	{ 0, "algo", TOOL_OPT_TEXT, "NAME", offsetof(struct simulate_options, algo), "all", 0, 0,
	  NULL, NULL, "an algorithm, or all algorithms of the collective" },
	{ 0, "collective", TOOL_OPT_TEXT, "NAME", offsetof(struct simulate_options, collective),
	  "allreduce", 0, 0, NULL, NULL,
	  "allreduce, reduce, broadcast, allgather, reduce_scatter,\nalltoall, gather, scatter" },
	{ 0, "root", TOOL_OPT_INT, "R", offsetof(struct simulate_options, root), "0", 0,
	  TT_SIM_RANKS - 1, NULL, NULL, "root of broadcast, reduce, gather, scatter" },
	{ 0, "transport", TOOL_OPT_TEXT, "NAME", offsetof(struct simulate_options, transport),
	  "auto", 0, 0, NULL, NULL, "transport inside hosts: auto (shm), shm or tcp" },
	{ 0, "nics", TOOL_OPT_TEXT, "NAME", offsetof(struct simulate_options, nics), "none", 0, 0,
	  NULL, NULL,
	  "NICs between hosts, instead of tcp: none, verbs (RDMA hardware) or\nsoft (Soft-RoCE)" },
	{ 0, "cores", TOOL_OPT_INT, "C", offsetof(struct simulate_options, cores), "0", 0,
	  TT_SIM_RANKS, NULL, NULL, "cores per host; 0: one core per rank" },
	{ 0, "links", TOOL_OPT_FLAG, NULL, offsetof(struct simulate_options, links), NULL, 0, 0,
	  NULL, NULL, "also a table of the links, with the bytes that each one carries" },
	{ 0, "costs", TOOL_OPT_TEXT, "FILE", offsetof(struct simulate_options, costs), NULL, 0, 0,
	  NULL, NULL, "cost table of `tutti tune`, instead of the built-in table" },
	{ 0, "gpu", TOOL_OPT_TEXT, "KIND", offsetof(struct simulate_options, gpu), NULL, 0, 0, NULL,
	  NULL,
	  "allreduces by GPU kernels, of 2 to 8 ranks with a GPU each: h100 or\nh200; sizes up to --bytes" },
	{ 0, "tile-bytes", TOOL_OPT_SIZE, "B", offsetof(struct simulate_options, tile_bytes), "0",
	  0, 0, NULL, NULL, "largest message, 4K to 16M; 0: the library's choice" },
	{ 0, "tiles", TOOL_OPT_INT, "K", offsetof(struct simulate_options, tiles), "0", 0, 1e9,
	  NULL, NULL,
	  "simulate K tiles, extrapolate the rest; 0: all tiles, or above\n20 million messages 32, or 8 above 32,768 ranks" },
	{ 0, "fold", TOOL_OPT_CHOICE, "WHEN", offsetof(struct simulate_options, fold), "auto", 0, 0,
	  "auto yes no", NULL,
	  "simulate one rank for all ranks that are alike: yes, no, or auto,\nabove 1024 ranks" },
	{ 0, "svg", TOOL_OPT_TEXT, "FILE", offsetof(struct simulate_options, svg), NULL, 0, 0, NULL,
	  NULL,
	  "write FILE, a plot of time over the sizes 8, 16, ... up to -b,\ninstead of a table" },
	{ 0, "print", TOOL_OPT_CHOICE, "FORMAT", offsetof(struct simulate_options, format), "table",
	  0, 0, "table json", NULL, "table or json" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti simulate",
	.help = "Simulate a call: execute its plans on a model of cores and links.\n"
		"  tutti simulate --np 8 --bytes 1M                               every allreduce algorithm\n"
		"  tutti simulate --np 1024 --hosts 128 --bytes 64M --algo hierarchical\n"
		"  tutti simulate --np 4 --cores 2 --bytes 64K --costs FILE --print json\n"
		"  tutti simulate --np 8 --gpu h100 --bytes 256M\n"
		"  tutti simulate --np 16 --hosts 4 --bytes 64M --svg time.svg     time over size\n"
		"Exit status: 0 simulated, 1 failed, 2 wrong usage.",
	.options = options,
};

/* ---- progress, interrupt --------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
	interrupted = signal;
}

/* Callback of the simulator. Returns 1 after a signal, which ends the simulation. */
static int progress(void *ctx, const char *what, uint64_t done, uint64_t all)
{
	bool *shown = ctx;

	if (interrupted)
		return 1;
	if (isatty(STDERR_FILENO)) {
		fprintf(stderr, all ? "\r%s: %llu of %llu   " : "\r%s: %llu   ", what,
			(unsigned long long)done, (unsigned long long)all);
		*shown = true;
	}
	return 0;
}

static void clear_progress(bool shown)
{
	if (shown)
		fprintf(stderr, "\r%40s\r", "");
}

/* ---- one algorithm --------------------------------------------------------------------------- */

static double bus_factor(const struct simulate_options *v, int collective)
{
	const struct bench_collective *bench = &bench_collectives[collective];

	return bench->bus_factor ? bench->bus_factor((int)v->np) : 1;
}

/* Returns the number of tiles to simulate; 0: all. Above MANY_MESSAGES messages: 32, or 8 if each is
 * a message of very many ranks. */
static uint32_t tiles_to_walk(const struct simulate_options *v)
{
	uint64_t tile = v->tile_bytes ? v->tile_bytes : 65536;

	if (v->tiles)
		return (uint32_t)v->tiles;
	if (v->bytes / tile * (uint64_t)v->np <= MANY_MESSAGES)
		return 0;
	return v->np > MANY_RANKS ? 8 : 32;
}

static void measure_self(struct tool_simulation *a, uint64_t started_ns)
{
	struct rusage self;

	a->seconds = (double)(tt_now_ns() - started_ns) / 1e9;
	a->max_rss_kib = getrusage(RUSAGE_SELF, &self) ? 0 : self.ru_maxrss;
}

static struct tt_sim_world world_of(const struct simulate_options *v,
				    const struct tool_hypothetical *world)
{
	struct tt_sim_world w = world->world;

	w.fold = v->fold == FOLD_YES || (v->fold == FOLD_AUTO && v->np > TOOL_FOLD_ABOVE);
	w.most_steps = strcmp(v->algo, "all") ? 0 : MOST_STEPS_OF_ALL;
	return w;
}

static int simulate_plan(const struct simulate_options *v, const struct tool_hypothetical *world,
			 int collective, const struct tt_algorithm *row, const char *name,
			 struct tool_simulation *a, struct tt_sim **ret_sim)
{
	bool shown = false;
	struct tt_sim_watch watch = { progress, &shown };
	struct tt_sim_world w = world_of(v, world);
	uint64_t started_ns = tt_now_ns();
	const char *argument = "";
	int rc;

	rc = tt_sim_open(&w, row, name, (int)v->root, &watch, ret_sim);

	if (rc)
		*ret_sim = NULL;
	else
		rc = tt_sim_run(*ret_sim, tool_hypothetical_bound(collective, (int)v->np, v->bytes),
				tiles_to_walk(v), &a->result);
	clear_progress(shown);
	if (rc)
		return rc;
	tt_algorithm_argument(row, name, &argument);
	tt_algorithm_full_name(row, argument, a->name);
	a->alg_gbps = a->result.time_ps ? (double)v->bytes * 1000 / (double)a->result.time_ps : 0;
	a->bus_gbps = a->alg_gbps * bus_factor(v, collective);
	measure_self(a, started_ns);
	return 0;
}

/* ---- all algorithms -------------------------------------------------------------------------- */

/* Simulates one algorithm and prints the result. Returns 0 | the simulator's error. --algo all:
 * algorithms that do not apply are skipped. */
static int simulate_one(const struct simulate_options *v, const struct tool_hypothetical *world,
			int collective, const struct tt_algorithm *row, const char *name,
			struct bench_json *j)
{
	bool only = strcmp(v->algo, "all");
	struct tool_simulation a;
	struct tt_sim *sim;
	int rc = simulate_plan(v, world, collective, row, name, &a, &sim);

	if (!rc && v->format)
		tool_simulate_json_simulation(j, v, sim, &a);
	else if (!rc)
		tool_simulate_table_row(v, &a);
	if (!rc && !v->format && only)
		tool_simulate_table_parts(&a);
	if (!rc && !v->format && v->links)
		tool_simulate_table_links(v, sim, &a.result);
	if (sim)
		tt_sim_close(sim);
	if (rc == TT_SIM_TOO_LARGE && !v->format)
		printf("  # %s; --algo %s simulates them\n", tt_error_text(), name);
	return rc == TT_SIM_TOO_LARGE || (rc == TT_ARG && !only) ? 0 : rc;
}

static int simulate_all(const struct simulate_options *v, const struct tool_hypothetical *world,
			int collective, struct bench_json *j)
{
	bool all = !strcmp(v->algo, "all");
	int rc = 0;

	for (int i = 0; tt_algorithms[i] && !rc && all; i++)
		if (tt_algorithms[i]->collective == (enum tt_collective)collective)
			rc = simulate_one(v, world, collective, tt_algorithms[i],
					  tt_algorithms[i]->name, j);
	if (!all)
		rc = simulate_one(v, world, collective,
				  tt_algorithm_look((enum tt_collective)collective, v->algo),
				  v->algo, j);
	return rc;
}

static int draw(const struct simulate_options *v, const struct tool_hypothetical *world,
		int collective, int *ret_failed)
{
	bool shown = false;
	struct tt_sim_watch watch = { progress, &shown };
	struct simulate_svg svg = { .path = v->svg,
				    .algo = v->algo,
				    .world = world_of(v, world),
				    .watch = &watch,
				    .collective = collective,
				    .nranks = (int)v->np,
				    .nhosts = world->topology.nhosts,
				    .root = (int)v->root,
				    .most_bytes = v->bytes,
				    .most_tiles = tiles_to_walk(v) };
	int rc = tool_simulate_svg(&svg, ret_failed);

	clear_progress(shown);
	return rc;
}

static int print_all(const struct simulate_options *v, const struct tool_hypothetical *world,
		     int collective)
{
	struct bench_json j = { .to = stdout };
	int rc;

	if (v->format)
		tool_simulate_json_head(&j, v, world);
	else
		tool_simulate_table_head(v, world);
	rc = simulate_all(v, world, collective, &j);
	if (v->format) {
		bench_json_close(&j, ']');
		bench_json_bool(&j, "complete", !rc);
		bench_json_close(&j, '}');
		printf("\n");
	}
	fflush(stdout);
	return rc;
}

static int simulation(const struct simulate_options *v, const struct tool_hypothetical *world,
		      int collective)
{
	struct sigaction action = { .sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND };
	int rc, failed = 0;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	rc = v->svg ? draw(v, world, collective, &failed) : print_all(v, world, collective);
	if (interrupted) {
		fprintf(stderr, "tutti simulate: interrupted\n");
		raise(interrupted);
	}
	if (rc < 0)
		tool_refuse(usage.tool, "%s", tt_error_text());
	return rc == 0 ? failed : rc == TT_ARG ? 2 : 1;
}

int tool_cmd_simulate(int argc, char **argv)
{
	struct tool_hypothetical world;
	struct simulate_options v;
	int rc = tool_options_read(&usage, argc, argv, &v), collective;

	if (rc)
		return rc == 1 ? 0 : rc;
	if (!v.np)
		return tool_refuse(usage.tool, "--np is missing; give the number of ranks");
	if (v.root >= v.np)
		return tool_refuse(usage.tool, "--root %d: no such rank; the ranks are 0 to %d",
				   (int)v.root, (int)v.np - 1);
	if (v.tile_bytes && (v.tile_bytes < TILE_LEAST || v.tile_bytes > TILE_MOST))
		return tool_refuse(usage.tool, "--tile-bytes %llu: give 4K to 16M, or 0",
				   (unsigned long long)v.tile_bytes);
	if (v.gpu)
		return tool_simulate_gpu(usage.tool, v.gpu, v.np, v.bytes);
	collective = tool_hypothetical_collective(usage.tool, v.collective);
	if (collective < 0)
		return 2;
	if (strcmp(v.algo, "all") && !tt_algorithm_find((enum tt_collective)collective, v.algo))
		return tool_refuse(usage.tool, "%s", tt_error_text());
	if (v.svg && (v.links || v.format))
		return tool_refuse(usage.tool, "--svg %s writes a plot only; leave out %s", v.svg,
				   v.links ? "--links" : "--print");
	if (v.svg && v.bytes < SIMULATE_SVG_LEAST)
		return tool_refuse(usage.tool, "--bytes %d: the plot of --svg begins at %d bytes",
				   (int)v.bytes, SIMULATE_SVG_LEAST);
	if (v.svg && (rc = tool_file_check(usage.tool, "--svg", v.svg)))
		return rc;
	rc = tool_hypothetical_options(
		&(struct tool_hypothetical_options){ .tool = usage.tool,
						     .np = v.np,
						     .cores = v.cores,
						     .hosts = v.hosts,
						     .groups = v.groups,
						     .tile_bytes = (int64_t)v.tile_bytes,
						     .transport = v.transport,
						     .nics = v.nics,
						     .costs = v.costs },
		&world);
	if (rc)
		return rc;
	rc = simulation(&v, &world, collective);
	tool_hypothetical_free(&world);
	return rc;
}
