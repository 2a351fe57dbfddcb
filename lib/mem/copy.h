/* copy.h - copies that go past the caches */
#ifndef TT_COPY_H
#define TT_COPY_H

#include "base/base.h"

/* outputs of so many bytes are not kept by a core's own cache */
#define TT_PAST_BYTES (8u << 20)

/* memcpy for a dst that is not read soon; it is ordered like one. */
void tt_copy_past(void *dst, const void *src, size_t bytes);

#endif
