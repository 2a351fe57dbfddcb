/* memory.h - tuttiMemAlloc's memory. Thread: any. */
#ifndef TT_MEMORY_H
#define TT_MEMORY_H

#include "base/base.h"

/* A piece of it, as another process can come to it. number: never used twice in this process. */
struct tt_window {
	/* inode: by which another process knows that it has opened the right file */
	uint64_t number, bytes, inode;
	int fd;
};

/* Zeroed pages. 0 | TT_SYSTEM */
int tt_memory_alloc(size_t bytes, void **ret_ptr);
/* 0 | TT_ARG: not from tt_memory_alloc */
int tt_memory_free(void *ptr);

/* The piece in which all of [start, start + bytes) lies, if there is one that can be shared. */
bool tt_memory_window(const void *start, size_t bytes, struct tt_window *ret_window,
		      uint64_t *ret_offset);

#endif
