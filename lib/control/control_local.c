/*
 * control_local.c - ranks of one process find each other, and connect by a pipe
 *
 * Called by endpoint.c (enter, open, leave) and control_connect.c, in the caller's thread. The
 * endpoints of the process are in one list. A rank that dials looks there first: an endpoint of the
 * same job, attempt and key is its own process, so nothing is left to prove. All others, also ranks
 * with another secret, are dialed over the network, which has the sentences.
 *
 * Lock order: the lock of the list, then one endpoint's. The dialing rank does not hold its own.
 */
#include <openssl/crypto.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control/control_internal.h"

#define SLICE_NS (20 * 1000000ull)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* rank 0 of a job has opened, or left */
	struct tt_control_endpoint *first;
} local;

/* The endpoints belong to the parent; another thread may hold the lock while this one forks. */
static void reset(void)
{
	pthread_condattr_t attr;

	local.first = NULL;
	pthread_mutex_init(&local.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&local.changed, &attr);
	pthread_condattr_destroy(&attr);
}

__attribute__((constructor)) static void watch_forks(void)
{
	reset();
	pthread_atfork(NULL, NULL, reset);
}

void tt_local_enter(struct tt_control_endpoint *ep)
{
	pthread_mutex_lock(&local.lock);
	ep->local.next = local.first;
	ep->local.entered = true;
	local.first = ep;
	pthread_mutex_unlock(&local.lock);
}

void tt_local_open(struct tt_control_endpoint *ep)
{
	pthread_mutex_lock(&local.lock);
	ep->local.open = true;
	if (ep->peer == 0)
		pthread_cond_broadcast(&local.changed);
	pthread_mutex_unlock(&local.lock);
}

void tt_local_leave(struct tt_control_endpoint *ep)
{
	struct tt_control_endpoint **at = &local.first;

	pthread_mutex_lock(&local.lock);
	while (ep->local.entered && *at != ep)
		at = &(*at)->local.next;
	if (ep->local.entered)
		*at = ep->local.next;
	ep->local.entered = false;
	if (ep->peer == 0)
		pthread_cond_broadcast(&local.changed);
	pthread_mutex_unlock(&local.lock);
}

/* ---- dials; the lock of the list is held ------------------------------------------------------ */

static bool same_job(const struct tt_control_endpoint *a, const struct tt_control_endpoint *b)
{
	return a->pid == b->pid && a->auth.epoch == b->auth.epoch &&
	       !memcmp(a->auth.job, b->auth.job, TT_NONCE) &&
	       !CRYPTO_memcmp(a->auth.key->bytes, b->auth.key->bytes, TT_KEY);
}

/* A rank that came twice has two endpoints, and the business card names one by its key. */
static bool is_target(const struct tt_control_endpoint *ep, const struct tt_control_endpoint *mine,
		      const struct tt_dial *dial)
{
	return ep != mine && ep->peer == dial->to.rank &&
	       (dial->purpose == TT_P_REGISTER ||
		tt_public_key_is(ep->auth.identity.public_key, dial->to.public_key)) &&
	       same_job(ep, mine);
}

int tt_local_earlier(const struct tt_control_endpoint *ep)
{
	int n = 0;

	pthread_mutex_lock(&local.lock);
	for (const struct tt_control_endpoint *e = local.first; e; e = e->local.next)
		n += e != ep && e->peer == ep->peer && same_job(e, ep);
	pthread_mutex_unlock(&local.lock);
	return n;
}

static struct tt_control_endpoint *find(const struct tt_control_endpoint *mine,
					const struct tt_dial *dial)
{
	struct tt_control_endpoint *ep = local.first;

	while (ep && !is_target(ep, mine, dial))
		ep = ep->local.next;
	return ep;
}

/* Wait for a change, at most until until_ns. false: the time is over */
static bool await(const struct tt_patience *patience, uint64_t until_ns)
{
	uint64_t slice = tt_now_ns() + SLICE_NS, end;

	end = until_ns < patience->deadline_ns ? until_ns : patience->deadline_ns;
	if (tt_now_ns() >= end || (patience->stop && patience->stop(patience->ctx)))
		return false;
	end = slice < end ? slice : end;
	pthread_cond_timedwait(&local.changed, &local.lock,
			       &(struct timespec){ .tv_sec = (time_t)(end / TT_SECOND),
						   .tv_nsec = (long)(end % TT_SECOND) });
	return true;
}

bool tt_local_connect(struct tt_control *ctl, const struct tt_dial *dial,
		      const struct tt_patience *patience, uint8_t ret_key[TT_PUBLIC_KEY],
		      struct tt_pipe **ret_pipe)
{
	struct tt_control_endpoint *ep;
	struct tt_pipe *end[2];
	struct tt_hello hello;
	bool welcome = false;

	pthread_mutex_lock(&local.lock);
	while ((ep = find(ctl->ep, dial)) && !ep->local.open && await(patience, TT_NEVER))
		;
	if (ep && ep->local.open && tt_hello_get(dial->hello, &hello) && tt_pipe_make(end)) {
		pthread_mutex_lock(&ep->lock);
		welcome = tt_accept_local(ep, &hello, ctl->ep->auth.identity.public_key, end[1]);
		pthread_mutex_unlock(&ep->lock);
		memcpy(ret_key, ep->auth.identity.public_key, TT_PUBLIC_KEY);
		if (!welcome) {
			tt_pipe_close(end[0]);
			tt_pipe_close(end[1]);
		}
	}
	pthread_mutex_unlock(&local.lock);
	if (welcome)
		*ret_pipe = end[0];
	return welcome;
}

void tt_local_await(struct tt_control *ctl, const struct tt_dial *dial,
		    const struct tt_patience *patience, uint64_t wait_ns)
{
	uint64_t until_ns = tt_now_ns() + wait_ns;

	pthread_mutex_lock(&local.lock);
	while (!find(ctl->ep, dial) && await(patience, until_ns))
		;
	pthread_mutex_unlock(&local.lock);
}
