/* settings_agree.c - ranks that were started apart must have been
 * given the same data and options (settings_agree.h) */
#include "trainer/settings_agree.h"

#include "trainer/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct fact {
	const char *option;
	char value[120];
};

enum { FACTS_MAX = 40 };

static void add_text(struct fact *facts, size_t *n, const char *option, const char *value)
{
	struct fact *fact = &facts[(*n)++];

	fact->option = option;
	snprintf(fact->value, sizeof(fact->value), "%s", value);
}

static void add_number(struct fact *facts, size_t *n, const char *option, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.17g", value);
	add_text(facts, n, option, text);
}

/* All that decides what is computed. The library compares what decides how bytes move. */
static size_t list_facts(const struct train_rank *t, struct fact *facts)
{
	const struct train_config *c = t->config;
	char data[100];
	size_t n = 0;

	add_text(facts, &n, "model", c->model);
	add_text(facts, &n, "strategy", c->strategy);
	add_number(facts, &n, "global-batch", (double)c->global_batch);
	add_number(facts, &n, "epochs", (double)c->epochs);
	add_number(facts, &n, "steps", (double)c->steps);
	add_number(facts, &n, "seed", (double)c->seed);
	add_number(facts, &n, "lr", c->lr);
	add_number(facts, &n, "momentum", c->momentum);
	add_number(facts, &n, "schedule", (double)c->schedule);
	add_number(facts, &n, "warmup", (double)c->warmup);
	add_number(facts, &n, "canonical", (double)c->canonical);
	add_number(facts, &n, "leaf", (double)c->leaf);
	add_number(facts, &n, "on-failure", (double)c->on_failure);
	add_number(facts, &n, "ps", (double)t->servers);
	add_number(facts, &n, "devices", (double)c->devices);
	add_number(facts, &n, "k", (double)c->k);
	add_number(facts, &n, "ssp", (double)c->ssp);
	add_number(facts, &n, "H", (double)c->local_steps);
	add_number(facts, &n, "average", (double)c->average);
	add_number(facts, &n, "alpha", c->alpha);
	add_number(facts, &n, "outer-lr", c->outer_lr);
	add_number(facts, &n, "outer-momentum", c->outer_momentum);
	add_number(facts, &n, "n-fetch", (double)c->n_fetch);
	add_number(facts, &n, "n-push", (double)c->n_push);
	add_number(facts, &n, "adagrad", (double)c->adagrad);
	add_number(facts, &n, "timeline", c->timeline != NULL);
	add_number(facts, &n, "save", c->save != NULL);
	add_number(facts, &n, "save-every", (double)c->save_every);
	add_number(facts, &n, "resume", c->resume != NULL);
	add_number(facts, &n, "bucket-kb", (double)c->bucket_kb);
	add_number(facts, &n, "check-replicas", (double)c->check_replicas);
	add_number(facts, &n, "eval-every", (double)c->eval_every);
	snprintf(data, sizeof(data), "%s (%zu and %zu samples of mean %.9g)", t->data->name,
		 t->data->train.samples, t->data->test.samples, (double)t->data->mean);
	add_text(facts, &n, "data", data);
	return n;
}

int train_settings_agree(const struct train_rank *t)
{
	struct fact facts[FACTS_MAX] = { 0 };
	uint64_t most[2 * FACTS_MAX];
	size_t n = list_facts(t, facts);
	int rc;

	for (size_t i = 0; i < n; i++) {
		most[i] = train_hash(facts[i].value, sizeof(facts[i].value));
		most[n + i] = ~most[i];
	}
	rc = train_library(tuttiAllReduce(most, most, 2 * n, tuttiUint64, tuttiMax, t->world, NULL),
			t->world);
	for (size_t i = 0; i < n && !rc; i++)
		if (most[i] != ~most[n + i])
			rc = train_fail(TRAIN_USAGE,
				"--%s: the ranks were not given the same; it is %s on rank %d",
				facts[i].option, facts[i].value, t->rank);
	return rc;
}
