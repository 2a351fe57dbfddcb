/*
 * call_metrics.c - files of counters for Prometheus: their text, and the thread that writes them
 *
 * Called by trace.c, whose recorder counts the calls. A file is written beside its place and renamed
 * to it, so that a reader sees whole files.
 */
#include "comm/call_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/trace.h"

#define PERIOD_S 2
#define FIRST_BOUND_NS 1000

static struct {
	pthread_mutex_t lock; /* guards the others */
	pthread_cond_t changed;
	struct tt_metrics *all;
	pthread_t thread;
	uintptr_t generation; /* number of the thread; threads with another number end */
	bool running, soon;   /* soon: write without waiting for the period */
} writer;

/* ---- text ------------------------------------------------------------------------------------ */

static void write_value(const char *text, FILE *to)
{
	for (; *text; text++) {
		if (*text == '\\' || *text == '"')
			fputc('\\', to);
		fputc(*text >= ' ' && *text <= '~' ? *text : '?', to);
	}
}

static void head(const char *name, const char *type, const char *help, FILE *to)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A sample's name and the labels that every sample has, so that no two files have the same one. */
static void sample(const struct tt_metrics *m, const char *name, FILE *to)
{
	fprintf(to, "%s{comm=\"%016" PRIx64 "\",rank=\"%d\"", name, m->facts.comm, m->facts.rank);
}

static void gauge(const struct tt_metrics *m, const char *name, const char *help, double value,
		  FILE *to)
{
	head(name, "gauge", help, to);
	sample(m, name, to);
	fprintf(to, "} %.9g\n", value);
}

static void write_info(const struct tt_metrics *m, FILE *to)
{
	head("tutti_communicator_info", "gauge",
	     "Communicator of this rank: name and version of the library.", to);
	sample(m, "tutti_communicator_info", to);
	fputs(",name=\"", to);
	write_value(m->facts.name, to);
	fprintf(to, "\",version=\"%d.%d.%d\"} 1\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
}

static const char *row_name(int row)
{
	return row == TT_COLLECTIVES ? "barrier" : tt_collective_name((enum tt_collective)row);
}

static uint64_t load(const atomic_uint_fast64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

static uint64_t calls_of(const struct tt_metrics_row *row)
{
	uint64_t calls = 0;

	for (int i = 0; i <= TT_METRICS_BOUNDS; i++)
		calls += load(&row->calls[i]);
	return calls;
}

/* Seconds since the start of the call that runs at the time `now` in ticks; 0: none runs */
static double running_s(const struct tt_metrics *m, uint64_t now)
{
	uint64_t started = load(&m->started);

	return started && now > started ? (double)(now - started) * m->facts.tick_ns * 1e-9 : 0;
}

void tt_metrics_tally(const struct tt_metrics *m, uint64_t now, struct tt_tally *ret_tally,
		      uint64_t *ret_running_ns)
{
	for (int i = 0; i < TT_METRICS_ROWS; i++) {
		ret_tally->calls[i] = calls_of(&m->row[i]);
		ret_tally->bytes[i] = load(&m->row[i].bytes);
		ret_tally->ns[i] = (uint64_t)((double)load(&m->row[i].ticks) * m->facts.tick_ns);
	}
	*ret_running_ns = (uint64_t)(running_s(m, now) * 1e9);
}

static void write_bytes(const struct tt_metrics *m, FILE *to)
{
	const char *name = "tutti_call_bytes_total";

	head(name, "counter",
	     "Bytes of count elements, of the collectives that have ended on this rank.", to);
	for (int i = 0; i < TT_METRICS_ROWS; i++) {
		if (!calls_of(&m->row[i]))
			continue;
		sample(m, name, to);
		fprintf(to, ",collective=\"%s\"} %" PRIu64 "\n", row_name(i),
			load(&m->row[i].bytes));
	}
}

static void write_histogram(const struct tt_metrics *m, int row, FILE *to)
{
	uint64_t sum = 0;
	double bound = FIRST_BOUND_NS * 1e-9;

	for (int i = 0; i <= TT_METRICS_BOUNDS; i++, bound *= 10) {
		sum += load(&m->row[row].calls[i]);
		sample(m, "tutti_call_duration_seconds_bucket", to);
		fprintf(to, ",collective=\"%s\",le=\"", row_name(row));
		fprintf(to, i < TT_METRICS_BOUNDS ? "%.6g" : "+Inf", bound);
		fprintf(to, "\"} %" PRIu64 "\n", sum);
	}
	sample(m, "tutti_call_duration_seconds_sum", to);
	fprintf(to, ",collective=\"%s\"} %.9f\n", row_name(row),
		(double)load(&m->row[row].ticks) * m->facts.tick_ns * 1e-9);
	sample(m, "tutti_call_duration_seconds_count", to);
	fprintf(to, ",collective=\"%s\"} %" PRIu64 "\n", row_name(row), sum);
}

void tt_metrics_text(const struct tt_metrics *m, uint64_t now, FILE *to)
{
	write_info(m, to);
	gauge(m, "tutti_communicator_ranks", "Ranks of the communicator.", m->facts.nranks, to);
	gauge(m, "tutti_communicator_failed", "1: the communicator has failed.",
	      atomic_load(&m->failed), to);
	gauge(m, "tutti_call_age_seconds",
	      "Time since the start of the collective that this rank is in; 0: it is in none.",
	      running_s(m, now), to);
	write_bytes(m, to);
	head("tutti_call_duration_seconds", "histogram",
	     "Times of the collectives that have ended on this rank, waits for other ranks included.",
	     to);
	for (int i = 0; i < TT_METRICS_ROWS; i++)
		if (calls_of(&m->row[i]))
			write_histogram(m, i, to);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Readable for all: node_exporter runs as a user of its own. */
static FILE *fresh(const char *path)
{
	FILE *f;
	int fd;

	if (unlink(path) && errno != ENOENT)
		return NULL;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* Locked. false: errno */
static bool write_file(struct tt_metrics *m)
{
	FILE *f = fresh(m->temporary);
	bool wrote;
	int error;

	if (!f)
		return false;
	tt_metrics_text(m, tt_trace_ticks(), f);
	wrote = !ferror(f);
	wrote = !fclose(f) && wrote;
	if (wrote && !rename(m->temporary, m->path))
		return true;
	error = errno;
	unlink(m->temporary);
	errno = error;
	return false;
}

/* Locked. A job goes on without its metrics. */
static void update(struct tt_metrics *m)
{
	if (write_file(m)) {
		m->warned = false;
	} else if (!m->warned) {
		m->warned = true;
		tt_log(TT_LOG_WARN, "rank %d: TUTTI_METRICS: %s: %m; it is tried again every %d s",
		       m->facts.rank, m->path, PERIOD_S);
	}
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A forked child has neither the communicators nor the thread of its parent. */
static void reset(void)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&writer.lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&writer.changed, &attributes);
	pthread_condattr_destroy(&attributes);
	writer.all = NULL;
	writer.running = writer.soon = false;
}

__attribute__((constructor)) static void watch_forks(void)
{
	reset();
	pthread_atfork(NULL, NULL, reset);
}

static void *write_files(void *generation)
{
	struct timespec due;

	pthread_mutex_lock(&writer.lock);
	while (writer.generation == (uintptr_t)generation) {
		clock_gettime(CLOCK_MONOTONIC, &due);
		due.tv_sec += PERIOD_S;
		while (writer.generation == (uintptr_t)generation && !writer.soon &&
		       pthread_cond_timedwait(&writer.changed, &writer.lock, &due) != ETIMEDOUT)
			;
		writer.soon = false;
		for (struct tt_metrics *m = writer.all; m; m = m->next)
			update(m);
	}
	pthread_mutex_unlock(&writer.lock);
	return NULL;
}

/* Locked. The thread ends with the last communicator. */
static int start_thread(void)
{
	int error;

	if (writer.running)
		return 0;
	error = tt_thread_start(&writer.thread, "tutti-metrics", write_files,
				(void *)writer.generation);
	writer.running = !error;
	return error;
}

/* ---- a communicator -------------------------------------------------------------------------- */

static void free_metrics(struct tt_metrics *m)
{
	free(m->path);
	free(m->temporary);
	free(m);
}

static struct tt_metrics *make(const char *dir, const struct tt_metrics_facts *facts)
{
	struct tt_metrics *m = calloc(1, sizeof(*m));
	double bound = FIRST_BOUND_NS / facts->tick_ns;

	if (!m)
		return NULL;
	m->facts = *facts;
	for (int i = 0; i < TT_METRICS_BOUNDS; i++, bound *= 10)
		m->bound[i] = (uint64_t)bound;
	if (!*dir)
		return m;
	if (asprintf(&m->path, "%s/tutti-%016" PRIx64 ".%d.prom", dir, facts->comm, facts->rank) <
	    0)
		m->path = NULL;
	if (!m->path || asprintf(&m->temporary, "%s.new", m->path) < 0)
		m->temporary = NULL;
	if (m->temporary)
		return m;
	free_metrics(m);
	return NULL;
}

/* Locked. Write the first file, and give the later ones to the thread. */
static int begin_writing(struct tt_metrics *m, const char *dir)
{
	if (!write_file(m))
		return tt_fail_folder(m->facts.rank, "TUTTI_METRICS", dir);
	if ((errno = start_thread())) {
		tt_fail(TT_SYSTEM, "rank %d: TUTTI_METRICS: no thread: %m", m->facts.rank);
		unlink(m->path);
		return TT_SYSTEM;
	}
	m->next = writer.all;
	writer.all = m;
	return 0;
}

int tt_metrics_open(const char *dir, const struct tt_metrics_facts *facts,
		    struct tt_metrics **ret_metrics)
{
	struct tt_metrics *m = make(dir, facts);
	int rc = 0;

	if (!m)
		return tt_fail(TT_SYSTEM, "rank %d: no memory for metrics", facts->rank);
	if (m->path) {
		pthread_mutex_lock(&writer.lock);
		rc = begin_writing(m, dir);
		pthread_mutex_unlock(&writer.lock);
	}
	if (rc)
		free_metrics(m);
	else
		*ret_metrics = m;
	return rc;
}

void tt_metrics_failed(struct tt_metrics *m)
{
	atomic_store(&m->failed, true);
	pthread_mutex_lock(&writer.lock);
	writer.soon = true;
	pthread_cond_signal(&writer.changed);
	pthread_mutex_unlock(&writer.lock);
}

void tt_metrics_close(struct tt_metrics *m)
{
	struct tt_metrics **entry = &writer.all;
	bool last;
	pthread_t thread;

	if (!m)
		return;
	pthread_mutex_lock(&writer.lock);
	while (*entry && *entry != m)
		entry = &(*entry)->next;
	if (*entry) {
		*entry = m->next;
		if (atomic_load(&m->failed))
			update(m);
		else
			unlink(m->path);
	}
	last = !writer.all && writer.running;
	thread = writer.thread;
	if (last) {
		writer.generation++;
		writer.running = false;
	}
	pthread_cond_broadcast(&writer.changed);
	pthread_mutex_unlock(&writer.lock);
	if (last)
		pthread_join(thread, NULL);
	free_metrics(m);
}
