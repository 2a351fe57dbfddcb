/*
 * survival_draw.c - a seed becomes a scene; a scene becomes one line of text
 */
#include <stdio.h>
#include <string.h>

#include "tests/support/ranks.h"
#include "tests/survival/survival.h"

const char *const scene_kinds[SCENE_KINDS] = { "kill", "stop", "cut" };
const char *const scene_collectives[SCENE_COLLECTIVES] = {
	"allreduce", "reduce", "broadcast", "allgather", "reduce-scatter",
	"alltoall",  "gather", "scatter",   "barrier",
};
static const char *const cuts[CUTS] = { "the link down", "both ways lost",
					"messages of the victims lost",
					"messages to the victims lost" };

uint64_t scene_random(uint64_t seed, uint64_t index)
{
	return random_of(seed, index);
}

/* The k-th draw below n. */
static unsigned draw(const struct scene *s, unsigned k, unsigned n)
{
	return (unsigned)(random_of(s->seed, k) % n);
}

static int draw_size(const struct scene *s)
{
	unsigned z = draw(s, 1, 100);

	if (s->phase == 0 && z < 90)
		return 2 + (int)draw(s, 2, 7);
	return z < 60   ? 2 + (int)draw(s, 2, 5)
	       : z < 92 ? 4 + (int)draw(s, 2, 9)
	       : z < 98 ? 13 + (int)draw(s, 2, 20)
			: 33 + (int)draw(s, 2, 32);
}

/* One victim in most scenes, a few in others, all but one in some. */
static void draw_victims(struct scene *s)
{
	unsigned z = draw(s, 3, 100);
	int most = s->n - 1, last;

	s->nvictims = z < 55 ? 1 : z < 90 ? 1 + (int)draw(s, 4, (unsigned)most) : most;
	if (s->halves)
		s->nvictims = (s->n + (int)draw(s, 4, 2)) / 2;
	for (int left = s->nvictims, k = 0; left > 0; k++) {
		last = (int)draw(s, 100 + (unsigned)k, (unsigned)s->n);
		left -= !s->victim[last];
		s->victim[last] = true;
	}
}

static void draw_transport(struct scene *s)
{
	static const char *const names[] = { "shm", "tcp", "mixed", "verbs" };
	static const char *const waits[] = { "auto", "yield", "sleep", "auto" };
	static const char *const cmas[] = { "auto", "on", "off" };
	static const char *const algos[] = { "auto",          "auto",     "ring",
					     "tree",          "two-shot", "recursive-doubling",
					     "reduce-to-one", "auto" };
	/* processes of the fake libibverbs share a lock, which a stopped one may hold */
	unsigned z = draw(s, 5, s->n <= 8 && s->kind == SCENE_KILL ? 4 : 3);

	if (s->kind == SCENE_CUT) /* the halves share no memory */
		z = z == 0 ? 2 : z;
	s->transport = names[z];
	if (z >= 2 && s->kind != SCENE_CUT)
		s->hosts = s->n < 3 ? 2 : 2 + (int)draw(s, 6, 2);
	s->wait = s->kind == SCENE_KILL ? waits[draw(s, 7, 4)] : "auto";
	s->cma = cmas[draw(s, 8, 3)];
	s->algo = algos[draw(s, 9, 8)];
	s->shrink = !s->halves && draw(s, 10, 3) ? "any" : "majority";
}

/* The deadline ends the waits for stopped ranks and cuts; deaths are noticed long before. A shrink
 * gives up on a rank after half of it. */
static void draw_times(struct scene *s)
{
	const struct scene_phase *phase = &scene_phases[s->phase];
	unsigned slow = (unsigned)s->n * 20;

	s->timeout_ms = s->kind == SCENE_KILL ? 30000 : (int)(800 + slow + draw(s, 11, 600));
	if (phase->joining)
		s->timeout_ms = (int)(2500 + 2 * slow + draw(s, 11, 1000));
	if (!strcmp(phase->name, "shrink") && s->kind != SCENE_KILL)
		s->timeout_ms += 1800 + (int)slow;
	s->delay_us = draw(s, 12,
			   phase->joining   ? 3000 + 50 * slow
			   : draw(s, 22, 4) ? 30000
					    : 150000);
	s->spread_us = draw(s, 13, 2) ? 0 : draw(s, 14, 20000);
	if (!strcmp(phase->name, "shrink") && s->kind == SCENE_STOP && draw(s, 23, 2))
		s->spread_us = 1000u * (unsigned)s->timeout_ms + 700000 + draw(s, 14, 400000);
	s->abort_us = draw(s, 15, 30000);
}

void scene_draw(uint64_t seed, bool halves, struct scene *ret_scene)
{
	struct scene *s = ret_scene;
	unsigned cell = (unsigned)(seed % (unsigned)(scene_nphases * SCENE_KINDS)), most;

	*s = (struct scene){ .seed = seed, .halves = halves };
	s->kind = halves ? SCENE_CUT : cell % SCENE_KINDS;
	s->phase = (int)(cell / SCENE_KINDS);
	for (int p = 0; p < scene_nphases && halves; p++)
		if (!strcmp(scene_phases[p].name, "shrink"))
			s->phase = p;
	s->n = draw_size(s);
	draw_victims(s);
	draw_transport(s);
	draw_times(s);
	s->collective = draw(s, 16, SCENE_COLLECTIVES);
	most = scene_phases[s->phase].large ? 200000 : 2000;
	s->count = scene_phases[s->phase].large ? 20000 + draw(s, 17, most - 20000)
						: 1 + draw(s, 17, most);
	s->cut = draw(s, 18, CUTS);
	s->wake = s->kind == SCENE_STOP && draw(s, 19, 2);
	s->aborts_aside = draw(s, 20, 2);
	s->aborter = (int)draw(s, 21, (unsigned)s->n);
	while (s->victim[s->aborter])
		s->aborter = (s->aborter + 1) % s->n;
}

static size_t describe_victims(const struct scene *s, char *text, size_t bytes)
{
	size_t have = (size_t)snprintf(text, bytes, "rank%s", s->nvictims > 1 ? "s" : "");

	for (int r = 0; r < s->n && have < bytes; r++)
		if (s->victim[r])
			have += (size_t)snprintf(text + have, bytes - have, " %d", r);
	return have < bytes ? have : bytes;
}

void scene_describe(const struct scene *s, char *text, size_t bytes)
{
	const char *name = scene_phases[s->phase].name;
	size_t have = (size_t)snprintf(text, bytes, "%s, %s ", name, scene_kinds[s->kind]);

	have += describe_victims(s, text + have, bytes - have);
	if (s->kind == SCENE_CUT)
		have += (size_t)snprintf(text + have, bytes - have, " (%s)", cuts[s->cut]);
	have += (size_t)snprintf(text + have, bytes - have, " of %d, %s", s->n, s->transport);
	if (!strcmp(name, "small") || !strcmp(name, "large"))
		have += (size_t)snprintf(text + have, bytes - have, ", %s of %zu",
					 scene_collectives[s->collective], s->count);
	snprintf(text + have, bytes - have,
		 ", algo %s, wait %s, cma %s, shrink %s, timeout %d ms, after %u us over %u us%s",
		 s->algo, s->wait, s->cma, s->shrink, s->timeout_ms, s->delay_us, s->spread_us,
		 s->wake ? ", woken" : "");
}
