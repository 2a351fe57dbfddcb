/*
 * race_maps.h - ranks as threads share their mappings, for ThreadSanitizer
 *
 * Each rank maps a shared segment for itself, so ThreadSanitizer would see separate memory per rank
 * and no race between ranks. In a program with race_maps.c, mmap returns the same address to every
 * rank for the same file, after race_maps_share was called.
 */
#ifndef TESTS_RACE_MAPS_H
#define TESTS_RACE_MAPS_H

void race_maps_share(void);

#endif
