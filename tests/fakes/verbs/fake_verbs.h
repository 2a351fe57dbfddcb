/*
 * fake_verbs.h - a libibverbs.so.1 without an HCA: stricter than HCAs are, and able to fail on
 * request
 *
 * Loaded first by LD_LIBRARY_PATH. All queue pairs, queues and registrations of all processes lie
 * in one shared file (named by TUTTI_TEST_VERBS), under one lock. The process that posts a write
 * carries it out at once, into the peer's memory by process_vm_writev. So no thread is needed, and
 * a test gets any order of events by deferring completions. fake_shared.c maps the file,
 * fake_ports.c and fake_objects.c create and destroy objects, fake_wire.c carries out work
 * requests, fake_events.c delivers events.
 *
 * Checked strictly: states of queue pairs, keys (of this protection domain, and of memory that is
 * still registered), bounds and access rights, depths of all queues, missing receives (an HCA would
 * wait for them), freed memory that registered queues still use, objects freed in the wrong order.
 *
 * TUTTI_TEST_VERBS_HCAS=N: number of HCAs, 0 to 2; 1.
 * TUTTI_TEST_VERBS_MOOD: "reorder" returns completions of different queue pairs in random order;
 * "delay" defers them.
 * TUTTI_TEST_VERBS_FAULT=KIND@N: a fault at this process's Nth write (memory: Nth registration),
 * once; KIND is drop remote-access local-protection rnr flush port-down device-gone memory;
 * or much-memory@BYTES: every registration of at least that many bytes fails; no-dmabuf@BYTES: the
 * same of device memory, refused as by an HCA whose driver supports no dma-bufs.
 * A port that is down reports so and loses writes; TUTTI_TEST_VERBS_DOWN=1: all ports are down now;
 * 2: but they lose nothing.
 * TUTTI_TEST_VERBS_WIRES=0,1: the network of this process's first and of its second HCA; only HCAs
 * of one network reach each other; default: 0,0.
 * TUTTI_TEST_VERBS_IB=1: InfiniBand ports, with LIDs and two partitions; grh: ports that require
 * GIDs.
 * TUTTI_TEST_VERBS_FAIL=CALL:K:ERRNO: the K-th call of ibv_CALL in this process fails (poll_cq
 * returns -1); -K: each from the K-th on.
 * TUTTI_TEST_VERBS_FORK=old: registrations fail unless the process called ibv_fork_init.
 * TUTTI_TEST_VERBS_INLINE=BYTES: queue pairs that ask for more inline bytes are refused.
 * TUTTI_TEST_VERBS_SOFT=1: the HCAs have the names of emulated NICs.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <stdbool.h>
#include <sys/types.h>

#include "transports/verbs/verbs_abi.h"

#define MAX_QPS 4096
#define MAX_CQS 256
#define MAX_MRS 16384
#define MAX_RECVS 256
#define MAX_DEFERRED 4096
#define CQ_ENTRIES 32768
#define MAX_INLINE 220
#define MAX_DEPTH 4096

struct entry {
	struct tt_verbs_wc wc;
	uint32_t qp;
	uint64_t frees;
	bool send;
};

struct shared_qp {
	bool used;
	pid_t pid;
	uint32_t number, dest, context, pd, pieces;
	uint16_t lid, dlid;
	int state, wire;
	uint32_t send_depth, recv_depth, inline_max, send_cq, recv_cq;
	uint64_t posted, freed; /* work requests of the send queue */
	uint64_t recvs[MAX_RECVS], recv_head, recv_tail;
};

struct shared_cq {
	bool used, armed;
	pid_t pid;
	uint32_t channel, size, count, context;
	uint64_t cookie; /* the owner's struct tt_verbs_cq */
	struct entry entries[CQ_ENTRIES];
};

struct shared_mr {
	bool used;
	pid_t pid;
	uint32_t pd, key;
	int access;
	uint64_t start, bytes;
	/* device memory: its mapping in the owner's process, and the buffer of deferred writes (0:
	 * writes are not deferred) */
	uint64_t mapping, deferred;
};

/* a write to device memory, until the flush */
struct deferred_write {
	pid_t pid;
	uint32_t mr;
	uint64_t at, bytes;
};

struct fake_shared {
	pthread_mutex_t lock;
	/* last number given to a queue pair, key, channel or context */
	uint32_t numbers;
	struct shared_qp qp[MAX_QPS];
	struct shared_mr mr[MAX_MRS];
	struct deferred_write deferred_write[MAX_DEFERRED];
	uint32_t ndeferred;
	struct shared_cq cq[MAX_CQS];
};

struct cq {
	struct tt_verbs_cq base;
	uint32_t index;
};
struct qp {
	struct tt_verbs_qp base;
	uint32_t index;
};
struct mr {
	struct tt_verbs_mr base;
	uint32_t index;
};
struct fake_verbs_context {
	struct tt_verbs_context base;
	uint32_t number;
	int device_index;
};
struct channel {
	struct tt_verbs_channel base;
	uint32_t number;
};

#pragma GCC visibility push(hidden)
struct fake_shared *shared(void); /* protected by: */
void lock(void);
void unlock(void);
uint32_t new_number(void);

/* fake_ports.c: are the ports InfiniBand, do they require a GRH; the LID of a device in a
 * process */
bool infiniband(void);
bool wants_grh(void);
uint16_t lid_of(const struct tt_verbs_context *context);

/* fake_objects.c: for device memory, mapping and deferred are set */
struct tt_verbs_mr *add_mr(struct tt_verbs_pd *pd, uint64_t start, size_t bytes, int access,
			   uint64_t mapping, uint64_t deferred);

/* fake_device.c, under the lock: where the HCA reads, or writes, the bytes that a key has at that
 * address */
uint64_t read_at(const struct shared_mr *mr, uint64_t at);
uint64_t write_at(const struct shared_mr *mr, uint64_t at, uint64_t bytes);
void forget_device(const struct shared_mr *mr);

/* fake_wire.c */
int work_poll(struct tt_verbs_cq *cq, int n, struct tt_verbs_wc *wc);
int work_arm(struct tt_verbs_cq *cq, int solicited_only);
int work_send(struct tt_verbs_qp *qp, struct tt_verbs_send_wr *wr, struct tt_verbs_send_wr **bad);
int work_recv(struct tt_verbs_qp *qp, struct tt_verbs_recv_wr *wr, struct tt_verbs_recv_wr **bad);
void work_stop(struct shared_qp *qp); /* to ERR; flushes the queue */

/* fake_events.c: datagrams to a number, at which one descriptor may listen */
int listen_on(uint32_t number);
void notify(uint32_t number, uint64_t value);
bool receive_value(int fd, uint64_t *ret_value);
bool fault(const char *kind, uint64_t count);      /* at this count */
bool fault_from(const char *kind, uint64_t value); /* at this value and above */
bool mood(const char *word);
int wire_of(int device);
void cut_ports(void);
bool ports_are_down(bool lose);

/* fake_shared.c: the injected failure of this call, which is also set as errno, or 0 */
int refused(const char *call);

/* Kinds of objects that a caller must release; counted for tests
 * (tests/fakes/cuda/fake_counts.h). */
enum fake_verbs_object { A_LIST, A_CONTEXT, A_PD, AN_MR, A_CHANNEL, A_CQ, A_QP, OBJECTS };
void count_object(enum fake_verbs_object object, int n);
#pragma GCC visibility pop

#endif
