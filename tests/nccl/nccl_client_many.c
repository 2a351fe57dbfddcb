/*
 * nccl_client_many.c - cases with several ranks in one thread, on one device and on several
 *
 * Called by nccl_client.c.
 */
#include <stdlib.h>

#include "tests/nccl/nccl_client.h"

enum { RANKS = 4 };

/* Sends to the right neighbor among ranks of one thread, and a collective of all ranks. */
static int ring_of_one_thread(struct client_rank *client, ncclComm_t *comms, struct client_rank *own)
{
	int *x = client->in, *y = client->out;

	for (int r = 0; r < RANKS; r++)
		EXPECT(!memory_write(client, x + 32 * r, &(int){ r + 1 }, sizeof(int)));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++) {
		OK(ncclSend(x + 32 * r, 1, ncclInt, (r + 1) % RANKS, comms[r], own[r].stream));
		OK(ncclRecv(y + 32 * r, 1, ncclInt, (r + RANKS - 1) % RANKS, comms[r],
			    own[r].stream));
	}
	OK(ncclGroupEnd());
	for (int r = 0; r < RANKS; r++)
		EXPECT(!differ(&own[r], y + 32 * r, 1, &(int){ (r + RANKS - 1) % RANKS + 1 }));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclAllGather(x + 32 * r, y + 32 * r, 1, ncclInt, comms[r], own[r].stream));
	OK(ncclGroupEnd());
	for (int r = 0; r < RANKS; r++)
		EXPECT(!differ(&own[r], y + 32 * r, RANKS, (int[]){ 1, 2, 3, 4 }));
	return 0;
}

/* Destroys one communicator after another without finalizing, as the shortest programs do. */
static int destroy_all(struct client_rank *client, ncclComm_t *comms, bool group)
{
	if (group)
		OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclCommDestroy(comms[r]));
	if (group)
		OK(ncclGroupEnd());
	return 0;
}

static int split_all(struct client_rank *client, ncclComm_t *comms, struct client_rank *own)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t halves[RANKS], behind[RANKS];
	int rank;

	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclCommSplit(comms[r], r == 3 ? NCCL_SPLIT_NOCOLOR : 0, -r, &halves[r], NULL));
	OK(ncclGroupEnd());
	EXPECT(halves[3] == NULL);
	for (int r = 0; r < 3; r++) {
		OK(ncclCommUserRank(halves[r], &rank));
		EXPECT(rank == 2 - r);
	}
	EXPECT(!destroy_all(client, halves, true));      /* NULL is accepted, too */
	config.blocking = 0;                           /* unlike the parent */
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		EXPECT(accepted(ncclCommSplit(comms[r], 0, r, &behind[r], &config)));
	EXPECT(accepted(ncclGroupEnd()));
	for (int r = 0; r < RANKS; r++)
		EXPECT(settled(behind[r]) == ncclSuccess && settled(comms[r]) == ncclSuccess);
	EXPECT(!ring_of_one_thread(client, behind, own));
	return destroy_all(client, behind, false);
}

int case_many_ranks(struct client_rank *client, const ncclUniqueId *id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct client_rank own[RANKS] = { { .comm = NULL } };
	ncclComm_t comms[RANKS];
	ncclUniqueId other;

	for (int r = 0; r < RANKS; r++)
		EXPECT(!memory_stream(&own[r].stream));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		OK(ncclCommInitRank(&comms[r], RANKS, *id, r));
	OK(ncclGroupEnd());
	EXPECT(!ring_of_one_thread(client, comms, own));
	EXPECT(!split_all(client, comms, own));
	EXPECT(!ring_of_one_thread(client, comms, own));
	EXPECT(!destroy_all(client, comms, false));
	config.blocking = 0;
	OK(ncclGetUniqueId(&other));
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++)
		EXPECT(accepted(ncclCommInitRankConfig(&comms[r], RANKS, other, r, &config)));
	EXPECT(accepted(ncclGroupEnd()));
	for (int r = 0; r < RANKS; r++)
		EXPECT(settled(comms[r]) == ncclSuccess);
	EXPECT(!ring_of_one_thread(client, comms, own));
	EXPECT(!destroy_all(client, comms, true));
	for (int r = 0; r < RANKS; r++)
		memory_stream_close(own[r].stream);
	return 0;
}

/* ---- one thread, many devices ---------------------------------------------------------------- */

enum { DEVICES = 3 };

/* Each rank's memory and stream belong to its device, independent of the current device at the
 * call. */
static int add_on_devices(struct client_rank *client, ncclComm_t *comms, struct client_rank *own, const int *device)
{
	int got;

	for (int r = 0; r < DEVICES; r++) {
		EXPECT(!ncclCommCuDevice(comms[r], &got) && got == device[r]);
		EXPECT(!memory_write(&own[device[r]], own[device[r]].in, &(int){ r + 1 },
				     sizeof(int)));
	}
	OK(ncclGroupStart());
	for (int r = 0; r < DEVICES; r++)
		OK(ncclAllReduce(own[device[r]].in, own[device[r]].out, 1, ncclInt, ncclSum,
				 comms[r], own[device[r]].stream));
	OK(ncclGroupEnd());
	for (int r = 0; r < DEVICES; r++)
		EXPECT(!differ(&own[device[r]], own[device[r]].out, 1,
			       &(int){ DEVICES * (DEVICES + 1) / 2 }));
	return 0;
}

/* A split uses its parent's device. */
static int split_on_devices(struct client_rank *client, ncclComm_t *comms, struct client_rank *own,
			    const int *device)
{
	ncclComm_t children[DEVICES];

	OK(ncclGroupStart());
	for (int r = 0; r < DEVICES; r++)
		OK(ncclCommSplit(comms[r], 0, r, &children[r], NULL));
	OK(ncclGroupEnd());
	EXPECT(!add_on_devices(client, children, own, device));
	for (int r = 0; r < DEVICES; r++)
		OK(ncclCommDestroy(children[r]));
	return 0;
}

int case_devices(struct client_rank *client, const ncclUniqueId *id)
{
	static const int upwards[DEVICES] = { 0, 1, 2 }, mixed[DEVICES] = { 2, 0, 1 };
	struct client_rank own[DEVICES] = { { .rank = 0 } };
	ncclComm_t comms[DEVICES];

	setenv("TUTTI_TEST_CUDA_DEVICES", "3", 1);
	for (int d = 0; d < DEVICES; d++) {
		EXPECT(!memory_device(d));
		EXPECT(!memory_stream(&own[d].stream));
		OK(ncclMemAlloc(&own[d].in, 64));
		OK(ncclMemAlloc(&own[d].out, 64));
	}
	for (int i = 0; i < 3; i++) {
		const int *device = i == 1 ? mixed : upwards;

		EXPECT(!memory_device(0));
		if (i < 2)
			OK(ncclCommInitAll(comms, DEVICES, i ? mixed : NULL));
		else
			OK(ncclGroupStart());
		for (int r = 0; r < DEVICES && i == 2; r++) {
			EXPECT(!memory_device(r));
			OK(ncclCommInitRank(&comms[r], DEVICES, *id, r));
		}
		if (i == 2)
			OK(ncclGroupEnd());
		EXPECT(!add_on_devices(client, comms, own, device));
		EXPECT(!split_on_devices(client, comms, own, device));
		for (int r = 0; r < DEVICES; r++)
			OK(ncclCommDestroy(comms[r]));
	}
	for (int d = 0; d < DEVICES; d++) {
		OK(ncclMemFree(own[d].in));
		OK(ncclMemFree(own[d].out));
		memory_stream_close(own[d].stream);
	}
	return memory_device(0);
}
