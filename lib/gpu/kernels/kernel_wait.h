/*
 * kernel_wait.h - waits for words of peers, and reports of failures to the host
 *
 * A wait polls by relaxed loads, and loads the word once more by acquire when it has arrived. It looks at
 * the report's abort word and at a clock now and then. Order of a report: rank and call are written before
 * the release of `what`, which the host acquires.
 */
#ifndef TT_KERNEL_WAIT_H
#define TT_KERNEL_WAIT_H

#include "gpu/kernels/kernel_words.h"

/* A wait by polling: polls so far, and the time of the first look at the clock (0: none yet) */
struct spin_wait {
	uint64_t since;
	uint32_t polls;
};

/* Reports a failure (enum tt_dev_trouble) to the host. The first failure stays, and one thread
 * alone reports it, since several threads of a rank may see one. The host reads `what` last. */
DEV void report_failure(const struct tt_dev_job *j, uint32_t what, uint32_t rank,
			const uint64_t *call)
{
	struct tt_dev_report *r = (struct tt_dev_report *)j->report;

	if (get_acquire(&r->abort) ||
	    swap_relaxed(&((struct tt_dev_signals *)j->signals[j->rank])->troubled, 1))
		return;
	r->rank = rank;
	r->call[0] = call ? call[0] : 0;
	r->call[1] = call ? call[1] : 0;
	put_release(&r->what, what);
	put_release(&r->abort, 1);
}

/* Called once for each poll without success of a word of peer's. 1: end the wait */
DEV int must_give_up(const struct tt_dev_job *j, struct spin_wait *w, uint32_t peer)
{
	struct tt_dev_report *r = (struct tt_dev_report *)j->report;
	uint64_t now;

	if (++w->polls % 256)
		return 0;
	if (get_acquire(&r->abort))
		return 1;
	now = clock_ns();
	if (!w->since)
		w->since = now;
	if (now - w->since < j->limit_ns)
		return 0;
	report_failure(j, TT_DEV_LATE, peer, 0);
	return 1;
}

DEV int await_epoch(const struct tt_dev_job *j, uint32_t *flag, uint32_t epoch, uint32_t peer)
{
	struct spin_wait w = { 0, 0 };

	while ((int32_t)(get_flag(flag) - epoch) < 0)
		if (must_give_up(j, &w, peer))
			return 0;
	get_acquire(flag);
	return 1;
}

DEV struct tt_dev_signals *signals_of(const struct tt_dev_job *j, uint32_t rank)
{
	return (struct tt_dev_signals *)j->signals[rank];
}

DEV struct tt_dev_host_words *host_words_of(const struct tt_dev_job *j, uint32_t rank)
{
	return (struct tt_dev_host_words *)j->host_words[rank];
}

#endif
