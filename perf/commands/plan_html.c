/*
 * plan_html.c - an HTML page that steps through a plan: its picture, and the blocks of each rank
 *
 * Called by cmd_plan.c. The page refers to no other file. Its script executes the plan on sets of
 * ranks: the value of a block is the set of ranks whose inputs are in it.
 */
#include "perf/commands/plan_picture.h"
#include "tools/plural.h"
#include "tools/svg.h"
#include "verify/walk.h"

static const char style[] =
	"body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:90em;padding:0 1em;color:#222}"
	"button{font:inherit;padding:.2em .8em;margin-right:.4em}svg{max-width:100%;height:auto}"
	".later{opacity:.3}table{border-collapse:collapse;font-size:13px}"
	"th,td{padding:.1em .6em;border:1px solid #ddd;text-align:left}"
	".whole{background:#d8efd8}.new{outline:2px solid #222}";

/* A step is {rank, lane, row, to, n, dst, srcs}: dst and a local source are [buffer, block], a message is
 * [rank]; to: null or a rank; n: blocks. */
static const char script[] =
	"'use strict';\n"
	"let now = 0;\n"
	"function union(values) {\n"
	"  const all = new Set(values.flatMap(v => [...v]));\n"
	"  return [...all].sort((a, b) => a - b);\n"
	"}\n"
	"function execute(rows) {\n"
	"  const memory = new Map(), wires = new Map(), fresh = new Set();\n"
	"  const key = (...parts) => parts.join(' ');\n"
	"  const range = (n, f) => Array.from({ length: n }, (_, i) => f(i));\n"
	"  const read = (rank, buf, block) =>\n"
	"    memory.get(key(rank, buf, block)) || (buf === 'in' ? [rank] : []);\n"
	"  const wire = k => wires.has(k) ? wires.get(k) : wires.set(k, []).get(k);\n"
	"  for (const s of plan.steps) {\n"
	"    if (s.row >= rows) break;\n"
	"    const parts = s.srcs.map(src => src.length === 1\n"
	"      ? wire(key(src[0], s.rank, s.lane)).shift()\n"
	"      : range(s.n, i => read(s.rank, src[0], src[1] + i)));\n"
	"    const value = range(s.n, i => union(parts.map(p => p[i])));\n"
	"    if (s.to !== null) wire(key(s.rank, s.to, s.lane)).push(value);\n"
	"    if (s.dst) value.forEach((v, i) => {\n"
	"      memory.set(key(s.rank, s.dst[0], s.dst[1] + i), v);\n"
	"      if (s.row === rows - 1) fresh.add(key(s.rank, s.dst[0], s.dst[1] + i));\n"
	"    });\n"
	"  }\n"
	"  return { memory, fresh };\n"
	"}\n"
	"function show(rows) {\n"
	"  now = Math.min(Math.max(rows, 0), plan.rows);\n"
	"  document.getElementById('now').textContent = `step ${now} of ${plan.rows}`;\n"
	"  for (const g of document.querySelectorAll('[data-row]'))\n"
	"    g.classList.toggle('later', +g.dataset.row >= now);\n"
	"  const { memory, fresh } = execute(now);\n"
	"  for (const cell of document.querySelectorAll('td[data-block]')) {\n"
	"    const value = memory.get(cell.dataset.block) || [];\n"
	"    cell.textContent = value.length === plan.ranks && value.length > 2 ? 'all' : value.join(' ');\n"
	"    cell.classList.toggle('whole', value.length === plan.ranks);\n"
	"    cell.classList.toggle('new', fresh.has(cell.dataset.block));\n"
	"  }\n"
	"}\n"
	"document.getElementById('first').onclick = () => show(0);\n"
	"document.getElementById('back').onclick = () => show(now - 1);\n"
	"document.getElementById('next').onclick = () => show(now + 1);\n"
	"document.getElementById('last').onclick = () => show(plan.rows);\n"
	"document.onkeydown = e => {\n"
	"  if (e.key === 'ArrowRight') show(now + 1);\n"
	"  if (e.key === 'ArrowLeft') show(now - 1);\n"
	"};\n"
	"show(0);\n";

static void write_operand(tt_ref ref, FILE *to)
{
	if (tt_ref_is_wire(ref))
		fprintf(to, "[%u]", tt_ref_index(ref));
	else
		fprintf(to, "[\"%s\",%u]", tt_buf_name(tt_ref_buf(ref)), tt_ref_index(ref));
}

static void write_step(const struct tool_drawn *d, FILE *to)
{
	const struct tt_step *s = d->step;

	fprintf(to, "{\"rank\":%d,\"lane\":%d,\"row\":%d,\"n\":%u,\"to\":", d->rank, d->lane,
		d->row, s->nblocks);
	if (s->to == TT_REF_NONE)
		fputs("null", to);
	else
		fprintf(to, "%u", tt_ref_index(s->to));
	fputs(",\"dst\":", to);
	if (s->dst == TT_REF_NONE)
		fputs("null", to);
	else
		write_operand(s->dst, to);
	fputs(",\"srcs\":[", to);
	for (int i = 0; i < s->nsrc; i++) {
		fputs(i ? "," : "", to);
		write_operand(tt_step_source(s, i), to);
	}
	fputs("]},\n", to);
}

/* In the order of execution: by row */
static void write_plan(const struct tool_picture *p, FILE *to)
{
	fprintf(to, "const plan = {ranks: %d, rows: %d, steps: [\n", p->nranks, p->nrows);
	for (int row = 0; row < p->nrows; row++)
		for (int i = 0; i < p->n; i++)
			if (p->drawn[i].row == row && p->drawn[i].step->op != TT_NOP)
				write_step(&p->drawn[i], to);
	fputs("]};\n", to);
}

/* A row for each rank, a column for each block of its output */
static void write_blocks(const struct tool_picture *p, FILE *to)
{
	uint32_t most = 0;

	for (int r = 0; r < p->nranks; r++)
		most = p->plans[r]->out_blocks > most ? p->plans[r]->out_blocks : most;
	fputs("<table><tr><th>output of</th>", to);
	for (uint32_t b = 0; b < most; b++)
		fprintf(to, "<th>block %u</th>", b);
	fputs("</tr>\n", to);
	for (int r = 0; r < p->nranks; r++) {
		fprintf(to, "<tr><th>rank %d</th>", r);
		for (uint32_t b = 0; b < p->plans[r]->out_blocks; b++)
			fprintf(to, "<td data-block='%d out %u'></td>", r, b);
		fputs("</tr>\n", to);
	}
	fputs("</table>\n", to);
}

void tool_picture_html(const struct tool_picture *p, FILE *to)
{
	const struct tt_plan *first = p->plans[0];

	fputs("<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>", to);
	tool_svg_escape(to, first->algorithm);
	fprintf(to, " %s of %d rank%s</title>\n<style>%s</style></head><body>\n<h1>",
		tt_collective_name(first->collective), p->nranks, tool_s(p->nranks), style);
	tool_svg_escape(to, first->algorithm);
	fprintf(to, " %s of %d rank%s</h1>\n", tt_collective_name(first->collective), p->nranks,
		tool_s(p->nranks));
	fputs("<p><button id='first'>first</button><button id='back'>back</button>"
	      "<button id='next'>next</button><button id='last'>last</button> <b id='now'></b>"
	      " (or the keys left and right)</p>\n"
	      "<p>A cell has the ranks whose inputs are in the block; its border is thick where the"
	      " latest step stored it.</p>\n",
	      to);
	write_blocks(p, to);
	tool_picture_svg(p, to);
	fputs("<script>\n", to);
	write_plan(p, to);
	fprintf(to, "%s</script></body></html>\n", script);
}
