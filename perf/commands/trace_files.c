/*
 * trace_files.c - reads the files of the flight recorder, also while their processes write
 *
 * Called by cmd_trace.c and cmd_top.c. A file is mapped, and each record is copied between two reads of its number,
 * so that a record which changes meanwhile is left out. All fields are checked: a file may be
 * damaged.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "algorithms/algorithms.h"
#include "comm/comm.h"
#include "perf/commands/trace_files.h"

/* Times of a damaged file that are farther away are refused, so that no difference of two times overflows. */
#define REALTIME_MOST_NS (INT64_C(1) << 62) /* since 1970 */
#define APART_MOST_NS (INT64_C(1) << 58)    /* of a call, from the start of the file: nine years */

/* ---- a file ---------------------------------------------------------------------------------- */

static const void *map_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
	struct stat st;
	void *p = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == TT_TRACE_BYTES)
		p = mmap(NULL, TT_TRACE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static bool copy_head(const struct tt_trace_head *from, struct tt_trace_head *ret_head)
{
	unsigned latest = atomic_load_explicit(&from->latest, memory_order_acquire) & 1;
	int32_t state = from->state;

	atomic_thread_fence(memory_order_acquire); /* the sentence was there before the state */
	*ret_head = *from;
	ret_head->state = state;
	atomic_init(&ret_head->latest, latest);
	ret_head->host[sizeof(ret_head->host) - 1] = '\0';
	ret_head->name[sizeof(ret_head->name) - 1] = '\0';
	ret_head->error[sizeof(ret_head->error) - 1] = '\0';
	for (int i = 0; i < TT_TRACE_WAYS; i++)
		ret_head->way[i][sizeof(ret_head->way[i]) - 1] = '\0';
	return from->magic == TT_TRACE_MAGIC &&
	       from->record_bytes == sizeof(struct tt_trace_record) &&
	       from->nrecords == TT_TRACE_RECORDS && ret_head->nranks > 0 &&
	       ret_head->nranks <= TT_RANKS_MOST && ret_head->rank >= 0 &&
	       ret_head->rank < ret_head->nranks && ret_head->realtime_ns >= 0 &&
	       ret_head->realtime_ns < REALTIME_MOST_NS &&
	       ret_head->later[latest].ticks > from->made.ticks &&
	       ret_head->later[latest].ns > from->made.ns;
}

/* false: too far away */
static bool time_of(const struct tt_trace_head *h, uint64_t ticks, int64_t *ret_ns)
{
	const struct tt_trace_clock *later = &h->later[h->latest];
	double rate = (double)(later->ns - h->made.ns) / (double)(later->ticks - h->made.ticks);
	double apart = (double)(int64_t)(ticks - h->made.ticks) * rate;

	if (!(apart > -(double)APART_MOST_NS && apart < (double)APART_MOST_NS))
		return false;
	*ret_ns = h->realtime_ns + (int64_t)apart;
	return true;
}

/* false: empty, changing, or damaged */
static bool copy_record(const struct tt_trace_record *from, const struct trace_rank *rank,
			struct trace_call *ret_call)
{
	uint64_t number = atomic_load_explicit(&from->number, memory_order_acquire);
	uint64_t start = from->start, end = from->end;
	const struct tt_trace_head *h = &rank->head;
	int awaited = from->awaited;

	*ret_call = (struct trace_call){
		.number = number,
		.seq = from->seq,
		.bytes = from->bytes,
		.call = from->call,
		.awaited = awaited < h->nranks ? awaited : -1,
		.failed = from->failed,
		.way = from->way % TT_TRACE_WAYS,
	};
	atomic_thread_fence(memory_order_acquire);
	return number && number == atomic_load_explicit(&from->number, memory_order_relaxed) &&
	       time_of(h, start, &ret_call->start) && (!end || time_of(h, end, &ret_call->end));
}

static int by_number(const void *a, const void *b)
{
	const struct trace_call *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* false: no file of the flight recorder, or no memory */
static bool read_file(const char *path, struct trace_rank *ret_rank)
{
	const struct tt_trace_head *head = map_file(path);
	const struct tt_trace_record *records;
	struct trace_rank *r = ret_rank;

	*r = (struct trace_rank){ 0 };
	if (!head)
		return false;
	records = (const void *)((const char *)head + TT_TRACE_HEAD);
	r->calls = copy_head(head, &r->head) ? calloc(TT_TRACE_RECORDS, sizeof(*r->calls)) : NULL;
	for (size_t i = 0; r->calls && i < TT_TRACE_RECORDS; i++)
		r->ncalls += copy_record(&records[i], r, &r->calls[r->ncalls]);
	munmap((void *)(uintptr_t)head, TT_TRACE_BYTES);
	if (!r->calls)
		return false;
	qsort(r->calls, r->ncalls, sizeof(*r->calls), by_number);
	r->path = strdup(path);
	return true;
}

const struct trace_call *trace_find(const struct trace_rank *rank, uint64_t seq)
{
	size_t low = 0, high = rank->ncalls;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (rank->calls[middle].seq < seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low < rank->ncalls && rank->calls[low].seq == seq ? &rank->calls[low] : NULL;
}

/* ---- a folder -------------------------------------------------------------------------------- */

static int64_t first_start(const struct trace_rank *r)
{
	return r->ncalls ? r->calls[0].start : r->head.realtime_ns;
}

static int by_comm(const void *a, const void *b)
{
	const struct trace_rank *x = a, *y = b;

	if (x->head.comm != y->head.comm)
		return x->head.comm < y->head.comm ? -1 : 1;
	return x->head.rank - y->head.rank;
}

static int by_time(const void *a, const void *b)
{
	const struct trace_comm *x = a, *y = b;
	int64_t s = first_start(x->ranks), t = first_start(y->ranks);

	return s < t ? -1 : s > t;
}

static bool is_name(const char *name)
{
	size_t bytes = strlen(name);

	return bytes > 6 && !strcmp(name + bytes - 6, ".tutti");
}

static bool read_files(const char *tool, DIR *folder, const char *dir, struct trace *t)
{
	struct dirent *entry;
	char path[4400];

	while ((entry = readdir(folder))) {
		struct trace_rank *more;

		if (!is_name(entry->d_name))
			continue;
		more = realloc(t->ranks, ((size_t)t->nranks + 1) * sizeof(*more));
		if (!more)
			return false;
		t->ranks = more;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (read_file(path, &t->ranks[t->nranks]))
			t->nranks++;
		else
			fprintf(stderr,
				"%s: %s: not a whole file of this version's flight recorder; skipped\n",
				tool, path);
	}
	return true;
}

static bool find_comms(struct trace *t)
{
	t->comms = calloc((size_t)t->nranks + 1, sizeof(*t->comms));
	if (!t->comms)
		return false;
	qsort(t->ranks, (size_t)t->nranks, sizeof(*t->ranks), by_comm);
	for (int i = 0; i < t->nranks; i++) {
		if (!i || t->ranks[i].head.comm != t->ranks[i - 1].head.comm)
			t->comms[t->ncomms++].ranks = &t->ranks[i];
		t->comms[t->ncomms - 1].nranks++;
	}
	qsort(t->comms, (size_t)t->ncomms, sizeof(*t->comms), by_time);
	return true;
}

/* Ranks of one host and pid are of one process, whose number is that of its first rank. */
static void find_processes(struct trace *t)
{
	t->first = INT64_MAX;
	for (int i = 0; i < t->nranks; i++) {
		struct trace_rank *r = &t->ranks[i];
		int k = 0;

		while (t->ranks[k].head.pid != r->head.pid ||
		       strcmp(t->ranks[k].head.host, r->head.host) != 0)
			k++;
		r->process = k + 1;
		if (r->ncalls && r->calls[0].start < t->first)
			t->first = r->calls[0].start;
	}
}

int trace_read(const char *tool, const char *dir, const char *none, struct trace *ret_trace)
{
	DIR *folder = opendir(dir);
	struct timespec now;
	bool good;

	*ret_trace = (struct trace){ 0 };
	if (!folder) {
		fprintf(stderr, "%s: %s: %s\n", tool, dir, strerror(errno));
		return 2;
	}
	good = read_files(tool, folder, dir, ret_trace) && find_comms(ret_trace);
	closedir(folder);
	find_processes(ret_trace);
	clock_gettime(CLOCK_REALTIME, &now);
	ret_trace->now = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	if (good && ret_trace->nranks)
		return 0;
	if (good)
		fprintf(stderr, "%s: %s: %s\n", tool, dir, none);
	else
		fprintf(stderr, "%s: no memory for the files of %s\n", tool, dir);
	trace_free(ret_trace);
	return 1;
}

void trace_free(struct trace *t)
{
	for (int i = 0; i < t->nranks; i++) {
		free(t->ranks[i].path);
		free(t->ranks[i].calls);
	}
	free(t->ranks);
	free(t->comms);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *algorithm_name(unsigned algorithm)
{
	for (unsigned i = 0; tt_algorithms[i]; i++)
		if (i == algorithm)
			return tt_algorithms[i]->name;
	return NULL;
}

void trace_call_text(const struct trace_call *call, char *text, size_t bytes)
{
	tt_call_name_algorithms(algorithm_name);
	tt_call_text(&call->call, call->seq, text, bytes);
}

/* ---- states ---------------------------------------------------------------------------------- */

const struct trace_call *trace_open_call(const struct trace_comm *c)
{
	const struct trace_call *open = NULL;

	for (int i = 0; i < c->nranks; i++) {
		const struct trace_call *last = trace_last(&c->ranks[i]);

		if (last && !last->end && c->ranks[i].head.state != TT_TRACE_ENDED &&
		    (!open || last->seq > open->seq))
			open = last;
	}
	return open;
}

const struct tt_trace_head *trace_head(const struct trace_comm *c)
{
	const struct tt_trace_head *open = NULL;

	for (int i = 0; i < c->nranks; i++) {
		if (c->ranks[i].head.state == TT_TRACE_FAILED)
			return &c->ranks[i].head;
		if (!open && c->ranks[i].head.state == TT_TRACE_OPEN)
			open = &c->ranks[i].head;
	}
	return open ? open : &c->ranks[0].head;
}

int trace_awaited(const struct trace_comm *c)
{
	for (int i = 0; i < c->nranks; i++) {
		const struct trace_call *last = trace_last(&c->ranks[i]);

		if (last && !last->end && last->awaited >= 0)
			return last->awaited;
	}
	return -1;
}

const char *trace_process_text(const struct trace_rank *rank)
{
	char path[64], text[256] = "", host[sizeof(rank->head.host)] = "";
	const char *end;

	gethostname(host, sizeof(host) - 1);
	if (strcmp(host, rank->head.host) != 0)
		return "";
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)rank->head.pid);
	tt_file_text(path, text, sizeof(text));
	end = strrchr(text, ')');
	if (!end)
		return ", gone";
	return end[1] == ' ' && (end[2] == 'T' || end[2] == 't') ? ", stopped"
	       : end[1] == ' ' && end[2] == 'Z'                  ? ", gone"
								 : "";
}
