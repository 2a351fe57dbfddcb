/*
 * cmd_simulate.c - `tutti simulate`: how long a call would take,
 * on ranks and hosts that need not be there
 *
 * Called by the table of commands. The simulation is lib/model/simulate.c's; here are the line,
 * progress, and the page.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "perf/bench/bench.h"
#include "perf/commands/cmd.h"
#include "perf/commands/hypothetical.h"

enum { MOST_LINKS = 256, MANY_MESSAGES = 20000000, TILES_THEN = 32 };

struct values {
	int64_t np, cores, root, tiles;
	uint64_t bytes, tile_bytes;
	const char *hosts, *algo, *collective, *transport, *links, *cards;
	int format;
};

static const struct tool_option options[] = {
	{ 'n', "np", TOOL_OPT_INT, "N", offsetof(struct values, np), NULL, 1, 65534, NULL, NULL,
	  "number of ranks" },
	{ 0, "hosts", TOOL_OPT_TEXT, "M", offsetof(struct values, hosts), "1", 0, 0, NULL, NULL,
	  "number of hosts, or how many ranks on each: 2,3,1" },
	{ 'b', "bytes", TOOL_OPT_SIZE, "S", offsetof(struct values, bytes), "1M", 0, 0, NULL, NULL,
	  "of the larger buffer of the call" },
	{ 0, "algo", TOOL_OPT_TEXT, "NAME", offsetof(struct values, algo), "all", 0, 0, NULL, NULL,
	  "an algorithm, or all of the collective" },
	{ 0, "collective", TOOL_OPT_TEXT, "NAME", offsetof(struct values, collective), "allreduce", 0,
	  0, NULL, NULL,
	  "allreduce, reduce, broadcast, allgather, reduce_scatter,\nalltoall, gather, scatter" },
	{ 0, "root", TOOL_OPT_INT, "R", offsetof(struct values, root), "0", 0, 65533, NULL, NULL,
	  "root of broadcast, reduce, gather, scatter" },
	{ 0, "transport", TOOL_OPT_TEXT, "NAME", offsetof(struct values, transport), "auto", 0, 0,
	  NULL, NULL, "inside hosts: auto (shm), shm or tcp" },
	{ 0, "cards", TOOL_OPT_TEXT, "NAME", offsetof(struct values, cards), "none", 0, 0, NULL, NULL,
	  "between hosts, instead of tcp: verbs (real cards) or soft (Soft-RoCE)" },
	{ 0, "cores", TOOL_OPT_INT, "C", offsetof(struct values, cores), "0", 0, 65534, NULL, NULL,
	  "of each host; 0: as many as it has ranks" },
	{ 0, "links", TOOL_OPT_TEXT, "FILE", offsetof(struct values, links), NULL, 0, 0, NULL, NULL,
	  "costs, as `tutti tune` writes them, instead of the built-in ones" },
	{ 0, "tile-bytes", TOOL_OPT_SIZE, "B", offsetof(struct values, tile_bytes), "0", 0, 0, NULL,
	  NULL, "largest message; 0: as a call would choose" },
	{ 0, "tiles", TOOL_OPT_INT, "K", offsetof(struct values, tiles), "0", 0, 1e9, NULL, NULL,
	  "walk so many tiles, extrapolate the rest; 0: all of them unless\nthat takes too long" },
	{ 0, "print", TOOL_OPT_CHOICE, "FORMAT", offsetof(struct values, format), "table", 0, 0,
	  "table json", NULL, "table or json" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti simulate",
	.help = "Simulate a call: the plans that would run, on a model of cores and links.\n"
		"  tutti simulate --np 8 --bytes 1M                               every allreduce algorithm\n"
		"  tutti simulate --np 1024 --hosts 128 --bytes 64M --algo hierarchical\n"
		"  tutti simulate --np 4 --cores 2 --bytes 64K --links FILE --print json\n"
		"Exit status: 0 simulated, 1 failed, 2 bad usage.",
	.options = options,
};

/* ---- progress, and the end by Ctrl-C --------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
	interrupted = signal;
}

/* Ends the simulation with 1 after a signal. */
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

struct answer {
	char name[64];
	struct tt_sim_result result;
	double alg_gbps, bus_gbps, seconds;
	long max_rss_kib;
};

static double bus_factor(const struct values *v, int collective)
{
	const struct bench_collective *bench = &bench_collectives[collective];

	return bench->bus_factor ? bench->bus_factor((int)v->np) : 1;
}

/* So many tiles to walk that it ends soon: all, unless there are very many messages. */
static uint32_t tiles_to_walk(const struct values *v)
{
	uint64_t tile = v->tile_bytes ? v->tile_bytes : 65536;

	if (v->tiles)
		return (uint32_t)v->tiles;
	return v->bytes / tile * (uint64_t)v->np > MANY_MESSAGES ? TILES_THEN : 0;
}

static void measure_self(struct answer *a, uint64_t started_ns)
{
	struct rusage self;

	a->seconds = (double)(tt_now_ns() - started_ns) / 1e9;
	a->max_rss_kib = getrusage(RUSAGE_SELF, &self) ? 0 : self.ru_maxrss;
}

static int simulate(const struct values *v, const struct tool_hypothetical *world, int collective,
		    const struct tt_algorithm *row, const char *name, struct answer *a,
		    struct tt_sim **ret_sim)
{
	bool shown = false;
	struct tt_sim_watch watch = { progress, &shown };
	uint64_t started_ns = tt_now_ns();
	const char *argument = "";
	int rc = tt_sim_open(&world->world, row, name, (int)v->root, &watch, ret_sim);

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

/* ---- the page -------------------------------------------------------------------------------- */

static double us(uint64_t ps)
{
	return (double)ps / 1e6;
}

static void table_head(const struct values *v, const struct tool_hypothetical *world)
{
	printf("# %s of %llu bytes, %d ranks on %d host%s, transport %s, costs %s\n", v->collective,
	       (unsigned long long)v->bytes, (int)v->np, world->topology.nhosts,
	       world->topology.nhosts == 1 ? "" : "s", v->transport,
	       v->links ? v->links : "built in");
	printf("# %-26s %12s %8s %8s  %-23s  %s\n", "algorithm", "time", "algbw", "busbw",
	       "idle min/mean/max", "bytes sent by shm, tcp, between hosts");
	printf("# %-26s %12s %8s %8s  %-23s\n", "", "(us)", "(GB/s)", "(GB/s)",
	       "(share of ranks' time)");
}

static void table_row(const struct answer *a)
{
	const struct tt_sim_result *r = &a->result;

	printf("  %-26s %12.2f %8.2f %8.2f  %.3f / %.3f / %.3f   %llu %llu %llu%s\n", a->name,
	       us(r->time_ps), a->alg_gbps, a->bus_gbps, r->idle_min, r->idle_mean, r->idle_max,
	       (unsigned long long)r->bytes[TT_LINK_SHM], (unsigned long long)r->bytes[TT_LINK_TCP],
	       (unsigned long long)(r->bytes[TT_LINK_HOSTS] + r->bytes[TT_LINK_VERBS] +
				    r->bytes[TT_LINK_SOFT]),
	       r->tiles_walked < r->ntiles ? "  (extrapolated)" : "");
}

/* Only one algorithm: what its time went to, its links, what simulating took. */
static void table_details(const struct values *v, const struct tt_sim *sim, const struct answer *a)
{
	const struct tt_sim_result *r = &a->result;
	enum tt_link_class class;
	uint64_t bytes;
	int peer, shown = 0;

	printf("\n# of the time, along the chain of steps that ended last (us):");
	for (int i = 0; i < TT_PARTS; i++)
		printf(" %s %.2f", tt_sim_part_name[i], us(r->part_ps[i]));
	printf("\n# bytes by link%s:\n",
	       r->tiles_walked < r->ntiles ? " (of the tiles walked)" : "");
	for (int rank = 0; rank < v->np && shown < MOST_LINKS; rank++)
		for (uint32_t i = 0;
		     tt_sim_sent(sim, rank, i, &peer, &class, &bytes) && shown < MOST_LINKS; i++)
			if (bytes) {
				printf("  %d -> %d %s %llu\n", rank, peer,
				       tt_link_class_name[class], (unsigned long long)bytes);
				shown++;
			}
	if (shown == MOST_LINKS)
		printf("  ... (the first %d)\n", MOST_LINKS);
	printf("# walked %llu messages and %u of %u tiles in %.2f s, with %.1f MiB of memory\n",
	       (unsigned long long)r->events, r->tiles_walked, r->ntiles, a->seconds,
	       (double)a->max_rss_kib / 1024);
}

static void json_links(struct bench_json *j, const struct values *v, const struct tt_sim *sim)
{
	enum tt_link_class class;
	uint64_t bytes;
	int peer, shown = 0;

	bench_json_open(j, "links", '[');
	for (int rank = 0; rank < v->np && shown < MOST_LINKS; rank++)
		for (uint32_t i = 0;
		     tt_sim_sent(sim, rank, i, &peer, &class, &bytes) && shown < MOST_LINKS; i++) {
			if (!bytes)
				continue;
			shown++;
			bench_json_open(j, NULL, '{');
			bench_json_int(j, "from", rank);
			bench_json_int(j, "to", peer);
			bench_json_text(j, "class", tt_link_class_name[class]);
			bench_json_int(j, "bytes", (long long)bytes);
			bench_json_close(j, '}');
		}
	bench_json_close(j, ']');
	bench_json_bool(j, "links_complete", shown < MOST_LINKS);
}

static void json_answer(struct bench_json *j, const struct values *v, const struct tt_sim *sim,
			const struct answer *a)
{
	const struct tt_sim_result *r = &a->result;

	bench_json_open(j, NULL, '{');
	bench_json_text(j, "algorithm", a->name);
	bench_json_real(j, "time_us", us(r->time_ps));
	bench_json_real(j, "algbw_gbps", a->alg_gbps);
	bench_json_real(j, "busbw_gbps", a->bus_gbps);
	bench_json_open(j, "time_us_by_part", '{');
	for (int i = 0; i < TT_PARTS; i++)
		bench_json_real(j, tt_sim_part_name[i], us(r->part_ps[i]));
	bench_json_close(j, '}');
	bench_json_open(j, "idle_share", '{');
	bench_json_real(j, "min", r->idle_min);
	bench_json_real(j, "mean", r->idle_mean);
	bench_json_real(j, "max", r->idle_max);
	bench_json_close(j, '}');
	for (int i = 0; i < TT_LINK_CLASSES; i++) {
		bench_json_open(j, tt_link_class_name[i], '{');
		bench_json_int(j, "bytes", (long long)r->bytes[i]);
		bench_json_int(j, "messages", (long long)r->messages[i]);
		bench_json_close(j, '}');
	}
	json_links(j, v, sim);
	bench_json_int(j, "tiles", r->ntiles);
	bench_json_int(j, "tiles_walked", r->tiles_walked);
	bench_json_int(j, "messages_walked", (long long)r->events);
	bench_json_real(j, "simulation_s", a->seconds);
	bench_json_int(j, "simulation_max_rss_kib", a->max_rss_kib);
	bench_json_close(j, '}');
}

static void json_head(struct bench_json *j, const struct values *v, const struct tool_hypothetical *world)
{
	bench_json_open(j, NULL, '{');
	bench_json_text(j, "collective", v->collective);
	bench_json_int(j, "bytes", (long long)v->bytes);
	bench_json_int(j, "ranks", v->np);
	bench_json_int(j, "hosts", world->topology.nhosts);
	bench_json_int(j, "cores_per_host", v->cores);
	bench_json_text(j, "transport", v->transport);
	bench_json_int(j, "message_bytes", (long long)world->world.message_bytes);
	bench_json_text(j, "costs", v->links ? v->links : "built in");
	bench_json_open(j, "algorithms", '[');
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* 0 | what it returned; an algorithm that does not apply is left out when all were asked for. */
static int answer_one(const struct values *v, const struct tool_hypothetical *world, int collective,
		      const struct tt_algorithm *row, const char *name, struct bench_json *j)
{
	bool only = strcmp(v->algo, "all");
	struct answer a;
	struct tt_sim *sim;
	int rc = simulate(v, world, collective, row, name, &a, &sim);

	if (!rc && v->format)
		json_answer(j, v, sim, &a);
	else if (!rc)
		table_row(&a);
	if (!rc && !v->format && only)
		table_details(v, sim, &a);
	if (sim)
		tt_sim_close(sim);
	return rc == TT_ARG && !only ? 0 : rc;
}

static int answer_all(const struct values *v, const struct tool_hypothetical *world, int collective,
		      struct bench_json *j)
{
	bool all = !strcmp(v->algo, "all");
	int rc = 0;

	for (int i = 0; tt_algorithms[i] && !rc && all; i++)
		if (tt_algorithms[i]->collective == (enum tt_collective)collective)
			rc = answer_one(v, world, collective, tt_algorithms[i],
					tt_algorithms[i]->name, j);
	if (!all)
		rc = answer_one(v, world, collective,
				tt_algorithm_look((enum tt_collective)collective, v->algo), v->algo,
				j);
	return rc;
}

static int answer(const struct values *v, const struct tool_hypothetical *world, int collective)
{
	struct bench_json j = { .to = stdout };
	struct sigaction action = { .sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND };
	int rc;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (v->format)
		json_head(&j, v, world);
	else
		table_head(v, world);
	rc = answer_all(v, world, collective, &j);
	if (v->format) {
		bench_json_close(&j, ']');
		bench_json_bool(&j, "complete", !rc);
		bench_json_close(&j, '}');
		printf("\n");
	}
	fflush(stdout);
	if (interrupted) {
		fprintf(stderr, "tutti simulate: interrupted\n");
		raise(interrupted);
	}
	if (rc < 0)
		tool_refuse(usage.tool, "%s", tt_error_text());
	return rc == 0 ? 0 : rc == TT_ARG ? 2 : 1;
}

int tool_cmd_simulate(int argc, char **argv)
{
	struct tool_hypothetical world;
	struct values v;
	int rc = tool_options_read(&usage, argc, argv, &v), collective;

	if (rc)
		return rc == 1 ? 0 : rc;
	if (!v.np)
		return tool_refuse(usage.tool, "--np is missing: for how many ranks?");
	if (v.root >= v.np)
		return tool_refuse(usage.tool, "--root %d: there are ranks 0 to %d", (int)v.root,
				 (int)v.np - 1);
	collective = tool_hypothetical_collective(usage.tool, v.collective);
	if (collective < 0)
		return 2;
	if (strcmp(v.algo, "all") && !tt_algorithm_find((enum tt_collective)collective, v.algo))
		return tool_refuse(usage.tool, "%s", tt_error_text());
	rc = tool_hypothetical_options(&(struct tool_hypothetical_options){ .tool = usage.tool, .np = v.np, .cores = v.cores,
					      .hosts = v.hosts, .tile_bytes = (int64_t)v.tile_bytes,
					      .transport = v.transport, .cards = v.cards,
					      .links = v.links },
			&world);
	if (rc)
		return rc;
	rc = answer(&v, &world, collective);
	tool_hypothetical_free(&world);
	return rc;
}
