/*
 * simulated_repeats.c - messages with a short timeout, sent again until they are sent
 *
 * Called by simulated_operations.c in schedules with slow servers, where a handshake takes 1 to 64 ms of the service
 * thread (simulated_tls.c), and 2 to 16 handshakes run at a time: when all ranks connect to
 * one, some find their timeout over. A message of one
 * frame is delivered once, however often it was sent again. A larger one that timed out may have gone in part, and
 * arrives then, too, so it may come twice. Nobody waits for ever: a message between live ranks is sent within
 * MOST_NS, and received as long after all have been sent.
 */
#include "comm/comm.h"
#include "tests/simulation/simulated_job.h"

#define MEDIUM 100000u
#define ONE_FRAME 16u
#define TAG 5 /* as in simulated_operations.c: one order for all messages */
#define MOST_NS (30 * SIM_SECOND)

struct repeats {
	struct sim_comm *w;
	size_t bytes; /* of each message of this operation; one that comes again may be of an earlier one */
	int *data; /* MEDIUM bytes; the first two numbers: the sender's rank, its number of the message */
	int awaited[SIM_RANKS]; /* messages that have not come */
};

uint64_t sim_handshake_ns(void)
{
	const struct sim_job *job = sim->job;

	return job && job->slow ? SIM_MS << sim_common(0, 0, 12, 7) : 0;
}

unsigned sim_descriptor_limit(void)
{
	return sim->job && sim->job->slow ? 16u << sim_common(0, 0, 13, 4) : 1024;
}

/* Longer than a handshake with another rank, and up to twice the time of the handshakes of all ranks with one. So a
 * dial may take the time of many messages, and of the timeouts half are shorter than an eighth of that time. */
static uint32_t short_timeout_ms(const struct sim_comm *w, int index)
{
	uint32_t one = (uint32_t)(sim_handshake_ns() / SIM_MS),
		 all = 2 * one * (uint32_t)w->n * 5 / 4;

	all >>= 2 * sim_common(w->key, index, 5, 4);
	return 3 + sim_common(w->key, index, 4, all + 1);
}

/* Receives a message of rank r, if one comes within timeout_ms. */
static tuttiResult_t receive(struct repeats *x, int r, int timeout_ms)
{
	struct sim_comm *w = x->w;
	tuttiResult_t rc = tuttiMsgRecv(x->data, MEDIUM, r, TAG, timeout_ms, w->comm, NULL);
	bool again = sim->job->rank[w->member[r]].resent && x->data[1] < w->received[r] &&
		     x->data[2] == (int)MEDIUM;

	if (rc || sim->job->faults == SIM_CORRUPTION) {
		x->awaited[r] -= !rc;
		return rc;
	}
	if (x->data[0] != r || (x->data[1] < w->received[r] && !again) ||
	    (x->data[1] > w->received[r] && !sim_any_harmed()))
		sim_fail("message %d of rank %d came for message %d of rank %d", x->data[1],
			 x->data[0], w->received[r], r);
	if (again)
		return tuttiSuccess;
	x->awaited[r]--;
	w->received[r] = x->data[1] + 1;
	return tuttiSuccess;
}

/* Makes room: a rank that sends while others wait for it to receive. */
static void receive_all(struct repeats *x)
{
	for (int r = 0; r < x->w->n; r++)
		while (x->awaited[r] > 0 && !receive(x, r, 0))
			;
}

static tuttiResult_t send_again(struct repeats *x, int to)
{
	struct sim_comm *w = x->w;
	struct sim_rank *me = &sim->job->rank[sim->process->number];
	uint64_t began = sim->now_ns;
	int number = w->sent[to]++, times = 0;
	tuttiResult_t rc, broken = tuttiSuccess;

	for (;;) {
		x->data[0] = w->rank;
		x->data[1] = number;
		x->data[2] = (int)x->bytes;
		rc = tuttiMsgSend(x->data, x->bytes, to, TAG, 0, w->comm);
		if (rc != tuttiTimeout)
			break;
		me->resent |= x->bytes > ONE_FRAME;
		sim_trace("process %d: message %d to rank %d is sent again", me->process.number,
			  number, to);
		times++;
		receive_all(x);
		tuttiCommGetAsyncError(w->comm, &broken);
		if (broken || (sim_any_harmed() && sim->now_ns - began > SIM_TIMEOUT_NS))
			break;
		if (sim->now_ns - began > MOST_NS) {
			sim_fail("message %d to rank %d was sent %d times in vain: %s", number, to,
				 times, tuttiGetLastError(NULL));
			break;
		}
	}
	me->unsent |= rc != tuttiSuccess;
	sim_check_call(w, "repeated message", broken ? tuttiSuccess : rc, began,
		       MOST_NS + SIM_SLACK_NS);
	return rc;
}

static tuttiResult_t receive_rest(struct repeats *x, int r)
{
	uint64_t began = sim->now_ns;
	tuttiResult_t rc = tuttiSuccess, broken = tuttiSuccess;

	while (x->awaited[r] > 0 && (!rc || rc == tuttiInProgress) && !broken) {
		rc = receive(x, r, 200);
		tuttiCommGetAsyncError(x->w->comm, &broken);
		if (sim->now_ns - began > (sim_any_harmed() ? SIM_TIMEOUT_NS : MOST_NS))
			break;
	}
	if (rc == tuttiInProgress && !sim_any_harmed())
		sim_fail("message %d of rank %d did not come", x->w->received[r], r);
	return rc == tuttiInProgress && broken ? broken : rc;
}

tuttiResult_t sim_repeat_messages(struct sim_comm *w, int index)
{
	struct repeats x = { .w = w,
			     .bytes = sim_common(w->key, index, 2, 3) || w->n > 8 ? ONE_FRAME
										  : MEDIUM };
	int each = 1 + (int)sim_common(w->key, index, 1, w->n > 4 ? 2 : 12);
	uint32_t timeout_ms = w->comm->settings.timeout_ms;
	tuttiResult_t rc = tuttiSuccess;

	sim->job->messaged = true;
	x.data = sim_block(0, MEDIUM);
	for (int r = 0; r < w->n; r++)
		x.awaited[r] = each;
	w->comm->settings.timeout_ms = short_timeout_ms(w, index);
	for (int r = 0; r < w->n; r++)
		for (int i = 0; i < each; i++) {
			tuttiResult_t sent = send_again(&x, r);

			rc = rc ? rc : sent;
			if (sent)
				break;
		}
	w->comm->settings.timeout_ms = timeout_ms;
	for (int r = 0; r < w->n; r++) {
		tuttiResult_t got = receive_rest(&x, r);

		rc = rc ? rc : got;
	}
	sim_free(x.data);
	return rc;
}
