/* stores.h - ordinary or non-temporal stores into shared memory, whichever is faster for a kind of
 * call. Used by message_way.c and local/express.c. */
#ifndef TT_STORES_H
#define TT_STORES_H

#include <string.h>

#include "comm/comm.h"
#include "mem/copy.h"

#define TT_STORES_LEAST 4096u /* bytes of a call from which on its stores matter */

/* The stores of one call. stores: NULL for a small call; began_ns: 0 if the call is not timed */
struct tt_stores_call {
	struct tt_stores *stores;
	size_t bytes;
	bool nontemporal;
	uint64_t began_ns;
};

/* Counts a call of `bytes` bytes in its class of sizes, of classes[TT_STORES_SIZES], and returns its
 * stores. Every rank must count the same calls. */
struct tt_stores_call tt_stores_next(struct tt_stores *classes, size_t bytes);
void tt_stores_note(const struct tt_stores_call *call);
/* It is complete. */
static inline void tt_stores_done(const struct tt_stores_call *call)
{
	if (tt_unlikely(call->began_ns != 0))
		tt_stores_note(call);
}

static inline void tt_stores_copy(const struct tt_stores_call *call, void *dst, const void *src,
				  size_t bytes)
{
	if (tt_unlikely(call->nontemporal))
		tt_copy_nontemporal(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

#endif
