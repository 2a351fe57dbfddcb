/*
 * kernel_record.h - what ranks tell each other of a call: records with addresses, signatures
 *
 * Order of a record: its stores happen before the release of `start` by the same thread, its loads after
 * the acquire by the same thread; after `end` it may be written again. A word of a signature has the epoch
 * beside its payload, like a word of an LL line, so it needs no other order.
 */
#ifndef TT_KERNEL_RECORD_H
#define TT_KERNEL_RECORD_H

#include "gpu/kernels/kernel_wait.h"

DEV void post_record(const struct tt_dev_job *j, uint32_t peer, uint32_t block)
{
	volatile struct tt_dev_record *c = &signals_of(j, peer)->record[block][j->rank];

	c->in = j->in[j->rank];
	c->out = j->out[j->rank];
	c->scale = j->scale;
	c->call[0] = j->call[0];
	c->call[1] = j->call[1];
}

DEV int same_call(const struct tt_dev_job *j, uint32_t peer, uint32_t block)
{
	volatile struct tt_dev_record *c = &signals_of(j, j->rank)->record[block][peer];
	uint64_t call[2];

	call[0] = c->call[0];
	call[1] = c->call[1];
	if (call[0] == j->call[0] && call[1] == j->call[1])
		return 1;
	report_failure(j, TT_DEV_OTHER_CALL, peer, call);
	return 0;
}

/* The signature of the call in LL words: ranks that run different calls by LL, or one by LL and one
 * with barriers, share no other order than that of these words. */
DEV void put_signature(const struct tt_dev_job *j, uint32_t peer, uint32_t epoch)
{
	uint64_t *words = signals_of(j, peer)->signature[epoch & 1][j->rank];

	UNROLL
	for (uint32_t i = 0; i < 4; i++)
		put_relaxed(&words[i],
			    (uint64_t)epoch << 32 | (uint32_t)(j->call[i / 2] >> 32 * (i % 2)));
}

/* Waits for the peer's signature. 0: the peer is late or in another call, which is reported */
DEV int check_signature(const struct tt_dev_job *j, uint32_t peer, uint32_t epoch)
{
	uint64_t *words = signals_of(j, j->rank)->signature[epoch & 1][peer], call[2] = { 0, 0 },
		 word;
	struct spin_wait w = { 0, 0 };

	UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		while ((word = get_relaxed(&words[i])) >> 32 != epoch)
			if (must_give_up(j, &w, peer))
				return 0;
		call[i / 2] |= (word & 0xffffffffu) << 32 * (i % 2);
	}
	if (call[0] == j->call[0] && call[1] == j->call[1])
		return 1;
	report_failure(j, TT_DEV_OTHER_CALL, peer, call);
	return 0;
}

#endif
