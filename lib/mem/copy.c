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

/* Short copies end before the processor's own prefetch begins. */
#define SHORT 4096u
static void fetch_short(const char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes && bytes <= SHORT; at += TT_LINE)
		tt_fetch_to_write(p + at);
}

/* The processor's own prefetch begins again with each page, late for lines that another core's cache has. So the next
 * page comes into this core's second cache while this one is copied. Xeon, 2 MiB of second cache, two cores, us:
 * allgather of 64 KiB 4.3 to 3.4, send and receive of 64 KiB 5.9 to 5.2, of 256 KiB 20.8 to 19, ping-pong of 256 KiB 27.5
 * to 25.5. In tt_copy_and_own nothing is gained. */
#define AHEAD 4096u

/* For a length that is constant the compiler would take rep movsq, so it does not see the length. */
static void copy(void *dst, const void *src, size_t bytes)
{
	__asm__("" : "+r"(bytes));
	tt_copy(dst, src, bytes);
}

static void fetch_lines(const char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 2 * TT_LINE) {
		__builtin_prefetch(p + at, 0, 2);
		__builtin_prefetch(p + at + TT_LINE, 0, 2);
	}
}

void tt_copy_and_keep(void *dst, const void *src, size_t bytes)
{
	size_t at = 0;

	if (bytes <= SHORT) {
		fetch_short(src, bytes);
		tt_copy(dst, src, bytes);
		return;
	}
	fetch_lines(src, AHEAD);
	for (; bytes - at > 2 * AHEAD; at += AHEAD) {
		fetch_lines((const char *)src + at + AHEAD, AHEAD);
		copy((char *)dst + at, (const char *)src + at, AHEAD);
	}
	fetch_lines((const char *)src + at + AHEAD, bytes - at - AHEAD);
	copy((char *)dst + at, (const char *)src + at, bytes - at);
}

/* A line that is fetched to be written (prefetchw), but not written, is slower for its next writer than one that is
 * shared: send and receive of 1 MiB, EPYC 9004, us, near cores 900, distant cores 2800; by stores of each line in
 * strides that stay in the first cache 77 and 136, by stores behind the whole message 88 and 152. */
#define STRIDE 2048u

void tt_copy_and_own(void *dst, void *src, size_t bytes)
{
	fetch_short(src, bytes);
	for (size_t at = 0, some; at < bytes; at += some) {
		some = bytes - at < STRIDE ? bytes - at : STRIDE;
		tt_copy((char *)dst + at, (char *)src + at, some);
		tt_own_lines((char *)src + at, some);
	}
}
