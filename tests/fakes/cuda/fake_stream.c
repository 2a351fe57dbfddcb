/*
 * fake_stream.c - streams of the fake CUDA driver: one thread per stream runs the stream's nodes in
 * order
 *
 * A node passes through a connection of its stream to the device - for copies to the device, to the host,
 * or all other work - which has an order of its own: a node starts only after all earlier nodes of the
 * connection have started and all earlier waiting nodes have ended.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_cuda.h"

__thread unsigned fake_block, fake_blocks, fake_threads;
struct fake_stream *fake_all;
/* the default stream of each device; under the lock, as the next two declarations */
static struct fake_stream *legacy[MAX_DEVICES];
static unsigned streams, busy_threads[MAX_DEVICES][SMS], waiting_blocks[MAX_DEVICES], most_blocks;
static struct connection {
	uint64_t given, through;
} connections[32], only_to_device, only_to_host;
static __thread struct fake_stream *per_thread[MAX_DEVICES];

/* ---- executing a node ------------------------------------------------------------------------ */

static void delay(void)
{
	static __thread unsigned seed;
	const char *text = getenv("TUTTI_TEST_CUDA_DELAY_US");
	int most = text ? atoi(text) : 0;

	if (!seed)
		seed = (unsigned)getpid() ^ (unsigned)(uintptr_t)&seed;
	if (most > 0)
		usleep((unsigned)rand_r(&seed) % (unsigned)most);
}

static bool is_reached(const struct tt_cumemop *op)
{
	uint64_t now = op->operation == TT_CU_WAIT_64
			       ? atomic_load((atomic_uint_fast64_t *)(uintptr_t)op->address)
			       : atomic_load((atomic_uint *)(uintptr_t)op->address);

	return op->flags == TT_CU_WAIT_AND  ? (now & op->value) != 0
	       : op->flags == TT_CU_WAIT_EQ ? now == op->value
					    : (int)((unsigned)now - (unsigned)op->value) >= 0;
}

/* Memory operations on words, which other streams, processes and the host change concurrently */
static void run_batch(const struct fake_node *n)
{
	for (unsigned i = 0; i < n->nops; i++) {
		const struct tt_cumemop *op = &n->op[i];

		if (op->operation == TT_CU_WRITE_32)
			atomic_store((atomic_uint *)(uintptr_t)op->address, (unsigned)op->value);
		else
			while (!fake_dead() && !is_reached(op))
				usleep(20);
	}
}

/* Under the lock. The multiprocessor with most room; -1: none has room for the threads of a block */
static int find_room(unsigned threads, int device)
{
	int found = 0;

	for (int sm = 1; sm < SMS; sm++)
		if (busy_threads[device][sm] < busy_threads[device][found])
			found = sm;
	return busy_threads[device][found] + threads <= SM_THREADS ? found : -1;
}

/* The blocks of a kernel that waits for peers stay on the device until it ends; those of other kernels
 * run one after another. on: counts the blocks on each multiprocessor */
static void place(unsigned blocks, unsigned threads, bool waits, int device, unsigned on[SMS])
{
	int sm;

	pthread_mutex_lock(&fake_lock);
	for (; blocks; blocks--) {
		while ((sm = find_room(threads, device)) < 0)
			pthread_cond_wait(&fake_changed, &fake_lock);
		busy_threads[device][sm] += threads;
		on[sm]++;
		waiting_blocks[device] += waits;
	}
	if (waiting_blocks[device] > most_blocks)
		most_blocks = waiting_blocks[device];
	pthread_mutex_unlock(&fake_lock);
}

static void leave(const unsigned on[SMS], unsigned threads, bool waits, int device)
{
	pthread_mutex_lock(&fake_lock);
	for (int sm = 0; sm < SMS; sm++) {
		busy_threads[device][sm] -= on[sm] * threads;
		waiting_blocks[device] -= waits ? on[sm] : 0;
	}
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
}

EXPORT unsigned fake_most_blocks(void)
{
	unsigned most;

	pthread_mutex_lock(&fake_lock);
	most = most_blocks;
	pthread_mutex_unlock(&fake_lock);
	return most;
}

static void launch(const struct fake_node *n)
{
	bool waits = n->kernel->waits && n->kernel->waits(n->params);
	unsigned blocks = waits ? n->blocks : 1, on[SMS] = { 0 };

	if (n->threads > SM_THREADS || blocks > SM_THREADS / n->threads * SMS) {
		fprintf(stderr,
			"fake: the device has no room for %u blocks of %u threads at a time\n",
			blocks, n->threads);
		abort();
	}
	place(blocks, n->threads, waits, n->device, on);
	fake_blocks = n->blocks;
	fake_threads = n->threads;
	for (fake_block = 0; fake_block < n->blocks; fake_block++)
		n->kernel->run(n->params);
	leave(on, n->threads, waits, n->device);
}

static void await_stream(struct fake_stream *s, uint64_t number)
{
	pthread_mutex_lock(&fake_lock);
	while (s->done < number)
		pthread_cond_wait(&fake_changed, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

void fake_run(const struct fake_node *n)
{
	delay();
	if (fake_dead() && n->kind != RECORD)
		return;
	switch (n->kind) {
	case COPY:
		memcpy(fake_shadow(n->to), fake_shadow(n->from), n->bytes);
		if (n->spoiled)
			((unsigned char *)n->to)[n->bytes / 2] ^= 1;
		if (n->owned)
			free((void *)(uintptr_t)n->from);
		break;
	case SET:
		memset(fake_shadow(n->to), n->value, n->bytes);
		break;
	case HOST_FUNC:
		fake_is_called = true;
		n->fn(n->arg);
		fake_is_called = false;
		break;
	case RECORD:
		fake_reach(n->record);
		break;
	case WAIT_EVENT:
		fake_await_record(n->record);
		break;
	case WAIT_STREAM:
		await_stream(n->other, n->number);
		break;
	case BATCH:
		run_batch(n);
		break;
	case LAUNCH:
		launch(n);
		break;
	}
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool holds_up(const struct fake_node *n)
{
	return n->kind == BATCH || n->kind == WAIT_EVENT || n->kind == WAIT_STREAM;
}

static struct connection *connection_of(const struct fake_stream *s, const struct fake_node *n)
{
	return n->kind != COPY ? s->connection : n->back ? s->to_host : s->to_device;
}

/* Call under the lock. The stream's first node, once its ticket is next in the connection; NULL:
 * the stream ends */
static struct fake_node *next_node(struct fake_stream *s)
{
	struct fake_node *n;

	while ((n = s->first) ? n->kind != RECORD && n->ticket != connection_of(s, n)->through
			      : !s->stop)
		pthread_cond_wait(&fake_changed, &fake_lock);
	if (n)
		s->first = n->next;
	if (!s->first)
		s->last = &s->first;
	return n;
}

static void pass(struct fake_stream *s, const struct fake_node *n)
{
	connection_of(s, n)->through += n->kind != RECORD;
	pthread_cond_broadcast(&fake_changed);
}

static void *work(void *arg)
{
	struct fake_stream *s = arg;
	struct fake_node *n;

	pthread_mutex_lock(&fake_lock);
	while ((n = next_node(s))) {
		bool late = holds_up(n);

		if (!late)
			pass(s, n);
		pthread_mutex_unlock(&fake_lock);
		fake_run(n);
		pthread_mutex_lock(&fake_lock);
		if (late)
			pass(s, n);
		free(n);
		s->done++;
		pthread_cond_broadcast(&fake_changed);
	}
	pthread_mutex_unlock(&fake_lock);
	return NULL;
}

static unsigned count_connections(void)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	int n = text ? atoi(text) : 8;

	return n < 1 ? 1 : n > 32 ? 32 : (unsigned)n;
}

static struct fake_stream *make(bool blocking)
{
	struct fake_stream *s = calloc(1, sizeof(*s));
	unsigned number;

	s->last = &s->first;
	s->blocking = blocking;
	s->device = fake_device();
	pthread_mutex_lock(&fake_lock);
	number = streams++ % count_connections();
	s->connection = &connections[number];
	if (count_connections() == 1) {
		s->to_device = &only_to_device;
		s->to_host = &only_to_host;
	} else {
		s->to_device = calloc(2, sizeof(*s->to_device));
		s->to_host = s->to_device + 1;
	}
	s->next = fake_all;
	fake_all = s;
	pthread_mutex_unlock(&fake_lock);
	if (pthread_create(&s->thread, NULL, work, s))
		abort();
	pthread_detach(s->thread);
	return s;
}

struct fake_stream *fake_stream(tt_custream stream)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
	int device = fake_device() < 0 ? 0 : fake_device();

	if (stream == TT_CU_PER_THREAD)
		return per_thread[device] ? per_thread[device] : (per_thread[device] = make(true));
	if (stream && stream != TT_CU_LEGACY)
		return stream;
	pthread_mutex_lock(&making);
	if (!legacy[device]) {
		struct fake_stream *s = make(false);

		pthread_mutex_lock(&fake_lock);
		legacy[device] = s;
		pthread_mutex_unlock(&fake_lock);
	}
	pthread_mutex_unlock(&making);
	return legacy[device];
}

/* Call under the lock. */
static bool put(struct fake_stream *s, const struct fake_node *node)
{
	struct fake_node *n = malloc(sizeof(*n)), ***last = s->graph ? &s->graph->last : &s->last;

	if (!n)
		return false;
	*n = *node;
	n->next = NULL;
	n->device = s->device < 0 ? 0 : s->device;
	if (!s->graph) {
		if (n->kind != RECORD)
			n->ticket = connection_of(s, n)->given++;
		s->given++;
	}
	**last = n;
	*last = &n->next;
	return true;
}

/* Call under the lock. Orders s after all work of other: the default stream after blocking streams,
 * and they after the default stream */
static bool put_behind(struct fake_stream *s, struct fake_stream *other)
{
	struct fake_node wait = { .kind = WAIT_STREAM, .other = other, .number = other->given };

	return other->done == other->given || put(s, &wait);
}

int fake_add(tt_custream stream, const struct fake_node *node)
{
	struct fake_stream *s = fake_stream(stream), *of_device;
	bool ok = true;

	pthread_mutex_lock(&fake_lock);
	of_device = legacy[s->device < 0 ? 0 : s->device];
	for (struct fake_stream *x = fake_all; x && s == of_device && !s->graph; x = x->next)
		ok = ok && (x->device != s->device || !x->blocking || x->graph || put_behind(s, x));
	if (s->blocking && !s->graph && of_device)
		ok = put_behind(s, of_device);
	ok = ok && put(s, node);
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
	return ok ? 0 : TT_CU_NO_MEMORY;
}

int fake_add_behind(struct fake_stream *s, struct fake_stream *other)
{
	bool ok;

	pthread_mutex_lock(&fake_lock);
	ok = put_behind(s, other);
	pthread_mutex_unlock(&fake_lock);
	return ok ? 0 : TT_CU_NO_MEMORY;
}

EXPORT int cuStreamCreate(tt_custream *ret_stream, unsigned flags)
{
	ENTER_CONTEXT();
	*ret_stream = make(!(flags & TT_CU_STREAM_NON_BLOCKING));
	fake_count(A_STREAM, 1);
	return 0;
}

EXPORT int cuStreamCreateWithPriority(tt_custream *ret_stream, unsigned flags, int priority)
{
	(void)priority;
	ENTER_CONTEXT();
	*ret_stream = make(!(flags & TT_CU_STREAM_NON_BLOCKING));
	fake_count(A_STREAM, 1);
	return 0;
}

int fake_settle(struct fake_stream *s)
{
	uint64_t given;
	bool capturing;

	pthread_mutex_lock(&fake_lock);
	capturing = s->graph != NULL;
	given = s->given;
	while (!capturing && s->done < given)
		pthread_cond_wait(&fake_changed, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
	/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
	return capturing ? 900 : fake_dead();
}

void fake_idle(void)
{
	int device = fake_device();
	struct fake_stream *first;

	pthread_mutex_lock(&fake_lock);
	first = fake_all;
	pthread_mutex_unlock(&fake_lock);
	for (struct fake_stream *s = first; s; s = s->next)
		if (s->device == device)
			fake_settle(s);
}

EXPORT int cuStreamSynchronize(tt_custream stream)
{
	ENTER_FREELY();
	return fake_settle(fake_stream(stream));
}

EXPORT int cuStreamQuery(tt_custream stream)
{
	struct fake_stream *s = fake_stream(stream);
	bool idle;

	ENTER_QUERY();
	if (fake_forbidden())
		return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
	pthread_mutex_lock(&fake_lock);
	idle = s->done == s->given;
	pthread_mutex_unlock(&fake_lock);
	return idle ? 0 : TT_CU_NOT_READY;
}

/* The thread ends when the stream has run all its nodes. */
EXPORT int cuStreamDestroy_v2(tt_custream stream)
{
	struct fake_stream *s = stream;

	ENTER_CONTEXT();
	pthread_mutex_lock(&fake_lock);
	s->stop = true;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
	fake_count(A_STREAM, -1);
	return 0;
}

EXPORT int cuCtxSynchronize(void)
{
	ENTER_FREELY();
	fake_idle();
	return 0;
}
