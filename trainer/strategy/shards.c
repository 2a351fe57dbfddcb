/* shards.c - the placement of parameters on servers (shards.h) */
#include "trainer/strategy/shards.h"

#include "trainer/base/fail.h"
#include "trainer/data/sampler.h"

#include <stdlib.h>
#include <string.h>

enum { CUT = 4 }; /* variables larger than 1 / CUT of a server's fair share are cut */

static int alloc_pieces(struct train_shards *s, size_t pieces, int servers)
{
	*s = (struct train_shards){ .servers = servers };
	s->piece = calloc(pieces, sizeof(*s->piece));
	s->count = calloc((size_t)servers, sizeof(*s->count));
	s->rows = calloc((size_t)servers, sizeof(*s->rows));
	if (s->piece && s->count && s->rows)
		return TRAIN_OK;
	train_shards_close(s);
	return train_fail(TRAIN_FAILED, "no memory for %zu pieces of parameters", pieces);
}

void train_shards_close(struct train_shards *s)
{
	free(s->piece);
	free(s->count);
	free(s->rows);
	*s = (struct train_shards){ 0 };
}

static void add_piece(struct train_shards *s, size_t at, size_t count, int server)
{
	s->piece[s->pieces++] = (struct train_shard_piece){ at, count, server };
}

/* The model's first tensor, if that is a sparse table; else NULL. */
static const struct train_tensor *table_of(const struct train_model *m)
{
	return m->ntensors && m->tensors[0].sparse ? &m->tensors[0] : NULL;
}

/* The begin of the row that contains `at`. */
static size_t row_begin(const struct train_model *m, size_t at)
{
	const struct train_tensor *table = table_of(m);

	return table && at < table->count ? at - at % table->columns : at;
}

/* Part `part` of a tensor, or of all parameters. */
static struct train_share part_of(const struct train_model *m, size_t at, size_t count, int part,
				  int parts)
{
	struct train_share share = train_share_of(count, part, parts);
	size_t first = row_begin(m, at + share.first);
	size_t last = row_begin(m, at + share.first + share.count);

	return (struct train_share){ first, last - first };
}

static void count_rows(struct train_shards *s, const struct train_model *m)
{
	const struct train_tensor *table = table_of(m);

	for (size_t i = 0; i < s->pieces && table; i++) {
		size_t at = s->piece[i].at, end = at + s->piece[i].count;

		end = end < table->count ? end : table->count;
		if (at < end)
			s->rows[s->piece[i].server] += (end - at) / table->columns;
	}
}

int train_shards_of_ranges(struct train_shards *s, const struct train_model *m, int servers)
{
	int rc = alloc_pieces(s, (size_t)servers, servers);

	for (int i = 0; i < servers && !rc; i++) {
		struct train_share share = part_of(m, 0, m->parameters, i, servers);

		add_piece(s, share.first, share.count, i);
		s->count[i] = share.count;
	}
	if (!rc)
		count_rows(s, m);
	return rc;
}

static int by_size(const void *a, const void *b)
{
	const struct train_shard_piece *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static int by_place(const void *a, const void *b)
{
	const struct train_shard_piece *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

int train_shards_of_variables(struct train_shards *s, const struct train_model *m, int servers)
{
	int rc = alloc_pieces(s, m->ntensors * (size_t)servers, servers);

	for (size_t i = 0; i < m->ntensors && !rc; i++) {
		const struct train_tensor *t = &m->tensors[i];
		int parts = t->count > m->parameters / (size_t)servers / CUT ? servers : 1;

		for (int p = 0; p < parts; p++) {
			struct train_share share = part_of(m, t->at, t->count, p, parts);

			add_piece(s, share.first, share.count, 0);
		}
	}
	if (rc)
		return rc;
	qsort(s->piece, s->pieces, sizeof(*s->piece), by_size);
	for (size_t i = 0; i < s->pieces; i++) {
		int least = 0;

		for (int server = 1; server < servers; server++)
			least = s->count[server] < s->count[least] ? server : least;
		s->piece[i].server = least;
		s->count[least] += s->piece[i].count;
	}
	qsort(s->piece, s->pieces, sizeof(*s->piece), by_place);
	count_rows(s, m);
	return TRAIN_OK;
}

size_t train_shards_rows(const struct train_shards *s, int server, size_t width,
			 const uint32_t *row, size_t n, uint32_t *to)
{
	size_t found = 0, before = 0, k = 0; /* before: floats of the pieces before this one */

	for (size_t i = 0; i < s->pieces; i++) {
		const struct train_shard_piece *p = &s->piece[i];

		for (; k < n && row[k] * width < p->at + p->count; k++)
			if (p->server == server && row[k] * width >= p->at)
				to[found++] = (uint32_t)((before + row[k] * width - p->at) / width);
		before += p->server == server ? p->count : 0;
	}
	return found;
}

size_t train_shards_place(const struct train_shards *s, int server, size_t at)
{
	size_t i = 0;

	for (; s->piece[i].server != server || at >= s->piece[i].count; i++)
		at -= s->piece[i].server == server ? s->piece[i].count : 0;
	return s->piece[i].at + at;
}

void train_shards_pack(const struct train_shards *s, int server, const float *array, float *shard)
{
	train_shards_pack_from(s, server, 0, array, shard);
}

void train_shards_pack_from(const struct train_shards *s, int server, size_t from,
			    const float *array, float *shard)
{
	for (size_t i = 0; i < s->pieces; i++) {
		const struct train_shard_piece *p = &s->piece[i];
		size_t skipped = from < p->count ? from : p->count, left = p->count - skipped;

		if (p->server != server)
			continue;
		memcpy(shard, array + p->at + skipped, left * sizeof(*shard));
		shard += left;
		from -= skipped;
	}
}

void train_shards_unpack(const struct train_shards *s, int server, const float *shard, float *array)
{
	train_shards_unpack_from(s, server, 0, shard, array);
}

void train_shards_unpack_from(const struct train_shards *s, int server, size_t from,
			      const float *shard, float *array)
{
	for (size_t i = 0; i < s->pieces; i++) {
		const struct train_shard_piece *p = &s->piece[i];
		size_t skipped = from < p->count ? from : p->count, left = p->count - skipped;

		if (p->server != server)
			continue;
		memcpy(array + p->at + skipped, shard, left * sizeof(*shard));
		shard += left;
		from -= skipped;
	}
}
