/*
 * bootstrap.c - join: from a unique id to a control with the business card of every rank
 *
 * Called by comm. Rank 0 listens at the id's address and is the bootstrap root (bootstrap_root.c);
 * every other rank registers there, connects to its parent in the tree and waits for the table of
 * business cards. A rank that fails sends the reason to the others.
 */
#include <limits.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_internal.h"

/* extra time at the deadline for rank 0's report, which names the missing ranks */
#define GRACE_NS (TT_SECOND / 2)
/* rank 0 of a failed join waits for the next late rank for this long */
#define LINGER_NS (2 * TT_SECOND)
/* limit for a declining rank to reach rank 0 */
#define DECLINE_NS (2 * TT_SECOND)
/* rank 0 of a smaller join keeps the memory of its sessions for later ones */
#define MANY_RANKS 16

/* The kernel allows names of 64 bytes, and control characters, which would make a registration malformed. */
static void name_host(char *name, size_t room)
{
	char whole[HOST_NAME_MAX + 1] = "";

	gethostname(whole, sizeof(whole));
	snprintf(name, room, "%.*s", (int)room - 1, *whole ? whole : "a host without a name");
	tt_text_plain(name);
}

static int fill_business_card(struct tt_control *ctl, const struct tt_join *join)
{
	struct tt_business_card *me = &ctl->ep->peers.mine;
	int rc = tt_address_list(join->ifname, me->addresses, &me->naddresses);

	if (!rc)
		rc = tt_id_netns("", &me->netns);
	if (!rc)
		rc = tt_id_netns(join->host_id, &me->host);
	me->rank = ctl->rank;
	me->port = ctl->ep->listening.port;
	me->pid = (uint32_t)getpid();
	memcpy(me->public_key, ctl->ep->auth.identity.public_key, TT_PUBLIC_KEY);
	name_host(me->name, sizeof(me->name));
	if (!rc && !tt_directory_put(&ctl->ep->peers.directory, me))
		return tt_fail(TT_SYSTEM, "rank %d: no memory for business cards", ctl->rank);
	if (!ctl->rank)
		memcpy(ctl->ep->peers.root_key, me->public_key, TT_PUBLIC_KEY);
	return rc ? tt_fail(rc, "rank %d: %s", ctl->rank, tt_error_text()) : 0;
}

/* Without any address, even loopback, no rank can connect. */
static int check_network(const struct tt_control *ctl)
{
	if (ctl->ep->peers.mine.naddresses || tt_loopback_is_up())
		return 0;
	return tt_fail(
		TT_SYSTEM,
		"rank %d: no network interface is up on %s, not even loopback; bring it up with `ip link set lo up`",
		ctl->rank, ctl->ep->peers.mine.name);
}

/* The user chose the addresses; the id of a launcher's rank 0 has none. */
static int check_chosen_address(const struct tt_control *ctl, const struct tt_id *id)
{
	char where[TT_ENDPOINT_TEXT];

	for (int i = 0; i < id->naddresses; i++)
		if (tt_address_is_here(&id->addresses[i]))
			return 0;
	if (!id->naddresses)
		return 0;
	return tt_fail(
		TT_USAGE,
		"rank 0 runs on %s, where no network interface has the address %s of TUTTI_ROOT (or "
		"NCCL_COMM_ID), so no rank can reach rank 0 there; name an address of this host, or run rank 0 "
		"on the host of that address",
		ctl->ep->peers.mine.name, tt_address_text(&id->addresses[0], 0, where));
}

/* The id holds rank 0's addresses, so rank 0 must have one of them. */
static int check_root_host(const struct tt_control *ctl, const struct tt_id *id)
{
	const struct tt_business_card *me = &ctl->ep->peers.mine;

	if (id->from_root)
		return check_chosen_address(ctl, id);
	if (id->netns == me->netns)
		return 0;
	for (int i = 0; i < id->naddresses; i++)
		for (int j = 0; j < me->naddresses; j++)
			if (tt_address_equal(&id->addresses[i], &me->addresses[j]))
				return 0;
	return tt_fail(
		TT_USAGE,
		"rank 0 runs on %s, but the unique id was made on another host or in another network "
		"namespace; make it where rank 0 runs",
		me->name);
}

/* Rank 0's business card, as far as the id holds it. */
static void describe_root(const struct tt_id *id, struct tt_business_card *ret_root)
{
	*ret_root = (struct tt_business_card){ .port = id->port,
					       .netns = id->netns,
					       .naddresses = id->naddresses };
	snprintf(ret_root->name, sizeof(ret_root->name), "at the id's address");
	for (int i = 0; i < id->naddresses; i++)
		ret_root->addresses[i] = id->addresses[i];
}

static int send_registration(struct tt_control *ctl, const struct tt_join *join,
			     struct tt_duplex duplex)
{
	struct tt_register reg = { .version = TUTTI_VERSION_CODE,
				   .nranks = (uint32_t)ctl->nranks,
				   .from = ctl->ep->peers.mine };
	bool child_of_root = tt_tree_parent(ctl->rank) == 0;
	uint8_t bytes[TT_FRAME_REGISTER];
	struct tt_writer w = TT_WRITER_INTO(bytes);
	struct tt_conn *conn;

	snprintf(reg.settings, sizeof(reg.settings), "%s", join->settings);
	tt_put_register(&w, &reg);
	tt_control_lock(ctl);
	conn = tt_conn_add(ctl->ep, duplex, 0, !child_of_root);
	if (conn) {
		conn->registered = true;
		tt_conn_send(ctl->ep, conn, 0, TT_F_REGISTER, w.data, w.have);
	}
	tt_control_unlock(ctl);
	return conn ? 0 : tt_fail(TT_SYSTEM, "rank %d: no memory for a connection", ctl->rank);
}

/* Only the job's key proves that rank 0 answers; all else is bound to the key pair of who did.
 * network: over the network in any case */
static int dial_root(struct tt_control *ctl, const struct tt_id *id, bool network,
		     uint64_t deadline_ns, struct tt_duplex *ret_duplex)
{
	struct tt_dial dial = { .me = ctl->rank,
				.purpose = TT_P_REGISTER,
				.channel = tt_local_earlier(ctl->ep),
				.named = id->from_root,
				.network = network,
				.nports = id->nports,
				.deadline_ns = deadline_ns };
	int rc;

	describe_root(id, &dial.to);
	rc = tt_control_connect(ctl, &dial, ret_duplex);
	if (rc)
		return rc;
	tt_control_lock(ctl);
	memcpy(ctl->ep->peers.root_key, dial.server_key, TT_PUBLIC_KEY);
	tt_control_unlock(ctl);
	return 0;
}

/* Delays the registration of high ranks: rank 0 is busy with the others for longer than the delay.
 * */
static void await_turn(struct tt_control *ctl, uint64_t deadline_ns)
{
	uint64_t turn_ns = tt_now_ns() + tt_control_pace_ns(ctl->rank);

	if (ctl->rank < TT_PACE_RANKS)
		return;
	tt_control_lock(ctl);
	while (!ctl->broken &&
	       tt_endpoint_await(ctl->ep, turn_ns < deadline_ns ? turn_ns : deadline_ns))
		;
	tt_control_unlock(ctl);
}

/* Wait until *flag. Other ranks wait a little longer than rank 0, which names the missing ranks. */
static int await(struct tt_control *ctl, const bool *flag, const struct tt_join *join,
		 uint64_t deadline_ns)
{
	uint64_t until = deadline_ns + (ctl->rank ? GRACE_NS : 0);
	int rc = 0;

	tt_control_lock(ctl);
	while (!*flag && !ctl->broken && !rc) {
		if (tt_endpoint_await(ctl->ep, until))
			continue;
		if (ctl->rank == 0)
			tt_bootstrap_missing(ctl, ctl->join.missing, sizeof(ctl->join.missing));
		rc = tt_fail(TT_TIMEOUT, "rank %d: joining timed out after %u ms: %s", ctl->rank,
			     join->timeout_ms,
			     ctl->join.missing[0] ? ctl->join.missing : "no message from rank 0");
	}
	if (ctl->broken)
		rc = tt_control_fail(ctl);
	tt_control_unlock(ctl);
	return rc;
}

/* The id for monitors, with the port and the addresses where this rank 0 listens: an id of TUTTI_ROOT has
 * none on rank 0. */
static int write_id(struct tt_control *ctl, const struct tt_join *join)
{
	const struct tt_business_card *me = &ctl->ep->peers.mine;
	bool wanted = join->id_folder && *join->id_folder;
	tuttiUniqueId packed;
	struct tt_id here;
	int rc = wanted ? tt_id_unpack(join->id, &here) : 0;

	if (!wanted || rc)
		return rc;
	here.port = ctl->ep->listening.port;
	here.nports = 1;
	here.netns = me->netns;
	here.naddresses = me->naddresses < TT_ID_ADDRESSES ? me->naddresses : TT_ID_ADDRESSES;
	memcpy(here.addresses, me->addresses, sizeof(here.addresses));
	tt_id_pack(&here, &packed);
	rc = tt_id_file_write(join->id_folder, &packed, &ctl->ep->id_file);
	OPENSSL_cleanse(&packed, sizeof(packed));
	OPENSSL_cleanse(here.secret, TT_SECRET);
	return rc;
}

static int number_hosts(struct tt_control *ctl)
{
	if (tt_control_number_hosts(ctl))
		return 0;
	return tt_fail(TT_SYSTEM, "rank %d: no memory for %d ranks", ctl->rank, ctl->nranks);
}

static int connect_ranks(struct tt_control *ctl, const struct tt_join *join, const struct tt_id *id,
			 uint64_t deadline_ns)
{
	struct tt_duplex duplex;
	int rc = check_network(ctl);

	if (rc)
		return rc;
	if (ctl->rank) {
		if ((rc = tt_endpoint_start(ctl->ep)))
			return rc;
		await_turn(ctl, deadline_ns);
		if ((rc = dial_root(ctl, id, false, deadline_ns, &duplex)) ||
		    (rc = send_registration(ctl, join, duplex)))
			return rc;
		if (tt_tree_parent(ctl->rank) &&
		    ((rc = await(ctl, &ctl->join.has_parent, join, deadline_ns)) ||
		     (rc = tt_join_tree(ctl, &ctl->join.parent, deadline_ns))))
			return rc;
	} else if ((rc = check_root_host(ctl, id)) || (rc = tt_bootstrap_open(ctl, join)) ||
		   (rc = tt_endpoint_start(ctl->ep)) || (rc = write_id(ctl, join))) {
		return rc;
	}
	rc = await(ctl, &ctl->join.has_table, join, deadline_ns);
	if (!rc)
		rc = number_hosts(ctl);
	return rc ? rc : tt_join_ring(ctl, deadline_ns);
}

/* Waits for ranks that arrive after the join has failed: the service thread sends them the reason. */
static void await_late_ranks(struct tt_control *ctl)
{
	uint64_t until = tt_now_ns() + LINGER_NS;
	int unseen = tt_bootstrap_unseen(ctl), before = unseen;

	while (unseen > 0 && tt_endpoint_await(ctl->ep, until)) {
		unseen = tt_bootstrap_unseen(ctl);
		if (unseen < before)
			until = tt_now_ns() + LINGER_NS;
		before = unseen;
	}
}

/* A failed join: send the reason to the other ranks, free ctl and the port that tt_id_make
 * reserved; the thread's last error stays. */
static int abandon(struct tt_control *ctl, const struct tt_join *join, int port, int code)
{
	bool unknown; /* to rank 0: this rank failed before it could register */
	char text[1024];

	snprintf(text, sizeof(text), "%s", tt_error_text());
	if (ctl->ep->served.entered) {
		tt_control_raise(ctl, code, code == TT_TIMEOUT ? -1 : ctl->rank, text);
		tt_control_lock(ctl);
		if (code != TT_TIMEOUT && ctl->join.root)
			await_late_ranks(ctl);
		tt_control_unlock(ctl);
	}
	unknown = ctl->rank && code == TT_SYSTEM && !ctl->ep->conns;
	tt_control_leave(ctl);
	tt_id_release(port);
	tt_fail(code, "%s", text);
	return unknown ? tt_control_decline(join, code) : code;
}

/* The first control of a new endpoint. ports NULL: it only connects. Overwrites the secret of id.
 * 0 | TT_SYSTEM */
static int make_first(const struct tt_join *join, struct tt_id *id, const struct tt_ports *ports,
		      struct tt_control **ret_ctl)
{
	struct tt_control_endpoint *ep;
	int rc = tt_endpoint_make(join->rank, join->nranks, &ep);

	if (rc)
		return rc;
	rc = tt_endpoint_authenticate(ep, id);
	OPENSSL_cleanse(id->secret, TT_SECRET);
	if (!rc && ports && join->nranks > 1)
		rc = tt_endpoint_listen(ep, ports);
	if (!rc && join->nranks > 1) /* takes a while, in which other ranks connect already */
		rc = tt_endpoint_tls(ep);
	if (!rc)
		rc = tt_control_make(ep, join->rank, join->nranks, ret_ctl);
	if (rc)
		tt_endpoint_free(ep);
	return rc;
}

static void send_decline(struct tt_tls *tls, const char *why, const struct tt_patience *patience)
{
	struct tt_writer text = { 0 }, w = { 0 };
	char end;

	tt_put_text(&text, why);
	tt_put_frame_head(&w, &(struct tt_frame_head){ TT_F_DECLINE, 0, text.have });
	tt_put_bytes(&w, text.data, text.have);
	/* a new socket has room for the frame */
	if (!w.failed && tt_tls_send(tls, w.data, w.have) == (ssize_t)w.have)
		/* rank 0 closes after it has read the frame */
		tt_sock_recv(tt_tls_fd(tls), &end, 1, patience);
	free(text.data);
	free(w.data);
}

int tt_control_decline(const struct tt_join *join, int code)
{
	struct tt_patience patience = { .deadline_ns = tt_now_ns() + DECLINE_NS };
	struct tt_control *ctl;
	struct tt_duplex duplex;
	struct tt_id id;
	char why[800];

	snprintf(why, sizeof(why), "%s", tt_error_text());
	tt_text_plain(why);
	if (tt_id_unpack(join->id, &id))
		return tt_fail(code, "%s", why);
	tt_id_release(id.port);
	if (join->rank < 1 || join->rank >= join->nranks || make_first(join, &id, NULL, &ctl))
		return tt_fail(code, "%s", why);
	fill_business_card(ctl, join);
	if (!dial_root(ctl, &id, true, patience.deadline_ns, &duplex)) {
		send_decline(duplex.tls, why, &patience);
		tt_duplex_close(&duplex);
	}
	tt_control_free(ctl);
	return tt_fail(code, "%s", why);
}

/* The sessions of the registrations have filled a heap that has little in it now: 1.2 MB of 64 ranks.
 * glibc gives nothing back by itself, since some of the last sessions stay. */
static void give_back_memory(const struct tt_control *ctl)
{
	if (ctl->join.root && ctl->nranks >= MANY_RANKS)
		malloc_trim(0);
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
	/* rank 0 may bind its ports later than the other ranks of this host bind theirs */
	ports.avoid_first = id.port;
	ports.avoid_count = id.nports;
	root = (struct tt_ports){ .first = id.port, .count = id.nports };
	rc = make_first(join, &id, join->rank ? &ports : &root, &ctl);
	if (rc)
		return tt_control_decline(join, rc);
	rc = fill_business_card(ctl, join);
	if (rc) {
		tt_control_free(ctl);
		return tt_control_decline(join, rc);
	}
	rc = ctl->nranks > 1 ? connect_ranks(ctl, join, &id, deadline_ns) : number_hosts(ctl);
	if (rc)
		return abandon(ctl, join, id.port, rc);
	tt_id_release(id.port);
	give_back_memory(ctl);
	*ret_ctl = ctl;
	return 0;
}
