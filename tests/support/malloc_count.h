/*
 * malloc_count.h - counts the allocations of all code of a program; include in one file of a
 * program
 *
 * The counting functions replace malloc and its relatives of the C library. A sanitizer has its own
 * functions, so a sanitized program counts nothing (COUNTED is 0).
 */
#ifndef TESTS_MALLOC_COUNT_H
#define TESTS_MALLOC_COUNT_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/base.h"

static atomic_ulong allocations;

#if !defined(__GLIBC__) || defined(TT_ASAN) || defined(TT_TSAN)
#define COUNTED 0
#else
#define COUNTED 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

/* visible to shared libraries, so that their calls count */
#define COUNTING __attribute__((weak, visibility("default")))

COUNTING void *malloc(size_t bytes)
{
	allocations++;
	return __libc_malloc(bytes);
}

COUNTING void *calloc(size_t n, size_t bytes)
{
	allocations++;
	return __libc_calloc(n, bytes);
}

COUNTING void *realloc(void *p, size_t bytes)
{
	allocations++;
	return __libc_realloc(p, bytes);
}

COUNTING void *aligned_alloc(size_t align, size_t bytes)
{
	allocations++;
	return __libc_memalign(align, bytes);
}

COUNTING int posix_memalign(void **ret_p, size_t align, size_t bytes)
{
	void *p = aligned_alloc(align, bytes);

	if (!p)
		return ENOMEM;
	*ret_p = p;
	return 0;
}
#endif

#endif
