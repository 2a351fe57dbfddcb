/*
 * fake_verbs.h - a libibverbs.so.1 without a card: strict where cards are lenient, and able to fail
 * when told to
 *
 * Put in front by LD_LIBRARY_PATH. All queue pairs, queues and registrations of all processes lie
 * in one file that they share (TUTTI_TEST_VERBS names it), under one lock; whoever posts a write
 * carries it out at once, into the other's memory by process_vm_writev. So there is no thread, and
 * every order of things can be had by holding completions back. fake_shared.c has the file, fake_ports.c
 * and fake_objects.c make and free what there is, fake_wire.c carries out, fake_events.c tells.
 *
 * Strict: states of queue pairs, keys (of this protection domain, and of memory that is still
 * registered), bounds and access rights, depths of all queues, receives that are missing (a card
 * would wait for them), memory handed back while registered queues still use it, objects freed in
 * the wrong order. TUTTI_TEST_VERBS_MOOD: "reorder" gives completions of different queue pairs in
 * random order; "delay" holds them back. TUTTI_TEST_VERBS_FAULT=KIND@N: on this process's Nth write
 * (memory: registration), once:
 *   drop remote-access local-protection rnr flush port-down device-gone memory
 * or much-memory@BYTES: whenever so much is to be registered at once; no-dmabuf@BYTES: the same of
 * device memory, refused as by a card whose driver takes none.
 * A port that is down says so and loses what is written; TUTTI_TEST_VERBS_DOWN=1: they are,
 * now; 2: but lose nothing.
 * TUTTI_TEST_VERBS_WIRES=0,1: the first card of this process hangs on wire 0, the second on wire 1;
 * unless set both hang on wire 0. TUTTI_TEST_VERBS_IB=1: they are InfiniBand's, with LIDs and two
 * partitions; grh: and want GIDs.
 * TUTTI_TEST_VERBS_FAIL=CALL:K:ERRNO: the K-th call of ibv_CALL in this process is refused (of
 * poll_cq: says -1).
 * TUTTI_TEST_VERBS_FORK=old: registers nothing unless forks were prepared for.
 * TUTTI_TEST_VERBS_INLINE=BYTES: refuses queue pairs that want more inline.
 * TUTTI_TEST_VERBS_SOFT=1: the cards have the names of emulated ones.
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
#define MAX_LANDINGS 4096
#define CQ_ENTRIES 32768
#define MAX_INLINE 220
#define MAX_DEPTH 4096

struct entry { struct tt_verbs_wc wc; uint32_t qp; uint64_t frees; bool send; };

struct shared_qp {
	bool used;
	pid_t pid;
	uint32_t number, dest, context, pd, pieces;
	uint16_t lid, dlid;
	int state, wire;
	uint32_t send_depth, recv_depth, inline_max, send_cq, recv_cq;
	uint64_t posted, freed;                /* work requests of the send queue */
	uint64_t recvs[MAX_RECVS], recv_head, recv_tail;
};

struct shared_cq {
	bool used, armed;
	pid_t pid;
	uint32_t channel, size, count, context;
	uint64_t cookie;                       /* the owner's struct tt_verbs_cq */
	struct entry entries[CQ_ENTRIES];
};

struct shared_mr {
	bool used;
	pid_t pid;
	uint32_t pd, key;
	int access;
	uint64_t start, bytes;
	/* device memory: where its process has it, and what is written there until the flush (0: it
	 * is not held) */
	uint64_t really, held;
};

struct landing { pid_t pid; uint32_t mr; uint64_t at, bytes; };        /* held */

struct fake_shared {
	pthread_mutex_t lock;
	uint32_t numbers;                      /* of queue pairs, keys, channels, contexts */
	struct shared_qp qp[MAX_QPS];
	struct shared_mr mr[MAX_MRS];
	struct landing landing[MAX_LANDINGS];
	uint32_t nlandings;
	struct shared_cq cq[MAX_CQS];
};

struct cq { struct tt_verbs_cq base; uint32_t index; };
struct qp { struct tt_verbs_qp base; uint32_t index; };
struct mr { struct tt_verbs_mr base; uint32_t index; };
struct fake_verbs_context { struct tt_verbs_context base; uint32_t number; int card; };
struct channel { struct tt_verbs_channel base; uint32_t number; };

#pragma GCC visibility push(hidden)
struct fake_shared *shared(void);               /* locked by: */
void lock(void);
void unlock(void);
uint32_t new_number(void);

/* fake_ports.c: are they InfiniBand's, and do they want GIDs; one of a card in a process */
bool infiniband(void);
bool wants_grh(void);
uint16_t lid_of(const struct tt_verbs_context *context);

/* fake_objects.c: device memory has a place of its own, really, and may have held */
struct tt_verbs_mr *add_mr(struct tt_verbs_pd *pd, uint64_t start, size_t bytes, int access,
			uint64_t really, uint64_t held);

/* fake_device.c, under the lock. Where a card finds the bytes that a key has at that address, to read
 * them; to write them */
uint64_t read_at(const struct shared_mr *mr, uint64_t at);
uint64_t write_at(const struct shared_mr *mr, uint64_t at, uint64_t bytes);
void forget_device(const struct shared_mr *mr);

/* fake_wire.c */
int work_poll(struct tt_verbs_cq *cq, int n, struct tt_verbs_wc *wc);
int work_arm(struct tt_verbs_cq *cq, int solicited_only);
int work_send(struct tt_verbs_qp *qp, struct tt_verbs_send_wr *wr, struct tt_verbs_send_wr **bad);
int work_recv(struct tt_verbs_qp *qp, struct tt_verbs_recv_wr *wr, struct tt_verbs_recv_wr **bad);
void work_stop(struct shared_qp *qp);      /* to ERR; what is queued is flushed */

/* fake_events.c: datagrams to a number that someone may listen on */
int listen_on(uint32_t number);
void tell(uint32_t number, uint64_t what);
bool hear(int fd, uint64_t *ret_what);
bool fault(const char *kind, uint64_t count);          /* this time */
bool fault_from(const char *kind, uint64_t value);     /* whenever it is that much */
bool mood(const char *word);
int wire_of(int card);
void cut_ports(void);
bool ports_are_down(bool lose);

/* fake_shared.c: the number with which this call is refused, which errno gets, or 0 */
int refused(const char *call);

/* What is made, and must be given back: counted for tests (tests/fakes/cuda/fake_counts.h). */
enum fake_verbs_object { A_LIST, A_CONTEXT, A_PD, AN_MR, A_CHANNEL, A_CQ, A_QP, THINGS };
void count_thing(enum fake_verbs_object thing, int n);
#pragma GCC visibility pop

#endif
