/*
 * trial.h - which of two ways is the faster one, for calls of one kind: some go each way, and are timed
 *
 * The calls of a trial follow each other, and the first one is not timed, since caches are as the other way has left
 * them. The least of the last two times of either way are compared: they are close to each other in time. The first
 * trial decides at once. Later, the other way must win two trials in a row, since other load on the machine decides
 * some of them. A way that loses is tried less and less often.
 *
 * The caller has the clock. Ranks that must go the same way agree on the times, and pass their sums.
 */
#ifndef TT_TRIAL_H
#define TT_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_trial {
	uint32_t ns[2][2];    /* the last two times of each way; 0: none */
	uint8_t way, prefers; /* way of the current call; the faster one, as far as is known */
	bool judged, won;     /* a trial is over; the other way has won its last trial */
	uint32_t in_a_row; /* calls of this way without the other one, the current call included */
	uint32_t left;     /* calls until the next trial begins, or this one ends */
	uint32_t gap;      /* calls between two trials, 0: not begun */
};

/* Begins with this way, 0 or 1, and keeps the times. */
void tt_trial_begin(struct tt_trial *t, unsigned way);
/* Goes this way until the next trial, since the other one is known to be slower now; keeps what the trials have found. */
void tt_trial_prefer(struct tt_trial *t, unsigned way);
/* The way of the next call. ns: the times to compare, NULL: the least of t */
unsigned tt_trial_next(struct tt_trial *t, const uint64_t ns[2]);
/* Is the current call timed? Its time */
static inline bool tt_trial_is_timed(const struct tt_trial *t)
{
	return t->in_a_row > 1;
}
void tt_trial_note(struct tt_trial *t, uint64_t ns);
/* Does the next call go the preferred way, without being timed? Then tt_trial_next needs no ns. */
bool tt_trial_is_settled(const struct tt_trial *t);
/* The least of the last two times of a way, 0: none */
static inline uint32_t tt_trial_least(const struct tt_trial *t, unsigned way)
{
	const uint32_t *ns = t->ns[way];

	return ns[0] < ns[1] ? ns[0] : ns[1];
}

#endif
