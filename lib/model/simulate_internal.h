/*
 * simulate_internal.h - types shared by the files of the simulator
 *
 *   simulate_plan.c    plans of all ranks in a compact form
 *   simulate_fold.c    ranks that are alike
 *   simulate_step.c    one cursor: its waits, the price of a message, its next position
 *   simulate.c         time: events, cores, ranks; results
 */
#ifndef TT_SIMULATE_INTERNAL_H
#define TT_SIMULATE_INTERNAL_H

#include "model/simulate.h"

#define TT_SIM_NONE UINT32_MAX /* no peer */
#define TT_SIM_NEVER UINT64_MAX

/* `repeat` steps of a lane that differ only in their block, which advances by stride. */
struct tt_sim_steps {
	uint32_t at, repeat;     /* at: index of the first step in its lane */
	uint32_t block, nblocks; /* block: determines the length of the message */
	int32_t stride;
	uint32_t wait_step;   /* of the first step, as in tt_step */
	uint32_t to, wire[8]; /* indices in the list of peers */
	uint8_t op, nwires, nsrc, flags, wait_lane;
	uint8_t records; /* of each step */
	bool has_dst;
};

/* A message in flight or unread, with the parts of the time until its arrival. */
struct tt_sim_message {
	uint64_t at_ps, part_ps[TT_PARTS];
};

/* Messages of one (peer, cursor), at the receiver. */
struct tt_sim_queue {
	struct tt_sim_message *message; /* [room], a ring buffer */
	uint32_t head, count, room;
};

enum tt_sim_wait { TT_SIM_RUNS, TT_SIM_FOR_LANE, TT_SIM_FOR_ROOM, TT_SIM_FOR_MESSAGE };

struct tt_sim_cursor {
	uint32_t steps, nth;         /* position: record, and repetition within the record */
	uint32_t row_steps, row_nth; /* position of the first step of the row */
	uint32_t tile, sub, lane;    /* sub: blocks of the row done in earlier messages */
	uint32_t queue;              /* FOR_MESSAGE: index of the empty queue */
	uint64_t wake_ps;            /* earliest time of the next move, as far as known */
	enum tt_sim_wait wait;
	bool more, finished; /* more: a step of the row has blocks left */
};

enum tt_sim_state { TT_SIM_IDLE, TT_SIM_QUEUED, TT_SIM_AT_WORK, TT_SIM_DONE };

struct tt_sim_rank {
	struct tt_sim_steps *steps;
	uint32_t first[TT_MAX_LANES + 1]; /* [lane] its first record in steps */
	uint32_t npeers;                  /* arrays of npeers are in the memory of link_free_ps */
	int *peer;                        /* [npeers] */
	uint32_t *stands;                 /* [npeers] the simulated rank for the peer */
	uint32_t *mirror;                 /* [npeers] own index in the list of that rank */
	uint8_t *class;                   /* [npeers] tt_link_class */
	uint64_t *link_free_ps, *sent_bytes; /* [npeers] */
	struct tt_sim_queue *queue;          /* [nqueues], npeers * ncursors */
	struct tt_sim_cursor *cursor;        /* [ncursors] */
	uint64_t now_ps, wake_ps, busy_ps, part_ps[TT_PARTS];
	uint64_t idle_ps;  /* end of the last work */
	uint64_t dispatch; /* number of the rank's last dispatch */
	uint32_t nqueues, nfinished, next_cursor;
	int host, group, next_ready;
	enum tt_sim_state state;
	bool posted; /* the rank has posted to its shared-memory slot */
};

/* What the links of a host share, or those of a locality group to the others */
struct tt_sim_network {
	uint64_t out_free_ps, in_free_ps;
};

struct tt_sim_host {
	struct tt_sim_network network;
	uint64_t dispatches;
	int cores_free, first_ready, last_ready, nranks;
};

struct tt_sim_event {
	uint64_t at_ps;
	uint32_t rank;
};

struct tt_sim {
	struct tt_sim_world world;
	struct tt_sim_watch watch;
	struct tt_plan frame;         /* of rank 0, without steps and peers: for binding */
	struct tt_sim_rank *rank;     /* [nsimulated] */
	struct tt_sim_host *host;     /* [nhosts] */
	struct tt_sim_network *group; /* [ngroups] */
	uint32_t nsimulated;          /* ranks that stand for all; divides nranks */
	enum tt_sim_folded folded;
	bool exchange, equal_blocks;
	int nhosts, ngroups;           /* of the simulated ranks; ngroups 0: no groups */
	struct tt_link_cost far_slots; /* of a post that is read in another group */
	struct tt_binding binding;
	struct tt_prices *prices; /* [nhosts] */
	uint32_t ncursors, tiles; /* tiles: simulated */
	uint64_t messages[TT_LINK_CLASSES], events;
	struct tt_sim_event *heap;
	size_t nheap, heap_room;
	uint64_t steps; /* of the plans so far */
	bool parts;     /* an input has a part for each rank */
	bool on_slots;  /* shared-memory slots: one post reaches all ranks */
	bool failed;    /* out of memory */
};

/* simulate_plan.c */
int tt_sim_plans(struct tt_sim *sim, const struct tt_algorithm *algorithm, const char *name,
		 int root);
void tt_sim_plans_free(struct tt_sim *sim);

/* simulate_fold.c: set nsimulated, folded and exchange; the rank `hosts` hosts away; the peer of the
 * simulated rank for `to` that sends to it as `from` sends to `to`. */
void tt_sim_fold(struct tt_sim *sim, const struct tt_algorithm *algorithm, const char *name);
uint32_t tt_sim_shifted(const struct tt_sim *sim, uint32_t rank, uint32_t hosts);
uint32_t tt_sim_sender(const struct tt_sim *sim, uint32_t from, uint32_t to);

/* simulate_step.c: execute the next message of a cursor, if possible at the rank's time. True:
 * executed, the rank's clock has advanced; false: wait and wake_ps of the cursor have the
 * reason. */
bool tt_sim_advance(struct tt_sim *sim, uint32_t rank, uint32_t cursor);

/* simulate.c: a message, or room for one, that this cursor of rank waits for is available at
 * at_ps. */
void tt_sim_notify(struct tt_sim *sim, uint32_t rank, uint32_t cursor, uint64_t at_ps);

static inline uint64_t tt_sim_bytes_ps(uint64_t bytes, uint64_t fs)
{
	return bytes * fs / 1000;
}

#endif
