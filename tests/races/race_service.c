/*
 * race_service.c - endpoints of threads begin, wake the service thread and end at any time, for
 * ThreadSanitizer
 *
 * The service thread, its descriptors and the listener end with the last endpoint and begin with the
 * next one. Each endpoint of rank 0 has a listener of its own, those of rank 1 share one. A frame comes
 * to each endpoint by a pipe.
 */
#include <pthread.h>
#include <stdio.h>

#include "control/control_internal.h"
#include "tests/support/descriptors.h"

#define THREADS 8
#define ROUNDS 200

static atomic_int failed;

/* Send ctl the goodbye of the other rank by a pipe, and wait for it. */
static bool send_goodbye(struct tt_control *ctl)
{
	int other = 1 - ctl->rank;
	struct tt_pipe *end[2];
	uint8_t bytes[TT_FRAME_HEAD + 20];
	struct tt_writer w = TT_WRITER_INTO(bytes);
	bool arrived;

	if (!tt_pipe_make(end))
		return false;
	tt_put_frame_head(&w, &(struct tt_frame_head){ TT_F_GOODBYE, 0, 20 });
	tt_put(&w, (uint32_t)other, 4);
	tt_put(&w, 0, 8);
	tt_put(&w, 0, 8);
	tt_control_lock(ctl);
	arrived = tt_conn_add(ctl->ep, (struct tt_duplex){ .pipe = end[1] }, other, false);
	tt_control_unlock(ctl);
	tt_pipe_send(end[0], w.data, w.have);
	tt_control_lock(ctl);
	while (arrived && !tt_set_has(ctl->departed.left, other))
		arrived = tt_endpoint_await(ctl->ep, tt_deadline_ns(20000));
	tt_control_unlock(ctl);
	tt_pipe_close(end[0]);
	return arrived;
}

static void *run(void *arg)
{
	int rank = *(int *)arg;

	for (int i = 0; i < ROUNDS && !failed; i++) {
		struct tt_control_endpoint *ep;
		struct tt_control *ctl;

		if (tt_endpoint_make(rank, 2, &ep) ||
		    tt_endpoint_listen(ep, &(struct tt_ports){ 0 }) ||
		    tt_control_make(ep, rank, 2, &ctl) || tt_endpoint_start(ep)) {
			fprintf(stderr, "%s\n", tt_error_text());
			failed++;
			break;
		}
		tt_endpoint_wake(ep);
		failed += !send_goodbye(ctl);
		tt_control_free(ctl);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	int before = count_descriptors(), ranks[2] = { 0, 1 };

	for (int i = 0; i < THREADS; i++)
		failed += pthread_create(&thread[i], NULL, run, &ranks[i % 2]) != 0;
	for (int i = 0; i < THREADS && !failed; i++)
		pthread_join(thread[i], NULL);
	failed += count_descriptors() != before;
	printf("%s - endpoints begin and end beside each other\n", failed ? "not ok" : "ok");
	return failed != 0;
}
