/*
 * test_unique_id.c - unique ids, ids from TUTTI_ROOT, and the choice of interfaces and addresses
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/control_internal.h"
#include "tests/support/harness_control.h"

static int exchange(struct control_job *job, int rank, struct tt_control *ctl)
{
	int all[CONTROL_JOB_MOST], wrong = tt_control_allgather(ctl, &rank, sizeof(rank), all,
								tt_deadline_ns(10000)) != 0;

	for (int r = 0; r < job->n; r++)
		wrong += all[r] != r;
	return wrong;
}

/* ---- ids ------------------------------------------------------------------------------------- */

Test(unique_id, garbage_and_changed_ids_are_refused, .timeout = 30)
{
	tuttiUniqueId id, bad = { { 0 } };
	struct tt_id unpacked;

	cr_assert_eq(tt_id_unpack(&bad, &unpacked), TT_ARG);
	cr_assert_eq(tt_id_make("", "", &id), 0);
	cr_assert_eq(tt_id_unpack(&id, &unpacked), 0);
	for (size_t bit = 0; bit < sizeof(id) * 8; bit++) {
		bad = id;
		bad.internal[bit / 8] ^= (char)(1 << bit % 8);
		cr_assert_eq(tt_id_unpack(&bad, &unpacked), TT_ARG, "bit %zu", bit);
	}
}

Test(unique_id, making_many_ids_leaks_no_descriptor, .timeout = 30)
{
	tuttiUniqueId id;
	int before, after;

	cr_assert_eq(tt_id_make("", "", &id), 0);
	before = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 1000; i++)
		cr_assert_eq(tt_id_make("", "", &id), 0);
	after = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* Criterion may have opened descriptors meanwhile */
	cr_assert_leq(after, before + 50);
}

Test(unique_id, several_unused_ids_all_keep_their_ports, .timeout = 30)
{
	tuttiUniqueId id[3];
	struct tt_id unpacked;
	int fd, port;

	for (int i = 0; i < 3; i++)
		cr_assert_eq(tt_id_make("", "", &id[i]), 0);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(tt_id_unpack(&id[i], &unpacked), 0);
		cr_assert_eq(tt_sock_reserve(unpacked.port, &fd, &port), TT_SYSTEM, "id %d", i);
	}
}

Test(unique_id, an_id_from_a_root_is_the_same_on_every_rank_and_depends_on_the_secret,
     .timeout = 100)
{
	tuttiUniqueId a, b, c;
	struct tt_id x, y;

	cr_assert_eq(tt_id_from_root("127.0.0.1:4711", "one", &a), 0);
	cr_assert_eq(tt_id_from_root("127.0.0.1:4711", "one", &b), 0);
	cr_assert_eq(tt_id_from_root("[::1]:4711", "two", &c), 0);
	cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0);
	cr_assert_eq(tt_id_unpack(&a, &x), 0);
	cr_assert_eq(tt_id_unpack(&c, &y), 0);
	cr_assert_eq(x.port, 4711);
	cr_assert_neq(memcmp(x.secret, y.secret, sizeof(x.secret)), 0);
	cr_assert_eq(y.addresses[0].family, 6);
	cr_assert_eq(tt_id_from_root("no.such.host.invalid:1", "x", &a), TT_ARG);
	cr_assert_eq(tt_id_from_root("127.0.0.1", "x", &a), TT_ARG);
	cr_assert_eq(tt_id_from_root("127.0.0.1:70000", "x", &a), TT_ARG);
}

static void join_at(const char *root, bool in_threads)
{
	struct control_job job = {
		.n = 3, .body = exchange, .has_id = true, .threads = in_threads
	};

	cr_assert_eq(tt_id_from_root(root, "a secret text", &job.id), 0, "%s", tt_error_text());
	control_job_run(&job);
	for (int r = 0; r < 3; r++)
		cr_assert(!job.report[r].joined && !job.report[r].rc, "rank %d at %s: %s", r, root,
			  job.report[r].text);
}

Test(unique_id, ranks_join_at_a_root_given_by_address_or_name, .timeout = 60)
{
	char root[64];
	int fd, port;

	cr_assert_eq(tt_sock_reserve(0, &fd, &port), 0); /* reserves the port */
	snprintf(root, sizeof(root), "127.0.0.1:%d", port);
	join_at(root, false);
	join_at(root, true); /* the same port, reused at once */
	snprintf(root, sizeof(root), "localhost:%d", port);
	join_at(root, false);
	close(fd);
}

Test(unique_id, the_process_that_makes_an_id_may_exit_before_the_ranks_join, .timeout = 30)
{
	struct control_job job = { .n = 2, .has_id = true, .body = exchange };
	int pipe_fd[2], status;
	pid_t pid;

	cr_assert_eq(pipe(pipe_fd), 0);
	pid = fork();
	if (!pid) {
		tuttiUniqueId id;

		_exit(tt_id_make("", "", &id) || write(pipe_fd[1], &id, sizeof(id)) != sizeof(id));
	}
	cr_assert_eq(read(pipe_fd[0], &job.id, sizeof(job.id)), (ssize_t)sizeof(job.id));
	waitpid(pid, &status, 0);
	control_job_run(&job);
	cr_assert(!job.report[0].joined && !job.report[1].joined, "%s %s", job.report[0].text,
		  job.report[1].text);
}

/* Reads and writes of standard streams that the parent closed fail, as in a program without the
 * library. The exit status names the first stream that is open. */
static void use_closed_streams(void)
{
	tuttiUniqueId id;
	char byte = 0;

	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (tuttiGetUniqueId(&id)) /* reserves a port with a socket */
		_exit(3);
	for (int fd = 0; fd < 3; fd++)
		if ((fd ? write(fd, &byte, 1) : read(fd, &byte, 1)) != -1 || errno != EBADF)
			_exit(4 + fd);
	_exit(0);
}

Test(unique_id, a_closed_standard_stream_does_not_become_a_socket_of_the_library, .timeout = 30)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		use_closed_streams();
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "wait status %#x", (unsigned)status);
}

/* ---- interfaces and addresses ---------------------------------------------------------------- */

Test(addresses, ifname_has_the_prefix_syntax_of_nccl, .timeout = 10)
{
	static const struct {
		const char *filter, *name;
		bool want;
	} t[] = {
		{ "", "eth0", true },          { "eth", "eth0", true },
		{ "eth", "ib0", false },       { "eth,ib", "ib0", true },
		{ "=eth", "eth0", false },     { "=eth0", "eth0", true },
		{ "=eth0", "eth01", false },   { "=ib0,eth0", "eth0", true },
		{ "^docker,lo", "lo", false }, { "^docker,lo", "eth0", true },
		{ "^=eth0", "eth0", false },   { "^=eth0", "eth01", true },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		cr_assert_eq(tt_ifname_chooses(t[i].filter, t[i].name), t[i].want, "%s %s",
			     t[i].filter, t[i].name);
}

Test(addresses, a_filter_that_chooses_no_interface_lists_the_interfaces, .timeout = 10)
{
	struct tt_address list[TT_ADDRESSES];
	int n;

	cr_assert_eq(tt_address_list("=nosuch", list, &n), TT_ARG);
	cr_assert(strstr(tt_error_text(), "lo"), "%s", tt_error_text());
	cr_assert_eq(tt_address_list("=lo", list, &n), 0);
	cr_assert_eq(n, 0, "loopback is never published");
}

Test(addresses, an_address_is_near_when_it_is_in_the_same_subnet, .timeout = 10)
{
	struct tt_address mine = { 4, 20, { 10, 1, 16, 1 } }, near = { 4, 0, { 10, 1, 31, 9 } },
			  far = { 4, 0, { 10, 1, 32, 9 } };
	struct tt_address six = { 6, 64, { 10, 1, 16, 1 } };

	cr_assert(tt_address_near(&mine, &near));
	cr_assert(!tt_address_near(&mine, &far));
	cr_assert(!tt_address_near(&mine, &six));
	mine.prefix = 0;
	cr_assert(!tt_address_near(&mine, &near), "an unknown subnet contains no address");
	mine.prefix = 255;
	cr_assert(!tt_address_near(&mine, &near));
}

/* ---- secrets --------------------------------------------------------------------------------- */

Test(unique_id, a_secret_that_can_be_guessed_is_refused_between_hosts, .timeout = 10)
{
	static const char *const weak[] = { "",
					    "anything",
					    "correct horse battery",
					    "0123456789abcdef0123456789abcde",
					    "99999999999999999999999999999999",
					    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
					    "31415926535897932384626433832795028841",
					    "qzwxecrvtbynumiloprsdgtnkwz",
					    "QZWXECRVTBYNUMILOPRSDGTNKWZ",
					    "q7w0ecrvtbyn3milopr5dgtn",
					    "Q7W0ECRVTBYN3MILOPR5DGTN",
					    "QzWxEcRvTbYnUmIlOpRsDg" };
	static const char *const strong[] = { "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
					      "kG8sJ0aZq1vWm5TtYb3N+w",
					      "314159265358979323846264338327950288419",
					      "qzwxecrvtbynumiloprsdgtnkwza",
					      "Q7W0ECRVTBYN3MILOPR5DGTN2",
					      "QzWxEcRvTbYnUmIlOpRsDgT" };
	tuttiUniqueId id;

	for (size_t i = 0; i < sizeof(weak) / sizeof(weak[0]); i++) {
		cr_expect_eq(tt_id_from_root("192.0.2.1:29500", weak[i], &id), TT_USAGE, "%s",
			     weak[i]);
		cr_expect(strstr(tt_error_text(), "openssl rand -hex 16"), "%s", tt_error_text());
		cr_expect(i != 4 || strstr(tt_error_text(), "has 32 characters, 1 different, and"));
		cr_expect(i != 4 || strstr(tt_error_text(), ": 39 characters of its kind"), "%s",
			  tt_error_text());
	}
	for (size_t i = 0; i < sizeof(strong) / sizeof(strong[0]); i++)
		cr_expect_eq(tt_id_from_root("192.0.2.1:29500", strong[i], &id), 0, "%s",
			     tt_error_text());
	cr_expect_eq(tt_id_from_root("127.0.0.1:29500", "anything", &id), 0, "%s", tt_error_text());
}

/* The number of places in a stopped process's writable memory where the key lies, without pages
 * that core dumps leave out (VmFlags dd). */
static int count_in_core(pid_t pid, const uint8_t *key)
{
	static uint8_t memory[64 << 20];
	unsigned long from = 0, to = 0, a, b;
	char path[64], line[512], mode[8] = "", m[8] = "";
	int found = 0, fd;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY);
	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		ssize_t n;

		if (sscanf(line, "%lx-%lx %4s ", &a, &b, m) == 3) {
			from = a;
			to = b;
			memcpy(mode, m, sizeof(mode));
		}
		if (strncmp(line, "VmFlags:", 8) || mode[1] != 'w' || strstr(line, " dd"))
			continue;
		n = pread(fd, memory, to - from < sizeof(memory) ? to - from : sizeof(memory),
			  (off_t)from);
		for (uint8_t *at = memory;
		     n > TT_KEY && (at = memmem(at, (size_t)(memory + n - at), key, TT_KEY)); at++)
			found++;
	}
	if (maps)
		fclose(maps);
	close(fd);
	return found;
}

/* Reports its private key inverted, since the report is memory of the process too. */
static int stay(struct control_job *job, int rank, struct tt_control *ctl)
{
	for (int i = 0; i < TT_KEY; i++)
		job->report[rank].text[i] = (char)~ctl->ep->auth.identity.secret->bytes[i];
	atomic_store(&job->report[rank].progress, 1);
	control_job_reached(job, 0, 2, 20000);
	return 0;
}

static void expect_none_in_core(const struct control_job *m, int rank, const struct tt_key *key)
{
	int n = count_in_core(m->report[rank].pid, key->bytes);

	cr_expect_eq(n, 0, "rank %d: %d copies", rank, n);
}

Test(unique_id, the_keys_of_a_job_and_of_its_ranks_are_in_no_core_dump, .timeout = 60)
{
	struct control_job m = { .n = 2, .body = stay };
	struct tt_key key, private;
	struct tt_id id;

	control_job_start(&m);
	cr_assert(control_job_all_reached(&m, 1, 20000));
	cr_assert_eq(tt_id_unpack(&m.id, &id), 0);
	cr_assert(tt_key_make(id.secret, id.nonce, &key));
	for (int r = 0; r < 2; r++)
		expect_none_in_core(&m, r, &key);
	for (int r = 0; r < 2; r++) {
		for (int i = 0; i < TT_KEY; i++)
		private.bytes[i] = (uint8_t)~m.report[r].text[i];
		expect_none_in_core(&m, r, &private);
	}
	/* this process, which has the key on its stack, shows that the search finds it */
	cr_expect_gt(count_in_core(getpid(), key.bytes), 0);
	atomic_store(&m.report[0].progress, 2);
	control_job_wait(&m);
}
