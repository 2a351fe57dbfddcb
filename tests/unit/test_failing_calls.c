/*
 * test_failing_calls.c - each system call and allocation of a rank fails at its k-th call
 *
 * A job of some processes runs up to a phase: a join, an allreduce over shm, tcp and encrypted tcp, messages, a
 * quorum allreduce, a split, a shrink after a death, the end of a communicator. In that phase one call of one rank, the victim, fails, or all calls
 * of a kind from there on. Every rank ends the phase with success and right values, or with an error
 * in words. Only a rank whose calls all fail may keep the others until their deadline. After
 * tuttiCommDestroy no descriptor, thread, shared memory or (with AddressSanitizer) allocation is
 * left, and no thread spins. A checkpoint of tutti-train that cannot be saved leaves the previous
 * one.
 *
 * The suite takes a few calls of each kind; TEST_FAILING_ALL=1 takes all. A failure prints its case;
 * TEST_FAILING="split: victim 0: memory: call 7" runs that case alone.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/descriptors.h"
#include "tests/support/ranks.h"
#include "tests/support/small_checkpoint.h"
#include "tests/unit/failing_calls.h"

#ifdef TT_ASAN
#include <sanitizer/lsan_interface.h>
#define LEAKED_MEMORY() __lsan_do_recoverable_leak_check()
#else
#define LEAKED_MEMORY() false
#endif

#define LARGE 300000
#define DEADLINE_MS 40000
#define SHORT_MS 1500 /* of jobs that may wait for their deadline */
#define TRIES 20      /* to join within SHORT_MS */
#define LIMIT_S 100
#define WINDOW_NS 20000000
#define WAKEUPS_MOST 200 /* in the window; a spinning thread has some thousands */

enum failing_phase {
	JOIN,
	ALLREDUCE_SHM,
	ALLREDUCE_TCP,
	ALLREDUCE_ENCRYPTED,
	MESSAGES,
	QUORUM,
	SPLIT,
	SHRINK,
	LEAVE,
	PHASES
};

static const char *const phase_name[PHASES] = {
	[JOIN] = "join",
	[ALLREDUCE_SHM] = "allreduce over shm",
	[ALLREDUCE_TCP] = "allreduce over tcp",
	[ALLREDUCE_ENCRYPTED] = "allreduce over encrypted tcp",
	[MESSAGES] = "messages",
	[QUORUM] = "quorum allreduce",
	[SPLIT] = "split",
	[SHRINK] = "shrink",
	[LEAVE] = "leave",
};

struct failing_case {
	struct ranks job;
	enum failing_phase phase;
	enum failing_kind kind;
	long at; /* 0: count only */
	bool all_later;
	int victim;
	_Atomic int joined;                /* ranks whose join is complete */
	_Atomic bool starved;              /* a join before the phase failed */
	_Atomic long calls[FAILING_KINDS]; /* of the victim in the phase */
};

/* A rank that can do nothing for long is as one that is stopped, and a rank 0 that does not listen is
 * as one that did not join: the others wait for their deadline. */
static bool may_wait(const struct failing_case *c)
{
	return c->all_later || (c->phase == JOIN && !c->victim);
}

/* ---- the phases: 0, an error of the library, or WRONG ----------------------------------------- */

#define WRONG 100

static int allreduce(tuttiComm_t comm, size_t count)
{
	static float x[LARGE];
	int rc, n = 0;

	tuttiCommCount(comm, &n);
	for (size_t i = 0; i < count; i++)
		x[i] = (float)(i % 100);
	rc = tuttiAllReduce(x, x, count, tuttiFloat, tuttiSum, comm, NULL);
	for (size_t i = 0; i < count && !rc; i++)
		if (x[i] != (float)(n * (int)(i % 100)))
			rc = WRONG;
	return rc;
}

/* Sends and receives in groups: a short message, and long ones, of which a receiver reads some where it may */
static int exchange(tuttiComm_t comm)
{
	static int out[LARGE], in[LARGE];
	int n = 0, me = 0, rc = 0, next, before;

	tuttiCommCount(comm, &n);
	tuttiCommUserRank(comm, &me);
	next = (me + 1) % n;
	before = (me + n - 1) % n;
	for (int i = 0; i < 8 && !rc; i++) {
		size_t count = i ? LARGE : 1;

		for (size_t k = 0; k < count; k++)
			out[k] = me + i + (int)k;
		tuttiGroupStart();
		tuttiSend(out, count, tuttiInt32, next, comm, NULL);
		tuttiRecv(in, count, tuttiInt32, before, comm, NULL);
		rc = tuttiGroupEnd();
		for (size_t k = 0; k < count && !rc; k++)
			if (in[k] != before + i + (int)k)
				rc = WRONG;
	}
	return rc;
}

static int messages(tuttiComm_t comm)
{
	int n = 0, me = 0, rc = 0, got = -1;
	tuttiMsg_t msg;

	tuttiCommCount(comm, &n);
	tuttiCommUserRank(comm, &me);
	for (int i = 1; i < n && !rc; i++)
		rc = tuttiMsgSend(&me, sizeof(me), (me + i) % n, 1, 0, comm);
	for (int i = 1; i < n && !rc; i++) {
		rc = tuttiMsgRecv(&got, sizeof(got), (me + i) % n, 1, -1, comm, &msg);
		if (!rc && got != (me + i) % n)
			rc = WRONG;
	}
	return rc;
}

/* Of all ranks that live: each contributes the bit of its number. */
static int quorum(tuttiComm_t comm)
{
	tuttiQuorum_t q = TUTTI_QUORUM_INITIALIZER;
	int64_t mine = 1, sum = 0;
	int n = 0, me = 0, rc;

	tuttiCommCount(comm, &n);
	tuttiCommUserRank(comm, &me);
	mine <<= me;
	rc = tuttiAllReduceQuorum(&mine, &sum, 1, tuttiInt64, tuttiSum, n, 0, comm, NULL, &q);
	if (!rc &&
	    (!sum || q.mask[0] != (uint64_t)sum || q.count != __builtin_popcountll(q.mask[0])))
		rc = WRONG;
	return rc;
}

/* The communicator is gone, whatever the result is. */
static int leave(tuttiComm_t *comm)
{
	int rc = tuttiCommFinalize(*comm), ended = tuttiCommDestroy(*comm);

	*comm = NULL;
	return rc ? rc : ended;
}

/* A communicator made of comm is used once, and destroyed. */
static int use(int rc, tuttiComm_t made)
{
	if (rc)
		return rc;
	rc = allreduce(made, 10);
	tuttiCommDestroy(made);
	return rc;
}

static int act(const struct failing_case *c, tuttiComm_t *comm, int rank)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t made = NULL;
	int rc;

	switch (c->phase) {
	case JOIN:
		config.timeout_ms = may_wait(c) ? SHORT_MS : DEADLINE_MS;
		return tuttiCommInitRankConfig(comm, c->job.n, c->job.id, rank, &config);
	case ALLREDUCE_SHM:
	case ALLREDUCE_TCP:
	case ALLREDUCE_ENCRYPTED:
		rc = allreduce(*comm, 10);
		rc = rc ? rc : exchange(*comm);
		return rc ? rc : allreduce(*comm, LARGE);
	case MESSAGES:
		return messages(*comm);
	case QUORUM:
		return quorum(*comm);
	case LEAVE:
		return leave(comm);
	case SPLIT:
		rc = tuttiCommSplit(*comm, rank == 2, rank, &made, NULL);
		return use(rc, made);
	case SHRINK:
		rc = tuttiCommShrink(*comm, NULL, 0, &made, NULL, TUTTI_SHRINK_ABORT);
		return use(rc, made);
	default:
		return WRONG;
	}
}

/* ---- one rank -------------------------------------------------------------------------------- */

static int shared_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:") || strstr(line, "/dev/shm");
	if (f)
		fclose(f);
	return n;
}

struct holdings {
	int descriptors, threads, mappings;
};

static struct holdings take_stock(void)
{
	return (struct holdings){ .descriptors = count_descriptors(),
				  .threads = count_entries("/proc/self/task"),
				  .mappings = shared_mappings() };
}

/* Nothing is left of a communicator: the descriptors may be fewer, as rank 0 closes the id's. */
static bool is_clean(const struct holdings *before, int rank)
{
	struct holdings after = take_stock();

	/* a thread that was joined is in /proc/self/task until the kernel has reaped it */
	for (int i = 0; i < 10000 && after.threads > before->threads; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		after = take_stock();
	}
	if (after.descriptors <= before->descriptors && after.threads == before->threads &&
	    after.mappings == before->mappings && !LEAKED_MEMORY())
		return true;
	fprintf(stderr,
		"rank %d: left: descriptors %d to %d, threads %d to %d, mappings %d to %d\n", rank,
		before->descriptors, after.descriptors, before->threads, after.threads,
		before->mappings, after.mappings);
	return false;
}

static bool spins(int rank)
{
	long before = failing_wakeups(), n;

	nanosleep(&(struct timespec){ .tv_nsec = WINDOW_NS }, NULL);
	n = failing_wakeups() - before;
	if (n > WAKEUPS_MOST)
		fprintf(stderr, "rank %d: %ld wake-ups in %d ms\n", rank, n, WINDOW_NS / 1000000);
	return n > WAKEUPS_MOST;
}

static bool is_right(const struct failing_case *c, int rc, int rank)
{
	const char *text = tuttiGetLastError(NULL);

	if (getenv("TEST_FAILING"))
		fprintf(stderr, "rank %d: %s: %s\n", rank, tuttiGetErrorString(rc), rc ? text : "");
	if (!rc || (rc < tuttiNumResults && rc != tuttiInternalError && strlen(text) > 20 &&
		    (rc != tuttiTimeout || may_wait(c))))
		return true;
	fprintf(stderr, "rank %d: result %d: %s\n", rank, rc, text);
	return false;
}

static int join(struct failing_case *c, int rank, tuttiComm_t *ret_comm)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	int rc;

	config.transport = c->phase == ALLREDUCE_TCP || c->phase == ALLREDUCE_ENCRYPTED ? "tcp"
											: NULL;
	if (c->phase == ALLREDUCE_ENCRYPTED)
		setenv("TUTTI_ENCRYPT", "on", 1);
	config.timeout_ms = may_wait(c) ? SHORT_MS : DEADLINE_MS;
	rc = tuttiCommInitRankConfig(ret_comm, c->job.n, c->job.id, rank, &config);
	if (rc)
		fprintf(stderr, "rank %d: join: %s\n", rank, tuttiGetLastError(NULL));
	/* a join is complete on one rank before it is on all */
	for (c->joined++; !rc && c->joined < c->job.n;)
		usleep(100);
	return rc;
}

static int rank_main(tuttiComm_t *unused, int rank, int n, void *arg)
{
	struct failing_case *c = arg;
	struct holdings before;
	tuttiComm_t comm = NULL;
	bool right;
	int rc;

	(void)unused;
	before = take_stock();
	if (c->phase != JOIN && join(c, rank, &comm)) {
		c->starved = true;
		return 0;
	}
	if (c->phase == SHRINK && rank == n - 1)
		_exit(0);
	if (c->phase == SHRINK && allreduce(comm, 10) != tuttiRemoteError)
		return 1;
	if (rank == c->victim)
		failing_begin(c->kind, c->at, c->all_later);
	rc = act(c, &comm, rank);
	failing_end();
	for (int i = 0; i < FAILING_KINDS && rank == c->victim; i++)
		c->calls[i] = failing_calls(i);
	right = is_right(c, rc, rank) && !spins(rank);
	if (comm)
		tuttiCommDestroy(comm);
	return !is_clean(&before, rank) || !right;
}

/* ---- the cases ------------------------------------------------------------------------------- */

static struct failing_case *shared_case(void)
{
	void *p = mmap(NULL, sizeof(struct failing_case), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

/* A busy machine may not join within SHORT_MS, before any call fails: then again. */
static void run_case(struct failing_case *c)
{
	int rc, tries = 0;

	do {
		c->starved = false;
		c->joined = 0;
		c->job = (struct ranks){ .n = c->phase == SHRINK ? 4 : 3,
					 .no_join = true,
					 .limit_s = LIMIT_S,
					 .arg = c };
		rc = ranks_run(&c->job, rank_main);
	} while (c->starved && ++tries < TRIES);
	cr_expect(!rc && !c->starved, "%s: victim %d: %s: call %ld%s fails", phase_name[c->phase],
		  c->victim, failing_name[c->kind], c->at,
		  c->all_later ? " and all later ones" : "");
}

static bool takes_all(void)
{
	return getenv("TEST_FAILING_ALL") != NULL;
}

/* TEST_FAILING: the beginning of the case's name, as a failure prints it */
static bool is_chosen(const struct failing_case *c)
{
	const char *chosen = getenv("TEST_FAILING");
	char name[128];

	snprintf(name, sizeof(name), "%s: victim %d: %s: call %ld%s", phase_name[c->phase],
		 c->victim, failing_name[c->kind], c->at, c->all_later ? " all" : "");
	return !chosen || !strncmp(chosen, name, strlen(chosen));
}

/* The call after call k of a kind that is to fail: some of the calls, the first and the last among
 * them. Of all, one in 13 is enough where OpenSSL loads its algorithms, which takes all but its last
 * 2000 allocations, and where all later calls fail too. */
static long next_call(enum failing_kind kind, long k, long calls, bool all_later)
{
	long step = calls / (getenv("TUTTI_TEST_FEWER") ? 1 : 3) + 1;

	if (takes_all())
		step = all_later || (kind == FAILING_OPENSSL_MEMORY && k < calls - 2000) ? 13 : 1;
	return k < calls && k + step > calls ? calls : k + step;
}

static void fail_each_call(enum failing_phase phase, int victim)
{
	struct failing_case *c = shared_case();
	long calls[FAILING_KINDS];

	*c = (struct failing_case){ .phase = phase, .victim = victim };
	run_case(c);
	for (int i = 0; i < FAILING_KINDS; i++)
		calls[i] = c->calls[i];
	cr_assert(calls[FAILING_READ] > 0 || phase != ALLREDUCE_SHM);
	for (int i = 0; i < 2 * FAILING_KINDS; i++)
		for (long k = 1; k <= calls[i / 2]; k = next_call(i / 2, k, calls[i / 2], i % 2)) {
			*c = (struct failing_case){ .phase = phase,
						    .victim = victim,
						    .kind = i / 2,
						    .at = k,
						    .all_later = i % 2 };
			if (c->all_later && k > 1 && !takes_all())
				break;
			if (is_chosen(c))
				run_case(c);
		}
	munmap(c, sizeof(*c));
}

TestSuite(failing_calls, .timeout = 7200);

#define FAILING_TESTS(name, phase)                 \
	Test(failing_calls, of_##name##_at_rank_0) \
	{                                          \
		fail_each_call(phase, 0);          \
	}                                          \
	Test(failing_calls, of_##name##_at_rank_1) \
	{                                          \
		fail_each_call(phase, 1);          \
	}

FAILING_TESTS(a_join, JOIN)
FAILING_TESTS(an_allreduce_over_shm, ALLREDUCE_SHM)
FAILING_TESTS(an_allreduce_over_tcp, ALLREDUCE_TCP)
FAILING_TESTS(an_allreduce_over_encrypted_tcp, ALLREDUCE_ENCRYPTED)
FAILING_TESTS(messages, MESSAGES)
FAILING_TESTS(a_quorum_allreduce, QUORUM)
FAILING_TESTS(a_split, SPLIT)
FAILING_TESTS(a_shrink_after_a_death, SHRINK)
FAILING_TESTS(a_departure, LEAVE)

/* ---- a checkpoint ---------------------------------------------------------------------------- */

/* The bytes of a small file into text[512]; returns their number */
static size_t read_file(const char *path, char *text)
{
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, 512, f) : 0;

	if (f)
		fclose(f);
	return n;
}

static void save_failing(const char *folder, const char *path, int kind, long at)
{
	char before[512], after[512];
	int descriptors = count_descriptors(), rc;
	size_t bytes;

	cr_assert_eq(save_small_checkpoint(path, 1), 0);
	bytes = read_file(path, before);
	failing_begin(kind, at, false);
	rc = save_small_checkpoint(path, 2);
	failing_end();
	cr_expect(!rc || strstr(train_error(), path), "%s: call %ld: %s", failing_name[kind], at,
		  train_error());
	cr_expect_eq(read_file(path, after), bytes);
	cr_expect_eq(memcmp(before, after, bytes) != 0, !rc, "%s: call %ld: result %d: %s",
		     failing_name[kind], at, rc, train_error());
	cr_expect_eq(count_entries(folder), 3, "%s: call %ld: a file is left", failing_name[kind],
		     at);
	cr_expect_eq(count_descriptors(), descriptors, "%s: call %ld", failing_name[kind], at);
}

Test(failing_calls, of_saving_a_checkpoint)
{
	char folder[] = "/tmp/tutti-failing-XXXXXX", path[64];
	long calls[FAILING_KINDS];

	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	failing_begin(0, 0, false);
	cr_assert_eq(save_small_checkpoint(path, 1), 0);
	failing_end();
	for (int i = 0; i < FAILING_KINDS; i++)
		calls[i] = failing_calls(i);
	cr_assert_gt(calls[FAILING_FILE], 0);
	for (int i = 0; i < FAILING_KINDS; i++)
		for (long k = 1; k <= calls[i]; k++)
			save_failing(folder, path, i, k);
	unlink(path);
	rmdir(folder);
}
