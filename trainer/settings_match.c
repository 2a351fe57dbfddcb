/* settings_match.c - check that all ranks were given the same data and options
 * (settings_match.h) */
#include "trainer/settings_match.h"

#include "trainer/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct setting {
	const char *option;
	char value[120];
};

enum { SETTINGS_MAX = 56 };

static void add_text(struct setting *settings, size_t *n, const char *option, const char *value)
{
	struct setting *setting = &settings[(*n)++];

	setting->option = option;
	snprintf(setting->value, sizeof(setting->value), "%s", value);
}

static void add_number(struct setting *settings, size_t *n, const char *option, double value)
{
	char text[32];

	/* the shortest text that reads as the value again: 0.1, not 0.10000000000000001 */
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	add_text(settings, n, option, text);
}

/* Images of the same number and mean are the same; texts of the same length need not be. */
static void describe_data(const struct train_data *data, char *text, size_t room)
{
	const struct train_set *train = &data->train, *test = &data->test;

	if (data->text)
		snprintf(text, room, "%s (%zu and %zu samples of hash %08x)", data->name,
			 train->samples, test->samples,
			 (unsigned)train_hash(train->images, train->samples * data->pixels));
	else
		snprintf(text, room, "%s (%zu and %zu samples of mean %.9g)", data->name,
			 train->samples, test->samples, (double)data->mean);
}

/* All settings that determine the result. The library compares those that determine data
 * movement. */
static size_t list_settings(const struct train_rank *t, struct setting *settings)
{
	const struct train_config *c = t->config;
	char data[100];
	size_t n = 0;

	add_text(settings, &n, "model", c->model);
	add_text(settings, &n, "strategy", c->strategy);
	add_number(settings, &n, "context", (double)c->context);
	add_text(settings, &n, "mesh", c->mesh ? c->mesh : "none");
	add_number(settings, &n, "mem-cap", c->mem_cap);
	add_number(settings, &n, "shards", (double)c->shards);
	add_text(settings, &n, "schedule", c->schedule);
	add_number(settings, &n, "zero", (double)c->zero);
	add_text(settings, &n, "compress", c->compress ? c->compress : "none");
	add_number(settings, &n, "micro", (double)c->micro);
	add_number(settings, &n, "global-batch", (double)c->global_batch);
	add_number(settings, &n, "epochs", (double)c->epochs);
	add_number(settings, &n, "steps", (double)c->steps);
	add_number(settings, &n, "seed", (double)c->seed);
	add_number(settings, &n, "lr", c->lr);
	add_number(settings, &n, "momentum", c->momentum);
	add_number(settings, &n, "optimizer", (double)c->optimizer);
	add_number(settings, &n, "beta1", c->beta1);
	add_number(settings, &n, "beta2", c->beta2);
	add_number(settings, &n, "weight-decay", c->weight_decay);
	add_number(settings, &n, "lr-schedule", (double)c->lr_schedule);
	add_number(settings, &n, "warmup", (double)c->warmup);
	add_number(settings, &n, "canonical", (double)c->canonical);
	add_number(settings, &n, "leaf", (double)c->leaf);
	add_number(settings, &n, "on-failure", (double)c->on_failure);
	add_number(settings, &n, "ps", (double)t->servers);
	add_number(settings, &n, "devices", (double)c->devices);
	add_number(settings, &n, "k", (double)c->k);
	add_number(settings, &n, "ssp", (double)c->ssp);
	add_number(settings, &n, "H", (double)c->local_steps);
	add_number(settings, &n, "average", (double)c->average);
	add_number(settings, &n, "alpha", c->alpha);
	add_number(settings, &n, "outer-lr", c->outer_lr);
	add_number(settings, &n, "outer-momentum", c->outer_momentum);
	add_number(settings, &n, "n-fetch", (double)c->n_fetch);
	add_number(settings, &n, "n-push", (double)c->n_push);
	add_number(settings, &n, "adagrad", (double)c->adagrad);
	add_number(settings, &n, "stagger", (double)c->stagger);
	add_number(settings, &n, "timeline", c->timeline != NULL);
	add_number(settings, &n, "report", c->report != NULL);
	add_number(settings, &n, "warm-start", (double)c->warm_start);
	add_number(settings, &n, "keep", (double)c->keep);
	add_number(settings, &n, "save", c->save != NULL);
	add_number(settings, &n, "export", c->export != NULL);
	add_number(settings, &n, "save-every", (double)c->save_every);
	add_number(settings, &n, "resume", c->resume != NULL);
	add_number(settings, &n, "evaluate", (double)c->evaluate);
	add_number(settings, &n, "grow", c->grow != NULL);
	add_number(settings, &n, "bucket-kb", (double)c->bucket_kb);
	add_number(settings, &n, "check-replicas", (double)c->check_replicas);
	add_number(settings, &n, "eval-every", (double)c->eval_every);
	describe_data(t->data, data, sizeof(data));
	add_text(settings, &n, "data", data);
	return n;
}

int train_settings_match(const struct train_rank *t)
{
	struct setting settings[SETTINGS_MAX] = { 0 };
	uint64_t most[2 * SETTINGS_MAX];
	size_t n = list_settings(t, settings);
	int rc;

	for (size_t i = 0; i < n; i++) {
		most[i] = train_hash(settings[i].value, sizeof(settings[i].value));
		most[n + i] = ~most[i];
	}
	rc = train_check(tuttiAllReduce(most, most, 2 * n, tuttiUint64, tuttiMax, t->world, NULL),
			 t->world);
	for (size_t i = 0; i < n && !rc; i++)
		if (most[i] != ~most[n + i])
			rc = train_fail(
				TRAIN_USAGE,
				"--%s: the ranks were given different values; the value is %s on rank %d",
				settings[i].option, settings[i].value, t->rank);
	return rc;
}
