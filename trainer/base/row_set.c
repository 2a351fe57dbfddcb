/* row_set.c - rows of a table as a set (row_set.h) */
#include "trainer/base/row_set.h"

#include <stdlib.h>

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

size_t train_rows_sort(uint32_t *row, size_t n)
{
	size_t kept = 0;

	qsort(row, n, sizeof(*row), by_number);
	for (size_t i = 0; i < n; i++)
		if (!i || row[i] != row[i - 1])
			row[kept++] = row[i];
	return kept;
}

size_t train_rows_find(const uint32_t *row, size_t n, uint32_t number)
{
	size_t first = 0;

	while (n > 1) {
		size_t half = n / 2;

		first += row[first + half] <= number ? half : 0;
		n -= half;
	}
	return first;
}
