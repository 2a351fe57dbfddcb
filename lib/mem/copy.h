/* copy.h - copies of bytes: by vectors, or by non-temporal stores, which bypass the caches */
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

/* memcpy for a dst that this core does not read soon. Later stores are ordered behind it, as behind
 * memcpy. */
void tt_copy_nontemporal(void *dst, const void *src, size_t bytes);

#endif
