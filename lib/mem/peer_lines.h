/* peer_lines.h - copies and sums of memory that another core has written or read */
#ifndef TT_PEER_LINES_H
#define TT_PEER_LINES_H

#include "mem/reduce.h"

/* A reader takes ownership of lines that the other core, or this one, writes next: on processors of AMD and Hygon,
 * where a store to a line that two cores share takes longest (run/stores.c). Elsewhere readers leave lines shared, and
 * long copies and sums take 16 pages, a part of each in turn. Xeon, two cores, us, with and without ownership:
 * broadcast of 256 KiB 17.3, 14.0, reduce 21.3, 15.0, ping-pong of 4 MiB 814, 670; ARM is not measured. Set when the
 * library is loaded; tests change it. */
extern bool tt_readers_own;

/* memcpy from shared memory that another core has written */
void tt_copy_from_peer(void *dst, const void *src, size_t bytes);
/* The same, from memory where this core writes next */
void tt_copy_and_keep(void *dst, const void *src, size_t bytes);
/* memcpy from memory with which the other core is busy, too: it copies from this one, or the bytes beside these */
void tt_copy_ahead(void *dst, const void *src, size_t bytes);
/* memcpy from shared memory that another core has written and writes next: owns its lines (tt_own_lines) */
void tt_copy_and_own(void *dst, void *src, size_t bytes);
/* memcpy to shared memory that another core has read */
void tt_copy_to_peer(void *dst, const void *src, size_t bytes);
/* tt_copy_to_peer of a post of pages between two ranks: 8 pages in turn, too. More ranks, which share cores, show no
 * gain. */
void tt_copy_to_taker(void *dst, const void *src, size_t bytes);
/* tt_copy_from_peer of such a post, where one of the two ranks gives: 8 pages in turn, too */
void tt_copy_from_giver(void *dst, const void *src, size_t bytes);

/* reduce(dst, dst2, src, nsrc, bytes / width) of elements of `width` bytes, of sources that another core has written */
void tt_reduce_from_peer(tt_reduce_fn *reduce, void *dst, void *dst2, const void *const *src,
			 int nsrc, size_t bytes, size_t width);

/* Take exclusive ownership of the cache lines that hold [p, p + bytes): stores a byte of each line
 * as it is. For shared memory that this core has read and another core writes next: a modified line
 * moves faster than a shared line is given up (run/stores.c). No other thread may write the bytes
 * meanwhile. */
static inline void tt_own_lines(void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += TT_LINE) {
		volatile char *c = (char *)p + at;

		*c = *c;
	}
}

/* Does the processor have cldemote? Set when the library is loaded. */
extern bool tt_has_demote;

/* Where tt_has_demote: the line at p, which this core has written, moves to the cache that all cores share. Another core
 * that waits for it finds it there sooner than in this core's; this core finds it later. */
static inline void tt_demote_line(const void *p)
{
#ifdef __x86_64__
	/* cldemote [rax]: gcc has its name only with -mcldemote */
	__asm__ volatile(".byte 0x0f, 0x1c, 0x00" : : "a"(p) : "memory");
#else
	(void)p;
#endif
}

/* The same for lines that hold [p, p + bytes), unless they are many: then the transfer takes longer (Xeon, two cores,
 * ping-pong of 1 KiB 0.54 us for 0.68, of 2 KiB 0.91 for 0.88, of 4 KiB 1.45 for 1.27). */
#define TT_DEMOTE_MOST 1024u
static inline void tt_demote_lines(const void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes && bytes <= TT_DEMOTE_MOST; at += TT_LINE)
		tt_demote_line((const char *)p + at);
}

/* Prefetch the line at p and take exclusive ownership of it, for a reader that writes there later. Processors
 * without the instruction do nothing. */
static inline void tt_fetch_to_write(const void *p)
{
#ifdef __x86_64__
	/* gcc without -mprfchw has a prefetch for readers only */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

#endif
