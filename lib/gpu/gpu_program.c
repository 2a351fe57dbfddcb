/*
 * gpu_program.c - a plan in an order in which streams can run it
 *
 * Called by gpu_plan.c. A plan's lanes advance independently, a stream runs one thing
 * after the other. So every rank plays the plans of all ranks through, each in the same
 * way, and writes its own steps down as they come: a step is played when what it waits
 * for has been played, hence no stream can wait for a step that lies behind one that
 * waits for it. In the same way all ranks come to know where each message lies: it has
 * a place of its own in its sender's area, and a word of its own on its receiver's
 * desk, so that nothing needs to be given back before the whole plan is through.
 */
#include <stdlib.h>
#include <string.h>

#include "verify/walk.h"
#include "gpu/gpu_call.h"

struct message { uint8_t from, to, lane; bool taken; uint32_t place, word; };

struct player {
	int n, me;
	struct tt_plan *plan[TT_DEV_RANKS];
	uint32_t at[TT_DEV_RANKS][TT_MAX_LANES];
	uint32_t places[TT_DEV_RANKS], words[TT_DEV_RANKS];      /* given out so far */
	struct message *messages;
	uint32_t count, untaken;               /* messages before `untaken` are all taken */
	struct tt_gpu_program *program;
};

/* The next message that this lane of `to` takes from `from`,
 * behind `skip` others; NULL: it was not sent yet. */
static struct message *next_of(struct player *p, uint32_t from, uint32_t to, uint32_t lane,
			       uint32_t skip)
{
	while (p->untaken < p->count && p->messages[p->untaken].taken)
		p->untaken++;
	for (uint32_t i = p->untaken; i < p->count; i++) {
		struct message *m = &p->messages[i];

		if (!m->taken && m->from == from && m->to == to && m->lane == lane && skip-- == 0)
			return m;
	}
	return NULL;
}

/* How many sources before this one are messages of the same rank? */
static uint32_t earlier(const struct tt_step *s, int source)
{
	uint32_t count = 0;

	for (int i = 0; i < source; i++)
		count += tt_step_source(s, i) == tt_step_source(s, source);
	return count;
}

static bool may_play(struct player *p, uint32_t r, uint32_t lane, const struct tt_step *s)
{
	if (s->wait_lane != TT_NO_LANE && p->at[r][s->wait_lane] <= s->wait_step)
		return false;
	for (int i = 0; i < s->nsrc && s->op != TT_NOP; i++) {
		tt_ref ref = tt_step_source(s, i);

		if (tt_ref_is_wire(ref) && !next_of(p, tt_ref_index(ref), r, lane, earlier(s, i)))
			return false;
	}
	return true;
}

static struct tt_gpu_operand operand(tt_ref ref, const struct message *m)
{
	return (struct tt_gpu_operand){ .ref = ref,
					.place = m ? m->place : 0,
					.word = m ? m->word : 0 };
}

static struct message *send(struct player *p, uint32_t r, uint32_t lane, const struct tt_step *s)
{
	uint32_t to = tt_ref_index(s->to);
	struct message *m = &p->messages[p->count++];

	*m = (struct message){ .from = (uint8_t)r, .to = (uint8_t)to, .lane = (uint8_t)lane,
			       .place = p->places[r], .word = p->words[to]++ };
	p->places[r] += s->nblocks;
	return m;
}

static void play(struct player *p, uint32_t r, uint32_t lane, const struct tt_step *s)
{
	struct tt_gpu_act act = { .combines = s->op == TT_COMBINE, .nsrc = s->nsrc,
				  .nblocks = s->nblocks, .dst = s->dst,
				  .of = tt_ref_is_local(s->dst) ? s->dst : s->src[0] };

	if (s->op == TT_NOP)
		return;
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);
		struct message *m =
			tt_ref_is_wire(ref) ? next_of(p, tt_ref_index(ref), r, lane, 0) : NULL;

		if (m)
			m->taken = true;
		act.src[i] = operand(ref, m);
	}
	act.to = operand(s->to, tt_ref_is_wire(s->to) ? send(p, r, lane, s) : NULL);
	if (s->flags & TT_STEP_PASSING)
		act.dst = TT_REF_NONE;
	if ((int)r == p->me)
		p->program->acts[p->program->nacts++] = act;
}

/* Each lane of each rank a step, if it can. Returns whether any could. */
static bool round_of(struct player *p)
{
	bool any = false;

	for (uint32_t r = 0; r < (uint32_t)p->n; r++)
		for (uint32_t lane = 0; lane < p->plan[r]->nlanes; lane++) {
			const struct tt_step *s = tt_lane_step(p->plan[r], lane, p->at[r][lane]);

			if (p->at[r][lane] >= p->plan[r]->lanes[lane].nsteps ||
			    !may_play(p, r, lane, s))
				continue;
			play(p, r, lane, s);
			p->at[r][lane] += tt_step_records(s);
			any = true;
		}
	return any;
}

static int build_plans(struct player *p, const struct tt_cached_plan *cached,
		       const struct tt_topology *topology)
{
	uint32_t steps = 1;
	int rc;

	for (int r = 0; r < p->n; r++) {
		struct tt_shape shape = { .collective = cached->plan->collective, .nranks = p->n,
					  .rank = r, .root = cached->root, .topology = topology };

		rc = tt_plan_build(cached->algorithm, cached->plan->algorithm, &shape, &p->plan[r]);
		if (rc)
			return rc;
		steps += p->plan[r]->nsteps;
	}
	p->messages = malloc(steps * sizeof(*p->messages));
	p->program =
		calloc(1, sizeof(*p->program) + cached->plan->nsteps * sizeof(p->program->acts[0]));
	return p->messages && p->program
		       ? 0
		       : tt_fail(TT_SYSTEM, "rank %d: no memory for a program of %u steps", p->me,
				 cached->plan->nsteps);
}

static int finish(struct player *p, const struct tt_cached_plan *cached)
{
	for (int r = 0; r < p->n; r++) {
		uint32_t needs = p->places[r] + p->plan[r]->scratch_blocks;

		for (uint32_t lane = 0; lane < p->plan[r]->nlanes; lane++)
			if (p->at[r][lane] < p->plan[r]->lanes[lane].nsteps)
				return tt_fail(TT_INTERNAL,
					"rank %d: rank %d's part of %s stands still at step %u of lane %u",
					p->me, r, cached->plan->algorithm, p->at[r][lane], lane);
		if (p->words[r] > TT_DEV_WORDS)
			return tt_fail(TT_USAGE,
				"rank %d: %s has %u messages for rank %d; on device memory %d are possible: "
				"choose another algorithm", p->me, cached->plan->algorithm,
				p->words[r], r, TT_DEV_WORDS);
		if (needs > p->program->places)
			p->program->places = needs;
	}
	p->program->sent = p->places[p->me];
	p->program->cached = cached;
	return 0;
}

int tt_gpu_program(const struct tt_cached_plan *cached, const struct tt_topology *topology,
		   struct tt_gpu_program **ret_program)
{
	struct player p = { .n = cached->plan->nranks, .me = cached->plan->rank };
	int rc = build_plans(&p, cached, topology);

	while (!rc && round_of(&p))
		;
	if (!rc)
		rc = finish(&p, cached);
	for (int r = 0; r < p.n; r++)
		tt_plan_free(p.plan[r]);
	free(p.messages);
	if (rc)
		free(p.program);
	else
		*ret_program = p.program;
	return rc;
}
