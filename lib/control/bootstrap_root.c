/*
 * bootstrap_root.c - the bootstrap root, rank 0's part of joining: registrations, their checks,
 * missing ranks
 *
 * Called by the service thread of rank 0. A rank registers over a connection of its own, which
 * becomes its tree connection when rank 0 is its parent. Rank 0 names the parent as soon as the
 * parent has registered, and releases another connection when the rank is connected in the tree.
 * Until then every failure reaches the rank over this connection.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define REPORT_NS TT_SECOND    /* period of the reports of missing ranks to the others ... */
#define LOG_NS (5 * TT_SECOND) /* ... and to the log */

struct tt_bootstrap {
	char settings[TT_SETTINGS];
	/* [nranks] registered; seen: registered, refused, lost or declined */
	bool *registered, *seen;
	uint8_t *refused; /* [nranks] enum tt_refusal of a connection that claimed to be the rank */
	int nregistered, nseen, nattached;
	uint64_t report_ns, log_ns; /* time of the next one */
};

int tt_bootstrap_open(struct tt_control *ctl, const struct tt_join *join)
{
	struct tt_bootstrap *root = calloc(1, sizeof(*root));

	if (root) {
		root->registered = calloc((size_t)ctl->nranks, sizeof(*root->registered));
		root->seen = calloc((size_t)ctl->nranks, sizeof(*root->seen));
		root->refused = calloc((size_t)ctl->nranks, sizeof(*root->refused));
	}
	ctl->join.root = root;
	if (!root || !root->registered || !root->seen || !root->refused)
		return tt_fail(TT_SYSTEM, "rank 0: no memory for %d ranks", ctl->nranks);
	snprintf(root->settings, sizeof(root->settings), "%s", join->settings);
	root->registered[0] = true;
	tt_set_add(ctl->join.attached, 0);
	root->nregistered = root->nattached = 1;
	root->report_ns = tt_now_ns() + REPORT_NS;
	root->log_ns = tt_now_ns() + LOG_NS;
	return 0;
}

void tt_bootstrap_close(struct tt_control *ctl)
{
	if (!ctl->join.root)
		return;
	free(ctl->join.root->registered);
	free(ctl->join.root->seen);
	free(ctl->join.root->refused);
	free(ctl->join.root);
	ctl->join.root = NULL;
}

int tt_bootstrap_unseen(const struct tt_control *ctl)
{
	return ctl->nranks - 1 - ctl->join.root->nseen;
}

/* A rank may be lost first, and then decline. */
static void see(struct tt_control *ctl, int rank)
{
	struct tt_bootstrap *root = ctl->join.root;

	if (rank >= ctl->nranks || root->seen[rank])
		return;
	root->seen[rank] = true;
	root->nseen++;
	tt_control_changed(ctl);
}

bool tt_bootstrap_lost(struct tt_control *ctl, int peer)
{
	if (!ctl || !ctl->join.root || ctl->join.has_table || peer >= ctl->nranks ||
	    ctl->join.root->registered[peer])
		return false;
	see(ctl, peer);
	return true;
}

void tt_bootstrap_refused(struct tt_control *ctl, int claimed, enum tt_refusal why)
{
	if (ctl->join.root && claimed < ctl->nranks)
		ctl->join.root->refused[claimed] = (uint8_t)why;
}

/* ---- checks of a registration ---------------------------------------------------------------- */

static bool has_word(const char *text, const char *word, size_t bytes)
{
	for (text += strspn(text, " "); *text;
	     text += strcspn(text, " "), text += strspn(text, " "))
		if (strcspn(text, " ") == bytes && !memcmp(text, word, bytes))
			return true;
	return false;
}

/* The words of a that are missing from b. */
static void differing(const char *a, const char *b, char *text, size_t bytes)
{
	size_t have = 0, len;

	snprintf(text, bytes, "nothing more");
	for (a += strspn(a, " "); *a; a += len + strspn(a + len, " ")) {
		len = strcspn(a, " ");
		if (!has_word(b, a, len) && have < bytes)
			have += (size_t)snprintf(text + have, bytes - have, "%s%.*s",
						 have ? " " : "", (int)len, a);
	}
}

/* Does this registration not fit the job? true: with the reason as a sentence */
static bool misfit(struct tt_control *ctl, const struct tt_register *reg, char *text, size_t bytes)
{
	struct tt_bootstrap *root = ctl->join.root;
	const struct tt_business_card *new = &reg->from;
	struct tt_business_card other;
	char mine[256], theirs[256];
	int r = new->rank;

	if (reg->version != TUTTI_VERSION_CODE) {
		snprintf(text, bytes, "rank %d runs version %u of Tutti, rank 0 runs %d", r,
			 reg->version, TUTTI_VERSION_CODE);
	} else if ((int)reg->nranks != ctl->nranks) {
		snprintf(text, bytes,
			 "rank %d (pid %u on %s) joins as one of %u ranks, rank 0 as one of %d", r,
			 new->pid, new->name, reg->nranks, ctl->nranks);
	} else if (r >= ctl->nranks) {
		snprintf(text, bytes, "rank %d (pid %u on %s) is not one of the ranks 0..%d", r,
			 new->pid, new->name, ctl->nranks - 1);
	} else if (root->registered[r]) {
		tt_directory_get(&ctl->ep->peers.directory, r, &other);
		snprintf(text, bytes,
			 "two processes join as rank %d: pid %u on %s and pid %u on %s", r,
			 other.pid, other.name, new->pid, new->name);
	} else if (strcmp(reg->settings, root->settings)) {
		differing(root->settings, reg->settings, mine, sizeof(mine));
		differing(reg->settings, root->settings, theirs, sizeof(theirs));
		snprintf(text, bytes, "settings differ: rank 0 has %s, rank %d has %s", mine, r,
			 theirs);
	} else {
		return false;
	}
	return true;
}

static void send_abort(struct tt_control *ctl, struct tt_conn *conn, int code, const char *text)
{
	uint8_t bytes[TT_ABORT_BYTES];
	struct tt_writer w = TT_WRITER_INTO(bytes);

	tt_control_put_abort(&w, ctl->rank, code, -1, 0, text);
	tt_conn_send(ctl->ep, conn, 0, TT_F_ABORT, w.data, w.have);
}

static void refuse(struct tt_control *ctl, struct tt_conn *conn, int code, const char *text)
{
	send_abort(ctl, conn, code, text);
	tt_conn_end(conn);
}

/* If the job is broken, send the reason before the registration arrives: rank 0 may leave first. */
void tt_bootstrap_entered(struct tt_control *ctl, struct tt_conn *conn)
{
	int culprit;

	if (ctl->broken)
		send_abort(ctl, conn, ctl->broken, tt_control_text(ctl, &culprit));
}

/* ---- parents in the tree, table -------------------------------------------------------------- */

/* Once both have registered, and before the table. The rank gets its certificate, too: it may
 * connect to ranks that do not have the table yet. In a large job it also gets the record of the rank
 * before, to which it connects in the ring. */
static void name_parent(struct tt_control *ctl, int rank)
{
	struct tt_conn *conn = tt_conn_registered(ctl->ep, rank);
	int parent = tt_tree_parent(rank);
	struct tt_business_card record;
	struct tt_writer w = { 0 };
	bool large = tt_holders_needed(ctl);

	if (!conn || !ctl->join.root->registered[parent] ||
	    (large && !ctl->join.root->registered[rank - 1]))
		return;
	tt_directory_get(&ctl->ep->peers.directory, parent, &record);
	tt_put_business_card(&w, &record);
	tt_certificate_put(ctl->ep, rank, &w);
	if (large) {
		tt_directory_get(&ctl->ep->peers.directory, rank - 1, &record);
		tt_put_business_card(&w, &record);
	}
	if (w.failed)
		tt_control_no_memory(ctl);
	else
		tt_conn_send(ctl->ep, conn, 0, TT_F_PARENT, w.data, w.have);
	free(w.data);
}

static void send_table(struct tt_control *ctl)
{
	struct tt_writer w = { 0 }, hosts = { 0 };
	bool large = tt_holders_needed(ctl);
	size_t head;

	if (large) {
		tt_holders_put(ctl->ep, &hosts);
		tt_control_post(ctl, TT_TO_CHILDREN, -1, TT_F_HOSTS, &hosts);
	}
	tt_table_begin(ctl->ep, &w);
	head = w.have;
	if (large)
		tt_holders_pack(ctl->ep, &w);
	else
		tt_directory_pack(&ctl->ep->peers.directory, 0, ctl->nranks, &w);
	if (w.failed ||
	    tt_directory_read(&ctl->ep->peers.directory, w.data + head, w.have - head) < 0) {
		free(w.data);
		tt_control_no_memory(ctl);
		return;
	}
	tt_table_sign(ctl->ep, &w);
	if (large && !w.failed)
		tt_holders_pass(ctl, w.data, w.have);
	tt_control_post(ctl, large ? 0 : TT_TO_CHILDREN, -1, TT_F_TABLE, &w);
	ctl->join.has_table = true;
	tt_control_changed(ctl);
}

void tt_bootstrap_attached(struct tt_control *ctl, int rank)
{
	struct tt_conn *conn = tt_conn_registered(ctl->ep, rank);

	if (conn && conn->registration) {
		tt_conn_send(ctl->ep, conn, 0, TT_F_RELEASE, NULL, 0);
		tt_conn_end(conn);
	}
	if (++ctl->join.root->nattached == ctl->nranks)
		send_table(ctl);
}

bool tt_bootstrap_register(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
			   size_t bytes)
{
	struct tt_register reg;
	int r, culprit;
	char text[800];

	if (conn->registered || !tt_get_register(data, bytes, &reg) ||
	    reg.from.rank != conn->peer || !reg.from.port)
		return false;
	r = reg.from.rank;
	see(ctl, r);
	if (ctl->broken) {
		refuse(ctl, conn, ctl->broken, tt_control_text(ctl, &culprit));
		return true;
	}
	if (misfit(ctl, &reg, text, sizeof(text))) {
		if (!ctl->join.has_table)
			tt_control_break(ctl, TT_USAGE, r, 0, text, -1);
		else
			refuse(ctl, conn, TT_USAGE,
			       text); /* the job is complete: too late to harm it */
		return true;
	}
	memcpy(reg.from.public_key, conn->public_key, TT_PUBLIC_KEY);
	if (!tt_directory_put(&ctl->ep->peers.directory, &reg.from)) {
		tt_control_no_memory(ctl);
		return true;
	}
	ctl->join.root->registered[r] = true;
	ctl->join.root->nregistered++;
	conn->registered = true;
	name_parent(ctl, r);
	for (int child = r * TT_FANOUT + 1;
	     child <= r * TT_FANOUT + TT_FANOUT && child < ctl->nranks; child++)
		name_parent(ctl, child);
	if (r + 1 < ctl->nranks && tt_holders_needed(ctl))
		name_parent(ctl, r + 1);
	if (tt_tree_parent(r) == 0) {
		conn->registration = false;
		tt_join_attached(ctl, r);
	}
	return true;
}

/* A rank failed before it could register: break the control with its reason. */
bool tt_bootstrap_declined(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
			   size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	char why[800], text[840];

	tt_get_text(&r, why, sizeof(why));
	snprintf(text, sizeof(text), "rank %d cannot join: %s", conn->peer, why);
	if (!tt_get_end(&r) || conn->registered)
		return false;
	tt_conn_end(conn);
	see(ctl, conn->peer);
	if (!ctl->join.has_table && conn->peer < ctl->nranks &&
	    !ctl->join.root->registered[conn->peer])
		tt_control_break(ctl, TT_REMOTE, conn->peer, 0, text, -1);
	return true;
}

/* ---- missing ranks --------------------------------------------------------------------------- */

static bool is_absent(const void *ctx, int rank)
{
	return !((const struct tt_control *)ctx)->join.root->registered[rank];
}

static bool is_unattached(const void *ctx, int rank)
{
	const struct tt_control *ctl = ctx;

	return ctl->join.root->registered[rank] && !tt_set_has(ctl->join.attached, rank);
}

static bool is_refused(const struct tt_control *ctl, int rank, enum tt_refusal why)
{
	return !ctl->join.root->registered[rank] && ctl->join.root->refused[rank] == why;
}

static bool has_other_secret(const void *ctx, int rank)
{
	return is_refused(ctx, rank, TT_OTHER_SECRET);
}

static bool has_other_version(const void *ctx, int rank)
{
	return is_refused(ctx, rank, TT_OTHER_VERSION);
}

/* The rank that delays the others: connected in the tree, with a child that is not. */
static int unresponsive(const struct tt_control *ctl)
{
	int r = 1;

	while (r < ctl->nranks - 1 &&
	       !(is_unattached(ctl, r) && tt_set_has(ctl->join.attached, tt_tree_parent(r))))
		r++;
	return tt_tree_parent(r);
}

void tt_bootstrap_missing(struct tt_control *ctl, char *text, size_t bytes)
{
	char ranks[280];
	size_t have = 0;

	text[0] = '\0';
	if (tt_rank_list(ctl->nranks, is_absent, ctl, ranks, sizeof(ranks)))
		have = (size_t)snprintf(text, bytes, "%s did not join", ranks);
	else if (tt_rank_list(ctl->nranks, is_unattached, ctl, ranks, sizeof(ranks)))
		have = (size_t)snprintf(
			text, bytes,
			"%s registered, but rank %d, their parent in the tree, does not accept their connections",
			ranks, unresponsive(ctl));
	if (have < bytes && tt_rank_list(ctl->nranks, has_other_version, ctl, ranks, 100))
		have += (size_t)snprintf(
			text + have, bytes - have,
			"; a process that claims to be %s has another version of Tutti", ranks);
	if (have < bytes && tt_rank_list(ctl->nranks, has_other_secret, ctl, ranks, 100))
		have += (size_t)snprintf(text + have, bytes - have,
					 "; a process that claims to be %s used a different %s",
					 ranks, tt_secret_name(ctl->ep));
	if (have < bytes && ctl->ep->listening.trouble[0])
		snprintf(text + have, bytes - have, "; %s", ctl->ep->listening.trouble);
}

/* "rank 0: waiting for ranks 2, 5 of 12"; missing: the reasons, as of tt_bootstrap_missing */
static void log_wait(const struct tt_control *ctl, const char *missing)
{
	const char *more = strchr(missing, ';');
	char ranks[280];

	if (tt_rank_list(ctl->nranks, is_absent, ctl, ranks, sizeof(ranks)))
		tt_log(TT_LOG_WARN, "rank 0: waiting for %s of %d%s", ranks, ctl->nranks,
		       more ? more : "");
	else
		tt_log(TT_LOG_WARN, "rank 0: waiting for ranks that have registered: %s", missing);
}

uint64_t tt_bootstrap_timers(struct tt_control *ctl, uint64_t now)
{
	struct tt_bootstrap *root = ctl->join.root;
	struct tt_writer w = { 0 };
	char text[500];

	if (!root || ctl->join.has_table || ctl->broken)
		return TT_NEVER;
	if (now < root->report_ns)
		return root->report_ns;
	tt_bootstrap_missing(ctl, text, sizeof(text));
	tt_put_text(&w, text);
	tt_control_post(ctl, TT_TO_CHILDREN | TT_TO_JOINING, -1, TT_F_MISSING, &w);
	if (now >= root->log_ns) {
		log_wait(ctl, text);
		root->log_ns = now + LOG_NS;
	}
	root->report_ns = now + REPORT_NS;
	return root->report_ns;
}
