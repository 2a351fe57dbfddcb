/*
 * test_tuning.c - tables of costs: as text, as factors, and as rank 0 distributes them
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "comm/tuning.h"
#include "tests/support/ranks.h"

TestSuite(tuning, .timeout = 120);

static int parse(const char *text, struct tt_cost **ret_cost)
{
	return tt_cost_parse(text, strlen(text), "FILE", ret_cost);
}

/* ---- text ------------------------------------------------------------------------------------ */

Test(tuning, a_constant_is_read_in_its_unit_and_the_others_are_built_in)
{
	struct tt_cost *c;

	cr_assert_eq(
		parse("# head\n\n  shm.latency_ns 90.5 # behind\r\ntcp.send_gbps\t4\nhosts.host_gbps 0\ncore.cache_bytes 1e6",
		      &c),
		TT_OK, "%s", tt_error_text());
	cr_expect_eq(c->link[TT_LINK_SHM].latency_ps, 90500);
	cr_expect_eq(c->link[TT_LINK_TCP].send_fs, 250000);
	cr_expect_eq(c->link[TT_LINK_HOSTS].host_fs, 0);
	cr_expect_eq(c->core.cache_bytes, 1000000);
	cr_expect_eq(c->core.copy_fs, tt_cost_builtin.core.copy_fs);
	cr_expect_eq(c->nfactors, 0);
	tt_cost_free(c);
}

Test(tuning, every_constant_survives_printing_and_parsing)
{
	struct tt_cost *c, *again;
	char *text, *printed = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	for (size_t i = 0; i < tt_cost_rows; i++)
		fprintf(f, "%s %zu\n", tt_cost_table[i].name, i + 1);
	fprintf(f, "factor allreduce ring shm 4 65536 1.125\nfactor allreduce ring shm 4 64 0.5\n");
	fclose(f);
	cr_assert_eq(parse(text, &c), TT_OK, "%s", tt_error_text());
	cr_expect_eq(c->factors[0].bytes, 64, "factors are sorted");
	f = open_memstream(&printed, &length);
	tt_cost_print(c, f);
	fclose(f);
	cr_assert_eq(parse(printed, &again), TT_OK, "%s", tt_error_text());
	for (size_t i = 0; i < tt_cost_rows; i++) {
		uint64_t *a = (uint64_t *)((char *)c + tt_cost_table[i].offset);
		uint64_t *b = (uint64_t *)((char *)again + tt_cost_table[i].offset);

		cr_expect(*a > *b ? *a - *b <= *a / 10000 : *b - *a <= *a / 10000, "%s",
			  tt_cost_table[i].name);
	}
	cr_expect_eq(again->nfactors, 2);
	cr_expect_eq(memcmp(again->factors, c->factors, 2 * sizeof(*c->factors)), 0);
	tt_cost_free(c);
	tt_cost_free(again);
	free(text);
	free(printed);
}

Test(tuning, a_wrong_line_is_an_error_with_its_number_and_a_remedy)
{
	static const struct {
		const char *line, *error;
	} wrong[] = {
		{ "shm.latency_ms 9", "unknown constant \"shm.latency_ms\"" },
		{ "shm.latency_ns", "is one number: nanoseconds" },
		{ "shm.latency_ns 1 2", "is one number" },
		{ "shm.latency_ns -1", "is one number" },
		{ "shm.latency_ns nan", "is one number" },
		{ "shm.latency_ns inf", "is one number" },
		{ "shm.latency_ns 9x", "is one number" },
		{ "shm.latency_ns 1e11", "is one number" },
		{ "shm.latency_ns 0,5", "is one number" },
		{ "core.copy_gbps 1e-9", "GB/s" },
		{ "core.cache_bytes 0", "bytes from 1" },
		{ "tcp.window 1.5", "whole number" },
		{ "tcp.window 1", "a whole number from 2" },
		{ "slots.window 2", "unknown" },
		{ "latency_ns 9", "`tutti tune --print` lists them" },
		{ "factor", "the form of a factor is: factor COLLECTIVE" },
		{ "factor allreduce ring shm 4 65536", "a factor is" },
		{ "factor allreduce ring shm 4 65536 1 1", "a factor is" },
		{ "factor alreduce ring shm 4 65536 1", "\"alreduce\" is not a collective" },
		{ "factor allreduce rings shm 4 65536 1", "no algorithm \"rings\"" },
		{ "factor allreduce ring sm 4 65536 1",
		  "use one of shm, tcp, hosts, slots, verbs, soft, groups" },
		{ "factor allreduce ring shm 0 65536 1", "1 to 65535 ranks" },
		{ "factor allreduce ring shm 4 x 1", "bytes" },
		{ "factor allreduce ring shm 4 8 0", "from 0.001 to 1000" },
		{ "factor allreduce ring shm 4 8 1001", "from 0.001 to 1000" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct tt_cost *c = NULL;
		char text[200];

		snprintf(text, sizeof(text), "# one\nshm.window 8\n%s\nshm.window 9\n",
			 wrong[i].line);
		cr_expect_eq(parse(text, &c), TT_ARG, "%s was accepted", wrong[i].line);
		cr_expect(!strncmp(tt_error_text(), "FILE: line 3: ", 14), "%s", tt_error_text());
		cr_expect(strstr(tt_error_text(), wrong[i].error), "%s: %s", wrong[i].line,
			  tt_error_text());
	}
}

Test(tuning, a_file_that_is_not_a_table_is_an_error)
{
	struct tt_cost *c;

	cr_expect_eq(tt_cost_parse("a\0b", 3, "FILE", &c), TT_ARG);
	cr_expect_eq(tt_cost_read("/nonexistent/file", &c), TT_ARG);
	cr_expect(strstr(tt_error_text(), "tutti tune -o"), "%s", tt_error_text());
	cr_expect_eq(tt_cost_read("/", &c), TT_ARG);
}

/* ---- factors --------------------------------------------------------------------------------- */

Test(tuning, factors_are_interpolated_by_size_and_taken_from_the_nearest_number_of_ranks)
{
	struct tt_cost *c;

	cr_assert_eq(
		parse("factor allreduce ring shm 4 1024 2\nfactor allreduce ring shm 4 4096 4\n"
		      "factor allreduce ring shm 16 1024 0.5\n",
		      &c),
		TT_OK);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_SHM, 4, 1024, 1000), 2000);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_SHM, 4, 2048, 1000), 3000);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_SHM, 4, 1, 1000), 2000);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_SHM, 4, 1 << 20, 1000), 4000);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_SHM, 2, 1024, 1000), 2000);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_SHM, 9, 1024, 1000), 500);
	cr_expect_eq(tt_cost_corrected(c, 0, TT_LINK_TCP, 4, 1024, 1000), 1000);
	cr_expect_eq(tt_cost_corrected(c, 1, TT_LINK_SHM, 4, 1024, 1000), 1000);
	tt_cost_free(c);
}

Test(tuning, a_table_survives_packing_and_unpacking)
{
	struct tt_cost *c, *copy;
	char packed[sizeof(*c) + 100];

	cr_assert_eq(parse("shm.latency_ns 7\nfactor reduce tree tcp 3 5 2\n", &c), TT_OK);
	cr_assert_eq(tt_cost_pack(c, NULL, 0), sizeof(*c) + sizeof(struct tt_factor));
	cr_assert_eq(tt_cost_pack(c, packed, sizeof(packed)),
		     sizeof(*c) + sizeof(struct tt_factor));
	cr_expect_eq(tt_cost_unpack(packed, sizeof(*c), &copy), TT_SYSTEM);
	cr_expect_eq(tt_cost_unpack(packed, 10, &copy), TT_SYSTEM);
	cr_assert_eq(tt_cost_unpack(packed, sizeof(*c) + sizeof(struct tt_factor), &copy), TT_OK);
	cr_expect_eq(copy->link[TT_LINK_SHM].latency_ps, 7000);
	cr_expect_eq(copy->factors[0].permille, 2000);
	tt_cost_free(copy);
	tt_cost_free(c);
}

Test(tuning, factors_of_unknown_algorithms_and_links_are_refused)
{
	struct tt_cost *c, *copy;
	char packed[sizeof(*c) + 100];
	size_t bytes;

	cr_assert_eq(parse("factor reduce tree tcp 3 5 2\n", &c), TT_OK);
	c->factors[0].link = 77;
	bytes = tt_cost_pack(c, packed, sizeof(packed));
	cr_expect_eq(tt_cost_unpack(packed, bytes, &copy), TT_REMOTE);
	cr_expect(strstr(tt_error_text(), "link class 77"), "%s", tt_error_text());
	c->factors[0].link = TT_LINK_TCP;
	c->factors[0].algorithm = 200;
	tt_cost_pack(c, packed, sizeof(packed));
	cr_expect_eq(tt_cost_unpack(packed, bytes, &copy), TT_REMOTE);
	cr_expect(strstr(tt_error_text(), "algorithm 200"), "%s", tt_error_text());
	tt_cost_free(c);
}

Test(tuning, rank_0_refuses_a_table_that_it_does_not_have)
{
	tuttiComm_t c = tt_comm_alloc(0, 2);

	cr_assert(c);
	cr_expect_eq(tt_tuning_share(c, 16u << 20), TT_REMOTE);
	cr_expect(strstr(tt_error_text(), "has 16777216 bytes"), "%s", tt_error_text());
	tt_comm_free(c);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

#define CHECK(condition)                                                               \
	do {                                                                           \
		if (!(condition)) {                                                    \
			fprintf(stderr, "rank %d: false: %s (%s)\n", rank, #condition, \
				tuttiGetLastError(NULL));                              \
			return 1;                                                      \
		}                                                                      \
	} while (0)

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

struct tuning_files {
	char path[4][64];
};
struct tuning_job {
	struct ranks ranks;
	struct tuning_files files;
};

static void name_files(struct tuning_files *f)
{
	for (int i = 0; i < 4; i++)
		snprintf(f->path[i], sizeof(f->path[i]), "tuning.%d.%d", (int)getpid(), i);
}

static void remove_files(struct tuning_files *f)
{
	for (int i = 0; i < 4; i++)
		unlink(f->path[i]);
}

static int join(const struct tuning_job *job, int rank, tuttiComm_t *ret_comm)
{
	setenv("TUTTI_TUNING", job->files.path[rank], 1);
	return tuttiCommInitRank(ret_comm, job->ranks.n, job->ranks.id, rank);
}

/* The file of rank 0 makes ring cheap, the files of other ranks make tree cheap: all ranks use
 * ring, also after a split. */
static int use_table_of_rank_0(tuttiComm_t *unused, int rank, int n, void *arg)
{
	tuttiComm_t comm, child;
	char text[200];
	float x[1000] = { 1 };

	(void)unused, (void)n;
	CHECK(!join(arg, rank, &comm));
	CHECK(!tuttiCommDescribe(comm, "allreduce", 1000, tuttiFloat, text, sizeof(text)));
	CHECK(!strncmp(text, "algorithm ring ", 15));
	CHECK(comm->cost && comm->cost->link[TT_LINK_SHM].latency_ps == 123000);
	CHECK(!tuttiAllReduce(x, x, 1000, tuttiFloat, tuttiSum, comm, NULL) && x[0] == (float)n);
	CHECK(!tuttiCommSplit(comm, 0, -rank, &child, NULL));
	CHECK(child->cost && child->cost != comm->cost &&
	      child->cost->link[TT_LINK_SHM].latency_ps == 123000);
	CHECK(!tuttiCommDestroy(comm));
	CHECK(!tuttiCommDescribe(child, "allreduce", 1000, tuttiFloat, text, sizeof(text)));
	CHECK(!strncmp(text, "algorithm ring ", 15));
	CHECK(!tuttiCommDestroy(child));
	return 0;
}

static void write_file_that_favors(const char *path, const char *algorithm, const char *latency)
{
	char text[4000] = "";
	size_t used = (size_t)snprintf(text, sizeof(text), "shm.latency_ns %s\n", latency);

	for (int i = 0; tt_algorithms[i]; i++)
		if (tt_algorithms[i]->collective == TT_ALLREDUCE &&
		    strcmp(tt_algorithms[i]->name, algorithm))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 "factor allreduce %s shm 4 4096 900\n",
						 tt_algorithms[i]->name);
	write_file(path, text);
}

Test(tuning, all_ranks_use_the_table_of_rank_0)
{
	struct tuning_job job = { .ranks = { .n = 4, .no_join = true, .limit_s = 60 } };

	name_files(&job.files);
	write_file_that_favors(job.files.path[0], "ring", "123");
	write_file_that_favors(job.files.path[1], "tree", "456");
	write_file(job.files.path[2], "this is no table\n");
	job.ranks.arg = &job;
	cr_expect_eq(ranks_run(&job.ranks, use_table_of_rank_0), 0);
	remove_files(&job.files);
}

static int get_the_reason(tuttiComm_t *unused, int rank, int n, void *arg)
{
	tuttiComm_t comm;

	(void)unused, (void)n;
	CHECK(join(arg, rank, &comm) != 0);
	CHECK(strstr(tuttiGetLastError(NULL), "line 2") &&
	      strstr(tuttiGetLastError(NULL), "TUTTI_TUNING"));
	return 0;
}

Test(tuning, a_wrong_file_of_rank_0_is_an_error_on_every_rank)
{
	struct tuning_job job = { .ranks = { .n = 3, .no_join = true, .limit_s = 60 } };

	name_files(&job.files);
	write_file(job.files.path[0], "shm.window 8\nshm.windows 8\n");
	job.ranks.arg = &job;
	cr_expect_eq(ranks_run(&job.ranks, get_the_reason), 0);
	remove_files(&job.files);
}

/* ---- wrong algorithms ------------------------------------------------------------------------ */

static void wait_only(struct tt_builder *b, const char *argument)
{
	(void)argument;
	if (b->n > 1)
		tt_step_recv(b, (b->rank + 1) % b->n, tt_all(b));
}

static void simulate_idle(int n, const char *words)
{
	static const struct tt_algorithm idle = { .collective = TT_ALLREDUCE,
						  .name = "idle",
						  .build = wait_only };
	struct tt_topology one = { .nranks = n, .nhosts = 1, .host_of = (int[3]){ 0 } };
	struct tt_sim_world world = { .nranks = n,
				      .topology = &one,
				      .paths = { .nranks = n, .one_host = true },
				      .message_bytes = 65536,
				      .cost = &tt_cost_builtin };
	struct tt_sim_result result;
	struct tt_sim *sim = NULL;
	int rc = tt_sim_open(&world, &idle, "idle", 0, NULL, &sim);

	if (!rc) {
		rc = tt_sim_run(sim, 1024, 0, &result);
		tt_sim_close(sim);
	}
	cr_expect_eq(rc, TT_INTERNAL);
	cr_expect(strstr(tt_error_text(), words), "%s", tt_error_text());
}

Test(tuning, an_algorithm_that_cannot_end_is_named)
{
	simulate_idle(2, "idle: the simulated rank 0 never finishes");
	simulate_idle(3, "idle: rank 0 has rank 1 as a peer, but not the other way round");
}
