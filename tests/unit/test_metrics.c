/*
 * test_metrics.c - counters for Prometheus: their text, and the life of their file
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/trace.h"

TestSuite(metrics, .timeout = 60);

#define FILE_NAME "tutti-00000000000000ab.1.prom"

static char dir[] = "/tmp/tutti-metrics-XXXXXX", path[100];

static struct tt_metrics *open_metrics(const char *name)
{
	struct tt_metrics_facts facts = {
		.comm = 0xab, .rank = 1, .nranks = 3, .name = name, .tick_ns = 0.5
	};
	struct tt_metrics *m = NULL;

	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/%s", dir, FILE_NAME);
	cr_assert_eq(tt_metrics_open(dir, &facts, &m), 0, "%s", tt_error_text());
	return m;
}

static char *text_of(const struct tt_metrics *m, uint64_t now)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	tt_metrics_text(m, now, to);
	fclose(to);
	return text;
}

/* The value of the sample whose name and labels are `series`; NULL: none */
static const char *value_of(const char *text, const char *series)
{
	const char *at = strstr(text, series);

	return at ? at + strlen(series) + 1 : NULL;
}

static void expect(const char *text, const char *series, double value)
{
	const char *at = value_of(text, series);

	cr_assert_not_null(at, "no sample %s in\n%s", series, text);
	cr_expect_float_eq(atof(at), value, value * 1e-6, "%s is %.20s", series, at);
}

#define LABELS "{comm=\"00000000000000ab\",rank=\"1\""
#define BUCKET(collective, bound)                                                                \
	"tutti_call_duration_seconds_bucket" LABELS ",collective=\"" collective "\",le=\"" bound \
	"\"}"

Test(metrics, calls_are_in_the_bucket_of_their_duration)
{
	struct tt_metrics *m = open_metrics("x");
	struct tt_call call = { .collective = TT_BROADCAST };
	char *text;

	tt_metrics_count(m, &call, 100, 1000);        /* 0.5 us */
	tt_metrics_count(m, &call, 100, 2000);        /* 1 us: a bound belongs to its bucket */
	tt_metrics_count(m, &call, 100, 2002);        /* 1.001 us */
	tt_metrics_count(m, &call, 100, 60000000000); /* 30 s: beyond all bounds */
	text = text_of(m, 0);
	expect(text, BUCKET("broadcast", "1e-06"), 2);
	expect(text, BUCKET("broadcast", "1e-05"), 3);
	expect(text, BUCKET("broadcast", "10"), 3);
	expect(text, BUCKET("broadcast", "+Inf"), 4);
	expect(text, "tutti_call_duration_seconds_count" LABELS ",collective=\"broadcast\"}", 4);
	expect(text, "tutti_call_duration_seconds_sum" LABELS ",collective=\"broadcast\"}",
	       30.000002501);
	expect(text, "tutti_call_bytes_total" LABELS ",collective=\"broadcast\"}", 400);
	cr_expect_null(strstr(text, "allreduce"), "collectives without calls have no samples");
	free(text);
	tt_metrics_close(m);
	rmdir(dir);
}

Test(metrics, a_barrier_is_no_allreduce)
{
	struct tt_metrics *m = open_metrics("x");
	struct tt_call sum = { .collective = TT_ALLREDUCE, .op = tuttiSum };
	struct tt_call barrier = { .collective = TT_ALLREDUCE, .op = TT_CALL_BARRIER };
	char *text;

	tt_metrics_count(m, &sum, 8, 1);
	tt_metrics_count(m, &barrier, 0, 1);
	tt_metrics_count(m, &barrier, 0, 1);
	text = text_of(m, 0);
	expect(text, BUCKET("allreduce", "+Inf"), 1);
	expect(text, BUCKET("barrier", "+Inf"), 2);
	free(text);
	tt_metrics_close(m);
	rmdir(dir);
}

Test(metrics, the_age_of_a_call_is_that_of_the_call_that_runs)
{
	struct tt_metrics *m = open_metrics("x");
	struct tt_call call = { .collective = TT_ALLREDUCE };
	char *text = text_of(m, 2000);

	expect(text, "tutti_call_age_seconds" LABELS "}", 0);
	free(text);
	tt_metrics_start(m, 2000);
	text = text_of(m, 4000000002000);
	expect(text, "tutti_call_age_seconds" LABELS "}", 2000);
	free(text);
	tt_metrics_count(m, &call, 8, 1);
	text = text_of(m, 4000000002000);
	expect(text, "tutti_call_age_seconds" LABELS "}", 0);
	free(text);
	tt_metrics_close(m);
	rmdir(dir);
}

Test(metrics, a_name_is_escaped)
{
	struct tt_metrics *m = open_metrics("a\"b\\c\nd\xff");
	char *text = text_of(m, 0);

	cr_expect_not_null(strstr(text, "name=\"a\\\"b\\\\c?d?\",version="), "%s", text);
	free(text);
	tt_metrics_close(m);
	rmdir(dir);
}

Test(metrics, the_file_of_a_communicator_that_ended_is_removed)
{
	struct tt_metrics *m = open_metrics("x");

	cr_expect_eq(access(path, R_OK), 0, "the file is there at once");
	tt_metrics_close(m);
	cr_expect_neq(access(path, F_OK), 0);
	cr_expect_eq(rmdir(dir), 0, "no other file is left");
}

Test(metrics, the_file_of_a_communicator_that_failed_stays_and_says_so)
{
	struct tt_metrics *m = open_metrics("x");
	char text[8192] = "";
	FILE *f;

	tt_metrics_failed(m);
	tt_metrics_close(m);
	f = fopen(path, "r");
	cr_assert_not_null(f);
	cr_expect_gt(fread(text, 1, sizeof(text) - 1, f), 0);
	fclose(f);
	expect(text, "tutti_communicator_failed" LABELS "}", 1);
	unlink(path);
	cr_expect_eq(rmdir(dir), 0, "no other file is left");
}

Test(metrics, the_thread_writes_again_after_the_last_communicator_left)
{
	for (int round = 0; round < 2; round++) {
		struct tt_metrics *m;

		strcpy(dir, "/tmp/tutti-metrics-XXXXXX");
		m = open_metrics("x");
		unlink(path);
		tt_metrics_failed(m); /* the thread writes soon */
		while (access(path, R_OK))
			usleep(1000);
		tt_metrics_close(m);
		unlink(path);
		rmdir(dir);
	}
}

Test(metrics, a_folder_that_is_not_there_is_an_error_that_names_it)
{
	struct tt_metrics_facts facts = { .comm = 0xab, .rank = 1, .name = "", .tick_ns = 1 };
	struct tt_metrics *m = NULL;

	cr_expect_eq(tt_metrics_open("/nowhere", &facts, &m), TT_ARG);
	cr_expect_str_eq(
		tt_error_text(),
		"rank 1: TUTTI_METRICS=/nowhere: cannot make a file there: No such file or directory; "
		"name a folder in which this process may write");
	cr_expect_null(m);
}
