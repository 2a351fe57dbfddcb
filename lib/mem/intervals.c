/*
 * intervals.c - interval set (intervals.h): a treap by start, each node with the largest end below
 *
 * Source: Seidel and Aragon, "Randomized search trees", Algorithmica 16, 1996. Priorities are a
 * hash of the node's address, so equal programs build equal trees. Of all ranges that start at or
 * before an address, the one with the largest end contains every range that any of them contains;
 * so a search follows one path from the root.
 */
#include "mem/intervals.h"

static bool before(const struct tt_interval *a, const struct tt_interval *b)
{
	return a->start < b->start || (a->start == b->start && a < b);
}

static void refresh(struct tt_interval *n)
{
	n->farthest = n;
	if (n->left && n->left->farthest->end > n->farthest->end)
		n->farthest = n->left->farthest;
	if (n->right && n->right->farthest->end > n->farthest->end)
		n->farthest = n->right->farthest;
}

/* Splits a tree into the ranges before i and the others. */
static void split(struct tt_interval *n, const struct tt_interval *i, struct tt_interval **ret_low,
		  struct tt_interval **ret_high)
{
	if (!n) {
		*ret_low = *ret_high = NULL;
		return;
	}
	if (before(n, i)) {
		split(n->right, i, &n->right, ret_high);
		*ret_low = n;
	} else {
		split(n->left, i, ret_low, &n->left);
		*ret_high = n;
	}
	refresh(n);
}

/* Joins two trees; all ranges of low are before all of high. */
static struct tt_interval *join(struct tt_interval *low, struct tt_interval *high)
{
	if (!low || !high)
		return low ? low : high;
	if (low->priority > high->priority) {
		low->right = join(low->right, high);
		refresh(low);
		return low;
	}
	high->left = join(low, high->left);
	refresh(high);
	return high;
}

static void add(struct tt_interval **at, struct tt_interval *i)
{
	struct tt_interval *n = *at;

	if (!n || n->priority < i->priority) {
		split(n, i, &i->left, &i->right);
		*at = i;
	} else {
		add(before(i, n) ? &n->left : &n->right, i);
	}
	refresh(*at);
}

void tt_intervals_add(struct tt_interval **root, struct tt_interval *i)
{
	i->priority = ((uintptr_t)i ^ i->start << 20) * 0x9e3779b97f4a7c15u;
	i->priority = (i->priority ^ i->priority >> 32) * 0xd6e8feb86659fd93u;
	i->left = i->right = NULL;
	add(root, i);
}

void tt_intervals_remove(struct tt_interval **at, struct tt_interval *i)
{
	struct tt_interval *n = *at;

	if (n == i) {
		*at = join(i->left, i->right);
		return;
	}
	tt_intervals_remove(before(i, n) ? &n->left : &n->right, i);
	refresh(n);
}

struct tt_interval *tt_intervals_holding(struct tt_interval *root, uintptr_t start, uintptr_t end)
{
	struct tt_interval *best = NULL;

	for (struct tt_interval *n = root; n;) {
		if (n->start > start) {
			n = n->left;
			continue;
		}
		if (!best || n->end > best->end)
			best = n;
		if (n->left && n->left->farthest->end > best->end)
			best = n->left->farthest;
		n = n->right;
	}
	return best && best->end >= end ? best : NULL;
}
