/* option_check.c - refuse options without effect (option_check.h) */
#include "trainer/option_check.h"

#include "trainer/base/fail.h"
#include "trainer/train_config.h"
#include "trainer/whole_file.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

struct strategy_option {
	const char *option;
	size_t at, bytes;       /* in struct train_config */
	const char *strategies; /* that use the option */
};

#define OPTION(option, field, strategies)                                     \
	{                                                                     \
		option, offsetof(struct train_config, field),                 \
			sizeof(((struct train_config *)0)->field), strategies \
	}

static const struct strategy_option strategy_options[] = {
	OPTION("ps", servers, "ps-sync ps-async ps-strategy downpour"),
	OPTION("devices", devices, "ps-strategy"),
	OPTION("zero", zero, "mirrored"),
	OPTION("compress", compress, "mirrored"),
	OPTION("optimizer", optimizer, "one mirrored reduce-to-one hierarchical-copy a2c a3c"),
	OPTION("k", k, "spare"),
	OPTION("ssp", ssp, "ps-async"),
	OPTION("stale-drop", stale_drop, "ps-async"),
	OPTION("stale-scale", stale_scale, "ps-async"),
	OPTION("record", record, "ps-async spare"),
	OPTION("replay", replay, "ps-async spare"),
	OPTION("H", local_steps, "average"),
	OPTION("average", average, "average"),
	OPTION("alpha", alpha, "average"),
	OPTION("outer-lr", outer_lr, "average"),
	OPTION("outer-momentum", outer_momentum, "average"),
	OPTION("n-fetch", n_fetch, "downpour"),
	OPTION("n-push", n_push, "downpour"),
	OPTION("adagrad", adagrad, "downpour"),
	OPTION("stagger", stagger, "ps-sync ps-async ps-strategy downpour"),
	OPTION("warm-start", warm_start, "ps-async downpour"),
};

static bool was_given(const struct train_config *c, const struct train_config *defaults,
		      const struct strategy_option *o)
{
	return memcmp((const char *)c + o->at, (const char *)defaults + o->at, o->bytes) != 0;
}

static bool contains_word(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at += length)
		if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
			return true;
	return false;
}

/* Options that require another one. */
static int check_pairs(const struct train_config *c, const struct train_config *d)
{
	bool adamw = c->optimizer == TRAIN_ADAMW;
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
		{ "momentum", "--optimizer sgd", c->momentum != d->momentum,
		  c->optimizer == TRAIN_SGD },
		{ "beta1", "--optimizer adamw", c->beta1 != d->beta1, adamw },
		{ "beta2", "--optimizer adamw", c->beta2 != d->beta2, adamw },
		{ "weight-decay", "--optimizer adamw", c->weight_decay != d->weight_decay, adamw },
		{ "jitter", "--sim-compute-ms, which it scales", c->jitter > 0.0,
		  c->sim_compute_ms > 0.0 },
		{ "schedule", "--mesh", c->schedule != d->schedule, c->mesh != NULL },
		{ "micro", "--mesh", c->micro != 0, c->mesh != NULL },
		{ "save-every", "--save", c->save_every != 0, c->save != NULL },
		{ "keep", "--save-every", c->keep != 0, c->save_every != 0 },
		{ "evaluate", "--resume", c->evaluate, c->resume != NULL },
		{ "hash-values", "--hashes", c->hash_values != 0, c->hashes != NULL },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (pairs[i].given && !pairs[i].has)
			return train_fail(TRAIN_USAGE,
					  "--%s: has no effect alone; add %s, or omit the option",
					  pairs[i].option, pairs[i].wants);
	return TRAIN_OK;
}

/* Files that the training writes: none would replace another. */
static int check_files(const struct train_config *c)
{
	const struct {
		const char *option, *path;
	} files[] = {
		{ "save", c->save },     { "export", c->export },     { "metrics", c->metrics },
		{ "jsonl", c->jsonl },   { "timeline", c->timeline }, { "hashes", c->hashes },
		{ "report", c->report },
	};
	struct stat st;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		for (size_t k = 0; k < i; k++)
			if (files[i].path && files[k].path &&
			    !strcmp(files[i].path, files[k].path) &&
			    (stat(files[i].path, &st) || S_ISREG(st.st_mode)))
				return train_fail(TRAIN_USAGE,
						  "--%s %s: also the file of --%s; give another",
						  files[i].option, files[i].path, files[k].option);
	return TRAIN_OK;
}

int train_option_check(const struct train_config *c)
{
	struct train_config defaults;

	train_config_defaults(&defaults);
	for (size_t i = 0; i < sizeof(strategy_options) / sizeof(strategy_options[0]); i++)
		if (was_given(c, &defaults, &strategy_options[i]) &&
		    !contains_word(strategy_options[i].strategies, c->strategy))
			return train_fail(
				TRAIN_USAGE,
				"--%s: has no effect with --strategy %s; omit the option, or "
				"use one of: %s",
				strategy_options[i].option, c->strategy,
				strategy_options[i].strategies);
	if (check_pairs(c, &defaults))
		return TRAIN_USAGE;
	if (c->evaluate && c->hashes)
		return train_fail(TRAIN_USAGE,
				  "--hashes: records steps, and --evaluate takes none; omit one of "
				  "the options");
	return check_files(c);
}

/* A pipe, a terminal or a device is written in place. */
static int check_page(const char *option, const char *path)
{
	struct stat st;

	return path && (stat(path, &st) || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		       ? train_whole_file_check(option, path)
		       : TRAIN_OK;
}

int train_option_check_files(const struct train_config *c)
{
	int rc = c->save ? train_whole_file_check("save", c->save) : TRAIN_OK;

	if (!rc && c->export)
		rc = train_whole_file_check("export", c->export);
	if (!rc)
		rc = check_page("timeline", c->timeline);
	return rc ? rc : check_page("report", c->report);
}
