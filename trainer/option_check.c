/* option_check.c - options that mean nothing beside others (option_check.h) */
#include "trainer/option_check.h"

#include "trainer/fail.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct own {
	const char *option;
	size_t at, bytes;       /* in struct train_config */
	const char *strategies; /* that it means something to */
};

#define OWN(option, field, strategies)								\
	{ option, offsetof(struct train_config, field), sizeof(((struct train_config *)0)->field),	\
			strategies }

static const struct own owned[] = {
	OWN("ps", servers, "ps-sync ps-async ps-strategy downpour"),
	OWN("devices", devices, "ps-strategy"),
	OWN("k", k, "spare"),
	OWN("ssp", ssp, "ps-async"),
	OWN("stale-drop", stale_drop, "ps-async"),
	OWN("stale-scale", stale_scale, "ps-async"),
	OWN("record", record, "ps-async spare"),
	OWN("replay", replay, "ps-async spare"),
	OWN("H", local_steps, "average"),
	OWN("average", average, "average"),
	OWN("alpha", alpha, "average"),
	OWN("outer-lr", outer_lr, "average"),
	OWN("outer-momentum", outer_momentum, "average"),
	OWN("n-fetch", n_fetch, "downpour"),
	OWN("n-push", n_push, "downpour"),
	OWN("adagrad", adagrad, "downpour"),
};

static bool was_given(const struct train_config *c, const struct train_config *defaults,
		      const struct own *o)
{
	return memcmp((const char *)c + o->at, (const char *)defaults + o->at, o->bytes) != 0;
}

static bool is_word(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at += length)
		if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
			return true;
	return false;
}

/* Options that only go with another one. */
static int check_pairs(const struct train_config *c, const struct train_config *d)
{
	const struct {
		const char *option, *wants;
		bool given, has;
	} pairs[] = {
		{ "alpha", "--average easgd", c->alpha != d->alpha,
		  c->average == TRAIN_AVERAGE_EASGD },
		{ "outer-lr", "--average diloco", c->outer_lr != d->outer_lr,
		  c->average == TRAIN_AVERAGE_DILOCO },
		{ "outer-momentum", "--average diloco", c->outer_momentum != d->outer_momentum,
		  c->average == TRAIN_AVERAGE_DILOCO },
		{ "jitter", "--sim-compute-ms, of which it is a part", c->jitter > 0.0,
		  c->sim_compute_ms > 0.0 },
		{ "save-every", "--save", c->save_every != 0, c->save != NULL },
		{ "hash-values", "--hashes", c->hash_values != 0, c->hashes != NULL },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (pairs[i].given && !pairs[i].has)
			return train_fail(TRAIN_USAGE,
				"--%s: does nothing by itself; add %s, or leave it out",
				pairs[i].option, pairs[i].wants);
	return TRAIN_OK;
}

int train_option_check(const struct train_config *c)
{
	struct train_config defaults;

	train_config_defaults(&defaults);
	for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
		if (was_given(c, &defaults, &owned[i]) &&
		    !is_word(owned[i].strategies, c->strategy))
			return train_fail(TRAIN_USAGE,
				"--%s: means nothing to --strategy %s; leave it out, or "
				"use one of: %s", owned[i].option, c->strategy,
				owned[i].strategies);
	return check_pairs(c, &defaults);
}
