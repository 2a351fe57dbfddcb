/*
 * stores.c - ordinary or non-temporal stores into shared memory
 *
 * A post to a slot, or a message, goes into lines that a peer read last time. An ordinary store to a line that two
 * cores share waits until the other core has given it up, one line after the other. Where that takes longest
 * (tt_readers_own, mem/peer_lines.h) the reader of a message, or of a post of a rank that only gives, takes exclusive
 * ownership of its lines (tt_own_lines): a modified line of one core moves to the other as fast as it is asked for. Two
 * ranks that both give take each other's page over (local/slots.h). A non-temporal store bypasses the caches: the
 * reader then reads memory. Between distant cores that is the faster way, between near ones it is not. Copy of 64 KiB
 * into lines that a peer has read, and the peer's read, us, EPYC 9004:
 *
 *                                     near cores (0.05 us)    distant cores (0.25 us)
 *   ordinary                              7.6 + 1.2                29.3 + 3.1
 *   ordinary, the reader owns the lines   1.8 + 1.3                 4.1 + 3.5
 *   non-temporal                          2.9 + 3.4                 1.8 + 2.7
 *
 * Nothing says where the ranks run, and a hypervisor moves processors within seconds. So a rank times
 * some of its own copies, which wait for no other rank. It tries the other kind now and then, and soon
 * when its copies take longer than before. Each rank decides for itself: a message says how it was
 * written. Called by message_way.c, local/express.c and local/slot_pair.c.
 */
#include "run/stores.h"

/* The first calls of a kind find the lines as the other kind has left them, and are not timed: ordinary stores wait
 * for lines that non-temporal ones have left in memory. Posts of a root of 4 KiB go around 128 pages, those of 64 KiB
 * around 8 places; posts of two ranks to each other take turns in two from 16 KiB on. TRY more calls end a trial. */
#define TRY 2
static unsigned places_of(size_t bytes, bool around)
{
	return bytes <= (around ? TT_EXPRESS_BYTES : TT_EXPRESS_OTHER_BYTES)
		       ? (unsigned)(2 * TT_SLOT_HALF / bytes)
		       : 2;
}
/* The least time and the least number of calls between two trials, for each place */
#define TRIAL_NS (10 * 1000000ull)
#define TRIAL_CALLS 32
/* Between trials, a rank times a copy after every SAMPLE_BYTES bytes. */
#define SAMPLE_BYTES (128u << 10)

static bool is_trial(const struct tt_stores *s)
{
	return s->nontemporal != s->prefers;
}

static void begin(struct tt_stores *s, bool nontemporal)
{
	s->nontemporal = nontemporal;
	s->calls = 0;
	s->due = s->strange = false;
}

static void next_stretch(struct tt_stores *s, unsigned places)
{
	if (!is_trial(s) && s->due && (s->calls >= TRIAL_CALLS * places || !s->ns[!s->prefers])) {
		begin(s, !s->prefers);
		s->ns[s->nontemporal] = 0;
	} else if (is_trial(s) && s->calls >= places + TRY) {
		bool wins = s->ns[s->nontemporal] &&
			    s->ns[s->nontemporal] < s->ns[s->prefers] / 8 * 7;

		s->prefers ^= wins;
		begin(s, s->prefers);
	}
}

/* up to 16 KiB, 64 KiB, 256 KiB, ... */
static unsigned class_of(size_t bytes)
{
	unsigned k = 0;

	for (bytes = (bytes - 1) >> 14; bytes && k < TT_STORES_SIZES - 1; bytes >>= 2)
		k++;
	return k;
}

struct tt_stores_call tt_stores_next(struct tt_stores *classes, size_t bytes, bool around)
{
	struct tt_stores *s = &classes[class_of(bytes)];
	struct tt_stores_call call = { .stores = s };
	unsigned places = places_of(bytes, around);

	next_stretch(s, places);
	s->unseen += bytes < SAMPLE_BYTES ? (uint32_t)bytes : SAMPLE_BYTES;
	call.nontemporal = s->nontemporal;
	if (s->calls >= places &&
	    (is_trial(s) || s->unseen >= SAMPLE_BYTES || !s->ns[s->prefers])) {
		call.timed = true;
		s->unseen = 0;
	}
	s->calls += s->calls < UINT16_MAX;
	return call;
}

/* Calls of one class differ in size, so a cost is that of TT_STORES_LEAST bytes. The reader of
 * non-temporal stores pays as well: they cost half as much again. A rank that is interrupted copies
 * for long: one strange time alone says nothing. */
void tt_stores_note(const struct tt_stores_call *call, size_t bytes, uint64_t began_ns,
		    uint64_t ended_ns)
{
	struct tt_stores *s = call->stores;
	uint64_t *ns = &s->ns[call->nontemporal],
		 now = (ended_ns - began_ns) * TT_STORES_LEAST / bytes + 1;
	bool slow;

	now += call->nontemporal ? now / 2 : 0;
	if (is_trial(s)) {
		*ns = !*ns || now < *ns ? now : *ns;
		s->tried_ns = ended_ns;
		return;
	}
	s->due |= ended_ns - s->tried_ns > TRIAL_NS;
	slow = *ns && now > *ns / 4 * 7;
	if (slow && !s->strange) {
		s->strange = true;
		return;
	}
	s->due |= slow; /* slow for the second time in a row: the ranks have moved */
	s->strange = false;
	*ns = now;
}
