/*
 * cost.h - what things cost: one table of constants,
 * by which plans are simulated and algorithms chosen
 *
 * A built-in table, or a file that `tutti tune` wrote and rank 0 handed out. All ranks have the
 * same, and all arithmetic on it is in whole numbers (picoseconds, femtoseconds a byte), so that
 * every rank of every build comes to the same answer. Called by simulate.c and choose.c;
 * cost_file.c reads and writes the text form; comm hands tables out.
 */
#ifndef TT_COST_H
#define TT_COST_H

#include "plan/plan.h"

/* How two ranks reach each other. hosts: on different hosts, by tcp. board: what is cast to all
 * ranks of a host at once (no pair has this class). verbs, soft: by the transport verbs, over real
 * cards, or where one of them is emulated by software. */
enum tt_link_class {
	TT_LINK_SHM,
	TT_LINK_TCP,
	TT_LINK_HOSTS,
	TT_LINK_SLOTS,
	TT_LINK_VERBS,
	TT_LINK_SOFT,
	TT_LINK_CLASSES
};
#define TT_NO_NIC TT_LINK_SHM           /* where a class of cards is meant */
extern const char *const tt_link_class_name[TT_LINK_CLASSES];

/* _ps: picoseconds; _fs: femtoseconds for each byte,
 * 0 where a thing costs nothing beside the rest. */
struct tt_link_cost {
	/* from the sender's last store to the sight of a receiver that looks */
	uint64_t latency_ps;
	uint64_t send_ps, recv_ps;       /* of a core, for each message */
	/* of a core, beside copying and reducing: from another core's cache; the kernel's copies */
	uint64_t send_fs, recv_fs;
	uint64_t link_fs;                /* of one direction of one link */
	uint64_t host_fs;                /* of all links of a host together, each way */
	uint64_t window;                 /* messages of a link and channel that may lie unread */
	/* longer messages take so much more: lie elsewhere than their notice, ... */
	uint64_t large_bytes, large_ps;
};

struct tt_core_cost {
	uint64_t call_ps, step_ps;       /* for each call; for each message of a step */
	/* a core goes to another rank, where a host has more ranks than cores */
	uint64_t switch_ps;
	/* in the core's own caches; reduce: for each operand after the first */
	uint64_t copy_fs, reduce_fs;
	uint64_t far_copy_fs, far_reduce_fs;     /* out of them */
	/* the least for a byte out of cache, all cores of the host together */
	uint64_t memory_fs;
	uint64_t cache_bytes;            /* of a core's own caches */
};

/* Measured time over predicted, in 1/1000, of one algorithm at one point;
 * between points it is interpolated. */
struct tt_factor {
	uint8_t algorithm, link;         /* its number in tt_algorithms; a tt_link_class */
	uint16_t nranks;
	uint32_t permille;
	uint64_t bytes;
};

struct tt_cost {
	struct tt_core_cost core;
	struct tt_link_cost link[TT_LINK_CLASSES];
	uint32_t nfactors;
	struct tt_factor *factors;       /* [nfactors], in the order of tt_factor_compare */
};

/* cost.c --------------------------------------------------------------------------------------- */

extern const struct tt_cost tt_cost_builtin;

/* How a pair of ranks is linked. apart: on different hosts; over_tcp, card: as struct tt_placement_facts. */
enum tt_link_class tt_cost_class(bool apart, bool over_tcp, enum tt_link_class card);
static inline bool tt_link_is_card(enum tt_link_class class)
{
	return class == TT_LINK_VERBS || class == TT_LINK_SOFT;
}

/* From a sender that has it to a receiver that can use it: one message of so many bytes. */
uint64_t tt_cost_message_ps(const struct tt_cost *cost, enum tt_link_class class, uint64_t bytes);

/* The price of moving bytes on one core of a call: caches and memory shared out. */
struct tt_prices {
	uint64_t copy_fs, reduce_fs;
	/* of 1000 bytes that another rank of the host wrote, those in another core's cache */
	uint64_t apart;
};
/* footprint: bytes that a core touches in the call. ranks, cores: of the host. */
struct tt_prices tt_cost_prices(const struct tt_cost *cost, uint64_t footprint, int ranks,
				int cores);

/* Predicted picoseconds, corrected by the factors nearest to (algorithm, link, nranks, bytes). */
uint64_t tt_cost_corrected(const struct tt_cost *cost, uint8_t algorithm, enum tt_link_class link,
			   int nranks, uint64_t bytes, uint64_t ps);
int tt_factor_compare(const void *a, const void *b);

/* cost_file.c ---------------------------------------------------------------------------------- */

/* One line of the text form: "shm.latency_ns 90". */
struct tt_cost_row {
	const char *name, *help;
	size_t offset;                   /* in struct tt_cost */
	enum tt_cost_unit { TT_NS, TT_GBPS, TT_BYTES, TT_COUNT } unit;
};
extern const struct tt_cost_row tt_cost_table[];
extern const size_t tt_cost_rows;

/* From text (not ended by NUL) or from a file; what it does not mention is as built in. 0 | TT_ARG:
 * a wrong line, with its number, name (of the file) and remedy | TT_SYSTEM. Free with
 * tt_cost_free. */
int tt_cost_parse(const char *text, size_t bytes, const char *name, struct tt_cost **ret_cost);
int tt_cost_read(const char *path, struct tt_cost **ret_cost);
void tt_cost_free(struct tt_cost *cost);

struct _IO_FILE;
/* The constants and factors, each with its unit and meaning. */
void tt_cost_print(const struct tt_cost *cost, struct _IO_FILE *to);

/* As bytes to hand to other ranks (of the same build), and back. Returns the bytes needed; writes
 * when there is room. */
size_t tt_cost_pack(const struct tt_cost *cost, void *to, size_t room);
int tt_cost_unpack(const void *from, size_t bytes, struct tt_cost **ret_cost);
int tt_cost_copy(const struct tt_cost *cost, struct tt_cost **ret_cost);

#endif
