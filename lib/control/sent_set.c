/*
 * sent_set.c - a set of ranks in a message: a byte for each 512 ranks, and their bits where they differ
 *
 * Called by shrink and control_split.c. The bytes read come from another process: tt_get_set checks all.
 */
#include "control/frame.h"
#include "control/sent_set.h"

#define BITS_BYTES (TT_BITS_GROUP / 8)

enum { NONE, ALL, SOME };

/* Bytes of the bits of a group; of the last one those that exist */
static size_t bits_bytes(int n, int group)
{
	size_t left = TT_SET_BYTES(n - group * TT_BITS_GROUP);

	return left < BITS_BYTES ? left : BITS_BYTES;
}

void tt_put_set(struct tt_writer *w, const struct tt_counted_bits *set)
{
	for (int g = 0; g <= set->n / TT_BITS_GROUP; g++) {
		const struct tt_bits_group *group = &set->group[g];

		if (group->at < 0) {
			tt_put(w, group[1].before > group->before ? ALL : NONE, 1);
			continue;
		}
		tt_put(w, SOME, 1);
		for (size_t i = 0; i < bits_bytes(set->n, g); i++)
			tt_put(w, set->word[(size_t)group->at + i / 8] >> 8 * (i % 8), 1);
	}
}

void tt_put_no_set(struct tt_writer *w, int n)
{
	for (int g = 0; g <= n / TT_BITS_GROUP; g++)
		tt_put(w, NONE, 1);
}

struct tt_sent_set tt_get_set(struct tt_reader *r, int n)
{
	struct tt_sent_set s = { .at = r->at, .n = n };

	for (int g = 0; g <= n / TT_BITS_GROUP; g++)
		if (tt_get_upto(r, 1, SOME) == SOME) {
			size_t bytes = bits_bytes(n, g);
			const uint8_t *bits = tt_get_bytes(r, bytes);

			r->failed |= bits && g == n / TT_BITS_GROUP && n % 8 &&
				     bits[bytes - 1] >> n % 8;
		}
	return s;
}

static const uint8_t *behind(const uint8_t *group)
{
	return group + 1 + (*group == SOME ? BITS_BYTES : 0);
}

static const uint8_t *group_of(const struct tt_sent_set *s, int rank)
{
	const uint8_t *group = s->at;

	for (int g = rank / TT_BITS_GROUP; g > 0; g--)
		group = behind(group);
	return group;
}

static bool has(const uint8_t *group, int rank)
{
	return *group == SOME ? tt_set_has(group + 1, rank % TT_BITS_GROUP) : *group == ALL;
}

bool tt_sent_set_has(const struct tt_sent_set *s, int rank)
{
	return has(group_of(s, rank), rank);
}

int tt_sent_set_next(const struct tt_sent_set *s, int from)
{
	const uint8_t *group = group_of(s, from);

	for (int r = from; r < s->n; r++) {
		if (r > from && r % TT_BITS_GROUP == 0)
			group = behind(group);
		if (has(group, r))
			return r;
		if (*group == NONE)
			r |= TT_BITS_GROUP - 1;
	}
	return s->n;
}

bool tt_sent_set_read(const struct tt_sent_set *s, struct tt_counted_bits *ret_bits)
{
	const uint8_t *group = s->at;

	if (!tt_counted_bits_make(ret_bits, s->n))
		return false;
	for (int first = 0; first < s->n; first += TT_BITS_GROUP, group = behind(group)) {
		int n = s->n - first < TT_BITS_GROUP ? s->n - first : TT_BITS_GROUP;

		if (*group == SOME)
			tt_counted_bits_copy(ret_bits, first, group + 1, n);
		else if (*group == ALL)
			tt_counted_bits_fill(ret_bits, first, n);
	}
	tt_counted_bits_count(ret_bits);
	return true;
}
