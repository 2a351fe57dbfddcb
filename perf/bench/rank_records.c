/*
 * rank_records.c - exchanges one record per rank before the measurement: host, memory, settings, GPU
 *
 * Called by bench_thread.c after the base communicators exist. All ranks get the same records, so
 * all ranks reach the same verdict.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/bench/bench.h"
#include "tools/host.h"

/* Options that determine how many calls of which sizes a rank makes, and with which data. The library
 * compares those of a single call. */
static const struct {
	const char *option;
	size_t at;
} settings[BENCH_SETTINGS] = {
	{ "-t", offsetof(struct bench_options, threads) },
	{ "-g", offsetof(struct bench_options, ranks_each) },
	{ "-b", offsetof(struct bench_options, min_bytes) },
	{ "-e", offsetof(struct bench_options, max_bytes) },
	{ "-i", offsetof(struct bench_options, step_bytes) },
	{ "-f", offsetof(struct bench_options, step_factor) },
	{ "-n", offsetof(struct bench_options, iters) },
	{ "-m", offsetof(struct bench_options, aggregate) },
	{ "-w", offsetof(struct bench_options, warmup) },
	{ "-N", offsetof(struct bench_options, cycles) },
	{ "-c", offsetof(struct bench_options, check) },
	{ "-G", offsetof(struct bench_options, graph) },
	{ "-r", offsetof(struct bench_options, root) },
	{ "-z", offsetof(struct bench_options, blocking) },
	{ "-I", offsetof(struct bench_options, per_iter) },
	{ "-M", offsetof(struct bench_options, memory_report) },
	{ "--seed", offsetof(struct bench_options, seed) },
};

/* Checks that all ranks have the same settings; each thread reports. Returns 0 | 2. */
static int check_settings(const struct bench_thread *t)
{
	for (int r = 1; r < t->nranks; r++)
		for (int i = 0; i < BENCH_SETTINGS; i++) {
			int64_t its = t->records[r].settings[i], first = t->records[0].settings[i];

			if (its == first)
				continue;
			fprintf(stderr,
				"rank %d: rank 0 has %s %lld, rank %d has %lld; give all ranks the "
				"same options\n",
				t->first, settings[i].option, (long long)first, r, (long long)its);
			return 2;
		}
	return 0;
}

static int exchange_rank_records(struct bench_thread *t)
{
	struct bench_rank_record *mine = calloc((size_t)t->nown, sizeof(*mine));
	int rc;

	t->records = calloc((size_t)t->nranks, sizeof(*t->records));
	if (!mine || !t->records) {
		fprintf(stderr, "rank %d: no memory for the list of %d ranks\n", t->first,
			t->nranks);
		free(mine);
		return 1;
	}
	for (int i = 0; i < t->nown; i++) {
		gethostname(mine[i].host, sizeof(mine[i].host) - 1);
		tool_host_cpu(mine[i].cpu, sizeof(mine[i].cpu));
		mine[i].pid = getpid();
		mine[i].free_bytes = tool_host_free_bytes();
		mine[i].reports = t->options->html;
		for (int k = 0; k < BENCH_SETTINGS; k++)
			memcpy(&mine[i].settings[k], (const char *)t->options + settings[k].at,
			       sizeof(int64_t));
	}
	rc = bench_thread_gather(t, mine, sizeof(*mine), t->records);
	free(mine);
	return rc;
}

/* Checks that the buffers fit the free memory of every host; the lowest rank of a host reports.
 * Returns 0 | 2. */
static int check_memory(struct bench_thread *t)
{
	uint64_t each = bench_rank_bytes(t->options, t->bench);
	int verdict = 0;

	for (int r = 0; r < t->nranks; r++) {
		uint64_t ranks = 0, least = UINT64_MAX;
		bool lowest = true;

		for (int other = 0; other < t->nranks; other++) {
			if (strcmp(t->records[other].host, t->records[r].host))
				continue;
			ranks++;
			lowest &= other >= r;
			least = t->records[other].free_bytes < least ? t->records[other].free_bytes
								     : least;
		}
		if (!lowest || ranks * each <= least)
			continue;
		verdict = 2;
		if (t->first == r)
			fprintf(stderr,
				"rank %d: -e %llu: the buffers of %llu ranks on %s need %.1f GB, but only %.1f GB "
				"are free; use a smaller -e, fewer ranks, or --place in\n",
				r, (unsigned long long)t->options->max_bytes,
				(unsigned long long)ranks, t->records[r].host,
				(double)(ranks * each) / 1e9, (double)least / 1e9);
	}
	return verdict;
}

/* Returns the number of lower ranks on the rank's host. */
static int local_rank(const struct bench_thread *t, int rank)
{
	int before = 0;

	for (int r = 0; r < rank; r++)
		before += !strcmp(t->records[r].host, t->records[rank].host);
	return before;
}

int bench_thread_local_index(const struct bench_thread *t)
{
	return local_rank(t, t->first) / t->nown;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Takes the rank's GPU and fills its record. Rank 0 also measures copy bandwidth, while the other
 * ranks are idle. */
static int take_gpu(struct bench_thread *t, struct bench_rank *r, struct bench_gpu_record *record)
{
	int rc = tool_cuda_device_take(t->options->ordinal, local_rank(t, r->rank), &r->gpu);

	if (!rc && r->rank == 0)
		rc = tool_cuda_device_copy_gbps(&r->gpu, &t->copy_gbps, &t->copy_bytes);
	if (!rc && (rc = r->gpu.cu->stream_create(&r->cu_stream, TT_CU_STREAM_NON_BLOCKING)))
		rc = tt_cuda_fail(rc, "create a stream on device %d", r->gpu.ordinal);
	*record = (struct bench_gpu_record){ .failed = rc != 0,
					     .ordinal = r->gpu.ordinal,
					     .uuid = r->gpu.uuid };
	memcpy(record->name, r->gpu.name, sizeof(record->name));
	memcpy(record->pci, r->gpu.pci, sizeof(record->pci));
	return rc;
}

/* Checks that every rank has a GPU; the lowest rank without one reports. Returns 0 | 2. */
static int check_gpus(struct bench_thread *t, const char *why)
{
	t->one_gpu = true;
	for (int r = 0; r < t->nranks; r++) {
		if (t->gpus[r].failed) {
			if (t->first <= r && r < t->first + t->nown)
				fprintf(stderr, "rank %d: --device %s: %s\n", r, t->options->device,
					why);
			return 2;
		}
		t->one_gpu &= !memcmp(&t->gpus[r].uuid, &t->gpus[0].uuid,
				      sizeof(t->gpus[r].uuid)) &&
			      !strcmp(t->records[r].host, t->records[0].host);
	}
	return 0;
}

static int take_gpus(struct bench_thread *t)
{
	struct bench_gpu_record *mine = calloc((size_t)t->nown, sizeof(*mine));
	char why[512] = "";
	int rc;

	t->gpus = calloc((size_t)t->nranks, sizeof(*t->gpus));
	if (!mine || !t->gpus) {
		fprintf(stderr, "rank %d: no memory for the list of %d GPUs\n", t->first,
			t->nranks);
		free(mine);
		return 1;
	}
	for (int i = 0; i < t->nown; i++)
		if (take_gpu(t, &t->ranks[i], &mine[i]) && !*why)
			snprintf(why, sizeof(why), "%s", tt_error_text());
	rc = bench_thread_gather(t, mine, sizeof(*mine), t->gpus);
	free(mine);
	return rc ? rc : check_gpus(t, why);
}

int bench_thread_exchange_records(struct bench_thread *t)
{
	int rc = exchange_rank_records(t);

	if (!rc)
		rc = check_settings(t);
	if (!rc)
		rc = check_memory(t);
	if (!rc && t->options->cuda)
		rc = take_gpus(t);
	return rc;
}
