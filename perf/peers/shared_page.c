/*
 * shared_page.c - memory shared by all ranks of one library: turns, barrier, mean over the ranks
 *
 * Called by peer_bench.c and peer_turn.c. perf/compare creates the memory (a memfd, which the kernel
 * frees) and passes its path in PEER_PAGE. Between turns the ranks sleep on a futex, so that an idle
 * library takes no processor time from the measured one.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "perf/peers/peer.h"

struct peer_shared {
	_Atomic uint32_t turns; /* turns posted so far; futex of the ranks */
	bool over;
	struct peer_turn turn;
	_Alignas(64) _Atomic uint32_t waiting;  /* ranks that wait in the barrier */
	_Alignas(64) _Atomic uint32_t barriers; /* barriers completed so far */
	_Alignas(64) double values[PEER_MAX_RANKS];
};

struct peer_page {
	struct peer_shared *shared;
	uint32_t taken;
	int rank, n;
	bool crowded;
};

struct peer_page *peer_page_open(void)
{
	const char *path = getenv("PEER_PAGE");
	struct peer_page *p = calloc(1, sizeof(*p));
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (!p || fd < 0 || ftruncate(fd, sizeof(struct peer_shared))) {
		fprintf(stderr,
			"PEER_PAGE=%s: the shared page cannot be opened; only perf/compare starts this program\n",
			path ? path : "");
		exit(2);
	}
	p->shared = mmap(NULL, sizeof(struct peer_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 0);
	close(fd);
	if (p->shared == MAP_FAILED) {
		perror("mmap of the shared page");
		exit(2);
	}
	return p;
}

void peer_page_join(struct peer_page *p, int rank, int n, bool crowded)
{
	p->rank = rank;
	p->n = n;
	p->crowded = crowded;
}

void peer_page_put(struct peer_page *p, const struct peer_turn *turn)
{
	p->shared->over = !turn;
	if (turn)
		p->shared->turn = *turn;
	atomic_fetch_add(&p->shared->turns, 1);
	syscall(SYS_futex, &p->shared->turns, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool peer_page_take(struct peer_page *p, struct peer_turn *ret_turn)
{
	while (atomic_load(&p->shared->turns) == p->taken)
		syscall(SYS_futex, &p->shared->turns, FUTEX_WAIT, p->taken, NULL, NULL, 0);
	p->taken++;
	*ret_turn = p->shared->turn;
	return !p->shared->over;
}

void peer_barrier(struct peer_page *p)
{
	struct peer_shared *s = p->shared;
	uint32_t barriers = atomic_load(&s->barriers);

	if (atomic_fetch_add(&s->waiting, 1) + 1 == (uint32_t)p->n) {
		atomic_store(&s->waiting, 0);
		atomic_store(&s->barriers, barriers + 1);
		return;
	}
	while (atomic_load_explicit(&s->barriers, memory_order_acquire) == barriers) {
		if (p->crowded)
			sched_yield();
#if defined(__x86_64__)
		else
			__builtin_ia32_pause();
#endif
	}
}

double peer_mean(struct peer_page *p, double mine)
{
	double sum = 0;

	p->shared->values[p->rank] = mine;
	peer_barrier(p);
	for (int i = 0; i < p->n; i++)
		sum += p->shared->values[i];
	peer_barrier(p);
	return sum / p->n;
}
