/*
 * nccl_train.c - a program that uses libnccl.so.2 as PyTorch does: trains a small model by DDP, FSDP2 and tensor parallel,
 * and compares parameters and losses with those of one device, bit by bit
 *
 * Run by check_nccl.sh on the fake CUDA driver and by check_ptx.sh on nvcc's kernels; NCCL_CLIENT_CUDA names the driver. PyTorch
 * itself cannot train there: its kernels are machine code of NVIDIA's GPUs. All computing is done by the trainer's kernels, on
 * CUDA streams. Prints TAP.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/nccl/nccl_train.h"
#include "trainer/base/fail.h"

static const struct train_way ways[] = {
	{ "ddp", "DDP, 2 ranks", false, 2, 1 },
	{ "ddp", "DDP, 4 ranks", false, 4, 1 },
	{ "fsdp", "FSDP2, 2 ranks", true, 2, 1 },
	{ "fsdp", "FSDP2, 4 ranks", true, 4, 1 },
	{ "tensor", "tensor parallel, 2 ranks", false, 1, 2 },
	{ "mesh", "DDP of tensor parallel, 2 x 2 ranks", false, 2, 2 },
	{ "mesh", "FSDP2 of tensor parallel, 2 x 2 ranks", true, 2, 2 },
};
static const struct train_way *way, whole = { "one", "one device", false, 1, 1 };

/* The mesh's groups, as init_device_mesh splits them off; ranks of a row come one after the other. */
static int split(struct training *t)
{
	struct client_rank *client = t->client;
	int row = client->rank / way->tensor, column = client->rank % way->tensor;

	if (way->data > 1)
		OK(ncclCommSplit(client->comm, column, client->rank, &t->data, NULL));
	if (way->tensor > 1)
		OK(ncclCommSplit(client->comm, row, client->rank, &t->tensor, NULL));
	t->rank = row;
	t->first = column;
	t->parts = t->shares = 1;
	return 0;
}

/* The loss falls, and is that of the model in one piece but for rounding. */
static int plausible(struct client_rank *client, const struct training *one,
		     const struct training *plain)
{
	const float *a = one->host_losses, *b = plain->host_losses;

	EXPECT(a[STEPS - 1] < 0.95f * a[0]);
	for (int i = 0; i < STEPS; i++)
		EXPECT(fabsf(a[i] / (float)way->data - b[i]) <= 1e-5f * b[i]);
	return 0;
}

static int equal(struct client_rank *client, const struct training *t, const struct training *one)
{
	for (int i = 0; i < LAYERS; i++)
		EXPECT(!memcmp(t->host_parameters[0][i], one->host_parameters[t->first][i],
			       layer_count(&t->layer[0][i]) * sizeof(float)));
	EXPECT(!memcmp(t->host_losses, one->host_losses, sizeof(t->host_losses)));
	return 0;
}

static int trains(struct client_rank *client, const ncclUniqueId *id)
{
	struct training t = { .client = client, .way = way };
	struct training one = {
		.client = client, .way = way, .shares = way->data, .parts = way->tensor
	};
	struct training plain = { .client = client, .way = &whole, .shares = 1, .parts = 1 };
	struct training *all[] = { &t, &one, &plain };

	EXPECT(!train_device_find("cuda")->select("cuda", client->rank));
	OK(ncclCommInitRank(&client->comm, client->nranks, *id, client->rank));
	EXPECT(!split(&t));
	for (int i = 0; i < 3; i++)
		EXPECT(!training_open(all[i]) && !training_run(all[i]));
	EXPECT(!equal(client, &t, &one) && !plausible(client, &one, &plain));
	for (int i = 0; i < 3; i++)
		training_close(all[i]);
	OK(t.data ? ncclCommDestroy(t.data) : ncclSuccess);
	OK(t.tensor ? ncclCommDestroy(t.tensor) : ncclSuccess);
	OK(ncclCommDestroy(client->comm));
	client->comm = NULL;
	return 0;
}

int main(int argc, char **argv)
{
	int n = 0, bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct client_ranks how = { .n = ways[i].data * ways[i].tensor,
					    .joins_itself = true };
		int failed;

		way = &ways[i];
		if (argc > 1 && strcmp(argv[1], way->name))
			continue;
		failed = ranks_run(&how, trains);
		bad += failed != 0;
		printf("%s %d - %s: parameters and losses of one device\n",
		       failed ? "not ok" : "ok", ++n, way->claim);
	}
	printf("1..%d\n", n);
	return bad != 0;
}
