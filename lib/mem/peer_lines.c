/*
 * peer_lines.c - copies and sums of memory that another core has written or read: which lines move, how many at once
 *
 * Called by run, local and the transport of shared memory.
 */
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "mem/copy.h"
#include "mem/peer_lines.h"
#include "mem/reduce_types.h"

bool tt_readers_own, tt_has_demote;

static __attribute__((constructor)) void look_at_processor(void)
{
#ifdef __x86_64__
	unsigned most, b, c, d;
	const unsigned amd = 0x68747541, hygon = 0x6f677948; /* "Auth", "Hygo" */
	const unsigned cldemote = 1u << 25;

	if (__get_cpuid(0, &most, &b, &c, &d))
		tt_readers_own = b == amd || b == hygon;
	if (__get_cpuid_count(7, 0, &most, &b, &c, &d))
		tt_has_demote = c & cldemote;
#endif
}

/* Short copies end before the processor's own prefetch begins. */
#define SHORT 4096u
static void fetch_short(const char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes && bytes <= SHORT && tt_readers_own; at += TT_LINE)
		tt_fetch_to_write(p + at);
}

/* The processor's own prefetch follows a stream to the end of its page, and keeps about 20 lines of it on their way; a
 * core can await 48. So a long copy reads 16 pages, a part of each in turn. Xeon, two cores, 256 KiB out of another
 * core's second cache, us: page after page 13.9, 4 pages 11.9, 16 pages 10.5; ping-pong of 256 KiB 25.5 to 20.5,
 * allgather of 256 KiB 13.1 to 10.6. Returns the bytes that are copied, whole pages. */
#define GROUP (TT_INTERLEAVED * TT_INTERLEAVED_PAGE)
static size_t copy_interleaved(char *dst, const char *src, size_t bytes)
{
	size_t at = 0;

	for (; !tt_readers_own && bytes - at >= GROUP; at += GROUP)
		tt_reduce_isa_now()->copy_interleaved(dst + at, src + at);
	return at;
}

/* The same for 8 pages behind them, a vector of each in turn. Xeon, two cores, us: broadcast of 32 KiB 1.71 to 1.40,
 * gather of 64 KiB 2.07 to 1.72; of four pages, 16 KiB 0.90 to 1.23 */
#define FEW (TT_INTERLEAVED_FEW * TT_INTERLEAVED_PAGE)
static size_t copy_all_interleaved(char *dst, const char *src, size_t bytes)
{
	size_t at = copy_interleaved(dst, src, bytes);

	if (tt_readers_own || bytes - at < FEW)
		return at;
	tt_reduce_isa_now()->copy_few(dst + at, src + at);
	return at + FEW;
}

/* 1 KiB of each page in turn: allreduce of 64 KiB, Xeon, us, 7.9 to 6.7 */
#define PART 1024u
static void reduce_interleaved(tt_reduce_fn *reduce, char *dst, char *dst2, const char *a,
			       const char *b, size_t count)
{
	for (size_t i = 0; i < GROUP / PART; i++) {
		size_t at = i % TT_INTERLEAVED * TT_INTERLEAVED_PAGE + i / TT_INTERLEAVED * PART;
		const void *src[] = { a + at, b + at };

		reduce(dst + at, dst2 ? dst2 + at : NULL, src, 2, count);
	}
}

void tt_reduce_from_peer(tt_reduce_fn *reduce, void *dst, void *dst2, const void *const *src,
			 int nsrc, size_t bytes, size_t width)
{
	char *to = dst, *to2 = dst2;
	const char *a = src[0], *b = src[1];

	if (tt_readers_own || nsrc > 2 || bytes < GROUP) {
		reduce(dst, dst2, src, nsrc, bytes / width);
		return;
	}
	for (; bytes >= GROUP; bytes -= GROUP, to += GROUP, a += GROUP, b += GROUP) {
		reduce_interleaved(reduce, to, to2, a, b, PART / width);
		to2 = to2 ? to2 + GROUP : NULL;
	}
	if (bytes)
		reduce(to, to2, (const void *[]){ a, b }, 2, bytes / width);
}

/* Copies of less than a group, and the rest of longer ones: the next page comes into this core's second cache while
 * one is copied. Xeon, us: allgather of 64 KiB 4.3 to 3.4 (of four pages in turn 4.2), send and receive of 64 KiB 5.9
 * to 5.2. In tt_copy_and_own nothing is gained. */
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

static void copy_pages_ahead(char *dst, const char *src, size_t bytes)
{
	size_t at = 0;

	fetch_lines(src, AHEAD);
	for (; bytes - at > 2 * AHEAD; at += AHEAD) {
		fetch_lines(src + at + AHEAD, AHEAD);
		copy(dst + at, src + at, AHEAD);
	}
	fetch_lines(src + at + AHEAD, bytes - at - AHEAD);
	copy(dst + at, src + at, bytes - at);
}

static void copy_rest(void *dst, const void *src, size_t bytes, size_t at)
{
	size_t left = bytes - at;

	if (left > AHEAD)
		copy_pages_ahead((char *)dst + at, (const char *)src + at, left);
	else if (left)
		tt_copy((char *)dst + at, (const char *)src + at, left);
}

void tt_copy_from_peer(void *dst, const void *src, size_t bytes)
{
	copy_rest(dst, src, bytes, copy_interleaved(dst, src, bytes));
}

void tt_copy_from_giver(void *dst, const void *src, size_t bytes)
{
	copy_rest(dst, src, bytes, copy_all_interleaved(dst, src, bytes));
}

void tt_copy_and_keep(void *dst, const void *src, size_t bytes)
{
	fetch_short(src, bytes);
	copy_rest(dst, src, bytes, copy_interleaved(dst, src, bytes));
}

/* Xeon, two cores, page after page and 16 pages in turn, us: allgather of two parts of 64 KiB 6.2, 7.4, of 80 KiB 7.5,
 * 8.3, of 96 KiB 9.1, 8.1; scatter out of a window, of 64 KiB for each rank, 3.6, 4.4 */
#define LEAST_IN_TURN (96u << 10)
void tt_copy_ahead(void *dst, const void *src, size_t bytes)
{
	fetch_short(src, bytes);
	copy_rest(dst, src, bytes, bytes < LEAST_IN_TURN ? 0 : copy_interleaved(dst, src, bytes));
}

void tt_copy_to_peer(void *dst, const void *src, size_t bytes)
{
	size_t at = copy_interleaved(dst, src, bytes);

	if (at < bytes)
		tt_copy((char *)dst + at, (const char *)src + at, bytes - at);
}

void tt_copy_to_taker(void *dst, const void *src, size_t bytes)
{
	size_t at = bytes < FEW ? 0 : copy_all_interleaved(dst, src, bytes);

	if (at < bytes)
		tt_copy((char *)dst + at, (const char *)src + at, bytes - at);
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
