/*
 * sock_fd.c - send and receive a descriptor over a unix socket (SCM_RIGHTS), with a few bytes
 *
 * Called by shm and gpu: processes share memory by its descriptor.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sock.h"

union fd_control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

bool tt_sock_give_fd(int via, const struct sockaddr *to, socklen_t to_bytes, const void *data,
		     size_t bytes, int fd)
{
	union fd_control control = { 0 };
	struct iovec one = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	struct msghdr msg = { .msg_name = (void *)(uintptr_t)to,
			      .msg_namelen = to_bytes,
			      .msg_iov = &one,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(via, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* The number of descriptors in c, and their array. */
static size_t descriptors_of(struct cmsghdr *c, int **ret_fds)
{
	*ret_fds = (int *)(void *)CMSG_DATA(c);
	return c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
		       ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int)
		       : 0;
}

/* A message of Tutti has one descriptor; the aligned buffer has room for more, which are closed. */
ssize_t tt_sock_take_fd(int via, void *data, size_t bytes, int *ret_fd)
{
	union fd_control control = { 0 };
	struct iovec one = { .iov_base = data, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &one,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(via, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	size_t nfds = 0;
	int *fds;

	*ret_fd = -1;
	if (c)
		nfds = descriptors_of(c, &fds);
	if (nfds == 1 && !(msg.msg_flags & MSG_CTRUNC))
		*ret_fd = fds[0];
	else
		for (size_t i = 0; i < nfds; i++)
			close(fds[i]);
	return n;
}
