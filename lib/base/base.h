/* base.h - the ground every floor stands on: error sentences, log, clock, environment. Includes
 * nothing of Tutti. */
#ifndef TT_BASE_H
#define TT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* gcc and clang each tell in their own way that a sanitizer is at work */
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
#define TT_LINE 64       /* bytes of a cache line */
/* distance of fields written by different ranks: the prefetcher takes lines in pairs */
#define TT_APART 128

/* Codes inside Tutti: 0 ok, > 0 a state, < 0 the negative of a tuttiResult_t. */
enum { TT_OK = 0, TT_CUDA = -1, TT_SYSTEM = -2, TT_INTERNAL = -3, TT_ARG = -4, TT_USAGE = -5,
	TT_REMOTE = -6,
       TT_TIMEOUT = -8 };

/* error.c -------------------------------------------------------------------------------------- */

/* Notes the one sentence that explains a failure, for this thread, and returns code. Only the first
 * function that knows the cause calls it; everyone above passes the code up. %m works. */
int tt_fail(int code, const char *fmt, ...) TT_PRINTF(2, 3);

/* This thread's last sentence, "" if none. Owned by the thread. */
const char *tt_error_text(void);
void tt_error_clear(void);

/* log.c: one line to stderr when TUTTI_LOG asks for this level; names of values in the text, no
 * prefix needed */
enum tt_log_level { TT_LOG_ERROR = 1, TT_LOG_WARN, TT_LOG_INFO, TT_LOG_DEBUG };
void tt_log(enum tt_log_level level, const char *fmt, ...) TT_PRINTF(2, 3);
void tt_log_set(int level);

/* handle.c: zeroed memory for a handle that users hold; NULL: none left. Once freed it reads as
 * zeros for ever. */
void *tt_handle_new(size_t bytes);
void tt_handle_free(void *handle, size_t bytes);
/* Is that, or was it, one? For what users may mix up with handles of others:
 * nothing is read from it. */
bool tt_handle_is(const void *handle);

/* clock.c */
uint64_t tt_now_ns(void);                        /* monotonic */
static inline uint64_t tt_deadline_ns(uint32_t timeout_ms)
{
	return tt_now_ns() + timeout_ms * 1000000ull;
}

static inline void tt_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* env.c ---------------------------------------------------------------------------------------- */

/* Every TUTTI_ variable is one row of tt_env_table: tt_env_read parses by it, `tutti info` prints
 * it, a test holds tutti.7 against it. */
enum tt_env_kind { TT_ENV_TEXT, TT_ENV_NUMBER, TT_ENV_CHOICE };
struct tt_env_row {
	const char *name;        /* TUTTI_... */
	enum tt_env_kind kind;
	const char *fallback;    /* the default, as text; "" none */
	/* CHOICE: "auto shm verbs tcp self"; NUMBER: "1..2147483647"; TEXT: its syntax in words */
	const char *choices;
	bool agree;              /* equal on all ranks of a communicator; compared at the join */
	const char *help;        /* one line */
	size_t offset;           /* in struct tt_env */
	bool (*valid)(const char *value);   /* TEXT: has it that syntax? NULL: all but the empty */
};
extern const struct tt_env_row tt_env_table[];
extern const size_t tt_env_rows;

/* The values. Text fields are pointers into the environment or to constants:
 * use before the next setenv. */
struct tt_env {
	const char *transport, *algo, *log, *ifname, *isa, *wait, *tuning, *host_id, *fault, *cma,
		*gpu, *gpudirect;
	const char *ib_hca;
	int64_t ib_gid_index, ib_timeout, ib_retries, ib_sl, ib_tc, ib_registrations,
		ib_registered_mb;
	const char *ports;
	/* with rank, nranks: tuttiCommInitEnv */
	const char *launch, *root, *secret, *secret_file;
	int64_t timeout_ms, tile_bytes, rank, nranks;  /* -1 where unset and without default */
};

/* Reads and checks all variables. Returns 0 | TT_ARG (unknown TUTTI_ name or bad value, named in
 * the sentence). An empty value is a bad value. Names in TUTTI_TEST_ are free for tests. */
int tt_env_read(struct tt_env *ret_env);

/* What stands in for a variable that is not set, or NULL; libnccl.so.2 sets it once, before the
 * first read. */
extern const char *(*tt_env_fallback)(const char *name);

/* cpus.c --------------------------------------------------------------------------------------- */

#define TT_CPU_WORDS 16                    /* processors 0..1023, a bit each */

/* The start of a small file, ending in a zero; "" when it cannot be read. */
void tt_file_text(const char *path, char *ret_text, size_t bytes);
/* "0-3,8,10-11". False when the file is not there, or does not look like that. */
bool tt_cpus_read(const char *path, uint64_t ret_mask[TT_CPU_WORDS]);

/* fork.c: how often the process forked since it was started: differs between parent and child. */
unsigned tt_fork_count(void);

#endif
