/*
 * wire_relay.c - a meddler between two ranks: all their connections lead through it; for wire.sh
 *
 *   wire_relay STATE NETWORK0 NETWORK1
 *
 * NETWORK0 is the process whose network has the address of rank 1, and reaches rank 0; NETWORK1 has
 * the address of rank 0, and reaches rank 1. The relay passes bytes on, and does what the plan of the
 * round says (wire.h). A thread a direction.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include "control/control_internal.h"
#include "tests/support/wire.h"

static struct wire_state *state;
static int network[2];

struct relayed { /* a connection */
	pthread_mutex_t lock;
	struct wire_plan plan;
	int round, fd[2], running; /* fd: to the client, to the server */
	long passed;               /* bytes of both directions */
};
struct direction {
	struct relayed *of;
	int from;
};

static struct sockaddr_in address_of(int rank)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)(ROOT_PORT + rank)),
				     .sin_addr.s_addr = htonl(0x0a4f0001u + (unsigned)rank) };
}

/* A socket in one of the two networks. */
static int open_socket(int in)
{
	int fd = setns(network[in], CLONE_NEWNET) ? -1 : socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0) {
		perror("wire_relay");
		exit(1);
	}
	return fd;
}

/* ---- what the relay forges ------------------------------------------------------------------- */

static void put_abort(struct tt_writer *w)
{
	uint8_t bytes[TT_ABORT_BYTES];
	struct tt_writer text = TT_WRITER_INTO(bytes);

	tt_control_put_abort(&text, 0, TT_REMOTE, 0, 0, FORGED);
	tt_put_frame_head(w, &(struct tt_frame_head){ TT_F_ABORT, 0, text.have });
	tt_put_bytes(w, text.data, text.have);
}

/* The head of a record of TLS */
static void put_record(struct tt_writer *w, int type, size_t bytes)
{
	tt_put(w, (uint64_t)type, 1);
	tt_put(w, 0x0303, 2);
	tt_put(w, bytes >> 8 | (bytes & 255) << 8, 2);
}

static void forge(int kind, struct tt_writer *w)
{
	static const struct tt_verdict_message welcome = { .verdict = TT_V_WELCOME },
					       excluded = { .verdict = TT_V_EXCLUDED };
	uint8_t bytes[TT_ABORT_BYTES + TT_FRAME_HEAD];
	struct tt_writer frame = TT_WRITER_INTO(bytes);

	put_abort(&frame);
	switch (kind) {
	case WIRE_FRAME:
		tt_put_bytes(w, frame.data, frame.have);
		break;
	case WIRE_RECORD:
		put_record(w, 23, frame.have);
		tt_put_bytes(w, frame.data, frame.have);
		break;
	case WIRE_WELCOME:
	case WIRE_EXCLUDED:
		put_record(w, 23, sizeof(welcome));
		tt_put_bytes(w, kind == WIRE_WELCOME ? &welcome : &excluded, sizeof(welcome));
		break;
	default: /* an alert: illegal_parameter, which a rank takes for another secret */
		put_record(w, 21, 2);
		tt_put(w, 2 | 47 << 8, 2);
	}
}

/* ---- relaying -------------------------------------------------------------------------------- */

static void note_altered(struct relayed *r)
{
	atomic_store(&state->altered, r->round);
}

/* What the plan does to the n bytes that have come: others go first, in *ret_first; returns the number of these
 * that follow. *ret_cut: then the connection ends. */
static long do_kind(struct relayed *r, const uint8_t *data, long n, struct tt_writer *ret_first,
		    bool *ret_cut)
{
	long kept = n - (r->passed - r->plan.after); /* those up to plan.after */

	if (r->plan.kind == WIRE_REPEAT)
		tt_put_bytes(ret_first, data, (size_t)n);
	else if (r->plan.kind == WIRE_LOSE || r->plan.kind == WIRE_CUT)
		n = kept > 0 ? kept : 0;
	else
		forge(r->plan.kind, ret_first);
	*ret_cut = r->plan.kind == WIRE_CUT;
	r->plan.kind = 0;
	note_altered(r);
	return n;
}

/* Change the n bytes that have come. Returns as do_kind. */
static long meddle(struct relayed *r, int from, uint8_t *data, long n, struct tt_writer *ret_first,
		   bool *ret_cut)
{
	pthread_mutex_lock(&r->lock);
	if (r->plan.bit >= 8 * r->passed && r->plan.bit < 8 * (r->passed + n)) {
		data[r->plan.bit / 8 - r->passed] ^= (uint8_t)(1 << r->plan.bit % 8);
		note_altered(r);
	}
	r->passed += n;
	if (r->plan.kind && r->plan.from == from && r->passed >= r->plan.after)
		n = do_kind(r, data, n, ret_first, ret_cut);
	pthread_mutex_unlock(&r->lock);
	return n;
}

static bool send_all(int fd, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		bytes -= (size_t)n;
	}
	return true;
}

static void end(struct relayed *r)
{
	bool last;

	pthread_mutex_lock(&r->lock);
	last = !--r->running;
	pthread_mutex_unlock(&r->lock);
	if (!last)
		return;
	close(r->fd[0]);
	close(r->fd[1]);
	free(r);
}

static void *relay(void *arg)
{
	struct direction d = *(struct direction *)arg;
	int in = d.of->fd[d.from], out = d.of->fd[!d.from];
	uint8_t data[16 << 10];
	ssize_t n;

	free(arg);
	while ((n = recv(in, data, sizeof(data), 0)) > 0) {
		struct tt_writer first = { 0 };
		bool sent, cut = false;

		n = meddle(d.of, d.from, data, n, &first, &cut);
		sent = send_all(out, first.data, first.have) && send_all(out, data, (size_t)n);
		free(first.data);
		if (!sent || cut) {
			n = -1;
			break;
		}
	}
	if (n == 0)
		shutdown(out, SHUT_WR);
	else /* lost: so is the other side's */
		shutdown(out, SHUT_RDWR), shutdown(in, SHUT_RDWR);
	end(d.of);
	return NULL;
}

static void start(struct relayed *r)
{
	for (int from = 0; from < 2; from++) {
		struct direction *d = malloc(sizeof(*d));
		pthread_t thread;

		setsockopt(r->fd[from], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
		*d = (struct direction){ r, from };
		if (pthread_create(&thread, NULL, relay, d))
			abort();
		pthread_detach(thread);
	}
}

/* ---- accepting ------------------------------------------------------------------------------- */

/* Accept for a rank, which is in the network of the same number. Thread: one a rank */
static void *serve(void *arg)
{
	int rank = *(int *)arg, listener = open_socket(!rank), last_round = -1;
	struct sockaddr_in here = address_of(rank);

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(listener, (struct sockaddr *)&here, sizeof(here)) || listen(listener, 64))
		return perror("wire_relay: listen"), exit(1), NULL;
	printf("listens for rank %d\n", rank);
	fflush(stdout);
	for (;;) {
		int client = accept(listener, NULL, NULL), server = open_socket(rank),
		    round = atomic_load(&state->round);
		struct relayed *r = calloc(1, sizeof(*r));

		if (client < 0 || connect(server, (struct sockaddr *)&here, sizeof(here))) {
			close(client);
			close(server);
			free(r);
			continue;
		}
		pthread_mutex_init(&r->lock, NULL);
		*r = (struct relayed){ .lock = r->lock,
				       .plan = { .bit = -1 },
				       .round = round,
				       .fd = { client, server },
				       .running = 2 };
		if (round != last_round && state->plan.port == ROOT_PORT + rank)
			r->plan = state->plan;
		last_round = round;
		start(r);
	}
}

int main(int argc, char **argv)
{
	static int ranks[2] = { 0, 1 };
	pthread_t thread;

	if (argc != 4)
		return 2;
	state = wire_map(argv[1]);
	atomic_store(&state->altered, -1);
	for (int i = 0; i < 2; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/proc/%s/ns/net", argv[2 + i]);
		network[i] = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (pthread_create(&thread, NULL, serve, &ranks[1]))
		return 1;
	serve(&ranks[0]);
	return 1;
}
