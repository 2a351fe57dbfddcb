/*
 * locality.h - where on its host a rank is bound, and which ranks of a host belong together
 *
 * Ranks that are bound to different packages, NUMA nodes or L3 caches form groups, between which
 * bytes travel more slowly than inside. Each rank finds its own place (locality.c) and tells it the
 * others when it joins; all come to the same groups (locality_groups.c). Called by comm.c and `tutti info`.
 */
#ifndef TT_LOCALITY_H
#define TT_LOCALITY_H

#include "base/base.h"

/* From the outside to the inside. */
enum tt_level { TT_PACKAGE, TT_NUMA_NODE, TT_L3_CACHE, TT_LEVELS };
const char *tt_level_name(enum tt_level level);      /* "package" ... */

/* Of each level, the lowest processor of the one that holds all
 * processors of the rank; -1: they are in several, or it is not known.
 * Processors in several packages are in several of everything. */
struct tt_locality { int16_t in[TT_LEVELS]; };

#define TT_SYS "/sys/devices/system"

/* Reads as few files as tell it: one when the processors are in several packages, else up to a
 * dozen, 10 us each. sys: TT_SYS, or a folder that looks like it. */
struct tt_locality tt_locality_read(const char *sys, const uint64_t mask[TT_CPU_WORDS]);

/* The group of every rank: [n], numbered 0.. in order of their lowest rank; a group lies within a
 * host. Each host is divided at the outermost level at which its ranks differ and some are
 * together; ranks that are not bound at that level form one group. Returns their number: nhosts
 * when no host is divided. */
int tt_groups_form(const struct tt_locality *localities, const int *host_of, int n, int *ret_group_of);

/* The level at which the host of `rank`, its lowest, is divided; TT_LEVELS: it is not. */
int tt_groups_level(const struct tt_locality *localities, const int *host_of, int n, int rank);

#endif
