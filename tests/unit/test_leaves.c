/*
 * test_leaves.c - sums over leaves: the bits of the definition for any number of ranks
 *
 * test_model.c tests gradients over leaves.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/random_floats.h"
#include "trainer/model/leaves.h"

TestSuite(leaves, .timeout = 60);

static struct train_device host = { .ops = &train_device_cpu };
static const enum train_canonical kinds[] = { TRAIN_CANONICAL_TREE, TRAIN_CANONICAL_CHAIN };

/* The sum of leaves first..first+wide-1 of `count`, by the expressions of leaves.h. */
static float by_definition(enum train_canonical kind, const float *leaf, size_t first, size_t wide,
			   size_t count)
{
	float sum = leaf[0];

	if (kind == TRAIN_CANONICAL_CHAIN) {
		for (size_t i = 1; i < count; i++)
			sum += leaf[i];
		return sum;
	}
	if (wide == 1)
		return leaf[first];
	sum = by_definition(kind, leaf, first, wide / 2, count);
	if (first + wide / 2 < count)
		sum += by_definition(kind, leaf, first + wide / 2, wide / 2, count);
	return sum;
}

Test(leaves, the_shares_of_any_number_of_ranks_cover_the_batch)
{
	for (int kind = TRAIN_CANONICAL_OFF; kind <= TRAIN_CANONICAL_FIXED64; kind++) {
		for (int ranks = 1; ranks < 14; ranks++) {
			struct train_leaves l = train_leaves_of((enum train_canonical)kind, 103, 10, ranks);
			size_t rows = 0;

			for (int r = 0; r < ranks; r++) {
				struct train_node at =
					train_leaves_rows(&l, train_leaves_share(&l, r, ranks));

				cr_assert_eq(at.first, rows);
				cr_assert_geq(at.last, rows);
				rows = at.last;
			}
			cr_assert_eq(rows, 103);
		}
	}
}

/* Fold the leaves of `ranks` ranks: first the leaves of each node alone, then all nodes. */
static float fold_over(struct train_leaves *l, const float *leaf, int ranks)
{
	struct train_node all[64];
	void *at[64];
	float sums[64];
	size_t n = 0;

	for (int r = 0; r < ranks; r++) {
		struct train_node run = train_leaves_share(l, r, ranks);
		size_t own = train_leaves_nodes(l, run, all + n);

		for (size_t i = n; i < n + own; i++) {
			struct train_node one[64];
			void *leaf_at[64];
			float copy[64];
			size_t many = all[i].last - all[i].first;

			for (size_t k = 0; k < many; k++) {
				copy[k] = leaf[all[i].first + k];
				one[k] = (struct train_node){ all[i].first + k, all[i].first + k + 1 };
				leaf_at[k] = &copy[k];
			}
			train_leaves_fold(l, &host, one, leaf_at, &many, 1);
			cr_assert_eq(many, 1, "the leaves of a node do not fold into one");
			sums[i] = copy[0];
			at[i] = &sums[i];
		}
		n += own;
	}
	train_leaves_fold(l, &host, all, at, &n, 1);
	cr_assert_eq(n, 1);
	cr_assert_eq(all[0].last - all[0].first, l->count);
	return *(float *)at[0];
}

Test(leaves, the_sum_has_the_bits_of_its_definition_for_any_number_of_ranks)
{
	float leaf[40];
	size_t differ = 0;

	for (size_t i = 0; i < 40; i++)
		leaf[i] = random_float(12, i);
	for (size_t count = 1; count <= 40; count++) {
		float want[2];

		for (int k = 0; k < 2; k++) {
			struct train_leaves l = train_leaves_of(kinds[k], count, 1, 1);

			want[k] = by_definition(kinds[k], leaf, 0, 64, count);
			for (int ranks = 1; ranks < 44; ranks++) {
				float got = fold_over(&l, leaf, ranks);

				cr_assert_eq(memcmp(&got, &want[k], sizeof(got)), 0,
					     "kind %d, %zu leaves, %d ranks", kinds[k], count,
					     ranks);
			}
		}
		differ += memcmp(&want[0], &want[1], sizeof(want[0])) != 0;
	}
	cr_expect_gt(differ, 20, "tree and chain do not differ");
}
