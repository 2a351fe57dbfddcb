/* copy.h - copies by non-temporal stores, which bypass the caches */
#ifndef TT_COPY_H
#define TT_COPY_H

#include "base/base.h"

/* smallest output that no core's own cache keeps */
#define TT_NONTEMPORAL_BYTES (8u << 20)

/* memcpy for a dst that this core does not read soon. Later stores are ordered behind it, as behind memcpy. */
void tt_copy_nontemporal(void *dst, const void *src, size_t bytes);

#endif
