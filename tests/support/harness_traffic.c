/* harness_traffic.c - see harness_traffic.h */
#include "tests/support/harness_traffic.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS 8      /* most posts of a sending flow that are not completed */
#define STALL_MS 60000 /* longest time without progress */
#define DOZE_US 2000000

struct flow {
	struct tt_link *l;
	bool sends;
	uint64_t seed;
	uint32_t next; /* number of the next message */
	uint8_t *buf;  /* BUFFERS messages (sends), or one message */
	uint64_t posted[BUFFERS];
};

uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static size_t size_of(const struct traffic *tr, const struct flow *f, size_t most)
{
	uint64_t r = mix(f->seed + f->next);

	if (tr->sizes)
		return tr->sizes[f->next % tr->nsizes] < most ? tr->sizes[f->next % tr->nsizes]
							      : most;
	switch (r % 4) { /* small, around a line, up to a quarter, any */
	case 0:
		return (r >> 8) % 57;
	case 1:
		return 50 + (r >> 8) % 16 < most ? 50 + (r >> 8) % 16 : most;
	case 2:
		return (r >> 8) % (most / 4 + 1);
	}
	return (r >> 8) % (most + 1);
}

static uint32_t stamp_of(const struct flow *f)
{
	return (uint32_t)mix(f->seed * 3 + f->next);
}

static uint64_t content_of(const struct flow *f, size_t i)
{
	return (f->seed + f->next) * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u;
}

static void fill(const struct flow *f, uint8_t *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t w = content_of(f, i);

		memcpy(p + i, &w, bytes - i < 8 ? bytes - i : 8);
	}
}

static bool right(const struct flow *f, const uint8_t *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t w = content_of(f, i);

		if (memcmp(p + i, &w, bytes - i < 8 ? bytes - i : 8))
			return false;
	}
	return true;
}

/* 1 sent | 0 no room | < 0 */
static int send_next(const struct traffic *tr, struct flow *f, size_t most)
{
	const struct tt_transport *t = f->l->t;
	size_t bytes = size_of(tr, f, most);
	uint32_t b = f->next % BUFFERS;
	uint8_t *room;
	int rc;

	if (t->put && mix(f->seed + 3 * f->next) % 2) {
		fill(f, f->buf, bytes);
		rc = t->put(f->l, f->buf, bytes, stamp_of(f));
		if (rc <= 0)
			return rc;
	} else if (t->flags & TT_T_RESERVE) {
		room = t->reserve(f->l, bytes);
		if (!room)
			return 0;
		if (t->reserve(f->l, bytes) != room || (uintptr_t)room % 64)
			return tt_fail(TT_INTERNAL,
				       "reserve gave %p, then another address or an unaligned one",
				       (void *)room);
		fill(f, room, bytes);
		t->commit(f->l, bytes, stamp_of(f));
	} else {
		if (f->l->completed < f->posted[b])
			return 0;
		fill(f, f->buf + b * most, bytes);
		rc = t->post(f->l, f->buf + b * most, bytes, stamp_of(f));
		if (rc <= 0)
			return rc;
		f->posted[b] = f->l->posted;
	}
	f->next++;
	return 1;
}

/* 1 received and right | 0 no message yet | < 0 */
static int receive_next(const struct traffic *tr, struct flow *f, size_t most)
{
	const struct tt_transport *t = f->l->t;
	size_t bytes = size_of(tr, f, most);
	bool in_place = (t->recv || t->get) && mix(f->seed ^ f->next) % 2;
	const void *data = f->buf, *again;
	int rc = !in_place ? t->peek(f->l, bytes, stamp_of(f), &data)
		 : t->recv
			 ? t->recv(f->l, f->buf, bytes, stamp_of(f))
			 : t->get(f->l, f->buf, bytes, stamp_of(f), mix(f->seed + 5 * f->next) % 2);

	if (rc <= 0)
		return rc;
	if (!in_place && (t->peek(f->l, bytes, stamp_of(f), &again) != 1 || again != data))
		return tt_fail(TT_INTERNAL, "a second peek gave another result");
	if (!right(f, data, bytes))
		return tt_fail(TT_INTERNAL,
			       "message %u of %zu bytes from rank %d, channel %d, is wrong",
			       f->next, bytes, f->l->peer, f->l->channel);
	if (!in_place)
		t->release(f->l);
	f->next++;
	return 1;
}

/* Each flow sends or receives at most one message. > 0 progress | 0 | < 0 */
static int pump(const struct traffic *tr, const struct rig *rig, struct flow *flows, int nflows,
		uint64_t round)
{
	size_t most = rig->ep->world->message_bytes;
	int moved = 0, rc;

	if (tr->t->progress && (moved = tr->t->progress(rig->ep)) < 0)
		return moved;
	for (int i = 0; i < nflows; i++) {
		struct flow *f = &flows[i];

		if (f->next == tr->messages || (!f->sends && tr->slow_reader && round % 16))
			continue;
		rc = f->sends ? send_next(tr, f, most) : receive_next(tr, f, most);
		if (rc < 0)
			return rc;
		moved |= rc;
	}
	return moved;
}

static bool finished(const struct traffic *tr, const struct flow *flows, int nflows)
{
	for (int i = 0; i < nflows; i++)
		if (flows[i].next < tr->messages || flows[i].l->completed < flows[i].l->posted)
			return false;
	return true;
}

static int drive(const struct traffic *tr, const struct rig *rig, struct flow *flows, int nflows)
{
	uint64_t deadline = tt_deadline_ns(STALL_MS), round = 0;

	while (!finished(tr, flows, nflows)) {
		int rc = pump(tr, rig, flows, nflows, round++);

		if (rc == 0 && tr->sleepy && !tr->slow_reader) {
			uint32_t ticket = tr->t->arm(rig->ep);

			rc = pump(tr, rig, flows, nflows, round++);
			if (rc == 0 && !finished(tr, flows, nflows))
				tr->t->doze(rig->ep, ticket, DOZE_US);
			tr->t->disarm(rig->ep);
		} else if (rc == 0) {
			sched_yield();
		}
		if (rc < 0)
			return rc;
		if (rc > 0)
			deadline = tt_deadline_ns(STALL_MS);
		if (tt_now_ns() > deadline)
			return tt_fail(TT_TIMEOUT, "no progress for %d ms", STALL_MS);
	}
	return 0;
}

static void add_flow(struct flow *f, struct tt_link *l, bool sends, const struct tt_world *w,
		     uint64_t seed)
{
	uint64_t from = (uint64_t)(sends ? w->rank : l->peer),
		 to = (uint64_t)(sends ? l->peer : w->rank);

	*f = (struct flow){ .l = l,
			    .sends = sends,
			    .seed = mix(seed ^ from << 40 ^ to << 20 ^ (uint64_t)l->channel) };
	f->buf = malloc((sends ? BUFFERS : 1) * w->message_bytes + 1);
	if (!f->buf)
		abort();
}

int traffic_run(const struct rig *rig, const struct tt_world *world, const struct traffic *tr)
{
	struct flow *flows = calloc(2 * (size_t)world->nranks * (size_t)tr->nchannels,
				    sizeof(*flows));
	int n = 0, rc;

	if (!flows)
		abort();
	for (int peer = 0; peer < world->nranks; peer++)
		for (int c = 0; c < tr->nchannels && rig->links[peer * rig->nchannels]; c++) {
			add_flow(&flows[n++], rig->links[peer * rig->nchannels + c], true, world,
				 tr->seed);
			add_flow(&flows[n++], rig->links[peer * rig->nchannels + c], false, world,
				 tr->seed);
		}
	rc = drive(tr, rig, flows, n);
	if (rc)
		fprintf(stderr, "rank %d, %s: %s\n", world->rank, tr->t->name, tt_error_text());
	while (n > 0)
		free(flows[--n].buf);
	free(flows);
	return rc;
}

int rig_open(struct rig *rig, const struct tt_transport *t, const struct tt_world *world,
	     int nchannels)
{
	int rc = harness_open(world, t, &rig->ep);

	if (rc)
		return rc;
	rig->nchannels = nchannels;
	rig->links = calloc((size_t)world->nranks * (size_t)nchannels, sizeof(*rig->links));
	if (!rig->links)
		abort();
	for (int peer = 0; peer < world->nranks; peer++)
		for (int c = 0; c < nchannels && t->reaches(rig->ep, peer); c++) {
			struct tt_link **l = &rig->links[peer * nchannels + c];

			rc = t->connect(rig->ep, peer, c, l);
			while (!rc && !(rc = t->ready(*l)))
				sched_yield();
			if (rc < 0)
				return rc;
		}
	return 0;
}

void rig_close(struct rig *rig)
{
	free(rig->links);
	rig->ep->t->close(rig->ep);
}

int traffic_body(const struct tt_world *world, void *arg)
{
	const struct setup *setup = arg;
	struct traffic tr = *(const struct traffic *)setup->arg;
	struct rig rig;

	const char *fewer = getenv("TUTTI_TEST_FEWER");

	tr.t = setup->t;
	if (fewer)
		tr.messages = tr.messages / (uint32_t)atoi(fewer) + 2;
	EXPECT(rig_open(&rig, tr.t, world, tr.nchannels) == 0);
	EXPECT(traffic_run(&rig, world, &tr) == 0);
	EXPECT(tr.t->memory(rig.ep) > 0);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

bool runs(const struct tt_transport *t)
{
	const char *only = getenv("TUTTI_TEST_TRANSPORT");
	char why[256] = "";

	if (only)
		return !strcmp(only, t->name);
	return t != &tt_verbs || t->probe(why, sizeof(why));
}

uint64_t run_on(const struct tt_transport *t, int nranks, int nchannels, size_t message_bytes,
		bool threads, body_fn *body, void *arg)
{
	struct harness h = { .nranks = t == &tt_self ? 1 : nranks,
			     .nchannels = nchannels,
			     .message_bytes = message_bytes,
			     .threads = threads,
			     .takes_before_socket = 3 };
	struct setup setup = { t, arg };
	uint64_t failed = 0, now;

	for (int encrypt = 0; encrypt <= (t == &tt_tcp); encrypt++) {
		h.encrypt = encrypt;
		failed |= now = harness_run(&h, body, &setup);
		if (now)
			fprintf(stderr, "%s%s, ranks are %s: ranks %#llx failed\n", t->name,
				encrypt ? ", encrypted" : "", threads ? "threads" : "processes",
				(unsigned long long)now);
	}
	return failed;
}

uint64_t run_all(int nranks, int nchannels, size_t message_bytes, body_fn *body, void *arg)
{
	uint64_t failed = 0;

	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int threads = 0; threads < 2 && runs(*t); threads++)
			failed |= run_on(*t, nranks, nchannels, message_bytes, threads, body, arg);
	return failed;
}

int peer_of(const struct tt_world *world)
{
	return world->nranks == 1 ? 0 : 1 - world->rank;
}

bool try_send(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp)
{
	void *room;

	if (l->t->flags & TT_T_POST) {
		if (l->t->progress)
			l->t->progress(l->ep);
		return l->t->post(l, buf, bytes, stamp) == 1;
	}
	room = l->t->reserve(l, bytes);
	if (!room)
		return false;
	memcpy(room, buf, bytes);
	l->t->commit(l, bytes, stamp);
	return true;
}

int send_one(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp)
{
	uint64_t deadline = tt_deadline_ns(STALL_MS);
	int rc = 0;

	while (!try_send(l, buf, bytes, stamp)) {
		if (tt_now_ns() > deadline)
			return TT_TIMEOUT;
		sched_yield();
	}
	while (rc >= 0 && l->t->progress && l->completed < l->posted) {
		rc = l->t->progress(l->ep);
		if (tt_now_ns() > deadline)
			return TT_TIMEOUT;
	}
	return rc < 0 ? rc : 0;
}

int receive_one(struct tt_link *l, void *buf, size_t bytes, uint32_t stamp)
{
	uint64_t deadline = tt_deadline_ns(STALL_MS);
	const void *data;
	int rc;

	while (!(rc = l->t->peek(l, bytes, stamp, &data)) && tt_now_ns() < deadline)
		sched_yield();
	if (rc <= 0)
		return rc ? rc : TT_TIMEOUT;
	memcpy(buf, data, bytes);
	l->t->release(l);
	return 0;
}
