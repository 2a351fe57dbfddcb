/*
 * survival_judge.c - is the error of a survivor the documented one, in time, and about the right rank?
 *
 * A text is right if it mentions a victim, and says of no live rank that it died. Of a live rank it
 * may say that it did not take part or did not answer: this is so where that rank waited for a victim,
 * or where every chain of control connections to it led through victims. The table counts such texts.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/survival/survival.h"

/* Deaths are noticed within 2 s; stops and cuts 1 s after the deadline. */
#define DEATH_MS 2000
#define LATE_MS 1000

static const char *const deaths[] = { "died", "is dead", "is cut off", "is gone", NULL };
static const char *const absences[] = { "is not answering",  "are not answering",
					"did not join",      "did not answer",
					"did not take part", "did not call",
					"accepted no byte",  NULL };

bool scene_may_name(const struct scene_rank *w, int other)
{
	const struct scene *s = w->s;

	if (other < 0 || other >= s->n || other == w->rank)
		return false;
	if (!strcmp(scene_phases[s->phase].name, "abort") && other == s->aborter)
		return true;
	return s->kind == SCENE_CUT ? s->victim[other] != s->victim[w->rank] : s->victim[other];
}

/* Neighbors in the tree (fan-out 8, root 0) or in the ring */
static bool are_neighbors(int a, int b, int n)
{
	int low = a < b ? a : b, high = a < b ? b : a;

	return high - low == 1 || high - low == n - 1 || (high - 1) / 8 == low;
}

bool scene_can_know(const struct scene_rank *w, int other)
{
	bool reached[SCENE_RANKS] = { 0 }, grows = true;
	int n = w->s->n;

	reached[w->rank] = true;
	while (grows) {
		grows = false;
		for (int a = 0; a < n; a++)
			for (int b = 0; b < n && reached[a]; b++)
				if (!reached[b] && !scene_may_name(w, b) && are_neighbors(a, b, n))
					reached[b] = grows = true;
	}
	for (int a = 0; a < n; a++)
		if (reached[a] && are_neighbors(a, other, n))
			return true;
	return false;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Finds the next "rank 3" or "ranks 2, 5 to 7 and 9" from *at on; *at is then behind it. Returns
 * how many numbers, 0: none is left. */
static int next_ranks(const char **at, int ranks[SCENE_RANKS])
{
	const char *p = *at;
	int n = 0;

	while ((p = strstr(p, "rank"))) {
		p += p[4] == 's' ? 5 : 4;
		if (*p++ == ' ' && isdigit((unsigned char)*p))
			break;
	}
	while (p && n < SCENE_RANKS) {
		ranks[n++] = (int)strtol(p, (char **)(uintptr_t)&p, 10);
		if (!strncmp(p, " to ", 4) && isdigit((unsigned char)p[4])) {
			int last = (int)strtol(p + 4, (char **)(uintptr_t)&p, 10);

			while (n < SCENE_RANKS && ranks[n - 1] < last) {
				ranks[n] = ranks[n - 1] + 1;
				n++;
			}
		}
		*at = p;
		p += !strncmp(p, ", ", 2) ? 2 : !strncmp(p, " and ", 5) ? 5 : 0;
		if (p == *at || !isdigit((unsigned char)*p))
			break;
	}
	return n;
}

/* Does the text go on with one of the words? */
static bool goes_on(const char *p, const char *const *words)
{
	if (!strncmp(p, " (", 2) && strchr(p, ')')) /* "rank 3 (on host h)" */
		p = strchr(p, ')') + 1;
	if (!strncmp(p, " of the parent communicator", 27))
		p += 27;
	for (; *words; words++)
		if (*p == ' ' && !strncmp(p + 1, *words, strlen(*words)))
			return true;
	return false;
}

/* Where frames are lost in one direction only, the other side may report to each side that it is
 * cut off. */
static bool may_be_called_dead(const struct scene_rank *w, int other)
{
	return scene_may_name(w, other) ||
	       (w->s->kind == SCENE_CUT && w->s->cut >= CUT_FROM_VICTIMS);
}

void scene_judge_text(struct scene_rank *w, const char *text)
{
	int ranks[SCENE_RANKS], n;
	/* a split that fails while the parent is well speaks of its own numbers */
	bool named = strstr(text, "in the new communicator");

	for (const char *p = text; (n = next_ranks(&p, ranks));)
		while (n--) {
			bool may = may_be_called_dead(w, ranks[n]);

			named |= may && ranks[n] != w->rank;
			if (may)
				continue;
			if (goes_on(p, deaths))
				scene_problem(w, "rank %d lives, and is called dead: %s", ranks[n],
					      text);
			w->report->also |= goes_on(p, absences);
		}
	if (!named)
		scene_problem(w, "the text names no victim: %s", text);
}

/* ---- the time -------------------------------------------------------------------------------- */

/* The documented bound stays a figure of the table. A machine may be slow: a notice takes several
 * turns of several processes, so a scene fails only beyond three times the bound and a multiple of
 * the longest delay by which a short sleep overran during this scene. */
double scene_allowed_ms(const struct scene_shared *sh, double bound_ms)
{
	return 3 * bound_ms + 50e-6 * (double)sh->delay_ns;
}

void scene_noticed(struct scene_rank *w, double bound_ms)
{
	uint64_t now = scene_now_ns(), from = w->sh->fault_ns;
	struct scene_report *r = w->report;

	if (w->s->kind != SCENE_KILL && w->begin_ns > from)
		from = w->begin_ns;
	r->notice_ms = from && now > from ? (double)(now - from) * 1e-6 : 0;
	r->bound_ms = bound_ms;
	memcpy(r->noticed_in, r->doing, sizeof(r->noticed_in));
	r->noticed = true;
	if (r->notice_ms > scene_allowed_ms(w->sh, bound_ms))
		scene_problem(w, "noticed after %.0f ms where %.0f are documented: %s",
			      r->notice_ms, bound_ms, r->text);
}

/* ---- the sides of a cut ---------------------------------------------------------------------- */

int scene_sides(const struct scene_shared *sh)
{
	int sides = 0;

	for (int r = 0; r < sh->scene.n && sh->scene.kind == SCENE_CUT; r++)
		sides |= sh->rank[r].went_on << sh->scene.victim[r];
	return sides;
}

/* ---- the error ------------------------------------------------------------------------------- */

void scene_judge_error_within(struct scene_rank *w, double bound_ms)
{
	const struct scene *s = w->s;
	struct scene_report *r = w->report;
	bool joining = scene_phases[s->phase].joining;
	bool aborts = !strcmp(scene_phases[s->phase].name, "abort");

	if (!w->sh->fault_ns && !aborts)
		scene_problem(w, "an error before the fault, %d: %s", r->code, r->text);
	if (r->code != tuttiRemoteError &&
	    (r->code != tuttiTimeout || (s->kind == SCENE_KILL && !joining)))
		scene_problem(w, "code %d: %s", r->code, r->text);
	scene_judge_text(w, r->text);
	scene_noticed(w, bound_ms);
}

void scene_judge_error(struct scene_rank *w)
{
	bool at_once = w->s->kind == SCENE_KILL && !scene_phases[w->s->phase].joining;

	scene_judge_error_within(w, at_once ? DEATH_MS : w->s->timeout_ms + LATE_MS);
}

/* No live rank counts as dead. */
void scene_judge_states(struct scene_rank *w)
{
	tuttiRankState_t state;

	for (int r = 0; r < w->s->n; r++) {
		if (r == w->rank || tuttiCommRankState(w->comm, r, &state) ||
		    state != tuttiRankDead || scene_may_name(w, r))
			continue;
		scene_problem(w, "rank %d lives, and its state is dead", r);
	}
}
