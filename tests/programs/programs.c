/*
 * programs.c - runs random programs of right calls and checks every element of every result
 *
 * Called by tests/tiers and by hand. A program is drawn from its seed alone: 1 to 9 ranks, processes
 * or threads, on one host or (by TUTTI_HOST_ID) several; a transport; an algorithm; the steps of
 * program_steps.c. A failed program is printed with the command that repeats it.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/programs/program.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))
#define LIMIT_S 600 /* of a program, on a machine that is busy */

static struct {
	uint64_t first, programs;
	int steps;
} options = { .first = 1, .programs = 100, .steps = 100 };

static const char usage[] =
	"usage: programs [--seed N] [--programs COUNT] [--steps COUNT]\n"
	"Runs random programs of right calls: collectives, groups, streams, splits, messages, on memory of\n"
	"all kinds; checks every element of every result.\n"
	"  --seed N          seed of the first program (1)\n"
	"  --programs COUNT  the seeds from N on (100)\n"
	"  --steps COUNT     steps of a program (100)\n";

/* ---- a rank ---------------------------------------------------------------------------------- */

bool program_fails(const struct program_rank *r, const struct program_op *op, const char *what)
{
	fprintf(stderr, "rank %d of %d, program %llu, step %d: %s\n", r->rank, r->n,
		(unsigned long long)r->seed, r->step, what);
	if (op)
		fprintf(stderr,
			"  %s of %zu, type %d, op %d%s%s, root %d%s, communicator %d, stream %d, shift %zu%s\n",
			program_kinds[op->call.kind], op->call.count, op->call.type, op->call.op,
			op->call.user ? " of the user" : "", op->call.scaled ? " scaled" : "",
			op->call.root, op->call.in_place ? ", in place" : "", op->call.comm,
			op->call.stream, op->call.shift, op->call.gaps ? ", gaps" : "");
	return false;
}

bool program_ok(const struct program_rank *r, const struct program_op *op, tuttiResult_t rc)
{
	return !rc || program_fails(r, op, tuttiGetLastError(NULL));
}

static bool open_rank(struct program_rank *r, tuttiComm_t comm)
{
	for (int i = 0; i < PROGRAM_COMMS; i++)
		r->comms[i].me = -1;
	r->comms[0] = (struct program_comm){
		.comm = comm, .exists = true, .n = r->n, .me = r->rank
	};
	for (int i = 0; i < r->n; i++)
		r->comms[0].world[i] = i;
	for (int s = 1; s < PROGRAM_STREAMS; s++)
		if (!program_ok(r, NULL, tuttiStreamCreate(&r->streams[s])))
			return false;
	return program_memory_open(r);
}

static bool close_rank(struct program_rank *r)
{
	if (!program_drain(r) || !program_memory_close(r))
		return false;
	for (int s = 1; s < PROGRAM_STREAMS; s++)
		if (!program_ok(r, NULL, tuttiStreamDestroy(r->streams[s])))
			return false;
	for (int i = 1; i < PROGRAM_COMMS; i++)
		if (r->comms[i].comm && !program_ok(r, NULL, tuttiCommDestroy(r->comms[i].comm)))
			return false;
	return true;
}

static bool run_steps(struct program_rank *r, tuttiComm_t comm)
{
	if (!open_rank(r, comm))
		return false;
	for (; r->step < options.steps; r->step++)
		if (!program_step(r))
			return false;
	return close_rank(r);
}

/* ---- a program ------------------------------------------------------------------------------- */

struct program {
	uint64_t seed;
	const struct ranks *ranks;
};

/* Ranks that are processes are on several hosts in half of the programs that do not name shm. */
static void set_host(uint64_t seed, int rank)
{
	char host[20];

	if (random_of(seed, 5) % 2)
		return;
	snprintf(host, sizeof(host), "host-%d", random_of(seed, 6) % 2 ? rank % 2 : rank / 3);
	setenv("TUTTI_HOST_ID", host, 1);
}

static int run_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct program *p = arg;
	struct program_rank *r = calloc(1, sizeof(*r));
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	bool ok;

	if (!r)
		return 1;
	*r = (struct program_rank){ .rank = rank,
				    .n = n,
				    .seed = p->seed,
				    .own = random_of(p->seed, 1000 + (uint64_t)rank) };
	config.transport = p->ranks->transport;
	config.algo = p->ranks->algo;
	config.timeout_ms = LIMIT_S * 1000 / 5;
	if (!p->ranks->threads && p->ranks->transport[0] != 's')
		set_host(p->seed, rank);
	ok = program_ok(r, NULL, tuttiCommInitRankConfig(comm, n, p->ranks->id, rank, &config)) &&
	     run_steps(r, *comm);
	free(r);
	return !ok;
}

static bool run_program(uint64_t seed)
{
	static const char *const transports[] = { "auto", "shm", "tcp" };
	static const char *const algos[] = { "auto",
					     "auto",
					     "ring",
					     "tree",
					     "recursive-doubling",
					     "halving-doubling",
					     "reduce-to-one",
					     "hierarchical",
					     "hierarchical-copy",
					     "one-shot",
					     "two-shot" };
	struct ranks r = { .n = 1 + (int)(random_of(seed, 1) % 9),
			   .threads = random_of(seed, 2) % 4 == 0,
			   .transport = transports[random_of(seed, 3) % ELEMENTS(transports)],
			   .algo = algos[random_of(seed, 4) % ELEMENTS(algos)],
			   .limit_s = LIMIT_S,
			   .no_join = true };
	struct program p = { .seed = seed, .ranks = &r };

	r.arg = &p;
	if (!ranks_run(&r, run_rank))
		return true;
	printf("program %llu failed: %d %s, transport %s, algorithm %s; to repeat: programs --seed %llu --programs 1 --steps %d\n",
	       (unsigned long long)seed, r.n, r.threads ? "threads" : "processes", r.transport,
	       r.algo, (unsigned long long)seed, options.steps);
	fflush(stdout);
	return false;
}

/* ---- options --------------------------------------------------------------------------------- */

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (end != text && !*end)
		return value;
	fprintf(stderr, "programs: %s is not a number\n", text);
	exit(2);
}

static void read_options(int argc, char **argv)
{
	static const struct option table[] = { { "seed", 1, NULL, 's' },
					       { "programs", 1, NULL, 'n' },
					       { "steps", 1, NULL, 't' },
					       { "help", 0, NULL, 'h' },
					       { 0 } };

	for (int c; (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
		if (c == 's')
			options.first = number(optarg);
		else if (c == 'n')
			options.programs = number(optarg);
		else if (c == 't')
			options.steps = (int)number(optarg);
		else {
			fputs(usage, c == 'h' ? stdout : stderr);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (optind == argc)
		return;
	fprintf(stderr, "programs: %s: unexpected argument\n%s", argv[optind], usage);
	exit(2);
}

/* The reference makes its tables of narrow floats at first use: before there are threads. */
static void make_tables(void)
{
	char x[8];

	program_put(tuttiFloat16, x, 0, 1);
	program_put(tuttiBfloat16, x, 0, 1);
}

int main(int argc, char **argv)
{
	uint64_t failed = 0;

	read_options(argc, argv);
	make_tables();
	for (uint64_t i = 0; i < options.programs; i++)
		failed += !run_program(options.first + i);
	printf("%llu programs, %llu failed\n", (unsigned long long)options.programs,
	       (unsigned long long)failed);
	return failed != 0;
}
