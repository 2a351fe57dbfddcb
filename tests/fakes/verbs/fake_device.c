/*
 * fake_device.c - device memory that is registered by its descriptor, which the fake for CUDA made
 *
 * A card knows the memory, not the address: what is written by a key lands in the memory that the
 * descriptor named, also when that was freed since. Strict about descriptor, pages, bounds and
 * access rights. Where the device does not order writes they are held in memory beside it, and
 * brought there by the flush: whoever reads too early reads what was there before.
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

/* 0 or what a driver says */
static int check(const struct fake_dmabuf *d, uint64_t offset, size_t bytes, uint64_t iova,
		 int access)
{
	if (fault_from("no-dmabuf", bytes))
		return EOPNOTSUPP;
	if (d->magic != FAKE_DMABUF || !bytes || offset > d->bytes ||
	    bytes > d->bytes - offset ||
	    iova % PAGE != offset % PAGE || access & ~(TT_VERBS_LOCAL_WRITE | TT_VERBS_REMOTE_WRITE) ||
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

/* Offsets within a page are kept: only whole pages can be mapped. */
struct tt_verbs_mr *ibv_reg_dmabuf_mr(struct tt_verbs_pd *pd, uint64_t offset, size_t bytes,
				   uint64_t iova, int fd, int access)
{
	struct fake_dmabuf d = { 0 };
	uint64_t within = offset % PAGE;
	char *at, *held = NULL;

	if (refused("reg_dmabuf_mr"))
		return NULL;
	errno = pread(fd, &d, sizeof(d), 0) < 0 ? EBADF : check(&d, offset, bytes, iova, access);
	if (errno)
		return NULL;
	at = map(bytes + within, d.fd, d.offset + offset - within);
	if (at && d.unordered)
		held = map(bytes + within, -1, 0);
	if (!at || (d.unordered && !held)) {
		errno = ENOMEM;
		return NULL;
	}
	return add_mr(pd, iova, bytes, access, (uintptr_t)at + within,
		      held ? (uintptr_t)held + within : 0);
}

uint64_t read_at(const struct shared_mr *mr, uint64_t at)
{
	return mr && mr->really ? mr->really + (at - mr->start) : at;
}

uint64_t write_at(const struct shared_mr *mr, uint64_t at, uint64_t bytes)
{
	struct fake_shared *s = shared();

	if (!mr || !mr->held)
		return read_at(mr, at);
	if (s->nlandings < MAX_LANDINGS)       /* what does not fit is lost, and so is noticed */
		s->landing[s->nlandings++] = (struct landing){
			mr->pid, (uint32_t)(mr - s->mr), at - mr->start, bytes
		};
	return mr->held + (at - mr->start);
}

/* Those of this process that are of mr (NULL: all) leave; flushed: they get where they belong. */
static void end_landings(const struct shared_mr *mr, bool flushed)
{
	struct fake_shared *s = shared();
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->nlandings; i++) {
		struct landing l = s->landing[i];
		const struct shared_mr *m = &s->mr[l.mr];

		if (l.pid != getpid() || (mr && mr != m))
			s->landing[kept++] = l;
		else if (flushed)
			memcpy((char *)(uintptr_t)m->really + l.at,
			       (char *)(uintptr_t)m->held + l.at, l.bytes);
	}
	s->nlandings = kept;
}

void fake_flush(void)
{
	lock();
	end_landings(NULL, true);
	unlock();
}

void forget_device(const struct shared_mr *mr)
{
	uint64_t within = mr->start % PAGE;

	if (!mr->really)
		return;
	end_landings(mr, false);
	munmap((void *)(uintptr_t)(mr->really - within), mr->bytes + within);
	if (mr->held)
		munmap((void *)(uintptr_t)(mr->held - within), mr->bytes + within);
}
