/* gpu_ranks.h - ranks that have a GPU, each team in a process of its own; and claims. For the files
 * of test_gpu. */
#ifndef TESTS_GPU_TEAM_H
#define TESTS_GPU_TEAM_H

#include <stdio.h>

#include "comm/comm.h"
#include "gpu/gpu.h"
#include "tests/support/harness_cuda.h"
#include "tests/support/ranks.h"

extern int gpu_broken;                 /* claims of this case that do not hold */
extern int gpu_limit_s;                /* of a team */
#define claim(x)									\
	do {										\
		if (!(x)) {								\
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #x);	\
			gpu_broken = 1;							\
		}									\
	} while (0)

struct gpu_ranks {
	struct ranks ranks;
	rank_fn *fn;
	enum { MEET, ORDERED, STAGED } way;
	bool mixed;                            /* rank 0 has no GPU */
	void (*before)(int rank);              /* it joins, with CUDA there; NULL: nothing */
};

/* Where a rank is: on device 0, or, with TUTTI_TEST_CUDA_DEVICES set, by turns on as many as there
 * are. */
int team_device(int rank);
/* How many ranks failed; 100: the team as a whole. */
int team_failures(struct gpu_ranks *t);
/* The same for n ranks that run fn and have 20 s for a call. */
int team_play(int n, int way, bool threads, rank_fn *fn);
/* As threads that meet, as processes in order, and as processes staged, one after the other. */
int team_play_all_ways(int n, rank_fn *fn);

/* Is there time for more than the smallest useful choice: in the tiers full and soak,
 * and on a GPU, if not under tools that take long (TT_GPU_BRIEF)? */
bool gpu_thorough(void);

/* The cases of test_gpu, by file: test_gpu.c runs them, each in a process of its own. */
struct gpu_case { const char *name; void (*run)(void); bool is_long; };
#define GPU_CASE(name) { #name, name, false }
#define GPU_LONG_CASE(name) { #name, name, true }      /* when it is named */
/* the last has no name */
extern const struct gpu_case gpu_values[], gpu_plans[], gpu_pairs[], gpu_order[], gpu_trouble[],
	gpu_cards[];

#endif
