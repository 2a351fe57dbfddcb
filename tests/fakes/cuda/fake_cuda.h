/*
 * fake_cuda.h - a libcuda.so.1 without a GPU: declarations that its files share
 *
 * For tests only: found by dlopen("libcuda.so.1") through LD_LIBRARY_PATH, or loaded first by its
 * path. The library has the functions of gpu/cuda.h with the driver's meaning: an allocation of
 * device memory is a memfd (so that other processes can open it), a stream is a thread with an
 * ordered queue, kernels are the library's, compiled for the host and run with one thread per
 * block. The fake proves order, waiting, errors and bits of Tutti's side, and nothing about a GPU.
 *
 * The fake blocks calls wherever a GPU blocks them (the first three seen on an H200, driver 580.159):
 *   streams of all priorities share CUDA_DEVICE_MAX_CONNECTIONS connections (8), and if that is 1, one
 *   for copies in each direction (with 8 and 32 no copy of 48 streams was held up); an operation
 *   that waits for its own stream, a memory word, an event or another stream delays every later
 *   operation of its connection; the record of an event does not (programs that
 *   set one connection record an event behind each collective, and compute beside it)
 *   a copy from the device to pageable memory, and a large one to the device, wait for their stream, and
 *   all calls of other threads but queries of streams for them
 *   the default stream's copy of 64 KiB or more of pageable memory to the device returns before the
 *   bytes are there
 *   a block of a kernel that waits for peers occupies its threads on the emptiest of 16 multiprocessors, each
 *   with room for 512
 *   the first launch of a kernel, and freeing memory, wait for all work on the device
 *   the default stream, and copies without a stream, wait for streams created with flags 0
 *   during a capture, calls other than enqueueing fail and invalidate the capture (fake_capture.c)
 * Host memory is accessed by stream memory operations and by the words of kernels only where it is pinned or
 * registered; no memory is registered twice, or unmapped while it is registered.
 *
 * Differences to CUDA: the host can read device memory; a capture knows events within one graph
 * only, and all nodes of a graph run one after another.
 *
 * Environment   TUTTI_TEST_CUDA_DEVICES=N   number of devices, 1
 *               CUDA_VISIBLE_DEVICES=I,J   the process sees these devices, as 0 and 1
 *               TUTTI_TEST_CUDA_FAIL=SYMBOL:K:CODE   the K-th call of that function returns CODE
 *               up to 3 ms late; a CODE that CUDA contexts do not survive, such as 700, is then
 *               returned by all calls
 *               TUTTI_TEST_CUDA_SLOW=SYMBOL:MS   each call of that function takes MS ms
 *               TUTTI_TEST_CUDA_LOADS=N   the first N loads of modules succeed at the same time only
 *               TUTTI_TEST_CUDA_SPOIL=K   the K-th copy to the host has one wrong bit
 *               TUTTI_TEST_CUDA_PINNED=1   copies on streams fail that use pageable memory
 *               TUTTI_TEST_CUDA_NO=WORD   the feature WORD is missing: dmabuf (of the device),
 *               ordering (an HCA's writes are visible only after cuFlushGPUDirectRDMAWrites), flush
 *               (nor can that function be called), host (host access to cuMemAlloc's memory is
 *               fatal; only without kernels), age (the driver is of CUDA 11.8 and loads no kernels),
 *               code (the device is later than all machine code), remote (streams do not write the
 *               memory of other devices and processes), graphs (those of a device that wait for words
 *               run one after the other, which CUDA does not rule out)
 *               TUTTI_TEST_CUDA_DELAY_US=N   a delay of 0..N us precedes each node of a stream
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/cuda.h"

#define MAX_DEVICES 8 /* as many as contexts in fake_driver.c */
#define MAX_BATCH 64
#define SMS 16         /* multiprocessors of a device */
#define SM_THREADS 512 /* for which one has registers */

#define EXPORT __attribute__((visibility("default")))
/* First statement of every function: returns the injected failure, if any. */
#define ENTER()                                      \
	do {                                         \
		int injected = fake_fault(__func__); \
                                                     \
		if (injected)                        \
			return injected;             \
	} while (0)
int fake_fault(const char *symbol);
extern __thread bool fake_is_called; /* by a stream, as its host function */
/* The code of a dead context, which runs no further work; 0: the context is alive. */
int fake_dead(void);

/* Kinds of objects that a caller must release; fake_driver.c counts them for tests
 * (fake_counts.h). */
enum fake_object {
	AN_ALLOCATION,
	A_PINNED,
	A_REGISTERED,
	AN_OPENED,
	A_MAPPED,
	A_RESERVED,
	A_HANDLE,
	A_STREAM,
	AN_EVENT,
	A_GRAPH,
	OBJECTS
};
void fake_count(enum fake_object object, int n);
/* ENTER in functions that need a current context, as the driver's do. */
#define ENTER_CONTEXT()              \
	do {                         \
		ENTER_QUERY();       \
		fake_await_copies(); \
	} while (0)
/* ENTER_CONTEXT in a query of a stream, which copies of pageable memory do not hold up */
#define ENTER_QUERY()                             \
	do {                                      \
		ENTER();                          \
		if (fake_device() < 0)            \
			return TT_CU_BAD_CONTEXT; \
		if (fake_dead())                  \
			return fake_dead();       \
	} while (0)
/* ENTER_CONTEXT in functions that a capture forbids (fake_capture.c). */
#define ENTER_FREELY()                                                          \
	do {                                                                    \
		ENTER_CONTEXT();                                                \
		if (fake_forbidden())                                           \
			return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */ \
	} while (0)
bool fake_forbidden(void);
/* fake_work.c: waits for copies of pageable memory by other threads */
void fake_await_copies(void);

/* One lock for everything but the execution of nodes; fake_changed is broadcast at every change. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;

/* fake_driver.c: does TUTTI_TEST_CUDA_NO contain word? */
bool fake_lacks(const char *word);

/* fake_driver.c: the calling thread's device, -1 without a context */
int fake_device(void);
int fake_devices(void);

/* fake_memory.c: address of device memory for streams where host access is fatal */
void *fake_shadow(const void *p);
/* fake_memory.c: is it host memory that is neither pinned nor registered? */
bool fake_is_pageable(const void *p);
/* fake_memory.c: is it memory of another device, or of another process? */
bool fake_is_remote(const void *at);
/* fake_memory.c: the bounds of the memory that a kernel can access at that address: device, pinned,
 * registered or mapped. false: none */
bool fake_find_range(const void *at, uintptr_t *ret_from, uintptr_t *ret_to);
/* fake_virtual.c's mappings are device memory, too. fake_take_virtual false: no mapping begins at
 * that address */
void fake_add_virtual(char *at, size_t bytes, int fd, size_t offset);
bool fake_take_virtual(char *at);
/* the file that backs a range of device memory, if one allocation has the whole range */
bool fake_find_device(tt_cuptr at, size_t bytes, int *ret_fd, uint64_t *ret_offset);

/* A stream executes nodes in order. */
enum fake_kind { COPY, SET, HOST_FUNC, RECORD, WAIT_EVENT, WAIT_STREAM, BATCH, LAUNCH };
struct fake_node {
	struct fake_node *next;
	enum fake_kind kind;
	uint64_t ticket; /* ticket order in its stream's connection */
	void *to;
	const void *from;
	size_t bytes;
	bool spoiled; /* COPY: one bit is to be wrong */
	bool owned;   /* COPY: `from` is freed */
	bool back;    /* COPY: to the host */
	unsigned char value;
	void (*fn)(void *arg);
	void *arg;
	struct fake_record *record; /* that is made, or awaited */
	struct fake_stream *other;  /* WAIT_STREAM */
	uint64_t number;            /* of its node that is awaited */
	unsigned nops;
	struct tt_cumemop op[MAX_BATCH];
	const struct fake_kernel *kernel;
	int device;
	unsigned blocks, threads;
	_Alignas(16) char params[1024]; /* a struct */
};

/* One record of an event. A wait concerns the newest record at the time of its call,
 * also if the event is recorded again before the stream comes to the wait. */
struct fake_record {
	bool done;
	double at_ms;
	int users; /* the event, and nodes of streams that have not run */
};
struct event {
	struct fake_record *newest; /* NULL: never recorded */
	struct graph *graph;        /* of the capture that recorded the event last */
};

/* fake_event.c: a stream completes a record; waits for a record, NULL for none, and leaves it */
void fake_reach(struct fake_record *r);
void fake_await_record(struct fake_record *r);

struct graph {
	struct fake_node *first, **last;
	pthread_t thread; /* the capturing thread */
	int mode;
	bool spoiled; /* by a call that the capture forbids */
};

/* Never freed, since other streams may still wait for its nodes. */
struct fake_stream {
	struct fake_stream *next;
	pthread_t thread;
	struct fake_node *first, **last;
	uint64_t given, done; /* numbers of nodes */
	struct connection *connection, *to_device, *to_host;
	int device;
	bool blocking; /* synchronizes with the default stream */
	bool stop;
	struct graph *graph; /* the graph being captured, or NULL */
};

extern struct fake_stream *fake_all; /* under the lock */

/* fake_stream.c: adds a copy of the node to the stream, or to the graph that the stream is captured
 * to */
int fake_add(tt_custream stream, const struct fake_node *node);
/* Puts a wait for all work of the other stream on the stream. */
int fake_add_behind(struct fake_stream *s, struct fake_stream *other);
void fake_run(const struct fake_node *node);
struct fake_stream *fake_stream(tt_custream stream);
/* Waits for the stream; for all work on the calling thread's device. */
int fake_settle(struct fake_stream *s);
void fake_idle(void);

/* Kernels compiled for the host: the library's (fake_kernels.c) and the trainer's
 * (fake_train_kernels.c). A kernel has one parameter, a struct. */
struct fake_kernel {
	const char *name;
	void (*run)(const void *params); /* runs one block */
	size_t bytes;
	bool (*waits)(const void *params); /* waits for peers' kernels; NULL: never */
};
extern const struct fake_kernel fake_kernels[], fake_train_kernels[];
/* of the running kernel: the block's number, the blocks, the threads of each */
extern __thread unsigned fake_block, fake_blocks, fake_threads;

#endif
