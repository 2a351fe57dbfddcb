/*
 * test_holders.c - in a large job only holders have the business cards of all ranks, and others ask them
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"
#include "tests/support/harness_control.h"

#define RANKS 40
#define LIMIT_MS 20000

static int fail(struct control_job *m, int rank)
{
	snprintf(m->report[rank].text, sizeof(m->report[rank].text), "%s", tt_error_text());
	return 1;
}

static int run(struct control_job *m, int first, int every)
{
	int wrong = 0;

	tt_large = (struct tt_large){ .above = 1, .holders = { .first = first, .every = every } };
	control_job_run(m);
	for (int r = 0; r < m->n; r++)
		if (m->report[r].rc > 0) {
			fprintf(stderr, "# rank %d: %d: %s\n", r, m->report[r].rc,
				m->report[r].text);
			wrong++;
		}
	return wrong;
}

static bool is_known(struct tt_control *ctl, int rank)
{
	struct tt_business_card record;

	tt_directory_get(&ctl->ep->peers.directory, rank, &record);
	return record.port;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Each rank connects to one that is neither a neighbor nor a holder. */
static int connect_far(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_directory *d = &ctl->ep->peers.directory;
	bool holds = tt_is_holder(d->holders, rank);
	int far = (rank + 18) % m->n, wrong = holds != (d->table != NULL);
	bool near = tt_control_is_neighbor(ctl, far);
	atomic_bool stop = false;

	if (!holds && !near && !tt_is_holder(d->holders, far))
		wrong += is_known(ctl, far);
	if (tt_control_reach_rank(ctl, far, tt_deadline_ns(LIMIT_MS), &stop))
		wrong += fail(m, rank);
	wrong += !near && !is_known(ctl, far);
	/* no holder leaves before */
	if (tt_control_allgather(ctl, NULL, 0, NULL, tt_deadline_ns(LIMIT_MS)))
		wrong += fail(m, rank);
	return wrong;
}

Test(holders, ranks_connect_to_ranks_that_only_holders_know, .timeout = 120)
{
	struct control_job m = { .n = RANKS, .body = connect_far };

	cr_assert_eq(run(&m, 2, 16), 0);
}

/* A holder's answer is rank 0's word, or none. */
static int alter_group(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_business_card record;
	size_t bytes;
	const uint8_t *group = tt_directory_group(&ctl->ep->peers.directory, 20, &bytes);
	uint8_t *copy;
	int wrong = 0;

	(void)m;
	if (rank != 16)
		return rank && rank != 32 && group;
	copy = malloc(bytes);
	memcpy(copy, group, bytes);
	wrong += tt_group_check(ctl->ep, 20 / TT_GROUP, copy, bytes) != 1;
	wrong += !tt_directory_of_group((struct tt_reader){ .at = copy, .left = bytes }, 20,
					&record);
	wrong += tt_group_check(ctl->ep, 0, copy, bytes) != 0;
	for (size_t i = 0; i < bytes; i++) {
		copy[i] ^= 1;
		wrong += tt_group_check(ctl->ep, 20 / TT_GROUP, copy, bytes) != 0;
		copy[i] ^= 1;
	}
	free(copy);
	return wrong;
}

Test(holders, no_byte_of_an_answer_can_be_altered, .timeout = 120)
{
	struct control_job m = { .n = RANKS, .body = alter_group };

	cr_assert_eq(run(&m, 1, 16), 0);
}

/* ---- holders that are gone ------------------------------------------------------------------- */

/* Is each holder that dies known to be dead? One that still lives could answer. */
static bool await_deaths(const struct control_job *m, struct tt_control *ctl, int survivor)
{
	struct tt_holders holders = ctl->ep->peers.directory.holders;
	uint64_t deadline = tt_deadline_ns(LIMIT_MS);
	bool dead = false;

	while (!dead && tt_now_ns() < deadline) {
		sleep_ms(1);
		dead = true;
		tt_control_lock(ctl);
		for (int r = 0; r < m->n; r++)
			dead &= r == survivor || !tt_is_holder(holders, r) ||
				tt_set_has(ctl->departed.dead, r);
		tt_control_unlock(ctl);
	}
	return dead;
}

/* All holders but one die, or all; then each rank connects to one that it does not know. */
static int lose_holders(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_holders holders = ctl->ep->peers.directory.holders;
	bool lives = rank == *(const int *)m->arg, none = *(const int *)m->arg < 0;
	atomic_bool stop = false;
	int far = (rank + 18) % m->n, rc, wrong = 0;

	m->report[rank].progress = 1;
	if (!control_job_all_reached(m, 1, LIMIT_MS))
		return 1;
	if (tt_is_holder(holders, rank) && !lives)
		raise(SIGKILL);
	wrong += !await_deaths(m, ctl, *(const int *)m->arg);
	if (!is_known(ctl, far) && !tt_control_is_neighbor(ctl, far)) {
		rc = tt_control_reach_rank(ctl, far, tt_deadline_ns(LIMIT_MS), &stop);
		if (none ? rc != TT_TIMEOUT || !strstr(tt_error_text(), "none of the 3 ranks") : rc)
			wrong += fail(m, rank);
	}
	m->report[rank].progress = 2;
	for (int r = 0; r < m->n; r++) /* whom others connect to */
		wrong += !tt_is_holder(holders, r) && !control_job_reached(m, r, 2, LIMIT_MS);
	return wrong;
}

Test(holders, one_that_lives_is_found, .timeout = 120)
{
	struct control_job m = { .n = RANKS, .body = lose_holders, .arg = &(int){ 16 } };

	cr_assert_eq(run(&m, 1, 16), 0);
}

Test(holders, without_any_the_error_says_so, .timeout = 120)
{
	struct control_job m = { .n = RANKS, .body = lose_holders, .arg = &(int){ -1 } };

	cr_assert_eq(run(&m, 1, 16), 0);
}
