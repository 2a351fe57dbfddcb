/*
 * print.c - plans as text: table of formats, and the format "table" for people
 *
 *   lane 0  step 3  recv-reduce-send  from 2  out[1] <- in[1] + wire(2)  then send to 0  after lane
 *           1 step 2
 *
 * Operands are in the order of combination; wire(2) is the next message from rank 2 in that lane. A
 * step of several blocks names the first and the last. Steps are counted in records: a step of more
 * than two sources counts as two.
 */
#include "verify/print.h"

#include <string.h>

/* ---- text of one step ------------------------------------------------------------------------ */

const char *tt_step_name(const struct tt_step *s, char dash, char text[TT_STEP_NAME_BYTES])
{
	bool receives = false;
	size_t used = 0;

	for (int i = 0; i < s->nsrc; i++)
		receives |= tt_ref_is_wire(tt_step_source(s, i));
	const char *const parts[] = {
		s->op == TT_NOP ? "wait" : NULL,
		receives ? "recv" : NULL,
		s->op == TT_COMBINE ? "reduce" : NULL,
		s->op == TT_COPY && !receives && s->dst != TT_REF_NONE ? "copy" : NULL,
		s->to != TT_REF_NONE ? "send" : NULL,
	};

	text[0] = '\0';
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (!parts[i])
			continue;
		if (used)
			text[used++] = dash;
		strcpy(text + used, parts[i]);
		used += strlen(parts[i]);
	}
	return text;
}

static int ref_text(char *text, size_t bytes, tt_ref ref, uint32_t nblocks)
{
	uint32_t i = tt_ref_index(ref);

	if (tt_ref_is_wire(ref))
		return snprintf(text, bytes, "wire(%u)", i);
	if (nblocks == 1)
		return snprintf(text, bytes, "%s[%u]", tt_buf_name(tt_ref_buf(ref)), i);
	return snprintf(text, bytes, "%s[%u..%u]", tt_buf_name(tt_ref_buf(ref)), i,
			i + nblocks - 1);
}

const char *tt_step_text(const struct tt_step *s, char text[TT_STEP_TEXT_BYTES])
{
	size_t used = 0;

	text[0] = '\0';
	if (s->op == TT_NOP)
		return text;
	used += (size_t)ref_text(text, TT_STEP_TEXT_BYTES, s->dst != TT_REF_NONE ? s->dst : s->to,
				 s->nblocks);
	for (int i = 0; i < s->nsrc && used < TT_STEP_TEXT_BYTES - 40; i++) {
		used += (size_t)snprintf(text + used, TT_STEP_TEXT_BYTES - used,
					 i ? " + " : " <- ");
		used += (size_t)ref_text(text + used, TT_STEP_TEXT_BYTES - used,
					 tt_step_source(s, i), s->nblocks);
	}
	return text;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct step_row {
	char name[TT_STEP_NAME_BYTES], from[80], text[TT_STEP_TEXT_BYTES];
};

static void make_row(const struct tt_step *s, struct step_row *ret_row)
{
	size_t used = 0;

	tt_step_name(s, '-', ret_row->name);
	tt_step_text(s, ret_row->text);
	ret_row->from[0] = '\0';
	for (int i = 0; i < s->nsrc; i++)
		if (tt_ref_is_wire(tt_step_source(s, i)))
			used += (size_t)snprintf(ret_row->from + used, sizeof(ret_row->from) - used,
						 "%s%u", used ? "," : "from ",
						 tt_ref_index(tt_step_source(s, i)));
}

struct widths {
	int name, from, text;
};

static void widen(int *width, const char *text)
{
	if (*width < (int)strlen(text))
		*width = (int)strlen(text);
}

static void print_row(const struct tt_step *s, uint32_t lane, uint32_t index,
		      const struct widths *w, FILE *to)
{
	struct step_row row;
	char line[600];
	int n;

	make_row(s, &row);
	n = snprintf(line, sizeof(line), "lane %u  step %-3u  %-*s  %-*s  %-*s", lane, index,
		     w->name, row.name, w->from, row.from, w->text, row.text);
	if (s->to != TT_REF_NONE && s->dst != TT_REF_NONE)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "  then send to %u%s",
			      tt_ref_index(s->to), s->flags & TT_STEP_PASSING ? ", not kept" : "");
	if (s->flags & TT_STEP_INTERLEAVED)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "  interleaved with the next");
	if (s->wait_lane != TT_NO_LANE)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "  after lane %u step %u",
			      s->wait_lane, s->wait_step);
	while (n && line[n - 1] == ' ')
		n--;
	fprintf(to, "%.*s\n", n, line);
}

static void print_plan(const struct tt_plan *p, FILE *to)
{
	struct widths w = { 0 };
	struct step_row row;

	fprintf(to,
		"%s by %s: rank %d of %d, root %d; %u blocks of in, %u of out, %u of scratch, %s\n",
		tt_collective_name(p->collective), p->algorithm, p->rank, p->nranks, p->root,
		p->in_blocks, p->out_blocks, p->scratch_blocks - p->scratch_first,
		p->rule == TT_EVEN ? "an even split" : "equally long");
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t lane = 0; lane < p->nlanes; lane++) {
			for (uint32_t i = 0; i < p->lanes[lane].nsteps;
			     i += tt_step_records(tt_lane_step(p, lane, i))) {
				if (pass) {
					print_row(tt_lane_step(p, lane, i), lane, i, &w, to);
					continue;
				}
				make_row(tt_lane_step(p, lane, i), &row);
				widen(&w.name, row.name);
				widen(&w.from, row.from);
				widen(&w.text, row.text);
			}
		}
	}
}

static int print_table(struct tt_plan *const *plans, int nplans, bool all, FILE *to)
{
	(void)all;
	for (int i = 0; i < nplans; i++) {
		if (i)
			fputc('\n', to);
		print_plan(plans[i], to);
	}
	return TT_OK;
}

/* ---- formats --------------------------------------------------------------------------------- */

static const struct tt_print_format formats[] = {
	{ "table", "for people", print_table },
	{ "json", "every step, for programs", tt_print_json },
	{ "dot", "a picture, for Graphviz", tt_print_dot },
	{ "goal", "a schedule, for LogGOPSim", tt_print_goal },
	{ NULL, NULL, NULL },
};

const struct tt_print_format *tt_print_find(const char *name)
{
	char known[200] = "";

	for (const struct tt_print_format *f = formats; f->name; f++) {
		if (!strcmp(f->name, name))
			return f;
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
			 known[0] ? ", " : "", f->name);
	}
	tt_fail(TT_ARG, "unknown plan format \"%s\"; use %s", name, known);
	return NULL;
}

static int print(struct tt_plan *const *plans, int nplans, bool all, const char *format, FILE *to)
{
	const struct tt_print_format *f = tt_print_find(format);
	int rc = f ? f->print(plans, nplans, all, to) : TT_ARG;

	if (rc)
		return rc;
	return fflush(to) || ferror(to) ? tt_fail(TT_SYSTEM, "cannot print the plan: %m") : TT_OK;
}

int tt_plan_print_all(struct tt_plan *const *plans, int nranks, const char *format, FILE *to)
{
	return print(plans, nranks, true, format, to);
}

int tt_plan_print(const struct tt_plan *plan, const char *format, FILE *to)
{
	struct tt_plan *one = (struct tt_plan *)plan;

	return print(&one, 1, false, format, to);
}
