/*
 * race_control.c - all functions of a control concurrently, ranks as threads, for ThreadSanitizer
 *
 * The main thread of each rank logs calls, exchanges, splits, dials and takes sockets, while a second
 * thread of the rank waits, asks for missing ranks and checks for failures; unauthenticated clients
 * connect. Then two ranks break the job, or all ranks leave at different times.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/unique_id.h"
#include "tests/support/harness_control.h"
#include "plan/plan.h"

#define RANKS 11

struct race_control_watch {
	struct tt_control *ctl;
	atomic_bool stop;
};

/* The calls of run during a wait, and of other threads of the program. */
static void *poll_control(void *arg)
{
	struct race_control_watch *w = arg;
	char text[512];
	int culprit;

	for (int i = 0; !atomic_load(&w->stop); i++) {
		tt_control_waiting(w->ctl, &(struct tt_blocked){ .awaited = -1 });
		if (i % 40 == 39)
			tt_control_missing(w->ctl, 1, &(struct tt_blocked){ .awaited = -1 }, text,
					   sizeof(text));
		if (tt_control_broken(w->ctl) && !tt_control_text(w->ctl, &culprit)[0])
			return (void *)1;
		sleep_ms(1);
	}
	return NULL;
}

static void connect_unauthenticated(int port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		(void)!send(fd, "GET / HTTP/1.1\r\nHost: here and no more than this\r\n\r\n", 52,
			    MSG_NOSIGNAL);
	close(fd);
}

static int dial_around(struct control_job *m, int rank, struct tt_control *ctl)
{
	int next = (rank + 1) % m->n, before = (rank + m->n - 1) % m->n, fd, rc = 0;
	struct tt_data_keys keys;

	for (int direction = 0; direction < 2; direction++) {
		int peer = direction ? before : next;

		if (rank < peer)
			rc |= tt_control_dial(ctl, peer, 0, tt_deadline_ns(20000));
		while (!(rc |= tt_control_take(ctl, peer, 0, false, &fd, &keys)))
			sleep_ms(1);
		rc = rc < 0;
		if (!rc)
			close(fd);
	}
	return rc;
}

static int work(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct tt_call call = {
		.collective = TT_ALLREDUCE, .type = tuttiInt32, .root = -1, .count = 7
	};
	struct tt_control *part = NULL;
	struct tt_id id;
	struct tt_members members;
	int all[RANKS], failed = 0;

	for (uint64_t seq = 1; seq <= 200; seq++) {
		call.count = seq;
		tt_control_note(ctl, seq, &call);
		if (seq % 50 == 0)
			failed |= tt_control_allgather(ctl, &rank, sizeof(rank), all,
						       tt_deadline_ns(20000));
		if (seq % 10 == 0)
			sleep_ms(1);
		tt_control_done(ctl, seq);
	}
	tt_id_unpack(&m->id, &id);
	connect_unauthenticated(id.port);
	failed |= dial_around(m, rank, ctl);
	failed |= tt_control_split(ctl, rank % 2, rank, 0, 20000, NULL, 0, &part, &members);
	tt_rank_map_free(&members.map);
	failed |= tt_control_agree(ctl, failed, "the split", NULL, tt_deadline_ns(20000));
	tt_control_formed(ctl);
	if (part)
		tt_control_leave(part);
	return failed;
}

static void on_broken(void *ctx)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
}

static const struct tt_control_observer observer = { .broken = on_broken };

static int body(struct control_job *m, int rank, struct tt_control *ctl)
{
	struct race_control_watch w = { .ctl = ctl };
	bool breaks = m->arg != NULL;
	atomic_int hooks = 0;
	void *polled;
	pthread_t watcher;
	int failed, culprit;

	tt_control_observe(ctl, &observer, &hooks);
	if (pthread_create(&watcher, NULL, poll_control, &w))
		return 1;
	failed = work(m, rank, ctl);
	atomic_store(&m->report[rank].progress, 1);
	if (breaks && rank % 5 == 1) { /* two at once, while no rank waits for a peer */
		failed |= !control_job_all_reached(m, 1, 20000);
		tt_control_raise(ctl, TT_REMOTE, rank, "the job is broken");
	}
	if (breaks)
		failed |= control_job_await_broken(m, rank, ctl, 20000, &culprit) != TT_REMOTE;
	else
		failed |= tt_control_broken(ctl);
	sleep_ms(rank % 3);
	atomic_store(&w.stop, true);
	pthread_join(watcher, &polled);
	tt_control_unobserve(ctl, &observer, &hooks);
	return failed || polled || hooks > 1;
}

int main(void)
{
	int failed = 0;

	for (int breaks = 0; breaks < 2; breaks++)
		for (int round = 0; round < 3; round++) {
			struct control_job m = { .n = RANKS,
						 .threads = true,
						 .body = body,
						 .arg = breaks ? &failed : NULL,
						 .timeout_ms = 30000 };
			int bad = 0;

			control_job_run(&m);
			for (int r = 0; r < RANKS; r++) {
				if (m.report[r].joined || m.report[r].rc)
					printf("# rank %d: %d %d %s\n", r, m.report[r].joined,
					       m.report[r].rc, m.report[r].text);
				bad |= m.report[r].joined || m.report[r].rc;
			}
			printf("%s - ranks as threads, then %s\n", bad ? "not ok" : "ok",
			       breaks ? "two ranks break the job" : "all ranks leave");
			failed += bad;
		}
	return failed != 0;
}
