/*
 * fuzz_frame.c - arbitrary bytes on a control connection, or on an unauthenticated one
 *
 * The first byte chooses the kind of the rest: a hello, a unique id, a registration, status, report
 * for monitors or set alone (which must survive being read and written again), the messages of rank 0's
 * children in the exchange of a split, or a stream into a real control, over a real socket, from a child, the
 * parent, a ring neighbor, a registering rank or a stranger, where memory may run out. No input may crash or hang
 * the control, or make it hold more bytes than it received.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/bootstrap.h"
#include "control/monitor.h"
#include "control/parts.h"
#include "control/sent_set.h"
#include "plan/plan.h"
#include "tests/fuzz/fuzz_control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* ---- single messages ------------------------------------------------------------------------- */

static void registration(const uint8_t *data, size_t bytes)
{
	struct tt_register reg;
	struct tt_writer w = { 0 };

	if (!tt_get_register(data, bytes, &reg))
		return;
	tt_put_register(&w, &reg);
	fuzz_must(w.have == bytes && !memcmp(w.data, data, bytes),
		  "a registration is written as it was read");
	free(w.data);
}

static void status(const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	struct tt_status s;
	struct tt_writer w = { 0 };
	char text[96];

	if (!tt_get_status(&r, FUZZ_RANKS, &s) || r.left)
		return;
	fuzz_must(s.origin >= 0 && s.origin < FUZZ_RANKS && s.awaited < FUZZ_RANKS,
		  "ranks of a status are ranks of the job");
	tt_put_status(&w, &s);
	fuzz_must(w.have == bytes && !memcmp(w.data, data, bytes),
		  "a status is written as it was read");
	free(w.data);
	for (int i = 0; i < s.nwants; i++)
		tt_wait_edge_text(&s.want[i], text, sizeof(text));
	for (int i = 0; i < s.history.nruns; i++) {
		tt_call_text(&s.history.run[i].call, s.started, text, sizeof(text));
		tt_call_describe(&s.history.run[i].call, true, text, sizeof(text));
	}
}

static void hello(const uint8_t *data, size_t bytes)
{
	uint8_t bytes_of_hello[TT_HELLO_BYTES] = { 0 };
	struct tt_psk_identity identity;
	struct tt_hello h;

	memcpy(bytes_of_hello, data,
	       bytes < sizeof(bytes_of_hello) ? bytes : sizeof(bytes_of_hello));
	if (tt_psk_identity_get(data, bytes, &identity))
		fuzz_must(bytes == TT_IDENTITY_BYTES && identity.rank >= 0,
			  "an identity has a rank");
	if (tt_hello_get(bytes_of_hello, &h))
		fuzz_must(h.purpose >= TT_P_REGISTER && h.purpose <= TT_P_RECORD && h.from >= 0,
			  "a hello has a purpose");
}

static void id(const uint8_t *data, size_t bytes)
{
	tuttiUniqueId packed = { { 0 } };
	struct tt_id id;

	memcpy(packed.internal, data, bytes < sizeof(packed) ? bytes : sizeof(packed));
	fuzz_must(tt_id_unpack(&packed, &id) == TT_ARG ||
			  (id.port && id.naddresses <= TT_ID_ADDRESSES),
		  "an id is in bounds");
}

static void report(const uint8_t *data, size_t bytes)
{
	struct tt_job_report got;
	struct tt_writer w = { 0 };

	if (!tt_get_job_report(data, bytes, &got))
		return;
	tt_put(&w, (uint32_t)got.ncomms, 4);
	tt_put(&w, (uint32_t)got.left_out, 4);
	for (int i = 0; i < got.ncomms; i++) {
		tt_put_comm_report(&w, &got.comms[i]);
		for (int r = 0; r < got.comms[i].nranks; r++)
			tt_put_rank_report(&w, &got.comms[i].ranks[r]);
	}
	tt_put(&w, (uint32_t)got.nservers, 4);
	for (int i = 0; i < got.nservers; i++)
		tt_put_business_card(&w, &got.servers[i]);
	fuzz_must(w.have == bytes && !memcmp(w.data, data, bytes),
		  "a report is written as it was read");
	free(w.data);
	tt_job_report_free(&got);
}

/* ranks of a set of several groups */
#define SET_RANKS 2100

static struct tt_counted_bits read_set(const struct tt_sent_set *s)
{
	struct tt_counted_bits set;

	if (!tt_sent_set_read(s, &set))
		exit(1);
	return set;
}

/* A set of as many ranks as the first two bytes say */
static void set(const uint8_t *data, size_t bytes)
{
	struct tt_reader r = { .at = data, .left = bytes };
	struct tt_sent_set s = tt_get_set(&r, (int)(tt_get(&r, 2) % (SET_RANKS + 1)));
	struct tt_counted_bits bits, same;
	struct tt_writer w = { 0 };

	if (!tt_get_end(&r))
		return;
	bits = read_set(&s);
	for (int rank = 0; rank < s.n; rank++) {
		fuzz_must(tt_sent_set_has(&s, rank) == tt_counted_bits_has(&bits, rank) &&
				  tt_sent_set_next(&s, rank) ==
					  tt_counted_bits_next(&bits, rank, true),
			  "a set has the same ranks in a message and in memory");
	}
	tt_put_set(&w, &bits);
	fuzz_must(w.have <= bytes - 2, "a set is written in no more bytes than it was read");
	r = (struct tt_reader){ .at = w.data, .left = w.have };
	s = tt_get_set(&r, s.n);
	fuzz_must(tt_get_end(&r), "a set is read as it was written");
	same = read_set(&s);
	fuzz_must(tt_counted_bits_mark(&same) == tt_counted_bits_mark(&bits), "with its ranks");
	tt_counted_bits_free(&bits);
	tt_counted_bits_free(&same);
	free(w.data);
}

/* ---- exchanges of a split --------------------------------------------------------------------- */

/* The message of a child as it comes; with a right head, unless bit `child` of raw says that the input has one */
static void give_parts(struct tt_control *ctl, struct tt_reader *in, int child, unsigned raw,
		       size_t each)
{
	size_t bytes = tt_get_upto(in, 2, in->left > 2 ? in->left - 2 : 0);
	struct tt_writer w = { 0 };

	if (!(raw >> (child - 1) & 1)) {
		tt_put(&w, 1, 8);
		tt_put(&w, each, 4);
	}
	if (bytes)
		tt_put_bytes(&w, tt_get_bytes(in, bytes), bytes);
	if (child < ctl->nranks && w.data)
		tt_gather_up(ctl, child, w.data, w.have);
	free(w.data);
}

static void check_facts(const struct tt_parts *facts, int n)
{
	uint8_t part[256];

	for (int r = 0, end; r < n; r = end) {
		end = tt_part_end(facts, r);
		fuzz_must(end > r && end <= n, "parts are in runs of ranks that exist");
		tt_part_get(facts, r, part);
	}
}

static void check_members(const struct tt_members *m, int npeers)
{
	for (int p = 0, n = 0; p < npeers; p++) {
		int rank = tt_rank_map_rank(&m->map, p);

		n += rank >= 0;
		fuzz_must(rank < m->map.n && n <= m->map.n, "members are ranks");
		fuzz_must(rank < 0 || tt_rank_map_peer(&m->map, rank) == p, "each is itself");
	}
	fuzz_must(m->rank == tt_rank_map_rank(&m->map, 0), "this rank is one of them");
}

/* Rank 0 of n ranks splits after its children's messages have arrived. A new control waits for no connection. */
static void exchange(const uint8_t *data, size_t bytes)
{
	static const uint8_t mine[256];
	struct tt_reader r = { .at = data, .left = bytes };
	int n = 1 + (int)(tt_get(&r, 2) % SET_RANKS), color = (int)tt_get(&r, 1) - 1;
	unsigned raw = (unsigned)tt_get(&r, 1), fact = (unsigned)tt_get(&r, 1),
		 memory = (unsigned)tt_get(&r, 1);
	struct tt_parts facts = { .mine = mine, .bytes = fact };
	struct tt_members members;
	struct tt_control_endpoint *ep;
	struct tt_control *ctl, *made;

	if (r.failed || tt_endpoint_make(0, n, &ep) || tt_control_make(ep, 0, n, &ctl))
		return;
	for (int child = 1; child <= TT_FANOUT; child++)
		give_parts(ctl, &r, child, raw, 12 + fact);
	fuzz_memory(memory);
	if (!tt_control_split(ctl, color, 0, 0, 0, &facts, 1, &made, &members)) {
		if (fact)
			check_facts(&facts, made ? members.map.n : n);
		if (made)
			check_members(&members, n);
		tt_parts_free(&facts);
	}
	fuzz_memory(0);
	tt_control_leave(made);
	tt_rank_map_free(&members.map);
	tt_control_formed(ctl);
	tt_control_free(ctl);
}

/* ---- streams into a control ------------------------------------------------------------------ */

static void check(const struct tt_control *ctl, size_t bytes)
{
	int culprit;
	const char *text = tt_control_text(ctl, &culprit);

	fuzz_must(culprit >= -1 && strlen(text) < sizeof(ctl->failure.text),
		  "the failure has an error text");
	for (const char *p = text; *p; p++)
		fuzz_must((unsigned char)*p >= ' ', "the error text is printable");
	for (struct tt_conn *c = ctl->ep->conns; c; c = c->next)
		fuzz_must(c->in_room <= 2 * bytes + 65536,
			  "the control holds no more bytes than it received");
	for (int i = 0; i < TT_FANOUT; i++)
		fuzz_must(ctl->gather.child[i].bytes <= bytes, "so do its exchanges");
	fuzz_must(ctl->ep->early_bytes <= 8 * bytes, "so do its frames of later controls");
	fuzz_must(ctl->ep->listening.listener->nunauth >= 0 &&
			  ctl->ep->listening.listener->nunauth <= 1,
		  "unauthenticated connections are counted");
}

/* An unauthenticated connection as tt_accept_event makes it; rank 0's is through the handshake. */
static void add_unauth(struct tt_control_endpoint *ep, struct tt_tls *tls)
{
	struct tt_unauth *u = calloc(1, sizeof(*u));
	struct tt_listener *l = ep->listening.listener;
	int fd = tt_tls_fd(tls);

	*u = (struct tt_unauth){
		.watched = { TT_SRC_UNAUTH, NULL }, .listener = l, .fd = fd, .since_ns = tt_now_ns()
	};
	if (ep->peer) {
		tt_tls_release(tls);
	} else {
		u->tls = tls;
		u->ep = ep;
	}
	l->unauth = u;
	tt_admission_count(l, 1);
	fuzz_must(!tt_listener_enter(ep) && tt_service_watch(EPOLL_CTL_ADD, fd, EPOLLIN, u),
		  "epoll");
}

/* Another process has registered as the rank. */
static void register_before(struct tt_control *ctl, int rank)
{
	struct tt_register reg = { .version = TUTTI_VERSION_CODE,
				   .nranks = FUZZ_RANKS,
				   .settings = "a=1",
				   .from = { .rank = rank, .port = 1 } };
	struct tt_conn conn = { .peer = rank, .registration = true };
	struct tt_writer w = { 0 };

	tt_put_register(&w, &reg);
	tt_bootstrap_register(ctl, &conn, w.data, w.have);
	free(w.data);
}

/* Below 6 the sender of that role is authenticated. */
static void connect_as(struct tt_control_endpoint *ep, struct tt_tls *ours, int role, int peer)
{
	bool registration = role == 3 || role == 5;

	if (role < 6)
		tt_conn_add(ep, (struct tt_duplex){ .tls = ours }, peer, registration)->registered =
			role == 3;
	else
		add_unauth(ep, ours);
}

/* Serves what the sender has sent, looks for a deadlock, and serves the end of the connection; memory runs out at the
 * request of that number, 0: never. */
static void serve_all(struct tt_control *ctl, struct tt_tls *theirs, size_t bytes, unsigned memory)
{
	fuzz_memory(memory);
	fuzz_serve(ctl->ep);
	check(ctl, bytes);
	tt_control_lock(ctl);
	tt_deadlock_check(ctl);
	tt_control_unlock(ctl);
	check(ctl, bytes);
	tt_tls_close(theirs);
	fuzz_serve(ctl->ep);
	fuzz_memory(0);
	check(ctl, bytes);
}

/* kind: bits 0-2 the role of the sender, bit 3 this rank is in an allgather, bit 4 all ranks have
 * joined, bit 5 a split is in progress, or a registering rank does not exist, bit 6 the parent is not
 * rank 0, or the registering rank has registered before, bit 7 memory runs out at the request of the next byte */
static void stream(uint8_t kind, const uint8_t *data, size_t bytes)
{
	/* parent, child, ring neighbor, rank 0 as root, child of rank 0, rank that registers, stranger
	 * at rank 0, stranger at rank 1 */
	static const int ranks[8] = { 1, 1, 1, 1, 0, 0, 0, 1 },
			 peers[8] = { 0, 9, 2, 0, 1, 3, 0, 0 };
	struct tt_join join = { .settings = "a=1", .nranks = FUZZ_RANKS };
	struct tt_control_endpoint *ep;
	struct tt_tls *ours, *theirs;
	struct tt_control *ctl;
	int role = kind & 7, rank = ranks[role], peer = peers[role];
	unsigned memory = 0;

	if (role == 0 && kind & 64) {
		rank = 9;
		peer = tt_tree_parent(rank);
	}
	if (role == 5 && kind & 32)
		peer = FUZZ_RANKS;
	if (kind & 128 && bytes) {
		memory = data[0];
		data++;
		bytes--;
	}
	if (tt_endpoint_make(rank, FUZZ_RANKS, &ep) ||
	    tt_endpoint_listen(ep, &(struct tt_ports){ 0 }) ||
	    tt_control_make(ep, rank, FUZZ_RANKS, &ctl) ||
	    !tls_pair(fuzz_sessions(), &fuzz_key, &ours, &theirs))
		return;
	ep->auth.tls = fuzz_sessions();
	ep->auth.identity = *fuzz_identity();
	fuzz_must(rank || !tt_bootstrap_open(ctl, &join), "a bootstrap root");
	fuzz_know_ranks(ep);
	if (role == 5 && kind & 64)
		register_before(ctl, peer);
	ctl->join.has_table = ctl->join.complete = kind & 16;
	if (kind & 32)
		tt_endpoint_forming(ep, true);
	connect_as(ep, ours, role, peer);
	if (kind & 8)
		fuzz_begin_gather(ctl);
	tt_control_note(ctl, 5, &(struct tt_call){ .root = -1, .count = 3 });
	tt_control_note_message(ctl, false, 2, 2,
				&(struct tt_call){ .collective = TT_SENDRECV, .count = 3 });
	if (role < 7) /* else bytes of one who has no key */
		(void)!tt_tls_send(theirs, data, bytes);
	else
		(void)!send(tt_tls_fd(theirs), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	serve_all(ctl, theirs, bytes, memory);
	ep->auth.tls = NULL;
	ep->auth.identity.secret = NULL;
	tt_control_free(ctl);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes < 1)
		return 0;
	switch (data[0]) {
	case 0:
		registration(data + 1, bytes - 1);
		break;
	case 1:
		status(data + 1, bytes - 1);
		break;
	case 2:
		hello(data + 1, bytes - 1);
		break;
	case 3:
		id(data + 1, bytes - 1);
		break;
	case 253:
		exchange(data + 1, bytes - 1);
		break;
	case 254:
		set(data + 1, bytes - 1);
		break;
	case 255:
		report(data + 1, bytes - 1);
		break;
	default:
		stream(data[0], data + 1, bytes - 1);
	}
	return 0;
}
