/*
 * counted_bits.h - bits by number, with the number of set ones before each, and back
 *
 * rank and select (Jacobson 1989): the set bits before every 512th one are counted once, so both take the
 * count of some words. Groups of 512 bits that are all set, or all clear, have no words. Called by control (the
 * members of a communicator, the peers of its ranks; hosts), and by shrink (members).
 */
#ifndef TT_COUNTED_BITS_H
#define TT_COUNTED_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_BITS_WORDS 8 /* of a group */
#define TT_BITS_GROUP (64 * TT_BITS_WORDS)

struct tt_bits_group {
	int before; /* set bits before the group */
	int at;     /* of its words in word; -1: none, all its bits are equal */
};

struct tt_counted_bits {
	int n;
	uint64_t *word; /* of all groups, until they are counted; then of those that have some */
	struct tt_bits_group
		*group; /* [n / TT_BITS_GROUP + 2], the last one without bits; NULL: not made */
};

/* n bits, none set. false: no memory; free it in any case */
bool tt_counted_bits_make(struct tt_counted_bits *b, int n);
void tt_counted_bits_free(struct tt_counted_bits *b);
/* Before the bits are counted: sets a bit; the bits from `to` on: all of nbits; as the bits first ... end - 1 of counted
 * ones; as the first nbits bits of a set (rank_set.h), `to` a multiple of 64 */
static inline void tt_counted_bits_add(struct tt_counted_bits *b, int i)
{
	b->word[i / 64] |= 1ull << i % 64;
}
void tt_counted_bits_fill(struct tt_counted_bits *b, int to, int nbits);
void tt_counted_bits_add_range(struct tt_counted_bits *b, int to,
			       const struct tt_counted_bits *from, int first, int end);
void tt_counted_bits_copy(struct tt_counted_bits *b, int to, const uint8_t *set, int nbits);
/* Counts the bits, once. No bit changes after it, and the functions below need it. */
void tt_counted_bits_count(struct tt_counted_bits *b);
/* Counted ones. false: no memory; free it in any case */
bool tt_counted_bits_duplicate(struct tt_counted_bits *b, const struct tt_counted_bits *from);

static inline bool tt_counted_bits_has(const struct tt_counted_bits *b, int i)
{
	const struct tt_bits_group *g = &b->group[i / TT_BITS_GROUP];

	if (g->at < 0)
		return g[1].before > g->before;
	return b->word[g->at + i / 64 % TT_BITS_WORDS] >> i % 64 & 1;
}
/* The number of set bits below i; the set bit with `count` set ones below it, which exists */
int tt_counted_bits_before(const struct tt_counted_bits *b, int i);
int tt_counted_bits_find(const struct tt_counted_bits *b, int count);
/* The lowest bit from `from` on that is set, or clear; n: none */
int tt_counted_bits_next(const struct tt_counted_bits *b, int from, bool set);
/* A digest of the bits */
uint64_t tt_counted_bits_mark(const struct tt_counted_bits *b);
size_t tt_counted_bits_memory(const struct tt_counted_bits *b);

/* The host of a rank: of[rank], or, where the ranks of each host follow each other (of NULL), by the bits
 * of their first ones */
static inline int tt_host_number(const int *of, const struct tt_counted_bits *firsts, int rank)
{
	return of ? of[rank] : tt_counted_bits_before(firsts, rank + 1) - 1;
}

#endif
