/* timeline.c - time spans of every rank as a trace file (timeline.h) */
#include "trainer/rank/timeline.h"

#include "tools/fresh_file.h"
#include "trainer/rank/rank.h"
#include "trainer/schedules/schedule.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char head_text[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[",
		  tail_text[] = "\n]}\n";

void train_timeline_add_span(struct train_timeline *l, struct train_span span)
{
	if (!l->on)
		return;
	if (l->n == l->capacity) {
		size_t capacity = l->capacity ? 2 * l->capacity : 1024;
		struct train_span *more = realloc(l->span, capacity * sizeof(*more));

		if (!more)
			return;
		l->span = more;
		l->capacity = capacity;
	}
	span.end_ns = span.end_ns > span.begin_ns ? span.end_ns : span.begin_ns + 1;
	l->span[l->n++] = span;
}

void train_timeline_add(struct train_timeline *l, enum train_activity activity, uint64_t step,
			uint64_t begin_ns, uint64_t end_ns)
{
	if (end_ns > begin_ns)
		train_timeline_add_span(l, (struct train_span){
						   .step = step,
						   .begin_ns = begin_ns,
						   .end_ns = end_ns,
						   .activity = activity,
						   .row = activity == TRAIN_TIME_HIDDEN
								  ? TRAIN_ROW_SUMS
								  : TRAIN_ROW_COMPUTE,
					   });
}

void train_timeline_close(struct train_timeline *l)
{
	free(l->span);
	free(l->late);
	*l = (struct train_timeline){ 0 };
}

static const char *name_of(const struct train_span *span)
{
	static const char *const names[] = { "compute", "exposed communication",
					     "hidden communication" };

	return span->activity < TRAIN_TIME_STEPS
		       ? names[span->activity]
		       : train_step_name((enum train_step_kind)(span->activity - TRAIN_TIME_STEPS));
}

/* An arrow begins at the begin of its sender's span, and ends at the end of its receiver's. */
static void write_arrow(FILE *to, int rank, const struct train_span *span, double begin_us,
			double end_us)
{
	bool send = train_step_is_send((enum train_step_kind)(span->activity - TRAIN_TIME_STEPS));

	fprintf(to,
		",\n{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":\"0x%" PRIx64
		"\",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":%.3f}",
		send ? "s" : "f\",\"bp\":\"e", span->message, rank, span->row,
		send ? begin_us : end_us);
}

static void write_spans(FILE *to, int rank, const struct train_span *span, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double begin_us = (double)span[i].begin_ns / 1e3;
		double us = (double)(span[i].end_ns - span[i].begin_ns) / 1e3;

		fprintf(to,
			",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu64
			",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64,
			name_of(&span[i]), rank, span[i].row, begin_us, us, span[i].step);
		if (span[i].activity >= TRAIN_TIME_STEPS)
			fprintf(to, ",\"chunk\":%" PRIu64 ",\"micro\":%" PRIu64, span[i].chunk,
				span[i].micro);
		fprintf(to, "}}");
		if (span[i].message)
			write_arrow(to, rank, &span[i], begin_us, begin_us + us);
	}
}

/* Names of the rank and of its rows with spans. */
static void write_names(FILE *to, int rank, const char *name, const struct train_span *span,
			size_t n)
{
	static const char *const rows[TRAIN_ROWS] = {
		"computation and waits", "sums of buckets",    "inputs received",
		"outputs sent",          "gradients received", "gradients sent",
	};
	bool used[TRAIN_ROWS] = { false };

	for (size_t i = 0; i < n; i++)
		used[span[i].row % TRAIN_ROWS] = true;
	fprintf(to,
		",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s\"}}",
		rank, name);
	fprintf(to,
		",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
		rank, rank);
	for (int row = 0; row < TRAIN_ROWS; row++)
		if (used[row])
			fprintf(to,
				",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
				"\"args\":{\"name\":\"%s\"}}",
				rank, row, rows[row]);
}

/* The ranks of the file: all of a mesh, else the workers. */
static tuttiComm_t comm_of(const struct train_rank *t)
{
	return t->config->mesh ? t->world : t->comm;
}

/* What a rank sends ahead of its spans. */
struct timeline_head {
	uint64_t spans;
	int32_t rank;   /* number in the file: deaths do not change it */
	char name[120]; /* no quotes: a part of JSON */
};

static void make_head(const struct train_rank *t, struct timeline_head *head)
{
	char host[64] = "";

	*head = (struct timeline_head){ .spans = t->timeline.n, .rank = t->world_rank };
	gethostname(host, sizeof(host) - 1);
	if (t->config->mesh)
		snprintf(head->name, sizeof(head->name),
			 "rank %d: replica %d, stage %d, tensor rank %d on %s", t->world_rank,
			 t->rank, t->mesh.stage, t->mesh.tensor_rank, host);
	else
		snprintf(head->name, sizeof(head->name), "rank %d on %s", t->world_rank, host);
}

/* Rank 0: writes the spans of rank `from` of the communicator, its own or received ones. */
static int write_rank(struct train_rank *t, FILE *to, int from, const struct timeline_head *head)
{
	uint64_t n = head->spans;
	bool fits = n < SIZE_MAX / sizeof(struct train_span);
	struct train_span *span = from == 0 ? t->timeline.span
				  : fits    ? malloc(n * sizeof(*span) + 1)
					    : NULL;
	int rc = TRAIN_OK;

	if (n && !span)
		return train_fail(TRAIN_FAILED, "no memory for %" PRIu64 " spans of rank %d", n,
				  head->rank);
	if (from && n)
		rc = train_check(tuttiRecv(span, n * sizeof(*span), tuttiUint8, from, comm_of(t),
					   NULL),
				 comm_of(t));
	if (!rc) {
		write_names(to, head->rank, head->name, span, n);
		write_spans(to, head->rank, span, n);
	}
	if (from)
		free(span);
	else
		t->timeline.n = 0;
	return rc;
}

/* ---- the file ------------------------------------------------------------------------------------ */

/* A pipe, a terminal or a device is written at the end, in one piece. */
static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) || S_ISREG(st.st_mode);
}

/* Writes the text that is due, the first time with the begin of the file. Returns 0 | -1 with errno. */
static int write_due(struct train_timeline *l, const char *path)
{
	size_t room = strlen(head_text) + l->bytes + strlen(tail_text) + 1;
	char *whole;
	int rc;

	if (l->begun && !tool_file_insert(path, l->late, l->bytes, tail_text))
		return 0;
	if (l->begun && errno != ENOENT)
		return -1;
	whole = malloc(room);
	if (!whole)
		return -1;
	memcpy(whole, head_text, strlen(head_text));
	memcpy(whole + strlen(head_text), l->late, l->bytes);
	whole[strlen(head_text)] = ' '; /* no comma in front of the first event */
	strcpy(whole + strlen(head_text) + l->bytes, tail_text);
	rc = tool_file_write(path, whole, room - 1);
	free(whole);
	return rc;
}

/* Rank 0: writes what is due; on failure it stays due. */
static int write_file(struct train_timeline *l, const char *path, bool last)
{
	if (!l->late || (!last && !is_file(path)))
		return TRAIN_OK;
	if (!write_due(l, path)) {
		l->begun = true;
		free(l->late);
		l->late = NULL;
		l->bytes = 0;
		return TRAIN_OK;
	}
	if (last)
		return train_fail(TRAIN_FAILED, "--timeline %s: cannot be written: %m%s", path,
				  l->begun ? "; it has the steps until an earlier evaluation" : "");
	if (!l->error)
		fprintf(stderr,
			"tutti-train: --timeline %s: cannot be written: %m; the training goes on\n",
			path);
	l->error = errno;
	return TRAIN_OK;
}

/* Appends the spans of all ranks, as far as they arrive, to the text that is due. Without memory for the text rank 0
 * first receives all spans, then reports the error. */
static int gather(struct train_rank *t, const struct timeline_head *heads, int ranks)
{
	struct train_timeline *l = &t->timeline;
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes),
	     *to = memory ? memory : fopen("/dev/null", "we");
	bool lost = !memory;
	int rc = TRAIN_OK;

	if (!to)
		return train_fail(TRAIN_FAILED, "--timeline %s: %m", t->config->timeline);
	if (l->late)
		fwrite(l->late, 1, l->bytes, to);
	for (int r = 0; r < ranks && !rc; r++)
		rc = write_rank(t, to, r, &heads[r]);
	lost |= ferror(to) | fclose(to);
	if (!rc && lost)
		rc = train_fail(TRAIN_FAILED, "--timeline %s: no memory for its text",
				t->config->timeline);
	if (lost) {
		free(text);
		return rc;
	}
	free(l->late);
	l->late = text;
	l->bytes = bytes;
	return rc;
}

void train_timeline_begin(struct train_rank *t)
{
	struct timeline_head own;

	make_head(t, &own);
	if (!gather(t, &own, 1))
		write_file(&t->timeline, t->config->timeline, false);
}

int train_timeline_write(struct train_rank *t, bool last)
{
	tuttiComm_t comm = comm_of(t);
	struct timeline_head own, *heads;
	int ranks, written = TRAIN_OK, rc = train_check(tuttiCommCount(comm, &ranks), comm);

	if (rc)
		return rc;
	heads = calloc((size_t)ranks, sizeof(*heads));
	if (!heads)
		return train_fail(TRAIN_FAILED, "no memory for a timeline");
	make_head(t, &own);
	rc = train_check(tuttiAllGather(&own, heads, sizeof(own), tuttiUint8, comm, NULL), comm);
	if (!rc && train_is_lead(t)) {
		rc = gather(t, heads, ranks);
		written = write_file(&t->timeline, t->config->timeline, last && !rc);
	} else if (!rc && own.spans)
		rc = train_check(tuttiSend(t->timeline.span, own.spans * sizeof(struct train_span),
					   tuttiUint8, 0, comm, NULL),
				 comm);
	free(heads);
	if (rc)
		return rc;
	t->timeline.n = 0;
	return written;
}
