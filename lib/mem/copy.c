/*
 * copy.c - copies by vectors, and by non-temporal stores, which bypass the caches
 *
 * Copies by vectors replace memcpy where `rep movsb` is slow. EPYC 9004, glibc 2.36, ns in the caches: memcpy of
 * 16 KiB 184, to 4 bytes behind the source's address within a page 4709, to 48 bytes 568, to 132 bytes 297; by
 * vectors 159 to 171. Elsewhere memcpy is better: rep movsb overwrites lines that this core's caches do not have
 * without reading them first (send and receive of 1 MiB, one core: 82 us, by vectors 141).
 *
 * Non-temporal stores: called by run for outputs that no cache will keep, and for shared memory (run/stores.c). An
 * ordinary store that misses first reads its cache line, in vain if the whole line is overwritten.
 * Two ranks that copy 64 MiB each on a machine with DDR5: 7 GB/s with ordinary stores, 14 GB/s with
 * non-temporal ones; 4 MiB: 14 and 17 GB/s. Copies that fit into a core's own cache take half as long
 * again with non-temporal stores.
 */
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "mem/copy.h"
#include "mem/reduce_types.h"

void tt_copy_vectors(void *dst, const void *src, size_t bytes)
{
	tt_reduce_isa_now()->copy(dst, src, bytes);
}

#ifdef __x86_64__
static void stream_lines(char *dst, const char *src, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += TT_LINE) {
		const __m128i *s = (const __m128i *)(src + at);
		__m128i *d = (__m128i *)(dst + at);
		__m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
		__m128i e = _mm_loadu_si128(s + 2), f = _mm_loadu_si128(s + 3);

		_mm_stream_si128(d, a);
		_mm_stream_si128(d + 1, b);
		_mm_stream_si128(d + 2, e);
		_mm_stream_si128(d + 3, f);
	}
	/* non-temporal stores are weakly ordered: a later flag must not overtake them */
	_mm_sfence();
}

void tt_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	size_t head = -(uintptr_t)dst % TT_LINE, lines;

	if (bytes < head + TT_LINE) {
		memcpy(dst, src, bytes);
		return;
	}
	memcpy(dst, src, head);
	lines = (bytes - head) / TT_LINE * TT_LINE;
	stream_lines((char *)dst + head, (const char *)src + head, lines);
	memcpy((char *)dst + head + lines, (const char *)src + head + lines, bytes - head - lines);
}
#else
void tt_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}
#endif
