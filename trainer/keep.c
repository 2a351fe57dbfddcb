/* keep.c - the checkpoints that stay (keep.h) */
#include "trainer/keep.h"

#include "tools/fresh_file.h"
#include "trainer/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Gives the file another name, which may exist. */
static int name_also(const char *path, const char *name)
{
	char fresh[PATH_MAX + 8];
	int error;

	snprintf(fresh, sizeof(fresh), "%s.new", name);
	unlink(fresh);
	if (!link(path, fresh) && !rename(fresh, name))
		return TRAIN_OK;
	error = errno;
	unlink(fresh);
	errno = error;
	return train_fail(TRAIN_UNWRITTEN, "--keep: %s cannot be another name of %s: %m", name,
			  path);
}

/* ---- the last ones ------------------------------------------------------------------------------ */

/* The step of an entry "NAME-STEP"; 0: another file. */
static uint64_t step_of(const char *entry, const char *name)
{
	size_t length = strlen(name);
	char *end;
	uint64_t step;

	if (strncmp(entry, name, length) || entry[length] != '-' || entry[length + 1] < '1' ||
	    entry[length + 1] > '9')
		return 0;
	step = strtoull(entry + length + 1, &end, 10);
	return *end ? 0 : step;
}

/* The oldest checkpoint of a directory, and how many there are; a step beyond `newest` belongs to a training that was
 * taken back. */
static uint64_t oldest(const char *directory, const char *name, uint64_t newest, int *ret_count)
{
	DIR *d = opendir(directory);
	struct dirent *entry;
	uint64_t least = 0;

	*ret_count = 0;
	while (d && (entry = readdir(d))) {
		uint64_t step = step_of(entry->d_name, name);

		if (!step || step > newest)
			continue;
		least = !least || step < least ? step : least;
		++*ret_count;
	}
	if (d)
		closedir(d);
	return least;
}

static void remove_older(const char *path, uint64_t newest, int64_t keep)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char directory[PATH_MAX], old[PATH_MAX + 24];
	int count;

	snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) + 1 : 1,
		 slash ? path : ".");
	for (;;) {
		uint64_t step = oldest(directory, name, newest, &count);

		snprintf(old, sizeof(old), "%s-%" PRIu64, path, step);
		if (count <= keep || unlink(old))
			return;
	}
}

/* ---- the best ----------------------------------------------------------------------------------- */

/* Less is better. Of no earlier checkpoint: INFINITY. */
static double best_so_far(const char *json)
{
	FILE *f = fopen(json, "re");
	uint64_t step;
	double best;
	bool found = f && fscanf(f, "{\"step\":%" SCNu64 ",\"loss\":%lf", &step, &best) == 2;

	if (f)
		fclose(f);
	return found ? best : 1.0 / 0.0;
}

/* The result of step `step` is no worse than that of FILE-best.json. */
static bool is_best(const struct train_rank *t, const char *json, double value)
{
	/* a file of an earlier training is replaced */
	return !(t->first_step || t->saved) || value < best_so_far(json);
}

/* Further names of a file: its step, and "best". */
static int keep_file(const char *path, uint64_t step, int64_t keep, bool best)
{
	char name[PATH_MAX];
	int rc;

	snprintf(name, sizeof(name), "%s-%" PRIu64, path, step);
	rc = name_also(path, name);
	if (rc)
		return rc;
	remove_older(path, step, keep);
	snprintf(name, sizeof(name), "%s-best", path);
	return best ? name_also(path, name) : TRAIN_OK;
}

int train_keep(const struct train_rank *t, const struct train_step_record *record, bool exported)
{
	const struct train_config *c = t->config;
	double value = t->data->plays ? -record->accuracy : record->test_loss;
	char json[PATH_MAX + 16], text[160];
	bool best;
	int n, rc, export_rc = TRAIN_OK;

	snprintf(json, sizeof(json), "%s-best.json", c->save);
	best = is_best(t, json, value);
	rc = keep_file(c->save, record->step, c->keep, best);
	if (!rc && exported)
		export_rc = keep_file(c->export, record->step, c->keep, best);
	if (rc || !best)
		return rc ? rc : export_rc;
	n = snprintf(text, sizeof(text), "{\"step\":%" PRIu64 ",\"loss\":%.9g,\"accuracy\":%.6f}\n",
		     record->step, value, record->accuracy);
	if (!tool_file_write(json, text, (size_t)n))
		return export_rc;
	return train_fail(TRAIN_UNWRITTEN, "--keep: %s cannot be written: %m", json);
}
