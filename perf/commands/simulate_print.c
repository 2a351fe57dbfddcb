/*
 * simulate_print.c - the results of `tutti simulate` as a table and as JSON
 *
 * Called by cmd_simulate.c for each algorithm that was simulated.
 */
#include <stdio.h>
#include <string.h>

#include "perf/commands/simulate_print.h"
#include "tools/plural.h"

enum { MOST_LINKS = 256 };

static double us(uint64_t ps)
{
	return (double)ps / 1e6;
}

/* hierarchical:INNER/OUTER may be longer than the names of the table */
static int name_width(const struct simulate_options *v)
{
	return strlen(v->algo) > 26 ? (int)strlen(v->algo) : 26;
}

void tool_simulate_table_head(const struct simulate_options *v,
			      const struct tool_hypothetical *world)
{
	printf("# %s of %llu bytes, %d rank%s on %d host%s, transport %s, costs %s\n",
	       v->collective, (unsigned long long)v->bytes, (int)v->np, tool_s(v->np),
	       world->topology.nhosts, tool_s(world->topology.nhosts), v->transport,
	       v->costs ? v->costs : "built in");
	printf("# %-*s %12s %8s %8s  %-23s  %s\n", name_width(v), "algorithm", "time", "algbw",
	       "busbw", "idle min/mean/max", "bytes sent by shm, tcp, between hosts");
	printf("# %-*s %12s %8s %8s  %-23s\n", name_width(v), "", "(us)", "(GB/s)", "(GB/s)",
	       "(share of ranks' time)");
}

void tool_simulate_table_row(const struct simulate_options *v, const struct tool_simulation *a)
{
	const struct tt_sim_result *r = &a->result;

	printf("  %-*s %12.2f %8.2f %8.2f  %.3f / %.3f / %.3f   %llu %llu %llu%s\n", name_width(v),
	       a->name, us(r->time_ps), a->alg_gbps, a->bus_gbps, r->idle_min, r->idle_mean,
	       r->idle_max, (unsigned long long)(r->bytes[TT_LINK_SHM] + r->bytes[TT_LINK_GROUPS]),
	       (unsigned long long)r->bytes[TT_LINK_TCP],
	       (unsigned long long)(r->bytes[TT_LINK_HOSTS] + r->bytes[TT_LINK_VERBS] +
				    r->bytes[TT_LINK_SOFT]),
	       r->tiles_walked < r->ntiles ? "  (extrapolated)" : "");
	if (v->np > TOOL_FOLD_ABOVE || v->fold == FOLD_YES)
		printf("  # %u rank%s simulated%s%s\n", r->ranks, tool_s(r->ranks),
		       r->folded == TT_SIM_NEARLY ? "; the others are nearly alike" : "",
		       r->equal_blocks ? "; blocks of equal length" : "");
}

void tool_simulate_table_parts(const struct tool_simulation *a)
{
	const struct tt_sim_result *r = &a->result;

	printf("\n# parts of the time on the critical path (us):");
	for (int i = 0; i < TT_PARTS; i++)
		printf(" %s %.2f", tt_sim_part_name[i], us(r->part_ps[i]));
	printf("\n# simulated %llu messages and %u of %u tiles in %.2f s, with %.1f MiB of memory\n",
	       (unsigned long long)r->events, r->tiles_walked, r->ntiles, a->seconds,
	       (double)a->max_rss_kib / 1024);
}

void tool_simulate_table_links(const struct simulate_options *v, const struct tt_sim *sim,
			       const struct tt_sim_result *r)
{
	enum tt_link_class class;
	uint64_t bytes;
	int peer, shown = 0;

	printf("# bytes by link%s:\n",
	       r->tiles_walked < r->ntiles ? " (of the simulated tiles)" : "");
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
}

static void json_links(struct bench_json *j, const struct simulate_options *v,
		       const struct tt_sim *sim)
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

void tool_simulate_json_simulation(struct bench_json *j, const struct simulate_options *v,
				   const struct tt_sim *sim, const struct tool_simulation *a)
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
	bench_json_int(j, "ranks_walked", r->ranks);
	bench_json_bool(j, "nearly_folded", r->folded == TT_SIM_NEARLY);
	bench_json_bool(j, "equal_blocks", r->equal_blocks);
	bench_json_int(j, "tiles", r->ntiles);
	bench_json_int(j, "tiles_walked", r->tiles_walked);
	bench_json_int(j, "messages_walked", (long long)r->events);
	bench_json_real(j, "simulation_s", a->seconds);
	bench_json_int(j, "simulation_max_rss_kib", a->max_rss_kib);
	bench_json_close(j, '}');
}

void tool_simulate_json_head(struct bench_json *j, const struct simulate_options *v,
			     const struct tool_hypothetical *world)
{
	bench_json_open(j, NULL, '{');
	bench_json_text(j, "collective", v->collective);
	bench_json_int(j, "bytes", (long long)v->bytes);
	bench_json_int(j, "ranks", v->np);
	bench_json_int(j, "hosts", world->topology.nhosts);
	bench_json_int(j, "cores_per_host", v->cores);
	bench_json_text(j, "transport", v->transport);
	bench_json_int(j, "message_bytes", (long long)world->world.message_bytes);
	bench_json_text(j, "costs", v->costs ? v->costs : "built in");
	bench_json_open(j, "algorithms", '[');
}
