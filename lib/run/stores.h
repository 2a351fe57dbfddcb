/* stores.h - ordinary or non-temporal stores into shared memory, whichever is faster for a kind of
 * call. Used by message_way.c and local/express.c. */
#ifndef TT_STORES_H
#define TT_STORES_H

#include <string.h>

#include "comm/comm.h"
#include "mem/copy.h"
#include "mem/peer_lines.h"

#define TT_STORES_LEAST 4096u /* bytes of a call from which on its stores matter */

/* The stores of one call. stores: NULL for a small call, whose stores are ordinary. timed: the
 * caller times its copies */
struct tt_stores_call {
	struct tt_stores *stores;
	bool nontemporal, timed;
};

/* The stores of a call of `bytes` bytes, in its class of sizes, of classes[TT_STORES_SIZES]. around: calls of this
 * kind go around all pages of the rank */
struct tt_stores_call tt_stores_next(struct tt_stores *classes, size_t bytes, bool around);
/* Takes the times of a timed call's copy of 1 or more bytes. */
void tt_stores_note(const struct tt_stores_call *call, size_t bytes, uint64_t began_ns,
		    uint64_t ended_ns);

/* Called before and after a copy by the caller: begin returns the time, or 0; end takes this time. */
static inline uint64_t tt_stores_begin(const struct tt_stores_call *call)
{
	return tt_unlikely(call->timed) ? tt_now_ns() : 0;
}
static inline void tt_stores_end(const struct tt_stores_call *call, size_t bytes, uint64_t began_ns)
{
	if (tt_unlikely(began_ns != 0))
		tt_stores_note(call, bytes, began_ns, tt_now_ns());
}

static inline void tt_stores_copy(const struct tt_stores_call *call, void *dst, const void *src,
				  size_t bytes)
{
	uint64_t began_ns = tt_stores_begin(call);

	if (tt_unlikely(call->nontemporal))
		tt_copy_nontemporal(dst, src, bytes);
	else
		tt_copy_to_peer(dst, src, bytes);
	tt_stores_end(call, bytes, began_ns);
}

#endif
