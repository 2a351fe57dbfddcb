/*
 * clock.c - the clock of all deadlines and waits; called by every room
 */
#include "base/base.h"

#include <time.h>

uint64_t tt_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
