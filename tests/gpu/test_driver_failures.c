/*
 * test_driver_failures.c - each driver call fails once, at its first call, its second, and so on: all
 * ranks end, with an error message
 *
 * On the fakes for CUDA's driver and libibverbs. A trial runs one use of driver_failure_uses.c in
 * new ranks; the k-th call of one driver function fails in one rank (the victim). Claims: all ranks
 * end before their deadline and none by a signal. Either all succeed with right results, by a
 * fallback; or the victim's error message has its rank and the driver's error number, and the other
 * ranks have an error that is no timeout. No object of a driver is left, except IPC buffers, which
 * the library keeps for the next communicator; under AddressSanitizer no memory is left either.
 *
 * Without arguments the program runs the samples of driver_failure_uses.c. One argument: all calls, in
 * uses whose names contain the argument ('' matches all; tier full). k goes up until a run has no
 * k-th call, from STRIDE_FROM on in growing steps, since the number of some calls depends on time.
 * CALL:K:VICTIM as a second argument runs that trial alone and prints the ranks' messages.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver_failures.h"
#include "tests/support/ranks.h"
#include "tests/fakes/cuda/fake_counts.h"
#include "transports/verbs/verbs_table.h"

#ifdef TT_ASAN
#include <sanitizer/lsan_interface.h>
#define LEAKED_MEMORY() __lsan_do_recoverable_leak_check()
#else
#define LEAKED_MEMORY() 0
#endif

#define RANKS 4
#define CUDA_CODE 777 /* a code that no driver returns */
#define VERBS_CODE ENOBUFS
#define TIMEOUT_MS 10000
#define LIMIT_S 40
#define STRIDE_FROM 64

/* The outcome of a rank, and of the process that the rank is in. */
struct failure_outcome {
	bool ended, late;
	int code, wrong;
	char text[1024];
};
struct failure_process {
	bool ended;
	int hits, memory;
	char left[400];
};

static struct failure_trial {
	const struct failure_use *use;
	char call[64];
	int k, victim;
	struct failure_outcome rank[RANKS];
	struct failure_process process[RANKS];
} * trial; /* shared with the ranks */
static bool verbose;

/* ---- the fakes ------------------------------------------------------------------------------- */

static void *find_symbol(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static bool load_verbs(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	if (n < 0)
		return false;
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/../fakes/verbs/libibverbs.so.1");
	return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

static bool is_of_cuda(const char *call)
{
	return !strncmp(call, "cu", 2);
}

static void arm(void)
{
	char text[128];

	snprintf(text, sizeof(text), "%s:%d:%d", trial->call, trial->k,
		 is_of_cuda(trial->call) ? CUDA_CODE : VERBS_CODE);
	setenv(is_of_cuda(trial->call) ? "TUTTI_TEST_CUDA_FAIL" : "TUTTI_TEST_VERBS_FAIL", text, 1);
}

/* After a failed release the object and the objects that own it are left. */
static bool is_release(const char *call)
{
	static const char *const words[] = { "Free",     "Destroy", "Unregister", "Unmap",
					     "Close",    "Release", "destroy_",   "dereg_",
					     "dealloc_", "close_",  "cuCtxPush",  "cuCtxSet" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(call, words[i]))
			return true;
	return false;
}

static int hits(void)
{
	fake_hits_fn *cuda = NULL, *verbs = NULL;

	*(void **)&cuda = find_symbol("fake_hits");
	*(void **)&verbs = find_symbol("fake_verbs_hits");
	return (cuda ? cuda() : 0) + (verbs ? verbs() : 0);
}

/* Appends the objects that are left in one library. An IPC buffer is one allocation of device memory
 * and one page of registered host memory. */
static void append_left(const char *function, struct failure_process *p)
{
	fake_left_fn *look = NULL;
	int buffers = 0, left;
	const char *name;

	*(void **)&look = find_symbol(function);
	for (int i = 0; look && (name = look(i, &left)); i++) {
		size_t have = strlen(p->left);

		if (!strcmp(name, "device memory") || !strcmp(name, "mapped"))
			buffers += left;
		else if (!strcmp(name, "registered"))
			buffers -= left;
		else if (left && strcmp(name, "reserved"))
			snprintf(p->left + have, sizeof(p->left) - have, " %d %s", left, name);
	}
	if (buffers) {
		size_t have = strlen(p->left);

		snprintf(p->left + have, sizeof(p->left) - have, " %d incomplete IPC buffers",
			 buffers);
	}
}

static void record_process(struct failure_process *p)
{
	unsetenv("TUTTI_TEST_CUDA_FAIL");
	unsetenv("TUTTI_TEST_VERBS_FAIL");
	p->hits = hits();
	append_left("fake_left", p);
	append_left("fake_verbs_left", p);
	p->memory = LEAKED_MEMORY();
	p->ended = true;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

/* late: this rank failed when the others may have finished. */
static tuttiResult_t init_and_run(struct failure_rank *s, const tuttiUniqueId *id, bool *ret_late)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiResult_t rc;

	config.timeout_ms = TIMEOUT_MS;
	config.transport = trial->use->verbs ? "verbs" : NULL;
	rc = tuttiCommInitRankConfig(&s->comm, s->n, *id, s->rank, &config);
	if (!rc)
		rc = run_failure_use(trial->use, s);
	*ret_late = !rc;
	return rc ? rc : tuttiBarrier(s->comm, NULL);
}

static int act(tuttiComm_t *none, int rank, int n, void *arg)
{
	const struct ranks *r = arg;
	struct failure_rank s = { .rank = rank, .n = n };
	struct failure_outcome *o = &trial->rank[rank];
	char host[16];

	(void)none;
	if (trial->use->verbs) {
		snprintf(host, sizeof(host), "host%d", rank);
		setenv("TUTTI_HOST_ID", host, 1);
	}
	begin_test_calls();
	s.cu = trial->use->cuda ? harness_cuda() : NULL;
	end_test_calls();
	if (!r->threads && rank == trial->victim)
		arm();
	o->code = init_and_run(&s, &r->id, &o->late);
	snprintf(o->text, sizeof(o->text), "%s", o->code ? tuttiGetLastError(s.comm) : "");
	o->wrong = s.wrong + (trial->use->cuda && !s.cu);
	if (s.comm)
		tuttiCommDestroy(s.comm);
	o->ended = true;
	if (!r->threads)
		record_process(&trial->process[rank]);
	return 0;
}

/* Runs the trial in a process of its own. */
static int run_trial(void)
{
	struct ranks r = { .n = trial->use->n,
			   .threads = trial->use->threads,
			   .no_join = true,
			   .limit_s = LIMIT_S,
			   .timeout_ms = TIMEOUT_MS };
	int failed;

	alarm(LIMIT_S + 10);
	r.arg = &r;
	if (r.threads) {
		harness_cuda();
		arm();
	}
	failed = ranks_run(&r, act);
	if (r.threads)
		record_process(&trial->process[0]);
	return failed;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int complain(const char *what, const char *more)
{
	printf("# %s, %s:%d:%d: %s%s\n", trial->use->name, trial->call, trial->k, trial->victim,
	       what, more);
	return 1;
}

/* Does the victim's message have its rank and the driver's error? */
static bool names_cause(const struct failure_outcome *o, int rank)
{
	char name[32], code[32];

	snprintf(name, sizeof(name), "rank %d", rank);
	snprintf(code, sizeof(code), ", %d)", CUDA_CODE);
	if (!strstr(o->text, name))
		return false;
	if (!strcmp(trial->call, "cuCtxPushCurrent_v2") && strstr(o->text, ", 201)"))
		return true; /* calls after the failed push have no context */
	return is_of_cuda(trial->call)
		       ? strstr(o->text, code) != NULL
		       : strstr(o->text, strerror(VERBS_CODE)) ||
				 (!strcmp(trial->call, "poll_cq") && strstr(o->text, "(-1)"));
}

/* If ranks are threads, any of them may be the victim. */
static int check_messages(void)
{
	int bad = 0, named = 0, late = 0;

	for (int i = 0; i < trial->use->n; i++)
		late += trial->rank[i].code && trial->rank[i].late;
	for (int i = 0; i < trial->use->n; i++) {
		const struct failure_outcome *o = &trial->rank[i];

		if (!o->code && late)
			continue;
		if (!o->code)
			bad += complain("a rank has no error", "");
		else if (!o->text[0] || strstr(o->text, "timed out"))
			bad += complain("error of another rank: ", o->text);
		if (trial->use->threads || i == trial->victim)
			named += names_cause(o, i);
	}
	if (!named)
		bad += complain("the victim's message: ",
				trial->rank[trial->use->threads ? 0 : trial->victim].text);
	return bad;
}

static int check_left(const struct failure_process *p)
{
	int bad = 0;

	if (is_release(trial->call) && p->hits)
		return 0;
	if (p->left[0])
		bad += complain("objects are left:", p->left);
	if (p->memory)
		bad += complain("leaked memory", "");
	return bad;
}

static const char *end_of(int status)
{
	return WIFEXITED(status)             ? "killed"
	       : WTERMSIG(status) == SIGALRM ? "timed out"
					     : strsignal(WTERMSIG(status));
}

enum verdict { GOOD, BAD, NOT_REACHED };

static enum verdict check(int status)
{
	const struct failure_use *u = trial->use;
	int bad = 0, failed = 0, reached = 0;

	for (int i = 0; i < u->n; i++) {
		const struct failure_outcome *o = &trial->rank[i];
		const struct failure_process *p = &trial->process[u->threads ? 0 : i];

		failed += o->code != 0;
		reached += p->hits;
		if (!o->ended || !p->ended)
			return complain("a rank did not end: ", end_of(status)), BAD;
		if (!o->code && o->wrong)
			bad += complain("wrong results", "");
		if (!u->threads || !i)
			bad += check_left(p);
	}
	if (status)
		bad += complain("ranks ended with a failure", "");
	if (failed && reached)
		bad += check_messages();
	else if (failed)
		bad += complain("fails without an injected failure: ", trial->rank[0].text);
	return bad ? BAD : reached ? GOOD : NOT_REACHED;
}

static enum verdict attempt(const struct failure_use *use, const char *call, int k, int victim)
{
	int status;
	pid_t child;

	memset(trial, 0, sizeof(*trial));
	trial->use = use;
	trial->k = k;
	trial->victim = victim;
	snprintf(trial->call, sizeof(trial->call), "%s", call);
	fflush(NULL);
	child = fork();
	if (!child)
		_exit(run_trial());
	waitpid(child, &status, 0);
	for (int i = 0; verbose && i < use->n; i++)
		printf("# rank %d: %d %s; reached %d, left:%s\n", i, trial->rank[i].code,
		       trial->rank[i].text, trial->process[i].hits, trial->process[i].left);
	return check(status);
}

/* ---- choice of trials ------------------------------------------------------------------------ */

struct failure_tally {
	int reached, bad;
};

static void count(struct failure_tally *t, enum verdict v)
{
	t->reached += v != NOT_REACHED;
	t->bad += v == BAD;
}

static void try_call(const struct failure_use *use, const char *call, struct failure_tally *t)
{
	enum verdict v;

	for (int victim = 0; victim < (use->threads ? 1 : use->n); victim++)
		for (int k = 1;; k += 1 + k / STRIDE_FROM * k / 4) {
			v = attempt(use, call, k, victim);
			if (v == NOT_REACHED)
				break;
			count(t, v);
		}
}

static void try_all(const struct failure_use *use, struct failure_tally *t)
{
#define NAME(member, symbol, parameters) #symbol,
	static const char *const cuda[] = { TT_CUDA_FUNCTIONS(NAME) TT_CUDA_LATER(NAME) NULL };
#undef NAME
#define NAME(result, name, parameters) #name,
	static const char *const verbs[] = { TT_VERBS_CALLS(NAME)
						     TT_VERBS_LATER(NAME) "query_gid_table",
					     "poll_cq",
					     "req_notify_cq",
					     "post_send",
					     "post_recv",
					     NULL };

	for (int i = 0; use->cuda && cuda[i]; i++)
		try_call(use, cuda[i], t);
	for (int i = 0; use->verbs && verbs[i]; i++)
		try_call(use, verbs[i], t);
}

/* A sample whose call is not reached is a failure: the sample is out of date. */
static void try_sample(const struct failure_use *use, const char *sample, struct failure_tally *t)
{
	int k, victim, bytes;
	char call[64];

	for (; sscanf(sample, " %63[^:]:%d:%d%n", call, &k, &victim, &bytes) == 3;
	     sample += bytes) {
		enum verdict v = attempt(use, call, k, victim);

		count(t, v);
		t->bad += v == NOT_REACHED && complain("is not reached", "");
	}
}

/* The file of the fake libibverbs has no name in a folder, so no file is left after any end. */
static bool open_trials(void)
{
	int fd = memfd_create("verbs", MFD_CLOEXEC);
	char file[64];

	trial = mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (trial == MAP_FAILED || fd < 0 || !load_verbs())
		return false;
	snprintf(file, sizeof(file), "/proc/%d/fd/%d", (int)getpid(), fd);
	setenv("TUTTI_TEST_VERBS", file, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	return true;
}

int main(int argc, char **argv)
{
	int n = 0, bad = 0;

	if (!open_trials()) {
		printf("1..0 # SKIP the fakes were not made\n");
		return 0;
	}
	verbose = argc > 2;
	for (const struct failure_use *u = failure_uses; u->name; u++) {
		struct failure_tally t = { 0 };

		if (argc > 1 && !strstr(u->name, argv[1]))
			continue;
		if (argc != 2)
			try_sample(u, argc > 2 ? argv[2] : u->sample, &t);
		else
			try_all(u, &t);
		printf("%sok %d - %s: %d driver failures end with an error message\n",
		       t.bad ? "not " : "", ++n, u->name, t.reached - t.bad);
		bad += t.bad;
	}
	printf("1..%d\n", n);
	return bad != 0;
}
