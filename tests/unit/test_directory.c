/*
 * test_directory.c - business cards that are packed into a table are the same when they are read
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/directory.h"

#define RANKS 100

/* Three ranks on a host, with one or two addresses; every host number that is a multiple of 5 is another
 * network namespace than its host. */
static struct tt_business_card record_of(int rank)
{
	int host = rank / 3;
	struct tt_business_card c = { .rank = rank,
				      .port = 1 + rank,
				      .pid = 4000000u + (uint32_t)rank,
				      .host = 7 + (uint64_t)host,
				      .netns = 7 + (uint64_t)host + (host % 5 == 0),
				      .naddresses = 1 + host % 2 };

	snprintf(c.name, sizeof(c.name), "host%d", host);
	for (int i = 0; i < c.naddresses; i++) {
		c.addresses[i].family = i ? 6 : 4;
		c.addresses[i].prefix = (uint8_t)(20 + i);
		memset(c.addresses[i].bytes, host, i ? 16 : 4);
	}
	for (int i = 0; i < TT_KEY_KNOWN; i++)
		c.public_key[i] = (uint8_t)(rank + i);
	return c;
}

static void fill(struct tt_directory *d)
{
	cr_assert(tt_directory_make(d, RANKS));
	for (int rank = RANKS - 1; rank >= 0; rank--) {
		struct tt_business_card c = record_of(rank);

		cr_assert(tt_directory_put(d, &c));
	}
}

Test(directory, a_table_has_the_records_of_all_ranks, .timeout = 10)
{
	struct tt_writer table = { 0 };
	struct tt_business_card read, wanted;
	struct tt_directory d;
	uint64_t hosts[RANKS];
	size_t before;

	fill(&d);
	before = tt_directory_memory(&d);
	tt_directory_pack(&d, 0, RANKS, &table);
	cr_assert(!table.failed);
	cr_assert_eq(tt_directory_read(&d, table.data, table.have), 1);
	tt_directory_hosts(&d, hosts);
	for (int rank = 0; rank < RANKS; rank++) {
		tt_directory_get(&d, rank, &read);
		wanted = record_of(rank);
		cr_expect(!memcmp(&read, &wanted, sizeof(read)), "rank %d", rank);
		cr_expect_eq(hosts[rank], wanted.host);
	}
	cr_expect_lt(2 * tt_directory_memory(&d), before);
	tt_directory_free(&d);
	free(table.data);
}

Test(directory, a_malformed_table_changes_nothing, .timeout = 10)
{
	struct tt_business_card read, wanted = record_of(50);
	struct tt_writer table = { 0 };
	struct tt_directory d;

	fill(&d);
	tt_directory_pack(&d, 0, RANKS, &table);
	for (size_t bytes = 0; bytes < table.have; bytes++)
		cr_expect_eq(tt_directory_read(&d, table.data, bytes), 0);
	table.data[0] |= 1; /* rank 0 is like the rank before it */
	cr_expect_eq(tt_directory_read(&d, table.data, table.have), 0);
	tt_directory_get(&d, 50, &read);
	cr_expect(!memcmp(&read, &wanted, sizeof(read)));
	tt_directory_free(&d);
	free(table.data);
}

/* In runs of three ranks, and, with only two hosts by turns, as numbers for each run */
static struct tt_business_card placed(int rank, int nhosts)
{
	struct tt_business_card c = record_of(rank);

	if (nhosts)
		c.host = (uint64_t)(rank / 3 % nhosts);
	return c;
}

Test(directory, the_hosts_of_all_ranks_are_bits, .timeout = 10)
{
	for (int nhosts = 0; nhosts <= 2; nhosts += 2) {
		struct tt_directory d, read;
		struct tt_writer w = { 0 };
		struct tt_reader r;
		uint64_t hosts[RANKS];

		fill(&d);
		for (int rank = 0; rank < RANKS; rank++) {
			struct tt_business_card c = placed(rank, nhosts);

			cr_assert(tt_directory_put(&d, &c));
		}
		cr_assert(tt_directory_put_hosts(&d, &w));
		cr_expect_leq(w.have, (RANKS + 7) / 8 + 1 + (nhosts ? 8 * (RANKS / 3 + 1) : 0));
		for (size_t bytes = 0; bytes < w.have; bytes++) {
			r = (struct tt_reader){ .at = w.data, .left = bytes };
			cr_assert(tt_directory_make(&read, RANKS));
			cr_expect_eq(tt_directory_get_hosts(&read, &r), 0);
			tt_directory_free(&read);
		}
		r = (struct tt_reader){ .at = w.data, .left = w.have };
		cr_assert(tt_directory_make(&read, RANKS));
		cr_assert_eq(tt_directory_get_hosts(&read, &r), 1);
		cr_expect(tt_get_end(&r));
		tt_directory_hosts(&read, hosts);
		for (int a = 0; a < RANKS; a++)
			for (int b = 0; b < a; b++)
				cr_expect_eq(hosts[a] == hosts[b],
					     placed(a, nhosts).host == placed(b, nhosts).host);
		tt_directory_free(&read);
		tt_directory_free(&d);
		free(w.data);
	}
}
