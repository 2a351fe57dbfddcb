/*
 * ps_table.h - the rows of a sparse table on a parameter server: messages have touched rows only
 *
 * A pushed gradient stays packed (sparse_rows.h) until the server descends by it. The descent visits
 * the rows that a push touches, and those that momentum still moves, with the bits of a descent of all
 * rows. Called by ps_server.c; calls sparse_rows.c and ps_store.c.
 */
#ifndef TRAIN_PS_TABLE_H
#define TRAIN_PS_TABLE_H

#include "trainer/strategy/ps.h"
#include "trainer/strategy/ps_store.h"
#include "trainer/strategy/sparse_rows.h"

struct train_ps_table {
	size_t rows, width; /* of the table in this server's shard; sparse false: no such */
	bool sparse;
	size_t rest;                  /* floats of a node behind the table, its tail included */
	struct train_row_merge merge; /* the rows of pushes, node by node */
	void **rest_at;               /* [capacity of merge]: the parameters behind them */
	struct train_node *node;
	uint32_t *kept; /* sync: the pushes of a step, one after the other */
	size_t used, capacity;
	bool *moves;       /* [rows]: the row has momentum */
	uint64_t *changed; /* [rows]: the version that changed the row last */
	float *zeros;      /* [width] */
};

/* number: of the server. Without a sparse table sets sparse = false. Returns 0 | TRAIN_FAILED (no memory);
 * close it in any case. */
int train_ps_table_open(struct train_ps_table *p, struct train_rank *t, const struct train_ps *ps,
			int number);
void train_ps_table_close(struct train_ps_table *p);

/* The words of the largest push or answer. */
size_t train_ps_table_words(const struct train_ps_table *p);

/* After the store has its first parameters and state. */
void train_ps_table_start(struct train_ps_table *p, const struct train_ps_store *store);

/* Reads the push of `n` nodes, of which the first is number `first` in the order of the sum, from words
 * that stay until the descent, unless sync. Returns false: they are no such push. */
bool train_ps_table_push(struct train_ps_table *p, const uint32_t *message, size_t words,
			 const struct train_node *node, size_t first, size_t n);
/* Forgets a push. */
void train_ps_table_drop(struct train_ps_table *p);

/* One step by the sum of all pushes since the last, which is version `version` of the store. Returns the sum's
 * tail. */
const float *train_ps_table_descend(struct train_ps_table *p, struct train_ps_store *store,
				    float scale, float rate, uint64_t version);

/* row[n] are ascending numbers of this table's rows. */
bool train_ps_table_has(const struct train_ps_table *p, const uint32_t *row, size_t n);

/* Pack parameters: the rows row[n], or the rows that changed after version `since`, then the parameters behind the
 * table. Return the number of words. */
size_t train_ps_table_pack(const struct train_ps_table *p, const struct train_ps_store *store,
			   const uint32_t *row, size_t n, uint32_t *message);
size_t train_ps_table_pack_changes(const struct train_ps_table *p,
				   const struct train_ps_store *store, uint64_t since,
				   uint32_t *message);

#endif
