/*
 * test_fork.c - a fork of a process while its nonce for single copy is made (shm_single_copy.c)
 *
 * The linker gives the library's calls of getrandom and pthread_mutex_lock to this file (--wrap).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transports/shm/shm_segment.h"

/* makes: another thread makes the nonce, under the lock. goes_on: it may complete. is_child: no lock is waited for */
static atomic_bool makes, goes_on, is_child;

ssize_t __real_getrandom(void *buf, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *buf, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *buf, size_t bytes, unsigned flags)
{
	makes = true;
	while (!goes_on && !is_child)
		sched_yield();
	return __real_getrandom(buf, bytes, flags);
}

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
	if (is_child && pthread_mutex_trylock(lock) == EBUSY)
		_exit(1);
	if (is_child)
		return 0;
	goes_on = makes; /* the thread that forks waits for the lock */
	return __real_pthread_mutex_lock(lock);
}

static void *publish(void *segment)
{
	tt_shm_single_copy_publish(segment, true);
	return NULL;
}

Test(fork, a_child_of_a_process_whose_nonce_is_being_made_makes_its_own, .timeout = 60)
{
	static alignas(TT_APART)
		uint8_t memory[sizeof(struct tt_shm_header) + sizeof(struct tt_shm_bell)];
	struct tt_shm_header *header = (void *)memory;
	struct tt_shm_segment segment = { .header = header, .nlocal = 1 };
	uint64_t made[2];
	pthread_t other;
	pid_t child;
	int status;

	cr_assert(!pthread_create(&other, NULL, publish, &segment));
	while (!makes)
		sched_yield();
	child = fork();
	if (!child) {
		is_child = true;
		header->bells[0] = (struct tt_shm_bell){ 0 };
		publish(&segment);
		_exit(header->bells[0].pid != getpid() ||
		      !(header->bells[0].nonce[0] | header->bells[0].nonce[1]));
	}
	goes_on = true;
	cr_assert(!pthread_join(other, NULL) && child > 0 && waitpid(child, &status, 0) == child);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
	memcpy(made, header->bells[0].nonce, sizeof(made));
	publish(&segment);
	cr_expect(made[0] | made[1]);
	cr_expect_arr_eq(made, header->bells[0].nonce, sizeof(made));
}
