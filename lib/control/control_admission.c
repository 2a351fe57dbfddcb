/*
 * control_admission.c - the descriptors that unauthenticated connections of a process may hold, and
 * the one to drop when they are all taken
 *
 * Called by control_accept.c. Ranks connect and prove the secret within milliseconds, also many at a
 * time, so a full listener waits a little. A stranger that says nothing is dropped first; where a
 * crowd lasts it is a flood, and a random connection of the source with the most is dropped. The
 * newcomer competes too, but a source with few connections always gets in.
 * A first message of a rank that somebody has recorded costs a key exchange each time it comes; so one
 * that was answered in vain is not answered again. A rank makes a new one for each connection.
 * Sources: early random drop, OpenSSH's MaxStartups; the share of one listener: dynamic thresholds,
 * Choudhury and Hahne 1998.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "control/control_internal.h"

#define MOST 64 /* descriptors of a process ... */
#define PART 4  /* ... and at most this part of RLIMIT_NOFILE */
/* age from which a connection may be dropped */
#define YOUNG_NS (TT_SECOND / 100)
#define FLOOD_NS (TT_SECOND / 4) /* a crowd that lasts longer is a flood */

static int admitted; /* by all listeners of this process */

static void in_child(void)
{
	admitted = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void tt_admission_count(struct tt_listener *l, int change)
{
	l->nunauth += change;
	admitted += change;
}

/* The most descriptors that one listener may hold: as many as the process has left. So a single
 * listener holds half, and strangers at one listener never take the share of the next. */
static int share(void)
{
	struct rlimit limit = { .rlim_cur = MOST * PART };
	int most;

	getrlimit(RLIMIT_NOFILE, &limit);
	most = limit.rlim_cur / PART < MOST ? (int)(limit.rlim_cur / PART) : MOST;
	most -= admitted;
	return most > 1 ? most : 1;
}

static bool is_same_source(const struct tt_address *a, const struct tt_address *b)
{
	return a->family == b->family && !memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

static int connections_of(const struct tt_listener *l, const struct tt_address *source)
{
	int n = 0;

	for (const struct tt_unauth *u = l->unauth; u; u = u->next)
		n += !u->dead && is_same_source(&u->source, source);
	return n;
}

static uint64_t dice(uint64_t sides)
{
	static atomic_ulong throws;

	return tt_mix(tt_mix(0, tt_now_ns()), atomic_fetch_add(&throws, 1)) % sides;
}

/* A random connection of the source with the most, among those that are not young. NULL: none */
static struct tt_unauth *choose_victim(const struct tt_listener *l, bool silent)
{
	uint64_t now = tt_now_ns(), seen = 0;
	struct tt_unauth *victim = NULL;
	int most = 0;

	for (struct tt_unauth *u = l->unauth; u; u = u->next) {
		int crowd;

		if (u->dead || now - u->since_ns < YOUNG_NS ||
		    (silent && u->tls && tt_tls_answered(u->tls)))
			continue;
		crowd = connections_of(l, &u->source);
		if (crowd > most)
			seen = 0;
		if (crowd < most || dice(++seen))
			continue;
		most = crowd;
		victim = u;
	}
	return victim;
}

enum tt_admission tt_admission_next(struct tt_listener *l, struct tt_unauth **ret_victim)
{
	uint64_t now = tt_now_ns();
	int most = share();

	*ret_victim = NULL;
	if (l->nunauth < most / 2)
		l->crowded_since_ns = 0;
	if (l->nunauth < most)
		return TT_ADMIT;
	*ret_victim = choose_victim(l, true);
	if (*ret_victim)
		return TT_ADMIT;
	if (!l->crowded_since_ns)
		l->crowded_since_ns = now;
	return now - l->crowded_since_ns < FLOOD_NS ? TT_ADMIT_LATER : TT_ADMIT_COMPETE;
}

bool tt_admission_compete(struct tt_listener *l, const struct tt_address *source,
			  struct tt_unauth **ret_victim)
{
	*ret_victim = choose_victim(l, false);
	if (!*ret_victim)
		return false;
	return connections_of(l, source) < connections_of(l, &(*ret_victim)->source) || dice(2);
}

struct tt_unauth *tt_admission_victim(struct tt_listener *l)
{
	struct tt_unauth *silent = choose_victim(l, true);

	return silent ? silent : choose_victim(l, false);
}

/* ---- recorded first messages ----------------------------------------------------------------- */

#define IN_VAIN 4096 /* 32 KiB, of which few pages are written where nobody repeats messages */

void tt_admission_note_in_vain(struct tt_listener *l, uint64_t random)
{
	if (!l->in_vain)
		l->in_vain = calloc(IN_VAIN, sizeof(*l->in_vain));
	if (l->in_vain)
		l->in_vain[random % IN_VAIN] = random;
}

bool tt_admission_was_in_vain(const struct tt_listener *l, uint64_t random)
{
	return random && l->in_vain && l->in_vain[random % IN_VAIN] == random;
}
