/*
 * nccl_client_memory.c - the memory under test: host memory, or with NCCL_CLIENT_CUDA=FILE memory
 * of the CUDA driver in FILE
 *
 * Called by nccl_client_ranks.c and the cases. FILE is libcuda.so.1 on a machine with a GPU, else
 * the fake driver.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/nccl/nccl_client.h"

size_t memory_room = ROOM;

static struct {
	int (*init)(unsigned flags);
	int (*device_get)(int *device, int ordinal);
	int (*ctx_retain)(void **ctx, int device);
	int (*ctx_set)(void *ctx);
	int (*stream_create)(cudaStream_t *stream, unsigned flags);
	int (*stream_synchronize)(cudaStream_t stream);
	int (*stream_destroy)(cudaStream_t stream);
	int (*event_create)(void **event, unsigned flags);
	int (*event_record)(void *event, cudaStream_t stream);
	int (*wait_event)(cudaStream_t stream, void *event, unsigned flags);
	int (*capture)(cudaStream_t stream, int mode);
	int (*captured)(cudaStream_t stream, void **graph);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*launch)(void *exec, cudaStream_t stream);
	int (*to_device)(uint64_t to, const void *from, size_t bytes, cudaStream_t stream);
	int (*to_host)(void *to, uint64_t from, size_t bytes, cudaStream_t stream);
} cu;
static const char *file;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	static const struct {
		void *to;
		const char *name;
	} wanted[] = {
		{ &cu.init, "cuInit" },
		{ &cu.device_get, "cuDeviceGet" },
		{ &cu.ctx_retain, "cuDevicePrimaryCtxRetain" },
		{ &cu.ctx_set, "cuCtxSetCurrent" },
		{ &cu.stream_create, "cuStreamCreate" },
		{ &cu.stream_synchronize, "cuStreamSynchronize" },
		{ &cu.stream_destroy, "cuStreamDestroy_v2" },
		{ &cu.event_create, "cuEventCreate" },
		{ &cu.event_record, "cuEventRecord" },
		{ &cu.wait_event, "cuStreamWaitEvent" },
		{ &cu.capture, "cuStreamBeginCapture_v2" },
		{ &cu.captured, "cuStreamEndCapture" },
		{ &cu.instantiate, "cuGraphInstantiateWithFlags" },
		{ &cu.launch, "cuGraphLaunch" },
		{ &cu.to_device, "cuMemcpyHtoDAsync_v2" },
		{ &cu.to_host, "cuMemcpyDtoHAsync_v2" },
	};
	void *driver;

	file = getenv("NCCL_CLIENT_CUDA");
	if (!file)
		return;
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* for ranks as threads */
	driver = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *found = driver ? dlsym(driver, wanted[i].name) : NULL;

		if (!found) {
			fprintf(stderr, "# %s: %s\n", file, dlerror());
			exit(98);
		}
		memcpy(wanted[i].to, &found, sizeof(found));
	}
}

int memory_stream(cudaStream_t *ret_stream)
{
	*ret_stream = NULL;
	return file ? cu.stream_create(ret_stream, 1) : 0;
}

void memory_stream_close(cudaStream_t stream)
{
	if (file && stream) {
		cu.stream_synchronize(stream);
		cu.stream_destroy(stream);
	}
}

int memory_device(int ordinal)
{
	void *ctx;
	int device;

	return cu.device_get(&device, ordinal) || cu.ctx_retain(&ctx, device) || cu.ctx_set(ctx);
}

int memory_open(struct client_rank *client)
{
	pthread_once(&once, load);
	if (file && (cu.init(0) || memory_device(0) || memory_stream(&client->stream)))
		return 1;
	return ncclMemAlloc(&client->in, memory_room) || ncclMemAlloc(&client->out, memory_room);
}

void memory_close(struct client_rank *client)
{
	memory_stream_close(client->stream);
	ncclMemFree(client->in);
	ncclMemFree(client->out);
}

int memory_behind(cudaStream_t first, cudaStream_t then)
{
	static __thread void *event; /* one event per thread, recorded anew at each use */

	return (!event && cu.event_create(&event, 2)) || cu.event_record(event, first) ||
	       cu.wait_event(then, event, 0);
}

int memory_capture(struct client_rank *client)
{
	return cu.capture(client->stream, 1);
}

int memory_captured(struct client_rank *client)
{
	void *graph;

	return cu.captured(client->stream, &graph) || cu.instantiate(&client->graph, graph, 0);
}

int memory_replay(struct client_rank *client)
{
	return cu.launch(client->graph, client->stream);
}

bool memory_is_cuda(void)
{
	return file != NULL;
}

int memory_write(struct client_rank *client, void *to, const void *from, size_t bytes)
{
	if (file)
		return cu.to_device((uintptr_t)to, from, bytes, client->stream) ||
		       cu.stream_synchronize(client->stream);
	memcpy(to, from, bytes);
	return 0;
}

int memory_read(struct client_rank *client, void *to, const void *from, size_t bytes)
{
	/* A copy to pageable memory that waits for its stream holds up the calls of all threads, also of a
	 * rank for which the stream waits. */
	if (file)
		return cu.stream_synchronize(client->stream) ||
		       cu.to_host(to, (uintptr_t)from, bytes, client->stream) ||
		       cu.stream_synchronize(client->stream);
	memcpy(to, from, bytes);
	return 0;
}
