/* futex.h - sleep until a word changes; used by transports whose doorbell is a word of memory */
#ifndef TT_FUTEX_H
#define TT_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns when the word is not ticket any more, after tt_futex_wake,
 * after timeout_us, or for no reason. */
static inline void tt_futex_wait(_Atomic uint32_t *word, uint32_t ticket, uint32_t timeout_us)
{
	struct timespec limit = { timeout_us / 1000000, (long)(timeout_us % 1000000) * 1000 };

	syscall(SYS_futex, word, FUTEX_WAIT, ticket, &limit, NULL, 0);
}

/* Changes the word and ends the sleep of everyone who waits for that, in any process. */
static inline void tt_futex_wake(_Atomic uint32_t *word)
{
	atomic_fetch_add(word, 1);
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

#endif
