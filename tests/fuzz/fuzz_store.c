/*
 * fuzz_store.c - arbitrary bytes of a launcher: a value of a store, or lines of PMI-1 on a socket
 *
 * The first byte chooses: rank 0's value in the store of a program, or the answers of Hydra, which this
 * process reads in one session: open, put, fence, get. An id of the right form is taken, or there is
 * an error with a sentence.
 */
#include <stdlib.h>
#include <string.h>

#include "launch/store_pmi.c" /* a session is state of the process, begun anew for each input */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const uint8_t *input;
static size_t input_bytes;

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_store: violated: %s\n", what);
	abort();
}

/* ---- the store of a program ------------------------------------------------------------------ */

static int open_nothing(struct tt_store *s)
{
	(void)s;
	return 0;
}

static int get_input(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		     uint64_t deadline_ns)
{
	size_t n = input_bytes < TT_STORE_VALUE - 1 ? input_bytes : TT_STORE_VALUE - 1;

	(void)s, (void)key, (void)deadline_ns;
	if (n)
		memcpy(value, input, n);
	value[n] = '\0';
	return 0;
}

static const struct tt_store_ops program = { .name = "the store of a fuzzer",
					     .open = open_nothing,
					     .get = get_input };

/* ---- one join -------------------------------------------------------------------------------- */

static void join(const struct tt_store_ops *store)
{
	static struct tt_env env;
	struct tt_rendezvous l = {
		.job = { .launcher = "fuzz", .rank = 1, .nranks = 2, .store = store }
	};
	struct tt_id id;
	int rc;

	must(env.secret || !tt_env_read(&env), "an environment");
	tt_error_clear();
	rc = tt_rendezvous_open(&l, &env, 1, tt_deadline_ns(1000));
	if (rc) {
		must(rc < 0 && *tt_error_text(), "an error has a sentence");
		return;
	}
	(void)tt_id_unpack(&l.id, &id);
	tt_rendezvous_close(&l);
}

/* Rank 0 puts, as well; the launcher has sent all its answers and closes. */
static void put_and_join(void)
{
	struct tt_job job = { .nranks = 2 };
	struct tt_store s = { .ops = &tt_store_pmi, .job = &job };

	if (s.ops->open(&s))
		return;
	if (!s.ops->put(&s, "key", "value") && !s.ops->fence(&s, tt_deadline_ns(1000)))
		must(!pmi.lost, "a session whose answers fit goes on");
	s.ops->close(&s);
	if (!pmi.lost)
		join(&tt_store_pmi);
}

static void answer_by_lines(void)
{
	int pair[2];
	char fd[16];

	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "a pair of sockets");
	(void)!send(pair[1], input, input_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(pair[1], SHUT_WR);
	snprintf(fd, sizeof(fd), "%d", pair[0]);
	setenv("PMI_FD", fd, 1);
	pmi.fd = -1;
	pmi.lost = false;
	put_and_join();
	pmi.fd = -1;
	close(pair[0]);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (!bytes)
		return 0;
	input = data + 1;
	input_bytes = bytes - 1;
	if (data[0] % 2)
		join(&program);
	else
		answer_by_lines();
	return 0;
}
