/*
 * bootstrap.c - join: from a unique id to a control in which every rank knows every other
 *
 * Called by comm. Rank 0 listens at the id's address and keeps the desk (bootstrap_root.c); every
 * other rank registers there, connects to its parent in the tree and waits for the table of all
 * cards. Whoever fails tells the others why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_internal.h"

/* at the deadline, rank 0's word is better than this rank's guess */
#define GRACE_NS (TT_SECOND / 2)
/* rank 0 stays so long to tell ranks that come late why there is no job */
#define LINGER_NS TT_SECOND
/* ... and others look so long for rank 0, to say why they do not come */
#define DECLINE_NS (2 * TT_SECOND)

static int fill_card(struct tt_control *ctl, const struct tt_join *join)
{
	struct tt_business_card *card = &ctl->cards[ctl->rank];
	int rc = tt_address_list(join->ifname, card->addresses, &card->naddresses);

	card->rank = ctl->rank;
	card->port = ctl->port;
	card->pid = (uint32_t)getpid();
	card->place = tt_id_place("");
	card->host = tt_id_place(join->host_id);
	if (gethostname(card->name, sizeof(card->name) - 1) || !card->name[0])
		snprintf(card->name, sizeof(card->name), "a host without a name");
	return rc ? tt_fail(rc, "rank %d: %s", ctl->rank, tt_error_text()) : 0;
}

/* No address, not even loopback: nobody can be waited for. */
static int check_network(const struct tt_control *ctl)
{
	if (ctl->cards[ctl->rank].naddresses || tt_loopback_is_up())
		return 0;
	return tt_fail(TT_SYSTEM,
		"rank %d: no network interface is up on %s, not even loopback; bring it up with `ip link set lo up`",
		ctl->rank, ctl->cards[ctl->rank].name);
}

/* The id says where rank 0 is to be found, so rank 0 must be there. */
static int check_home(const struct tt_control *ctl, const struct tt_id *id)
{
	const struct tt_business_card *me = &ctl->cards[0];

	if (id->from_root || id->place == me->place)
		return 0;
	for (int i = 0; i < id->naddresses; i++)
		for (int j = 0; j < me->naddresses; j++)
			if (tt_address_equal(&id->addresses[i], &me->addresses[j]))
				return 0;
	return tt_fail(TT_USAGE,
		"rank 0 runs on %s, but the unique id was made on another host or in another network "
		"namespace; make it where rank 0 runs", me->name);
}

/* Rank 0's card as far as the id tells it. */
static void card_of_root(const struct tt_id *id, struct tt_business_card *ret_card)
{
	*ret_card = (struct tt_business_card){ .port = id->port,
				      .place = id->place,
				      .naddresses = id->naddresses };
	snprintf(ret_card->name, sizeof(ret_card->name), "where the ranks meet");
	for (int i = 0; i < id->naddresses; i++)
		ret_card->addresses[i] = id->addresses[i];
}

static int send_registration(struct tt_control *ctl, const struct tt_join *join, int fd)
{
	struct tt_register reg = { .version = TUTTI_VERSION_CODE, .nranks = (uint32_t)ctl->nranks,
				   .card = ctl->cards[ctl->rank] };
	bool child_of_root = tt_tree_parent(ctl->rank) == 0;
	struct tt_writer w = { 0 };
	struct tt_conn *conn;

	snprintf(reg.settings, sizeof(reg.settings), "%s", join->settings);
	tt_put_register(&w, &reg);
	pthread_mutex_lock(&ctl->lock);
	conn = tt_conn_add(ctl, fd, 0, child_of_root ? TT_ROLE_PARENT : TT_ROLE_REGISTER);
	if (conn) {
		conn->registered = true;
		tt_conn_send(ctl, conn, TT_F_REGISTER, w.data, w.have);
	}
	pthread_mutex_unlock(&ctl->lock);
	free(w.data);
	return conn ? 0 : tt_fail(TT_SYSTEM, "rank %d: no memory for a connection", ctl->rank);
}

static int dial_root(struct tt_control *ctl, const struct tt_id *id, uint64_t deadline_ns,
		     int *ret_fd)
{
	struct tt_business_card root;
	struct tt_dial dial = { .to = &root, .purpose = TT_P_REGISTER, .named = id->from_root,
				.nports = id->nports, .deadline_ns = deadline_ns };

	card_of_root(id, &root);
	return tt_control_connect(ctl, &dial, ret_fd);
}

/* Wait until *flag. Other ranks get a little longer than rank 0, who knows best what is missing. */
static int await(struct tt_control *ctl, const bool *flag, const struct tt_join *join,
		 uint64_t deadline_ns)
{
	uint64_t until = deadline_ns + (ctl->rank ? GRACE_NS : 0);
	int rc = 0;

	pthread_mutex_lock(&ctl->lock);
	while (!*flag && !ctl->broken && !rc) {
		if (tt_control_await(ctl, until))
			continue;
		if (ctl->rank == 0)
			tt_bootstrap_missing(ctl, ctl->missing, sizeof(ctl->missing));
		rc = tt_fail(TT_TIMEOUT, "rank %d: joining timed out after %u ms: %s", ctl->rank,
			     join->timeout_ms,
			     ctl->missing[0] ? ctl->missing : "no word from rank 0");
	}
	if (ctl->broken)
		rc = tt_control_fail(ctl);
	pthread_mutex_unlock(&ctl->lock);
	return rc;
}

static int meet(struct tt_control *ctl, const struct tt_join *join, const struct tt_id *id,
		uint64_t deadline_ns)
{
	int fd, rc = check_network(ctl);

	if (rc)
		return rc;
	if (ctl->rank) {
		if ((rc = tt_control_start(ctl)) || (rc = dial_root(ctl, id, deadline_ns, &fd)) ||
		    (rc = send_registration(ctl, join, fd)))
			return rc;
		if (tt_tree_parent(ctl->rank) &&
		    ((rc = await(ctl, &ctl->has_parent, join, deadline_ns)) ||
		     (rc = tt_join_tree(ctl, &ctl->parent, deadline_ns))))
			return rc;
	} else if ((rc = check_home(ctl, id)) || (rc = tt_bootstrap_open(ctl, join)) ||
		   (rc = tt_control_start(ctl))) {
		return rc;
	}
	rc = await(ctl, &ctl->has_table, join, deadline_ns);
	return rc ? rc : tt_join_ring(ctl, deadline_ns);
}

/* Tell the others, and let go; the sentence stays this thread's. */
static int part(struct tt_control *ctl, int code)
{
	uint64_t until = tt_now_ns() + LINGER_NS;
	char text[1024];

	snprintf(text, sizeof(text), "%s", tt_error_text());
	if (ctl->threaded) {
		tt_control_raise(ctl, code, code == TT_TIMEOUT ? -1 : ctl->rank, text);
		pthread_mutex_lock(&ctl->lock);
		while (code != TT_TIMEOUT && ctl->desk && !tt_bootstrap_seen_all(ctl) &&
		       tt_control_await(ctl, until))
			;
		pthread_mutex_unlock(&ctl->lock);
	}
	tt_control_leave(ctl);
	return tt_fail(code, "%s", text);
}

static void trust(struct tt_control *ctl, const struct tt_id *id)
{
	tt_key_make(id->secret, TT_SECRET, "job", 0, ctl->key.bytes, TT_KEY);
	memcpy(ctl->job, id->nonce, TT_NONCE);
	ctl->epoch = id->epoch;
}

static void send_decline(int fd, const char *why, const struct tt_patience *patience)
{
	struct tt_writer text = { 0 }, w = { 0 };
	char end;

	tt_put_text(&text, why);
	tt_put(&w, text.have, 4);
	tt_put(&w, TT_F_DECLINE, 1);
	tt_put_bytes(&w, text.data, text.have);
	if (!w.failed && !tt_sock_send(fd, w.data, w.have, patience))
		/* it has been read when the other side closes */
		tt_sock_recv(fd, &end, 1, patience);
	free(text.data);
	free(w.data);
}

int tt_control_decline(const struct tt_join *join, int code)
{
	struct tt_patience patience = { .deadline_ns = tt_now_ns() + DECLINE_NS };
	struct tt_control *ctl;
	struct tt_id id;
	char why[800];
	int fd;

	snprintf(why, sizeof(why), "%s", tt_error_text());
	tt_text_plain(why);
	if (join->rank < 1 || join->rank >= join->nranks || tt_id_unpack(join->id, &id) ||
	    tt_control_make(join->rank, join->nranks, NULL, &ctl))
		return tt_fail(code, "%s", why);
	trust(ctl, &id);
	fill_card(ctl, join);
	if (!dial_root(ctl, &id, patience.deadline_ns, &fd)) {
		send_decline(fd, why, &patience);
		tt_sock_close(fd);
	}
	tt_control_free(ctl);
	return tt_fail(code, "%s", why);
}

int tt_control_join(const struct tt_join *join, struct tt_control **ret_ctl)
{
	uint64_t deadline_ns = tt_deadline_ns(join->timeout_ms);
	struct tt_ports ports = tt_ports_read(join->port_range), root;
	struct tt_control *ctl;
	struct tt_id id;
	int rc = tt_id_unpack(join->id, &id);

	if (rc)
		return rc;
	if (join->nranks < 1 || join->rank < 0 || join->rank >= join->nranks)
		return tt_fail(TT_ARG, "rank %d is not one of %d ranks", join->rank, join->nranks);
	/* rank 0 may come to its ports later than its neighbours on this host */
	ports.spare_first = id.port;
	ports.spare_count = id.nports;
	root = (struct tt_ports){ .first = id.port, .count = id.nports };
	rc = tt_control_make(join->rank, join->nranks, join->rank ? &ports : &root, &ctl);
	if (rc)
		return tt_control_decline(join, rc);
	ctl->ports = ports;
	trust(ctl, &id);
	rc = fill_card(ctl, join);
	if (rc) {
		tt_control_free(ctl);
		return tt_control_decline(join, rc);
	}
	if (ctl->nranks > 1)
		rc = meet(ctl, join, &id, deadline_ns);
	if (rc)
		return part(ctl, rc);
	tt_id_release(id.port);
	tt_control_number_hosts(ctl);
	*ret_ctl = ctl;
	return 0;
}
