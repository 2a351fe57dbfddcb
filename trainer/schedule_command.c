/* schedule_command.c - `tutti-train schedule` (schedule_command.h); calls schedules/ */
#include "trainer/schedule_command.h"

#include "tools/fresh_file.h"
#include "tools/options.h"
#include "tools/output.h"
#include "trainer/base/fail.h"
#include "trainer/schedules/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOOL "tutti-train schedule"

enum { COLUMNS_MAX = 400 };

struct schedule_options {
	int64_t stages, micro, forward, input, weights, send;
	const char *svg;
	bool steps;
};

#define AT(field) offsetof(struct schedule_options, field)
#define TIME(text, field, fall, about)                                                       \
	{                                                                                    \
		.name = text, .kind = TOOL_OPT_INT, .argument = "TIME", .offset = AT(field), \
		.fallback = fall, .min = 0, .max = 1000, .help = about                       \
	}
static const struct tool_option options[] = {
	{ .name = "stages",
	  .kind = TOOL_OPT_INT,
	  .argument = "S",
	  .offset = AT(stages),
	  .fallback = "4",
	  .min = 1,
	  .max = TRAIN_STAGES_MAX,
	  .help = "stages of the pipeline" },
	{ .name = "micro",
	  .kind = TOOL_OPT_INT,
	  .argument = "M",
	  .offset = AT(micro),
	  .fallback = "8",
	  .min = 1,
	  .max = TRAIN_MICRO_MAX,
	  .help = "micro-batches of a step" },
	TIME("forward", forward, "1", "duration of a chunk's forward pass"),
	TIME("backward-input", input, "1", "duration of the gradient of a chunk's input"),
	TIME("backward-weights", weights, "1", "duration of the gradient of a chunk's weights"),
	TIME("send", send, "0", "duration of a message"),
	{ .name = "svg",
	  .kind = TOOL_OPT_TEXT,
	  .argument = "FILE",
	  .offset = AT(svg),
	  .help = "write the drawing as SVG" },
	{ .name = "steps",
	  .kind = TOOL_OPT_FLAG,
	  .offset = AT(steps),
	  .help = "print the list of steps of every stage" },
	{ 0 }
};

static const struct tool_usage usage = {
	.tool = TOOL,
	.help = "NAME is gpipe, 1f1b, interleaved:V, zero-bubble or wavefront. Proves the schedule,\n"
		"simulates it and draws it; tutti-train-schedule(1) explains the output.",
	.options = options,
	.operands = "NAME",
};

static int print_error(void)
{
	fprintf(stderr, TOOL ": %s\n", train_error());
	return 1;
}

static void print_steps(const struct train_schedule *s)
{
	for (int stage = 0; stage < s->stages; stage++) {
		printf("stage %d\n", stage);
		for (int i = 0; i < s->list[stage].n; i++) {
			struct train_schedule_step step = s->list[stage].step[i];

			printf("\t%s chunk %d", train_step_name(step.kind), step.chunk);
			if (step.kind != TRAIN_STEP_REDUCE && step.kind != TRAIN_STEP_UPDATE)
				printf(" micro-batch %d", step.micro);
			if (train_step_is_send(step.kind) || train_step_is_receive(step.kind))
				printf(" %s stage %d",
				       train_step_is_send(step.kind) ? "to" : "from",
				       train_step_peer(s, step));
			printf("\n");
		}
	}
}

static void print_figures(const struct train_schedule *s, const struct train_costs *costs,
			  const struct train_schedule_proof *proof,
			  const struct train_schedule_times *times)
{
	double formula = s->ops->span(s, costs);

	printf("proved: %d messages match, no deadlock, gradients as on one device\n",
	       proof->sends);
	printf("time %g, bubble %.4f", times->span, times->bubble);
	if (formula >= 0)
		printf(" (time by the formula without messages: %g)", formula);
	printf("\nactivations of micro-batches that a stage keeps:");
	for (int stage = 0; stage < s->stages; stage++)
		printf(" %d", proof->activations[stage]);
	printf("\n");
}

static int write_svg(const char *path, const struct train_schedule *s,
		     const struct train_schedule_times *times)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	bool good = to != NULL;
	int rc = TRAIN_OK;

	if (to) {
		train_schedule_draw_svg(to, s, times);
		good = !fclose(to);
	}
	errno = good ? 0 : ENOMEM;
	if (!good || tool_file_write(path, text, bytes))
		rc = train_fail(TRAIN_FAILED, "--svg %s: %m", path);
	free(text);
	return rc;
}

static int show(const struct schedule_options *o, const struct train_schedule *s)
{
	struct train_costs costs = { (double)o->forward, (double)o->input, (double)o->weights,
				     (double)o->send };
	struct train_schedule_proof proof;
	struct train_schedule_times times = { 0 };
	int rc = train_schedule_check(s, &proof);

	if (!rc)
		rc = train_schedule_simulate(s, &costs, &times);
	if (!rc && o->steps)
		print_steps(s);
	if (!rc && !o->steps && times.span <= COLUMNS_MAX)
		train_schedule_draw_text(stdout, s, &times);
	if (!rc)
		print_figures(s, &costs, &proof, &times);
	if (!rc && o->svg)
		rc = write_svg(o->svg, s, &times);
	train_schedule_times_free(&times);
	return rc;
}

int train_schedule_command(int argc, char **argv)
{
	struct schedule_options o;
	struct train_schedule s;
	int rc = tool_options_read(&usage, argc, argv, &o);
	const char *name = *tool_arguments();

	if (rc)
		return rc == 1 ? tool_output_end(TOOL, 0) : 2;
	if (!name)
		return tool_refuse(TOOL, "no schedule; name one, such as 1f1b --stages 4");
	rc = train_schedule_open(&s, name, (int)o.stages, (int)o.micro);
	if (!rc)
		rc = show(&o, &s);
	train_schedule_close(&s);
	if (rc)
		print_error();
	return tool_output_end(TOOL, -rc);
}
