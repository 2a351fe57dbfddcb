/*
 * bootstrap.h - joining: the state of a rank that joins, the bootstrap root, the tree and the ring
 *
 * bootstrap.c runs a join in the caller's thread; bootstrap_root.c is rank 0's part and
 * bootstrap_tree.c every rank's, mostly in the service thread.
 */
#ifndef TT_BOOTSTRAP_H
#define TT_BOOTSTRAP_H

#include "control/control.h"
#include "control/frame.h"

struct tt_bootstrap;
struct tt_conn;

/* Locked. */
struct tt_join_state {
	bool complete;             /* tree and ring are connected */
	struct tt_bootstrap *root; /* rank 0's bootstrap root; else NULL */
	/* parent is known; the business cards are known that this rank is to have; the table has come */
	bool has_parent, has_table, got_table;
	struct tt_business_card parent; /* in the tree */
	uint8_t *attached;              /* ranks connected in the tree below this rank */
	char missing[512];              /* rank 0's latest report on missing ranks */
	bool awaits;                    /* a caller waits for a connection */
	uint64_t claim_ns;              /* latest tt_control_take that found no socket */
};

/* bootstrap_root.c, locked, rank 0. open: 0 | TT_SYSTEM */
int tt_bootstrap_open(struct tt_control *ctl, const struct tt_join *join);
void tt_bootstrap_close(struct tt_control *ctl);
/* A rank has authenticated and is about to register. */
void tt_bootstrap_entered(struct tt_control *ctl, struct tt_conn *conn);
/* Frames REGISTER and DECLINE; false: the frame is malformed */
bool tt_bootstrap_register(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
			   size_t bytes);
bool tt_bootstrap_declined(struct tt_control *ctl, struct tt_conn *conn, const uint8_t *data,
			   size_t bytes);
/* Rank is connected in the tree: release its registration; with the last one send the table. */
void tt_bootstrap_attached(struct tt_control *ctl, int rank);
/* A connection claimed to be this rank and was refused. */
enum tt_refusal { TT_OTHER_SECRET = 1, TT_OTHER_VERSION };
void tt_bootstrap_refused(struct tt_control *ctl, int claimed, enum tt_refusal why);
/* The connection of a welcomed rank ended. Did rank 0 await its registration? ctl NULL: no */
bool tt_bootstrap_lost(struct tt_control *ctl, int peer);
/* The number of ranks of which neither a registration nor a decline has come */
int tt_bootstrap_unseen(const struct tt_control *ctl);
/* "ranks 2, 5 did not join" */
void tt_bootstrap_missing(struct tt_control *ctl, char *text, size_t bytes);
/* Reports the missing ranks once a second; returns the next time due, TT_NEVER: none */
uint64_t tt_bootstrap_timers(struct tt_control *ctl, uint64_t now);

/* bootstrap_tree.c, locked: frames of joining (false: malformed); a rank that is now connected
 * below this one */
bool tt_join_frame(struct tt_control *ctl, struct tt_conn *conn, enum tt_frame kind,
		   const uint8_t *data, size_t bytes);
void tt_join_attached(struct tt_control *ctl, int rank);
/* Not locked, block: connect to the parent in the tree; to the neighbors in the ring, and wait
 * until every rank has. 0 | < 0 */
int tt_join_tree(struct tt_control *ctl, const struct tt_business_card *parent,
		 uint64_t deadline_ns);
int tt_join_ring(struct tt_control *ctl, uint64_t deadline_ns);

#endif
