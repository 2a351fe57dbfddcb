/* arrivals.c - in which order a server took what came (arrivals.h) */
#include "arrivals.h"

#include "fail.h"

static FILE *open_log(const char *path, int number, const char *mode)
{
	char name[4096];

	snprintf(name, sizeof(name), "%s.%d", path, number);
	return fopen(name, mode);
}

int tt_arrivals_open(struct tt_arrivals *a, const struct tt_config *c, int number)
{
	*a = (struct tt_arrivals){ .path = c->record, .number = number };
	if (c->record && !(a->record = open_log(c->record, number, "we")))
		return tt_train_fail(TT_TRAIN_FAILED, "--record %s.%d: %m", c->record, number);
	if (c->replay && !(a->replay = open_log(c->replay, number, "re")))
		return tt_train_fail(TT_TRAIN_FAILED, "--replay %s.%d: %m", c->replay, number);
	return TT_TRAIN_OK;
}

int tt_arrivals_check(const struct tt_config *c)
{
	for (int number = 0; c->replay && number < c->servers; number++) {
		FILE *f = open_log(c->replay, number, "re");

		if (!f)
			return tt_train_fail(TT_TRAIN_USAGE,
					     "--replay %s: %m: %s.%d; --ps is to be as it was when "
					     "it was recorded", c->replay, c->replay, number);
		fclose(f);
	}
	return TT_TRAIN_OK;
}

int tt_arrivals_close(struct tt_arrivals *a)
{
	bool bad = a->record && ferror(a->record);
	int rc = TT_TRAIN_OK;

	if (a->record && (fclose(a->record) || bad))
		rc = tt_train_fail(TT_TRAIN_FAILED,
				   "--record %s.%d: cannot be written to its end: %m", a->path,
				   a->number);
	if (a->replay)
		fclose(a->replay);
	a->record = a->replay = NULL;
	return rc;
}

void tt_arrivals_note(struct tt_arrivals *a, int tag, int worker)
{
	if (a->record)
		fprintf(a->record, "%d %d\n", tag, worker);
}

bool tt_arrivals_next(struct tt_arrivals *a, int *ret_tag, int *ret_worker)
{
	return a->replay && fscanf(a->replay, "%d %d", ret_tag, ret_worker) == 2;
}
