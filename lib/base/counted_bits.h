/*
 * counted_bits.h - bits by number, with the number of set ones before each, and back
 *
 * rank and select (Jacobson 1989): the set bits before every 512th one are counted once, so both take the
 * count of some words. Called by control (the peers of a communicator's ranks; hosts).
 */
#ifndef TT_COUNTED_BITS_H
#define TT_COUNTED_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tt_counted_bits {
	int n;
	uint64_t *word;
	int *before; /* set bits before every 512th one */
};

/* n bits, none set. false: no memory; free it in any case */
bool tt_counted_bits_make(struct tt_counted_bits *b, int n);
void tt_counted_bits_free(struct tt_counted_bits *b);
static inline void tt_counted_bits_add(struct tt_counted_bits *b, int i)
{
	b->word[i / 64] |= 1ull << i % 64;
}
/* Copies the first nbits bits of a set (rank_set.h). */
void tt_counted_bits_copy(struct tt_counted_bits *b, const uint8_t *set, int nbits);
/* Counts the bits after the last change. The functions below need the counts. */
void tt_counted_bits_count(struct tt_counted_bits *b);
static inline bool tt_counted_bits_has(const struct tt_counted_bits *b, int i)
{
	return b->word[i / 64] >> i % 64 & 1;
}
/* The number of set bits below i; the set bit with `count` set ones below it, which exists */
int tt_counted_bits_before(const struct tt_counted_bits *b, int i);
int tt_counted_bits_find(const struct tt_counted_bits *b, int count);
size_t tt_counted_bits_memory(const struct tt_counted_bits *b);

/* The host of a rank: of[rank], or, where the ranks of each host follow each other (of NULL), by the bits
 * of their first ones */
static inline int tt_host_number(const int *of, const struct tt_counted_bits *firsts, int rank)
{
	return of ? of[rank] : tt_counted_bits_before(firsts, rank + 1) - 1;
}

#endif
