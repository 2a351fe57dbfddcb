/*
 * simulated_bytes.c - calls that send and receive; eventfd
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/simulation/simulated_network.h"

/* A sender whose segments a cut holds gives up some time after the first. */
static void limit(struct net_descriptor *d)
{
	const struct net_descriptor *peer = net_at(d->peer);

	if (net_is_cut(d->host, d->peer_host) && !net_has_held(peer))
		sim_at(sim->now_ns + d->user_timeout_ns, net_give_up, net_due_of(d));
}

/* A compromised process: lengths, counts and ranks that are wrong are more telling than noise. */
static void corrupt(const struct sim_process *p, struct net_segment *s)
{
	static const uint64_t values[] = { 0,          1,          0x7f,       0xff,
					   0x7fffffff, 0xffffffff, 1ull << 62, UINT64_MAX };
	size_t at, bytes;

	if (!p->corrupts || !s->bytes || sim_random(p->corrupts))
		return;
	at = sim_random((uint32_t)(s->bytes < 64 || sim_random(4) == 0 ? s->bytes : 64));
	bytes = (size_t)1 << sim_random(4);
	if (bytes > s->bytes - at)
		bytes = s->bytes - at;
	sim_trace("process %d corrupts bytes %zu to %zu", p->number, at, at + bytes - 1);
	if (sim_random(2))
		memcpy(s->data + at, &values[sim_random(8)], bytes);
	else
		s->data[at] ^= (uint8_t)(1u << sim_random(8));
}

static ssize_t send_some(struct net_descriptor *d, const struct iovec *iov, size_t niov, int flags)
{
	size_t bytes = 0, at = 0;
	struct net_segment *s;
	bool waits = !d->nonblocking && !(flags & MSG_DONTWAIT);

	if (d->shut)
		return net_fail(EPIPE);
	while (!d->error && net_has_room(d) == false) {
		if (!waits)
			return net_fail(EAGAIN);
		sim_sleep(d->process, SIM_NEVER);
	}
	if (d->error || !d->connected) {
		int error = d->error ? d->error : ENOTCONN;

		return net_fail(error);
	}
	for (size_t i = 0; i < niov; i++)
		bytes += iov[i].iov_len;
	if (bytes > 1 && !(flags & MSG_EOR) && !sim->hop_ns && sim_random(16) == 0)
		bytes = 1 + sim_random((uint32_t)(bytes < NET_WINDOW ? bytes
								     : NET_WINDOW)); /* a part */
	if (bytes > NET_WINDOW)
		bytes = NET_WINDOW;
	if (d->peer < 0)
		return (ssize_t)bytes; /* the reset is under way, or will be */
	s = net_segment(bytes);
	for (size_t i = 0; i < niov && at < bytes; i++) {
		size_t n = iov[i].iov_len < bytes - at ? iov[i].iov_len : bytes - at;

		memcpy(s->data + at, iov[i].iov_base, n);
		at += n;
	}
	corrupt(d->process, s);
	limit(d);
	sim_trace("process %d -> process %d: %zu bytes", d->process->number,
		  net_at(d->peer)->process->number, bytes);
	d->process->sent++;
	d->process->sent_bytes += bytes;
	net_at(d->peer)->process->received++;
	net_at(d->peer)->process->received_bytes += bytes;
	net_arrive(net_at(d->peer), s);
	return (ssize_t)bytes;
}

static ssize_t take(struct net_descriptor *d, uint8_t *to, size_t bytes)
{
	size_t have = 0;
	struct net_segment *s;

	while (have < bytes && (s = d->in) && s->arrival_ns <= sim->now_ns && !s->fin &&
	       !s->reset) {
		size_t n = s->bytes - s->taken < bytes - have ? s->bytes - s->taken : bytes - have;

		memcpy(to + have, s->data + s->taken, n);
		have += n;
		s->taken += n;
		if (s->taken < s->bytes)
			break;
		d->in = s->next;
		if (!d->in)
			d->in_last = &d->in;
		sim_free(s);
		if (sim_random(8) == 0)
			break; /* the rest with the next call */
	}
	net_acknowledge(d, have);
	return (ssize_t)have;
}

static ssize_t recv_some(struct net_descriptor *d, void *to, size_t bytes, int flags)
{
	bool waits = !d->nonblocking && !(flags & MSG_DONTWAIT);
	const struct net_segment *s;
	ssize_t n;

	for (;;) {
		n = take(d, to, bytes);
		if (n || !bytes)
			return n;
		s = d->in;
		if (s && s->arrival_ns <= sim->now_ns) {
			d->ended = true;
			return s->reset ? net_fail(ECONNRESET) : 0;
		}
		if (d->error)
			return net_fail(d->error);
		if (!waits)
			return net_fail(EAGAIN);
		sim_sleep(d->process, SIM_NEVER);
	}
}

SIM_REPLACE(ssize_t, send, int fd, const void *data, size_t bytes, int flags)
{
	struct iovec one = { (void *)(uintptr_t)data, bytes };

	sim_call();
	return send_some(net_of(fd), &one, 1, flags);
}

SIM_REPLACE(ssize_t, sendmsg, int fd, const struct msghdr *msg, int flags)
{
	sim_call();
	return send_some(net_of(fd), msg->msg_iov, msg->msg_iovlen, flags);
}

SIM_REPLACE(ssize_t, recv, int fd, void *data, size_t bytes, int flags)
{
	sim_call();
	return recv_some(net_of(fd), data, bytes, flags);
}

SIM_REPLACE(ssize_t, __recv_chk, int fd, void *data, size_t bytes, size_t room, int flags)
{
	(void)room;
	return __wrap_recv(fd, data, bytes, flags);
}

SIM_REPLACE(ssize_t, recvmsg, int fd, struct msghdr *msg, int flags)
{
	ssize_t all = 0;

	sim_call();
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		ssize_t n = recv_some(net_of(fd), msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len,
				      all ? flags | MSG_DONTWAIT : flags);

		if (n <= 0)
			return all ? all : n;
		all += n;
		if ((size_t)n < msg->msg_iov[i].iov_len)
			break;
	}
	return all;
}

SIM_REPLACE(ssize_t, read, int fd, void *data, size_t bytes)
{
	struct net_descriptor *d = net_of(fd);

	if (!net_is_simulated(fd))
		return __real_read(fd, data, bytes);
	sim_call();
	if (d->kind == NET_SOCKET)
		return recv_some(d, data, bytes, 0);
	if (d->kind != NET_EVENT)
		return 0;
	if (!d->count)
		return net_fail(EAGAIN);
	memcpy(data, &d->count, sizeof(d->count));
	d->count = 0;
	return sizeof(d->count);
}

SIM_REPLACE(ssize_t, __read_chk, int fd, void *data, size_t bytes, size_t room)
{
	(void)room;
	return __wrap_read(fd, data, bytes);
}

SIM_REPLACE(ssize_t, write, int fd, const void *data, size_t bytes)
{
	uint64_t add;

	if (!net_is_simulated(fd))
		return __real_write(fd, data, bytes);
	if (net_of(fd)->kind == NET_SOCKET)
		return __wrap_send(fd, data, bytes, 0);
	sim_call();
	memcpy(&add, data, sizeof(add));
	net_of(fd)->count += add;
	net_note_ready(net_of(fd));
	sim_wake(net_of(fd)->process);
	return (ssize_t)bytes;
}

SIM_REPLACE(int, eventfd, unsigned count, int flags)
{
	int fd;

	(void)flags;
	sim_call();
	fd = net_make(NET_EVENT);
	if (fd >= 0)
		net_of(fd)->count = count;
	return fd;
}

SIM_REPLACE(int, eventfd_read, int fd, eventfd_t *value)
{
	return __wrap_read(fd, value, sizeof(*value)) < 0 ? -1 : 0;
}

SIM_REPLACE(int, eventfd_write, int fd, eventfd_t value)
{
	return __wrap_write(fd, &value, sizeof(value)) < 0 ? -1 : 0;
}
