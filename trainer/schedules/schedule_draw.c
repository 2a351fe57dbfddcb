/* schedule_draw.c - a schedule over time, as text and as SVG (schedule.h). Called by
 * schedule_command.c. */
#include "trainer/schedules/schedule.h"

#include "tools/plural.h"
#include "tools/svg.h"

#include <stdlib.h>
#include <string.h>

/* F: forward, B: backward, I: backward of the input, W: backward of the weights; 0: no computation */
static char symbol_of(enum train_step_kind kind)
{
	static const char symbols[] = "FBIW";

	return kind <= TRAIN_STEP_BACKWARD_WEIGHTS ? symbols[kind] : '\0';
}

/* "F12", and with several chunks a stage "F12b": the second of them. */
static void name_step(const struct train_schedule *s, struct train_schedule_step step,
		      char ret_name[16])
{
	bool chunked = s->chunks > s->stages;

	snprintf(ret_name, 16, "%c%d%.*s", symbol_of(step.kind), step.micro, chunked ? 1 : 0,
		 &"abcdefghijklmnopqrstuvwxyz"[step.chunk / s->stages]);
}

/* ---- text -------------------------------------------------------------------------------------- */

/* Columns of a stage: "F0   ", or "." where the stage is idle. */
static void draw_stage(FILE *to, const struct train_schedule *s,
		       const struct train_schedule_times *times, int stage, int width)
{
	const struct train_step_list *list = &s->list[stage];
	int column = 0;

	fprintf(to, "stage %-2d |", stage);
	for (int i = 0; i < list->n; i++) {
		char name[16];

		if (!symbol_of(list->step[i].kind))
			continue;
		name_step(s, list->step[i], name);
		for (; column < (int)times->of[stage][i].begin; column++)
			fprintf(to, " %-*s", width, ".");
		for (; column < (int)times->of[stage][i].end; column++)
			fprintf(to, " %-*s", width, name);
	}
	for (; column < (int)times->span; column++)
		fprintf(to, " %-*s", width, ".");
	fputs("\n", to);
}

void train_schedule_draw_text(FILE *to, const struct train_schedule *s,
			      const struct train_schedule_times *times)
{
	struct train_schedule_step longest = { TRAIN_STEP_FORWARD, 0, s->micro - 1 };
	char name[16];

	name_step(s, longest, name);
	for (int stage = 0; stage < s->stages; stage++)
		draw_stage(to, s, times, stage, (int)strlen(name));
}

/* ---- SVG --------------------------------------------------------------------------------------- */

enum { LEFT = 70, TOP = 40, ROW = 26, BELOW = 40 };

static void draw_box(FILE *to, const struct train_schedule *s, struct train_schedule_step step,
		     struct train_step_time time, double unit)
{
	double x = LEFT + time.begin * unit, y = TOP + ROW * (step.chunk % s->stages);
	double width = (time.end - time.begin) * unit;
	char name[16];

	name_step(s, step, name);
	fprintf(to,
		"<rect x='%.2f' y='%.2f' width='%.2f' height='%d' fill='%s' stroke='white'>"
		"<title>%s of chunk %d, micro-batch %d: %g to %g</title></rect>\n",
		x, y, width, ROW - 4, tool_svg_color(step.kind), train_step_name(step.kind),
		step.chunk, step.micro, time.begin, time.end);
	if (width >= 8 * (double)strlen(name))
		tool_svg_text(to, x + width / 2, y + ROW - 10,
			      "text-anchor='middle' font-size='11' fill='white'", "%s", name);
}

static void draw_legend(FILE *to, double y)
{
	double x = LEFT;

	for (int kind = TRAIN_STEP_FORWARD; kind <= TRAIN_STEP_BACKWARD_WEIGHTS; kind++) {
		fprintf(to, "<rect x='%.2f' y='%.2f' width='12' height='12' fill='%s'/>\n", x,
			y - 11, tool_svg_color(kind));
		tool_svg_text(to, x + 18, y, "font-size='12' fill='#222'", "%c: %s",
			      symbol_of((enum train_step_kind)kind),
			      train_step_name((enum train_step_kind)kind));
		x += 150;
	}
}

void train_schedule_draw_svg(FILE *to, const struct train_schedule *s,
			     const struct train_schedule_times *times)
{
	double unit = times->span > 0 ? 1000 / times->span : 1;

	tool_svg_open(to, LEFT + 1000 + 20, TOP + ROW * s->stages + BELOW);
	tool_svg_text(to, LEFT, 24, "font-size='14' fill='#222'",
		      "%s: %d stage%s, %d micro-batch%s, bubble %.1f %%", s->ops->name, s->stages,
		      tool_s(s->stages), s->micro, s->micro == 1 ? "" : "es", 100 * times->bubble);
	for (int stage = 0; stage < s->stages; stage++) {
		const struct train_step_list *list = &s->list[stage];

		tool_svg_text(to, 8, TOP + ROW * stage + 16, "font-size='12' fill='#222'",
			      "stage %d", stage);
		for (int i = 0; i < list->n; i++)
			if (symbol_of(list->step[i].kind))
				draw_box(to, s, list->step[i], times->of[stage][i], unit);
	}
	draw_legend(to, TOP + ROW * s->stages + 24);
	tool_svg_close(to);
}
