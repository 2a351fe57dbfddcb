/*
 * test_driver_failures.c - each call of a driver that fails once, at its first use, its second, and so on:
 * everything comes to an end, in words
 *
 * On the fakes for CUDA's driver and libibverbs. A trial is one use of driver_failure_uses.c by ranks
 * that are started for it, with one call of one of them (the victim) refused. What must hold: all
 * ranks end before their deadline and none by a signal; either all succeed, with right results,
 * since something else did instead, or the victim has a sentence with its rank and the driver's
 * number and the others have an error that is no time-out; nothing is left of what was made but
 * areas, which are kept for the next communicator; under AddressSanitizer, no memory.
 *
 * Without arguments the samples of driver_failure_uses.c. An argument: all calls, of uses whose names
 * have that part ('' all have; tier full): k goes up until a run has no k-th use, from STRIDE_FROM
 * on in growing steps, since how often some are called depends on time. CALL:K:VICTIM as a second
 * argument is that trial alone, with what the ranks said.
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
#define CUDA_CODE 777                  /* no driver has it */
#define CARD_CODE ENOBUFS
#define TIMEOUT_MS 10000
#define LIMIT_S 40
#define STRIDE_FROM 64

/* What a rank came to, and the process it is in. */
struct failure_outcome { bool ended, late; int code, wrong; char text[1024]; };
struct house { bool ended; int hits, memory; char left[400]; };

static struct failure_trial {
	const struct use *use;
	char call[64];
	int k, victim;
	struct failure_outcome rank[RANKS];
	struct house house[RANKS];
} *trial;                              /* shared with the ranks */
static bool verbose;

/* ---- the fakes --------------------------------------------------------------------------- */

static void *ask(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static bool load_cards(void)
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
		 is_of_cuda(trial->call) ? CUDA_CODE : CARD_CODE);
	setenv(is_of_cuda(trial->call) ? "TUTTI_TEST_CUDA_FAIL" : "TUTTI_TEST_VERBS_FAIL", text, 1);
}

/* A thing that could not be given back stays, and so do those that it belongs to. */
static bool gives_back(const char *call)
{
	static const char *const words[] = { "Free", "Destroy", "Unregister", "Unmap", "Close",
					     "Release", "destroy_", "dereg_", "dealloc_", "close_",
					     "cuCtxPush", "cuCtxSet" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(call, words[i]))
			return true;
	return false;
}

static int hits(void)
{
	fake_hits_fn *cuda = NULL, *cards = NULL;

	*(void **)&cuda = ask("fake_hits");
	*(void **)&cards = ask("fake_verbs_hits");
	return (cuda ? cuda() : 0) + (cards ? cards() : 0);
}

/* Appends what is left of one library's things; areas: a piece of memory and a page each. */
static void name_left(const char *function, struct house *h)
{
	fake_left_fn *look = NULL;
	int areas = 0, left;
	const char *name;

	*(void **)&look = ask(function);
	for (int i = 0; look && (name = look(i, &left)); i++) {
		size_t have = strlen(h->left);

		if (!strcmp(name, "piece") || !strcmp(name, "mapped"))
			areas += left;
		else if (!strcmp(name, "page"))
			areas -= left;
		else if (left && strcmp(name, "reserved"))
			snprintf(h->left + have, sizeof(h->left) - have, " %d %s", left, name);
	}
	if (areas) {
		size_t have = strlen(h->left);

		snprintf(h->left + have, sizeof(h->left) - have, " %d areas by half", areas);
	}
}

static void look_round(struct house *h)
{
	unsetenv("TUTTI_TEST_CUDA_FAIL");
	unsetenv("TUTTI_TEST_VERBS_FAIL");
	h->hits = hits();
	name_left("fake_left", h);
	name_left("fake_verbs_left", h);
	h->memory = LEAKED_MEMORY();
	h->ended = true;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

/* late: it failed when the others may have been through. */
static tuttiResult_t join_and_play(struct failure_rank *s, const tuttiUniqueId *id, bool *ret_late)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiResult_t rc;

	config.timeout_ms = TIMEOUT_MS;
	config.transport = trial->use->cards ? "verbs" : NULL;
	rc = tuttiCommInitRankConfig(&s->comm, s->n, *id, s->rank, &config);
	if (!rc)
		rc = use_play(trial->use, s);
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
	if (trial->use->cards) {
		snprintf(host, sizeof(host), "host%d", rank);
		setenv("TUTTI_HOST_ID", host, 1);
	}
	begin_own();
	s.cu = trial->use->cuda ? harness_cuda() : NULL;
	end_own();
	if (!r->threads && rank == trial->victim)
		arm();
	o->code = join_and_play(&s, &r->id, &o->late);
	snprintf(o->text, sizeof(o->text), "%s", o->code ? tuttiGetLastError(s.comm) : "");
	o->wrong = s.wrong + (trial->use->cuda && !s.cu);
	if (s.comm)
		tuttiCommDestroy(s.comm);
	o->ended = true;
	if (!r->threads)
		look_round(&trial->house[rank]);
	return 0;
}

/* In a process of its own */
static int play(void)
{
	struct ranks r = { .n = trial->use->n, .threads = trial->use->threads, .no_join = true,
			   .limit_s = LIMIT_S, .timeout_ms = TIMEOUT_MS };
	int failed;

	alarm(LIMIT_S + 10);
	r.arg = &r;
	if (r.threads) {
		harness_cuda();
		arm();
	}
	failed = ranks_run(&r, act);
	if (r.threads)
		look_round(&trial->house[0]);
	return failed;
}

/* ---- judging --------------------------------------------------------------------------------- */

static int complain(const char *what, const char *more)
{
	printf("# %s, %s:%d:%d: %s%s\n", trial->use->name, trial->call, trial->k, trial->victim,
	       what, more);
	return 1;
}

/* The sentence that the victim must have: its rank, and what the driver said */
static bool tells(const struct failure_outcome *o, int rank)
{
	char name[32], code[32];

	snprintf(name, sizeof(name), "rank %d", rank);
	snprintf(code, sizeof(code), ", %d)", CUDA_CODE);
	if (!strstr(o->text, name))
		return false;
	if (!strcmp(trial->call, "cuCtxPushCurrent_v2") && strstr(o->text, ", 201)"))
		return true;                   /* what is then done has no context */
	return is_of_cuda(trial->call) ? strstr(o->text, code) != NULL
				       : strstr(o->text, strerror(CARD_CODE)) ||
						 (!strcmp(trial->call, "poll_cq") &&
						  strstr(o->text, "(-1)"));
}

/* Ranks that are threads: one of them is the victim. */
static int judge_words(void)
{
	int bad = 0, told = 0, late = 0;

	for (int i = 0; i < trial->use->n; i++)
		late += trial->rank[i].code && trial->rank[i].late;
	for (int i = 0; i < trial->use->n; i++) {
		const struct failure_outcome *o = &trial->rank[i];

		if (!o->code && late)
			continue;
		if (!o->code)
			bad += complain("a rank last_received of nothing", "");
		else if (!o->text[0] || strstr(o->text, "timed out"))
			bad += complain("others: ", o->text);
		if (trial->use->threads || i == trial->victim)
			told += tells(o, i);
	}
	if (!told)
		bad += complain("the victim's sentence: ",
				trial->rank[trial->use->threads ? 0 : trial->victim].text);
	return bad;
}

static int judge_left(const struct house *h)
{
	int bad = 0;

	if (gives_back(trial->call) && h->hits)
		return 0;
	if (h->left[0])
		bad += complain("left behind:", h->left);
	if (h->memory)
		bad += complain("memory was lost", "");
	return bad;
}

static const char *ends(int status)
{
	return WIFEXITED(status)		? "it was killed"
	       : WTERMSIG(status) == SIGALRM ? "it hung"
					       : strsignal(WTERMSIG(status));
}

enum verdict { GOOD, BAD, NOT_MET };

static enum verdict judge(int status)
{
	const struct use *u = trial->use;
	int bad = 0, failed = 0, met = 0;

	for (int i = 0; i < u->n; i++) {
		const struct failure_outcome *o = &trial->rank[i];
		const struct house *h = &trial->house[u->threads ? 0 : i];

		failed += o->code != 0;
		met += h->hits;
		if (!o->ended || !h->ended)
			return complain("a rank did not come to its end: ", ends(status)), BAD;
		if (!o->code && o->wrong)
			bad += complain("wrong results", "");
		if (!u->threads || !i)
			bad += judge_left(h);
	}
	if (status)
		bad += complain("ranks ended badly", "");
	if (failed && met)
		bad += judge_words();
	else if (failed)
		bad += complain("fails by itself: ", trial->rank[0].text);
	return bad ? BAD : met ? GOOD : NOT_MET;
}

static enum verdict attempt(const struct use *use, const char *call, int k, int victim)
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
		_exit(play());
	waitpid(child, &status, 0);
	for (int i = 0; verbose && i < use->n; i++)
		printf("# rank %d: %d %s; met %d, left:%s\n", i, trial->rank[i].code,
		       trial->rank[i].text, trial->house[i].hits, trial->house[i].left);
	return judge(status);
}

/* ---- which trials ---------------------------------------------------------------------------- */

struct failure_tally { int met, bad; };

static void count(struct failure_tally *t, enum verdict v)
{
	t->met += v != NOT_MET;
	t->bad += v == BAD;
}

static void try_call(const struct use *use, const char *call, struct failure_tally *t)
{
	enum verdict v;

	for (int victim = 0; victim < (use->threads ? 1 : use->n); victim++)
		for (int k = 1;; k += 1 + k / STRIDE_FROM * k / 4) {
			v = attempt(use, call, k, victim);
			if (v == NOT_MET)
				break;
			count(t, v);
		}
}

static void try_all(const struct use *use, struct failure_tally *t)
{
#define NAME(member, symbol, parameters) #symbol,
	static const char *const cuda[] = { TT_CUDA_FUNCTIONS(NAME) TT_CUDA_LATER(NAME) NULL };
#undef NAME
#define NAME(result, name, parameters) #name,
	static const char *const cards[] = { TT_VERBS_CALLS(NAME) TT_VERBS_LATER(NAME) "query_gid_table",
					     "poll_cq", "req_notify_cq", "post_send", "post_recv",
					     NULL };

	for (int i = 0; use->cuda && cuda[i]; i++)
		try_call(use, cuda[i], t);
	for (int i = 0; use->cards && cards[i]; i++)
		try_call(use, cards[i], t);
}

/* A sample that is not met has come to nothing. */
static void try_sample(const struct use *use, const char *sample, struct failure_tally *t)
{
	int k, victim, bytes;
	char call[64];

	for (; sscanf(sample, " %63[^:]:%d:%d%n", call, &k, &victim, &bytes) == 3;
	     sample += bytes) {
		enum verdict v = attempt(use, call, k, victim);

		count(t, v);
		t->bad += v == NOT_MET && complain("is not met", "");
	}
}

/* The cards' file has no name in any folder: however this ends, nothing is left of it. */
static bool open_trials(void)
{
	int fd = memfd_create("cards", MFD_CLOEXEC);
	char file[64];

	trial = mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (trial == MAP_FAILED || fd < 0 || !load_cards())
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
	for (const struct use *u = uses; u->name; u++) {
		struct failure_tally t = { 0 };

		if (argc > 1 && !strstr(u->name, argv[1]))
			continue;
		if (argc != 2)
			try_sample(u, argc > 2 ? argv[2] : u->sample, &t);
		else
			try_all(u, &t);
		printf("%sok %d - %s: %d failures of drivers end in words\n", t.bad ? "not " : "",
		       ++n, u->name, t.met - t.bad);
		bad += t.bad;
	}
	printf("1..%d\n", n);
	return bad != 0;
}
