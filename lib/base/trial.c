/*
 * trial.c - see trial.h; used by local/single_copy_choice.c and transports/shm/shm_rndv.c
 */
#include "base/trial.h"

#define TRY 3 /* calls of a trial */
/* calls until the next trial: SOON after one that the other way has won; doubled after each that it has lost, up to
 * LATE */
#define SOON 8
#define LATE 128

static void go(struct tt_trial *t, unsigned way)
{
	if (t->way != way)
		t->in_a_row = 0;
	t->way = (uint8_t)way;
}

void tt_trial_begin(struct tt_trial *t, unsigned way)
{
	t->judged = t->won = false;
	t->in_a_row = 0;
	t->way = t->prefers = (uint8_t)way;
	t->gap = SOON;
	t->left = TRY;
}

void tt_trial_prefer(struct tt_trial *t, unsigned way)
{
	t->won = false;
	t->in_a_row = 0;
	t->way = t->prefers = (uint8_t)way;
	t->left = t->gap;
}

/* A trial of the other way is over. */
static void judge(struct tt_trial *t, const uint64_t ns[2])
{
	bool wins = ns[!t->prefers] < ns[t->prefers];

	t->gap = wins ? SOON : t->gap < LATE ? 2 * t->gap : LATE;
	t->won = wins && !t->won && t->judged;
	t->prefers ^= wins && !t->won;
	t->judged = true;
	t->left = t->won ? SOON : t->gap;
	go(t, t->prefers);
}

unsigned tt_trial_next(struct tt_trial *t, const uint64_t ns[2])
{
	if (t->left == 0 && t->way == t->prefers) {
		go(t, !t->prefers);
		t->left = TRY;
	} else if (t->left == 0) {
		judge(t,
		      ns ? ns : (const uint64_t[]){ tt_trial_least(t, 0), tt_trial_least(t, 1) });
	}
	t->left--;
	t->in_a_row++;
	return t->way;
}

/* The calls before a trial are timed as those of a trial are: it compares with them. */
bool tt_trial_is_settled(const struct tt_trial *t)
{
	return t->judged && t->way == t->prefers && t->left >= TRY;
}

void tt_trial_note(struct tt_trial *t, uint64_t ns)
{
	uint32_t *last = t->ns[t->way], now = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;

	if (!tt_trial_is_timed(t))
		return;
	last[1] = last[0] ? last[0] : now;
	last[0] = now;
}
