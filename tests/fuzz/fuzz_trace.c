/*
 * fuzz_trace.c - arbitrary bytes as files of the flight recorder, for all outputs of `tutti trace` and `tutti top`
 *
 * A process that dies while it writes, or a full disk, damages a file. The first byte has the number of files and the
 * fields of their heads that are right; the rest is records and heads. A damaged file is refused, or read in bounds.
 */
#include "perf/commands/trace_files.c" /* static functions; libFuzzer sees its branches */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define FILES_MOST 3
#define RECORDS 6 /* of a file; the others are empty */

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static void take(struct fuzz_input *in, void *to, size_t bytes)
{
	size_t have = in->left < bytes ? in->left : bytes;

	memset(to, 0, bytes);
	memcpy(to, in->at, have);
	in->at += have;
	in->left -= have;
}

/* What a reader refuses at once is right, unless `raw`. */
static void repair(struct tt_trace_head *h, int file, bool raw)
{
	if (raw)
		return;
	h->magic = TT_TRACE_MAGIC;
	h->record_bytes = sizeof(struct tt_trace_record);
	h->nrecords = TT_TRACE_RECORDS;
	h->comm &= 1;
	h->nranks = h->nranks % 5 + 5;
	h->rank = file;
	h->pid = 0;
	h->made = (struct tt_trace_clock){ .ticks = 1000, .ns = 1000 };
	for (int i = 0; i < 2; i++) {
		h->later[i].ticks = h->made.ticks + 1 + h->later[i].ticks % 100000;
		h->later[i].ns = h->made.ns + 1 + h->later[i].ns % 100000;
	}
}

static void write_file(struct fuzz_input *in, int fd, int file, bool raw)
{
	static char start[TT_TRACE_HEAD + RECORDS * sizeof(struct tt_trace_record)];
	struct tt_trace_head head;

	memset(start, 0, sizeof(start));
	take(in, start + TT_TRACE_HEAD, sizeof(start) - TT_TRACE_HEAD);
	take(in, &head, sizeof(head));
	repair(&head, file, raw);
	memcpy(start, &head, sizeof(head));
	if (pwrite(fd, start, sizeof(start), 0) != (ssize_t)sizeof(start))
		exit(1);
}

static int file_of(int file)
{
	static int fds[FILES_MOST] = { -1, -1, -1 };

	if (fds[file] < 0)
		fds[file] = memfd_create("fuzz_trace", MFD_CLOEXEC);
	if (fds[file] < 0 || ftruncate(fds[file], TT_TRACE_BYTES))
		exit(1);
	return fds[file];
}

static void print(const struct trace *t)
{
	static void (*const outputs[])(const struct trace *, FILE *) = {
		trace_report,     trace_top,      trace_dump,
		trace_merge_json, trace_top_json, trace_dump_json
	};

	for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
		char *text = NULL;
		size_t bytes;
		FILE *to = open_memstream(&text, &bytes);

		if (!to)
			exit(1);
		outputs[i](t, to);
		fclose(to);
		free(text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	struct trace t = { .now = 1000000 };
	uint8_t kind;
	int files;

	take(&in, &kind, 1);
	files = 1 + kind % FILES_MOST;
	t.ranks = calloc(FILES_MOST, sizeof(*t.ranks));
	if (!t.ranks)
		exit(1);
	for (int i = 0; i < files; i++) {
		char path[64];

		write_file(&in, file_of(i), i, kind & 128);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", file_of(i));
		t.nranks += read_file(path, &t.ranks[t.nranks]);
	}
	if (!find_comms(&t))
		exit(1);
	find_processes(&t);
	print(&t);
	trace_free(&t);
	return 0;
}
