/*
 * control_holders.c - the business cards of a large job: holders have them all, other ranks ask
 *
 * Called by the bootstrap, by control_connect.c and, for answers, by control_accept.c. A record of each
 * rank at each other one would take 20 to 50 bytes for each pair of ranks, and most ranks never connect to
 * most others. So above a number of ranks, rank 0 sends each rank the hosts of all ranks as bits, and the
 * records of the holders, which alone get the table. A rank that needs another record asks a holder:
 *
 *   rank 0 -> rank r      PARENT: the parent in the tree, and rank r - 1, its neighbor in the ring
 *   rank 0 -> all         HOSTS: signed; down the tree
 *   rank 0 -> holders     TABLE: down the tree where it leads to holders; each 16 records are signed
 *   rank r -> holder      hello: TT_P_RECORD, the wanted rank
 *   holder -> rank r      bytes, the 16 records around it with rank 0's signature; the connection ends
 *
 * A rank that accepts a connection knows the client by the certificate in its hello. A holder that is dead,
 * silent or lies only delays: the next one is asked. Without any holder a rank reaches those that it knows.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/control_internal.h"

#define ASK_NS (TT_SECOND / 4) /* for the answer of a holder, in the first round; doubles up to: */
#define ASK_MOST_NS (4 * TT_SECOND)
#define SLICE_MS 20
#define PAUSE_NS 10000000 /* between two rounds */
#define ANSWER_MOST 16384
#define HOLDERS_MOST (1 << 24)

struct tt_large tt_large = { .above = 1024, .holders = { .first = 16 } };

/* ---- holders --------------------------------------------------------------------------------- */

/* 64 to 128 ranks all over the job, so that few hosts that die together never have all holders */
static int interval_among(int n)
{
	int every = TT_GROUP;

	while (n / every > 128)
		every *= 2;
	return every;
}

/* Has the part of the tree from rank on downwards a holder? */
static bool leads_to_holder(struct tt_holders h, int rank, int n)
{
	for (int low = rank, high = rank; low < n;
	     low = low * TT_FANOUT + 1, high = high * TT_FANOUT + TT_FANOUT)
		if (low < h.first || low / h.every < (high < n ? high : n - 1) / h.every ||
		    low % h.every == 0)
			return true;
	return false;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

bool tt_holders_needed(const struct tt_control *ctl)
{
	return ctl->nranks > tt_large.above;
}

void tt_holders_put(struct tt_control_endpoint *ep, struct tt_writer *w)
{
	struct tt_directory *d = &ep->peers.directory;
	struct tt_business_card record;

	d->holders = tt_large.holders;
	if (!d->holders.every)
		d->holders.every = interval_among(d->n);
	tt_hosts_begin(ep, w);
	tt_put(w, (uint32_t)d->holders.first, 4);
	tt_put(w, (uint32_t)d->holders.every, 4);
	w->failed |= !tt_directory_put_hosts(d, w);
	for (int rank = 0; rank < d->n; rank = tt_next_holder(d->holders, rank)) {
		tt_directory_get(d, rank, &record);
		tt_put_business_card(w, &record);
	}
	tt_table_sign(ep, w);
}

void tt_holders_pack(const struct tt_control_endpoint *ep, struct tt_writer *w)
{
	const struct tt_directory *d = &ep->peers.directory;

	for (int rank = 0, end; rank < d->n && !w->failed; rank = end) {
		size_t at = w->have;

		end = rank + TT_GROUP < d->n ? rank + TT_GROUP : d->n;
		tt_directory_pack(d, rank, end, w);
		if (!w->failed)
			tt_group_sign(ep, rank / TT_GROUP, at, w);
	}
}

/* ---- the other ranks ------------------------------------------------------------------------- */

int tt_holders_get(struct tt_control_endpoint *ep, struct tt_reader r)
{
	struct tt_directory *d = &ep->peers.directory;
	struct tt_business_card root;
	int rc;

	d->holders.first = (int)tt_get_upto(&r, 4, HOLDERS_MOST);
	d->holders.every = (int)tt_get_upto(&r, 4, HOLDERS_MOST);
	if (d->holders.first < 1 || d->holders.every < 1)
		return 0;
	rc = tt_directory_get_hosts(d, &r);
	if (rc > 0)
		rc = tt_directory_get_holders(d, &r);
	if (rc <= 0)
		return rc;
	tt_directory_get(d, 0, &root);
	return tt_get_end(&r) && tt_public_key_is(ep->peers.root_key, root.public_key);
}

void tt_holders_pass(struct tt_control *ctl, const void *table, size_t bytes)
{
	struct tt_holders holders = ctl->ep->peers.directory.holders;
	int first = ctl->rank * TT_FANOUT + 1;

	for (int child = first; child < first + TT_FANOUT && child < ctl->nranks; child++) {
		struct tt_conn *conn = tt_conn_to(ctl->ep, child);

		if (conn && leads_to_holder(holders, child, ctl->nranks))
			tt_conn_send(ctl->ep, conn, 0, TT_F_TABLE, table, bytes);
	}
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A new socket has room for the answer. Without memory, or without an answer, another holder is asked. */
void tt_holders_answer(const struct tt_control_endpoint *ep, int peer, struct tt_tls *tls)
{
	struct tt_writer w = { 0 };
	size_t bytes;
	const uint8_t *group = tt_directory_group(&ep->peers.directory, peer, &bytes);

	tt_put(&w, (uint32_t)bytes, 4);
	tt_put_bytes(&w, group, bytes);
	if (!w.failed)
		(void)!tt_tls_send(tls, w.data, w.have);
	free(w.data);
	tt_tls_close(tls);
}

/* false: they do not come in time */
static bool receive(struct tt_tls *tls, void *data, size_t bytes, uint64_t until_ns)
{
	uint8_t *at = data;

	while (bytes) {
		ssize_t n = tt_tls_recv(tls, at, bytes);
		struct pollfd pfd = { .fd = tt_tls_fd(tls), .events = POLLIN };

		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (n == 0 || errno != EAGAIN || tt_now_ns() >= until_ns) {
			return false;
		} else {
			poll(&pfd, 1, SLICE_MS);
		}
	}
	return true;
}

/* 1: it is known now | 0: the answer does not come, or is a lie | TT_SYSTEM: no memory */
static int read_answer(struct tt_control_endpoint *ep, struct tt_tls *tls, uint64_t until_ns,
		       struct tt_business_card *record)
{
	struct tt_business_card found;
	uint8_t head[4], *group;
	struct tt_reader r = { .at = head, .left = sizeof(head) };
	size_t bytes;
	int rc = 0;

	if (!receive(tls, head, sizeof(head), until_ns))
		return 0;
	bytes = tt_get_upto(&r, 4, ANSWER_MOST);
	group = malloc(bytes + 1);
	if (!group)
		return TT_SYSTEM;
	if (receive(tls, group, bytes, until_ns))
		rc = tt_group_check(ep, record->rank / TT_GROUP, group, bytes);
	r = (struct tt_reader){ .at = group, .left = bytes };
	if (rc > 0 && (rc = tt_directory_of_group(r, record->rank, &found)))
		*record = found;
	free(group);
	return rc;
}

/* ---- questions ------------------------------------------------------------------------------- */

static int no_memory(const struct tt_control *ctl)
{
	return tt_fail(TT_SYSTEM, "rank %d: no memory for business cards", ctl->rank);
}

/* As read_answer | an error of this rank, or of its control. *ret_gone: no process listens there */
static int ask(struct tt_control *ctl, struct tt_dial *dial, int holder, uint64_t until_ns,
	       bool *ret_gone)
{
	int known_as = tt_control_rank(ctl, holder), rc;
	struct tt_dial question = { .known = true,
				    .me = dial->me,
				    .rank = known_as < 0 ? holder : known_as,
				    .purpose = TT_P_RECORD,
				    .channel = dial->to.rank,
				    .network = true,
				    .stop = dial->stop,
				    .deadline_ns = until_ns };
	struct tt_duplex duplex;

	tt_directory_get(&ctl->ep->peers.directory, holder, &question.to);
	rc = tt_dials_connect(ctl, &question, &duplex);
	*ret_gone = rc == TT_REMOTE;
	if (rc)
		return rc == TT_TIMEOUT || rc == TT_REMOTE ? 0 : rc;
	rc = read_answer(ctl->ep, duplex.tls, until_ns, &dial->to);
	tt_tls_close(duplex.tls);
	return rc < 0 ? no_memory(ctl) : rc;
}

/* The record is known now: later dials need not ask. */
static int keep(struct tt_control *ctl, const struct tt_business_card *record)
{
	struct tt_directory *d = &ctl->ep->peers.directory;
	struct tt_business_card known;
	bool kept = true;

	tt_control_lock(ctl);
	tt_directory_get(d, record->rank, &known); /* by another thread meanwhile */
	if (!known.port)
		kept = tt_directory_put(d, record);
	tt_control_unlock(ctl);
	return kept ? 0 : no_memory(ctl);
}

static bool is_dead(struct tt_control *ctl, int peer)
{
	int rank = tt_control_rank(ctl, peer);
	bool dead;

	tt_control_lock(ctl);
	dead = rank >= 0 && tt_set_has(ctl->departed.dead, rank);
	tt_control_unlock(ctl);
	return dead;
}

/* Goes the dial on? 0 | < 0 */
static int check(struct tt_control *ctl, const struct tt_dial *dial)
{
	if (dial->stop && atomic_load(dial->stop))
		return tt_fail(TT_REMOTE, "rank %d: the communicator was aborted", dial->me);
	if (!dial->stop && tt_control_broken(ctl))
		return tt_control_fail(ctl);
	return 0;
}

/* One round, from another holder on for each rank that asks. 1: found | 0 | < 0; *ret_any: a holder may
 * answer later */
static int ask_all(struct tt_control *ctl, struct tt_dial *dial, uint64_t each_ns, bool *ret_any)
{
	struct tt_holders h = ctl->ep->peers.directory.holders;
	int n = ctl->ep->npeers, holder = 0, rc = 0;

	*ret_any = false;
	for (int skip = (ctl->ep->peer + dial->to.rank) % tt_holders_below(h, n); skip; skip--)
		holder = tt_next_holder(h, holder);
	for (int first = holder, begun = 0; !rc && (!begun || holder != first); begun = 1) {
		uint64_t until = tt_now_ns() + each_ns;
		bool gone = true;

		if (until > dial->deadline_ns)
			until = dial->deadline_ns;
		if (holder != ctl->ep->peer && !is_dead(ctl, holder)) {
			rc = ask(ctl, dial, holder, until, &gone);
			*ret_any |= !gone;
		}
		if (!rc && dial->deadline_ns <= tt_now_ns())
			break;
		holder = tt_next_holder(h, holder) < n ? tt_next_holder(h, holder) : 0;
		rc = rc ? rc : check(ctl, dial);
	}
	return rc;
}

/* Asks holders until one answers or the deadline passes; a rank without a living holder is not
 * reported dead. */
int tt_holders_ask(struct tt_control *ctl, struct tt_dial *dial)
{
	uint64_t each = ASK_NS;
	bool any = true;
	int rc = ask_all(ctl, dial, each, &any);

	while (!rc && any && tt_now_ns() < dial->deadline_ns) {
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
		each = 2 * each < ASK_MOST_NS ? 2 * each : ASK_MOST_NS;
		rc = ask_all(ctl, dial, each, &any);
	}
	if (rc < 0 || (!rc && (rc = check(ctl, dial))))
		return rc;
	if (rc)
		return keep(ctl, &dial->to);
	return tt_fail(
		TT_TIMEOUT,
		"rank %d: rank %d cannot be reached: its address is not known here, and none of the %d "
		"ranks that have the addresses of all %d answers",
		dial->me, dial->rank,
		tt_holders_below(ctl->ep->peers.directory.holders, ctl->ep->npeers),
		ctl->ep->npeers);
}
