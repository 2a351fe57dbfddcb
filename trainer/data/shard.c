/* shard.c - the samples that a rank needs, of sets that are not loaded as a whole (shard.h) */
#include "trainer/data/shard.h"

#include "trainer/base/fail.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX

/* The samples that are wanted. */
struct shard_reader {
	uint32_t *place; /* [samples of the set]: index in `to`, or NOWHERE */
	size_t pixels;
	struct train_set *to;
};

static uint8_t *image_of(void *arg, size_t sample)
{
	const struct shard_reader *r = arg;

	return r->place[sample] == NOWHERE ? NULL : r->to->images + r->place[sample] * r->pixels;
}

static void set_label(void *arg, size_t sample, uint8_t label)
{
	const struct shard_reader *r = arg;

	r->to->labels[r->place[sample]] = label;
}

static void close_set(struct train_set *set)
{
	free(set->images);
	free(set->labels);
	*set = (struct train_set){ 0 };
}

/* Room for `samples` samples, in place of those before. */
static int open_set(struct train_set *set, size_t samples, const struct train_data *data)
{
	if (set->images && set->samples == samples)
		return TRAIN_OK;
	close_set(set);
	set->samples = samples;
	set->images = malloc(samples ? samples * data->pixels : 1);
	set->labels = malloc(samples ? samples * data->positions : 1);
	if (!set->images || !set->labels)
		return train_fail(TRAIN_FAILED, "no memory for %zu samples", samples);
	return TRAIN_OK;
}

/* A map of `samples` samples, none of which is wanted. */
static int open_reader(struct shard_reader *r, size_t samples, const struct train_data *data,
		       struct train_set *to)
{
	*r = (struct shard_reader){ malloc(samples * sizeof(*r->place)), data->pixels, to };
	if (!r->place)
		return train_fail(TRAIN_FAILED, "no memory for a map of %zu samples", samples);
	memset(r->place, 0xff, samples * sizeof(*r->place));
	return TRAIN_OK;
}

static int read_set(struct shard_reader *r, const struct train_data *data, bool test)
{
	const struct train_sink sink = { image_of, set_label, r };
	int rc = data->source->each(data, test, &sink);

	free(r->place);
	return rc;
}

/* `order`: the samples of an epoch. */
static int read_epoch(struct train_shard *s, const struct train_data *data,
		      const struct train_sampler *sampler, const uint32_t *order, size_t first,
		      size_t last)
{
	size_t steps = train_sampler_steps(sampler), rows = last - first;
	struct shard_reader r;
	int rc = open_set(&s->train.set, steps * rows, data);

	free(s->numbers);
	s->numbers = malloc(steps * rows * sizeof(*s->numbers) + 1);
	if (!rc && !s->numbers)
		rc = train_fail(TRAIN_FAILED, "no memory for %zu samples", steps * rows);
	if (!rc)
		rc = open_reader(&r, data->train.samples, data, &s->train.set);
	if (rc)
		return rc;
	for (size_t i = 0; i < steps * rows; i++) {
		s->numbers[i] = (uint32_t)i;
		r.place[order[i / rows * sampler->batch + first + i % rows]] = (uint32_t)i;
	}
	return read_set(&r, data, false);
}

int train_shard_rows(struct train_shard *s, const struct train_data *data,
		     struct train_sampler *sampler, uint64_t step, size_t first, size_t last,
		     const uint32_t **ret_samples)
{
	size_t steps = train_sampler_steps(sampler);
	uint64_t epoch = step / steps;
	struct train_shard_part *p = &s->train;
	int rc = TRAIN_OK;

	if (!s->numbers || p->epoch != epoch || p->first != first || p->last != last) {
		rc = read_epoch(s, data, sampler, train_sampler_rows(sampler, epoch * steps, 0),
				first, last);
		p->epoch = epoch;
		p->first = first;
		p->last = last;
	}
	*ret_samples = s->numbers + step % steps * (last - first);
	return rc;
}

int train_shard_test(struct train_shard *s, const struct train_data *data, struct train_share share)
{
	struct train_shard_part *p = &s->test;
	struct shard_reader r;
	int rc;

	if (p->set.images && p->first == share.first && p->last == share.first + share.count)
		return TRAIN_OK;
	rc = open_set(&p->set, share.count, data);
	if (!rc)
		rc = open_reader(&r, data->test.samples, data, &p->set);
	if (rc)
		return rc;
	p->first = share.first;
	p->last = share.first + share.count;
	for (size_t i = 0; i < share.count; i++)
		r.place[share.first + i] = (uint32_t)i;
	return read_set(&r, data, true);
}

size_t train_shard_bytes(const struct train_shard *s, const struct train_data *data)
{
	const struct train_set *train = data->sharded ? &s->train.set : &data->train;
	const struct train_set *test = data->sharded ? &s->test.set : &data->test;

	return (train->images ? train->samples * (data->pixels + data->positions) : 0) +
	       (test->images ? test->samples * (data->pixels + data->positions) : 0);
}

void train_shard_close(struct train_shard *s)
{
	close_set(&s->train.set);
	close_set(&s->test.set);
	free(s->numbers);
	s->numbers = NULL;
}
