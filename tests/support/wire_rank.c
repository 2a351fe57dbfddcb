/*
 * wire_rank.c - a rank of two whose traffic wire.sh captures, or sends through a relay
 *
 *   wire_rank                        one job of the environment, with planted markers
 *   wire_rank RANK STATE FIRST LAST BYTES KIND
 *                                    a job for each number FIRST..LAST, through wire_relay
 *
 * An operation succeeds with the right result or fails with a sentence. Exit status 3: it did neither,
 * or the rank believed the relay. Prints how many of the jobs failed.
 */
#include "control/unique_id.h"
#include "tests/support/descriptors.h"
#include "tests/support/wire.h"
#include "tutti.h"

#define COUNT 6000 /* of the allreduce's int32 elements */
#define MESSAGE 12000

static struct wire_state *state; /* NULL: one job */

static int wrong(const char *what)
{
	if (state)
		atomic_store(&state->over, true);
	fprintf(stderr, "wrong: %s (%s)\n", what, tuttiGetLastError(NULL));
	exit(3);
}

/* ---- one job, with markers ------------------------------------------------------------------- */

/* Rank 0 adds the markers to zeros, so that contributions and result have them. */
static int plant_data(tuttiComm_t comm, int rank)
{
	static uint8_t mine[64 << 10], all[sizeof(mine)];

	for (size_t i = 0; i < sizeof(mine) && rank == 0; i++)
		mine[i] = (uint8_t)DATA_MARKER[i % strlen(DATA_MARKER)];
	if (tuttiAllReduce(mine, all, sizeof(all), tuttiUint8, tuttiSum, comm, NULL))
		return 1;
	for (size_t i = 0; i < sizeof(all); i++)
		if (all[i] != (uint8_t)DATA_MARKER[i % strlen(DATA_MARKER)])
			wrong("an allreduce");
	return 0;
}

static int plant_tag(tuttiComm_t comm, int rank)
{
	uint64_t version;
	tuttiMsg_t msg;
	int32_t tag;
	char text[sizeof(TAG_MARKER)];

	memcpy(&tag, TAG_MARKER, sizeof(tag));
	memcpy(&version, &TAG_MARKER[sizeof(tag)], sizeof(version));
	if (rank == 0)
		return tuttiMsgSend(TAG_MARKER, sizeof(TAG_MARKER), 1, tag, version, comm);
	if (tuttiMsgRecv(text, sizeof(text), 0, tag, -1, comm, &msg))
		return 1;
	if (msg.version != version || strcmp(text, TAG_MARKER))
		wrong("a message");
	return 0;
}

static int run_environment(void)
{
	tuttiComm_t comm;
	int rank;

	if (tuttiCommInitEnv(&comm, NULL) || tuttiCommUserRank(comm, &rank) ||
	    plant_data(comm, rank) || plant_tag(comm, rank) || tuttiBarrier(comm, NULL) ||
	    tuttiCommDestroy(comm)) {
		fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
		return 1;
	}
	puts("right");
	return 0;
}

/* ---- many jobs through the relay -------------------------------------------------------------- */

/* Ids of equal contents on both ranks, a job each */
static tuttiUniqueId id_of(int round)
{
	struct tt_id id = { .from_root = true,
			    .port = ROOT_PORT,
			    .nports = 1,
			    .naddresses = 1,
			    .secret = "secret of wire.",
			    .addresses = { { .family = 4, .bytes = { 10, 79, 0, 1 } } } };
	tuttiUniqueId packed;

	memcpy(id.nonce, &round, sizeof(round));
	tt_id_pack(&id, &packed);
	return packed;
}

static int exchange(tuttiComm_t comm, int rank, int round)
{
	static uint8_t sent[MESSAGE], received[MESSAGE];
	tuttiMsg_t msg;
	int rc;

	for (int i = 0; i < MESSAGE; i++)
		sent[i] = (uint8_t)(i * 7 + rank + round);
	rc = tuttiMsgSend(sent, MESSAGE, !rank, 5, (uint64_t)round, comm);
	if (rc)
		return rc;
	rc = tuttiMsgRecv(received, MESSAGE, !rank, 5, -1, comm, &msg);
	for (int i = 0; i < MESSAGE && !rc; i++)
		if (received[i] != (uint8_t)(i * 7 + !rank + round) || msg.bytes != MESSAGE)
			wrong("a message");
	return rc;
}

static int sum(tuttiComm_t comm, int rank, int round)
{
	static int32_t mine[COUNT], all[COUNT];
	int rc;

	for (int i = 0; i < COUNT; i++)
		mine[i] = (rank + 1) * (i + round);
	rc = tuttiAllReduce(mine, all, COUNT, tuttiInt32, tuttiSum, comm, NULL);
	for (int i = 0; i < COUNT && !rc; i++)
		if (all[i] != 3 * (i + round))
			wrong("a sum");
	return rc;
}

/* 0 | 1 a failure, with a sentence of this rank */
static int run_round(int rank, int round)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t comm;
	int rc;

	config.timeout_ms = round ? 700 : 60000;
	rc = tuttiCommInitRankConfig(&comm, 2, id_of(round), rank, &config);
	if (!rc) {
		if (!(rc = sum(comm, rank, round)))
			rc = exchange(comm, rank, round);
		if (rc && (!*tuttiGetLastError(comm) || strstr(tuttiGetLastError(comm), FORGED)))
			wrong("the reason of a failed operation");
		if (rc)
			tuttiCommAbort(comm);
		else if ((rc = tuttiCommDestroy(comm)) && !*tuttiGetLastError(NULL))
			wrong("the reason of a failed tuttiCommDestroy");
	} else if (!*tuttiGetLastError(NULL) || strstr(tuttiGetLastError(NULL), FORGED)) {
		wrong("the reason of a failed join");
	}
	return rc != 0;
}

/* Rank 0 makes the plan. Round 0 is not altered. */
static struct wire_plan plan_of(int round, const char *kind, long bytes)
{
	struct wire_plan plan = { .port = ROOT_PORT + round % 2, .bit = -1 };
	uint64_t random = (uint64_t)round * 0x9e3779b97f4a7c15ull;

	bool forges = !strcmp(kind, "forge");
	int kinds = forges ? WIRE_FORGERIES : WIRE_KINDS - WIRE_FORGERIES;

	random ^= random >> 29;
	if (!round)
		plan.port = 0;
	else if (!strcmp(kind, "every"))
		plan = (struct wire_plan){ .port = ROOT_PORT, .bit = round - 1 };
	else if (!strcmp(kind, "some"))
		plan.bit = (long)(random % (uint64_t)(8 * bytes));
	else if (!strcmp(kind, "later"))
		plan.bit = 8 * 4096 + (long)(random % (uint64_t)(8 * bytes));
	else
		plan = (struct wire_plan){ .port = ROOT_PORT + round % 2,
					   .bit = -1,
					   .kind = 1 + round / 2 % kinds +
						   (forges ? 0 : WIRE_FORGERIES),
					   .from = round / (2 * kinds) % 2,
					   .after = (long)(random % (uint64_t)bytes) };
	return plan;
}

static void await(const atomic_int *value, int round)
{
	while (atomic_load(value) != round) {
		if (atomic_load(&state->over))
			exit(5);
		wire_pause();
	}
}

static void await_ranks(int rank, int round, const struct wire_plan *plan)
{
	if (rank == 0) {
		await(&state->ready[1], round);
		state->plan = *plan;
		atomic_store(&state->round, round);
	} else {
		atomic_store(&state->ready[1], round);
		await(&state->round, round);
	}
}

static int run_rounds(char **argv)
{
	int rank = atoi(argv[1]), first = atoi(argv[3]), last = atoi(argv[4]), failed = 0,
	    altered = 0, descriptors = 0;

	state = wire_map(argv[2]);
	for (int round = first; round <= last; round++) {
		struct wire_plan plan = plan_of(round, argv[6], atol(argv[5]));
		int rc;

		await_ranks(rank, round, &plan);
		rc = run_round(rank, round);
		if (rc && !round)
			wrong("a job that the relay did not touch");
		failed += rc;
		altered += atomic_load(&state->altered) == round;
		if (round == first)
			descriptors = count_descriptors();
	}
	if (count_descriptors() > descriptors)
		wrong("a descriptor is left");
	printf("rank %d: %d jobs, %d altered, %d failed\n", rank, last - first + 1, altered,
	       failed);
	return 0;
}

int main(int argc, char **argv)
{
	return argc == 7 ? run_rounds(argv) : run_environment();
}
