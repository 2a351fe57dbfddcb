/*
 * fake_device.c - device memory that is registered by the descriptor of a dma-buf, which the fake
 * CUDA driver made
 *
 * A registration refers to memory, not to an address: a write by key lands in the memory that the
 * descriptor named, even after that memory was freed. Descriptor, pages, bounds and access rights
 * are checked strictly. Where the device does not order writes, they are deferred in a buffer
 * beside the memory until the flush: a reader that is too early reads the old contents.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs.h"
#include "tests/fakes/cuda/fake_dmabuf.h"

#pragma GCC visibility push(default)

#define PAGE 4096

struct tt_verbs_mr *ibv_reg_dmabuf_mr(struct tt_verbs_pd *pd, uint64_t offset, size_t bytes,
				      uint64_t iova, int fd, int access);
void fake_flush(void);

/* Returns 0 or the errno of a driver. */
static int check(const struct fake_dmabuf *d, uint64_t offset, size_t bytes, uint64_t iova,
		 int access)
{
	if (fault_from("no-dmabuf", bytes))
		return EOPNOTSUPP;
	if (d->magic != FAKE_DMABUF || !bytes || offset > d->bytes || bytes > d->bytes - offset ||
	    iova % PAGE != offset % PAGE ||
	    access & ~(TT_VERBS_LOCAL_WRITE | TT_VERBS_REMOTE_WRITE) ||
	    (access & TT_VERBS_REMOTE_WRITE && !(access & TT_VERBS_LOCAL_WRITE)))
		return EINVAL;
	return 0;
}

static void *map(size_t bytes, int fd, uint64_t offset)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}

/* Keeps the offset within a page, since only whole pages can be mapped. */
struct tt_verbs_mr *ibv_reg_dmabuf_mr(struct tt_verbs_pd *pd, uint64_t offset, size_t bytes,
				      uint64_t iova, int fd, int access)
{
	struct fake_dmabuf d = { 0 };
	uint64_t within = offset % PAGE;
	char *at, *deferred = NULL;

	if (refused("reg_dmabuf_mr"))
		return NULL;
	errno = pread(fd, &d, sizeof(d), 0) < 0 ? EBADF : check(&d, offset, bytes, iova, access);
	if (errno)
		return NULL;
	at = map(bytes + within, d.fd, d.offset + offset - within);
	if (at && d.unordered)
		deferred = map(bytes + within, -1, 0);
	if (!at || (d.unordered && !deferred)) {
		errno = ENOMEM;
		return NULL;
	}
	return add_mr(pd, iova, bytes, access, (uintptr_t)at + within,
		      deferred ? (uintptr_t)deferred + within : 0);
}

uint64_t read_at(const struct shared_mr *mr, uint64_t at)
{
	return mr && mr->mapping ? mr->mapping + (at - mr->start) : at;
}

uint64_t write_at(const struct shared_mr *mr, uint64_t at, uint64_t bytes)
{
	struct fake_shared *s = shared();

	if (!mr || !mr->deferred)
		return read_at(mr, at);
	/* a write beyond that bound is lost, so the test fails */
	if (s->ndeferred < MAX_DEFERRED)
		s->deferred_write[s->ndeferred++] = (struct deferred_write){
			mr->pid, (uint32_t)(mr - s->mr), at - mr->start, bytes
		};
	return mr->deferred + (at - mr->start);
}

/* Removes this process's deferred writes to mr (NULL: to all registrations); flushed: carries them
 * out first. */
static void end_deferred(const struct shared_mr *mr, bool flushed)
{
	struct fake_shared *s = shared();
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->ndeferred; i++) {
		struct deferred_write l = s->deferred_write[i];
		const struct shared_mr *m = &s->mr[l.mr];

		if (l.pid != getpid() || (mr && mr != m))
			s->deferred_write[kept++] = l;
		else if (flushed)
			memcpy((char *)(uintptr_t)m->mapping + l.at,
			       (char *)(uintptr_t)m->deferred + l.at, l.bytes);
	}
	s->ndeferred = kept;
}

void fake_flush(void)
{
	lock();
	end_deferred(NULL, true);
	unlock();
}

void forget_device(const struct shared_mr *mr)
{
	uint64_t within = mr->start % PAGE;

	if (!mr->mapping)
		return;
	end_deferred(mr, false);
	munmap((void *)(uintptr_t)(mr->mapping - within), mr->bytes + within);
	if (mr->deferred)
		munmap((void *)(uintptr_t)(mr->deferred - within), mr->bytes + within);
}
