/*
 * gpu_program.c - put the steps of a plan in an order in which streams can run them
 *
 * Called by gpu_plan.c. The lanes of a plan advance independently, but a stream runs its operations
 * one after the other. So every rank simulates the plans of all ranks, all in the same order, and
 * records its own steps as they are played. A step is played after all steps that it depends on,
 * hence no stream waits for a step that is queued behind the waiting one: streams cannot deadlock.
 * The simulation also gives all ranks the same address of each message: a slot in its sender's IPC
 * buffer and a word among its receiver's host words. Each message has its own slot and word, so neither is
 * reused before the whole plan has run.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "gpu/gpu_call.h"

struct program_message {
	uint8_t from, to, lane;
	bool taken;
	uint32_t slot, word;
};

struct plan_player {
	int n, me;
	struct tt_plan *plan[TT_DEV_RANKS];
	uint32_t at[TT_DEV_RANKS][TT_MAX_LANES];
	uint32_t slots[TT_DEV_RANKS], words[TT_DEV_RANKS]; /* allocated so far */
	struct program_message *messages;
	uint32_t count, untaken; /* messages before `untaken` are all taken */
	struct tt_gpu_program *program;
};

/* The next message that this lane of `to` receives from `from`, after `skip` others; NULL: not sent
 * yet. */
static struct program_message *next_of(struct plan_player *p, uint32_t from, uint32_t to,
				       uint32_t lane, uint32_t skip)
{
	while (p->untaken < p->count && p->messages[p->untaken].taken)
		p->untaken++;
	for (uint32_t i = p->untaken; i < p->count; i++) {
		struct program_message *m = &p->messages[i];

		if (!m->taken && m->from == from && m->to == to && m->lane == lane && skip-- == 0)
			return m;
	}
	return NULL;
}

/* The number of earlier sources of the step that are messages of the same rank */
static uint32_t earlier(const struct tt_step *s, int source)
{
	uint32_t count = 0;

	for (int i = 0; i < source; i++)
		count += tt_step_source(s, i) == tt_step_source(s, source);
	return count;
}

static bool may_play(struct plan_player *p, uint32_t r, uint32_t lane, const struct tt_step *s)
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

static struct tt_gpu_operand operand(tt_ref ref, const struct program_message *m)
{
	return (struct tt_gpu_operand){ .ref = ref,
					.slot = m ? m->slot : 0,
					.word = m ? m->word : 0 };
}

static struct program_message *send(struct plan_player *p, uint32_t r, uint32_t lane,
				    const struct tt_step *s)
{
	uint32_t to = tt_ref_index(s->to);
	struct program_message *m = &p->messages[p->count++];

	*m = (struct program_message){ .from = (uint8_t)r,
				       .to = (uint8_t)to,
				       .lane = (uint8_t)lane,
				       .slot = p->slots[r],
				       .word = p->words[to]++ };
	p->slots[r] += s->nblocks;
	return m;
}

static void play(struct plan_player *p, uint32_t r, uint32_t lane, const struct tt_step *s)
{
	struct tt_gpu_act act = { .combines = s->op == TT_COMBINE,
				  .nsrc = s->nsrc,
				  .nblocks = s->nblocks,
				  .dst = s->dst,
				  .of = tt_ref_is_local(s->dst) ? s->dst : s->src[0] };

	if (s->op == TT_NOP)
		return;
	for (int i = 0; i < s->nsrc; i++) {
		tt_ref ref = tt_step_source(s, i);
		struct program_message *m = tt_ref_is_wire(ref)
						    ? next_of(p, tt_ref_index(ref), r, lane, 0)
						    : NULL;

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

/* Plays one step of each lane of each rank that can advance. Returns whether any could. */
static bool play_round(struct plan_player *p)
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

static int build_plans(struct plan_player *p, const struct tt_cached_plan *cached,
		       const struct tt_topology *topology)
{
	uint32_t steps = 1;
	int rc;

	for (int r = 0; r < p->n; r++) {
		struct tt_shape shape = { .collective = cached->plan->collective,
					  .nranks = p->n,
					  .rank = r,
					  .root = cached->root,
					  .topology = topology };

		rc = tt_plan_build(cached->algorithm, cached->plan->algorithm, &shape, &p->plan[r]);
		if (rc)
			return rc;
		steps += p->plan[r]->nsteps;
	}
	p->messages = malloc(steps * sizeof(*p->messages));
	p->program = calloc(1, sizeof(*p->program) +
				       cached->plan->nsteps * sizeof(p->program->acts[0]));
	return p->messages && p->program
		       ? 0
		       : tt_fail(TT_SYSTEM, "rank %d: no memory for a program of %u steps", p->me,
				 cached->plan->nsteps);
}

static int finish(struct plan_player *p, const struct tt_cached_plan *cached)
{
	for (int r = 0; r < p->n; r++) {
		uint32_t needs = p->slots[r] + p->plan[r]->scratch_blocks -
				 p->plan[r]->scratch_first;

		for (uint32_t lane = 0; lane < p->plan[r]->nlanes; lane++)
			if (p->at[r][lane] < p->plan[r]->lanes[lane].nsteps)
				return tt_fail(
					TT_INTERNAL,
					"rank %d: rank %d's plan of %s deadlocks at step %u of lane %u",
					p->me, r, cached->plan->algorithm, p->at[r][lane], lane);
		if (p->words[r] > TT_DEV_MESSAGES)
			return tt_fail(
				TT_USAGE,
				"rank %d: %s has %u messages for rank %d; its host words have room for %d: "
				"choose another algorithm",
				p->me, cached->plan->algorithm, p->words[r], r, TT_DEV_MESSAGES);
		if (needs > p->program->slots)
			p->program->slots = needs;
	}
	p->program->sent = p->slots[p->me];
	p->program->cached = cached;
	return 0;
}

int tt_gpu_program_make(const struct tt_cached_plan *cached, const struct tt_topology *topology,
			struct tt_gpu_program **ret_program)
{
	struct plan_player p = { .n = cached->plan->nranks, .me = cached->plan->rank };
	int rc = build_plans(&p, cached, topology);

	while (!rc && play_round(&p))
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
