/*
 * test_program_store.c - joining through functions of the program: a store of keys, an allgather
 *
 * Ranks are threads. test_launch.c tests what a launcher gives.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness_control.h"
#include "launch/launch.h"

#define RANKS 3

/* The store, shared by all threads. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char key[64], value[600];
	char contribution[RANKS][600];
	int ncontributions, aborted;
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int memory_put(void *ctx, const char *key, const char *value)
{
	(void)ctx;
	pthread_mutex_lock(&memory.lock);
	snprintf(memory.key, sizeof(memory.key), "%s", key);
	snprintf(memory.value, sizeof(memory.value), "%s", value);
	pthread_cond_broadcast(&memory.changed);
	pthread_mutex_unlock(&memory.lock);
	return 0;
}

static int memory_get(void *ctx, const char *key, char *value, size_t bytes, int timeout_ms)
{
	(void)ctx, (void)timeout_ms;
	pthread_mutex_lock(&memory.lock);
	while (!memory.value[0])
		pthread_cond_wait(&memory.changed, &memory.lock);
	snprintf(value, bytes, "%s", strcmp(key, memory.key) ? "" : memory.value);
	pthread_mutex_unlock(&memory.lock);
	return 0;
}

static void memory_abort(void *ctx, const char *why)
{
	(void)ctx;
	memory.aborted += strstr(why, "port") != NULL;
	memory_put(ctx, "here", "nothing");
}

static int begin_gather(void *src, void *recv, size_t size, void *ctx, void **request)
{
	int rank = *(int *)ctx;

	pthread_mutex_lock(&memory.lock);
	memcpy(memory.contribution[rank], src, size);
	memory.ncontributions++;
	pthread_mutex_unlock(&memory.lock);
	*request = recv;
	return 0;
}

static int test_gather(void *request)
{
	int left;

	pthread_mutex_lock(&memory.lock);
	left = RANKS - memory.ncontributions;
	for (int r = 0; !left && r < RANKS; r++)
		memcpy((char *)request + r * TT_STORE_VALUE, memory.contribution[r],
		       TT_STORE_VALUE);
	pthread_mutex_unlock(&memory.lock);
	return left;
}

static int free_gather(void *request)
{
	(void)request;
	return 0;
}

struct launch_rank {
	pthread_t thread;
	int rank;
	bool oob, no_abort;
	bool reads;     /* joins by the id that it reads in the store */
	int timeout_ms; /* 0: JOIN_TIMEOUT_MS */
	tuttiResult_t rc;
	float sum;
	char text[600];
};

/* Join with the id in the store, as its readers can. */
static tuttiResult_t join_as_reader(struct launch_rank *s, tuttiConfig_t *config, tuttiComm_t *comm)
{
	char value[TT_STORE_VALUE];
	tuttiUniqueId id;
	unsigned byte;

	memory_get(NULL, "here", value, sizeof(value), 0);
	for (size_t i = 0; i < sizeof(id.internal); i++) {
		sscanf(value + 2 * i, "%2x", &byte);
		id.internal[i] = (char)byte;
	}
	return tuttiCommInitRankConfig(comm, RANKS, id, s->rank, config);
}

static void *join_and_reduce(void *arg)
{
	struct launch_rank *s = arg;
	tuttiStore_t store = { .size = sizeof(store),
			       .rank = s->rank,
			       .nranks = RANKS,
			       .key = "here",
			       .put = memory_put,
			       .get = memory_get,
			       .abort = s->no_abort ? NULL : memory_abort };
	tuttiOob_t oob = { begin_gather, test_gather, free_gather,
			   &s->rank,     RANKS,       (uint32_t)s->rank };
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	float one = 1;
	tuttiComm_t comm;

	config.timeout_ms = s->timeout_ms ? s->timeout_ms : JOIN_TIMEOUT_MS;
	s->rc = s->reads ? join_as_reader(s, &config, &comm)
		: s->oob ? tuttiCommInitOob(&comm, &oob, &config)
			 : tuttiCommInitStore(&comm, &store, &config);
	if (s->rc) {
		snprintf(s->text, sizeof(s->text), "%s", tuttiGetLastError(NULL));
		return NULL;
	}
	s->rc = tuttiAllReduce(&one, &s->sum, 1, tuttiFloat, tuttiSum, comm, NULL);
	tuttiCommDestroy(comm);
	return NULL;
}

static void all_join_and_reduce(struct launch_rank ranks[RANKS], bool oob, bool no_abort)
{
	for (int r = 0; r < RANKS; r++) {
		ranks[r] = (struct launch_rank){ .rank = r, .oob = oob, .no_abort = no_abort };
		pthread_create(&ranks[r].thread, NULL, join_and_reduce, &ranks[r]);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(ranks[r].thread, NULL);
}

/* The last rank only reads the store; secret NULL: TUTTI_SECRET is not set. */
static int joined_beside_a_reader(const char *secret)
{
	struct launch_rank ranks[RANKS];
	int joined = 0;

	if (secret)
		setenv("TUTTI_SECRET", secret, 1);
	for (int r = 0; r < RANKS; r++) {
		ranks[r] = (struct launch_rank){ .rank = r,
						 .reads = r == RANKS - 1,
						 .timeout_ms = secret ? 1500 : 0 };
		pthread_create(&ranks[r].thread, NULL, join_and_reduce, &ranks[r]);
	}
	for (int r = 0; r < RANKS; r++) {
		pthread_join(ranks[r].thread, NULL);
		joined += !ranks[r].rc;
	}
	return joined;
}

Test(program_store, a_reader_of_the_store_can_join_without_a_secret, .timeout = 60)
{
	cr_expect_eq(joined_beside_a_reader(NULL), RANKS);
}

Test(program_store, a_reader_of_the_store_cannot_join_where_the_ranks_have_a_secret, .timeout = 60)
{
	cr_expect_eq(joined_beside_a_reader("a secret that is not in the store"), 0);
}

Test(program_store, ranks_with_a_secret_join_through_a_store_that_others_read, .timeout = 60)
{
	struct launch_rank ranks[RANKS];

	setenv("TUTTI_SECRET", "a secret that is not in the store", 1);
	all_join_and_reduce(ranks, false, false);
	for (int r = 0; r < RANKS; r++)
		cr_expect(!ranks[r].rc && ranks[r].sum == RANKS, "rank %d: %s", r, ranks[r].text);
}

Test(program_store, ranks_join_through_a_store_of_the_program, .timeout = 60)
{
	struct launch_rank ranks[RANKS];

	all_join_and_reduce(ranks, false, false);
	for (int r = 0; r < RANKS; r++)
		cr_expect(!ranks[r].rc && ranks[r].sum == RANKS, "rank %d: %s", r, ranks[r].text);
	cr_expect_eq(memory.aborted, 0);
}

Test(program_store, ranks_join_through_an_allgather_of_the_program, .timeout = 60)
{
	struct launch_rank ranks[RANKS];

	all_join_and_reduce(ranks, true, false);
	for (int r = 0; r < RANKS; r++)
		cr_expect(!ranks[r].rc && ranks[r].sum == RANKS, "rank %d: %s", r, ranks[r].text);
}

/* Leave rank 0 no port to listen on. */
static void occupy_the_port_range(void)
{
	char range[32];
	int fd, port;

	cr_assert_eq(tt_sock_listen(0, &fd, &port), 0);
	snprintf(range, sizeof(range), "%d-%d", port, port);
	setenv("TUTTI_PORT_RANGE", range, 1);
}

Test(program_store, the_store_carries_the_reason_why_rank_0_cannot_join, .timeout = 60)
{
	struct launch_rank ranks[RANKS];

	occupy_the_port_range();
	all_join_and_reduce(ranks, false, true);
	cr_expect_eq(ranks[0].rc, tuttiSystemError, "%s", ranks[0].text);
	for (int r = 1; r < RANKS; r++) {
		cr_expect_eq(ranks[r].rc, tuttiRemoteError, "rank %d: %s", r, ranks[r].text);
		cr_expect(strstr(ranks[r].text, "rank 0 cannot join") &&
				  strstr(ranks[r].text, "port"),
			  "%s", ranks[r].text);
	}
}

Test(program_store, the_allgather_carries_the_reason_why_rank_0_cannot_join, .timeout = 60)
{
	struct launch_rank ranks[RANKS];

	occupy_the_port_range();
	all_join_and_reduce(ranks, true, false);
	for (int r = 1; r < RANKS; r++)
		cr_expect(strstr(ranks[r].text, "rank 0 cannot join") &&
				  strstr(ranks[r].text, "port"),
			  "%s", ranks[r].text);
}

Test(program_store, the_abort_function_gets_the_reason_why_rank_0_cannot_join, .timeout = 60)
{
	struct launch_rank ranks[RANKS];

	occupy_the_port_range();
	all_join_and_reduce(ranks, false, false);
	cr_expect_eq(memory.aborted, 1);
	for (int r = 1; r < RANKS; r++)
		cr_expect(ranks[r].rc && strstr(ranks[r].text, "no unique id"), "rank %d: %s", r,
			  ranks[r].text);
}

Test(program_store, an_invalid_store_is_refused_with_the_reason, .timeout = 30)
{
	tuttiStore_t store = { .size = sizeof(store),
			       .rank = 2,
			       .nranks = 2,
			       .key = "k",
			       .put = memory_put,
			       .get = memory_get };
	tuttiComm_t comm;

	cr_expect_eq(tuttiCommInitStore(&comm, &store, NULL), tuttiInvalidArgument);
	cr_expect(strstr(tuttiGetLastError(NULL), "rank 2 of 2"), "%s", tuttiGetLastError(NULL));
	store.get = NULL;
	cr_expect_eq(tuttiCommInitStore(&comm, &store, NULL), tuttiInvalidArgument);
	cr_expect(strstr(tuttiGetLastError(NULL), "get"), "%s", tuttiGetLastError(NULL));
	cr_expect_eq(tuttiCommInitStore(&comm, NULL, NULL), tuttiInvalidArgument);
	cr_expect_eq(tuttiCommInitOob(&comm, NULL, NULL), tuttiInvalidArgument);
}
