/*
 * clock.c - the clock of all deadlines and waits; called by every room
 */
#include "base/base.h"

#include <time.h>

#define POLL_MOST_NS 20000000u

uint64_t tt_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t tt_now_coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t tt_poll_interval_ns(uint64_t began_ns, uint64_t least_ns)
{
	uint64_t ns = (tt_now_ns() - began_ns) / 64;

	if (ns < least_ns)
		return least_ns;
	return ns < POLL_MOST_NS ? ns : POLL_MOST_NS;
}
