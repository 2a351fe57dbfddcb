/*
 * test_identity.c - ranks with the secret of the job that say to be other ranks, or that were
 * shrunk away
 *
 * The compromised rank of a test is a real one, which has joined, with one field of its endpoint
 * changed.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "tests/support/descriptors.h"
#include "tests/support/harness_control.h"
#include "tests/support/tls_pair.h"

#define LONG_MS 20000
#define ASSERT_GOOD(m)                                                                        \
	for (int r = 0; r < (m).n; r++)                                                       \
	cr_assert((m).report[r].joined == 0 && (m).report[r].rc == 0, "rank %d: %d %d %s", r, \
		  (m).report[r].joined, (m).report[r].rc, (m).report[r].text)

/* ---- statements ------------------------------------------------------------------------------ */

/* ep has learned the key of other. */
static void meet(struct tt_control_endpoint *ep, const struct tt_control_endpoint *other)
{
	struct tt_business_card record = { .rank = other->peer, .port = 4000 };

	memcpy(record.public_key, other->auth.identity.public_key, TT_PUBLIC_KEY);
	cr_assert(tt_directory_put(&ep->peers.directory, &record));
	if (!other->peer)
		memcpy(ep->peers.root_key, record.public_key, TT_PUBLIC_KEY);
}

static struct tt_control_endpoint *endpoint_of(int peer, uint8_t job)
{
	struct tt_id id = { .nonce = { job } };
	struct tt_control_endpoint *ep;

	cr_assert_eq(tt_endpoint_make(peer, 12, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, &id), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	meet(ep, ep);
	return ep;
}

Test(identity, a_signature_is_of_one_key_and_one_statement, .timeout = 60)
{
	struct tt_identity a, b;
	uint8_t text[] = "rank 5 connects to rank 0", signature[TT_SIGNATURE];
	uint8_t nobody[TT_PUBLIC_KEY] = { 0 };
	struct tt_writer w = { .data = text, .have = sizeof(text) };

	cr_assert(tt_identity_make(&a) && tt_identity_make(&b));
	cr_assert(memcmp(a.public_key, b.public_key, TT_PUBLIC_KEY));
	cr_assert(tt_identity_sign(&a, &w, signature));
	cr_assert(tt_identity_verify(a.public_key, &w, signature));
	cr_assert(!tt_identity_verify(b.public_key, &w, signature));
	cr_assert(!tt_identity_verify(nobody, &w, signature));
	for (size_t bit = 0; bit < 8 * sizeof(text); bit += 7) {
		text[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert(!tt_identity_verify(a.public_key, &w, signature), "bit %zu", bit);
		text[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t bit = 0; bit < 8 * sizeof(signature); bit += 7) {
		signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert(!tt_identity_verify(a.public_key, &w, signature), "bit %zu", bit);
		signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	tt_identity_free(&a);
	tt_identity_free(&b);
}

/* The hello of `client` as it says to be `from`; verdict of the server, which has this end. */
static enum tt_verdict say_hello(const struct tt_control_endpoint *client,
				 struct tt_tls *client_end,
				 const struct tt_control_endpoint *server,
				 struct tt_tls *server_end, int from)
{
	struct tt_hello hello = { .purpose = TT_P_CONTROL, .from = from, .to = server->peer };
	struct tt_hello_message message;

	tt_hello_put(&hello, message.hello);
	cr_assert(tt_hello_sign(client, client_end, &message));
	return tt_hello_check(server, server_end, &hello, &message);
}

/* The child of a rank comes before the table of keys. */
Test(identity, a_parent_believes_the_certificate_of_rank_0_for_this_rank_and_job_only,
     .timeout = 60)
{
	struct tt_control_endpoint *root = endpoint_of(0, 1), *parent = endpoint_of(1, 1),
				   *child = endpoint_of(9, 1), *other = endpoint_of(10, 1),
				   *other_job = endpoint_of(0, 2);
	uint8_t bytes[TT_SIGNATURE];
	struct tt_writer w = TT_WRITER_INTO(bytes);
	struct tt_tls *server, *client;

	cr_assert(tls_pair(parent->auth.tls, parent->auth.key, &server, &client));
	meet(root, child);
	tt_certificate_put(root, 9, &w);
	cr_assert(!w.failed && w.have == TT_SIGNATURE);
	memcpy(child->auth.certificate, bytes, TT_SIGNATURE);
	memcpy(other->auth.certificate, bytes, TT_SIGNATURE);
	cr_expect_eq(say_hello(child, client, parent, server, 9), TT_V_EARLY);
	meet(parent, root);
	cr_expect_eq(say_hello(child, client, parent, server, 9), TT_V_WELCOME);
	cr_expect_eq(say_hello(child, client, parent, server, 10), TT_V_IMPOSTOR);
	cr_expect_eq(say_hello(other, client, parent, server, 9), TT_V_IMPOSTOR);
	cr_expect_eq(say_hello(other, client, parent, server, 10), TT_V_IMPOSTOR);
	meet(other_job, child);
	w.have = 0;
	tt_certificate_put(other_job, 9, &w);
	memcpy(child->auth.certificate, bytes, TT_SIGNATURE);
	cr_expect_eq(say_hello(child, client, parent, server, 9), TT_V_IMPOSTOR);
	tt_tls_close(server);
	tt_tls_close(client);
	for (int i = 0; i < 5; i++)
		tt_endpoint_free((struct tt_control_endpoint *[]){ root, parent, child, other,
								   other_job }[i]);
}

/* A holder of the secret sits between two ranks and passes on what they sign. */
Test(identity, a_proof_of_one_session_is_none_in_another, .timeout = 60)
{
	struct tt_control_endpoint *server = endpoint_of(0, 1), *client = endpoint_of(5, 1);
	struct tt_tls *to_client, *of_client, *of_server, *to_server;
	struct tt_verdict_message verdict = { .verdict = TT_V_WELCOME };
	uint8_t hello[TT_HELLO_BYTES] = { 1 };
	const uint8_t *key = server->auth.identity.public_key;

	meet(server, client);
	cr_assert(tls_pair(server->auth.tls, server->auth.key, &to_client, &of_client));
	cr_assert(tls_pair(server->auth.tls, server->auth.key, &of_server, &to_server));
	cr_expect_eq(say_hello(client, of_client, server, to_client, 5), TT_V_WELCOME);
	cr_expect_eq(say_hello(client, of_client, server, of_server, 5), TT_V_IMPOSTOR);
	cr_assert(tt_verdict_sign(server, of_server, hello, &verdict));
	cr_expect(tt_verdict_check(client, to_server, hello, key, &verdict));
	cr_expect(!tt_verdict_check(client, of_client, hello, key, &verdict));
	cr_expect(!tt_verdict_check(client, to_server, (uint8_t[TT_HELLO_BYTES]){ 2 }, key,
				    &verdict));
	verdict.verdict = TT_V_EXCLUDED;
	cr_expect(!tt_verdict_check(client, to_server, hello, key, &verdict));
	tt_tls_close(to_client);
	tt_tls_close(of_client);
	tt_tls_close(of_server);
	tt_tls_close(to_server);
	tt_endpoint_free(server);
	tt_endpoint_free(client);
}

/* Rank 9 knows the key of root, and has a connection to rank `from`. */
static struct tt_control *make_rank_9(const struct tt_control_endpoint *root, int from,
				      struct tt_duplex duplex)
{
	struct tt_control_endpoint *ep;
	struct tt_control *ctl;

	cr_assert_eq(tt_endpoint_make(9, 12, &ep), 0);
	cr_assert_eq(tt_endpoint_authenticate(ep, &(struct tt_id){ .nonce = { 1 } }), 0);
	cr_assert_eq(tt_endpoint_tls(ep), 0);
	cr_assert_eq(tt_endpoint_listen(ep, &(struct tt_ports){ 0 }), 0);
	cr_assert_eq(tt_control_make(ep, 9, 12, &ctl), 0);
	cr_assert(tt_conn_add(ep, duplex, from, from == 0));
	ep->conns->registered = from == 0;
	meet(ep, root);
	return ctl;
}

/* The table that root has signed comes over the connection. false: it is malformed */
static bool pass_on(struct tt_control *rank_9, const struct tt_control_endpoint *root, bool alter)
{
	struct tt_business_card record;
	struct tt_directory directory;
	struct tt_writer w = { 0 };
	bool takes;

	cr_assert(tt_directory_make(&directory, 12));
	for (int r = 0; r < 12; r++) {
		tt_directory_get(&root->peers.directory, r, &record);
		record.port = 4000;
		cr_assert(tt_directory_put(&directory, &record));
	}
	tt_table_begin(root, &w);
	tt_directory_pack(&directory, 0, 12, &w);
	tt_directory_free(&directory);
	tt_table_sign(root, &w);
	if (alter)
		w.data[w.have - TT_SIGNATURE - 2] ^= 1; /* of a key */
	takes = tt_control_frame(rank_9, rank_9->ep->conns, TT_F_TABLE, w.data, w.have);
	free(w.data);
	return takes;
}

/* Rank `from` of another process passes the table on to rank 9. Returns what broke the control of rank
 * 9 */
static int pass_table(const struct tt_control_endpoint *root, int from, bool alter, char *text,
		      size_t bytes)
{
	struct tt_tls *ours, *theirs;
	struct tt_control *ctl;
	int culprit, broken;

	cr_assert(tls_pair(root->auth.tls, root->auth.key, &ours, &theirs));
	ctl = make_rank_9(root, from, (struct tt_duplex){ .tls = ours });
	cr_assert(pass_on(ctl, root, alter));
	cr_assert_eq(ctl->join.has_table, !alter || !from);
	broken = tt_control_broken(ctl);
	snprintf(text, bytes, "%s", tt_control_text(ctl, &culprit));
	tt_tls_close(theirs);
	tt_control_free(ctl);
	return broken;
}

Test(identity, a_table_that_a_rank_on_its_way_has_altered_ends_the_join, .timeout = 60)
{
	struct tt_control_endpoint *root = endpoint_of(0, 1);
	char text[1024];

	cr_assert_eq(pass_table(root, 1, false, text, sizeof(text)), 0, "%s", text);
	cr_assert_eq(pass_table(root, 1, true, text, sizeof(text)), TT_REMOTE);
	cr_assert(strstr(text, "rank 1 sent rank 9 a table of ranks that rank 0 has not signed"),
		  "%s", text);
	tt_endpoint_free(root);
}

/* Its connection has proved rank 0, so the rank saves a check of a signature. */
Test(identity, a_table_from_rank_0_itself_needs_no_signature, .timeout = 60)
{
	struct tt_control_endpoint *root = endpoint_of(0, 1);
	char text[1024];

	cr_assert_eq(pass_table(root, 0, true, text, sizeof(text)), 0, "%s", text);
	tt_endpoint_free(root);
}

/* Rank 1 of this process, which has checked the table by its own key of rank 0, passes it on. */
Test(identity, a_table_of_another_rank_0_is_refused_also_within_the_process, .timeout = 60)
{
	struct tt_control_endpoint *root = endpoint_of(0, 1), *other = endpoint_of(0, 1);

	for (int same = 0; same < 2; same++) {
		struct tt_control *ctl;
		struct tt_pipe *end[2];

		cr_assert(tt_pipe_make(end));
		ctl = make_rank_9(root, 1, (struct tt_duplex){ .pipe = end[0] });
		cr_assert_eq(pass_on(ctl, same ? root : other, false), same);
		cr_assert_eq(ctl->join.has_table, same);
		tt_pipe_close(end[1]);
		tt_control_free(ctl);
	}
	tt_endpoint_free(root);
	tt_endpoint_free(other);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Does rank (of the control) answer as the one that it says? */
static int dial(struct tt_control *ctl, const struct tt_business_card *to, enum tt_purpose purpose,
		uint32_t timeout_ms)
{
	struct tt_dial dial = { .to = *to,
				.me = ctl->rank,
				.rank = to->rank,
				.purpose = purpose,
				.deadline_ns = tt_deadline_ns(timeout_ms) };
	struct tt_duplex duplex;
	int rc = tt_control_connect(ctl, &dial, &duplex);

	if (!rc)
		tt_duplex_close(&duplex);
	return rc;
}

static void say_to_be(struct tt_control *ctl, int peer)
{
	tt_control_lock(ctl);
	ctl->ep->peer = peer;
	tt_control_unlock(ctl);
}

static int fail(struct control_job *m, int rank)
{
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	return 1;
}

/* All ranks are there, unharmed. */
static int all_meet(struct control_job *m, int rank, struct tt_control *ctl)
{
	return tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(LONG_MS)) ? fail(m, rank)
										 : 0;
}

/* Rank 2 dials rank 0 as rank 1. */
static int connect_as_rank_1(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_business_card root;

	tt_directory_get(&ctl->ep->peers.directory, 0, &root);
	for (int purpose = TT_P_CONTROL; rank == 2 && purpose <= TT_P_DATA; purpose++) {
		int rc;

		say_to_be(ctl, 1);
		rc = dial(ctl, &root, (enum tt_purpose)purpose, LONG_MS);
		say_to_be(ctl, 2);
		if (!rc)
			tt_fail(TT_INTERNAL, "rank 0 took rank 2 for rank 1");
		if (rc != TT_REMOTE || !strstr(tt_error_text(), "rank 2: rank 0: 127.0.0.1") ||
		    !strstr(tt_error_text(), "this rank's key is not the one that rank 0 has"))
			return fail(m, rank);
	}
	return all_meet(m, rank, ctl);
}

static void keep_log_of_rank_0(struct control_job *m, int rank, struct tt_join *join)
{
	(void)join;
	if (rank)
		return;
	dup2(fileno(m->arg), STDERR_FILENO);
	tt_log_set(TT_LOG_WARN);
}

Test(identity, a_server_refuses_a_rank_that_claims_to_be_another, .timeout = 60)
{
	struct control_job m = {
		.n = 3, .body = connect_as_rank_1, .before = keep_log_of_rank_0, .arg = tmpfile()
	};
	char log[4096] = "";

	cr_assert(m.arg);
	control_job_run(&m);
	ASSERT_GOOD(m);
	rewind(m.arg);
	(void)!fread(log, 1, sizeof(log) - 1, m.arg);
	cr_assert(strstr(log, "rank 0: a process that claims to be rank 1 was refused: it has "
			      "the secret, but not the key of rank 1"),
		  "%s", log);
	fclose(m.arg);
}

/* Without the private half */
static void claim_key_of(struct tt_control *ctl, int peer)
{
	struct tt_business_card record;

	tt_control_lock(ctl);
	tt_directory_get(&ctl->ep->peers.directory, peer, &record);
	memcpy(ctl->ep->auth.identity.public_key, record.public_key, TT_PUBLIC_KEY);
	tt_control_unlock(ctl);
}

/* Rank 2 answers as rank 1, at an address that rank 0 takes for rank 1's. */
static int answer_as_rank_1(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_business_card to, other;
	int rc;

	tt_directory_get(&ctl->ep->peers.directory, 1, &to);
	tt_directory_get(&ctl->ep->peers.directory, 2, &other);

	if (rank == 2) {
		say_to_be(ctl, 1);
		claim_key_of(ctl, 1);
		atomic_store(&m->report[2].progress, 1);
		control_job_reached(m, 0, 1, LONG_MS);
		say_to_be(ctl, 2);
		claim_key_of(ctl, 2);
	} else if (!rank) {
		control_job_reached(m, 2, 1, LONG_MS);
		to.port = other.port;
		rc = dial(ctl, &to, TT_P_DATA, 500);
		atomic_store(&m->report[0].progress, 1);
		if (!rc)
			tt_fail(TT_INTERNAL, "rank 0 took rank 2 for rank 1");
		if (rc != TT_TIMEOUT ||
		    !strstr(tt_error_text(), "(a process without the key of rank 1)"))
			return fail(m, rank);
	}
	return all_meet(m, rank, ctl);
}

Test(identity, a_client_refuses_a_rank_that_claims_to_be_another, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = answer_as_rank_1 };

	control_job_run(&m);
	ASSERT_GOOD(m);
}

/* ---- connections without a purpose ------------------------------------------------------------ */

/* Rank 2 as a control of the number, which rank 0 may not have */
static int open_as(struct tt_control *ctl, enum tt_purpose purpose, int channel, uint64_t context,
		   struct tt_duplex *ret_duplex)
{
	struct tt_dial dial = { .me = 2,
				.purpose = purpose,
				.channel = channel,
				.network = true,
				.deadline_ns = tt_deadline_ns(1000) };
	uint64_t own = ctl->context;
	int rc;

	tt_directory_get(&ctl->ep->peers.directory, 0, &dial.to);
	ctl->context = context;
	rc = tt_control_connect(ctl, &dial, ret_duplex);
	ctl->context = own;
	return rc;
}

/* Opens connections until rank 0 refuses one, and keeps them; returns their number. */
static int open_many(struct tt_control *ctl, enum tt_purpose purpose, bool unknown)
{
	struct tt_duplex duplex;
	int n = 0;

	while (n < 200 && !open_as(ctl, purpose, n, unknown ? 77 + (uint64_t)n : 0, &duplex))
		n++;
	return n;
}

/* Of 3 ranks, rank 2 has a connection to rank 0 from the join. */
static int hoard(struct control_job *m, int rank, struct tt_control *ctl)
{
	int before = count_descriptors(), data = 0, control = 0, late = 0;

	if (all_meet(m, rank, ctl))
		return 1;
	if (rank == 2) {
		data = open_many(ctl, TT_P_DATA, false);
		control = open_many(ctl, TT_P_CONTROL, true);
		control += open_many(ctl, TT_P_CONTROL, false);
		late = open_many(ctl, TT_P_REGISTER, false);
		if (data != TT_DATA_CHANNELS || control != TT_PEER_CONNS - 1 ||
		    late != TT_LATE_CONNS) {
			tt_fail(TT_INTERNAL, "%d of data, %d of control, %d registrations: %s",
				data, control, late, tt_error_text());
			return fail(m, rank);
		}
		atomic_store(&m->report[2].progress, 1);
		return all_meet(m, rank, ctl);
	}
	control_job_reached(m, 2, 1, LONG_MS);
	if (rank == 0 &&
	    count_descriptors() > before + TT_DATA_CHANNELS + TT_PEER_CONNS - 1 + TT_LATE_CONNS) {
		tt_fail(TT_INTERNAL, "%d descriptors, %d before", count_descriptors(), before);
		return fail(m, rank);
	}
	return all_meet(m, rank, ctl);
}

Test(identity, a_rank_holds_a_bounded_number_of_connections_at_another, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = hoard };

	control_job_run(&m);
	ASSERT_GOOD(m);
}

/* ---- a rank that was shrunk away ------------------------------------------------------------- */

/* Rank 2 knows the number of the communicator of ranks 0 and 1, and says to be its third rank. */
static int intrude(struct control_job *m, struct tt_control *ctl, uint64_t context)
{
	struct tt_business_card record;
	struct tt_control *theirs;
	struct tt_rank_map all;
	int rc;

	if (!tt_rank_map_make(&all, (int[]){ 0, 1, 2 }, 3, 3))
		return fail(m, 2);
	tt_control_lock(ctl);
	rc = tt_control_make_child(ctl, context, 2, &all, &theirs);
	tt_control_unlock(ctl);
	tt_rank_map_free(&all);
	if (rc)
		return fail(m, 2);
	for (int to = 0; to < 2 && !rc; to++)
		for (int purpose = TT_P_CONTROL; purpose <= TT_P_DATA && !rc; purpose++) {
			tt_directory_get(&ctl->ep->peers.directory, to, &record);
			if (dial(theirs, &record, (enum tt_purpose)purpose, LONG_MS) != TT_REMOTE ||
			    !strstr(tt_error_text(), "this rank is no member of the communicator"))
				rc = fail(m, 2);
		}
	/* over the connections that the three ranks have had */
	tt_control_raise(theirs, TT_REMOTE, 1, "rank 1 is dead, says rank 2");
	tt_control_free(theirs);
	return rc;
}

static int shrink_without_2(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_members both = { .rank = rank, .label = "test" };
	_Atomic uint64_t *context = m->arg;
	struct tt_control *new;
	int rc, culprit;

	if (rank == 2) {
		control_job_reached(m, 0, 1, LONG_MS);
		control_job_reached(m, 1, 1, LONG_MS);
		rc = intrude(m, ctl, atomic_load(context));
		atomic_store(&m->report[2].progress, 1);
		control_job_reached(m, 0, 2, LONG_MS);
		return rc;
	}
	if (!tt_rank_map_make(&both.map, (int[]){ 0, 1 }, 2, 3))
		return fail(m, rank);
	tt_control_shrinking(ctl);
	if (tt_control_form(ctl, &both, tt_deadline_ns(LONG_MS), &new))
		return fail(m, rank);
	tt_control_formed(ctl);
	tt_rank_map_free(&both.map);
	atomic_store(context, new->context);
	atomic_store(&m->report[rank].progress, 1);
	control_job_reached(m, 2, 1, LONG_MS);
	/* its frame is refused, and its connection with it */
	while (!tt_control_broken(ctl))
		sleep_ms(1);
	rc = all_meet(m, rank, new);
	if (tt_control_broken(new))
		snprintf(m->report[rank].text, 200, "%s", tt_control_text(new, &culprit));
	atomic_store(&m->report[rank].progress, 2);
	tt_control_leave(new);
	return rc;
}

Test(identity, a_rank_that_was_shrunk_away_is_refused_by_the_new_communicator, .timeout = 60)
{
	struct control_job m = { .n = 3, .body = shrink_without_2, .arg = NULL };
	_Atomic uint64_t *context = mmap(NULL, sizeof(*context), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	m.arg = context;
	control_job_run(&m);
	ASSERT_GOOD(m);
}
