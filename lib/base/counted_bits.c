/*
 * counted_bits.c - bits by number, with the number of set ones before each, and back
 *
 * In words of 64 and groups of eight words.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/counted_bits.h"

#define WORD 64
#define WORDS TT_BITS_WORDS
#define GROUP TT_BITS_GROUP

static int ngroups(const struct tt_counted_bits *b)
{
	return b->n / GROUP + 1;
}

static size_t group_bytes(const struct tt_counted_bits *b)
{
	return ((size_t)ngroups(b) + 1) * sizeof(*b->group);
}

/* Words that are kept */
static size_t nwords(const struct tt_counted_bits *b)
{
	return (size_t)b->group[ngroups(b)].at;
}

bool tt_counted_bits_make(struct tt_counted_bits *b, int n)
{
	b->n = n;
	b->word = calloc((size_t)ngroups(b) * WORDS, sizeof(*b->word));
	b->group = malloc(group_bytes(b));
	return b->word && b->group;
}

void tt_counted_bits_free(struct tt_counted_bits *b)
{
	free(b->word);
	free(b->group);
	*b = (struct tt_counted_bits){ 0 };
}

bool tt_counted_bits_duplicate(struct tt_counted_bits *b, const struct tt_counted_bits *from)
{
	size_t bytes = nwords(from) * sizeof(*b->word);

	*b = (struct tt_counted_bits){ .n = from->n, .group = malloc(group_bytes(from)) };
	b->word = bytes ? malloc(bytes) : NULL;
	if (!b->group || (bytes && !b->word))
		return false;
	memcpy(b->group, from->group, group_bytes(from));
	if (bytes)
		memcpy(b->word, from->word, bytes);
	return true;
}

/* ---- before the count ------------------------------------------------------------------------ */

static uint64_t lowest(int nbits)
{
	return nbits < WORD ? (1ull << nbits) - 1 : UINT64_MAX;
}

void tt_counted_bits_copy(struct tt_counted_bits *b, int to, const uint8_t *set, int nbits)
{
	uint64_t *word = &b->word[to / WORD];

	for (int i = 0; i < (nbits + 7) / 8; i++)
		word[i / 8] |= (uint64_t)set[i] << 8 * (i % 8);
	if (nbits % WORD)
		word[nbits / WORD] &= lowest(nbits % WORD);
}

void tt_counted_bits_fill(struct tt_counted_bits *b, int to, int nbits)
{
	for (int left = nbits, n; left > 0; left -= n, to += n) {
		n = WORD - to % WORD < left ? WORD - to % WORD : left;
		b->word[to / WORD] |= lowest(n) << to % WORD;
	}
}

/* The word of counted bits */
static uint64_t word_of(const struct tt_counted_bits *b, int word)
{
	const struct tt_bits_group *g = &b->group[word / WORDS];

	if (g->at < 0)
		return g[1].before > g->before ? UINT64_MAX : 0;
	return b->word[g->at + word % WORDS];
}

void tt_counted_bits_add_range(struct tt_counted_bits *b, int to,
			       const struct tt_counted_bits *from, int first, int end)
{
	while (first < end) {
		/* up to the end of a word of either */
		int left = WORD - (first % WORD > to % WORD ? first % WORD : to % WORD);
		int nbits = end - first < left ? end - first : left;
		uint64_t bits = word_of(from, first / WORD) >> first % WORD & lowest(nbits);

		b->word[to / WORD] |= bits << to % WORD;
		first += nbits;
		to += nbits;
	}
}

/* Bits of the group that exist */
static int group_bits(const struct tt_counted_bits *b, int g)
{
	return b->n - g * GROUP < GROUP ? b->n - g * GROUP : GROUP;
}

void tt_counted_bits_count(struct tt_counted_bits *b)
{
	int n = 0, kept = 0;
	uint64_t *fewer;

	for (int g = 0; g < ngroups(b); g++) {
		int before = n;

		for (int i = g * WORDS; i < (g + 1) * WORDS; i++)
			n += __builtin_popcountll(b->word[i]);
		b->group[g] = (struct tt_bits_group){ before, -1 };
		if (n == before || n - before == group_bits(b, g))
			continue;
		b->group[g].at = kept;
		memmove(&b->word[kept], &b->word[g * WORDS], WORDS * sizeof(*b->word));
		kept += WORDS;
	}
	b->group[ngroups(b)] = (struct tt_bits_group){ n, kept };
	if (!kept) {
		free(b->word);
		b->word = NULL;
	} else if ((fewer = realloc(b->word, (size_t)kept * sizeof(*b->word)))) {
		b->word = fewer;
	}
}

/* ---- counted bits ---------------------------------------------------------------------------- */

int tt_counted_bits_before(const struct tt_counted_bits *b, int i)
{
	const struct tt_bits_group *g = &b->group[i / GROUP];
	int word = i / WORD % WORDS, n = g->before;

	if (g->at < 0)
		return n + (g[1].before > n ? i % GROUP : 0);
	for (int w = 0; w < word; w++)
		n += __builtin_popcountll(b->word[g->at + w]);
	return n + __builtin_popcountll(b->word[g->at + word] & lowest(i % WORD));
}

int tt_counted_bits_find(const struct tt_counted_bits *b, int count)
{
	int low = 0, high = ngroups(b), word;
	uint64_t bits;

	while (high - low > 1) {
		int middle = (low + high) / 2;

		*(b->group[middle].before <= count ? &low : &high) = middle;
	}
	count -= b->group[low].before;
	if (b->group[low].at < 0)
		return low * GROUP + count;
	for (word = b->group[low].at; count >= __builtin_popcountll(b->word[word]); word++)
		count -= __builtin_popcountll(b->word[word]);
	for (bits = b->word[word]; count; count--)
		bits &= bits - 1;
	return low * GROUP + (word - b->group[low].at) * WORD + __builtin_ctzll(bits);
}

int tt_counted_bits_next(const struct tt_counted_bits *b, int from, bool set)
{
	while (from < b->n) {
		const struct tt_bits_group *g = &b->group[from / GROUP];
		uint64_t bits;

		if (g->at < 0 && set != (g[1].before > g->before)) {
			from = (from / GROUP + 1) * GROUP;
			continue;
		}
		bits = word_of(b, from / WORD);
		bits = (set ? bits : ~bits) >> from % WORD;
		if (bits) {
			from += __builtin_ctzll(bits);
			return from < b->n ? from : b->n;
		}
		from = (from / WORD + 1) * WORD;
	}
	return b->n;
}

/* The counts say which groups have words. */
uint64_t tt_counted_bits_mark(const struct tt_counted_bits *b)
{
	uint64_t mark = 0;

	for (int g = 0; g <= ngroups(b); g++)
		mark = tt_mix(mark, (uint64_t)b->group[g].before);
	for (size_t i = 0; i < nwords(b); i++)
		mark = tt_mix(mark, b->word[i]);
	return mark;
}

size_t tt_counted_bits_memory(const struct tt_counted_bits *b)
{
	return b->group ? group_bytes(b) + nwords(b) * sizeof(*b->word) : 0;
}
