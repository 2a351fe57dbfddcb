/*
 * host_loops.c - the element-wise loops of devices in host memory, by instruction set
 * (host_loops.h)
 *
 * A new instruction set is one more inclusion of host_loops_isa.h and one row of `isas`.
 */
#include "trainer/device/host_loops.h"

#include "trainer/device/isa.h"
#include "trainer/device/rmsprop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define LOOP(name) name##_avx512
#define LOOP_TARGET __attribute__((target("avx512f")))
#define LOOP_ISA "avx512"
#define LANES 16
#include "trainer/device/host_loops_isa.h"

#define LOOP(name) name##_avx2
#define LOOP_TARGET __attribute__((target("avx2")))
#define LOOP_ISA "avx2"
#define LANES 8
#include "trainer/device/host_loops_isa.h"
#endif

/* what every processor of the architecture has */
#define LOOP(name) name##_scalar
#define LOOP_TARGET
#define LOOP_ISA "scalar"
#define LANES 4
#include "trainer/device/host_loops_isa.h"

/* best first */
static const struct loops_isa {
	const struct train_host_loops *loops;
	bool (*present)(void);
} isas[] = {
#if defined(__x86_64__)
	{ &loops_avx512, has_avx512 },
	{ &loops_avx2, has_avx2 },
#endif
	{ &loops_scalar, has_scalar },
};

const struct train_host_loops *train_host_loops_of(const char *isa)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
		if ((!isa || !strcmp(isa, isas[i].loops->isa)) && isas[i].present())
			return isas[i].loops;
	return NULL;
}

const struct train_host_loops *train_host_loops(void)
{
	static const struct train_host_loops *_Atomic chosen;
	const struct train_host_loops *loops = atomic_load(&chosen);

	if (loops)
		return loops;
	loops = train_host_loops_of(getenv("TUTTI_ISA"));
	if (!loops) /* auto, or refused by the device */
		loops = train_host_loops_of(NULL);
	atomic_store(&chosen, loops);
	return loops;
}
