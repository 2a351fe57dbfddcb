/* test_timeline.c - the file of --timeline: memory that is missing, and files that another program has changed */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/files.h"
#include "tests/support/must.h"
#include "tools/fresh_file.h"
#include "trainer/rank/rank.h"

static char folder[64], path[96];
static bool starve; /* the text of the spans gets no memory */

/* Called by the linker in place of open_memstream(). */
FILE *__wrap_open_memstream(char **text, size_t *bytes);
FILE *__real_open_memstream(char **text, size_t *bytes);
FILE *__wrap_open_memstream(char **text, size_t *bytes)
{
	if (!starve)
		return __real_open_memstream(text, bytes);
	errno = ENOMEM;
	return NULL;
}

static bool dies; /* this rank, before it sends its spans */

tuttiResult_t __wrap_tuttiSend(const void *data, size_t count, tuttiDataType_t type, int peer,
			       tuttiComm_t comm, tuttiStream_t stream);
tuttiResult_t __real_tuttiSend(const void *data, size_t count, tuttiDataType_t type, int peer,
			       tuttiComm_t comm, tuttiStream_t stream);
tuttiResult_t __wrap_tuttiSend(const void *data, size_t count, tuttiDataType_t type, int peer,
			       tuttiComm_t comm, tuttiStream_t stream)
{
	if (dies)
		_exit(0);
	return __real_tuttiSend(data, count, type, peer, comm, stream);
}

static void make_folder(void)
{
	snprintf(folder, sizeof(folder), "/tmp/tutti-timeline-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
}

static void remove_folder(void)
{
	unlink(path);
	rmdir(folder);
}

TestSuite(timeline, .init = make_folder, .fini = remove_folder, .timeout = 60);

/* Returns the text of the file, which the next call overwrites. */
static const char *text_of_file(void)
{
	static char text[1 << 20];
	FILE *f = fopen(path, "r");

	text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = '\0';
	if (f)
		fclose(f);
	return text;
}

static int count(const char *what)
{
	int n = 0;

	for (const char *at = text_of_file(); (at = strstr(at, what)); at++)
		n++;
	return n;
}

enum { SPANS = 1300 }; /* more than a message */

static void add_spans(struct train_rank *t, uint64_t step)
{
	for (uint64_t i = 0; i < SPANS; i++)
		train_timeline_add(&t->timeline, TRAIN_TIME_COMPUTE, step, 2 * i + 1, 2 * i + 2);
}

static struct train_rank make_rank(const struct train_config *config, tuttiComm_t comm, int rank,
				   int n)
{
	struct train_rank t = { .config = config, .comm = comm, .world = comm };

	t.rank = t.world_rank = rank;
	t.nranks = n;
	t.timeline.on = true;
	return t;
}

/* Three evaluations; at the second one rank 0 has no memory for the text, so all ranks lose the spans of step 2. */
static int without_memory(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct train_config config = { .timeline = path };
	struct train_rank t = make_rank(&config, *comm, rank, n);

	(void)arg;
	train_timeline_begin(&t);
	for (uint64_t step = 1; step < 3; step++) {
		starve = rank == 0 && step == 2;
		add_spans(&t, step);
		WANT(train_timeline_write(&t, false) == TRAIN_OK);
	}
	starve = false;
	add_spans(&t, 3);
	WANT(train_timeline_write(&t, true) == (rank ? TRAIN_OK : TRAIN_FAILED));
	WANT(rank || strstr(train_error(), "lacks steps"));
	train_timeline_close(&t.timeline);
	return 0;
}

Test(timeline, spans_without_memory_are_an_error_at_the_end_and_later_ones_are_written)
{
	struct ranks r = { .n = 3, .limit_s = 30 };

	cr_expect_eq(ranks_run(&r, without_memory), 0);
	cr_expect_eq(count("\"step\":1}"), 3 * SPANS);
	cr_expect_eq(count("\"step\":2}"), 0);
	cr_expect_eq(count("\"step\":3}"), 3 * SPANS);
}

static int with_a_death(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct train_config config = { .timeline = path };
	struct train_rank t = make_rank(&config, *comm, rank, n);
	tuttiComm_t alone;

	(void)arg;
	train_timeline_begin(&t);
	add_spans(&t, 1);
	dies = rank == 1;
	WANT(train_timeline_write(&t, false) == TRAIN_FAILED);
	MUST(tuttiCommShrink(*comm, NULL, 0, &alone, NULL, TUTTI_SHRINK_DEFAULT));
	t.comm = t.world = alone;
	WANT(train_timeline_write(&t, true) == TRAIN_OK);
	train_timeline_close(&t.timeline);
	tuttiCommDestroy(alone);
	return 0;
}

Test(timeline, a_death_while_spans_are_sent_does_not_write_those_of_rank_0_twice)
{
	struct ranks r = { .n = 2, .limit_s = 30 };

	cr_expect_eq(ranks_run(&r, with_a_death), 0);
	cr_expect_eq(count("\"step\":1}"), SPANS);
}

Test(timeline, a_file_with_another_end_is_not_changed)
{
	write_file_in(folder, "file", "the text of another program");
	cr_expect(tool_file_insert(path, "spans", 5, "\n]}\n") == -1 && errno == EINVAL);
	cr_expect_str_eq(text_of_file(), "the text of another program");
	write_file_in(folder, "file", "]}");
	cr_expect(tool_file_insert(path, "spans", 5, "\n]}\n") == -1 && errno == EINVAL);
	write_file_in(folder, "file", "");
	cr_expect(tool_file_insert(path, "spans", 5, "\n]}\n") == -1 && errno == ENOENT);
	write_file_in(folder, "file", "a\n]}\n");
	cr_expect_eq(tool_file_insert(path, ",spans", 6, "\n]}\n"), 0);
	cr_expect_str_eq(text_of_file(), "a,spans\n]}\n");
}
