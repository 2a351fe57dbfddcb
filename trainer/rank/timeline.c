/* timeline.c - time spans of every rank as a trace file (timeline.h) */
#include "trainer/rank/timeline.h"

#include "tools/fresh_file.h"
#include "trainer/rank/rank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void train_timeline_add(struct train_timeline *l, enum train_activity activity, uint64_t step,
			uint64_t begin_ns, uint64_t end_ns)
{
	if (!l->on || end_ns <= begin_ns)
		return;
	if (l->n == l->capacity) {
		size_t capacity = l->capacity ? 2 * l->capacity : 1024;
		struct train_span *more = realloc(l->span, capacity * sizeof(*more));

		if (!more)
			return;
		l->span = more;
		l->capacity = capacity;
	}
	l->span[l->n++] = (struct train_span){ step, begin_ns, end_ns, activity };
}

void train_timeline_close(struct train_timeline *l)
{
	free(l->span);
	*l = (struct train_timeline){ 0 };
}

static void write_spans(FILE *to, int rank, const struct train_span *span, size_t n, uint64_t zero)
{
	static const char *const names[] = { "compute", "exposed communication",
					     "hidden communication" };

	for (size_t i = 0; i < n; i++)
		fprintf(to,
			",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
			"\"args\":{\"step\":%" PRIu64 "}}",
			names[span[i].activity % 3], rank, span[i].activity == TRAIN_TIME_HIDDEN,
			((double)span[i].begin_ns - (double)zero) / 1e3,
			(double)(span[i].end_ns - span[i].begin_ns) / 1e3, span[i].step);
}

/* Rank 0: writes a rank's spans, its own or received ones. */
static int write_rank(struct train_rank *t, FILE *to, int rank, uint64_t n, uint64_t zero)
{
	bool fits = n < SIZE_MAX / sizeof(struct train_span);
	struct train_span *span = rank == 0 ? t->timeline.span
				  : fits    ? malloc(n * sizeof(*span) + 1)
					    : NULL;
	int rc = TRAIN_OK;

	if (n && !span)
		return train_fail(TRAIN_FAILED, "no memory for %" PRIu64 " spans of rank %d", n,
				  rank);
	if (rank && n)
		rc = train_check(tuttiRecv(span, n * sizeof(*span), tuttiUint8, rank, t->comm,
					   NULL),
				 t->comm);
	if (!rc) {
		fprintf(to,
			"%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
			rank ? "," : "", rank, rank);
		write_spans(to, rank, span, n, zero);
	}
	if (rank)
		free(span);
	return rc;
}

static int write_all(struct train_rank *t, FILE *to, const uint64_t *counts)
{
	uint64_t zero = t->timeline.n ? t->timeline.span[0].begin_ns : 0;
	int rc = TRAIN_OK;

	fprintf(to, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
	for (int r = 0; r < t->nranks && !rc; r++)
		rc = write_rank(t, to, r, counts[r], zero);
	fprintf(to, "\n]}\n");
	return rc;
}

/* Rank 0's part. Without memory for the text it first receives all spans, then reports the error. */
static int write_file(struct train_rank *t, const char *path, const uint64_t *counts)
{
	char *text = NULL;
	size_t bytes;
	FILE *memory = open_memstream(&text, &bytes),
	     *to = memory ? memory : fopen("/dev/null", "we");
	bool lost = !memory;
	int rc;

	if (!to)
		return train_fail(TRAIN_FAILED, "--timeline %s: %m", path);
	rc = write_all(t, to, counts);
	lost |= ferror(to) | fclose(to);
	if (!rc && (lost || tool_file_write(path, text, bytes)))
		rc = train_fail(TRAIN_FAILED, "--timeline %s: cannot be written: %m", path);
	free(text);
	return rc;
}

int train_timeline_write(struct train_rank *t, const char *path)
{
	uint64_t own = t->timeline.n, *counts = calloc((size_t)t->nranks, sizeof(*counts));
	int rc;

	if (!counts)
		return train_fail(TRAIN_FAILED, "no memory for a timeline");
	rc = train_check(tuttiAllGather(&own, counts, 1, tuttiUint64, t->comm, NULL), t->comm);
	if (!rc && t->rank == 0)
		rc = write_file(t, path, counts);
	else if (!rc && own)
		rc = train_check(tuttiSend(t->timeline.span, own * sizeof(struct train_span),
					   tuttiUint8, 0, t->comm, NULL),
				 t->comm);
	free(counts);
	return rc;
}
