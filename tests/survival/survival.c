/*
 * survival.c - runs scenes in which ranks are killed, stopped or cut off, and prints a table
 *
 * Called by tests/tiers and by hand. A scene is drawn from its seed alone; a failed scene is printed
 * with the command that repeats it. Scenes run side by side, each in a process of its own, since
 * most of their time is a wait for a deadline.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/survival/survival.h"

#define MAX_JOBS 64
#define TRIES 5       /* of a scene whose ranks do not join in time */
#define PROGRESS_S 10 /* between lines of progress */
#define SHOWN_AGAIN 5 /* failed scenes, below the table */
#define UNRUN_S 1     /* without a processor, after which a failed scene says nothing */

struct cell {
	int scenes, ranks, late, also;
	double by, slowest, leave;
	uint64_t seed;
};

struct survival_job {
	pid_t pid;
	struct scene_shared *sh;
	int tries;
	bool unrun; /* failed before, while a rank got no processor */
};

static struct {
	uint64_t first, scenes, repeat;
	int jobs, phase, kind;
	bool verbose, late, halves;
} options = { .first = 1, .scenes = 300, .repeat = 1, .phase = -1, .kind = -1 };

static struct cell cells[16][SCENE_KINDS];
static struct survival_job running[MAX_JOBS];
static uint64_t ran, failed, repeated;
static uint64_t unrun,
	unrun_twice;        /* failed while ranks got no processor; and again when repeated */
static uint64_t went_on[3]; /* cuts after which no side, one, both went on */
static bool has_networks;
static const char *lacks;
static FILE *failures; /* writes failures_text: the first failed scenes; NULL: no memory */
static char *failures_text;
static size_t failures_bytes;
static volatile sig_atomic_t interrupted;

static const char usage[] =
	"usage: survival [--seed N] [--scenes COUNT] [--phase NAME] [--kind KIND] [--jobs J] [--repeat K]\n"
	"                [--halves] [--late] [--verbose]\n"
	"Kills, stops or cuts off ranks in each phase of a communicator, and checks the survivors: the\n"
	"error and the time until it, the sums, and what is left.\n"
	"  --seed N       seed of the first scene (1); with --seed alone, this scene only, verbosely\n"
	"  --scenes COUNT the seeds from N on (300)\n"
	"  --phase NAME   only scenes of this phase; --phase help lists the phases\n"
	"  --kind KIND    only scenes of this kind: kill, stop or cut\n"
	"  --halves       only cuts between two halves of the ranks, in phase shrink with TUTTI_SHRINK=majority\n"
	"  --jobs J       scenes side by side (8 for each processor, at most 32)\n"
	"  --repeat K     every scene K times\n"
	"  --late         a line for each notice after the documented time: the call, how late, the error\n"
	"  --verbose      a line for each scene, and the error of each survivor\n";

static const char legend[] =
	"notices  survivors that noticed the fault\n"
	"late     of these, after the documented time: 2 s; stopped or cut off: the deadline + 1 s\n"
	"by       the longest time after the documented one\n"
	"also     of these, with a text that also says of a live rank that it does not answer\n"
	"slowest  since the fault; stopped or cut off: since the later of fault and call, with deadlines of\n"
	"         0.8 to 8 s\n"
	"leave    the longest tuttiCommDestroy or tuttiCommAbort afterwards\n";

/* ---- options --------------------------------------------------------------------------------- */

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (end != text && !*end)
		return value;
	fprintf(stderr, "survival: %s is not a number\n", text);
	exit(2);
}

static int find_phase(const char *name)
{
	for (int p = 0; p < scene_nphases; p++)
		if (!strcmp(scene_phases[p].name, name))
			return p;
	for (int p = 0; p < scene_nphases; p++)
		printf("%s\n", scene_phases[p].name);
	exit(strcmp(name, "help") ? 2 : 0);
}

static int find_kind(const char *name)
{
	for (int k = 0; k < SCENE_KINDS; k++)
		if (!strcmp(scene_kinds[k], name))
			return k;
	fprintf(stderr, "survival: %s is no kind; kinds are kill, stop and cut\n", name);
	exit(2);
}

static const struct option longs[] = {
	{ "seed", 1, NULL, 's' },
	{ "scenes", 1, NULL, 'n' },
	{ "phase", 1, NULL, 'p' },
	{ "kind", 1, NULL, 'k' },
	{ "jobs", 1, NULL, 'j' },
	{ "repeat", 1, NULL, 'r' },
	{ "verbose", 0, NULL, 'v' },
	{ "halves", 0, NULL, 'H' },
	{ "late", 0, NULL, 'l' },
	{ "help", 0, NULL, 'h' },
	{ 0 },
};

static void read_options(int argc, char **argv)
{
	bool seed = false, scenes = false;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	options.jobs = cores < 4 ? 8 * (int)cores : 32;
	for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
		switch (c) {
		case 's':
			options.first = number(optarg);
			seed = true;
			break;
		case 'n':
			options.scenes = number(optarg);
			scenes = true;
			break;
		case 'p':
			options.phase = find_phase(optarg);
			break;
		case 'k':
			options.kind = find_kind(optarg);
			break;
		case 'j':
			options.jobs = (int)number(optarg);
			break;
		case 'r':
			options.repeat = number(optarg);
			break;
		case 'H':
			options.halves = true;
			break;
		case 'l':
			options.late = true;
			break;
		case 'v':
			options.verbose = true;
			break;
		default:
			fputs(usage, c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (optind < argc || options.jobs < 1 || options.jobs > MAX_JOBS || !options.repeat) {
		fputs(usage, stderr);
		exit(2);
	}
	if (seed && !scenes) {
		options.scenes = 1;
		options.verbose = true;
	}
}

/* ---- results --------------------------------------------------------------------------------- */

/* Of a failed scene the first few failures */
static void print_ranks(FILE *to, const struct scene_shared *sh)
{
	int shown = 0;

	for (int r = 0; r < sh->scene.n; r++) {
		const struct scene_report *p = &sh->rank[r];

		if (sh->scene.victim[r] && sh->scene.kind != SCENE_CUT)
			continue;
		if (options.verbose)
			fprintf(to, "  rank %d: %llu rounds, %.0f ms, code %d: %s\n", r,
				(unsigned long long)p->rounds, p->notice_ms, p->code, p->text);
		if (p->problem[0] && (shown++ < 3 || options.verbose))
			fprintf(to, "  rank %d FAILED: %s\n", r, p->problem);
	}
}

static void count(const struct scene_shared *sh, struct cell *cell)
{
	cell->scenes++;
	for (int r = 0; r < sh->scene.n; r++) {
		const struct scene_report *p = &sh->rank[r];
		double late = p->notice_ms;

		if (sh->scene.victim[r] && sh->scene.kind != SCENE_CUT)
			continue;
		if (p->leave_ms > cell->leave)
			cell->leave = p->leave_ms;
		if (!p->noticed)
			continue;
		cell->ranks++;
		cell->late += p->notice_ms > p->bound_ms;
		if (p->notice_ms - p->bound_ms > cell->by)
			cell->by = p->notice_ms - p->bound_ms;
		cell->also += p->also;
		if (late > cell->slowest) {
			cell->slowest = late;
			cell->seed = sh->scene.seed;
		}
	}
}

static void print_scene(FILE *to, const struct scene_shared *sh, bool bad, int status)
{
	const struct scene *s = &sh->scene;
	char text[512];

	scene_describe(s, text, sizeof(text));
	fprintf(to,
		"%s survival %s--seed %llu: %s; %.1f s, sleeps overran by %.0f ms, a rank waited %.0f ms for a processor\n",
		bad ? "FAILED" : "passed", s->halves ? "--halves " : "",
		(unsigned long long)s->seed, text, sh->wall_s, (double)sh->delay_ns * 1e-6,
		(double)sh->unrun_ns * 1e-6);
	if (sh->problem[0] || status)
		fprintf(to, "  %s%s\n", sh->problem,
			status ? "the process of the scene failed" : "");
	print_ranks(to, sh);
	fflush(to);
}

static void print_late(const struct scene_shared *sh)
{
	const struct scene *s = &sh->scene;

	for (int r = 0; r < s->n; r++) {
		const struct scene_report *p = &sh->rank[r];

		if ((s->victim[r] && s->kind != SCENE_CUT) || !p->noticed ||
		    p->notice_ms <= p->bound_ms)
			continue;
		printf("late: --seed %llu: %s, %s, %s, rank %d of %d in %s: %.0f ms, %.0f after the bound; sleeps overran by %.0f ms, a rank waited %.0f ms for a processor: %s\n",
		       (unsigned long long)s->seed, scene_phases[s->phase].name,
		       scene_kinds[s->kind], s->transport, r, s->n, p->noticed_in, p->notice_ms,
		       p->notice_ms - p->bound_ms, (double)sh->delay_ns * 1e-6,
		       (double)sh->unrun_ns * 1e-6, p->text);
	}
	fflush(stdout);
}

static bool is_bad(const struct scene_shared *sh, int status)
{
	bool bad = sh->problem[0] || status;

	for (int r = 0; r < sh->scene.n; r++)
		bad |= sh->rank[r].problem[0] != '\0';
	return bad;
}

static void conclude(const struct scene_shared *sh, int status)
{
	const struct scene *s = &sh->scene;
	bool bad = is_bad(sh, status);

	ran++;
	failed += bad;
	went_on[__builtin_popcount((unsigned)scene_sides(sh))]++;
	count(sh, &cells[s->phase][s->kind]);
	if (options.late)
		print_late(sh);
	if (bad || options.verbose)
		print_scene(stdout, sh, bad, status);
	if (bad && failed <= SHOWN_AGAIN && failures)
		print_scene(failures, sh, bad, status);
}

static void print_table(double seconds)
{
	printf("\n%-13s %-5s %7s %8s %5s %8s %5s %10s %9s %10s\n", "phase", "kind", "scenes",
	       "notices", "late", "by", "also", "slowest", "of seed", "leave");
	for (int p = 0; p < scene_nphases; p++)
		for (int k = 0; k < SCENE_KINDS; k++) {
			const struct cell *c = &cells[p][k];

			if (c->scenes)
				printf("%-13s %-5s %7d %8d %5d %5.0f ms %5d %7.0f ms %9llu %7.0f ms\n",
				       scene_phases[p].name, scene_kinds[k], c->scenes, c->ranks,
				       c->late, c->by, c->also, c->slowest,
				       (unsigned long long)c->seed, c->leave);
		}
	fputs(legend, stdout);
	if (options.halves)
		printf("one half went on after %llu cuts, none after %llu, both after %llu\n",
		       (unsigned long long)went_on[1], (unsigned long long)went_on[0],
		       (unsigned long long)went_on[2]);
	if (!has_networks)
		printf("skipped: cut, and what is left in /tmp and /dev/shm: %s\n", lacks);
	if (repeated)
		printf("repeated with a longer deadline, since ranks did not join in time: %llu\n",
		       (unsigned long long)repeated);
	if (unrun)
		printf("failed while a rank that could run got no processor for %d s and more, and repeated: %llu, of which %llu failed again\n",
		       UNRUN_S, (unsigned long long)unrun, (unsigned long long)unrun_twice);
	if (ran > 1 && failures_text)
		fputs(failures_text, stdout); /* where whoever reads only the end finds them */
	printf("%llu scenes, %llu failed, %.0f s\n", (unsigned long long)ran,
	       (unsigned long long)failed, seconds);
}

/* ---- scenes side by side --------------------------------------------------------------------- */

static void start(struct survival_job *job)
{
	pid_t parent = getpid();

	fflush(NULL);
	job->pid = fork();
	if (job->pid < 0) {
		perror("survival: fork");
		exit(1);
	}
	if (job->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		scene_run(job->sh);
	_exit(0);
}

/* Draws the scene of a seed into a free job; false: the scene is not wanted, or cannot run here. */
static bool begin(struct survival_job *job, uint64_t seed)
{
	struct scene_shared *sh = job->sh;

	memset(sh, 0, sizeof(*sh));
	scene_draw(seed, options.halves, &sh->scene);
	if ((options.kind >= 0 && sh->scene.kind != (enum scene_kind)options.kind) ||
	    (options.phase >= 0 && sh->scene.phase != options.phase))
		return false;
	if (sh->scene.kind == SCENE_CUT && !has_networks)
		return false;
	sh->has_networks = has_networks;
	job->tries = 1;
	job->unrun = false;
	start(job);
	return true;
}

static void restart(struct survival_job *job, const struct scene *scene)
{
	memset(job->sh, 0, sizeof(*job->sh));
	job->sh->scene = *scene;
	job->sh->has_networks = has_networks;
	start(job);
}

/* It failed while the machine did not run a rank, which is printed: it starts again, once. */
static bool again_unrun(struct survival_job *job, int status)
{
	struct scene scene = job->sh->scene;
	bool bad = is_bad(job->sh, status);

	unrun_twice += job->unrun && bad;
	if (job->unrun || !bad || job->sh->unrun_ns < UNRUN_S * 1000000000ull)
		return false;
	job->unrun = true;
	unrun++;
	print_scene(stdout, job->sh, bad, status);
	restart(job, &scene);
	return true;
}

/* Its ranks did not join within the deadline that also ends the wait for stopped ranks: nothing was
 * tested, so the scene starts again with a longer one. */
static bool again(struct survival_job *job)
{
	struct scene scene = job->sh->scene;

	if (!job->sh->late_join || job->tries++ >= TRIES)
		return false;
	scene.timeout_ms *= 2;
	repeated++;
	restart(job, &scene);
	return true;
}

/* Waits for a scene to end. */
static void finish_one(void)
{
	int status;
	pid_t pid = waitpid(-1, &status, 0);

	for (int j = 0; j < options.jobs && pid > 0; j++)
		if (running[j].pid == pid) {
			running[j].pid = 0;
			if (interrupted || again(&running[j]))
				return;
			if (running[j].sh->late_join)
				snprintf(running[j].sh->problem, sizeof(running[j].sh->problem),
					 "ranks do not join");
			if (again_unrun(&running[j], status))
				return;
			conclude(running[j].sh, status);
		}
}

static struct survival_job *find_free(void)
{
	for (int j = 0; j < options.jobs; j++)
		if (!running[j].pid)
			return &running[j];
	return NULL;
}

static bool any_running(void)
{
	for (int j = 0; j < options.jobs; j++)
		if (running[j].pid)
			return true;
	return false;
}

static void interrupt(int signal)
{
	interrupted = signal;
	for (int j = 0; j < options.jobs; j++)
		if (running[j].pid)
			kill(running[j].pid, SIGKILL);
}

static void progress(uint64_t begin, uint64_t *next)
{
	double seconds = (double)(scene_now_ns() - begin) * 1e-9;

	if (scene_now_ns() < *next)
		return;
	*next += PROGRESS_S * 1000000000ull;
	fprintf(stderr, "%llu of %llu scenes, %llu failed, %.0f s\n", (unsigned long long)ran,
		(unsigned long long)(options.scenes * options.repeat), (unsigned long long)failed,
		seconds);
}

static void run_all(void)
{
	uint64_t start_ns = scene_now_ns(), next = start_ns + PROGRESS_S * 1000000000ull;

	for (uint64_t i = 0; i < options.scenes * options.repeat && !interrupted; i++) {
		struct survival_job *job;

		while (!(job = find_free()))
			finish_one();
		if (!interrupted)
			begin(job, options.first + i / options.repeat);
		progress(start_ns, &next);
	}
	while (any_running()) {
		finish_one();
		progress(start_ns, &next);
	}
	while (waitpid(-1, NULL, 0) > 0)
		; /* ranks of scenes that were killed */
	print_table((double)(scene_now_ns() - start_ns) * 1e-9);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = interrupt };

	read_options(argc, argv);
	has_networks = scene_can_isolate(&lacks);
	if (options.halves && !has_networks) {
		puts(lacks);
		return 77;
	}
	failures = open_memstream(&failures_text, &failures_bytes);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int j = 0; j < options.jobs; j++) {
		running[j].sh = mmap(NULL, sizeof(*running[j].sh), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (running[j].sh == MAP_FAILED) {
			perror("survival: mmap");
			return 1;
		}
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	run_all();
	fflush(stdout);
	if (interrupted) {
		signal((int)interrupted, SIG_DFL);
		raise((int)interrupted);
	}
	return failed > 0 || !ran;
}
