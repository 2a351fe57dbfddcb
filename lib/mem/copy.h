/* copy.h - copies by non-temporal stores, which bypass the caches; ownership of cache lines */
#ifndef TT_COPY_H
#define TT_COPY_H

#include "base/base.h"

/* smallest output that no core's own cache keeps */
#define TT_NONTEMPORAL_BYTES (8u << 20)

/* memcpy for a dst that this core does not read soon. Later stores are ordered behind it, as behind
 * memcpy. */
void tt_copy_nontemporal(void *dst, const void *src, size_t bytes);

/* Take exclusive ownership of the cache lines that hold [p, p + bytes): stores a byte of each line
 * as it is. For shared memory that this core has read and another core writes next: a modified line
 * moves faster than a shared line is given up (run/stores.c). No other thread may write the bytes
 * meanwhile. */
static inline void tt_own_lines(void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += TT_LINE) {
		volatile char *c = (char *)p + at;

		*c = *c;
	}
}

/* Prefetch the line at p and take exclusive ownership of it, for a reader that writes there later. Processors
 * without the instruction do nothing. */
static inline void tt_fetch_to_write(const void *p)
{
#ifdef __x86_64__
	/* gcc without -mprfchw has a prefetch for readers only */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

#endif
