/*
 * shm_single_copy.c - single copy (smsc): read a buffer in the memory of a peer of this host
 *
 * Called through tt_shm by local (single_copy.c). Three cases, the best possible one is used:
 *   pointer   the peer's buffer is from tuttiMemAlloc. This rank maps the window once, through
 *             /proc/PID/fd, and keeps it in a slot that the owner numbers, so that both sides agree
 *             on the mapped windows
 *   read      process_vm_readv (CMA): one copy by the kernel, which some containers, seccomp
 *             profiles and Yama settings forbid
 *   none      neither is possible
 * A peer that is a thread of this process is treated alike. Its ordinary memory is not read through
 * a pointer, because the peer may free it after a failure while others still read; a mapping of
 * this rank's own, and the kernel, survive that.
 *
 * A pid is not trusted: the process may have ended, and another one have its number. A window must have the inode
 * that its owner described. Each rank publishes a nonce in the segment, and its address in the process. Each read takes
 * the nonce along: the kernel finds the process once for both.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fence.h"
#include "mem/memory.h"
#include "transports/shm/shm_ring.h"

/* ---- identity of a process ------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of nonce and owner */
static uint64_t nonce[2];
static pid_t owner;

/* The nonce of this process; a forked child makes another. */
static const uint64_t *nonce_of_process(void)
{
	pthread_mutex_lock(&lock);
	if (owner != getpid() && getrandom(nonce, sizeof(nonce), 0) == sizeof(nonce))
		owner = getpid();
	pthread_mutex_unlock(&lock);
	return nonce;
}

/* A fork takes the lock, so that its child finds no lock of a thread that the child does not have. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* A forked child is not the rank, also without a nonce of its own. */
static void forget(void)
{
	memset(nonce, 0, sizeof(nonce));
	owner = 0;
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, forget);
}

void tt_shm_single_copy_publish(struct tt_shm_segment *s, bool crowded)
{
	struct tt_shm_bell *mine = &s->header->bells[s->me];
	const uint64_t *made = nonce_of_process();

	/* register, so that a sleeping rank's membarrier covers this process; where ranks sleep
	 * often, each issues its own fences */
	if (crowded || !tt_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
		atomic_store(&s->header->fences, 1);
	mine->pid = getpid();
	mine->nonce_at = (uintptr_t)made;
	memcpy(mine->nonce, made, sizeof(mine->nonce));
}

/* bytes may be 0: only the nonce. 0 | an errno, ESRCH: the process is not the rank's any more */
static int read_from(const struct tt_shm_bell *peer, void *to, uint64_t from, size_t bytes)
{
	char *at = to;
	uint64_t seen[2] = { 0 };

	for (;;) {
		struct iovec local[] = { { at, bytes }, { seen, sizeof(seen) } },
			     remote[] = { { (void *)(uintptr_t)from, bytes },
					  { (void *)(uintptr_t)peer->nonce_at, sizeof(seen) } };
		ssize_t n = process_vm_readv(peer->pid, local, 2, remote, 2, 0);

		if (n <= 0)
			return n < 0 ? errno : EFAULT;
		if ((size_t)n > bytes)
			return (seen[0] | seen[1]) && !memcmp(seen, peer->nonce, sizeof(seen))
				       ? 0
				       : ESRCH;
		at += n;
		from += (uint64_t)n;
		bytes -= (size_t)n;
	}
}

static const struct tt_shm_bell *bell_of(const struct tt_shm_ep *ep, int peer)
{
	return &ep->segment.header->bells[ep->segment.local_of[peer]];
}

/* ---- windows --------------------------------------------------------------------------------- */

void tt_shm_describe(struct tt_endpoint *base, const void *p, size_t bytes,
		     struct tt_peer_memory *ret)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	struct tt_window w;
	uint64_t offset;
	int i = 0;

	*ret = (struct tt_peer_memory){ .at = (uintptr_t)p, .slot = -1 };
	if (!tt_memory_window(p, bytes, &w, &offset))
		return;
	while (i < TT_SHM_WINDOWS && ep->described[i] != w.number)
		i++;
	if (i == TT_SHM_WINDOWS) {
		i = (int)(ep->ndescribed++ % TT_SHM_WINDOWS);
		ep->described[i] = w.number;
		ret->fresh = true;
	}
	ret->offset = offset;
	ret->slot = (int16_t)i;
	ret->window_bytes = w.bytes;
	ret->inode = w.inode;
	ret->fd = w.fd;
}

static struct tt_shm_mapped *mapping_of(struct tt_shm_ep *ep, int peer,
					const struct tt_peer_memory *r)
{
	return &ep->mapped[ep->segment.local_of[peer] * TT_SHM_WINDOWS + r->slot];
}

static void unmap(struct tt_shm_mapped *m)
{
	if (m->start)
		munmap(m->start, m->bytes);
	*m = (struct tt_shm_mapped){ 0 };
}

static bool map_window(struct tt_shm_ep *ep, int peer, const struct tt_peer_memory *r)
{
	struct tt_shm_mapped *m = mapping_of(ep, peer, r);
	pid_t pid = bell_of(ep, peer)->pid;
	char path[64];
	struct stat st;
	void *p;
	int fd;

	unmap(m);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, r->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	p = fstat(fd, &st) || st.st_ino != r->inode || (uint64_t)st.st_size != r->window_bytes
		    ? MAP_FAILED
		    : mmap(NULL, r->window_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return false;
	*m = (struct tt_shm_mapped){ p, r->window_bytes, r->inode };
	return true;
}

/* ---- attach, pointer, read ------------------------------------------------------------------- */

bool tt_shm_attach(struct tt_endpoint *base, int peer, const struct tt_peer_memory *r)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;

	if (r->slot >= 0 && r->slot < TT_SHM_WINDOWS)
		return map_window(ep, peer, r);
	return base->world->cma != TT_CMA_OFF && !read_from(bell_of(ep, peer), NULL, 0, 0);
}

const void *tt_shm_pointer(struct tt_endpoint *base, int peer, const struct tt_peer_memory *r,
			   size_t bytes)
{
	struct tt_shm_ep *ep = (struct tt_shm_ep *)base;
	struct tt_shm_mapped *m;

	if (r->slot < 0 || r->slot >= TT_SHM_WINDOWS)
		return NULL;
	m = mapping_of(ep, peer, r);
	/* fresh in a call in which this rank did not attach */
	if ((!m->start || m->inode != r->inode) && !map_window(ep, peer, r))
		return NULL;
	if (r->offset > m->bytes || bytes > m->bytes - r->offset)
		return NULL;
	return (char *)m->start + r->offset;
}

int tt_shm_try_read(struct tt_endpoint *base, int peer, void *to, uint64_t from, size_t bytes)
{
	return read_from(bell_of((struct tt_shm_ep *)base, peer), to, from, bytes);
}

int tt_shm_read(struct tt_endpoint *base, int peer, void *to, uint64_t from, size_t bytes)
{
	int why = tt_shm_try_read(base, peer, to, from, bytes);

	return !why ? 0
		    : tt_fail(TT_REMOTE, "rank %d: reading %zu bytes of rank %d's memory: %s%s",
			      base->world->rank, bytes, peer, strerror(why),
			      why == EFAULT
				      ? "; for memory that peers cannot read, as a mapping of "
					"a device, set TUTTI_CMA=off"
				      : "");
}

void tt_shm_single_copy_close(struct tt_shm_ep *ep)
{
	for (int i = 0; ep->mapped && i < ep->segment.nlocal * TT_SHM_WINDOWS; i++)
		unmap(&ep->mapped[i]);
}
