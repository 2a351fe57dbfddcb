/*
 * race_transports.c - ranks as threads of one process over every transport, to be run under
 * ThreadSanitizer
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/harness_traffic.h"
#include "tests/races/race_maps.h"

static void *wake_now_and_then(void *arg)
{
	struct tt_endpoint *ep = arg;

	for (int i = 0; i < 50; i++) {
		usleep(200);
		ep->t->wake(ep);
		if (ep->t->memory(ep) == SIZE_MAX)
			abort();
	}
	return NULL;
}

static int body(const struct tt_world *world, void *arg)
{
	const struct traffic *tr = arg;
	pthread_t waker;
	struct rig rig;

	EXPECT(rig_open(&rig, tr->t, world, tr->nchannels) == 0);
	EXPECT(pthread_create(&waker, NULL, wake_now_and_then, rig.ep) == 0);
	EXPECT(traffic_run(&rig, world, tr) == 0);
	pthread_join(waker, NULL);
	rig_close(&rig);
	return 0;
}

int main(void)
{
	int failed = 0;

	race_maps_share();
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (int sleepy = 0; sleepy < 2 && runs(*t); sleepy++) {
			struct harness h = { .nranks = *t == &tt_self ? 1 : 3, .nchannels = 2,
					     .message_bytes = 8192, .threads = true };
			struct traffic tr = { .t = *t, .nchannels = 2, .messages = 400,
					      .sleepy = sleepy, .seed = 7 };
			int bad = harness_run(&h, body, &tr) != 0;

			printf("%s - %s, ranks as threads%s\n", bad ? "not ok" : "ok",
			       (*t)->name, sleepy ? " that doze" : "");
			failed += bad;
		}
	return failed != 0;
}
