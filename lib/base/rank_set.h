/*
 * rank_set.h - a set of ranks: a bit for each, in memory and in messages
 *
 * A communicator knows many facts of each other rank, most of them yes or no, and has thousands of ranks.
 */
#ifndef TT_RANK_SET_H
#define TT_RANK_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TT_SET_BYTES(nranks) (((size_t)(nranks) + 7) / 8)

/* The empty set, to be freed; NULL: no memory */
static inline uint8_t *tt_set_make(int nranks)
{
	return calloc(TT_SET_BYTES(nranks), 1);
}
static inline bool tt_set_has(const uint8_t *set, int rank)
{
	return set[(unsigned)rank / 8] >> (unsigned)rank % 8 & 1;
}
static inline void tt_set_add(uint8_t *set, int rank)
{
	set[(unsigned)rank / 8] |= (uint8_t)(1u << (unsigned)rank % 8);
}
static inline void tt_set_remove(uint8_t *set, int rank)
{
	set[(unsigned)rank / 8] &= (uint8_t) ~(1u << (unsigned)rank % 8);
}
/* The lowest rank from `from` on that is in the set; nranks: none */
static inline int tt_set_next(const uint8_t *set, int nranks, int from)
{
	while (from < nranks) {
		uint64_t word = 1;

		if (from % 8 == 0 && nranks - from >= 64)
			memcpy(&word, set + (unsigned)from / 8, sizeof(word));
		if (!word)
			from += 64;
		else if (!(set[(unsigned)from / 8] >> (unsigned)from % 8))
			from += 8 - from % 8;
		else if (tt_set_has(set, from))
			return from;
		else
			from++;
	}
	return nranks;
}

#endif
