/*
 * test_wrong_peers.c - a rank of the job sends values that do not exist: the other ranks check what
 * they use as an index or a text, and name that rank and its value
 *
 * Rank 1 takes part in the two exchanges of a split by hand.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "comm/paths.h"
#include "tests/support/must.h"

struct lie {
	char transport[16], algo[64];
	int32_t unreached, nic_class;
	uint64_t tuning_bytes; /* of rank 0 of the split, which rank 1 is then */
	const char *expected;  /* in the error text of rank 0 */
};

static int split_with_a_liar(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct lie *lie = arg;
	struct tt_rank_facts facts = { .tuning_bytes = lie->tuning_bytes };
	struct tt_path_facts path = { lie->unreached, lie->nic_class, 0 };
	struct tt_announcement none = { .fd = -1 };
	struct tt_parts all[TT_FIRST_COLUMNS], paths = { .mine = &path, .bytes = sizeof(path) };
	struct tt_members members;
	struct tt_control *ctl = NULL;
	tuttiComm_t child = NULL;

	(void)n;
	if (rank == 0) {
		tuttiResult_t rc = tuttiCommSplit(*comm, 0, 0, &child, NULL);

		if (!rc || !strstr(tuttiGetLastError(NULL), lie->expected))
			fprintf(stderr, "rank 0: %d %s\n", rc, tuttiGetLastError(NULL));
		return !rc || !strstr(tuttiGetLastError(NULL), lie->expected);
	}
	memcpy(facts.transport, lie->transport, sizeof(facts.transport));
	memcpy(facts.algo, lie->algo, sizeof(facts.algo));
	tt_comm_columns(&facts, &none, all);
	WANT(!tt_control_split((*comm)->ctl, 0, lie->tuning_bytes ? -1 : 1, 0, 10000, all,
			       TT_FIRST_COLUMNS, &ctl, &members));
	tt_comm_free_columns(all);
	tt_rank_map_free(&members.map);
	if (!tt_control_agree((*comm)->ctl, 0, "the split", &paths, tt_deadline_ns(20000)))
		tt_parts_free(&paths);
	tt_control_leave(ctl);
	return 0;
}

static void split(struct lie lie)
{
	struct ranks r = { .n = 2, .transport = "tcp", .limit_s = 40, .arg = &lie };

	cr_expect_eq(ranks_run(&r, split_with_a_liar), 0, "want %s", lie.expected);
}

Test(wrong_peers, a_link_class_that_does_not_exist_is_refused, .timeout = 60)
{
	split((struct lie){ "tcp", "auto", -1, 77, 0, "rank 1 sent link class 77" });
	split((struct lie){ "tcp", "auto", -1, -3, 0, "rank 1 sent link class -3" });
	split((struct lie){ "tcp", "auto", 9, 0, 0, "unreached rank 9" });
}

Test(wrong_peers, a_cost_table_of_a_size_that_none_has_is_refused, .timeout = 60)
{
	split((struct lie){ "tcp", "auto", -1, 0, 1ull << 60, "has 1152921504606846976 bytes" });
	split((struct lie){ "tcp", "auto", -1, 0, 1, "has 1 bytes" });
}

Test(wrong_peers, names_without_an_end_are_cut, .timeout = 60)
{
	struct lie lie = { .expected = "rank 1 with transport xxxxxxxxxxxxxxx, algo y" };

	memset(lie.transport, 'x', sizeof(lie.transport));
	memset(lie.algo, 'y', sizeof(lie.algo));
	split(lie);
}
