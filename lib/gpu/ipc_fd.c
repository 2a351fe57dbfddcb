/*
 * ipc_fd.c - memory shared by file descriptor: the exchange of descriptors among ranks, and device memory
 * (CUDA's virtual memory) for hosts that refuse IPC handles
 *
 * Called by ipc_buffer.c (memory) and gpu_open.c (exchange). An allocation is created, mapped and
 * exported as a descriptor. Descriptors are sent through a Unix socket. Each rank listens, sends the other
 * ranks the socket's name and a token in the authenticated exchange of the join, and accepts a
 * descriptor only with its token. Both sides check the user of the other side: everybody can read
 * the name, and take the name when its rank is dead.
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sock.h"
#include "gpu/gpu.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static struct tt_cuprop prop_of(int device)
{
	return (struct tt_cuprop){ .type = TT_CU_PINNED,
				   .handles = TT_CU_BY_FD,
				   .location = { TT_CU_ON_DEVICE, device } };
}

int tt_vmm_access(const struct tt_cuda *cu, int device, tt_cuptr at, size_t bytes)
{
	struct tt_cuaccess access = { .location = { TT_CU_ON_DEVICE, device },
				      .flags = TT_CU_READ_WRITE };

	return cu->vmm_access(at, bytes, &access, 1);
}

void tt_vmm_unmap(const struct tt_cuda *cu, tt_cuptr at, size_t bytes)
{
	cu->vmm_unmap(at, bytes);
	cu->vmm_free(at, bytes);
}

/* The mapping stays valid after the handle is released. */
static int map(const struct tt_cuda *cu, int device, uint64_t handle, size_t bytes,
	       tt_cuptr *ret_at)
{
	tt_cuptr at;
	int rc = cu->vmm_reserve(&at, bytes, 0, 0, 0);

	if (rc)
		return rc;
	rc = cu->vmm_map(at, bytes, 0, handle, 0);
	if (rc) {
		cu->vmm_free(at, bytes);
		return rc;
	}
	rc = tt_vmm_access(cu, device, at, bytes);
	if (rc) {
		tt_vmm_unmap(cu, at, bytes);
		return rc;
	}
	*ret_at = at;
	return 0;
}

int tt_vmm_make(const struct tt_cuda *cu, size_t least, size_t *ret_bytes, int *ret_fd,
		tt_cuptr *ret_at)
{
	struct tt_cuprop prop;
	size_t step, bytes;
	uint64_t handle;
	int device, fd = -1, rc = cu->ctx_device(&device);

	if (rc)
		return rc;
	prop = prop_of(device);
	if ((rc = cu->vmm_granularity(&step, &prop, 0)))
		return rc;
	bytes = (least + step - 1) / step * step;
	if ((rc = cu->vmm_create(&handle, bytes, &prop, 0)))
		return rc;
	rc = cu->vmm_export(&fd, handle, TT_CU_BY_FD, 0);
	if (!rc)
		rc = map(cu, device, handle, bytes, ret_at);
	cu->vmm_release(handle);
	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	*ret_bytes = bytes;
	*ret_fd = fd;
	return 0;
}

int tt_vmm_open(const struct tt_cuda *cu, int device, int fd, size_t bytes, tt_cuptr *ret_at)
{
	uint64_t handle;
	int rc = cu->vmm_import(&handle, (void *)(intptr_t)fd, TT_CU_BY_FD);

	if (rc)
		return rc;
	rc = map(cu, device, handle, bytes, ret_at);
	cu->vmm_release(handle);
	return rc;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

struct fd_message {
	uint64_t token;
	int32_t from, is_of_buffer;
};

static socklen_t socket_address(uint64_t name, struct sockaddr_un *sa)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)sprintf(sa->sun_path + 1, "tutti-gpu-%016llx",
					   (unsigned long long)name));
}

/* Same user, or root. false: *ret_user is another one */
static bool is_trusted(int fd, unsigned *ret_user)
{
	struct ucred who = { .uid = (uid_t)-1 };

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &(socklen_t){ sizeof(who) });
	*ret_user = who.uid;
	return who.uid == geteuid() || who.uid == 0;
}

int tt_fd_exchange_open(struct tt_fd_exchange *exchange)
{
	struct sockaddr_un sa;
	socklen_t bytes;

	exchange->socket = -1;
	if (getrandom(&exchange->address, sizeof(exchange->address), 0) !=
	    sizeof(exchange->address))
		return tt_fail(TT_SYSTEM, "no random numbers for a socket's name: %m");
	bytes = socket_address(exchange->address.name, &sa);
	exchange->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (exchange->socket < 0 || bind(exchange->socket, (struct sockaddr *)&sa, bytes) ||
	    listen(exchange->socket, SOMAXCONN))
		return tt_fail(TT_SYSTEM, "a socket for descriptors of a rank's memory: %m");
	return 0;
}

static int send_fd(int rank, int peer, const struct tt_fd_address *to, bool is_of_buffer, int fd)
{
	struct fd_message message = { to->token, rank, is_of_buffer };
	int via = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;
	struct sockaddr_un sa;
	socklen_t bytes = socket_address(to->name, &sa);
	unsigned user;

	if (via < 0 || connect(via, (struct sockaddr *)&sa, bytes))
		rc = tt_fail(TT_SYSTEM,
			     "rank %d: connect to rank %d for a descriptor of memory: %m", rank,
			     peer);
	else if (!is_trusted(via, &user))
		rc = tt_fail(TT_SYSTEM,
			     "rank %d: user %u listens where rank %d should: memory is not shared",
			     rank, user, peer);
	else if (!tt_sock_give_fd(via, NULL, 0, &message, sizeof(message), fd))
		rc = tt_fail(TT_SYSTEM, "rank %d: send a descriptor of memory to rank %d: %m", rank,
			     peer);
	if (via >= 0)
		close(via);
	return rc;
}

int tt_fd_exchange_send(int rank, int peer, const struct tt_fd_address *to, struct tt_ipc_fds fds)
{
	int rc = send_fd(rank, peer, to, false, fds.words);

	return rc || fds.buffer < 0 ? rc : send_fd(rank, peer, to, true, fds.buffer);
}

/* Receives the message of one connection. *ret_fd -1: another user's, with a wrong token or without
 * a descriptor. false: no connection */
static bool receive(const struct tt_fd_exchange *exchange, struct fd_message *ret_message,
		    int *ret_fd)
{
	int via = accept4(exchange->socket, NULL, NULL, SOCK_CLOEXEC);
	unsigned user;
	ssize_t n;

	if (via < 0)
		return false;
	n = tt_sock_take_fd(via, ret_message, sizeof(*ret_message), ret_fd);
	if (*ret_fd >= 0 && (!is_trusted(via, &user) || n != sizeof(*ret_message) ||
			     ret_message->token != exchange->address.token)) {
		close(*ret_fd);
		*ret_fd = -1;
	}
	close(via);
	return true;
}

void tt_fd_exchange_collect(struct tt_fd_exchange *exchange)
{
	struct fd_message m;
	int fd, *place;

	while (receive(exchange, &m, &fd)) {
		if (fd < 0)
			continue;
		place = m.from < 0 || m.from >= TT_DEV_RANKS ? NULL
			: m.is_of_buffer                     ? &exchange->of[m.from].buffer
							     : &exchange->of[m.from].words;
		if (place && *place < 0)
			*place = fd;
		else
			close(fd);
	}
}

void tt_fd_exchange_close(struct tt_fd_exchange *exchange)
{
	for (int r = 0; r < TT_DEV_RANKS; r++) {
		if (exchange->of[r].words >= 0)
			close(exchange->of[r].words);
		if (exchange->of[r].buffer >= 0)
			close(exchange->of[r].buffer);
	}
	if (exchange->socket >= 0)
		close(exchange->socket);
}
