/* arrival_order.c - record and replay a server's order of messages (arrival_order.h) */
#include "trainer/strategy/arrival_order.h"

#include "tools/plural.h"
#include "trainer/base/fail.h"
#include "trainer/rank/due_steps.h"

#include <inttypes.h>

static FILE *open_log(const char *path, int number, const char *mode)
{
	char name[4096];

	snprintf(name, sizeof(name), "%s.%d", path, number);
	return fopen(name, mode);
}

static uint64_t steps_of(const struct train_rank *t)
{
	return train_steps(t) - t->first_step;
}

void train_arrival_order_write_head(FILE *record, const struct train_rank *t, int workers)
{
	fprintf(record, "# %d workers, %" PRIu64 " steps\n", workers, steps_of(t));
}

int train_arrival_order_check_head(FILE *replay, const char *path, const struct train_rank *t,
				   int workers)
{
	uint64_t steps = 0;
	int recorded = 0;

	if (fscanf(replay, "# %d workers, %" SCNu64 " steps", &recorded, &steps) != 2)
		return train_fail(TRAIN_USAGE, "--replay %s: was not written by --record", path);
	if (recorded != workers || steps != steps_of(t))
		return train_fail(TRAIN_USAGE,
				  "--replay %s: %d worker%s and %" PRIu64 " step%s were recorded, "
				  "this training has %d and %" PRIu64 "; use the recorded numbers",
				  path, recorded, tool_s(recorded), steps, tool_s((long long)steps),
				  workers, steps_of(t));
	return TRAIN_OK;
}

int train_arrival_order_match(const struct train_rank *t, int workers)
{
	const char *path = t->config->replay;
	FILE *f = path ? open_log(path, 0, "re") : NULL;
	int rc = f ? train_arrival_order_check_head(f, path, t, workers) : TRAIN_OK;

	if (f)
		fclose(f);
	return rc;
}

int train_arrival_order_open(struct train_arrival_order *a, const struct train_rank *t, int workers,
			     int number)
{
	const struct train_config *c = t->config;

	*a = (struct train_arrival_order){ .path = c->record, .number = number };
	if (c->record && !(a->record = open_log(c->record, number, "we")))
		return train_fail(TRAIN_FAILED, "--record %s.%d: %m", c->record, number);
	if (c->replay && !(a->replay = open_log(c->replay, number, "re")))
		return train_fail(TRAIN_FAILED, "--replay %s.%d: %m", c->replay, number);
	if (a->record)
		train_arrival_order_write_head(a->record, t, workers);
	return a->replay ? train_arrival_order_check_head(a->replay, c->replay, t, workers)
			 : TRAIN_OK;
}

/* Records are begun here; the servers write them again. */
static int check_records(const struct train_config *c)
{
	for (int number = 0; c->record && number < c->servers; number++) {
		FILE *f = open_log(c->record, number, "ae");

		if (!f)
			return train_fail(TRAIN_USAGE,
					  "--record %s.%d: %m; give a file that can be written",
					  c->record, number);
		fclose(f);
	}
	return TRAIN_OK;
}

int train_arrival_order_check(const struct train_config *c)
{
	for (int number = 0; c->replay && number < c->servers; number++) {
		FILE *f = open_log(c->replay, number, "re");

		if (!f)
			return train_fail(TRAIN_USAGE,
					  "--replay %s: %m: %s.%d; --ps must have the value of "
					  "the recording",
					  c->replay, c->replay, number);
		fclose(f);
	}
	return check_records(c);
}

int train_arrival_order_close(struct train_arrival_order *a)
{
	bool bad = a->record && ferror(a->record);
	int rc = TRAIN_OK;

	if (a->record && (fclose(a->record) || bad))
		rc = train_fail(TRAIN_FAILED, "--record %s.%d: cannot be written completely: %m",
				a->path, a->number);
	if (a->replay)
		fclose(a->replay);
	a->record = a->replay = NULL;
	return rc;
}

void train_arrival_order_note(struct train_arrival_order *a, int tag, int worker)
{
	if (a->record)
		fprintf(a->record, "%d %d\n", tag, worker);
}

bool train_arrival_order_next(struct train_arrival_order *a, int *ret_tag, int *ret_worker)
{
	return a->replay && fscanf(a->replay, "%d %d", ret_tag, ret_worker) == 2;
}
