/* copy.h - copies of bytes: by vectors, or by non-temporal stores, which bypass the caches; ownership of cache
 * lines */
#ifndef TT_COPY_H
#define TT_COPY_H

#include <string.h>

#include "base/base.h"

/* smallest output that no core's own cache keeps */
#define TT_NONTEMPORAL_BYTES (8u << 20)

/* memcpy of any length. From a few KiB on libc's takes `rep movsb`, which some processors execute up to 25 times
 * slower where dst begins less than 256 bytes behind src within a page: vectors copy there (copy.c). */
#define TT_COPY_LEAST 1024u
static inline bool tt_copy_is_slow(const void *dst, const void *src, size_t bytes)
{
	return bytes >= TT_COPY_LEAST && ((uintptr_t)dst - (uintptr_t)src - 1) % 4096 < 255;
}
void tt_copy_vectors(void *dst, const void *src, size_t bytes); /* at least TT_COPY_LEAST */
static inline void tt_copy(void *dst, const void *src, size_t bytes)
{
	if (tt_unlikely(tt_copy_is_slow(dst, src, bytes)))
		tt_copy_vectors(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

/* memcpy from shared memory that another core has written. keep: this core writes there next. own: the other core
 * writes there again, so tt_own_lines on the way */
void tt_copy_and_keep(void *dst, const void *src, size_t bytes);
void tt_copy_and_own(void *dst, void *src, size_t bytes);

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
