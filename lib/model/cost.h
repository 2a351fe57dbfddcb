/*
 * cost.h - cost model: one table of constants for simulation and choice of algorithms
 *
 * The table is built in, or a file written by `tutti tune` that rank 0 sent to all. All ranks have
 * the same table, and all arithmetic on it uses integers (picoseconds, femtoseconds a byte), so
 * every rank of every build computes the same prediction. Called by simulate.c and choose.c;
 * cost_file.c reads and writes the text form; comm distributes tables.
 */
#ifndef TT_COST_H
#define TT_COST_H

#include "plan/plan.h"

/* Link class of two ranks. SHM: one host. TCP: one host, by tcp. HOSTS: different hosts, by tcp.
 * SLOTS: one post to all ranks of a host (no pair has this class).
 * VERBS: NICs of the verbs transport. SOFT: the same with a NIC emulated by software.
 * GROUPS: one host, as SHM, but different locality groups (tt_topology.groups). */
enum tt_link_class {
	TT_LINK_SHM,
	TT_LINK_TCP,
	TT_LINK_HOSTS,
	TT_LINK_SLOTS,
	TT_LINK_VERBS,
	TT_LINK_SOFT,
	TT_LINK_GROUPS,
	TT_LINK_CLASSES
};
#define TT_NO_NIC TT_LINK_SHM      /* no NIC, in place of a NIC's link class */
#define TT_LINK_SLOTS_NAME "slots" /* in cost files and JSON output */
extern const char *const tt_link_class_name[TT_LINK_CLASSES];

/* _ps: picoseconds; _fs: femtoseconds a byte, 0 if a cost is negligible. */
struct tt_link_cost {
	/* from the sender's last store until a polling receiver sees it */
	uint64_t latency_ps;
	uint64_t send_ps, recv_ps; /* CPU time of each message */
	/* CPU time a byte, without copying and reducing: misses to other cores, kernel copies */
	uint64_t send_fs, recv_fs;
	uint64_t link_fs; /* one direction of one link */
	/* all links of a host together, each direction; GROUPS: of a group to the others */
	uint64_t host_fs;
	/* most unread messages of a link and channel, from 2 on: a rank takes a message once there is
	 * room for the one that it then sends, so a ring of links with room for one would stand still.
	 * Slots have none. */
	uint64_t window;
	/* messages above large_bytes take large_ps longer: their payload is apart from the header */
	uint64_t large_bytes, large_ps;
};

struct tt_core_cost {
	uint64_t call_ps, step_ps;   /* of each call; of each message of a step */
	uint64_t switch_ps;          /* context switch, on hosts with more ranks than cores */
	uint64_t copy_fs, reduce_fs; /* in cache; reduce: each operand after the first */
	uint64_t far_copy_fs, far_reduce_fs; /* out of cache */
	uint64_t memory_fs;                  /* out of cache, all cores of the host: lower bound */
	uint64_t cache_bytes;                /* of a core's own caches */
};

/* Measured time over predicted time, in 1/1000, of one algorithm at one point; interpolated between
 * points. */
struct tt_factor {
	uint8_t algorithm, link; /* index in tt_algorithms; tt_link_class */
	uint16_t nranks;
	uint32_t permille;
	uint64_t bytes;
};

#define TT_FACTORS_MOST 16384

struct tt_cost {
	struct tt_core_cost core;
	struct tt_link_cost link[TT_LINK_CLASSES];
	uint32_t nfactors;
	struct tt_factor *factors; /* [nfactors], in the order of tt_factor_compare */
};

/* cost.c --------------------------------------------------------------------------------------- */

extern const struct tt_cost tt_cost_builtin;

/* Link class of a pair of ranks. apart: on different hosts; over_tcp, nic_class: as struct
 * tt_connectivity. */
enum tt_link_class tt_cost_class(bool apart, bool over_tcp, enum tt_link_class nic_class);
static inline bool tt_link_is_nic(enum tt_link_class class)
{
	return class == TT_LINK_VERBS || class == TT_LINK_SOFT;
}

static inline bool tt_link_is_memory(enum tt_link_class class)
{
	return class == TT_LINK_SHM || class == TT_LINK_GROUPS;
}

/* Time of one message, from the sender's buffer to the receiver's. */
uint64_t tt_cost_message_ps(const struct tt_cost *cost, enum tt_link_class class, uint64_t bytes);

/* Prices of moving bytes on one core in a call, with caches and memory bandwidth shared out. */
struct tt_prices {
	uint64_t copy_fs, reduce_fs;
	/* 1/1000 of the bytes from other ranks of the host that are in another core's cache */
	uint64_t remote_permille;
};
/* footprint: bytes that a core touches in the call. ranks, cores: of the host. */
struct tt_prices tt_cost_prices(const struct tt_cost *cost, uint64_t footprint, int ranks,
				int cores);

/* Predicted picoseconds, corrected by the factors nearest to (algorithm, link, nranks, bytes). */
uint64_t tt_cost_corrected(const struct tt_cost *cost, uint8_t algorithm, enum tt_link_class link,
			   int nranks, uint64_t bytes, uint64_t ps);
/* Order of factors, for qsort: algorithm, link, nranks, bytes. */
int tt_factor_compare(const void *a, const void *b);

/* cost_file.c ---------------------------------------------------------------------------------- */

/* One constant of the text form: "shm.latency_ns 90". */
struct tt_cost_row {
	const char *name, *help;
	size_t offset; /* in struct tt_cost */
	enum tt_cost_unit { TT_NS, TT_GBPS, TT_BYTES, TT_COUNT } unit;
};
extern const struct tt_cost_row tt_cost_table[];
extern const size_t tt_cost_rows;

/* A table from text (need not end with NUL) or from a file; constants that the text omits are as
 * built in. name: of the file, for messages. Free with tt_cost_free. 0 | TT_ARG: invalid line, with
 * its number, the file name and the remedy | TT_SYSTEM. */
int tt_cost_parse(const char *text, size_t bytes, const char *name, struct tt_cost **ret_cost);
int tt_cost_read(const char *path, struct tt_cost **ret_cost);
void tt_cost_free(struct tt_cost *cost);

struct _IO_FILE;
/* Print constants and factors, each with unit and meaning, in the text form. */
void tt_cost_print(const struct tt_cost *cost, struct _IO_FILE *to);

/* Bytes for other ranks (of the same build), and back. Pack returns the bytes needed; writes only
 * if they fit into room. Unpack, copy: 0 | TT_SYSTEM | TT_REMOTE: a factor of an unknown algorithm or
 * link; free with tt_cost_free. */
size_t tt_cost_pack(const struct tt_cost *cost, void *to, size_t room);
int tt_cost_unpack(const void *from, size_t bytes, struct tt_cost **ret_cost);
int tt_cost_copy(const struct tt_cost *cost, struct tt_cost **ret_cost);

#endif
