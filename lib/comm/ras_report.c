/*
 * ras_report.c - the states of the ranks in NCCL's formats, JSON and text; called by ras.c
 *
 * The names and their order are those of NCCL 2.28.9, so that the parsers of its answers read these.
 * The size of a communicator is the number of its ranks plus that of its missing ranks, as parsers
 * check: a rank that left is missing, neither unresponsive nor dead.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/ras.h"

#define NCCL_VERSION "2.28.9"
#define LISTED 10 /* ranks of a list in the text, unless it is verbose */

static const struct {
	const char *name; /* in NCCL */
	int kind;
} tallies[] = {
	{ "Broadcast", TT_BROADCAST }, { "Reduce", TT_REDUCE },
	{ "AllGather", TT_ALLGATHER }, { "ReduceScatter", TT_REDUCE_SCATTER },
	{ "AllReduce", TT_ALLREDUCE }, { "AlltoAll", TT_ALLTOALL },
	{ "Gather", TT_GATHER },       { "Scatter", TT_SCATTER },
	{ "Barrier", TT_COLLECTIVES },
};
#define NTALLIES (int)(sizeof(tallies) / sizeof(tallies[0]))

static bool answers(const struct tt_rank_report *rank)
{
	return rank->state == TT_RANK_ANSWERS;
}

static int count_answers(const struct tt_ras_comm *c)
{
	int n = 0;

	for (int r = 0; r < c->nranks; r++)
		n += answers(&c->ranks[r]);
	return n;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_string(const char *text, FILE *to)
{
	for (; *text; text++)
		fputc(*text >= ' ' && *text <= '~' && *text != '"' && *text != '\\' ? *text : '?',
		      to);
}

/* NCCL's "cuda_dev" and "nvml_dev": a rank of Tutti is bound to no GPU. */
static void write_rank_head(int number, const struct tt_rank_report *rank, FILE *to)
{
	fprintf(to, "        {\n          \"rank\": %d,\n          \"host\": \"", number);
	write_string(rank->host, to);
	fprintf(to,
		"\",\n          \"pid\": %d,\n          \"cuda_dev\": -1,\n          \"nvml_dev\": -1,\n"
		"          \"status\": {\n",
		rank->pid);
}

static void write_rank(const struct tt_ras_comm *c, int number, FILE *to)
{
	const struct tt_rank_report *rank = &c->ranks[number];

	write_rank_head(number, rank, to);
	fprintf(to,
		"            \"init_state\": 0,\n            \"async_error\": %d,\n"
		"            \"finalize_called\": false,\n            \"destroy_flag\": false,\n"
		"            \"abort_flag\": false\n          },\n          \"collective_counts\": {\n",
		c->error == TT_TIMEOUT ? -TT_REMOTE : -c->error); /* the numbers of ncclResult_t */
	for (int i = 0; i < NTALLIES; i++)
		fprintf(to, "            \"%s\": %" PRIu64 "%s\n", tallies[i].name,
			rank->tally.calls[tallies[i].kind], i + 1 < NTALLIES ? "," : "");
	fputs("          }\n        }", to);
}

static void write_missing(const struct tt_ras_comm *c, int number, FILE *to)
{
	const struct tt_rank_report *rank = &c->ranks[number];

	write_rank_head(number, rank, to);
	fprintf(to,
		"            \"unresponsive\": %s,\n            \"considered_dead\": %s\n"
		"          }\n        }",
		rank->state == TT_RANK_LEFT ? "false" : "true",
		rank->state == TT_RANK_DEAD ? "true" : "false");
}

static void write_ranks(const struct tt_ras_comm *c, bool answering,
			void (*write)(const struct tt_ras_comm *, int, FILE *), FILE *to)
{
	const char *comma = "";

	for (int r = 0; r < c->nranks; r++) {
		if (answers(&c->ranks[r]) != answering)
			continue;
		fputs(comma, to);
		write(c, r, to);
		comma = ",\n";
	}
}

/* NCCL's second hash is that of the host and the process of the first rank. */
static uint64_t hash_of(const char *text)
{
	uint64_t h = 0xcbf29ce484222325; /* FNV-1a */

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3;
	return h;
}

static void write_comm(const struct tt_ras_comm *c, FILE *to)
{
	int n = count_answers(c);

	fprintf(to,
		"    {\n      \"hash\": \"0x%" PRIx64 "\",\n      \"secondary_hash\": \"0x%" PRIx64
		":0x%" PRIx64 "\",\n",
		c->comm, hash_of(c->ranks[0].host), tt_mix(1, (uint64_t)c->ranks[0].pid));
	fprintf(to,
		"      \"size\": %d,\n      \"ranks_count\": %d,\n      \"missing_ranks_count\": %d,\n"
		"      \"ranks\": [\n",
		c->nranks, n, c->nranks - n);
	write_ranks(c, true, write_rank, to);
	fputs("\n      ],\n      \"missing_ranks\": [\n", to);
	write_ranks(c, false, write_missing, to);
	fputs("\n      ]\n    }", to);
}

/* Communicators with a rank that was waited for in vain */
static int count_timeouts(const struct tt_ras_report *report)
{
	int n = 0;

	for (int i = 0; i < report->ncomms; i++) {
		const struct tt_ras_comm *c = &report->comms[i];
		int r = 0;

		while (r < c->nranks && c->ranks[r].state != TT_RANK_SILENT)
			r++;
		n += r < c->nranks;
	}
	return n;
}

void tt_ras_write_json(const struct tt_ras_report *report, FILE *to)
{
	struct timespec now;
	struct tm local;
	char text[32];

	clock_gettime(CLOCK_REALTIME, &now); /* time() is not simulated */
	strftime(text, sizeof(text), "%F %T", localtime_r(&now.tv_sec, &local));
	fprintf(to,
		"{\n  \"nccl_version\": \"%s\",\n  \"cuda_runtime_version\": 0,\n"
		"  \"cuda_driver_version\": 0,\n  \"timestamp\": \"%s\",\n"
		"  \"communicators_count\": %d,\n  \"communicators\": [\n",
		NCCL_VERSION, text, report->ncomms);
	for (int i = 0; i < report->ncomms; i++) {
		fputs(i ? ",\n" : "", to);
		write_comm(&report->comms[i], to);
	}
	fprintf(to,
		"\n  ],\n  \"ras\": {\n    \"collection_time_sec\": %.3f,\n    \"timeouts_count\": %d\n"
		"  }\n}\n",
		report->seconds, count_timeouts(report));
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The least and most ranks of a host; returns the number of hosts. Ranks of a host need not be in a row. */
static int count_hosts(const struct tt_ras_comm *c, int *ret_least, int *ret_most)
{
	int hosts = 0;

	*ret_least = c->nranks;
	*ret_most = 0;
	for (int r = 0; r < c->nranks; r++) {
		int here = 0, earlier = 0;

		for (int other = 0; other < c->nranks; other++) {
			bool same = !strcmp(c->ranks[r].host, c->ranks[other].host);

			here += same;
			earlier += same && other < r;
		}
		if (earlier)
			continue;
		hosts++;
		*ret_least = here < *ret_least ? here : *ret_least;
		*ret_most = here > *ret_most ? here : *ret_most;
	}
	return hosts;
}

static uint64_t most_started(const struct tt_ras_comm *c)
{
	uint64_t most = 0;

	for (int r = 0; r < c->nranks; r++)
		if (answers(&c->ranks[r]) && c->ranks[r].started > most)
			most = c->ranks[r].started;
	return most;
}

static bool is_behind(const struct tt_ras_comm *c, int rank, uint64_t most)
{
	return answers(&c->ranks[rank]) && c->ranks[rank].started < most;
}

static const char *verdict_on(const struct tt_ras_comm *c)
{
	if (count_answers(c) < c->nranks)
		return "INCOMPLETE";
	if (c->error)
		return "ERROR";
	for (int r = 0; r < c->nranks; r++)
		if (is_behind(c, r, most_started(c)))
			return "MISMATCH";
	return "OK";
}

static void write_row(const struct tt_ras_comm *c, int number, FILE *to)
{
	int least, most, hosts = count_hosts(c, &least, &most);
	char ranks[32];

	snprintf(ranks, sizeof(ranks), least < most ? "%d-%d" : "%d", least, most);
	fprintf(to, "%5d%10d%10d%10s%10d%10d%10s  %s\n", number, 1, hosts, ranks, c->nranks,
		c->nranks, c->error ? "ABORT" : "RUNNING", verdict_on(c));
}

static const char *state_name(enum tt_rank_state state)
{
	static const char *const names[] = {
		[TT_RANK_ANSWERS] = "running",
		[TT_RANK_SILENT] = "unresponsive",
		[TT_RANK_LEFT] = "left",
		[TT_RANK_DEAD] = "dead",
	};

	return names[state];
}

static void write_line(const struct tt_ras_comm *c, int r, FILE *to)
{
	const struct tt_rank_report *rank = &c->ranks[r];

	fprintf(to, "  Rank %d -- process %d on node %s, %s", r, rank->pid, rank->host,
		state_name(rank->state));
	if (rank->started)
		fprintf(to, ", %s operation %" PRIu64,
			rank->started > rank->finished ? "in" : "after", rank->started);
	fputc('\n', to);
}

/* The ranks that are missing or behind; all if it is verbose. */
static void write_details(const struct tt_ras_comm *c, int number, bool verbose, FILE *to)
{
	uint64_t most = most_started(c);
	int listed = 0, others = 0;

	if (!verbose && !strcmp(verdict_on(c), "OK"))
		return;
	fprintf(to, "\n#%d-0 (%016" PRIx64 ") %s\n", number, c->comm, verdict_on(c));
	for (int r = 0; r < c->nranks; r++) {
		if (!verbose && answers(&c->ranks[r]) && !is_behind(c, r, most))
			continue;
		if (verbose || listed < LISTED)
			write_line(c, r, to);
		else
			others++;
		listed++;
	}
	if (others)
		fprintf(to, "  and %d more\n", others);
	if (most)
		fprintf(to, "  The latest operation of any rank is %" PRIu64 "\n", most);
}

void tt_ras_write_text(const struct tt_ras_report *report, bool verbose, FILE *to)
{
	fprintf(to, "NCCL version %s is provided by Tutti %d.%d.%d\n", NCCL_VERSION, TUTTI_MAJOR,
		TUTTI_MINOR, TUTTI_PATCH);
	fprintf(to, "\nCommunicators... (%.2fs)\n=============\n\n", report->seconds);
	fputs("Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
	      "    #  in group  per comm  per node  per comm  in group\n",
	      to);
	for (int i = 0; i < report->ncomms; i++)
		write_row(&report->comms[i], i, to);
	for (int i = 0; i < report->ncomms; i++)
		write_details(&report->comms[i], i, verbose, to);
}
