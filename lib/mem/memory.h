/* memory.h - tuttiMemAlloc's memory. Thread: any. */
#ifndef TT_MEMORY_H
#define TT_MEMORY_H

#include "base/base.h"

/* Zeroed pages. 0 | TT_SYSTEM */
int tt_memory_alloc(size_t bytes, void **ret_ptr);
/* 0 | TT_ARG: not from tt_memory_alloc */
int tt_memory_free(void *ptr);

#endif
