/*
 * fake_cuda.h - a libcuda.so.1 without a GPU: what its files share
 *
 * For tests only: found by dlopen("libcuda.so.1") through LD_LIBRARY_PATH, or loaded by its path
 * first. It has the functions of gpu/cuda.h with the driver's meaning: device memory is a memfd a
 * piece (so that other processes can open it), a stream is a thread with an ordered queue, kernels
 * are the library's, compiled for the host and run one thread a block. It proves order, waiting,
 * errors and bits of Tutti's side, and nothing about a GPU.
 *
 * Where a GPU could bring calls to a standstill, so does the fake:
 *   streams of one priority share CUDA_DEVICE_MAX_CONNECTIONS connections (8), in which what waits
 *   for its own stream, or for a word, an event or another stream, holds up what is behind it
 *   a block of a kernel that waits for peers keeps its place on the device, of which there are 32
 *   a kernel's first launch, and freeing memory, wait for all that runs on the device
 *   the default stream, and copies without a stream, wait for streams that were made with flags 0
 *   what does more than put something on a stream fails beside a capture, and spoils it (fake_capture.c)
 *
 * What it is not: device memory can be read by the host; capture knows events only within one
 * graph, in which all nodes run one after the other.
 *
 * Environment   TUTTI_TEST_CUDA_DEVICES=N   devices, 1
 *               TUTTI_TEST_CUDA_FAIL=SYMBOL:K:CODE   the K-th call of that function returns CODE; one
 *               of those that CUDA's contexts do not survive, as 700, is what all calls return then
 *               TUTTI_TEST_CUDA_SLOW=SYMBOL:MS   each call of that function takes MS ms
 *               TUTTI_TEST_CUDA_SPOIL=K   of what the K-th copy to the host takes there one bit is
 *               wrong
 *               TUTTI_TEST_CUDA_NO=WORD   WORD is not there: dmabuf (the device has none), ordering
 *               (what cards write is seen after cuFlushGPUDirectRDMAWrites only), flush (nor can
 *               that be called), host (processors that touch cuMemAlloc's memory die; without
 *               kernels only)
 *               TUTTI_TEST_CUDA_DELAY_US=N   each node of a stream is preceded by 0..N us
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/cuda.h"

#define MAX_DEVICES 8                  /* as many as contexts in fake_driver.c */
#define MAX_BATCH 64
#define PLACES 32                      /* for blocks, on a device */

#define EXPORT __attribute__((visibility("default")))
/* Every function begins with it: the injected failure, or on. */
#define ENTER()							\
	do {							\
		int injected = fake_fault(__func__);	\
								\
		if (injected)					\
			return injected;			\
	} while (0)
int fake_fault(const char *symbol);
extern __thread bool fake_is_called;       /* by a stream, as its host function */
/* Nothing that was given to the context is done any more: its code, or 0. */
int fake_dead(void);

/* What is made, and must be given back: counted in fake_driver.c for tests (fake_counts.h). */
enum fake_object { A_PIECE, A_PAGE, A_REGISTERED, AN_OPENED, A_MAPPED, A_RESERVED, A_HANDLE, A_STREAM,
	     AN_EVENT, A_GRAPH, THINGS };
void fake_count(enum fake_object thing, int n);
/* The same in functions that need a current context, as the driver's do. */
#define ENTER_CONTEXT()							\
	do {								\
		ENTER();						\
		if (fake_device() < 0)				\
			return TT_CU_BAD_CONTEXT;			\
		if (fake_dead())					\
			return fake_dead();				\
	} while (0)
/* The same in functions that a capture forbids (fake_capture.c). */
#define ENTER_FREELY()								\
	do {									\
		ENTER_CONTEXT();						\
		if (fake_forbidden())					\
			return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */	\
	} while (0)
bool fake_forbidden(void);

/* One lock for everything but the running of nodes; `changed` is told whenever something is. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;

/* fake_driver.c: is that word in TUTTI_TEST_CUDA_NO? */
bool fake_lacks(const char *word);

/* fake_driver.c: the calling thread's device, -1 without a context */
int fake_device(void);
int fake_devices(void);

/* fake_memory.c: where streams find memory that processors must not touch */
void *fake_shadow(const void *p);
/* fake_virtual.c's mappings are device memory, too. take: false: there is none at that address */
void fake_add_virtual(char *at, size_t bytes, int fd, size_t offset);
bool fake_take_virtual(char *at);
/* the file in which a range of device memory lies, if that is of one piece */
bool fake_find_device(tt_cuptr at, size_t bytes, int *ret_fd, uint64_t *ret_offset);

/* What a stream does, one after the other. */
enum fake_kind { COPY, SET, HOST_FUNC, RECORD, WAIT_EVENT, WAIT_STREAM, BATCH, LAUNCH };
struct fake_node {
	struct fake_node *next;
	enum fake_kind kind;
	uint64_t ticket;                       /* in its stream's connection */
	void *to;
	const void *from;
	size_t bytes;
	bool spoilt;                           /* COPY: a bit of it is wrong */
	unsigned char value;
	void (*fn)(void *arg);
	void *arg;
	struct event *event;
	struct fake_stream *other;                  /* WAIT_STREAM */
	uint64_t number;                       /* of the record that is made, or waited for */
	unsigned nops;
	struct tt_cumemop op[MAX_BATCH];
	const struct fake_kernel *kernel;
	int device;
	unsigned blocks;
	_Alignas(16) char params[1024];        /* a struct */
};

struct event {
	uint64_t recorded, done;               /* numbers of records: given, reached */
	double at_ms;
	struct graph *graph;                   /* of the capture in which it was recorded last */
};

/* fake_event.c: a record has been reached; is awaited */
void fake_reach(struct event *e, uint64_t number);
void fake_await(struct event *e, uint64_t number);

struct graph {
	struct fake_node *first, **last;
	pthread_t thread;                      /* that captures it */
	int mode;
	bool spoilt;                           /* by a call that it forbids */
};

/* Never freed, since others may still wait for what it was given. */
struct fake_stream {
	struct fake_stream *next;
	pthread_t thread;
	struct fake_node *first, **last;
	uint64_t given, done;                  /* nodes */
	struct connection *connection;
	int device;
	bool blocking;                         /* it and the default stream wait for each other */
	bool stop;
	struct graph *graph;                   /* capturing */
};

extern struct fake_stream *fake_all;    /* under the lock */

/* fake_stream.c: adds a copy of the node to the stream, or to the graph that it is being captured to */
int fake_add(tt_custream stream, const struct fake_node *node);
void fake_run(const struct fake_node *node);
struct fake_stream *fake_stream(tt_custream stream);
/* Waits for the stream; for all that runs on the calling thread's device. */
int fake_settle(struct fake_stream *s);
void fake_idle(void);

/* Kernels, compiled for the host: the library's (fake_kernels.c) and the trainer's (fake_train_kernels.c). A
 * kernel has one parameter, a struct. */
struct fake_kernel {
	const char *name;
	void (*run)(const void *params);       /* one block */
	size_t bytes;
	bool (*waits)(const void *params);     /* for peers' kernels; NULL: never */
};
extern const struct fake_kernel fake_kernels[], fake_train_kernels[];
extern __thread unsigned fake_block, fake_blocks;

#endif
