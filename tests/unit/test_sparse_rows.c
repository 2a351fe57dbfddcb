/* test_sparse_rows.c - packed rows of a table; sparse.sh tests trainings */
#include <criterion/criterion.h>
#include <string.h>

#include "trainer/strategy/sparse_rows.h"

enum { ROWS = 5, WIDTH = 3, WORDS = 1 + 2 * (1 + WIDTH) };

TestSuite(sparse_rows, .timeout = 60);

/* Rows 1 and 4; the first element of row 1 is -0. */
static const float table[ROWS * WIDTH] = { [3] = -0.0f, [12] = 1.0f, [14] = 2.0f };

Test(sparse_rows, a_table_has_its_bits_after_a_message)
{
	uint32_t message[1 + ROWS * (1 + WIDTH)];
	float back[ROWS * WIDTH];

	cr_expect_eq(train_rows_pack(table, ROWS, WIDTH, NULL), WORDS);
	cr_assert_eq(train_rows_pack(table, ROWS, WIDTH, message), WORDS);
	cr_expect(message[0] == 2 && message[1] == 1 && message[2] == 4);
	memset(back, 0xff, sizeof(back));
	cr_assert_eq(train_rows_unpack(message, WORDS, ROWS, WIDTH, back), WORDS);
	cr_expect_arr_eq(back, table, sizeof(back));
}

Test(sparse_rows, a_table_is_packed_in_its_own_memory)
{
	uint32_t message[1 + ROWS * (1 + WIDTH)], same[1 + ROWS * (1 + WIDTH)];
	float *inside = (float *)same + 1 + ROWS, all[ROWS * WIDTH], back[ROWS * WIDTH];

	for (int i = 0; i < ROWS * WIDTH; i++)
		all[i] = (float)i + 1;
	for (int i = 0; i < 2; i++) {
		const float *from = i ? all : table;
		size_t words = train_rows_pack(from, ROWS, WIDTH, message);

		memcpy(inside, from, sizeof(all));
		cr_assert_eq(train_rows_pack(inside, ROWS, WIDTH, same), words);
		cr_expect_arr_eq(same, message, words * sizeof(*message));
		cr_assert_eq(train_rows_unpack(same, words, ROWS, WIDTH, back), words);
		cr_expect_arr_eq(back, from, sizeof(back));
	}
}

Test(sparse_rows, a_damaged_message_is_refused)
{
	static const struct {
		uint32_t word, value;
	} damage[] = {
		{ 0, 3 }, { 0, ROWS + 1 }, { 0, UINT32_MAX }, { 1, 4 }, { 1, ROWS }, { 2, 1 }
	};
	uint32_t message[WORDS];
	float back[ROWS * WIDTH];

	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
		train_rows_pack(table, ROWS, WIDTH, message);
		message[damage[i].word] = damage[i].value;
		cr_expect_eq(train_rows_unpack(message, WORDS, ROWS, WIDTH, back), 0,
			     "word %u = %u", damage[i].word, damage[i].value);
	}
	train_rows_pack(table, ROWS, WIDTH, message);
	for (size_t words = 0; words < WORDS; words++)
		cr_expect_eq(train_rows_unpack(message, words, ROWS, WIDTH, back), 0);
}
