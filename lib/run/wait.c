/*
 * wait.c - what a rank does while nothing moves: spin, then yield, then sleep
 *
 * Called by run.c once for every round without progress. A wake by the kernel costs 35 us where a
 * spinning reader sees a flag after 0.15 us; but a rank that spins on the core of the rank it waits
 * for costs a time slice. So a rank with a core of its own spins long, a crowded one yields at
 * once, and both sleep when the wait becomes long: on a machine that others keep busy a few yields
 * take seconds, and whoever yields is the last to run.
 *
 *   who wakes whom            a peer's commit or a readable socket ends a doze; control ends it
 *                             when the communicator breaks
 *   who guesses wrong         a rank whose spins end in vain, while a yield lets the other go on
 *                             at once, shares its core in spite of what was decided: it grows
 *                             impatient and yields sooner, but tries again now and then
 *   who yields to strangers   kernels charge a yield with a whole time slice, which whoever else
 *                             computes on the core then gets; a sleeper is woken at once. So where
 *                             yields take long in the mean, on a host where more threads want to
 *                             run than it has ranks, a rank only sleeps, for a while that doubles
 *                             as long as they stay long (8 ranks on 2 cores beside a compiler,
 *                             256 KiB: 15 ms by yields, 0.8 ms by sleep). One long yield says
 *                             little: a peer computed, or the turn was another control group's;
 *                             among themselves ranks are quicker by yields (in a group of their
 *                             own beside a busy one, 8 B: 16 us, by sleep 110)
 *
 * Every wait looks at the communicator's health each round and at the
 * deadline whenever it has slept. The deadline moves on with the
 * bytes: it is a time in which nothing moved, from the first yield on.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run/op.h"

#define IMPATIENCE_MAX 12u         /* halvings of the spins */
#define TRY_AGAIN 256u             /* every so many waits */
#define YIELDS_OWN_CORE 20u
#define YIELDS_CROWDED 60u
#define YIELDING_MS 5u             /* at most, however many yields that are */
/* by then somebody had the core for a time slice: a peer that computes, or a stranger */
#define LONG_YIELD_NS 1000000u
#define YIELD_MOST_NS 4000000u     /* what one counts for in their mean */
#define DEAR_YIELD_NS 300000u      /* in the mean of some 32: sleep costs less */
#define PAUSE_MIN_MS 50u           /* without yields, after a long one */
#define PAUSE_MAX_MS 2000u
#define ASK_AFTER_MS 500u
#define DOZE_US 20000u             /* a bound, not a rhythm: wakes end it */
#define DOZE_MIXED_US 500u         /* two kinds of endpoints to watch, but one to sleep in */

static void arm(struct tt_wait *w)
{
	tuttiComm_t c = w->comm;

	for (int i = 0; i < c->nep; i++)
		w->ticket[i] = c->ep[i]->t->arm(c->ep[i]);
	w->armed = true;
}

static void disarm(struct tt_wait *w)
{
	tuttiComm_t c = w->comm;

	for (int i = 0; i < c->nep; i++)
		c->ep[i]->t->disarm(c->ep[i]);
	w->armed = false;
}

uint32_t tt_wait_spins(tuttiComm_t c)
{
	if (c->policy != TT_WAIT_SPIN)
		return 0;
	return tt_likely(!c->impatience) || ++c->waits % TRY_AGAIN == 0 ? c->spins
									: c->spins >> c->impatience;
}

/* A wait has ended: was it worth spinning, and yielding? */
static void learn(tuttiComm_t c, const struct tt_wait *w)
{
	if (w->idle > w->spins && w->yields)
		c->pause_ms = c->pause_ms / 2 >= PAUSE_MIN_MS ? c->pause_ms / 2 : 0;
	if (c->policy != TT_WAIT_SPIN)
		return;
	if (w->idle <= w->spins)
		c->impatience -= c->impatience && w->spins == c->spins;
	else if (w->yields && w->idle <= w->spins + 3 && c->impatience < IMPATIENCE_MAX)
		c->impatience++;
}

void tt_wait_reset(struct tt_wait *w)
{
	if (w->idle)
		learn(w->comm, w);
	w->idle = 0;
	if (tt_unlikely(w->armed))
		disarm(w);
}

/* From now on nothing moves. */
static void start_clock(struct tt_wait *w, const struct tt_op *set)
{
	uint32_t least = UINT32_MAX;

	for (; set; set = set->next)
		if (set->comm->timeout_ms < least)
			least = set->comm->timeout_ms;
	w->started_ns = tt_now_ns();
	w->deadline_ns = w->started_ns + least * 1000000ull;
}

/* Sleep in the endpoint whose links are waited for; with several kinds, or several communicators,
 * only shortly. */
static void doze(struct tt_wait *w, struct tt_op *set)
{
	tuttiComm_t c = w->comm;
	unsigned kinds = 0;
	int in = c->nep - 1;
	bool mixed = false;

	for (struct tt_op *op = set; op; op = op->next) {
		mixed |= op->comm != c || op->pipeline;      /* copies wake nobody */
		for (uint32_t i = 0; op->comm == c && i < op->ncursors; i++) {
			struct tt_endpoint *ep = NULL;

			if (!op->cursor[i].finished)
				tt_op_waits_for(op, i, &ep);
			for (int e = 0; ep && e < c->nep; e++)
				kinds |= (unsigned)(c->ep[e] == ep) << e;
		}
		for (uint32_t i = 0; op->comm == c && i < op->npending; i++)
			for (int e = 0; e < c->nep; e++)
				kinds |= (unsigned)(c->ep[e] == op->pending[i].link->ep) << e;
	}
	if (kinds)
		in = 31 - __builtin_clz(kinds);
	mixed |= kinds & (kinds - 1);
	if (in >= 0)
		c->ep[in]->t->doze(c->ep[in], w->ticket[in], mixed ? DOZE_MIXED_US : DOZE_US);
	atomic_fetch_add_explicit(&c->sleeps, 1, memory_order_relaxed);
}

static uint64_t arrived_by(const struct tuttiComm *c, const struct tt_path *road)
{
	uint64_t sum = 0;

	for (int i = 0; i < TT_CHANNELS * c->nranks; i++)
		if (road->links[i])
			sum += road->links[i]->arrived;
	return sum;
}

/* Bytes of messages that are not complete count as well:
 * a slow network moves few of them in a time-out. */
static uint64_t arrived(const struct tt_op *set)
{
	const struct tuttiComm *last = NULL;
	uint64_t sum = 0;

	for (; set; last = set->comm, set = set->next)
		for (int i = 0; set->comm != last && i < set->comm->npaths; i++)
			sum += arrived_by(set->comm, &set->comm->path[i]);
	return sum;
}

/* broken, nothing moved for too long, or for long enough
 * to ask this host's network, and the others? */
static int look_around(struct tt_wait *w, struct tt_op *set)
{
	uint64_t bytes = arrived(set), now = tt_now_ns(), ask = ASK_AFTER_MS * 1000000ull;

	if (bytes != w->arrived)
		start_clock(w, set);
	w->arrived = bytes;
	if (now >= w->deadline_ns)
		return tt_op_error_late(set);
	if (ask > (w->deadline_ns - w->started_ns) / 4)
		ask = (w->deadline_ns - w->started_ns) / 4;
	if (now <= w->started_ns + ask)
		return 0;
	tt_op_error_ask(set);
	if (now <= w->examined_ns + ask)
		return 0;
	w->examined_ns = now;
	return tt_op_error_own(set);
}

/* A few times; the first round that does not spin starts the clock, and says how often. */
static bool may_yield(struct tt_wait *w, const struct tt_op *set)
{
	tuttiComm_t c = w->comm;

	if (w->idle == w->spins + 1) {
		start_clock(w, set);
		w->yielded_ns = w->started_ns;
		w->yields = c->policy == TT_WAIT_SPIN ? YIELDS_OWN_CORE : YIELDS_CROWDED;
		if (c->policy == TT_WAIT_SLEEP || w->started_ns < c->paused_until_ns)
			w->yields = 0;
	}
	return w->idle <= w->spins + w->yields;
}

/* Do more threads of this host want to run than there are ranks here? Linux counts them; where it
 * does not say, no. */
static bool strangers(const struct tuttiComm *c)
{
	int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC), runnable = 0;
	char text[100];
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	return sscanf(text, "%*s %*s %*s %d/", &runnable) == 1 && runnable > c->ranks_here;
}

static void yield(struct tt_wait *w)
{
	tuttiComm_t c = w->comm;
	uint64_t before = w->yielded_ns;
	uint32_t took;

	sched_yield();
	w->yielded_ns = tt_now_ns();
	took = (uint32_t)(w->yielded_ns - before < YIELD_MOST_NS ? w->yielded_ns - before
								 : YIELD_MOST_NS);
	c->yield_ns += took / 32 - c->yield_ns / 32;
	if (w->yielded_ns > w->started_ns + YIELDING_MS * 1000000ull)
		w->yields = 0;
	if (took < LONG_YIELD_NS || c->yield_ns < DEAR_YIELD_NS || !strangers(c))
		return;
	w->yields = 0;
	c->pause_ms = 2 * c->pause_ms < PAUSE_MAX_MS ? 2 * c->pause_ms : PAUSE_MAX_MS;
	if (c->pause_ms < PAUSE_MIN_MS)
		c->pause_ms = PAUSE_MIN_MS;
	c->paused_until_ns = w->yielded_ns + c->pause_ms * 1000000ull;
}

int tt_wait_idle(struct tt_wait *w, struct tt_op *set)
{
	for (struct tt_op *op = set; op; op = op->next)
		if (tt_unlikely(tt_control_broken(op->comm->ctl)))
			return tt_op_error_broken(op);
	if (w->idle++ == 0) {
		if (set->comm == w->comm)
			w->comm->spins = set->road->spins;
		w->spins = tt_wait_spins(w->comm);
	}
	if (w->idle <= w->spins) {
		tt_cpu_relax();
		return 0;
	}
	if (may_yield(w, set)) {
		yield(w);
		return 0;
	}
	if (!w->armed) {                         /* one more look at the links before sleeping */
		arm(w);
		return 0;
	}
	doze(w, set);
	disarm(w);
	return look_around(w, set);
}
