/* fake_shared.c - the file that all processes with the fake libibverbs share; queries of tests
 * (fake_counts.h) */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs.h"
#include "tests/fakes/cuda/fake_counts.h"

#define WAIT_NS 20000000 /* most, for a lock */

#pragma GCC visibility push(default)

/* ---- the shared file ------------------------------------------------------------------------- */

static struct fake_shared *all;

static void map_file(void)
{
	const char *path = getenv("TUTTI_TEST_VERBS");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	pthread_mutexattr_t attr;
	bool fresh;

	if (fd < 0 || flock(fd, LOCK_EX))
		return;
	fresh = lseek(fd, 0, SEEK_END) < (off_t)sizeof(*all);
	if (!fresh || !ftruncate(fd, sizeof(*all)))
		all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (all == MAP_FAILED)
		all = NULL;
	if (all && fresh) {
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(&all->lock, &attr);
		all->numbers = 0x100;
	}
	flock(fd, LOCK_UN); /* the mapping would keep the lock */
	close(fd);
}

struct fake_shared *shared(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, map_file);
	return all;
}

/* A robust mutex can lose a wake-up: a process is woken, killed before it takes the lock, and a third one takes the
 * lock meanwhile; then the kernel wakes nobody in place of the dead one. So no wait is longer than WAIT_NS. */
void lock(void)
{
	struct timespec until;
	int rc;

	do {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += WAIT_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		rc = pthread_mutex_clocklock(&all->lock, CLOCK_MONOTONIC, &until);
	} while (rc == ETIMEDOUT);
	if (rc == EOWNERDEAD)
		pthread_mutex_consistent(&all->lock);
}

void unlock(void)
{
	pthread_mutex_unlock(&all->lock);
}

uint32_t new_number(void)
{
	return __atomic_add_fetch(&all->numbers, 1, __ATOMIC_RELAXED);
}

/* ---- queries of tests (fake_counts.h) ------------------------------------------------------------- */

fake_hits_fn fake_verbs_hits;
fake_own_fn fake_verbs_own;
fake_left_fn fake_verbs_left;

static atomic_int hits, left[OBJECTS];
static __thread bool own;

int refused(const char *call)
{
	static atomic_int calls;
	const char *want = getenv("TUTTI_TEST_VERBS_FAIL");
	char name[64];
	int nth, code, number;

	if (!want || own || sscanf(want, "%63[^:]:%d:%d", name, &nth, &code) != 3 ||
	    strcmp(name, call))
		return 0;
	number = atomic_fetch_add(&calls, 1) + 1;
	if (nth > 0 ? number != nth : number < -nth)
		return 0;
	atomic_fetch_add(&hits, 1);
	return errno = code;
}

void count_object(enum fake_verbs_object object, int n)
{
	atomic_fetch_add(&left[object], n);
}

int fake_verbs_hits(void)
{
	return atomic_load(&hits);
}

void fake_verbs_own(bool is)
{
	own = is;
}

const char *fake_verbs_left(int n, int *ret_left)
{
	static const char *const names[OBJECTS] = {
		[A_LIST] = "device list",     [A_CONTEXT] = "device context",
		[A_PD] = "protection domain", [AN_MR] = "registration",
		[A_CHANNEL] = "channel",      [A_CQ] = "completion queue",
		[A_QP] = "queue pair",
	};

	_Static_assert(OBJECTS <= FAKE_OBJECTS, "a test has room for all kinds");
	if (n >= OBJECTS)
		return NULL;
	*ret_left = atomic_load(&left[n]);
	return names[n];
}
