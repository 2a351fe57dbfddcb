/* metrics.c - rank 0's output during the training (metrics.h) */
#include "trainer/metrics.h"

#include "tools/plural.h"
#include "trainer/hash_file.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tensorboard.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOW_EVERY_MS = 200 };

static const char *const options[TRAIN_FILES] = { "metrics", "jsonl", "hashes", "tensorboard" };

static const char *path_of(const struct train_config *c, int file)
{
	return file == TRAIN_FILE_CSV      ? c->metrics
	       : file == TRAIN_FILE_JSONL  ? c->jsonl
	       : file == TRAIN_FILE_HASHES ? c->hashes
					   : c->tensorboard;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void print_mesh(const struct train_rank *t)
{
	const struct train_mesh *m = &t->mesh;
	const struct train_placement *p = &m->placement;

	printf("mesh      data=%d,tensor=%d,pipeline=%d, schedule %s\n", m->data, m->tensor,
	       m->stages, t->config->schedule);
	if (p->hosts > 1)
		printf("placement %d of %d tensor groups and %d of %d pairs of stages are within one of %d "
		       "hosts%s\n",
		       p->local_groups, p->groups, p->local_pairs, p->pairs, p->hosts,
		       p->renumbered ? "; ranks are numbered by host" : "");
}

static void print_setup(const struct train_rank *t)
{
	const struct train_config *c = t->config;
	size_t steps = train_sampler_steps(&t->sampler);
	char plan[256] = "";

	tuttiCommDescribe(t->comm, "allreduce", (size_t)c->bucket_kb * 1024 / sizeof(float),
			  tuttiFloat32, plan, sizeof(plan));
	printf(t->data->plays ? "data      %s: epochs of %zu frames, tests of %zu episodes\n"
			      : "data      %s: %zu samples to train, %zu to test\n",
	       t->data->name, t->data->train.samples, t->data->test.samples);
	printf("model     %s: %zu parameters on %s\n", c->model, t->model.whole_parameters,
	       t->device.ops->name);
	if (t->pipeline)
		print_mesh(t);
	printf("strategy  %s on %d rank%s", t->strategy->name, t->nranks, tool_s(t->nranks));
	if (t->servers)
		printf(" and %d server%s", t->servers, tool_s(t->servers));
	printf(": %s\n", plan);
	printf("epoch     %zu step%s of %zu sample%s", steps, tool_s((long long)steps),
	       t->sampler.batch, tool_s((long long)t->sampler.batch));
	if (t->sampler.samples % t->sampler.batch)
		printf("; %zu left-over samples are not used",
		       t->sampler.samples % t->sampler.batch);
	printf("\n");
	if (t->first_step)
		printf("resumed   after step %" PRIu64 "\n", t->first_step);
	fflush(stdout);
}

static int open_file(const struct train_config *c, int file, const char *mode, FILE **ret_file)
{
	const char *path = path_of(c, file);
	char events[4096];

	*ret_file = NULL;
	if (!path)
		return TRAIN_OK;
	if (file == TRAIN_FILE_EVENTS)
		path = train_tensorboard_path(path, events, sizeof(events)) ? NULL : events;
	*ret_file = path ? fopen(path, mode) : NULL;
	if (*ret_file)
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE, "--%s %s: %m; give a %s that can be written", options[file],
			  path_of(c, file), file == TRAIN_FILE_EVENTS ? "directory" : "file");
}

static int check_directory(const char *directory)
{
	char ignored[4096];
	struct stat st;

	if (!directory)
		return TRAIN_OK;
	if (!train_tensorboard_path(directory, ignored, sizeof(ignored)) && !stat(directory, &st)) {
		if (S_ISDIR(st.st_mode) && !access(directory, W_OK | X_OK))
			return TRAIN_OK;
		errno = S_ISDIR(st.st_mode) ? errno : ENOTDIR;
	}
	return train_fail(TRAIN_USAGE, "--tensorboard %s: %m; give a directory that can be written",
			  directory);
}

int train_metrics_check(const struct train_config *config)
{
	FILE *file;

	for (int i = 0; i < TRAIN_FILES; i++) {
		if (i == TRAIN_FILE_EVENTS) /* a new file of another name each time */
			return check_directory(config->tensorboard);
		if (open_file(config, i, "ae", &file))
			return TRAIN_USAGE;
		if (file)
			fclose(file);
	}
	return TRAIN_OK;
}

static bool is_empty(FILE *file)
{
	return !fseek(file, 0, SEEK_END) && ftell(file) <= 0;
}

/* The training goes on: only its record is incomplete. Call right behind the writes, which set errno. */
static void complain_once(struct train_metrics *m, const struct train_config *config, uint64_t step)
{
	for (int i = 0; i < TRAIN_FILES; i++) {
		if (!m->file[i] || m->error[i] || !ferror(m->file[i]))
			continue;
		m->error[i] = errno ? errno : EIO;
		fprintf(stderr,
			"tutti-train: --%s %s: step %" PRIu64
			" cannot be written: %s; the training goes on\n",
			options[i], path_of(config, i), step, strerror(m->error[i]));
	}
}

/* A resumed training continues the files of the one before. */
static int open_files(struct train_metrics *m, struct train_rank *t, bool append, uint64_t newest)
{
	const char *hashes = t->config->hashes;
	int rc = TRAIN_OK;

	for (int i = 0; i < TRAIN_FILES && !rc; i++) {
		if (i == TRAIN_FILE_HASHES)
			continue;
		rc = open_file(t->config, i, append || newest ? "ae" : "we", &m->file[i]);
		if (m->file[i]) /* a killed rank leaves complete lines */
			setvbuf(m->file[i], NULL, i < TRAIN_FILE_HASHES ? _IOLBF : _IOFBF, 1 << 16);
	}
	if (rc || !hashes)
		return rc;
	rc = train_hash_file_open(t, hashes, newest, &m->file[TRAIN_FILE_HASHES], &m->hashed);
	if (!rc)
		complain_once(m, t->config, newest);
	return rc;
}

int train_metrics_open(struct train_metrics *m, struct train_rank *t, bool append, uint64_t newest)
{
	int rc;

	*m = (struct train_metrics){ .on = append || train_is_lead(t) };
	if (!m->on)
		return TRAIN_OK;
	m->terminal = isatty(STDERR_FILENO);
	m->begun_ns = m->shown_ns = train_time_ns();
	m->first_step = t->done;
	rc = open_files(m, t, append, newest);
	if (!rc && m->file[TRAIN_FILE_EVENTS])
		train_tensorboard_begin(m->file[TRAIN_FILE_EVENTS]);
	if (rc || append)
		return rc;
	if (m->file[TRAIN_FILE_CSV] && is_empty(m->file[TRAIN_FILE_CSV]))
		fprintf(m->file[TRAIN_FILE_CSV],
			"step,epoch,loss,samples_per_s,accuracy,test_loss\n");
	print_setup(t);
	return TRAIN_OK;
}

int train_metrics_close(struct train_metrics *m, const struct train_config *config)
{
	int rc = TRAIN_OK;

	if (m->terminal)
		fprintf(stderr, "\r\033[K");
	for (int i = 0; i < TRAIN_FILES; i++)
		if (m->file[i] && (ferror(m->file[i]) | fclose(m->file[i])))
			rc = train_fail(TRAIN_FAILED, "--%s %s: the file is incomplete: %s",
					options[i], path_of(config, i),
					strerror(m->error[i] ? m->error[i] : errno));
	memset(m, 0, sizeof(*m));
	return rc;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Progress: on a terminal one line of stderr, which changes; else lines of stdout. */
static void show_progress(struct train_metrics *m, const struct train_rank *t,
			  const struct train_step_record *r)
{
	uint64_t now = train_time_ns(), done = r->step - m->first_step;
	double every_s = m->terminal ? SHOW_EVERY_MS / 1e3 : t->config->progress;
	double s = (double)(now - m->begun_ns) / 1e9;

	if (r->evaluated || every_s <= 0.0 || (double)(now - m->shown_ns) / 1e9 < every_s) {
		if (r->evaluated && m->terminal)
			fprintf(stderr, "\r\033[K");
		return;
	}
	m->shown_ns = now;
	fprintf(m->terminal ? stderr : stdout,
		"%sstep %" PRIu64 " of %" PRIu64 "  epoch %" PRIu64 " of %" PRIu64
		"  loss %.4f  rate %.4g  %.0f samples/s  %.0f s, %.0f s left%s",
		m->terminal ? "\r" : "", r->step, r->steps, r->epoch, r->epochs, r->loss, r->rate,
		r->mean_samples_per_s, s,
		done ? s * (double)(r->steps - r->step) / (double)done : 0,
		m->terminal ? "\033[K" : "\n");
	if (!m->terminal)
		fflush(stdout);
}

/* False: an evaluation alone, of parameters that were resumed. */
static bool has_step(const struct train_step_record *r)
{
	return r->step_ms > 0;
}

static void write_csv(FILE *to, const struct train_step_record *r)
{
	fprintf(to, "%" PRIu64 ",%" PRIu64 ",", r->step, r->epoch);
	if (has_step(r))
		fprintf(to, "%.9g,%.0f", r->loss, r->samples_per_s);
	else
		fprintf(to, ",");
	if (r->evaluated)
		fprintf(to, ",%.6f,%.9g\n", r->accuracy, r->test_loss);
	else
		fprintf(to, ",,\n");
}

static void write_json(FILE *to, const struct train_step_record *r)
{
	fprintf(to, "{\"step\":%" PRIu64 ",\"epoch\":%" PRIu64, r->step, r->epoch);
	if (has_step(r))
		fprintf(to,
			",\"loss\":%.9g,\"rate\":%.9g,\"samples_per_s\":%.0f,\"step_ms\":%.3f,"
			"\"exposed_ms\":%.3f",
			r->loss, r->rate, r->samples_per_s, r->step_ms, r->exposed_ms);
	if (r->evaluated)
		fprintf(to, ",\"accuracy\":%.6f,\"test_loss\":%.9g", r->accuracy, r->test_loss);
	fprintf(to, "}\n");
}

static void write_events(FILE *to, const struct train_step_record *r)
{
	if (has_step(r)) {
		train_tensorboard_scalar(to, r->step, "train/loss", r->loss);
		train_tensorboard_scalar(to, r->step, "train/rate", r->rate);
		train_tensorboard_scalar(to, r->step, "train/samples_per_s", r->samples_per_s);
		train_tensorboard_scalar(to, r->step, "train/exposed_ms", r->exposed_ms);
	}
	if (r->evaluated) {
		train_tensorboard_scalar(to, r->step, "test/loss", r->test_loss);
		train_tensorboard_scalar(to, r->step, "test/accuracy", r->accuracy);
	}
	fflush(to);
}

/* Once for each step, of which a death may repeat the work afterwards; shares of one step differ. */
static void write_hashes(struct train_metrics *m, struct train_rank *t, uint64_t step)
{
	if (step <= m->hashed && !t->strategy->ask)
		return;
	train_hash_file_write(m->file[TRAIN_FILE_HASHES], t, step);
	m->hashed = step;
}

void train_metrics_write(struct train_metrics *m, struct train_rank *t,
			 const struct train_step_record *r)
{
	if (!m->on)
		return;
	show_progress(m, t, r);
	if (m->file[TRAIN_FILE_CSV])
		write_csv(m->file[TRAIN_FILE_CSV], r);
	if (m->file[TRAIN_FILE_JSONL])
		write_json(m->file[TRAIN_FILE_JSONL], r);
	if (m->file[TRAIN_FILE_HASHES])
		write_hashes(m, t, r->step);
	if (m->file[TRAIN_FILE_EVENTS])
		write_events(m->file[TRAIN_FILE_EVENTS], r);
	complain_once(m, t->config, r->step);
	if (!r->evaluated)
		return;
	printf("step %" PRIu64 "  epoch %" PRIu64 " of %" PRIu64, r->step, r->epoch, r->epochs);
	if (t->data->plays)
		printf("  mean return %.1f", train_rollout_return(r->accuracy));
	else
		printf("  loss %.4f  accuracy %.4f", r->test_loss, r->accuracy);
	if (r->mean_samples_per_s > 0.0)
		printf("  %.0f samples/s", r->mean_samples_per_s);
	printf("\n");
	fflush(stdout);
	for (int i = 0; i < TRAIN_FILES; i++)
		if (m->file[i])
			fflush(m->file[i]);
}
