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

enum { PIECE = 512 }; /* spans of a message */

/* Rank 0's file of --timeline. A grown training goes on with it. */
static struct {
	uint64_t run;  /* tells arrows from those of a training that was resumed */
	bool begun;    /* the file is this training's */
	bool lost;     /* spans are missing, for want of memory */
	bool said;     /* a failure has been reported */
	char *pending; /* text that is not in the file; NULL: none */
	size_t bytes;  /* of pending */
} file;

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

static bool is_send(const struct train_span *span)
{
	return train_step_is_send((enum train_step_kind)(span->activity - TRAIN_TIME_STEPS));
}

static void write_span(FILE *to, const char *name, int rank, uint64_t row, double begin_us,
		       double us, uint64_t step)
{
	fprintf(to,
		",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu64
		",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64,
		name, rank, row, begin_us, us, step);
}

/* An arrow begins where its sender's span begins. Perfetto lets it lead to the later of two spans, and a receive begins
 * before its message is sent, so it ends at a span of its own, the last microsecond of the receive. */
static void write_arrow(FILE *to, int rank, const struct train_span *span, double begin_us,
			double us)
{
	double last_us = us < 1.0 ? us : 1.0,
	       at_us = is_send(span) ? begin_us : begin_us + us - last_us;

	if (!is_send(span)) {
		write_span(to, "arrived", rank, span->row, at_us, last_us, span->step);
		fprintf(to, "}}");
	}
	fprintf(to,
		",\n{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":\"0x%" PRIx64
		"\",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":%.3f}",
		is_send(span) ? "s" : "f\",\"bp\":\"e", file.run + span->message, rank, span->row,
		at_us);
}

static void write_spans(FILE *to, int rank, const struct train_span *span, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double begin_us = (double)span[i].begin_ns / 1e3;
		double us = (double)(span[i].end_ns - span[i].begin_ns) / 1e3;

		write_span(to, name_of(&span[i]), rank, span[i].row, begin_us, us, span[i].step);
		if (span[i].activity >= TRAIN_TIME_STEPS)
			fprintf(to, ",\"chunk\":%" PRIu64 ",\"micro\":%" PRIu64, span[i].chunk,
				span[i].micro);
		fprintf(to, "}}");
		if (span[i].message)
			write_arrow(to, rank, &span[i], begin_us, us);
	}
}

/* The ranks of the file: all of a mesh, else the workers. */
static tuttiComm_t comm_of(const struct train_rank *t)
{
	return t->config->mesh ? t->world : t->comm;
}

/* A rank's message ahead of its spans. */
struct timeline_head {
	uint64_t spans;
	int32_t rank;   /* number in the file: deaths do not change it */
	int32_t rows;   /* bit 1 << row: the row has spans */
	int32_t keep;   /* of rank 0: the ranks keep their spans until the last call */
	char name[120]; /* no quotes: a part of JSON */
};

static void make_head(const struct train_rank *t, struct timeline_head *head)
{
	const struct train_timeline *l = &t->timeline;
	char host[64] = "";

	*head = (struct timeline_head){ .spans = l->n, .rank = t->world_rank };
	for (size_t i = 0; i < l->n; i++)
		head->rows |= 1 << l->span[i].row % TRAIN_ROWS;
	gethostname(host, sizeof(host) - 1);
	if (t->config->mesh)
		snprintf(head->name, sizeof(head->name),
			 "rank %d: replica %d, stage %d, tensor rank %d on %s", t->world_rank,
			 t->rank, t->mesh.stage, t->mesh.tensor_rank, host);
	else
		snprintf(head->name, sizeof(head->name), "rank %d on %s", t->world_rank, host);
}

/* Names of the rank and of its rows with spans. */
static void write_names(FILE *to, const struct timeline_head *head)
{
	static const char *const rows[TRAIN_ROWS] = {
		"computation and waits", "sums of buckets",    "inputs received",
		"outputs sent",          "gradients received", "gradients sent",
	};

	fprintf(to,
		",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s\"}}",
		head->rank, head->name);
	fprintf(to,
		",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
		head->rank, head->rank);
	for (int row = 0; row < TRAIN_ROWS; row++)
		if (head->rows & 1 << row)
			fprintf(to,
				",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
				"\"args\":{\"name\":\"%s\"}}",
				head->rank, row, rows[row]);
}

static int send_spans(const struct train_timeline *l, tuttiComm_t comm)
{
	int rc = TRAIN_OK;

	for (size_t i = 0, n; i < l->n && !rc; i += n) {
		n = l->n - i < PIECE ? l->n - i : PIECE;
		rc = train_check(tuttiSend(l->span + i, n * sizeof(*l->span), tuttiUint8, 0, comm,
					   NULL),
				 comm);
	}
	return rc;
}

/* Rank 0: receives the spans of rank `from` of the communicator, and writes them. */
static int receive_spans(FILE *to, int from, const struct timeline_head *head, tuttiComm_t comm)
{
	struct train_span piece[PIECE];
	int rc = TRAIN_OK;

	for (uint64_t i = 0, n; i < head->spans && !rc; i += n) {
		n = head->spans - i < PIECE ? head->spans - i : PIECE;
		rc = train_check(tuttiRecv(piece, n * sizeof(*piece), tuttiUint8, from, comm, NULL),
				 comm);
		if (!rc)
			write_spans(to, head->rank, piece, n);
	}
	return rc;
}

/* ---- the file ------------------------------------------------------------------------------------ */

static void drop_pending(void)
{
	free(file.pending);
	file.pending = NULL;
	file.bytes = 0;
}

/* A pipe, a terminal or a device is written at the end, in one piece. */
static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) || S_ISREG(st.st_mode);
}

static const char *reason_of(int error)
{
	return error == EINVAL ? "it does not end as a timeline; move it away" : strerror(error);
}

/* The training goes on, and a later call writes the text. */
static void complain_once(const char *path, int error)
{
	if (!file.said)
		fprintf(stderr,
			"tutti-train: --timeline %s: cannot be written: %s; the training goes on\n",
			path, reason_of(error));
	file.said = true;
}

/* Writes a file with the pending text. Returns 0 | -1 with errno. */
static int write_whole(const char *path)
{
	size_t head = strlen(head_text), room = head + file.bytes + strlen(tail_text) + 1;
	char *whole = malloc(room);
	int rc;

	if (!whole)
		return -1;
	memcpy(whole, head_text, head);
	memcpy(whole + head, file.pending, file.bytes);
	whole[head] = ' '; /* no comma in front of the first event */
	strcpy(whole + head + file.bytes, tail_text);
	rc = tool_file_write(path, whole, room - 1);
	free(whole);
	return rc;
}

/* Returns 0 | -1 with errno. */
static int write_pending(const char *path)
{
	if (!file.begun || !is_file(path))
		return write_whole(path);
	if (!tool_file_insert(path, file.pending, file.bytes, tail_text))
		return 0;
	return errno == ENOENT ? write_whole(path) : -1;
}

/* Rank 0: writes the pending text; on failure it stays pending. end: of the training. */
static int write_file(const char *path, bool end)
{
	if (file.pending && (end || is_file(path))) {
		if (!write_pending(path)) {
			file.begun = true;
			drop_pending();
		} else if (end) {
			return train_fail(TRAIN_FAILED, "--timeline %s: cannot be written: %s",
					  path, reason_of(errno));
		} else {
			complain_once(path, errno);
		}
	}
	return end && file.lost ? train_fail(TRAIN_FAILED,
					     "--timeline %s: lacks steps, for want of memory", path)
				: TRAIN_OK;
}

static bool append(const char *text, size_t bytes)
{
	char *more = realloc(file.pending, file.bytes + bytes);

	if (!more)
		return false;
	memcpy(more + file.bytes, text, bytes);
	file.pending = more;
	file.bytes += bytes;
	return true;
}

/* Appends the spans of all ranks, as far as they arrive, to the pending text. Without memory for the text rank 0
 * receives the spans all the same, and the last call reports the loss. */
static int gather(struct train_rank *t, const struct timeline_head *heads, int ranks)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes),
	     *to = memory ? memory : fopen("/dev/null", "we");
	bool lost = !memory;
	int rc = TRAIN_OK;

	if (!to)
		return train_fail(TRAIN_FAILED, "--timeline %s: %m", t->config->timeline);
	write_names(to, &heads[0]);
	write_spans(to, heads[0].rank, t->timeline.span, t->timeline.n);
	t->timeline.n = 0;
	for (int r = 1; r < ranks && !rc; r++) {
		write_names(to, &heads[r]);
		rc = receive_spans(to, r, &heads[r], comm_of(t));
	}
	lost |= ferror(to) | fclose(to);
	if (lost || !append(text, bytes)) {
		file.lost = true;
		complain_once(t->config->timeline, ENOMEM);
	}
	free(text);
	return rc;
}

void train_timeline_begin(struct train_rank *t)
{
	const char *path = t->config->timeline;
	struct timeline_head own;

	if (!t->first_step) {
		drop_pending();
		file.lost = file.said = false;
	}
	file.begun = t->first_step || !train_is_lead(t);
	file.run = train_time_ns() / 1000000 << 32;
	if (!train_is_lead(t) || !is_file(path))
		return;
	make_head(t, &own);
	if (!gather(t, &own, 1))
		write_file(path, false);
}

int train_timeline_write(struct train_rank *t, bool last)
{
	const char *path = t->config->timeline;
	tuttiComm_t comm = comm_of(t);
	struct timeline_head own, *heads;
	int ranks, written = TRAIN_OK, rc = train_check(tuttiCommCount(comm, &ranks), comm);
	bool keep;

	if (rc)
		return rc;
	heads = calloc((size_t)ranks, sizeof(*heads));
	if (!heads)
		return train_fail(TRAIN_FAILED, "no memory for a timeline");
	make_head(t, &own);
	own.keep = !last && !is_file(path);
	rc = train_check(tuttiAllGather(&own, heads, sizeof(own), tuttiUint8, comm, NULL), comm);
	keep = heads[0].keep;
	if (!rc && !keep && train_is_lead(t)) {
		rc = gather(t, heads, ranks);
		written = write_file(path, last && !t->grown && !rc);
	} else if (!rc && !keep) {
		rc = send_spans(&t->timeline, comm);
	}
	free(heads);
	if (rc || keep)
		return rc;
	t->timeline.n = 0;
	return written;
}
