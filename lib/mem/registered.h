/*
 * registered.h - registered memory: ranges whose end the library learns of
 *
 * An address alone does not identify memory: ordinary memory is unmapped and mapped again without
 * notice, and hooks in malloc see only part of such calls. NICs therefore keep only memory of
 * tuttiMemAlloc and tuttiCommRegister registered for longer than a call: both end by a call of this
 * library, which notifies every watcher before the memory may change. Called by memory.c, api and
 * comm; watched by verbs_rcache.c. Thread: any.
 */
#ifndef TT_REGISTERED_H
#define TT_REGISTERED_H

#include "mem/intervals.h"

struct tt_registered {
	struct tt_interval range;
	uint64_t number; /* never reused in this process */
	void *ctx;       /* CUDA context of device memory; NULL: host memory */
};

/* Add a range. The caller owns l until tt_registered_remove. */
void tt_registered_add(struct tt_registered *l, const void *start, size_t bytes);
/* Remove a range: notifies every watcher, and returns when none uses the range any more. */
void tt_registered_remove(struct tt_registered *l);

/* Does a range contain [start, start + bytes)? found, unless NULL, is called with that range, which
 * stays registered until found returns (the lock is held). */
bool tt_registered_find(const void *start, size_t bytes,
			void (*found)(void *arg, const struct tt_registered *l), void *arg);

/* going: called for each removed range, on the removing thread, with the lock held; must not call
 * functions of this file. */
struct tt_registered_watcher {
	struct tt_registered_watcher *next;
	unsigned
		forks; /* tt_forks of the watching process: a forked child notifies it of nothing */
	void (*going)(struct tt_registered_watcher *w, const struct tt_registered *l);
};
/* Add a watcher, end it. The caller owns w in between. */
void tt_registered_watch(struct tt_registered_watcher *w);
void tt_registered_watch_end(struct tt_registered_watcher *w);

#endif
