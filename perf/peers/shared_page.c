/*
 * shared_page.c - the page that all ranks of one library share:
 * handing out turns, meeting, agreeing on a mean
 *
 * Called by peer_bench.c and peer_turn.c. perf/compare makes the memory (a memfd, so that nothing can be left
 * behind) and names it in PEER_BOARD. Between turns ranks sleep: a library that waits for its turn
 * must not take time from the one measured.
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

struct shared {
	_Atomic uint32_t turns;                         /* handed out so far: what ranks sleep on */
	bool over;
	struct peer_turn turn;
	_Alignas(64) _Atomic uint32_t here;             /* ranks that wait to meet */
	_Alignas(64) _Atomic uint32_t met;              /* meetings so far */
	_Alignas(64) double values[PEER_MAX_RANKS];
};

struct peer_board {
	struct shared *shared;
	uint32_t taken;
	int rank, n;
	bool crowded;
};

struct peer_board *peer_board_open(void)
{
	const char *path = getenv("PEER_BOARD");
	struct peer_board *b = calloc(1, sizeof(*b));
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (!b || fd < 0 || ftruncate(fd, sizeof(struct shared))) {
		fprintf(stderr,
			"the board (PEER_BOARD=%s) cannot be opened; perf/compare starts this program\n",
			path ? path : "");
		exit(2);
	}
	b->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (b->shared == MAP_FAILED) {
		perror("mmap of the board");
		exit(2);
	}
	return b;
}

void peer_board_join(struct peer_board *b, int rank, int n, bool crowded)
{
	b->rank = rank;
	b->n = n;
	b->crowded = crowded;
}

void peer_board_put(struct peer_board *b, const struct peer_turn *turn)
{
	b->shared->over = !turn;
	if (turn)
		b->shared->turn = *turn;
	atomic_fetch_add(&b->shared->turns, 1);
	syscall(SYS_futex, &b->shared->turns, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool peer_board_take(struct peer_board *b, struct peer_turn *ret_turn)
{
	while (atomic_load(&b->shared->turns) == b->taken)
		syscall(SYS_futex, &b->shared->turns, FUTEX_WAIT, b->taken, NULL, NULL, 0);
	b->taken++;
	*ret_turn = b->shared->turn;
	return !b->shared->over;
}

void peer_meet(struct peer_board *b)
{
	struct shared *s = b->shared;
	uint32_t met = atomic_load(&s->met);

	if (atomic_fetch_add(&s->here, 1) + 1 == (uint32_t)b->n) {
		atomic_store(&s->here, 0);
		atomic_store(&s->met, met + 1);
		return;
	}
	while (atomic_load_explicit(&s->met, memory_order_acquire) == met) {
		if (b->crowded)
			sched_yield();
#if defined(__x86_64__)
		else
			__builtin_ia32_pause();
#endif
	}
}

double peer_mean(struct peer_board *b, double mine)
{
	double sum = 0;

	b->shared->values[b->rank] = mine;
	peer_meet(b);
	for (int i = 0; i < b->n; i++)
		sum += b->shared->values[i];
	peer_meet(b);
	return sum / b->n;
}
