/*
 * simulate_internal.h - what the files of the simulator share
 *
 *   simulate_plan.c    plans of all ranks in a compact form
 *   simulate_step.c    one cursor: what it waits for, the price of a message, moving on
 *   simulate.c         time: events, cores, ranks; results
 */
#ifndef TT_SIMULATE_INTERNAL_H
#define TT_SIMULATE_INTERNAL_H

#include "model/simulate.h"

#define TT_SIM_NONE 0xffffu              /* no peer */
#define TT_SIM_NEVER UINT64_MAX

/* `repeat` steps of a lane that differ by the block alone, which moves by stride. */
struct tt_sim_steps {
	uint32_t at, repeat;             /* at: index of the first in its lane */
	uint32_t block, nblocks;         /* block: what its length depends on */
	int32_t stride;
	uint32_t wait_step;              /* of the first, as tt_step */
	uint16_t to, wire[8];            /* places in the list of peers */
	uint8_t op, nwires, nsrc, flags, wait_lane;
	uint8_t records;                 /* of each step */
	bool has_dst;
};

/* A message on its way or unread. */
struct tt_sim_message { uint64_t at_ps, part_ps[TT_PARTS]; };

/* Messages of one (peer, cursor), at the receiver. */
struct tt_sim_queue {
	struct tt_sim_message *message;  /* [room], a ring */
	uint32_t head, count, room;
};

enum tt_sim_wait { TT_SIM_RUNS, TT_SIM_FOR_LANE, TT_SIM_FOR_ROOM, TT_SIM_FOR_MESSAGE };

struct tt_sim_cursor {
	uint32_t steps, nth;             /* position: which record, which of its repetitions */
	uint32_t row_steps, row_nth;
	uint32_t tile, sub, lane;
	uint32_t queue;                  /* FOR_MESSAGE: which one, of this rank's */
	uint64_t wake_ps;                /* when it can move, as far as is known */
	enum tt_sim_wait wait;
	bool more, finished;
};

enum tt_sim_state { TT_SIM_IDLE, TT_SIM_QUEUED, TT_SIM_AT_WORK, TT_SIM_DONE };

struct tt_sim_rank {
	struct tt_sim_steps *steps;
	uint32_t first[TT_MAX_LANES + 1];        /* of each lane, in steps */
	uint32_t npeers;
	int *peer;                               /* [npeers] */
	uint16_t *mirror;                        /* [npeers] this rank's place in the peer's list */
	uint8_t *class;                          /* [npeers] */
	uint64_t *link_free_ps, *sent_bytes;     /* [npeers] */
	struct tt_sim_queue *queue;              /* [nqueues], npeers * ncursors */
	struct tt_sim_cursor *cursor;            /* [ncursors] */
	uint64_t now_ps, wake_ps, busy_ps, part_ps[TT_PARTS];
	uint64_t idle_ps;                        /* since when it has nothing to do */
	uint64_t turn;                           /* the host's dispatch that it ran in last */
	uint32_t nqueues, nfinished, next_cursor;
	int host, next_ready;
	enum tt_sim_state state;
	bool cast;                               /* what it sends is on the board already */
};

struct tt_sim_host {
	uint64_t out_free_ps, in_free_ps, turns;
	int cores_free, first_ready, last_ready, nranks;
};

struct tt_sim_event { uint64_t at_ps; uint32_t rank; };

struct tt_sim {
	struct tt_sim_world world;
	struct tt_sim_watch watch;
	struct tt_plan frame;            /* of rank 0, without steps and peers: for binding */
	struct tt_sim_rank *rank;        /* [nranks] */
	struct tt_sim_host *host;        /* [nhosts] */
	int nhosts;
	struct tt_binding binding;
	struct tt_prices *prices;        /* [nhosts] */
	uint32_t ncursors, tiles;        /* tiles: walked */
	uint64_t messages[TT_LINK_CLASSES], events;
	struct tt_sim_event *heap;
	size_t nheap, heap_room;
	bool board;                      /* the call goes over the board: one cast to all */
	bool failed;                     /* out of memory */
};

/* simulate_plan.c */
int tt_sim_plans(struct tt_sim *sim, const struct tt_algorithm *algorithm, const char *name,
		 int root);
void tt_sim_plans_free(struct tt_sim *sim);

/* simulate_step.c: execute the next message of a cursor if it can be at the rank's time. True: it
 * did, and the rank's time is behind it; false: wait, wake_ps say why not. */
bool tt_sim_advance(struct tt_sim *sim, uint32_t rank, uint32_t cursor);

/* simulate.c: something that this cursor of rank waits for is there at at_ps. */
void tt_sim_notify(struct tt_sim *sim, uint32_t rank, uint32_t cursor, uint64_t at_ps);

static inline uint64_t tt_sim_bytes_ps(uint64_t bytes, uint64_t fs)
{
	return bytes * fs / 1000;
}

#endif
