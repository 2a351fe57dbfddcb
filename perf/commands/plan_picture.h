/* plan_picture.h - a plan as a picture (SVG), and as an HTML page that steps through it, of `tutti plan` */
#ifndef TOOL_PLAN_PICTURE_H
#define TOOL_PLAN_PICTURE_H

#include <stdio.h>

#include "plan/plan.h"

/* A step of a rank at its place of the picture */
struct tool_drawn {
	const struct tt_step *step;
	int rank, lane;
	uint32_t index; /* in the lane */
	int row;        /* time: below all rows that it waits for */
};

struct tool_picture {
	struct tt_plan *const *plans; /* [nranks] */
	const struct tt_topology *topology;
	int nranks, nlanes, nrows, n;
	struct tool_drawn *drawn; /* [n] by rank, lane, index */
};

/* Places the steps of all ranks. 0 | TT_SYSTEM (no memory) | TT_INTERNAL (some step waits forever) */
int tool_picture_make(struct tt_plan *const *plans, const struct tt_topology *topology,
		      struct tool_picture *ret_picture);
void tool_picture_free(struct tool_picture *picture);
/* The step that sends the message that d takes from rank `from`; NULL: none */
const struct tool_drawn *tool_picture_sender(const struct tool_picture *p,
					     const struct tool_drawn *d, int from);

/* Each writes the whole picture or page; errors of the stream stay in ferror(to). */
void tool_picture_svg(const struct tool_picture *p, FILE *to);
void tool_picture_html(const struct tool_picture *p, FILE *to);

#endif
