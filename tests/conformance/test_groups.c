/*
 * test_groups.c - groups whose operations need new connections end, in whatever order each rank
 * calls them
 *
 * No rank may wait for one connection while other operations of its group could move. Each program
 * runs on new communicators, so its first group connects the links. Transports: shared memory, and
 * the network of ranks_network().
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/must.h"

#define TIMEOUT_MS 60000 /* the library's own deadline reports a deadlock */
#define RANKS_MOST 9

static void run_everywhere(rank_fn *fn, int n, void *arg)
{
	const char *transports[] = { "shm", ranks_network() };

	/* shm is tested with tcp, and not again with verbs */
	for (int t = strcmp(ranks_network(), "tcp") ? 1 : 0; t < 2; t++)
		for (int threads = 0; threads < 2; threads++) {
			struct ranks r = { .n = n,
					   .threads = threads,
					   .transport = transports[t],
					   .timeout_ms = TIMEOUT_MS,
					   .limit_s = 4 * TIMEOUT_MS / 1000,
					   .arg = arg };

			cr_expect_eq(ranks_run(&r, fn), 0, "n %d, %s, %s", n, transports[t],
				     threads ? "threads" : "processes");
		}
}

/* ---- two communicators with opposite rank numbers -------------------------------------------- */

/* The rank that dials in a waits for the dial of its peer in b. */
static int crossed(tuttiComm_t *comm, int rank, int n, void *arg)
{
	(void)arg;
	for (int sender = 0; sender < 2; sender++) {
		int out[2] = { 10, 20 }, in[2] = { 0 };
		tuttiComm_t a, b;

		MUST(tuttiCommSplit(*comm, 0, rank, &a, NULL));
		MUST(tuttiCommSplit(*comm, 0, n - rank, &b, NULL));
		MUST(tuttiGroupStart());
		if (rank == sender) {
			MUST(tuttiSend(&out[0], 1, tuttiInt32, 1 - rank, a, NULL));
			MUST(tuttiSend(&out[1], 1, tuttiInt32, rank, b, NULL));
		} else {
			MUST(tuttiRecv(&in[1], 1, tuttiInt32, rank, b, NULL));
			MUST(tuttiRecv(&in[0], 1, tuttiInt32, 1 - rank, a, NULL));
		}
		MUST(tuttiGroupEnd());
		WANT(rank == sender || (in[0] == 10 && in[1] == 20));
		MUST(tuttiCommDestroy(b));
		MUST(tuttiCommDestroy(a));
	}
	return 0;
}

Test(groups, sends_in_one_order_meet_receives_in_the_other, .timeout = 300)
{
	run_everywhere(crossed, 2, NULL);
}

/* Messages of all pairs, on both communicators; mine[] is this rank's number in each. */
static int all_pairs(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int out[2][RANKS_MOST], in[2][RANKS_MOST], mine[2] = { rank, n - 1 - rank };
	tuttiComm_t c[2];

	(void)arg;
	MUST(tuttiCommSplit(*comm, 0, rank, &c[0], NULL));
	MUST(tuttiCommSplit(*comm, 0, n - rank, &c[1], NULL));
	MUST(tuttiGroupStart());
	for (int i = 0; i < 2; i++)
		for (int p = 0; p < n; p++) {
			out[i][p] = 100 * i + 10 * mine[i] + p;
			MUST(tuttiSend(&out[i][p], 1, tuttiInt32, p, c[i], NULL));
			MUST(tuttiRecv(&in[i][p], 1, tuttiInt32, p, c[i], NULL));
		}
	MUST(tuttiGroupEnd());
	for (int i = 0; i < 2; i++) {
		for (int p = 0; p < n; p++)
			WANT(in[i][p] == 100 * i + 10 * p + mine[i]);
		MUST(tuttiCommDestroy(c[i]));
	}
	return 0;
}

Test(groups, messages_of_two_rank_numberings_connect_in_any_order, .timeout = 300)
{
	for (int n = 3; n <= 5; n++)
		run_everywhere(all_pairs, n, NULL);
}

/* ---- collectives and messages of one communicator -------------------------------------------- */

/* Each turn has another root and another distance of the messages. */
static int collectives_and_messages(tuttiComm_t *comm, int rank, int n, void *arg)
{
	(void)arg;
	for (int turn = 0; turn < n; turn++) {
		int root = turn, to = (rank + 1 + turn) % n, from = (rank + 2 * n - 1 - turn) % n;
		int number = rank == root ? 7 : 0, one = 1, sum = 0, in = -1;
		tuttiComm_t c;

		MUST(tuttiCommSplit(*comm, 0, rank, &c, NULL));
		MUST(tuttiGroupStart());
		MUST(tuttiBroadcast(&number, &number, 1, tuttiInt32, root, c, NULL));
		MUST(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, c, NULL));
		MUST(tuttiSend(&rank, 1, tuttiInt32, to, c, NULL));
		MUST(tuttiRecv(&in, 1, tuttiInt32, from, c, NULL));
		MUST(tuttiGroupEnd());
		WANT(number == 7 && sum == n && in == from);
		MUST(tuttiCommDestroy(c));
	}
	return 0;
}

Test(groups, collectives_and_messages_of_nine_ranks_connect_together, .timeout = 300)
{
	run_everywhere(collectives_and_messages, 9, NULL);
}

/* ---- errors while links connect -------------------------------------------------------------- */

#define SHORT_MS 1500

/* Is the process stopped by a signal? */
static bool is_stopped(pid_t pid)
{
	char path[40], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(f);
	return state == 'T';
}

/* Rank 0 is in no call, so rank 2 waits for its dial; rank 1 is in the group of rank 2. */
static int miss_a_dial(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiResult_t state = tuttiSuccess;
	int in[2], out = 5;

	(void)n, (void)arg;
	for (; rank == 0 && !state; usleep(1000))
		MUST(tuttiCommGetAsyncError(*comm, &state));
	if (rank == 1)
		return tuttiSend(&out, 1, tuttiInt32, 2, *comm, NULL) != 0;
	if (rank == 0)
		return 0;
	MUST(tuttiGroupStart());
	MUST(tuttiRecv(&in[0], 1, tuttiInt32, 0, *comm, NULL));
	MUST(tuttiRecv(&in[1], 1, tuttiInt32, 1, *comm, NULL));
	WANT(tuttiGroupEnd() != tuttiSuccess);
	WANT(in[1] == 5);
	WANT(strstr(tuttiGetLastError(NULL), "rank 2 has no connection to rank 0 after 1500 ms"));
	WANT(strstr(tuttiGetLastError(NULL), "rank 0 has not made the matching call"));
	return 0;
}

Test(groups, a_rank_that_does_not_dial_is_named_while_others_are_served, .timeout = 60)
{
	for (int threads = 0; threads < 2; threads++) {
		struct ranks r = {
			.n = 3, .threads = threads, .transport = "tcp", .timeout_ms = SHORT_MS
		};

		cr_expect_eq(ranks_run(&r, miss_a_dial), 0);
	}
}

/* Rank 1 is stopped, so it answers no dial; rank 0 kills it in the end. */
static int dial_a_stopped_rank(tuttiComm_t *comm, int rank, int n, void *arg)
{
	volatile pid_t *stopped = arg;
	int out = 5;

	(void)n;
	if (rank == 1) {
		*stopped = getpid();
		raise(SIGSTOP);
	}
	while (!*stopped || !is_stopped(*stopped))
		usleep(1000);
	WANT(tuttiSend(&out, 1, tuttiInt32, 1, *comm, NULL) != tuttiSuccess);
	WANT(strstr(tuttiGetLastError(NULL), "rank 0 has no connection to rank 1 after 1500 ms"));
	kill(*stopped, SIGKILL);
	return 0;
}

Test(groups, a_rank_that_answers_no_dial_is_named, .timeout = 60)
{
	pid_t *stopped = mmap(NULL, sizeof(*stopped), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ranks r = { .n = 2, .transport = "tcp", .timeout_ms = SHORT_MS, .arg = stopped };

	cr_expect_eq(ranks_run(&r, dial_a_stopped_rank), 1, "only rank 1 fails, as it is killed");
	munmap(stopped, sizeof(*stopped));
}

/* ---- several streams ------------------------------------------------------------------------- */

/* Rank 1 calls another allreduce than the others. */
static int mismatch_on_two_streams(tuttiComm_t *comm, int rank, int n, void *arg)
{
	tuttiStream_t streams[2];
	int x[2][4] = { { 0 } };

	(void)arg, (void)n;
	MUST(tuttiStreamCreate(&streams[0]));
	MUST(tuttiStreamCreate(&streams[1]));
	MUST(tuttiGroupStart());
	for (int i = 0; i < 2; i++)
		MUST(tuttiAllReduce(x[i], x[i], rank == 1 ? 4 : 3, tuttiInt32, tuttiSum, *comm,
				    streams[i]));
	MUST(tuttiGroupEnd());
	for (int i = 0; i < 2; i++)
		WANT(tuttiStreamSynchronize(streams[i]) == tuttiInvalidUsage &&
		     strstr(tuttiGetLastError(NULL), "rank 1 called allreduce of 4"));
	MUST(tuttiStreamDestroy(streams[0]));
	MUST(tuttiStreamDestroy(streams[1]));
	return 0;
}

Test(groups, a_failure_is_the_error_of_all_streams_of_a_group, .timeout = 300)
{
	run_everywhere(mismatch_on_two_streams, 3, NULL);
}

/* ---- random programs ------------------------------------------------------------------------- */

/* A program is a list of groups of operations on several communicators. Every rank computes the
 * same list from the seed, and calls its own operations of a group in an order and on streams of its
 * own. Legal orders: all ranks call the collectives of a communicator in the same order, and both
 * sides the messages of a direction of a pair. */

#define COMMS_MOST 3
#define GROUPS 3
#define OPS_MOST 24
#define STREAMS 2

struct random_numbers {
	unsigned long long seed, index;
};

static int below(struct random_numbers *r, int limit)
{
	return (int)(random_of(r->seed, r->index++) % (unsigned)limit);
}

/* world_rank[i]: number in the world of the communicator's rank i; -1 in number: no member */
struct group_comm {
	tuttiComm_t comm;
	int n, world_rank[RANKS_MOST], number[RANKS_MOST];
};

enum { MESSAGE, BROADCAST, ALLREDUCE, ALLGATHER, KINDS };

/* root, peer: numbers in the communicator; of a message: sender and receiver */
struct group_op {
	int kind, comm, root, peer, count;
	int *out, *in;
	tuttiStream_t stream;
	bool called;
};

static void choose_members(struct random_numbers *r, int n, bool everyone, struct group_comm *c)
{
	*c = (struct group_comm){ .n = 0 };
	for (int i = 0; i < n; i++)
		if (everyone || i < 2 || below(r, 4))
			c->world_rank[c->n++] = i;
	for (int i = c->n - 1; i > 0; i--) {
		int j = below(r, i + 1), swapped = c->world_rank[i];

		c->world_rank[i] = c->world_rank[j];
		c->world_rank[j] = swapped;
	}
	for (int i = 0; i < n; i++)
		c->number[i] = -1;
	for (int i = 0; i < c->n; i++)
		c->number[c->world_rank[i]] = i;
}

static struct group_op random_op(struct random_numbers *r, const struct group_comm *comms,
				 int ncomms)
{
	static const int counts[] = { 1, 100, 5000, 40000 };
	struct group_op op = { .comm = below(r, ncomms),
			       .kind = below(r, 3) ? MESSAGE : below(r, KINDS),
			       .count = counts[below(r, 4)] };

	op.root = below(r, comms[op.comm].n);
	op.peer = below(r, comms[op.comm].n);
	return op;
}

static bool takes_part(const struct group_op *op, const struct group_comm *c, int rank)
{
	int me = c[op->comm].number[rank];

	return op->kind == MESSAGE ? me == op->root || me == op->peer : me >= 0;
}

static bool same_order(const struct group_op *a, const struct group_op *b)
{
	if (a->comm != b->comm || (a->kind == MESSAGE) != (b->kind == MESSAGE))
		return false;
	return a->kind != MESSAGE || (a->root == b->root && a->peer == b->peer);
}

/* Element i that a rank of the communicator contributes to operation k */
static int element(int k, int from, int i)
{
	return 1000 * k + 100 * from + i % 97;
}

static int call(struct group_op *op, int k, const struct group_comm *c, int rank)
{
	int me = c[op->comm].number[rank];
	tuttiComm_t comm = c[op->comm].comm;

	op->out = malloc((size_t)op->count * sizeof(int));
	op->in = calloc((size_t)op->count * (size_t)c[op->comm].n, sizeof(int));
	for (int i = 0; i < op->count; i++)
		op->out[i] = element(k, me, i);
	if (op->kind == MESSAGE && me == op->root)
		MUST(tuttiSend(op->out, (size_t)op->count, tuttiInt32, op->peer, comm, op->stream));
	if (op->kind == MESSAGE && me == op->peer)
		MUST(tuttiRecv(op->in, (size_t)op->count, tuttiInt32, op->root, comm, op->stream));
	if (op->kind == BROADCAST)
		MUST(tuttiBroadcast(op->out, op->in, (size_t)op->count, tuttiInt32, op->root, comm,
				    op->stream));
	if (op->kind == ALLREDUCE)
		MUST(tuttiAllReduce(op->out, op->in, (size_t)op->count, tuttiInt32, tuttiSum, comm,
				    op->stream));
	if (op->kind == ALLGATHER)
		MUST(tuttiAllGather(op->out, op->in, (size_t)op->count, tuttiInt32, comm,
				    op->stream));
	return 0;
}

static int expected(const struct group_op *op, int k, int n, int at)
{
	int sum = 0;

	if (op->kind == ALLGATHER)
		return element(k, at / op->count, at % op->count);
	if (op->kind != ALLREDUCE)
		return element(k, op->root, at);
	for (int r = 0; r < n; r++)
		sum += element(k, r, at);
	return sum;
}

static int verify(struct group_op *op, int k, const struct group_comm *c, int rank)
{
	bool received = op->kind != MESSAGE || c[op->comm].number[rank] == op->peer;
	int n = c[op->comm].n, last = op->count * (op->kind == ALLGATHER ? n : 1);

	for (int i = 0; i < last && received; i++)
		WANT(op->in[i] == expected(op, k, n, i));
	free(op->out);
	free(op->in);
	return 0;
}

/* Picks an operation that was not called yet, or the first one that must be called before it. */
static int pick(struct random_numbers *r, const struct group_op *ops, int left)
{
	int skip = below(r, left), k = 0;

	while (ops[k].called || skip-- > 0)
		k++;
	for (int i = 0; i < k; i++)
		if (!ops[i].called && same_order(&ops[i], &ops[k]))
			return i;
	return k;
}

/* streams: the first one is NULL */
static int run_group(struct random_numbers *r, const struct group_comm *comms, int ncomms,
		     const tuttiStream_t *streams, int rank)
{
	struct random_numbers own;
	struct group_op ops[OPS_MOST];
	int nops = 2 + below(r, OPS_MOST - 1), left = nops;

	for (int k = 0; k < nops; k++)
		ops[k] = random_op(r, comms, ncomms);
	own = (struct random_numbers){ .seed = r->seed + 1000u * (unsigned)(rank + 1),
				       .index = r->index };
	MUST(tuttiGroupStart());
	for (; left > 0; left--) {
		int k = pick(&own, ops, left);

		ops[k].called = true;
		ops[k].stream = streams[below(&own, STREAMS + 1)];
		if (takes_part(&ops[k], comms, rank) && call(&ops[k], k, comms, rank))
			return 1;
	}
	MUST(tuttiGroupEnd());
	for (int s = 1; s <= STREAMS; s++)
		MUST(tuttiStreamSynchronize(streams[s]));
	for (int k = 0; k < nops; k++)
		if (takes_part(&ops[k], comms, rank) && verify(&ops[k], k, comms, rank))
			return 1;
	return 0;
}

static int random_program(tuttiComm_t *comm, int rank, int n, void *arg)
{
	struct random_numbers r = { .seed = *(const unsigned long long *)arg };
	struct group_comm comms[COMMS_MOST];
	tuttiStream_t streams[STREAMS + 1] = { NULL };
	int ncomms = 1 + below(&r, COMMS_MOST);

	for (int i = 0; i < ncomms; i++) {
		choose_members(&r, n, i == 0, &comms[i]);
		MUST(tuttiCommSplit(*comm, comms[i].number[rank] < 0 ? TUTTI_SPLIT_NOCOLOR : 0,
				    comms[i].number[rank], &comms[i].comm, NULL));
	}
	for (int s = 1; s <= STREAMS; s++)
		MUST(tuttiStreamCreate(&streams[s]));
	for (int g = 0; g < GROUPS; g++)
		if (run_group(&r, comms, ncomms, streams, rank)) {
			fprintf(stderr, "rank %d of %d: program %llu, group %d\n", rank, n, r.seed,
				g);
			return 1;
		}
	for (int s = 1; s <= STREAMS; s++)
		MUST(tuttiStreamDestroy(streams[s]));
	for (int i = 0; i < ncomms; i++)
		if (comms[i].comm)
			MUST(tuttiCommDestroy(comms[i].comm));
	return 0;
}

Test(groups, random_programs_end, .timeout = 600)
{
	const char *fewer = getenv("TUTTI_TEST_FEWER");
	unsigned long long last = 24 / (fewer ? (unsigned)atoi(fewer) : 1);

	for (unsigned long long seed = 1; seed <= last; seed++)
		run_everywhere(random_program, 2 + (int)(seed % (RANKS_MOST - 1)), &seed);
}
