/*
 * algorithms.h - the table of all algorithms, and the search by name
 *
 * Called by comm (settings), control (texts), model (choice), the tools and the tests.
 */
#ifndef TT_ALGORITHMS_H
#define TT_ALGORITHMS_H

#include "plan/algorithm.h"

/* NULL-terminated; messages between ranks carry the index */
extern const struct tt_algorithm *const tt_algorithms[];

/* The index of an entry of the table. */
uint8_t tt_algorithm_number(const struct tt_algorithm *algorithm);

/* The algorithm of a collective (TT_COLLECTIVES: of any) named "name" or "name:argument". NULL: the
 * error text has the wrong part and the known names. */
const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name);
/* The same search without an error text. */
const struct tt_algorithm *tt_algorithm_look(enum tt_collective collective, const char *name);
/* ", ring, tree": the names of a collective (TT_COLLECTIVES: of all), each once. Returns text. */
const char *tt_algorithm_names(enum tt_collective collective, char text[512]);

#endif
