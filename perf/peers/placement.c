/*
 * placement.c - how far apart are two processors at this moment? The one-way time of a flag between
 * them
 *
 * Started by perf/compare (placement.py). For each line on the standard input: two threads, bound to
 * the first two processors that this process may use, pass a flag to and fro for 2 ms; the program
 * prints the least time of a passage in us, of 20 groups. Between lines it sleeps.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define GROUPS 20
#define GROUP_NS 100000.0
#define AT_ONCE 32 /* round trips between two looks at the clock */

static struct {
	_Alignas(128) atomic_ulong ping;
	_Alignas(128) atomic_ulong pong;
	_Alignas(128) atomic_bool stop;
} flags;
static cpu_set_t processor[2];

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *answer(void *arg)
{
	unsigned long seen = 0, ping;

	(void)arg;
	pthread_setaffinity_np(pthread_self(), sizeof(cpu_set_t), &processor[1]);
	while (!atomic_load_explicit(&flags.stop, memory_order_relaxed)) {
		ping = atomic_load_explicit(&flags.ping, memory_order_acquire);
		if (ping != seen)
			atomic_store_explicit(&flags.pong, seen = ping, memory_order_release);
	}
	return NULL;
}

static double least_us(void)
{
	unsigned long ping = atomic_load(&flags.ping);
	double least = 1e9;

	for (int group = 0; group < GROUPS; group++) {
		double begin = now_ns(), took;
		int trips = 0;

		do {
			for (int i = 0; i < AT_ONCE; i++, trips++) {
				atomic_store_explicit(&flags.ping, ++ping, memory_order_release);
				while (atomic_load_explicit(&flags.pong, memory_order_acquire) !=
				       ping)
					;
			}
			took = now_ns() - begin;
		} while (took < GROUP_NS);
		least = took / trips < least ? took / trips : least;
	}
	return least / 2000;
}

/* false: the process has one processor only */
static bool find_processors(void)
{
	cpu_set_t allowed;
	int n = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		CPU_ZERO(&processor[n]);
		CPU_SET(cpu, &processor[n++]);
	}
	return n == 2 && !sched_setaffinity(0, sizeof(cpu_set_t), &processor[0]);
}

int main(void)
{
	char line[16];

	if (!find_processors()) {
		fprintf(stderr, "placement: this process may use one processor only\n");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		pthread_t other;

		atomic_store(&flags.stop, false);
		if (pthread_create(&other, NULL, answer, NULL))
			return 1;
		printf("%.3f\n", least_us());
		atomic_store(&flags.stop, true);
		pthread_join(other, NULL);
	}
	return 0;
}
