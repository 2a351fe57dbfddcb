/*
 * wait.c - how a rank waits while nothing moves: spin, then yield, then sleep
 *
 * Called by run.c once for every round without progress. A wake by the kernel costs 35 us, while a
 * spinning reader sees a flag after 0.15 us; but a rank that spins on the core of the rank it waits
 * for costs a time slice. So a rank with a core of its own spins long, a crowded rank yields at
 * once, and both sleep when the wait becomes long: on a busy host a few yields take seconds, and a
 * yielding thread is the last to run.
 *
 *   wakes          a peer's commit or a readable socket ends a doze; control ends it when the
 *                  communicator breaks
 *   impatience     a rank whose spins end in vain, while the first yield lets its peer go on,
 *                  shares its core although the policy says otherwise: it halves its spins, but
 *                  tries the full number again every TRY_AGAIN waits. A full number that succeeds proves that
 *                  the peer runs elsewhere, and all halvings end: one by one they would not, since each
 *                  wait that is longer than the few spins adds another one (messages of 256 KiB through 8
 *                  cells, two cores: 144 us with halved spins for ever, 43 without)
 *   slow yields    the kernel charges a yield with a whole time slice, which another thread of the
 *                  core gets; a sleeper is woken at once. Where yields take long in the mean, on a
 *                  host where more threads are runnable than it has ranks, a rank only sleeps, for
 *                  a pause that doubles as long as yields stay long (8 ranks on 2 cores beside a
 *                  compiler, 256 KiB: 15 ms by yields, 0.8 ms by sleep). One long yield proves
 *                  little: a peer computed, or another control group ran; among ranks only, yields
 *                  are faster (in a control group of their own beside a busy one, 8 B: 16 us, by
 *                  sleep 110)
 *   few yields     more yields before a sleep cost more, beside other load too: 8 ranks on 2 cores
 *                  beside a computing process, tcp, 4 B: 123 us with 60 yields, 212 with 5 ms of them
 *   sessions       the kernel shares a core between sessions and control groups first (autogroup), and
 *                  a yield reaches only ranks of the same one. The same 8 ranks in a session each took
 *                  310 to 430 us, by sleep 180 to 190. A pause after waits with several switches of
 *                  threads gave 170 to 190, but 1.2 times the time without the process, and 1.6 over shm
 *   no operation   a crowded rank first yields some times without an operation, in the calls that need none while
 *                  nobody is late (eager.c, local/express.c): to make one costs as much as a switch of ranks. The
 *                  clock is the coarse one, in a quarter of the time of the exact one: its ticks of some ms give
 *                  the mean of the yields, and not the time of one. Where the mean is slow, an operation waits, whose
 *                  yields decide on a pause by the exact clock. Spins before a yield gain nothing, also where the peer runs on another core
 *                  (8 ranks on 2 cores, send and receive of 4 B: 2.4 us, with 16 spins 2.6, with 48 2.9)
 *   connecting     an operation whose links are not all connected sleeps at once, since its peers
 *                  need the cores for their handshakes
 *
 *   hook           a program may set a function that a waiting rank calls when its spins are over, in
 *                  each round; such a rank sleeps for a short time only
 *
 * Every wait checks the communicator's health each round, and the deadline after each sleep. The
 * deadline limits the time in which nothing moves, from the first yield on, so received bytes move
 * it. Time in which this process was stopped does not count (docs/design/deadlines.md).
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run/staging.h"
#include "run/way.h"

#define IMPATIENCE_MAX 12u /* halvings of the spins */
#define TRY_AGAIN 256u     /* waits from one try of all spins to the next */
#define YIELDS_OWN_CORE 20u
#define YIELDS_CROWDED 60u
#define YIELDS_EAGER 16u /* of a wait without an operation */
#define YIELDING_MS 5u   /* bound of the time in which a wait yields */
/* a yield of this length gave a time slice to a computing peer, or to another program */
#define LONG_YIELD_NS 1000000u
#define YIELD_MOST_NS 4000000u /* bound of one yield in the mean */
#define SLOW_YIELD_NS 300000u  /* mean of about 32 yields, above which sleep costs less */
#define PAUSE_MIN_MS 50u       /* pause without yields, after a long one */
#define PAUSE_MAX_MS 2000u
#define ASK_AFTER_MS 500u
#define DOZE_US 20000u /* bound of one sleep; wakes end it earlier */
/* the same with several endpoints to watch, of which only one wakes: this at first, longer in a
 * longer wait */
#define DOZE_MIXED_US 500u
/* the same with links to connect: their connections wake, but not what a transport sends first */
#define DOZE_CONNECTING_US 4000u
/* a sleep of this length: the process was stopped */
#define STOPPED_NS 1000000000u

static void arm(struct tt_wait *w)
{
	tuttiComm_t c = w->comm;

	for (int i = 0; i < c->paths.nep; i++)
		w->ticket[i] = c->paths.ep[i]->t->arm(c->paths.ep[i]);
	w->armed = true;
}

static void disarm(struct tt_wait *w)
{
	tuttiComm_t c = w->comm;

	for (int i = 0; i < c->paths.nep; i++)
		c->paths.ep[i]->t->disarm(c->paths.ep[i]);
	w->armed = false;
}

uint32_t tt_wait_spins(tuttiComm_t c)
{
	if (c->wait.policy != TT_WAIT_SPIN)
		return 0;
	c->wait.all_spins = tt_likely(!c->wait.impatience) || ++c->wait.waits % TRY_AGAIN == 0;
	return c->wait.all_spins ? c->wait.spins : c->wait.spins >> c->wait.impatience;
}

/* A wait has ended: adapt pauses and spins to how it ended. */
static void learn(tuttiComm_t c, const struct tt_wait *w)
{
	if (w->idle > w->spins && w->yields)
		c->wait.pause_ms = c->wait.pause_ms / 2 >= PAUSE_MIN_MS ? c->wait.pause_ms / 2 : 0;
	if (c->wait.policy != TT_WAIT_SPIN)
		return;
	if (w->idle <= w->spins)
		tt_wait_spun(c);
	else if (w->yields && w->idle <= w->spins + 3 && c->wait.impatience < IMPATIENCE_MAX)
		c->wait.impatience++;
}

void tt_wait_reset(struct tt_wait *w)
{
	if (w->idle)
		learn(w->comm, w);
	w->idle = 0;
	if (tt_unlikely(w->armed))
		disarm(w);
}

/* The time in which nothing moves begins. */
static void start_clock(struct tt_wait *w, const struct tt_op *set)
{
	uint32_t least = UINT32_MAX;

	for (; set; set = set->next)
		if (set->comm->settings.timeout_ms < least)
			least = set->comm->settings.timeout_ms;
	w->started_ns = tt_now_ns();
	w->deadline_ns = w->started_ns + least * 1000000ull;
}

static uint32_t doze_us(const struct tt_wait *w, uint32_t least_us)
{
	return (uint32_t)(tt_poll_interval_ns(w->started_ns, least_us * 1000u) / 1000);
}

/* Sleep in the endpoint whose links are waited for; with several endpoints, several communicators,
 * or links that are not connected, a shorter time. */
static void doze(struct tt_wait *w, struct tt_op *set)
{
	tuttiComm_t c = w->comm;
	unsigned kinds = 0;
	int in = c->paths.nep - 1;
	bool mixed = false, connecting = false, hooked = false;

	for (struct tt_op *op = set; op; op = op->next) {
		hooked |= op->comm->wait.hook != NULL;
		connecting |= op->way == &tt_connecting_way;
		mixed |= op->comm != c || (op->staging && op->staging->ops->wakes_nobody);
		for (uint32_t i = 0; op->comm == c && i < op->cursors.n; i++) {
			struct tt_endpoint *ep = NULL;

			if (!op->cursors.at[i].finished)
				op->way->waits_for(op, i, &ep);
			for (int e = 0; ep && e < c->paths.nep; e++)
				kinds |= (unsigned)(c->paths.ep[e] == ep) << e;
		}
		for (uint32_t i = 0; op->comm == c && i < op->posts.n; i++)
			for (int e = 0; e < c->paths.nep; e++)
				kinds |= (unsigned)(c->paths.ep[e] == op->posts.at[i].link->ep)
					 << e;
	}
	if (kinds)
		in = 31 - __builtin_clz(kinds);
	mixed |= kinds & (kinds - 1);
	if (in >= 0)
		c->paths.ep[in]->t->doze(c->paths.ep[in], w->ticket[in],
					 hooked       ? DOZE_MIXED_US
					 : mixed      ? doze_us(w, DOZE_MIXED_US)
					 : connecting ? doze_us(w, DOZE_CONNECTING_US)
						      : DOZE_US);
	atomic_fetch_add_explicit(&c->wait.sleeps, 1, memory_order_relaxed);
}

/* While this process is stopped, the clock of its wait stands still. */
static void sleep_armed(struct tt_wait *w, struct tt_op *set)
{
	uint64_t took, before = tt_now_ns();

	doze(w, set);
	disarm(w);
	took = tt_now_ns() - before;
	if (tt_unlikely(took > STOPPED_NS)) {
		w->started_ns += took;
		w->deadline_ns += took;
	}
}

static uint64_t arrived_by(const struct tuttiComm *c, const struct tt_path *path)
{
	uint64_t sum = 0;

	for (int ch = 0; ch < TT_CHANNELS; ch++)
		for (int r = 0; path->links[ch] && r < c->nranks; r++)
			sum += path->links[ch][r] ? path->links[ch][r]->arrived : 0;
	return sum;
}

/* Bytes of incomplete messages count as well: a slow network may complete no message within a
 * time-out. */
static uint64_t arrived(const struct tt_op *set)
{
	const struct tuttiComm *last = NULL;
	uint64_t sum = 0;

	for (; set; last = set->comm, set = set->next)
		for (int i = 0; set->comm != last && i < set->comm->paths.npaths; i++)
			sum += arrived_by(set->comm, &set->comm->paths.path[i]);
	return sum;
}

/* Check the deadline; after a long wait, ask the other ranks and this host's transports. 0 go on |
 * < 0 */
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

/* May this round yield? The first round that does not spin starts the clock and sets the number of
 * yields. */
static bool may_yield(struct tt_wait *w, const struct tt_op *set)
{
	tuttiComm_t c = w->comm;

	if (w->idle == w->spins + 1) {
		start_clock(w, set);
		w->yielded_ns = w->started_ns;
		w->yields = c->wait.policy == TT_WAIT_SPIN ? YIELDS_OWN_CORE : YIELDS_CROWDED;
		if (c->wait.policy == TT_WAIT_SLEEP || w->started_ns < c->wait.paused_until_ns ||
		    set->way == &tt_connecting_way)
			w->yields = 0;
	}
	return w->idle <= w->spins + w->yields;
}

/* Are more threads of this host runnable than it has ranks? Linux counts them in /proc/loadavg;
 * elsewhere no. */
static bool other_load(const struct tuttiComm *c)
{
	int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC), runnable = 0;
	char text[100];
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	return sscanf(text, "%*s %*s %*s %d/", &runnable) == 1 && runnable > c->hosts.ranks_here;
}

/* Yield, from *now_ns on, which becomes the time behind it. Returns the time of the yield, YIELD_MOST_NS at most */
static uint32_t yield_once(tuttiComm_t c, uint64_t *now_ns, uint64_t clock(void))
{
	uint64_t before = *now_ns;
	uint32_t took;

	sched_yield();
	*now_ns = clock();
	took = (uint32_t)(*now_ns - before < YIELD_MOST_NS ? *now_ns - before : YIELD_MOST_NS);
	c->wait.yield_ns += took / 32 - c->wait.yield_ns / 32;
	return took;
}

static void yield(struct tt_wait *w)
{
	tuttiComm_t c = w->comm;
	uint32_t took = yield_once(c, &w->yielded_ns, tt_now_ns);

	if (w->yielded_ns > w->started_ns + YIELDING_MS * 1000000ull)
		w->yields = 0;
	if (took < LONG_YIELD_NS || c->wait.yield_ns < SLOW_YIELD_NS || !other_load(c))
		return;
	w->yields = 0;
	c->wait.pause_ms = 2 * c->wait.pause_ms < PAUSE_MAX_MS ? 2 * c->wait.pause_ms
							       : PAUSE_MAX_MS;
	if (c->wait.pause_ms < PAUSE_MIN_MS)
		c->wait.pause_ms = PAUSE_MIN_MS;
	c->wait.paused_until_ns = w->yielded_ns + c->wait.pause_ms * 1000000ull;
}

bool tt_wait_yield(tuttiComm_t c, uint32_t *yields)
{
	uint64_t now_ns;

	if (c->wait.policy != TT_WAIT_YIELD || *yields == YIELDS_EAGER || c->wait.pause_ms ||
	    c->wait.yield_ns >= SLOW_YIELD_NS || c->wait.hook || tt_control_broken(c->ctl))
		return false;
	++*yields;
	now_ns = tt_now_coarse_ns();
	yield_once(c, &now_ns, tt_now_coarse_ns);
	return true;
}

/* The program's hooks of a set's communicators. true: one of them says that the rank should look
 * again, not sleep */
static bool call_hooks(const struct tt_op *set)
{
	const struct tuttiComm *last = NULL;
	bool moved = false;

	for (; set; last = set->comm, set = set->next)
		if (set->comm != last && tt_unlikely(set->comm->wait.hook != NULL))
			moved |= set->comm->wait.hook(set->comm->wait.hook_ctx) > 0;
	return moved;
}

int tt_wait_idle(struct tt_wait *w, struct tt_op *set)
{
	bool moved;

	for (struct tt_op *op = set; op; op = op->next)
		if (tt_unlikely(tt_control_broken(op->comm->ctl)))
			return tt_op_error_broken(op);
	if (w->idle++ == 0) {
		if (set->comm == w->comm)
			w->comm->wait.spins = set->bound.path->spins;
		w->spins = set->way == &tt_connecting_way ? 0 : tt_wait_spins(w->comm);
	}
	if (w->idle <= w->spins) {
		tt_cpu_relax();
		return 0;
	}
	moved = call_hooks(set);
	if (may_yield(w, set)) {
		yield(w);
		return 0;
	}
	if (tt_unlikely(moved))
		return look_around(w, set);
	if (!w->armed) { /* links are checked once more before the sleep */
		arm(w);
		return 0;
	}
	sleep_armed(w, set);
	return look_around(w, set);
}
