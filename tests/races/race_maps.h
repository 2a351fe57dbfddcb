/*
 * race_maps.h - ranks that are threads share what they map, for ThreadSanitizer
 *
 * Each rank maps a shared segment for itself, so that ThreadSanitizer would see as many memories as
 * ranks and no race between them. In a program that has race_maps.c among its sources, mmap gives
 * every rank the same address for the same file, from race_maps_share on.
 */
#ifndef TESTS_RACE_MAPS_H
#define TESTS_RACE_MAPS_H

void race_maps_share(void);

#endif
