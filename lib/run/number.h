/*
 * number.h - number, stamp and log a collective
 *
 * Every collective of every way passes tt_number_call exactly once, in call order: the sequence
 * number is the same on every rank, the history is a digest of all calls so far, and its high half
 * is the stamp that the messages of the call carry, so a mismatch shows. The call log lets control
 * compare this rank's calls with its peers'.
 */
#ifndef TT_NUMBER_H
#define TT_NUMBER_H

#include "comm/comm.h"

static inline uint32_t tt_stamp_now(const struct tuttiComm *c)
{
	return (uint32_t)(c->calls.history >> 32);
}

/* digest: tt_call_digest(call). The number is c->calls.seq. Returns the stamp. */
static inline uint32_t tt_number_call(tuttiComm_t c, const struct tt_call *call, uint64_t digest)
{
	c->calls.history = tt_mix(c->calls.history, digest);
	tt_control_note(c->ctl, ++c->calls.seq, call);
	return tt_stamp_now(c);
}

#endif
