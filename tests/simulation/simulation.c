/*
 * simulation.c - run many schedules of the simulation, in a few processes
 *
 * A schedule that crashes or spins is a failure like any other: its process ends, and another one
 * runs the next schedules. A schedule leaves nothing for the next one: it has its own memory, and the
 * variables of the program are as before. SIGINT ends the run after the schedules in progress.
 */
#include <errno.h>
#include <getopt.h>
#include <openssl/kdf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/simulation/simulation.h"

#define SPIN_SECONDS 60 /* of processor time */
#define SHOWN 10        /* failures that end a run */
#define JOBS_MOST 256
#define BATCH 1024 /* schedules of one process, whose OpenSSL keeps memory of killed ranks */

struct options {
	uint64_t first, count, jobs;
	bool trace, until_failure, holders, slow;
	uint64_t ranks, hop_us, above; /* of a crowd; ranks 0: none */
	bool split;
	const char *until;
};

struct batch {
	pid_t pid; /* 0: none */
	uint64_t first, end;
};

/* Shared with the processes of all batches */
static struct shared {
	volatile bool stops;                /* no schedule begins */
	volatile uint64_t begun[JOBS_MOST]; /* schedules of the batch */
} * shared;

static void interrupt(int signal)
{
	(void)signal;
	shared->stops = true;
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: simulation [options]\n"
		"Run schedules of the library on a simulated network and clock, with faults.\n\n"
		"  --schedules N    run N schedules (2000)\n"
		"  --first N        the first seed (1)\n"
		"  --seed N         run one schedule\n"
		"  --jobs N         as many at a time (1)\n"
		"  --trace          print its messages, kills and results\n"
		"  --until-failure  end at the first failure\n"
		"  --holders        all jobs have holders of the business cards, not only one of eight\n"
		"  --slow           all jobs have slow servers and messages that are sent again, not only one of 16\n"
		"  --ranks N        instead: N ranks join, one dies, the others shrink; print the costs\n"
		"  --split          and, after the join, two exchanges among all ranks, and a split\n"
		"  --hop US         time of a message then, in microseconds (50)\n"
		"  --until PHASE    join or death: what follows is left out\n"
		"  --above N        jobs of more ranks have holders of the business cards (1024)\n"
		"  --help\n\n"
		"A failure is printed with its seed, which repeats it. Exit status: 0 all hold, 1 not.\n");
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || *end || end == text || *text == '-') {
		fprintf(stderr, "simulation: %s is not a number\n", text);
		exit(2);
	}
	return n;
}

static const struct option longs[] = {
	{ "schedules", required_argument, NULL, 'n' },
	{ "first", required_argument, NULL, 'f' },
	{ "seed", required_argument, NULL, 's' },
	{ "jobs", required_argument, NULL, 'j' },
	{ "trace", no_argument, NULL, 't' },
	{ "holders", no_argument, NULL, 'h' + 256 },
	{ "slow", no_argument, NULL, 'l' },
	{ "ranks", required_argument, NULL, 'r' },
	{ "hop", required_argument, NULL, 'o' },
	{ "split", no_argument, NULL, 'p' },
	{ "above", required_argument, NULL, 'a' },
	{ "until", required_argument, NULL, 'u' + 256 },
	{ "until-failure", no_argument, NULL, 'u' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

_Noreturn static void refuse(void)
{
	usage(stderr);
	exit(2);
}

static struct options read_options(int argc, char **argv)
{
	struct options o = {
		.first = 1, .count = 2000, .jobs = 1, .hop_us = 50, .above = 1024, .until = "shrink"
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		switch (c) {
		case 'n':
			o.count = number(optarg);
			break;
		case 'f':
			o.first = number(optarg);
			break;
		case 's':
			o.first = number(optarg);
			o.count = 1;
			break;
		case 'j':
			o.jobs = number(optarg);
			break;
		case 'r':
			o.ranks = number(optarg);
			break;
		case 'o':
			o.hop_us = number(optarg);
			break;
		case 'a':
			o.above = number(optarg);
			break;
		case 'u' + 256:
			o.until = optarg;
			break;
		case 'p':
			o.split = true;
			break;
		case 'h' + 256:
			o.holders = true;
			break;
		case 'l':
			o.slow = true;
			break;
		case 't':
			o.trace = true;
			break;
		case 'u':
			o.until_failure = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			refuse();
		}
	}
	if (optind < argc || !o.jobs || o.jobs > JOBS_MOST || o.ranks == 1 ||
	    o.ranks > SIM_CROWD_MOST || !o.hop_us)
		refuse();
	return o;
}

/* The schedules of a batch, until one fails. Returns the exit status. */
static int run_batch(const struct batch *b, volatile uint64_t *begun, const struct options *o)
{
	struct itimerval limit = { .it_value.tv_sec = SPIN_SECONDS };

	for (uint64_t seed = b->first; seed < b->end && !shared->stops; seed++) {
		struct sim_plan plan = {
			.seed = seed, .trace = o->trace, .holders = o->holders, .slow = o->slow
		};

		++*begun;
		setitimer(ITIMER_PROF, &limit, NULL);
		if (sim_job(&plan))
			return 1;
	}
	return 0;
}

static void begin(struct batch *b, volatile uint64_t *begun, const struct options *o)
{
	fflush(NULL);
	*begun = 0;
	b->pid = fork();
	if (b->pid == 0) {
		signal(SIGINT, SIG_IGN); /* the schedule ends soon */
		_exit(run_batch(b, begun, o));
	}
	if (b->pid < 0) {
		perror("simulation: fork");
		exit(2);
	}
}

/* Wait until a process ends: the rest of its batch is left. Returns the number of the batch; ret_fails:
 * its latest schedule failed, with a sentence on stderr */
static int end_one(struct batch *list, int n, bool *ret_fails)
{
	int status, i = 0;
	pid_t pid;

	do
		pid = wait(&status);
	while (pid < 0 && errno == EINTR);
	while (i < n && list[i].pid != pid)
		i++;
	if (i == n) {
		perror("simulation: wait");
		exit(2);
	}
	list[i].pid = 0;
	list[i].first += shared->begun[i];
	if (WIFSIGNALED(status))
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)list[i].first - 1,
			WTERMSIG(status) == SIGPROF ? "a thread spins"
						    : strsignal(WTERMSIG(status)));
	*ret_fails = status != 0;
	return i;
}

static int run_all(const struct options *o)
{
	struct batch list[JOBS_MOST] = { 0 };
	uint64_t next = o->first, end = o->first + o->count, done = 0, failed = 0;
	uint64_t part = o->jobs > 1 ? o->count / o->jobs / 4 + 1 : o->count;
	uint64_t each = part < BATCH ? part : BATCH;
	int jobs = (int)o->jobs, running = 0;

	for (;;) {
		bool fails;
		int i = 0;

		for (; i < jobs && !shared->stops; i++) {
			struct batch *b = &list[i];

			if (!b->pid && b->first == b->end) {
				b->first = next;
				next = b->end = end - next < each ? end : next + each;
			}
			if (!b->pid && b->first < b->end) {
				begin(b, &shared->begun[i], o);
				running++;
			}
		}
		if (!running)
			break;
		running--;
		i = end_one(list, jobs, &fails);
		done += shared->begun[i];
		failed += fails;
		if (failed >= SHOWN || (o->until_failure && failed))
			shared->stops = true;
		if (isatty(2))
			fprintf(stderr, "\r%llu schedules", (unsigned long long)done);
	}
	printf("%llu schedules from seed %llu on, %llu failed\n", (unsigned long long)done,
	       (unsigned long long)o->first, (unsigned long long)failed);
	return failed > 0;
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv);
	struct sim_crowd_plan crowd;

	/* equal addresses in every run */
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) && personality(ADDR_NO_RANDOMIZE) >= 0)
		execv("/proc/self/exe", argv);
	/* OpenSSL's beginning costs time in every process */
	EVP_KDF_free(EVP_KDF_fetch(NULL, "HKDF", NULL));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("simulation: mmap");
		return 2;
	}
	sigaction(SIGINT, &(struct sigaction){ .sa_handler = interrupt }, NULL);
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = interrupt }, NULL);
	crowd = (struct sim_crowd_plan){ (int)o.ranks, o.hop_us * 1000, (int)o.above,
					 o.until,      o.split,         o.trace };
	return o.ranks ? sim_crowd(&crowd) : run_all(&o);
}
