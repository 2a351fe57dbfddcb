/*
 * rank_set.h - a set of ranks: a bit for each
 *
 * A communicator knows many facts of each other rank, most of them yes or no, and has thousands of ranks.
 */
#ifndef TT_RANK_SET_H
#define TT_RANK_SET_H

#include <endian.h>
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
/* The bits of 64 ranks from `first` on, a multiple of 64; those that do not exist are clear */
static inline uint64_t tt_set_word(const uint8_t *set, int nranks, int first)
{
	size_t left = TT_SET_BYTES(nranks - first);
	uint64_t word = 0;

	memcpy(&word, set + (unsigned)first / 8, left < sizeof(word) ? left : sizeof(word));
	return le64toh(word);
}
/* The lowest rank from `from` on that is in one of two sets; nranks: none. Reads both up to this rank's word. */
static inline int tt_sets_next(const uint8_t *a, const uint8_t *b, int nranks, int from)
{
	for (int end; from < nranks; from = end) {
		uint64_t word;

		end = from / 64 * 64 + 64;
		word = tt_set_word(a, nranks, end - 64) | tt_set_word(b, nranks, end - 64);
		word >>= from % 64;
		if (word)
			return from + __builtin_ctzll(word);
	}
	return nranks;
}
static inline int tt_set_next(const uint8_t *set, int nranks, int from)
{
	return tt_sets_next(set, set, nranks, from);
}

#endif
