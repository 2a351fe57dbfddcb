/*
 * simulation.h - processes, threads, a clock and a network that exist in one thread only
 *
 * The simulation runs the whole library, unchanged, on a simulated operating system: the linker
 * replaces the library's calls of the C library (list: `wrapped`) by the functions of this folder.
 * Each thread of each simulated process is a coroutine; a random number decides which one runs on,
 * when a message arrives and when the clock ticks, so a seed repeats a schedule exactly.
 *
 *   simulated_threads.c   coroutines and their scheduler
 *   simulated_sleeps.c    sleeps that end by themselves
 *   simulated_pthread.c   pthread_*, sleeps and the clock of the library
 *   simulated_timers.c    functions that are called at a time
 *   simulated_network.c   sockets between hosts: delays, partitions, deaths; poll, epoll, eventfd
 *   simulated_heap.c      the memory of a schedule
 *   simulated_memory.c    variables of each process; memory that runs out, or was freed
 *   simulated_tls.c       sessions of TLS: the same flights, in clear
 *   simulated_system.c    everything else of the host: names, files, interfaces, randomness
 *   simulated_job.c       what the ranks do, the faults, and what must hold
 *   simulated_crowd.c     many ranks: what a join, a death and a shrink cost
 *   simulation.c          the command: many seeds, one process each
 *
 * Source: deterministic simulation as in FoundationDB (Zhou et al. 2021), here below the library
 * instead of inside it, so that locks, threads and sockets are tested too.
 */
#ifndef TEST_SIMULATION_H
#define TEST_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MS 1000000ull
#define SIM_SECOND 1000000000ull
#define SIM_NEVER UINT64_MAX
#define SIM_PROCESSES 32
#define SIM_LINE 64 /* bytes */

/* A function that replaces one of the C library, and the original */
#define SIM_REPLACE(type, name, ...)     \
	type __wrap_##name(__VA_ARGS__); \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

/* Cache lines of a piece of memory that differ from its initial content */
struct sim_lines {
	struct line *line;
	size_t n, room;
};

struct sim_process {
	int number, host;
	bool dead;    /* killed: its threads never run again */
	bool stopped; /* by SIGSTOP: its threads do not run */
	bool ended;   /* main returned */
	uint64_t ended_ns, calls;
	int nthreads, nrunnable, ndescriptors;
	struct coroutine *threads; /* simulated_threads.c: those that are not freed */
	int *descriptors,
		descriptor_room; /* simulated_network.c: the places of its descriptors, -1: free */
	struct sim_lines variables; /* simulated_memory.c: while they are not in place */
	uint64_t fail_at; /* memory requests until one fails, 0: none fails; only those ... */
	size_t fail_from_bytes,
		fail_to_bytes;   /* ... of these sizes (to: exclusive, 0: any), and ... */
	bool fail_in_threads;    /* ... by other threads than main */
	uint64_t kill_at;        /* the call in which it is killed, 0: none */
	uint64_t stop_at;        /* the call in which it is stopped, 0: none */
	uint32_t corrupts;       /* 1 of this number of segments that it sends, 0: none */
	int64_t held, held_most; /* bytes of memory */
	/* of a crowd: */
	uint64_t sent, received;             /* segments */
	uint64_t sent_bytes, received_bytes; /* of these */
};

/* ---- simulated_threads.c --------------------------------------------------------------------- */

struct sim {
	struct sim_process *process; /* of the running coroutine, NULL: none */
	uint64_t now_ns;
	bool tracing;
	uint64_t hop_ns;       /* of every message, and calls take no time; 0: both are drawn */
	bool encrypts;         /* data over tcp: TUTTI_ENCRYPT */
	bool minorities;       /* may go on: TUTTI_SHRINK */
	const char *algorithm; /* TUTTI_ALGO */
	bool yields; /* a rank that waits for data, and does not sleep at once: TUTTI_WAIT */
	struct sim_threads *threads;
	struct sim_timers *timers;
	struct sim_network *network;
	struct sim_memory *memory;
	struct sim_job *job;
};
/* The simulation's own variables. They are on the heap, because those of the program belong to the
 * simulated processes. Fixed from sim_begin on. */
extern struct sim *sim;
void sim_begin(uint64_t seed, bool tracing, int processes);
/* All processes have ended: check the memory. The program is as it was before the schedule. */
void sim_end(void);

/* The next random number below n. */
uint32_t sim_random(uint32_t n);
/* A number between low and high, where small ones are as likely as large ones */
uint64_t sim_random_scale(uint64_t low, uint64_t high);

/* Begin a process whose main is body(arg). */
void sim_process_begin(struct sim_process *p, void (*body)(void *), void *arg);
/* The coroutine sleeps until sim_wake(key) or the time. false: the time has come */
bool sim_sleep(const void *key, uint64_t until_ns);
void sim_wake(const void *key);
/* The same, and then again until is_over(wait), which the scheduler asks, too, while other variables
 * than the coroutine's are in place. */
void sim_await(const void *key, uint64_t until_ns, bool (*is_over)(void *), void *wait);
/* A system call begins: time passes, others may run, and the process may be killed here. */
void sim_call(void);
/* Does the main thread of a process run? */
bool sim_is_main(void);
/* Run until no coroutine is left. false: the time has come, or all sleep for ever */
bool sim_run(uint64_t until_ns);
/* Kill a process: its threads end wherever they are, and its host closes its connections. */
void sim_kill(struct sim_process *p);
/* One line for each coroutine that still exists, to stderr */
void sim_threads_print(void);

/* ---- simulated_timers.c ---------------------------------------------------------------------- */

void sim_timers_begin(void);
/* Call fn(arg) at a time, outside all coroutines. */
void sim_at(uint64_t when_ns, void (*fn)(void *), void *arg);
/* The time of the next timer, SIM_NEVER: none */
uint64_t sim_next_timer(void);
/* Call what is due. */
void sim_run_timers(void);

/* ---- simulated_network.c --------------------------------------------------------------------- */

void sim_network_begin(int processes);

#define SIM_FD 128 /* the first simulated descriptor */

void sim_network_kill(struct sim_process *p);
/* Nothing travels from host a to host b from now on, or everything travels again. */
void sim_network_cut(int a, int b, bool cut);
/* A stream between two processes is reset at both ends. false: there is none */
bool sim_network_lose(int *ret_a, int *ret_b);
/* The address of a host, for the list of interfaces; network byte order */
uint32_t sim_network_address(int host);
/* A descriptor that only opens and closes */
int sim_network_null(void);

/* ---- simulated_heap.c ------------------------------------------------------------------------ */

/* A schedule begins: its memory is empty. sparse: what is never written takes no memory (slower) */
void sim_heap_begin(bool sparse);
/* Memory of the simulation itself, which does not run out; zeros. resize: as realloc */
void *sim_alloc(size_t bytes);
void *sim_resize(void *old, size_t bytes);
void sim_free(void *data);
/* As aligned_alloc; alignment 0: malloc's. It is freed by sim_free. */
void *sim_block(size_t alignment, size_t bytes);
bool sim_is_block(const void *data);
size_t sim_block_bytes(const void *data);
/* Whole pages, which are zero */
void *sim_pages(size_t bytes);
void sim_pages_free(void *pages, size_t bytes);

/* ---- simulated_memory.c ---------------------------------------------------------------------- */

/* Of memory [end]: add the lines from `from` on that differ; put them in place; put the beginning back. */
void sim_lines_add(struct sim_lines *l, const char *now, const char *pristine, size_t from,
		   size_t end);
void sim_lines_put(const struct sim_lines *l, char *now, size_t end);
void sim_lines_undo(const struct sim_lines *l, char *now, const char *pristine, size_t end);

/* Watch the variables of the program from now on. */
void sim_memory_begin(void);
/* The variables are p's from now on; NULL: as they were before the schedule. */
void sim_memory_switch(struct sim_process *p);
/* All processes have ended: has freed memory been written to? The variables are as before the schedule. */
void sim_memory_end(void);

/* ---- the trace: every message as a line, for a sequence diagram ------------------------------- */

void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- simulated_job.c ------------------------------------------------------------------------- */

struct sim_plan { /* what a schedule may do */
	uint64_t seed;
	bool trace;
	bool holders; /* of the business cards, in any case */
	bool slow;    /* servers, in any case */
};
/* The schedule has failed: a sentence with its seed. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Time of a server's service thread for one handshake; 0: none */
uint64_t sim_handshake_ns(void);
/* RLIMIT_NOFILE, of which a part is for handshakes that run */
unsigned sim_descriptor_limit(void);
/* The simulation has killed a process. */
void sim_killed(const struct sim_process *p);
/* A process comes to its stop_at. arg: the process */
void sim_stop(void *arg);
/* Run the schedule of a seed. 0 | 1, with a sentence on stderr */
int sim_job(const struct sim_plan *plan);

/* ---- simulated_crowd.c ------------------------------------------------------------------------- */

#define SIM_CROWD_MOST 200000

struct sim_crowd_plan {
	int n;
	uint64_t hop_ns;
	int above;         /* jobs of more ranks have holders of the business cards */
	const char *until; /* "join", "death" or "shrink": the last phase */
	bool split, trace;
};
/* n ranks join, one dies, the others notice it and shrink; each message takes hop_ns. Prints what that
 * costs. 0 | 1, with a sentence on stderr */
int sim_crowd(const struct sim_crowd_plan *plan);

#endif
