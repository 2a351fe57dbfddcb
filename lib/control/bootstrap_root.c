/*
 * bootstrap_root.c - rank 0's desk while ranks join:
 * who is here, do they fit together, who is missing
 *
 * Called by the service thread of rank 0. A rank registers over a connection of its own, which
 * becomes its tree connection when rank 0 is its parent; otherwise rank 0 names the parent as soon
 * as that has registered, and lets the connection go when the rank hangs in the tree. Until then
 * every failure reaches it here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

#define WORD_NS TT_SECOND                /* how often the waiting ranks hear who is missing ... */
#define LOG_NS (5 * TT_SECOND)           /* ... and the log */

struct tt_bootstrap {
	char settings[TT_SETTINGS];
	/* [nranks] registered; somebody without the secret claimed to be it */
	bool *here, *stranger;
	int nhere, seen;                 /* seen: registrations, also refused ones */
	uint64_t word_ns, log_ns;        /* when the next one is due */
};

int tt_bootstrap_open(struct tt_control *ctl, const struct tt_join *join)
{
	struct tt_bootstrap *desk = calloc(1, sizeof(*desk));

	if (desk) {
		desk->here = calloc((size_t)ctl->nranks, sizeof(*desk->here));
		desk->stranger = calloc((size_t)ctl->nranks, sizeof(*desk->stranger));
	}
	ctl->desk = desk;
	if (!desk || !desk->here || !desk->stranger)
		return tt_fail(TT_SYSTEM, "rank 0: no memory for %d ranks", ctl->nranks);
	snprintf(desk->settings, sizeof(desk->settings), "%s", join->settings);
	desk->here[0] = ctl->attached[0] = true;
	desk->nhere = 1;
	desk->word_ns = tt_now_ns() + WORD_NS;
	desk->log_ns = tt_now_ns() + LOG_NS;
	return 0;
}

void tt_bootstrap_close(struct tt_control *ctl)
{
	if (!ctl->desk)
		return;
	free(ctl->desk->here);
	free(ctl->desk->stranger);
	free(ctl->desk);
	ctl->desk = NULL;
}

bool tt_bootstrap_seen_all(const struct tt_control *ctl)
{
	return ctl->desk->seen >= ctl->nranks - 1;
}

void tt_bootstrap_stranger(struct tt_control *ctl, int claimed)
{
	if (ctl->desk && claimed < ctl->nranks)
		ctl->desk->stranger[claimed] = true;
}

/* ---- do they fit? ---------------------------------------------------------------------------- */

static bool has_word(const char *text, const char *word, size_t bytes)
{
	for (text += strspn(text, " "); *text;
	     text += strcspn(text, " "), text += strspn(text, " "))
		if (strcspn(text, " ") == bytes && !memcmp(text, word, bytes))
			return true;
	return false;
}

/* The words of a that b does not have. */
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

/* What is wrong with this registration, in words; false: nothing. */
static bool misfit(struct tt_control *ctl, const struct tt_register *reg, char *text, size_t bytes)
{
	struct tt_bootstrap *desk = ctl->desk;
	const struct tt_business_card *card = &reg->card, *other;
	char mine[256], theirs[256];
	int r = card->rank;

	if (reg->version != TUTTI_VERSION_CODE) {
		snprintf(text, bytes, "rank %d runs version %u of Tutti, rank 0 runs %d", r,
			 reg->version, TUTTI_VERSION_CODE);
	} else if ((int)reg->nranks != ctl->nranks) {
		snprintf(text, bytes,
			 "rank %d (pid %u on %s) joins as one of %u ranks, rank 0 as one of %d", r,
			 card->pid, card->name, reg->nranks, ctl->nranks);
	} else if (r >= ctl->nranks) {
		snprintf(text, bytes, "rank %d (pid %u on %s) is not one of the ranks 0..%d", r,
			 card->pid, card->name, ctl->nranks - 1);
	} else if (desk->here[r]) {
		other = &ctl->cards[r];
		snprintf(text, bytes, "rank %d came twice: as pid %u on %s and as pid %u on %s", r,
			 other->pid, other->name, card->pid, card->name);
	} else if (strcmp(reg->settings, desk->settings)) {
		differing(desk->settings, reg->settings, mine, sizeof(mine));
		differing(reg->settings, desk->settings, theirs, sizeof(theirs));
		snprintf(text, bytes, "settings differ: rank 0 has %s, rank %d has %s", mine, r,
			 theirs);
	} else {
		return false;
	}
	return true;
}

static void tell(struct tt_control *ctl, struct tt_conn *conn, int code, const char *text)
{
	struct tt_writer w = { 0 };

	tt_control_put_abort(&w, ctl->rank, code, -1, 0, text);
	tt_conn_send(ctl, conn, TT_F_ABORT, w.data, w.have);
	free(w.data);
}

static void refuse(struct tt_control *ctl, struct tt_conn *conn, int code, const char *text)
{
	tell(ctl, conn, code, text);
	tt_conn_end(ctl, conn);
}

/* Somebody is about to register. If there is no job any more, that is said before rank 0 leaves,
 * which it may do before the registration comes. */
void tt_bootstrap_entered(struct tt_control *ctl, struct tt_conn *conn)
{
	int culprit;

	if (ctl->broken)
		tell(ctl, conn, ctl->broken, tt_control_text(ctl, &culprit));
}

/* ---- placing ranks --------------------------------------------------------------------------- */

static void name_parent(struct tt_control *ctl, int rank)
{
	struct tt_conn *conn = ctl->conns;
	int parent = tt_tree_parent(rank);
	struct tt_writer w = { 0 };

	while (conn && (conn->dead || !conn->registered || conn->peer != rank ||
			!(conn->roles & TT_ROLE_REGISTER)))
		conn = conn->next;
	if (!conn || !parent || !ctl->desk->here[parent])
		return;
	tt_put_business_card(&w, &ctl->cards[parent]);
	tt_conn_send(ctl, conn, TT_F_PARENT, w.data, w.have);
	free(w.data);
}

static void send_table(struct tt_control *ctl)
{
	struct tt_writer w = { 0 };

	for (int r = 0; r < ctl->nranks; r++)
		tt_put_business_card(&w, &ctl->cards[r]);
	tt_conn_send_all(ctl, TT_ROLE_CHILD, NULL, TT_F_TABLE, w.data, w.have);
	free(w.data);
	ctl->has_table = true;
	pthread_cond_broadcast(&ctl->changed);
}

void tt_bootstrap_attached(struct tt_control *ctl, int rank)
{
	for (struct tt_conn *c = ctl->conns; c; c = c->next)
		if (!c->dead && c->peer == rank && c->registered && (c->roles & TT_ROLE_REGISTER)) {
			tt_conn_send(ctl, c, TT_F_RELEASE, NULL, 0);
			tt_conn_end(ctl, c);
		}
	for (int r = 0; r < ctl->nranks; r++)
		if (!ctl->attached[r])
			return;
	send_table(ctl);
}

bool tt_bootstrap_register(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes)
{
	struct tt_register reg;
	int r, culprit;
	char text[800];

	if (conn->registered || !tt_get_register(data, bytes, &reg) ||
	    reg.card.rank != conn->peer || !reg.card.port)
		return false;
	r = reg.card.rank;
	ctl->desk->seen++;
	pthread_cond_broadcast(&ctl->changed);
	if (ctl->broken) {
		refuse(ctl, conn, ctl->broken, tt_control_text(ctl, &culprit));
		return true;
	}
	if (misfit(ctl, &reg, text, sizeof(text))) {
		if (!ctl->has_table)
			tt_control_break(ctl, TT_USAGE, r, 0, text, NULL);
		else
			refuse(ctl, conn, TT_USAGE, text);      /* too late to harm the job */
		return true;
	}
	ctl->cards[r] = reg.card;
	ctl->desk->here[r] = true;
	ctl->desk->nhere++;
	conn->registered = true;
	if (tt_tree_parent(r) == 0) {
		conn->roles = TT_ROLE_CHILD;
		tt_join_attached(ctl, r);
	}
	name_parent(ctl, r);
	for (int child = r * TT_FANOUT + 1;
	     child <= r * TT_FANOUT + TT_FANOUT && child < ctl->nranks; child++)
		name_parent(ctl, child);
	return true;
}

/* A rank that failed before it could register: everybody may know at once, and why. */
bool tt_bootstrap_declined(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
		      size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	char text[800];

	tt_get_text(&r, text, sizeof(text));
	if (!tt_get_end(&r) || conn->registered)
		return false;
	tt_conn_end(ctl, conn);
	ctl->desk->seen++;
	pthread_cond_broadcast(&ctl->changed);
	if (!ctl->has_table && conn->peer < ctl->nranks && !ctl->desk->here[conn->peer])
		tt_control_break(ctl, TT_REMOTE, conn->peer, 0, text, NULL);
	return true;
}

/* ---- who is missing -------------------------------------------------------------------------- */

static bool is_absent(const void *ctx, int rank)
{
	return !((const struct tt_control *)ctx)->desk->here[rank];
}

static bool is_loose(const void *ctx, int rank)
{
	const struct tt_control *ctl = ctx;

	return ctl->desk->here[rank] && !ctl->attached[rank];
}

static bool is_strange(const void *ctx, int rank)
{
	const struct tt_control *ctl = ctx;

	return !ctl->desk->here[rank] && ctl->desk->stranger[rank];
}

/* The rank that keeps others waiting: it hangs in the tree, and one below it does not. */
static int unmoved(const struct tt_control *ctl)
{
	int r = 1;

	while (r < ctl->nranks - 1 && !(is_loose(ctl, r) && ctl->attached[tt_tree_parent(r)]))
		r++;
	return tt_tree_parent(r);
}

void tt_bootstrap_missing(struct tt_control *ctl, char *text, size_t bytes)
{
	char ranks[280];
	size_t have = 0;

	text[0] = '\0';
	if (tt_rank_list(ctl->nranks, is_absent, ctl, ranks, sizeof(ranks)))
		have = (size_t)snprintf(text, bytes, "%s never came", ranks);
	else if (tt_rank_list(ctl->nranks, is_loose, ctl, ranks, sizeof(ranks)))
		have = (size_t)
			snprintf(text, bytes,
				 "%s came, but rank %d, above in the tree, does not let them in",
				 ranks, unmoved(ctl));
	if (have < bytes && tt_rank_list(ctl->nranks, is_strange, ctl, ranks, 100))
		have += (size_t)snprintf(text + have, bytes - have,
					 "; whoever came as %s has another secret", ranks);
	if (have < bytes && ctl->accept_trouble[0])
		snprintf(text + have, bytes - have, "; %s", ctl->accept_trouble);
}

uint64_t tt_bootstrap_timers(struct tt_control *ctl, uint64_t now)
{
	struct tt_bootstrap *desk = ctl->desk;
	struct tt_writer w = { 0 };
	char text[500];

	if (!desk || ctl->has_table || ctl->broken)
		return TT_NEVER;
	if (now < desk->word_ns)
		return desk->word_ns;
	tt_bootstrap_missing(ctl, text, sizeof(text));
	tt_put_text(&w, text);
	tt_conn_send_all(ctl, TT_ROLE_CHILD | TT_ROLE_REGISTER, NULL, TT_F_MISSING, w.data, w.have);
	free(w.data);
	if (now >= desk->log_ns) {
		tt_log(TT_LOG_WARN, "rank 0: still waiting for all %d ranks to join: %s",
		       ctl->nranks, text);
		desk->log_ns = now + LOG_NS;
	}
	desk->word_ns = now + WORD_NS;
	return desk->word_ns;
}
