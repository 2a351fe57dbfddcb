/*
 * check_expr.c - values of the symbolic run: hash-consed expressions over the ranks' input blocks
 *
 * A leaf is (rank, block of in); its number encodes both, so a leaf needs no memory. A combination
 * is looked up by a hash of its children, so two blocks hold the same bits on every input exactly
 * if their expressions have the same number. (a + b) + c, a + (b + c) and the n-ary a + b + c,
 * which rounds once, are three expressions. Each combination has a bit set of its ranks; a
 * combination with a rank twice or with different blocks is refused.
 *
 * Called by check.c and check_run.c.
 */
#include "verify/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct expr_node {
	uint32_t first, n; /* children, in child[] */
	uint32_t block, hash;
};

struct tt_exprs {
	uint32_t nranks, blocks, words; /* words: 64-bit words of a set of ranks */
	uint32_t nleaves;               /* 1 .. nleaves are leaves, the rest combinations */
	uint32_t count, room, nslots;   /* nslots: power of two, at least twice the nodes */
	uint32_t nchildren, child_room;
	struct expr_node *node; /* [room] */
	uint64_t *set;          /* [room * words] */
	tt_expr *child;         /* [child_room] */
	uint32_t *slot;         /* [nslots] 1 + node, 0 empty */
};

int tt_exprs_open(int nranks, uint32_t blocks, struct tt_exprs **ret_table)
{
	struct tt_exprs *t = calloc(1, sizeof(*t));

	if (!t)
		return tt_fail(TT_SYSTEM, "no memory to check a plan of %d ranks", nranks);
	t->nranks = (uint32_t)nranks;
	t->blocks = blocks;
	t->words = (t->nranks + 63) / 64;
	t->nleaves = t->nranks * blocks;
	*ret_table = t;
	return TT_OK;
}

void tt_exprs_close(struct tt_exprs *t)
{
	if (!t)
		return;
	free(t->node);
	free(t->set);
	free(t->child);
	free(t->slot);
	free(t);
}

tt_expr tt_expr_leaf(const struct tt_exprs *t, int rank, uint32_t block)
{
	return 1 + (uint32_t)rank * t->blocks + block;
}

int tt_expr_rank(const struct tt_exprs *t, tt_expr e)
{
	return e <= t->nleaves ? (int)((e - 1) / t->blocks) : -1;
}

uint32_t tt_expr_block(const struct tt_exprs *t, tt_expr e)
{
	return e <= t->nleaves ? (e - 1) % t->blocks : t->node[e - 1 - t->nleaves].block;
}

int tt_expr_lacks(const struct tt_exprs *t, tt_expr e)
{
	if (e <= t->nleaves)
		return t->nranks == 1 ? -1 : tt_expr_rank(t, e) == 0 ? 1 : 0;
	const uint64_t *set = t->set + (size_t)(e - 1 - t->nleaves) * t->words;

	for (uint32_t w = 0; w < t->words; w++) {
		if (set[w] == UINT64_MAX)
			continue;
		uint32_t r = 64 * w + (uint32_t)__builtin_ctzll(~set[w]);

		return r < t->nranks ? (int)r : -1;
	}
	return -1;
}

/* Appends the text, truncated at room. Returns the length so far, which may exceed room. */
static size_t put_text(const struct tt_exprs *t, tt_expr e, bool inside, char *text, size_t room,
		       size_t at)
{
	const struct expr_node *node = &t->node[e > t->nleaves ? e - 1 - t->nleaves : 0];

	if (at >= room)
		return at;
	if (e <= t->nleaves)
		return at + (size_t)snprintf(text + at, room - at, "g%d", tt_expr_rank(t, e));
	for (uint32_t i = 0; i < node->n && at < room; i++) {
		at += (size_t)snprintf(text + at, room - at, "%s", i ? " + " : inside ? "(" : "");
		at = put_text(t, t->child[node->first + i], true, text, room, at);
	}
	return at + (at < room && inside ? (size_t)snprintf(text + at, room - at, ")") : 0);
}

const char *tt_expr_text(const struct tt_exprs *t, tt_expr e, char text[128])
{
	if (put_text(t, e, false, text, 128, 0) >= 128)
		memcpy(text + 124, "...", 4);
	return text;
}

static bool grow(void **memory, size_t count, size_t each)
{
	void *more = realloc(*memory, count * each);

	if (more)
		*memory = more;
	return more != NULL;
}

static void rehash(struct tt_exprs *t)
{
	memset(t->slot, 0, t->nslots * sizeof(*t->slot));
	for (uint32_t i = 0; i < t->count; i++) {
		uint32_t at = t->node[i].hash & (t->nslots - 1);

		while (t->slot[at])
			at = (at + 1) & (t->nslots - 1);
		t->slot[at] = 1 + i;
	}
}

/* Grows the table for one more node of n children. */
static bool make_room(struct tt_exprs *t, uint32_t n)
{
	if (t->nchildren + n > t->child_room) {
		uint32_t room = 2 * t->child_room + 1024;

		if (!grow((void **)&t->child, room, sizeof(*t->child)))
			return false;
		t->child_room = room;
	}
	if (t->count < t->room)
		return true;
	uint32_t room = t->room ? 2 * t->room : 512;

	if (!grow((void **)&t->node, room, sizeof(*t->node)) ||
	    !grow((void **)&t->set, (size_t)room * t->words, sizeof(*t->set)) ||
	    !grow((void **)&t->slot, 2 * (size_t)room, sizeof(*t->slot)))
		return false;
	t->room = room;
	t->nslots = 2 * room;
	rehash(t);
	return true;
}

/* set |= ranks of e. Returns a rank that was in the set already, or -1. */
static int add_ranks(const struct tt_exprs *t, tt_expr e, uint64_t *set)
{
	if (e <= t->nleaves) {
		uint32_t r = (e - 1) / t->blocks;
		bool twice = set[r / 64] >> r % 64 & 1;

		set[r / 64] |= 1ull << r % 64;
		return twice ? (int)r : -1;
	}
	const uint64_t *more = t->set + (size_t)(e - 1 - t->nleaves) * t->words;

	for (uint32_t w = 0; w < t->words; w++) {
		if (set[w] & more[w])
			return (int)(64 * w) + __builtin_ctzll(set[w] & more[w]);
		set[w] |= more[w];
	}
	return -1;
}

/* Slot of the combination of these children, or the empty slot for a new one. */
static uint32_t slot_of(const struct tt_exprs *t, const tt_expr *child, uint32_t n, uint32_t hash)
{
	uint32_t at = hash & (t->nslots - 1);

	for (; t->slot[at]; at = (at + 1) & (t->nslots - 1)) {
		const struct expr_node *known = &t->node[t->slot[at] - 1];

		if (known->hash == hash && known->n == n &&
		    !memcmp(t->child + known->first, child, n * sizeof(*child)))
			break;
	}
	return at;
}

int tt_expr_combine(struct tt_exprs *t, const tt_expr *child, uint32_t n, tt_expr *ret_expr,
		    uint32_t *ret_what)
{
	uint32_t hash = 2166136261u;

	for (uint32_t i = 0; i < n; i++)
		hash = (hash ^ child[i]) * 0x9e3779b1u, hash ^= hash >> 15;
	if (!make_room(t, n))
		return tt_fail(TT_SYSTEM, "no memory for %u expressions of a plan", t->count);

	uint32_t at = slot_of(t, child, n, hash);

	if (t->slot[at]) {
		*ret_expr = t->nleaves + t->slot[at];
		return TT_OK;
	}

	struct expr_node *node = &t->node[t->count];
	uint64_t *set = t->set + (size_t)t->count * t->words;

	*node = (struct expr_node){ t->nchildren, n, tt_expr_block(t, child[0]), hash };
	memset(set, 0, t->words * sizeof(*set));
	for (uint32_t i = 0; i < n; i++) {
		*ret_what = tt_expr_block(t, child[i]);
		if (*ret_what != node->block)
			return TT_EXPR_MIXED;
		int twice = add_ranks(t, child[i], set);

		*ret_what = (uint32_t)twice;
		if (twice >= 0)
			return TT_EXPR_TWICE;
	}
	memcpy(t->child + t->nchildren, child, n * sizeof(*child));
	t->nchildren += n;
	t->slot[at] = ++t->count;
	*ret_expr = t->nleaves + t->count;
	return TT_OK;
}
