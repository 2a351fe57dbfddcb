/*
 * verbs_abi.h - the part of libibverbs' binary interface that Tutti uses, declared independently
 *
 * With these declarations a build needs no RDMA headers, and one binary runs on hosts with and
 * without the library (verbs_table.c loads it). Names are Tutti's; sizes, offsets and numbers are
 * libibverbs' (IBVERBS_1.1). tests/verbs/test_verbs.c compares them with the system's header where
 * one is installed. The fake library of the tests implements the same declarations.
 */
#ifndef TT_VERBS_ABI_H
#define TT_VERBS_ABI_H

#include <pthread.h>
#include <stdint.h>

enum { TT_VERBS_LINK_INFINIBAND = 1, TT_VERBS_LINK_ETHERNET = 2 };
enum { TT_VERBS_PORT_ACTIVE = 4 };
enum { TT_VERBS_FORK_DISABLED, TT_VERBS_FORK_ENABLED, TT_VERBS_FORK_UNNEEDED };
enum { TT_VERBS_GRH_REQUIRED = 1 }; /* flag of a port */
enum { TT_VERBS_TRANSPORT = 0 };    /* transport type of a device: InfiniBand or RoCE */
enum { TT_VERBS_PKEY_PARTITION = 0x7fff, TT_VERBS_PKEY_FULL = 0x8000 };
enum { TT_VERBS_RC = 2 };
enum { TT_VERBS_RESET, TT_VERBS_INIT, TT_VERBS_RTR, TT_VERBS_RTS, TT_VERBS_ERR = 6 };
enum { TT_VERBS_WRITE, TT_VERBS_WRITE_IMM };
enum { TT_VERBS_SIGNALED = 1 << 1, TT_VERBS_INLINE = 1 << 3 };
enum { TT_VERBS_LOCAL_WRITE = 1, TT_VERBS_REMOTE_WRITE = 2 };
/* opcode of a receive completed by a write with immediate */
enum { TT_VERBS_WC_IMM = 129 };
enum { TT_VERBS_GID_IB, TT_VERBS_GID_ROCE1, TT_VERBS_GID_ROCE2 };

enum { /* status of a completion */
       TT_VERBS_WC_SUCCESS = 0,
       TT_VERBS_WC_LOC_LEN = 1,
       TT_VERBS_WC_LOC_QP_OP = 2,
       TT_VERBS_WC_LOC_PROT = 4,
       TT_VERBS_WC_FLUSH = 5,
       TT_VERBS_WC_BAD_RESP = 7,
       TT_VERBS_WC_LOC_ACCESS = 8,
       TT_VERBS_WC_REM_INV_REQ = 9,
       TT_VERBS_WC_REM_ACCESS = 10,
       TT_VERBS_WC_REM_OP = 11,
       TT_VERBS_WC_RETRY = 12,
       TT_VERBS_WC_RNR_RETRY = 13,
       TT_VERBS_WC_REM_ABORT = 16,
       TT_VERBS_WC_FATAL = 19,
       TT_VERBS_WC_RESP_TIMEOUT = 20,
       TT_VERBS_WC_GENERAL = 21
};

enum { /* asynchronous events */
       TT_VERBS_EVENT_CQ_ERR = 0,
       TT_VERBS_EVENT_QP_FATAL = 1,
       TT_VERBS_EVENT_QP_REQ_ERR = 2,
       TT_VERBS_EVENT_QP_ACCESS_ERR = 3,
       TT_VERBS_EVENT_DEVICE_FATAL = 8,
       TT_VERBS_EVENT_PORT_ACTIVE = 9,
       TT_VERBS_EVENT_PORT_ERR = 10,
       TT_VERBS_EVENT_GID_CHANGE = 18
};

/* mask of modify_qp: members of tt_verbs_qp_attr to apply */
enum {
	TT_VERBS_QP_STATE = 1 << 0,
	TT_VERBS_QP_ACCESS = 1 << 3,
	TT_VERBS_QP_PKEY = 1 << 4,
	TT_VERBS_QP_PORT = 1 << 5,
	TT_VERBS_QP_AV = 1 << 7,
	TT_VERBS_QP_MTU = 1 << 8,
	TT_VERBS_QP_TIMEOUT = 1 << 9,
	TT_VERBS_QP_RETRIES = 1 << 10,
	TT_VERBS_QP_RNR = 1 << 11,
	TT_VERBS_QP_RQ_PSN = 1 << 12,
	TT_VERBS_QP_READS = 1 << 13,
	TT_VERBS_QP_RNR_TIMER = 1 << 15,
	TT_VERBS_QP_SQ_PSN = 1 << 16,
	TT_VERBS_QP_DEST_READS = 1 << 17,
	TT_VERBS_QP_DEST = 1 << 20
};

/* the first members; only libibverbs reads the rest */
struct tt_verbs_device {
	void *ops[2];
	int node_type, transport_type;
};
struct tt_verbs_channel {
	struct tt_verbs_context *context;
	int fd, references;
};
struct tt_verbs_pd {
	struct tt_verbs_context *context;
	uint32_t handle;
};

struct tt_verbs_mr {
	struct tt_verbs_context *context;
	struct tt_verbs_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct tt_verbs_cq {
	struct tt_verbs_context *context;
	struct tt_verbs_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events, async_events;
};

struct tt_verbs_qp {
	struct tt_verbs_context *context;
	void *qp_context;
	struct tt_verbs_pd *pd;
	struct tt_verbs_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t handle, qp_num;
	int state, type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events;
};

struct tt_verbs_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct tt_verbs_send_wr {
	uint64_t wr_id;
	struct tt_verbs_send_wr *next;
	struct tt_verbs_sge *sg_list;
	int num_sge, opcode;
	unsigned send_flags;
	uint32_t imm_data; /* big-endian */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		uint64_t room[4];
	} wr;
	uint64_t rest[7]; /* members of unused operations */
};

struct tt_verbs_recv_wr {
	uint64_t wr_id;
	struct tt_verbs_recv_wr *next;
	struct tt_verbs_sge *sg_list;
	int num_sge;
};

struct tt_verbs_wc {
	uint64_t wr_id;
	int status, opcode;
	uint32_t vendor_err, byte_len;
	uint32_t imm_data; /* big-endian */
	uint32_t qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct tt_verbs_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct tt_verbs_qp_init {
	void *qp_context;
	struct tt_verbs_cq *send_cq, *recv_cq;
	void *srq;
	struct tt_verbs_cap cap;
	int type, sq_sig_all;
};

struct tt_verbs_ah {
	struct {
		uint8_t dgid[16] __attribute__((aligned(8)));
		uint32_t flow_label;
		uint8_t sgid_index, hop_limit, traffic_class;
	} grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct tt_verbs_qp_attr {
	int qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned access;
	struct tt_verbs_cap cap;
	struct tt_verbs_ah ah, alt_ah;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
		port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

struct tt_verbs_port_attr {
	int state, max_mtu, active_mtu, gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed,
		phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
	uint8_t room[64]; /* newer libraries write more members */
};

struct tt_verbs_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int rest[20];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
	uint8_t room[64];
};

struct tt_verbs_gid_entry {
	uint8_t gid[16] __attribute__((aligned(8)));
	uint32_t index, port, type, ifindex;
};

struct tt_verbs_async_event {
	union {
		void *object;
		int port;
	} element;
	int type;
};

/* The context holds the functions that verbs.h calls inline. Tutti does not call the others. */
struct tt_verbs_context {
	struct tt_verbs_device *device;
	struct {
		void *unused_a[11];
		int (*poll_cq)(struct tt_verbs_cq *cq, int n, struct tt_verbs_wc *wc);
		int (*req_notify_cq)(struct tt_verbs_cq *cq, int solicited_only);
		void *unused_b[12];
		int (*post_send)(struct tt_verbs_qp *qp, struct tt_verbs_send_wr *wr,
				 struct tt_verbs_send_wr **bad);
		int (*post_recv)(struct tt_verbs_qp *qp, struct tt_verbs_recv_wr *wr,
				 struct tt_verbs_recv_wr **bad);
		void *unused_c[5];
	} ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

#endif
