/* train_config.c - the table of tutti-train's options (train_config.h); tools/options.c reads it */
#include "trainer/train_config.h"

#include "tools/options.h"
#include "trainer/data/data.h"
#include "trainer/device/device.h"
#include "trainer/model/model.h"
#include "trainer/strategy/strategy.h"

#include <stdio.h>
#include <string.h>

/* Help texts made from the tables of data sources, models, strategies and devices. */
static char data_help[1024], model_help[1024], strategy_help[1024], device_help[1024];

#define AT(field) offsetof(struct train_config, field)

static const struct tool_option options[] = {
	{ .name = "np", .kind = TOOL_OPT_INT, .argument = "P", .offset = AT(np), .min = 1,
	  .max = 4096, .help = "start P workers on this host; without it: join the ranks\n"
		  "of mpirun, srun, torchrun or TUTTI_RANK, or train alone" },
	{ .name = "data", .kind = TOOL_OPT_TEXT, .argument = "NAME", .offset = AT(data),
	  .fallback = "auto", .help = data_help },
	{ .name = "data-dir", .kind = TOOL_OPT_TEXT, .argument = "DIR", .offset = AT(data_dir),
	  .fallback = "/usr/share/datasets/fashion-mnist",
	  .help = "directory of fashion's IDX files" },
	{ .name = "model", .kind = TOOL_OPT_TEXT, .argument = "MODEL", .offset = AT(model),
	  .fallback = "mlp:256", .help = model_help },
	{ .name = "strategy", .kind = TOOL_OPT_TEXT, .argument = "NAME", .offset = AT(strategy),
	  .fallback = "mirrored", .help = strategy_help },
	{ .name = "device", .kind = TOOL_OPT_TEXT, .argument = "NAME", .offset = AT(device),
	  .fallback = "cpu", .help = device_help },
	{ .name = "algo", .kind = TOOL_OPT_TEXT, .argument = "NAME", .offset = AT(algo),
	  .fallback = "auto", .help = "algorithm of the collectives; see tutti_algorithms(7)" },
	{ .name = "transport", .kind = TOOL_OPT_TEXT, .argument = "NAME", .offset = AT(transport),
	  .fallback = "auto", .help = "auto, shm, verbs or tcp" },
	{ .name = "global-batch", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(global_batch),
	  .fallback = "256", .min = 1, .max = 1 << 24,
	  .help = "samples of a step, over all ranks" },
	{ .name = "epochs", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(epochs),
	  .fallback = "5", .min = 1, .max = 1 << 20, .help = "passes over the training set" },
	{ .name = "steps", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(steps), .min = 1,
	  .max = 1 << 30, .help = "end after N steps instead of after --epochs" },
	{ .name = "lr", .kind = TOOL_OPT_REAL, .argument = "RATE", .offset = AT(lr),
	  .fallback = "0.05", .min = 1e-9, .max = 1e3,
	  .refusal = "a rate must be above 0 and at most 1000", .help = "learning rate" },
	{ .name = "momentum", .kind = TOOL_OPT_REAL, .argument = "M", .offset = AT(momentum),
	  .fallback = "0.9", .min = 0, .max = 0.9999,
	  .refusal = "momentum must be at least 0 and below 1, such as 0.9",
	  .help = "momentum of the gradient descent" },
	{ .name = "schedule", .kind = TOOL_OPT_CHOICE, .argument = "NAME", .offset = AT(schedule),
	  .fallback = "constant", .words = "constant step linear cosine",
	  .help = "learning rate schedule: constant; step: divided by 10 after half\n"
		  "and after three quarters; linear or cosine: decay to 0" },
	{ .name = "warmup", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(warmup),
	  .fallback = "0", .min = 0, .max = 1 << 30,
	  .help = "warmup steps, in which the rate rises to --lr" },
	{ .name = "seed", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(seed),
	  .fallback = "1", .min = 0, .max = 0x1p53,
	  .help = "seed of initial parameters, order of samples and synth" },
	{ .name = "canonical", .kind = TOOL_OPT_CHOICE, .argument = "NAME", .offset = AT(canonical),
	  .fallback = "off", .words = "off tree chain fixed64",
	  .help = "sum gradients over leaves in one fixed order: the same parameters\n"
		  "for any number of ranks" },
	{ .name = "leaf", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(leaf),
	  .fallback = "32", .min = 1, .max = 1 << 16, .help = "samples of a leaf" },
	{ .name = "bucket-kb", .kind = TOOL_OPT_INT, .argument = "KIB", .offset = AT(bucket_kb),
	  .fallback = "1024", .min = 1, .max = 1 << 20,
	  .help = "size of a gradient bucket" },
	{ .name = "on-failure", .kind = TOOL_OPT_CHOICE, .argument = "WHAT",
	  .offset = AT(on_failure), .fallback = "stop", .words = "stop shrink",
	  .help = "when a rank dies: stop, or shrink to the survivors" },
	{ .name = "ps", .kind = TOOL_OPT_INT, .argument = "S", .offset = AT(servers),
	  .fallback = "1", .min = 1, .max = 1024,
	  .help = "parameter servers of ps-sync, ps-async, ps-strategy, downpour" },
	{ .name = "devices", .kind = TOOL_OPT_INT, .argument = "D", .offset = AT(devices),
	  .fallback = "1", .min = 1, .max = 4096, .help = "ps-strategy: ranks of a worker" },
	{ .name = "k", .kind = TOOL_OPT_INT, .argument = "K", .offset = AT(k), .fallback = "0",
	  .min = 0, .max = 1024,
	  .help = "spare: gradients of a step; 0: nine in ten" },
	{ .name = "ssp", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(ssp),
	  .fallback = "none", .min = 0, .max = 1 << 30, .words = "none",
	  .help = "ps-async: staleness bound: a worker that is more than N steps\n"
		  "ahead of the slowest waits" },
	{ .name = "stale-drop", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(stale_drop),
	  .fallback = "none", .min = 0, .max = 1 << 30, .words = "none",
	  .help = "ps-async: drop gradients with a staleness above N" },
	{ .name = "stale-scale", .kind = TOOL_OPT_FLAG, .offset = AT(stale_scale),
	  .help = "ps-async: divide gradients by 1 + staleness" },
	{ .name = "record", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(record),
	  .help = "ps-async: server s writes the order of messages to FILE.s;\n"
		  "spare: rank 0 writes the ranks in time to FILE" },
	{ .name = "replay", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(replay),
	  .help = "use gradients in the order of a record" },
	{ .name = "H", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(local_steps),
	  .fallback = "1", .min = 1, .max = 1 << 30,
	  .help = "average: steps between two averages" },
	{ .name = "average", .kind = TOOL_OPT_CHOICE, .argument = "HOW", .offset = AT(average),
	  .fallback = "allreduce", .words = "allreduce supervisor easgd diloco",
	  .help = "average: by allreduce, by rank 0, elastic, or by an outer step" },
	{ .name = "alpha", .kind = TOOL_OPT_REAL, .argument = "A", .offset = AT(alpha),
	  .fallback = "0.1", .min = 1e-6, .max = 1, .refusal = "alpha must be above 0 and at most 1",
	  .help = "easgd: fraction by which ranks and center approach each other" },
	{ .name = "outer-lr", .kind = TOOL_OPT_REAL, .argument = "RATE", .offset = AT(outer_lr),
	  .fallback = "0.7", .min = 1e-6, .max = 100,
	  .refusal = "a rate must be above 0 and at most 100",
	  .help = "diloco: learning rate of the outer step" },
	{ .name = "outer-momentum", .kind = TOOL_OPT_REAL, .argument = "M",
	  .offset = AT(outer_momentum), .fallback = "0.9", .min = 0, .max = 0.9999,
	  .refusal = "momentum must be at least 0 and below 1, such as 0.9",
	  .help = "diloco: Nesterov momentum of the outer step" },
	{ .name = "n-fetch", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(n_fetch),
	  .fallback = "5", .min = 1, .max = 1 << 20,
	  .help = "downpour: steps between two fetches" },
	{ .name = "n-push", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(n_push),
	  .fallback = "5", .min = 1, .max = 1 << 20, .help = "downpour: steps between two pushes" },
	{ .name = "adagrad", .kind = TOOL_OPT_FLAG, .offset = AT(adagrad),
	  .help = "downpour: servers use Adagrad" },
	{ .name = "sim-compute-ms", .kind = TOOL_OPT_REAL, .argument = "T",
	  .offset = AT(sim_compute_ms), .fallback = "0", .min = 0, .max = 1e6,
	  .help = "minimum time of a gradient in ms; the rest is slept" },
	{ .name = "jitter", .kind = TOOL_OPT_REAL, .argument = "F", .offset = AT(jitter),
	  .fallback = "0", .min = 0, .max = 100,
	  .help = "additional time, up to F times T, at random, from --seed" },
	{ .name = "slow", .kind = TOOL_OPT_TEXT, .argument = "R:F,..", .offset = AT(slow),
	  .help = "rank R computes F times slower" },
	{ .name = "kill", .kind = TOOL_OPT_TEXT, .argument = "R@STEP,..", .offset = AT(kill),
	  .help = "rank R kills itself in step STEP" },
	{ .name = "check-replicas", .kind = TOOL_OPT_INT, .argument = "K",
	  .offset = AT(check_replicas), .fallback = "100", .min = 0, .max = 1 << 30,
	  .help = "check every K steps and at the end that all ranks have equal\n"
		  "parameters; 0: at the end only" },
	{ .name = "eval-every", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(eval_every),
	  .fallback = "0", .min = 0, .max = 1 << 30,
	  .help = "evaluate on the test set every N steps; 0: after each epoch" },
	{ .name = "metrics", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(metrics),
	  .help = "write a CSV line for every step" },
	{ .name = "jsonl", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(jsonl),
	  .help = "write a JSON line for every step" },
	{ .name = "timeline", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(timeline),
	  .help = "write time spans of every rank, for chrome://tracing" },
	{ .name = "hashes", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(hashes),
	  .help = "write hashes of the parameters for every step; see\n"
		  "tutti hashdiff" },
	{ .name = "hash-values", .kind = TOOL_OPT_INT, .argument = "STEP",
	  .offset = AT(hash_values), .fallback = "0", .min = 0, .max = 1 << 30,
	  .help = "write the parameters after STEP to --hashes as well" },
	{ .name = "save", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(save),
	  .help = "write a checkpoint at the end, and every --save-every steps" },
	{ .name = "save-every", .kind = TOOL_OPT_INT, .argument = "N", .offset = AT(save_every),
	  .fallback = "0", .min = 0, .max = 1 << 30, .help = "steps between checkpoints; 0: at the end only" },
	{ .name = "resume", .kind = TOOL_OPT_TEXT, .argument = "FILE", .offset = AT(resume),
	  .help = "resume from a checkpoint, with any number of ranks" },
	{ 0 }
};

static const struct tool_usage usage = {
	.tool = "tutti-train",
	.help = "Trains a network on images, data-parallel: every rank computes its share of a batch.\n"
		"tutti-strategies(7) describes the strategies.",
	.options = options,
};

/* Appends the line "NAME: TEXT". */
static void add_line(char help[1024], const char *name, const char *text)
{
	size_t used = strlen(help);

	snprintf(help + used, 1024 - used, "%s%s: %s", used ? "\n" : "", name, text);
}

static void list_tables(void)
{
	for (size_t i = 0; train_data_sources[i]; i++)
		add_line(data_help, train_data_sources[i]->name, train_data_sources[i]->help);
	add_line(data_help, "auto", "the first of these that is installed");
	for (size_t i = 0; train_models[i]; i++)
		add_line(model_help, train_models[i]->syntax, train_models[i]->help);
	for (size_t i = 0; train_strategies[i]; i++)
		add_line(strategy_help, train_strategies[i]->name, train_strategies[i]->help);
	for (size_t i = 0; train_devices[i]; i++)
		add_line(device_help, train_devices[i]->name, train_devices[i]->help);
}

void train_config_defaults(struct train_config *ret_config)
{
	char *nothing[] = { (char[]){ "tutti-train" }, NULL };

	tool_options_read(&usage, 1, nothing, ret_config);
}

int train_config_read(int argc, char **argv, struct train_config *ret_config)
{
	list_tables();
	return tool_options_read(&usage, argc, argv, ret_config);
}
