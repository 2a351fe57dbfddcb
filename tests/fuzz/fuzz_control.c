/* fuzz_control.c - the control of a fuzzer: made, served and checked without a service thread */
#include "tests/fuzz/fuzz_control.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

void fuzz_must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzzer: violated: %s\n", what);
	abort();
}

/* ---- memory: the linker gives the library's calls to these ---------------------------------------- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static unsigned requests_left; /* the last one fails; 0: none does */

void fuzz_memory(unsigned k)
{
	requests_left = k;
}

static bool runs_out(void)
{
	return requests_left && --requests_left == 0;
}

void *__wrap_malloc(size_t bytes)
{
	return runs_out() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return runs_out() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return runs_out() ? NULL : __real_realloc(old, bytes);
}

/* ---- a control -------------------------------------------------------------------------------- */

static void deliver(struct tt_control_endpoint *ep, const struct epoll_event *ev)
{
	struct tt_watched *watched = ev->data.ptr;

	if (watched->source != TT_SRC_CONN && watched->source != TT_SRC_MONITOR) {
		tt_listeners_event(watched);
		return;
	}
	pthread_mutex_lock(&ep->lock);
	if (watched->source == TT_SRC_CONN)
		tt_conn_event(ep, ev->data.ptr, ev->events);
	else
		tt_monitor_event(ev->data.ptr, ev->events);
	pthread_mutex_unlock(&ep->lock);
}

/* Deliver the bytes in the socket, as the service thread would. */
void fuzz_serve(struct tt_control_endpoint *ep)
{
	struct epoll_event ev[4];

	for (int round = 0; round < 64; round++) {
		int n = epoll_wait(tt_service_epoll(), ev, 4, 0), useful = 0;

		for (int i = 0; i < n; i++) {
			enum tt_source source = *(enum tt_source *)ev[i].data.ptr;

			useful += source == TT_SRC_CONN || source == TT_SRC_UNAUTH ||
				  source == TT_SRC_MONITOR;
			if (source != TT_SRC_WAKE)
				deliver(ep, &ev[i]);
		}
		tt_conn_reap(ep);
		tt_monitor_reap(ep);
		tt_listeners_visit(tt_now_ns());
		if (!useful)
			return;
	}
}

struct tt_key fuzz_key;

struct tt_tls_context *fuzz_sessions(void)
{
	static struct tt_tls_context *context;

	fuzz_must(context || !tt_tls_context_make(&fuzz_key, (uint8_t[TT_NONCE]){ 0 }, 0, &context),
		  "a context of TLS");
	return context;
}

struct tt_identity *fuzz_identity(void)
{
	static struct tt_identity identity;

	fuzz_must(identity.secret || tt_identity_make(&identity), "a key pair");
	return &identity;
}

void fuzz_know_ranks(struct tt_control_endpoint *ep)
{
	struct tt_business_card record = { .port = 1, .public_key = { 1 } };

	ep->peers.root_key[0] = 1;
	for (int r = 0; r < FUZZ_RANKS; r++) {
		record.rank = r;
		fuzz_must(tt_directory_put(&ep->peers.directory, &record), "memory");
		record.public_key[0] = 0;
	}
}

void fuzz_begin_gather(struct tt_control *ctl)
{
	static const uint8_t mine[4];
	static struct tt_parts column = { .mine = mine, .bytes = sizeof(mine) };

	free(ctl->gather.message);
	ctl->gather.message = NULL;
	ctl->gather.number = 1;
	ctl->gather.running = true;
	ctl->gather.bytes = 4;
	ctl->gather.columns = &column;
	ctl->gather.ncolumns = 1;
}
