/* test_sparse_rows.c - packed rows of a table; sparse.sh tests trainings */
#include <criterion/criterion.h>
#include <string.h>

#include "trainer/strategy/shards.h"
#include "trainer/strategy/sparse_rows.h"

enum { ROWS = 5, WIDTH = 3, WORDS = 1 + 2 * (1 + WIDTH) };

TestSuite(sparse_rows, .timeout = 60);

/* table = the rows of a message, 0 where it has none. Returns the words that it read; 0: it is none. */
static size_t unpack(const uint32_t *message, size_t words, float *table)
{
	struct train_row_list l;
	size_t read = train_row_list_open(&l, message, words, ROWS, WIDTH);

	memset(table, 0, ROWS * WIDTH * sizeof(*table));
	for (uint32_t i = 0; read && i < l.n; i++)
		memcpy(table + l.row[i] * WIDTH, l.value + i * WIDTH, WIDTH * sizeof(*table));
	return read;
}

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
	cr_assert_eq(unpack(message, WORDS, back), WORDS);
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
		cr_assert_eq(unpack(same, words, back), words);
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
		cr_expect_eq(unpack(message, WORDS, back), 0, "word %u = %u", damage[i].word,
			     damage[i].value);
	}
	train_rows_pack(table, ROWS, WIDTH, message);
	for (size_t words = 0; words < WORDS; words++)
		cr_expect_eq(unpack(message, words, back), 0);
}

/* ---- rows on servers ---------------------------------------------------------------------------- */

/* A table of 10 rows of 3 floats, and 7 floats behind it. */
static struct train_tensor tensors[] = {
	{ .rows = 10, .columns = WIDTH, .sparse = true, .at = 0, .count = 30 },
	{ .rows = 1, .columns = 7, .at = 30, .count = 7 },
};
static const struct train_model model = { .tensors = tensors, .ntensors = 2, .parameters = 37 };

/* Every float of the array is on one server, at the place that the shard says. */
static void check_places(const struct train_shards *s)
{
	const uint32_t touched[] = { 0, 3, 4, 9 };
	float array[37], shard[37], back[37] = { 0 };
	unsigned found = 0;

	for (int i = 0; i < 37; i++)
		array[i] = (float)i + 1;
	for (int server = 0; server < s->servers; server++) {
		uint32_t row[4];
		size_t n = train_shards_rows(s, server, WIDTH, touched, 4, row), from = 0;

		train_shards_pack(s, server, array, shard);
		for (size_t at = 0; at < s->count[server]; at++)
			cr_expect_eq(array[train_shards_place(s, server, at)], shard[at]);
		for (size_t i = 0; i < n; i++) {
			cr_expect(row[i] < s->rows[server] && (!i || row[i] > row[i - 1]));
			found += 1u << train_shards_place(s, server, row[i] * WIDTH) / WIDTH;
		}
		from = s->rows[server] * WIDTH;
		train_shards_unpack_from(s, server, from, shard + from, back);
	}
	cr_expect_eq(found, 1 << 0 | 1 << 3 | 1 << 4 | 1 << 9);
	for (int i = 0; i < 37; i++)
		cr_expect_eq(back[i], i < 30 ? 0 : array[i]);
}

Test(sparse_rows, rows_and_what_follows_them_have_their_places_on_servers)
{
	for (int servers = 1; servers < 12; servers++) {
		struct train_shards s;

		cr_assert_eq(train_shards_of_ranges(&s, &model, servers), 0);
		check_places(&s);
		train_shards_close(&s);
		cr_assert_eq(train_shards_of_variables(&s, &model, servers), 0);
		check_places(&s);
		train_shards_close(&s);
	}
}

Test(sparse_rows, rows_are_sorted_and_single)
{
	uint32_t row[] = { 7, 3, 7, 0, 3, 9 };

	cr_assert_eq(train_rows_sort(row, 6), 4);
	cr_expect(row[0] == 0 && row[1] == 3 && row[2] == 7 && row[3] == 9);
	cr_expect_eq(train_rows_sort(row, 0), 0);
}
