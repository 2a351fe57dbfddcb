/* base.h - the foundation of all rooms: error sentences, log, clock, environment. Includes no other
 * room. */
#ifndef TT_BASE_H
#define TT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* gcc and clang announce sanitizers by different macros */
#if defined(__SANITIZE_ADDRESS__)
#define TT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TT_TSAN 1
#endif
#endif

#define TT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define tt_likely(x) __builtin_expect(!!(x), 1)
#define tt_unlikely(x) __builtin_expect(!!(x), 0)
#define TT_LINE 64 /* bytes of a cache line */
/* distance of fields written by different ranks: the prefetcher loads lines in pairs */
#define TT_APART 128

/* Codes inside Tutti: 0 ok, > 0 a state, < 0 the negative of a tuttiResult_t. */
enum {
	TT_OK = 0,
	TT_CUDA = -1,
	TT_SYSTEM = -2,
	TT_INTERNAL = -3,
	TT_ARG = -4,
	TT_USAGE = -5,
	TT_REMOTE = -6,
	TT_TIMEOUT = -8
};

/* error.c -------------------------------------------------------------------------------------- */

/* Stores the sentence that explains a failure, for this thread, and returns code. Only the first
 * function that knows the cause calls tt_fail; its callers pass the code up. %m works. */
int tt_fail(int code, const char *fmt, ...) TT_PRINTF(2, 3);
/* Fails with errno: this rank cannot make its file in the folder that the variable names. TT_ARG: the
 * value is wrong | TT_SYSTEM */
int tt_fail_folder(int rank, const char *variable, const char *folder);

/* This thread's last error sentence, "" if none. Owned by the thread. */
const char *tt_error_text(void);
void tt_error_clear(void);

/* log.c: one line to stderr when TUTTI_LOG enables the level. fmt names the values and needs no
 * prefix. */
enum tt_log_level { TT_LOG_ERROR = 1, TT_LOG_WARN, TT_LOG_INFO, TT_LOG_DEBUG };
void tt_log(enum tt_log_level level, const char *fmt, ...) TT_PRINTF(2, 3);
bool tt_log_enabled(enum tt_log_level level);
/* Is a message due that a long wait repeats every 5 s? *due_ns: 0 at first, then the time of the next */
bool tt_log_due(uint64_t *due_ns);
void tt_log_set(int level);

/* handle.c: zeroed memory for a handle that users hold; NULL: no memory. A freed handle reads as
 * zeros for ever. */
void *tt_handle_new(size_t bytes);
void tt_handle_free(void *handle, size_t bytes);
/* Is the pointer a handle of tt_handle_new, freed or not? For pointers that may be handles of other
 * libraries; the memory is not read. */
bool tt_handle_is(const void *handle);

/* clock.c */
uint64_t tt_now_ns(void);        /* monotonic */
uint64_t tt_now_coarse_ns(void); /* the same, late by up to some ms, in a quarter of the time */
static inline uint64_t tt_deadline_ns(uint32_t timeout_ms)
{
	return tt_now_ns() + timeout_ms * 1000000ull;
}
/* How long a wait that began at began_ns may sleep before it polls again: 1/64 of its time so far,
 * at least least_ns and at most 20 ms. */
uint64_t tt_poll_interval_ns(uint64_t began_ns, uint64_t least_ns);

static inline void tt_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* env.c ---------------------------------------------------------------------------------------- */

/* Every TUTTI_ variable is one row of tt_env_table: tt_env_read parses by the table, `tutti info`
 * prints the table, a test compares tutti.7 with the table. */
enum tt_env_kind { TT_ENV_TEXT, TT_ENV_NUMBER, TT_ENV_CHOICE };
struct tt_env_row {
	const char *name; /* TUTTI_... */
	enum tt_env_kind kind;
	const char *fallback; /* the default, as text; "" none */
	/* CHOICE: "auto shm verbs tcp self"; NUMBER: "1..2147483647"; TEXT: a description of its
	 * syntax */
	const char *choices;
	bool agree;       /* equal on all ranks of a communicator; compared at the join */
	const char *help; /* one line */
	size_t offset;    /* in struct tt_env */
	bool (*valid)(const char *value); /* TEXT: is the syntax right? NULL: any but "" */
};
extern const struct tt_env_row tt_env_table[];
extern const size_t tt_env_rows;

/* The values of the variables. Text fields point into the environment or to constants: valid until
 * the next setenv. */
struct tt_env {
	const char *transport, *algo, *log, *ifname, *isa, *wait, *tuning, *host_id, *fault, *cma,
		*gpu, *gpudirect, *shrink, *encrypt, *trace, *metrics, *ras, *top;
	const char *ib_hca;
	int64_t ib_gid_index, ib_timeout, ib_retries, ib_sl, ib_tc, ib_registrations,
		ib_registered_mb;
	const char *ports;
	/* read by the Python package; the library only knows the names */
	const char *library;
	int64_t takes_gloo;
	/* with rank, nranks: tuttiCommInitEnv */
	const char *launch, *root, *secret, *secret_file;
	const char *mpi_stats;
	int64_t timeout_ms, tile_bytes, rank, nranks; /* -1 where unset and without default */
};

/* Reads and checks all variables. Returns 0 | TT_ARG (unknown TUTTI_ name or bad value, named in
 * the sentence; the first of several); bad values have their defaults then. An empty value is a bad
 * value. Names that begin with TUTTI_TEST_ are reserved for tests and ignored. */
int tt_env_read(struct tt_env *ret_env);

/* Would tt_env_read accept value for the variable name? One with a text, else false. */
bool tt_env_is_valid(const char *name, const char *value);

/* Returns the value of a variable that is not set, NULL: its default. NULL function: none.
 * libnccl.so.2 sets the pointer once, before the first tt_env_read. */
extern const char *(*tt_env_fallback)(const char *name);

/* The digest of a sequence, value by value. h: the digest of the values before, which begins with 0 or
 * another constant; two small numbers that vary would cancel each other: tt_mix(3, 1) is tt_mix(0, 2). */
static inline uint64_t tt_mix(uint64_t h, uint64_t value)
{
	h = (h ^ value) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

/* cpus.c --------------------------------------------------------------------------------------- */

#define TT_CPU_WORDS 16 /* processors 0..1023, a bit each */

/* Reads the start of a small file, ended by NUL; "" when the file cannot be read. */
void tt_file_text(const char *path, char *ret_text, size_t bytes);
/* Reads a file like "0-3,8,10-11". false: no such file, or another syntax */
bool tt_cpus_read(const char *path, uint64_t ret_mask[TT_CPU_WORDS]);

/* fork.c: the number of forks from the first process to this one: differs between parent and
 * child. */
extern unsigned tt_forks;

#endif
