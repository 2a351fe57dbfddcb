/* config.c - the table of tutti-train's options (config.h); perf/options.c reads it */
#include "config.h"

#include "data.h"
#include "device.h"
#include "model.h"
#include "perf/options.h"
#include "strategy.h"

#include <stdio.h>
#include <string.h>

/* What the tables of data sources, models, strategies and devices hold, as help. */
static char data_help[256], model_help[256], strategy_help[256], device_help[256];

#define AT(field) offsetof(struct tt_config, field)

static const struct tt_option options[] = {
	{ .name = "np", .kind = TT_OPT_INT, .argument = "P", .offset = AT(np), .min = 1, .max = 4096,
	  .help = "start P ranks on this host; without: join the ranks that\n"
		  "TUTTI_RANK and TUTTI_NRANKS describe, or train alone" },
	{ .name = "data", .kind = TT_OPT_TEXT, .argument = "NAME", .offset = AT(data),
	  .fallback = "auto", .help = data_help },
	{ .name = "data-dir", .kind = TT_OPT_TEXT, .argument = "DIR", .offset = AT(data_dir),
	  .fallback = "/usr/share/datasets/fashion-mnist",
	  .help = "where the IDX files of fashion are" },
	{ .name = "model", .kind = TT_OPT_TEXT, .argument = "MODEL", .offset = AT(model),
	  .fallback = "mlp:256", .help = model_help },
	{ .name = "strategy", .kind = TT_OPT_TEXT, .argument = "NAME", .offset = AT(strategy),
	  .fallback = "mirrored", .help = strategy_help },
	{ .name = "device", .kind = TT_OPT_TEXT, .argument = "NAME", .offset = AT(device),
	  .fallback = "cpu", .help = device_help },
	{ .name = "algo", .kind = TT_OPT_TEXT, .argument = "NAME", .offset = AT(algo),
	  .fallback = "auto", .help = "algorithm of the allreduce; see tutti_algorithms(7)" },
	{ .name = "transport", .kind = TT_OPT_TEXT, .argument = "NAME", .offset = AT(transport),
	  .fallback = "auto", .help = "auto, shm or tcp" },
	{ .name = "global-batch", .kind = TT_OPT_INT, .argument = "N", .offset = AT(global_batch),
	  .fallback = "256", .min = 1, .max = 1 << 24,
	  .help = "samples of one step, over all ranks" },
	{ .name = "epochs", .kind = TT_OPT_INT, .argument = "N", .offset = AT(epochs),
	  .fallback = "5", .min = 1, .max = 1 << 20, .help = "passes over the training set" },
	{ .name = "steps", .kind = TT_OPT_INT, .argument = "N", .offset = AT(steps),
	  .min = 1, .max = 1 << 30, .help = "end after N steps instead of after --epochs" },
	{ .name = "lr", .kind = TT_OPT_REAL, .argument = "RATE", .offset = AT(lr),
	  .fallback = "0.05", .min = 1e-9, .max = 1e3, .help = "learning rate",
	  .refusal = "a rate is above 0 and at most 1000" },
	{ .name = "momentum", .kind = TT_OPT_REAL, .argument = "M", .offset = AT(momentum),
	  .fallback = "0.9", .min = 0, .max = 0.9999, .help = "of the gradient descent",
	  .refusal = "momentum is at least 0 and below 1, such as 0.9" },
	{ .name = "seed", .kind = TT_OPT_INT, .argument = "N", .offset = AT(seed),
	  .fallback = "1", .min = 0, .max = 0x1p53,
	  .help = "of the first parameters, the order of the samples, synth" },
	{ .name = "bucket-kb", .kind = TT_OPT_INT, .argument = "KIB", .offset = AT(bucket_kb),
	  .fallback = "256", .min = 1, .max = 1 << 20,
	  .help = "gradients that are allreduced together" },
	{ .name = "check-replicas", .kind = TT_OPT_INT, .argument = "K",
	  .offset = AT(check_replicas), .fallback = "100", .min = 0, .max = 1 << 30,
	  .help = "every K steps and at the end: are the parameters equal\n"
		  "on all ranks? 0: at the end only" },
	{ .name = "eval-every", .kind = TT_OPT_INT, .argument = "N", .offset = AT(eval_every),
	  .fallback = "0", .min = 0, .max = 1 << 30,
	  .help = "measure the accuracy every N steps; 0: after each epoch" },
	{ .name = "metrics", .kind = TT_OPT_TEXT, .argument = "FILE", .offset = AT(metrics),
	  .help = "write a line of CSV for every step" },
	{ 0 }
};

static const struct tt_usage usage = {
	.tool = "tutti-train",
	.help = "Trains a network on images, data-parallel: every rank works on its share of a batch.",
	.options = options,
};

/* One more line, "NAME: WHAT". */
static void add_line(char help[256], const char *name, const char *what)
{
	size_t used = strlen(help);

	snprintf(help + used, 256 - used, "%s%s: %s", used ? "\n" : "", name, what);
}

static void list_tables(void)
{
	for (size_t i = 0; tt_data_sources[i]; i++)
		add_line(data_help, tt_data_sources[i]->name, tt_data_sources[i]->help);
	add_line(data_help, "auto", "the first of these that is there");
	for (size_t i = 0; tt_models[i]; i++)
		add_line(model_help, tt_models[i]->syntax, tt_models[i]->help);
	for (size_t i = 0; tt_strategies[i]; i++)
		add_line(strategy_help, tt_strategies[i]->name, tt_strategies[i]->help);
	for (size_t i = 0; tt_devices[i]; i++)
		add_line(device_help, tt_devices[i]->name, tt_devices[i]->help);
}

int tt_config_read(int argc, char **argv, struct tt_config *ret_config)
{
	list_tables();
	return tt_options_read(&usage, argc, argv, ret_config);
}
