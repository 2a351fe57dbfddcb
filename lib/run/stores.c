/*
 * stores.c - ordinary or non-temporal stores into shared memory
 *
 * A post to a slot, or a message, goes into lines that a peer read last time, so an ordinary store
 * must take each line back from the peer's cache first, and the peer fetches it again. Between
 * hyperthreads of one core that costs little; between two cores it is most of the call, and a store
 * past the caches avoids it. Allreduce by slots, n = 2, EPYC 9004, two cores (hyperthreads), us:
 *
 *   bytes   ordinary      non-temporal
 *   4 Ki     1.2  (0.4)     0.8  (1.0)
 *   16 Ki    8.3  (2.4)     2.3  (2.6)
 *   64 Ki   33.5  (9.5)     7.7  (9.0)
 *
 * Nothing says where the ranks run, and a hypervisor moves processors within seconds. So a few calls
 * with either kind are timed again and again. All ranks count the same calls, so they try the same
 * kind at the same time; each decides for itself, by the fastest call of either kind: in the others
 * it has waited for a peer that came late. Called by message_way.c and local/express.c.
 */
#include "run/stores.h"

/* calls of a trial; the first two find the lines of their slot as the other kind has left them */
#define TRY 5
#define WARM 2
/* Calls between two trials: doubled after each that changes nothing, until they move LATE_BYTES, but
 * at least LATE calls, at most 16 times as many */
#define SOON 64
#define LATE 256
#define LATE_BYTES (64u << 20)

/* The result of a trial is valid for FRESH_NS. Without one, calls of at least RISKY_BYTES use
 * non-temporal stores: at worst these take twice as long, ordinary ones four times. */
#define FRESH_NS (100 * 1000000ull)
#define RISKY_BYTES (16u << 10)

enum { BETWEEN, TRY_ORDINARY, TRY_NONTEMPORAL, STRETCHES }; /* in this order */

static unsigned latest(size_t bytes)
{
	size_t calls = LATE_BYTES / bytes;

	return calls < LATE ? LATE : calls < 16 * LATE ? (unsigned)calls : 16 * LATE;
}

static void begin_stretch(struct tt_stores *s, size_t bytes)
{
	bool other = !s->prefers, wins = s->least_ns[other] < s->least_ns[!other] / 8 * 7;

	s->stretch = (uint8_t)((s->stretch + 1) % STRETCHES);
	s->left = TRY;
	s->nontemporal = s->stretch == TRY_NONTEMPORAL;
	if (s->stretch != BETWEEN) {
		s->least_ns[s->nontemporal] = UINT64_MAX;
		return;
	}
	s->gap = wins || !s->gap ? SOON : 2 * s->gap;
	if (s->gap > latest(bytes))
		s->gap = (uint16_t)latest(bytes);
	s->left = s->gap;
	s->nontemporal = s->prefers = wins ? other : !other;
	s->tried_ns = tt_now_ns();
}

/* up to 16 KiB, 64 KiB, 256 KiB, ... */
static unsigned class_of(size_t bytes)
{
	unsigned k = 0;

	for (bytes = (bytes - 1) >> 14; bytes && k < TT_STORES_SIZES - 1; bytes >>= 2)
		k++;
	return k;
}

struct tt_stores_call tt_stores_next(struct tt_stores *classes, size_t bytes)
{
	struct tt_stores *s = &classes[class_of(bytes)];
	struct tt_stores_call call = { .stores = s, .bytes = bytes };

	if (s->left == 0)
		begin_stretch(s, bytes);
	if (s->stretch != BETWEEN && s->left <= TRY - WARM)
		call.began_ns = tt_now_ns();
	call.nontemporal = s->nontemporal || (s->stretch == BETWEEN && bytes >= RISKY_BYTES &&
					      tt_now_ns() - s->tried_ns > FRESH_NS);
	s->left--;
	return call;
}

/* Calls of one class differ in size, so a cost is that of TT_STORES_LEAST bytes. */
void tt_stores_note(const struct tt_stores_call *call)
{
	uint64_t *least = &call->stores->least_ns[call->nontemporal],
		 ns = (tt_now_ns() - call->began_ns) * TT_STORES_LEAST / call->bytes;

	if (ns < *least)
		*least = ns;
}
