/*
 * counted_bits.c - bits by number, with the number of set ones before each, and back
 *
 * In words of 64 and groups of eight words.
 */
#include <stdlib.h>

#include "base/counted_bits.h"

#define WORD 64
#define WORDS 8 /* of a group */
#define GROUP (WORD * WORDS)

static int ngroups(const struct tt_counted_bits *b)
{
	return b->n / GROUP + 1;
}

bool tt_counted_bits_make(struct tt_counted_bits *b, int n)
{
	b->n = n;
	b->word = calloc((size_t)ngroups(b) * WORDS, sizeof(*b->word));
	b->before = malloc((size_t)ngroups(b) * sizeof(*b->before));
	return b->word && b->before;
}

void tt_counted_bits_free(struct tt_counted_bits *b)
{
	free(b->word);
	free(b->before);
}

void tt_counted_bits_copy(struct tt_counted_bits *b, const uint8_t *set, int nbits)
{
	for (int i = 0; i < (nbits + 7) / 8; i++)
		b->word[i / 8] |= (uint64_t)set[i] << 8 * (i % 8);
	if (nbits % WORD)
		b->word[nbits / WORD] &= (1ull << nbits % WORD) - 1;
}

void tt_counted_bits_count(struct tt_counted_bits *b)
{
	int n = 0;

	for (int g = 0; g < ngroups(b); g++) {
		b->before[g] = n;
		for (int i = g * WORDS; i < (g + 1) * WORDS; i++)
			n += __builtin_popcountll(b->word[i]);
	}
}

int tt_counted_bits_before(const struct tt_counted_bits *b, int i)
{
	int word = i / WORD, n = b->before[i / GROUP];

	for (int w = i / GROUP * WORDS; w < word; w++)
		n += __builtin_popcountll(b->word[w]);
	return n + __builtin_popcountll(b->word[word] & ((1ull << i % WORD) - 1));
}

int tt_counted_bits_find(const struct tt_counted_bits *b, int count)
{
	int low = 0, high = ngroups(b), word;
	uint64_t bits;

	while (high - low > 1) {
		int middle = (low + high) / 2;

		*(b->before[middle] <= count ? &low : &high) = middle;
	}
	count -= b->before[low];
	for (word = low * WORDS; count >= __builtin_popcountll(b->word[word]); word++)
		count -= __builtin_popcountll(b->word[word]);
	for (bits = b->word[word]; count; count--)
		bits &= bits - 1;
	return word * WORD + __builtin_ctzll(bits);
}

size_t tt_counted_bits_memory(const struct tt_counted_bits *b)
{
	return b->word ? (size_t)ngroups(b) * (WORDS * sizeof(*b->word) + sizeof(*b->before)) : 0;
}
