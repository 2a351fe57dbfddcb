/*
 * slot_stores.c - ordinary or non-temporal stores for the large posts to slots
 *
 * A post goes into lines that the peers read last time, so an ordinary store must take each line
 * back from their caches first, and they fetch it again. Between hyperthreads of one core that
 * costs nothing; between two cores it is most of the call, and a store past the caches avoids it.
 * Allreduce, n = 2, EPYC 9004, two cores (hyperthreads of one), us:
 *
 *   bytes   ordinary      non-temporal
 *   4 Ki     1.2  (0.4)     0.8  (1.0)
 *   16 Ki    8.3  (2.4)     2.3  (2.6)
 *   64 Ki   33.5  (9.5)     7.7  (9.0)
 *
 * Nothing says where the ranks run, and a hypervisor moves processors within seconds. So a few calls
 * with either kind are timed again and again. All ranks count the same calls, so they try the same
 * kind at the same time; each decides for itself, by the fastest call of either kind: in the others
 * it has waited for a peer that came late. Called by express.c.
 */
#include "local/slots.h"

/* calls of a trial; the first two find the lines of their slot as the other kind has left them */
#define TRY 5
#define WARM 2
/* calls between two trials: doubled after each that changes nothing */
#define SOON 64
#define LATE 4096

enum { BETWEEN, TRY_ORDINARY, TRY_NONTEMPORAL, STRETCHES }; /* in this order */

static void begin_stretch(struct tt_slot_stores *s)
{
	bool other = !s->prefers, wins = s->least_ns[other] < s->least_ns[!other] / 8 * 7;

	s->stretch = (uint8_t)((s->stretch + 1) % STRETCHES);
	s->left = TRY;
	s->nontemporal = s->stretch == TRY_NONTEMPORAL;
	if (s->stretch != BETWEEN) {
		s->least_ns[s->stretch - TRY_ORDINARY] = UINT64_MAX;
		return;
	}
	s->gap = wins || !s->gap ? SOON : s->gap < LATE ? 2 * s->gap : LATE;
	s->left = s->gap;
	s->nontemporal = s->prefers = wins ? other : !other;
}

/* The call is over; calls of one class differ in size, so a cost is that of TT_STORES_LEAST bytes. */
static void note(struct tt_slot_stores *s)
{
	uint64_t ns = s->took_ns * TT_STORES_LEAST / s->bytes;

	if (ns < s->least_ns[s->stretch - TRY_ORDINARY])
		s->least_ns[s->stretch - TRY_ORDINARY] = ns;
}

static struct tt_slot_stores *stores_of(tuttiComm_t c, size_t bytes)
{
	return &c->calls.slot_stores[(bytes > 16u << 10) + (bytes > 64u << 10)];
}

bool tt_slot_stores_next(tuttiComm_t c, size_t bytes)
{
	struct tt_slot_stores *s = stores_of(c, bytes);

	if (s->took_ns)
		note(s);
	if (s->left == 0)
		begin_stretch(s);
	s->bytes = (uint32_t)bytes;
	s->took_ns = 0;
	s->began_ns = s->stretch != BETWEEN && s->left <= TRY - WARM ? tt_now_ns() : 0;
	s->left--;
	return s->nontemporal;
}

void tt_slot_stores_done(tuttiComm_t c, size_t bytes)
{
	struct tt_slot_stores *s = stores_of(c, bytes);

	if (s->began_ns)
		s->took_ns = tt_now_ns() - s->began_ns;
}
