/* metrics.c - what rank 0 tells while it trains (metrics.h) */
#include "metrics.h"

#include "strategy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { SHOW_EVERY_MS = 200 };

static void introduce(const struct tt_trainer *t)
{
	const struct tt_config *c = t->config;
	size_t steps = tt_sampler_steps(&t->sampler);
	char plan[256] = "";

	tuttiCommDescribe(t->comm, "allreduce", (size_t)c->bucket_kb * 1024 / sizeof(float),
			  tuttiFloat32, plan, sizeof(plan));
	printf("data      %s: %zu samples to train, %zu to test\n", t->data->name,
	       t->data->train.samples, t->data->test.samples);
	printf("model     %s: %zu parameters on %s\n", c->model, t->model.parameters,
	       t->device.ops->name);
	printf("strategy  %s on %d rank%s: %s\n", t->strategy->name, t->nranks,
	       t->nranks == 1 ? "" : "s", plan);
	printf("epoch     %zu steps of %zu samples", steps, t->sampler.batch);
	if (t->sampler.samples % t->sampler.batch)
		printf("; the %zu left over rest", t->sampler.samples % t->sampler.batch);
	printf("\n");
	fflush(stdout);
}

static int open_csv(const char *path, const char *mode, FILE **ret_csv)
{
	*ret_csv = fopen(path, mode);
	if (*ret_csv)
		return TT_TRAIN_OK;
	return tt_train_fail(TT_TRAIN_USAGE, "--metrics %s: %m; give a file that can be written",
			     path);
}

int tt_metrics_check(const char *path)
{
	FILE *csv;
	int rc = open_csv(path, "ae", &csv);

	if (!rc)
		fclose(csv);
	return rc;
}

int tt_metrics_open(struct tt_metrics *m, const struct tt_trainer *t)
{
	int rc = TT_TRAIN_OK;

	*m = (struct tt_metrics){ .on = t->rank == 0, .csv_path = t->config->metrics };
	if (!m->on)
		return TT_TRAIN_OK;
	m->terminal = isatty(STDERR_FILENO);
	if (m->csv_path)
		rc = open_csv(m->csv_path, "we", &m->csv);
	if (rc)
		return rc;
	if (m->csv)
		fprintf(m->csv, "step,epoch,loss,samples_per_s,accuracy,test_loss\n");
	introduce(t);
	return TT_TRAIN_OK;
}

static void show_progress(struct tt_metrics *m, const struct tt_note *n)
{
	uint64_t now = tt_time_ns();

	if (n->evaluated)
		fprintf(stderr, "\r\033[K");
	else if (now - m->shown_ns > SHOW_EVERY_MS * UINT64_C(1000000)) {
		fprintf(stderr,
			"\rstep %" PRIu64 " of %" PRIu64 "  epoch %" PRIu64 " of %" PRIu64
			"  loss %.4f  %.0f samples/s\033[K",
			n->step, n->steps, n->epoch, n->epochs, n->loss, n->mean_samples_per_s);
		m->shown_ns = now;
	}
}

void tt_metrics_note(struct tt_metrics *m, const struct tt_note *n)
{
	if (!m->on)
		return;
	if (m->terminal)
		show_progress(m, n);
	if (m->csv) {
		fprintf(m->csv, "%" PRIu64 ",%" PRIu64 ",%.9g,%.0f", n->step, n->epoch, n->loss,
			n->samples_per_s);
		if (n->evaluated)
			fprintf(m->csv, ",%.6f,%.9g\n", n->accuracy, n->test_loss);
		else
			fprintf(m->csv, ",,\n");
	}
	if (!n->evaluated)
		return;
	printf("step %" PRIu64 "  epoch %" PRIu64 " of %" PRIu64
	       "  loss %.4f  accuracy %.4f  %.0f samples/s\n",
	       n->step, n->epoch, n->epochs, n->test_loss, n->accuracy, n->mean_samples_per_s);
	fflush(stdout);
	if (m->csv)
		fflush(m->csv);
}

int tt_metrics_close(struct tt_metrics *m)
{
	int rc = TT_TRAIN_OK;

	if (m->terminal)
		fprintf(stderr, "\r\033[K");
	if (m->csv && (ferror(m->csv) | fclose(m->csv)))
		rc = tt_train_fail(TT_TRAIN_FAILED,
				   "--metrics %s: cannot be written to its end: %s", m->csv_path,
				   strerror(errno));
	m->csv = NULL;
	m->terminal = false;
	return rc;
}
