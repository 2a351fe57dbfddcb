/*
 * memory.h - memory of tuttiMemAlloc: buffers that other processes of the host can map
 *
 * Called by api and by transports that let peers read buffers. Thread: any.
 */
#ifndef TT_MEMORY_H
#define TT_MEMORY_H

#include "base/base.h"

/* Window: one allocation, as another process can map it. */
struct tt_window {
	/* number: never reused in this process; inode: by which a peer checks the file it opened */
	uint64_t number, bytes, inode;
	int fd;
};

/* Allocate zeroed pages. 0 | TT_SYSTEM */
int tt_memory_alloc(size_t bytes, void **ret_ptr);
/* The bytes of an allocation; 0: ptr is none */
size_t tt_memory_bytes(const void *ptr);
/* Free an allocation. 0 | TT_ARG: ptr is not from tt_memory_alloc, or already freed */
int tt_memory_free(void *ptr);

/* Window that contains [start, start + bytes), and the offset of start in it. false: none, or the
 * allocation cannot be shared. */
bool tt_memory_window(const void *start, size_t bytes, struct tt_window *ret_window,
		      uint64_t *ret_offset);

#endif
