/*
 * registered.h - memory that lasts until we are told that it goes
 *
 * An address says nothing about what will lie there tomorrow: ordinary memory is unmapped and
 * mapped again without our knowledge, and hooks in malloc see only a part of that. So what cards
 * register for longer than a call is memory of tuttiMemAlloc and of tuttiCommRegister alone: both
 * end by a call of ours, which tells every watcher before the memory may change. Called by
 * memory.c, api and comm; watched by verbs_rcache.c. Thread: any.
 */
#ifndef TT_REGISTERED_H
#define TT_REGISTERED_H

#include "mem/intervals.h"

struct tt_registered {
	struct tt_interval range;
	uint64_t number;                 /* never used twice in this process */
	/* device memory: a context of CUDA's to ask about it in; NULL: host memory */
	void *ctx;
};

void tt_registered_add(struct tt_registered *l, const void *start, size_t bytes);
/* Afterwards no watcher uses it any more. */
void tt_registered_remove(struct tt_registered *l);

/* Is there one that holds all of [start, start + bytes)? found, unless NULL, is called with it, and
 * it stays meanwhile. */
bool tt_registered_find(const void *start, size_t bytes,
		     void (*found)(void *arg, const struct tt_registered *l), void *arg);

/* going is called for each that is removed, by whoever removes it;
 * it may call nothing of this file. */
struct tt_registered_watcher {
	struct tt_registered_watcher *next;
	void (*going)(struct tt_registered_watcher *w, const struct tt_registered *l);
};
void tt_registered_watcher(struct tt_registered_watcher *w);
void tt_registered_watch_end(struct tt_registered_watcher *w);

#endif
