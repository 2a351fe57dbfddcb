/*
 * rank_records.c - what the ranks know of each other before they measure: hosts, memory, GPUs
 *
 * Called by bench_thread.c once the base communicators stand. Every rank comes to the same verdict, since
 * all see the same cards.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/bench/bench.h"
#include "tools/host.h"

static int exchange_cards(struct bench_thread *c)
{
	struct bench_rank_record *mine = calloc((size_t)c->nseats, sizeof(*mine));
	int rc;

	c->cards = calloc((size_t)c->nranks, sizeof(*c->cards));
	if (!mine || !c->cards) {
		fprintf(stderr, "rank %d: no memory for the list of %d ranks\n", c->first,
			c->nranks);
		free(mine);
		return 1;
	}
	for (int i = 0; i < c->nseats; i++) {
		gethostname(mine[i].host, sizeof(mine[i].host) - 1);
		tool_host_cpu(mine[i].cpu, sizeof(mine[i].cpu));
		mine[i].pid = getpid();
		mine[i].free_bytes = tool_host_free_bytes();
	}
	rc = bench_thread_gather(c, mine, sizeof(*mine), c->cards);
	free(mine);
	return rc;
}

/* The lowest rank of the host says it. */
static int check_memory(struct bench_thread *c)
{
	uint64_t each = bench_rank_bytes(c->line, c->bench);
	int verdict = 0;

	for (int r = 0; r < c->nranks; r++) {
		uint64_t ranks = 0, least = UINT64_MAX;
		bool lowest = true;

		for (int other = 0; other < c->nranks; other++) {
			if (strcmp(c->cards[other].host, c->cards[r].host))
				continue;
			ranks++;
			lowest &= other >= r;
			least = c->cards[other].free_bytes < least ? c->cards[other].free_bytes
								   : least;
		}
		if (!lowest || ranks * each <= least)
			continue;
		verdict = 2;
		if (c->first == r)
			fprintf(stderr,
				"rank %d: -e %llu: %llu ranks on %s need %.1f GB for their buffers, and %.1f GB "
				"are free; use a smaller -e, fewer ranks, or --place in\n",
				r, (unsigned long long)c->line->max_bytes,
				(unsigned long long)ranks, c->cards[r].host,
				(double)(ranks * each) / 1e9, (double)least / 1e9);
	}
	return verdict;
}

/* How many ranks of its host are before this one? */
static int local_rank(const struct bench_thread *c, int rank)
{
	int before = 0;

	for (int r = 0; r < rank; r++)
		before += !strcmp(c->cards[r].host, c->cards[rank].host);
	return before;
}

int bench_thread_local_index(const struct bench_thread *c)
{
	return local_rank(c, c->first) / c->nseats;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Rank 0 also measures what its device can copy, while the others have nothing to do. */
static int take_gpu(struct bench_thread *c, struct bench_rank *s, struct bench_gpu_record *card)
{
	int rc = tool_cuda_device_take(c->line->ordinal, local_rank(c, s->rank), &s->gpu);

	if (!rc && s->rank == 0)
		rc = tool_cuda_device_copy_gbps(&s->gpu, &c->copy_gbps, &c->copy_bytes);
	if (!rc && (rc = s->gpu.cu->stream_create(&s->own, TT_CU_STREAM_NON_BLOCKING)))
		rc = tt_cuda_fail(rc, "a stream on device %d", s->gpu.ordinal);
	*card = (struct bench_gpu_record){ .failed = rc != 0,
				      .ordinal = s->gpu.ordinal,
				      .uuid = s->gpu.uuid };
	memcpy(card->name, s->gpu.name, sizeof(card->name));
	memcpy(card->pci, s->gpu.pci, sizeof(card->pci));
	return rc;
}

/* The lowest rank that has no GPU says so. */
static int judge_gpus(struct bench_thread *c, const char *why)
{
	c->one_gpu = true;
	for (int r = 0; r < c->nranks; r++) {
		if (c->gpus[r].failed) {
			if (c->first <= r && r < c->first + c->nseats)
				fprintf(stderr, "rank %d: --device %s: %s\n", r, c->line->device,
					why);
			return 2;
		}
		c->one_gpu &=
			!memcmp(&c->gpus[r].uuid, &c->gpus[0].uuid, sizeof(c->gpus[r].uuid)) &&
			!strcmp(c->cards[r].host, c->cards[0].host);
	}
	return 0;
}

static int take_gpus(struct bench_thread *c)
{
	struct bench_gpu_record *mine = calloc((size_t)c->nseats, sizeof(*mine));
	char why[512] = "";
	int rc;

	c->gpus = calloc((size_t)c->nranks, sizeof(*c->gpus));
	if (!mine || !c->gpus) {
		fprintf(stderr, "rank %d: no memory for the list of %d GPUs\n", c->first,
			c->nranks);
		free(mine);
		return 1;
	}
	for (int i = 0; i < c->nseats; i++)
		if (take_gpu(c, &c->seats[i], &mine[i]) && !*why)
			snprintf(why, sizeof(why), "%s", tt_error_text());
	rc = bench_thread_gather(c, mine, sizeof(*mine), c->gpus);
	free(mine);
	return rc ? rc : judge_gpus(c, why);
}

int bench_thread_exchange_records(struct bench_thread *c)
{
	int rc = exchange_cards(c);

	if (!rc)
		rc = check_memory(c);
	if (!rc && c->line->cuda)
		rc = take_gpus(c);
	return rc;
}
