/*
 * simulation.c - run many schedules of the simulation, each in a process of its own
 *
 * A schedule that crashes or spins is a failure like any other, and a schedule leaves nothing for
 * the next one. SIGINT ends the run after the schedules in progress.
 */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <openssl/kdf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/simulation/simulation.h"

#define SPIN_SECONDS 60 /* of processor time */
#define SHOWN 10        /* failures that end a run */
#define JOBS_MOST 256

struct options {
	uint64_t first, count, jobs;
	bool trace, until_failure;
	uint64_t ranks, hop_us; /* of a crowd; ranks 0: none */
};

struct running {
	pid_t pid; /* 0: none */
	uint64_t seed;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
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
		"  --ranks N        instead: N ranks join, one dies, the others shrink; print the costs\n"
		"  --hop US         time of a message then, in microseconds (50)\n"
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

static struct options read_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "schedules", required_argument, NULL, 'n' },
		{ "first", required_argument, NULL, 'f' },
		{ "seed", required_argument, NULL, 's' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "trace", no_argument, NULL, 't' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "hop", required_argument, NULL, 'o' },
		{ "until-failure", no_argument, NULL, 'u' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct options o = { .first = 1, .count = 2000, .jobs = 1, .hop_us = 50 };
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
			usage(stderr);
			exit(2);
		}
	}
	if (optind < argc || !o.jobs || o.jobs > JOBS_MOST || o.ranks == 1 ||
	    o.ranks > SIM_CROWD_MOST || !o.hop_us) {
		usage(stderr);
		exit(2);
	}
	return o;
}

static void begin(struct running *r, uint64_t seed, bool trace)
{
	struct sim_plan plan = { .seed = seed, .trace = trace };

	fflush(NULL);
	*r = (struct running){ .seed = seed, .pid = fork() };
	if (r->pid == 0) {
		signal(SIGINT, SIG_IGN); /* the schedule ends soon */
		setrlimit(RLIMIT_CPU, &(struct rlimit){ SPIN_SECONDS, SPIN_SECONDS + 1 });
		_exit(sim_job(&plan));
	}
	if (r->pid < 0) {
		perror("simulation: fork");
		exit(2);
	}
}

/* Wait until a schedule ends. false: it failed, with a sentence on stderr */
static bool end_one(struct running *list, int n)
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
	if (WIFSIGNALED(status))
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)list[i].seed,
			WTERMSIG(status) == SIGXCPU ? "a thread spins"
						    : strsignal(WTERMSIG(status)));
	return status == 0;
}

static int run_all(const struct options *o)
{
	struct running list[JOBS_MOST] = { 0 };
	uint64_t begun = 0, done = 0, failed = 0;
	int jobs = (int)o->jobs;

	while (done < begun || begun < o->count) {
		bool more = begun < o->count && !interrupted && failed < SHOWN &&
			    !(o->until_failure && failed);

		if (more && begun - done < o->jobs) {
			int i = 0;

			while (list[i].pid)
				i++;
			begin(&list[i], o->first + begun++, o->trace);
			continue;
		}
		if (done == begun)
			break;
		failed += !end_one(list, jobs);
		if (++done % 1000 == 0 && isatty(2))
			fprintf(stderr, "\r%llu schedules", (unsigned long long)done);
	}
	printf("%llu schedules from seed %llu on, %llu failed\n", (unsigned long long)done,
	       (unsigned long long)o->first, (unsigned long long)failed);
	return failed > 0;
}

int main(int argc, char **argv)
{
	struct options o = read_options(argc, argv);

	/* equal addresses in every run */
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) && personality(ADDR_NO_RANDOMIZE) >= 0)
		execv("/proc/self/exe", argv);
	/* what costs time in every schedule: OpenSSL's beginning, and memory that the kernel clears */
	EVP_KDF_free(EVP_KDF_fetch(NULL, "HKDF", NULL));
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	sigaction(SIGINT, &(struct sigaction){ .sa_handler = interrupt }, NULL);
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = interrupt }, NULL);
	return o.ranks ? sim_crowd((int)o.ranks, o.hop_us * 1000, o.trace) : run_all(&o);
}
