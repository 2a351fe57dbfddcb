/*
 * duplex.c - one interface for sessions of TLS and pipes
 */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "control/duplex.h"
#include "control/endpoint.h"

bool tt_duplex_begin(struct tt_duplex *d, struct tt_control_endpoint *ep, void *watched)
{
	int fd;

	if (d->pipe) {
		tt_pipe_attach(d->pipe, ep);
		return true;
	}
	fd = tt_tls_fd(d->tls);
	/* Traffic is sparse, with bursts: BBR, the default of some systems, paces such a burst for
	 * seconds. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	tt_sock_probe(fd);
	return tt_service_watch(EPOLL_CTL_ADD, fd, EPOLLIN, watched);
}

void tt_duplex_watch(struct tt_duplex *d, void *watched, bool writing)
{
	if (d->pipe)
		tt_pipe_watch(d->pipe, writing);
	else
		tt_service_watch(EPOLL_CTL_MOD, tt_tls_fd(d->tls),
				 EPOLLIN | (writing ? EPOLLOUT : 0), watched);
}

void tt_duplex_unwatch(struct tt_duplex *d)
{
	if (d->tls)
		tt_service_watch(EPOLL_CTL_DEL, tt_tls_fd(d->tls), 0, NULL);
}

void tt_duplex_close(struct tt_duplex *d)
{
	if (d->pipe)
		tt_pipe_close(d->pipe);
	tt_tls_close(d->tls);
	*d = (struct tt_duplex){ 0 };
}

ssize_t tt_duplex_recv(struct tt_duplex *d, void *data, size_t bytes)
{
	return d->pipe ? tt_pipe_recv(d->pipe, data, bytes) : tt_tls_recv(d->tls, data, bytes);
}

ssize_t tt_duplex_send(struct tt_duplex *d, const void *data, size_t bytes)
{
	return d->pipe ? tt_pipe_send(d->pipe, data, bytes) : tt_tls_send(d->tls, data, bytes);
}

void tt_duplex_shutdown(struct tt_duplex *d, int how)
{
	if (d->pipe)
		tt_pipe_shutdown(d->pipe, how);
	else
		shutdown(tt_tls_fd(d->tls), how);
}

void tt_duplex_read_ahead(struct tt_duplex *d, bool ahead)
{
	if (d->tls)
		tt_tls_read_ahead(d->tls, ahead);
}

bool tt_duplex_pending(const struct tt_duplex *d)
{
	return d->tls && tt_tls_pending(d->tls);
}

bool tt_duplex_drained(const struct tt_duplex *d)
{
	return d->tls && tt_tls_drained(d->tls);
}

size_t tt_duplex_unsent(const struct tt_duplex *d)
{
	int pending = 0;

	if (d->pipe || ioctl(tt_tls_fd(d->tls), SIOCOUTQ, &pending))
		return 0;
	return (size_t)pending;
}

bool tt_duplex_silent(const struct tt_duplex *d, char *text, size_t bytes)
{
	return d->tls && tt_sock_silent(tt_tls_fd(d->tls), text, bytes);
}

size_t tt_duplex_memory(const struct tt_duplex *d)
{
	return d->pipe ? tt_pipe_memory(d->pipe) : TT_TLS_BYTES;
}
