/*
 * nccl_client.h - shared declarations of tests/nccl/nccl_client: ranks, memory and expected values
 *
 * The client is written against nccl.h alone: NCCL_HEADER is our header, or NVIDIA's where that is
 * installed.
 */
#ifndef NCCL_CLIENT_H
#define NCCL_CLIENT_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include NCCL_HEADER

struct client_rank { /* a rank with its communicator, buffers and stream */
	ncclComm_t comm;
	int rank, nranks;
	cudaStream_t stream;
	void *graph;    /* of memory_captured */
	void *in, *out; /* [memory_room] bytes each, of the memory under test */
};
#define ROOM (1 << 16)
extern size_t memory_room; /* ROOM, unless main sets another size */

struct client_ranks { /* configuration of a case's ranks */
	int n;
	bool threads, joins_itself;
	/* CUDA; the fake CUDA driver, whose functions can be made to fail; host memory */
	bool cuda, fake, host;
	ncclUniqueId id;
};
/* Runs body as every rank; returns the number of ranks that failed, died or hung. expected_deaths:
 * ranks whose death is no failure. */
int ranks_run(struct client_ranks *how,
	      int (*body)(struct client_rank *client, const ncclUniqueId *id));
extern unsigned ranks_may_die; /* bit mask of ranks */
extern unsigned ranks_limit_s; /* time limit, after which a process is killed */
bool ranks_are_threads(void);

/* Memory of the kind under test (host or CUDA), and the stream that works on it. */
int memory_open(struct client_rank *client); /* once per rank: creates in, out, stream */
void memory_close(struct client_rank *client);
bool memory_is_cuda(void);
int memory_device(int ordinal);              /* sets CUDA's current device of this thread */
int memory_stream(cudaStream_t *ret_stream); /* one more stream; NULL with host memory */
void memory_stream_close(cudaStream_t stream);
/* makes stream then wait for the present work of first */
int memory_behind(cudaStream_t first, cudaStream_t then);
/* captures the stream's work to a graph, until: */
int memory_capture(struct client_rank *client);
int memory_captured(struct client_rank *client);
int memory_replay(struct client_rank *client);
int memory_write(struct client_rank *client, void *to, const void *from, size_t bytes);
/* after all work of the stream */
int memory_read(struct client_rank *client, void *to, const void *from, size_t bytes);

/* Elements. Values are small multiples of 1/4, which every type with fractions represents
 * exactly. */
size_t value_bytes(ncclDataType_t type);
void value_store(void *to, size_t index, ncclDataType_t type, double value);
bool value_is(const void *at, size_t index, ncclDataType_t type, double value);

/* Prints a condition that is false, with NCCL's last error, and returns from the rank. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "# %s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, \
				client->rank, #condition, ncclGetLastError(NULL));                 \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)
#define OK(call) EXPECT((call) == ncclSuccess)

/* Each rank contributes rank + 1; the sum proves that all ranks of comm took part. */
int adds_up(struct client_rank *client, ncclComm_t comm, cudaStream_t stream);
/* After all work of the stream: 0 if at[0..n-1] has these numbers */
int differ(struct client_rank *client, const int *at, int n, const int *want);
bool accepted(ncclResult_t result); /* ncclSuccess or ncclInProgress */
/* Polls until the communicator is no longer in progress, for about 50 s at most. */
ncclResult_t settled(ncclComm_t comm);

/* The cases. Every rank runs each case; returns 0 on success. */
int case_collectives(struct client_rank *client, const ncclUniqueId *id);
int case_groups(struct client_rank *client, const ncclUniqueId *id);
int case_split(struct client_rank *client, const ncclUniqueId *id);
int case_streams(struct client_rank *client, const ncclUniqueId *id);
int case_scaled(struct client_rank *client, const ncclUniqueId *id);
int case_one_thread(struct client_rank *client, const ncclUniqueId *id);
int case_nonblocking(struct client_rank *client, const ncclUniqueId *id);
int case_abort(struct client_rank *client, const ncclUniqueId *id);
int case_abort_join(struct client_rank *client, const ncclUniqueId *id);
int case_killed(struct client_rank *client, const ncclUniqueId *id);
int case_refused(struct client_rank *client, const ncclUniqueId *id);
int case_configs(struct client_rank *client, const ncclUniqueId *id);
int case_process_groups(struct client_rank *client, const ncclUniqueId *id);
int case_several(struct client_rank *client, const ncclUniqueId *id);
int case_roots(struct client_rank *client, const ncclUniqueId *id);
int case_nonblocking_groups(struct client_rank *client, const ncclUniqueId *id);
int case_forks(struct client_rank *client, const ncclUniqueId *id);
int case_orders(struct client_rank *client, const ncclUniqueId *id);
int case_in_place(struct client_rank *client, const ncclUniqueId *id);
int case_operations(struct client_rank *client, const ncclUniqueId *id);
int case_messages(struct client_rank *client, const ncclUniqueId *id);
int case_many_ranks(struct client_rank *client, const ncclUniqueId *id);
int case_devices(struct client_rank *client, const ncclUniqueId *id);
int case_again(struct client_rank *client, const ncclUniqueId *id);
int case_frameworks(struct client_rank *client, const ncclUniqueId *id);
int case_captured_groups(struct client_rank *client, const ncclUniqueId *id);
int case_leaves(struct client_rank *client, const ncclUniqueId *id);
int case_exits(struct client_rank *client, const ncclUniqueId *id);
int case_mismatches(struct client_rank *client, const ncclUniqueId *id);
int case_wrong_uses(struct client_rank *client, const ncclUniqueId *id);

#endif
