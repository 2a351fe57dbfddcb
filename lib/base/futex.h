/* futex.h - sleep until a 32-bit value changes; the doorbell of transports in shared memory */
#ifndef TT_FUTEX_H
#define TT_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep while the value is ticket. Returns after the value changed, after tt_futex_wake, after
 * timeout_us, or spuriously. */
static inline void tt_futex_wait(_Atomic uint32_t *value, uint32_t ticket, uint32_t timeout_us)
{
	struct timespec limit = { timeout_us / 1000000, (long)(timeout_us % 1000000) * 1000 };

	syscall(SYS_futex, value, FUTEX_WAIT, ticket, &limit, NULL, 0);
}

/* Change the value and wake all threads that wait for it, in any process. */
static inline void tt_futex_wake(_Atomic uint32_t *value)
{
	atomic_fetch_add(value, 1);
	syscall(SYS_futex, value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

#endif
