/*
 * openssl.c - see openssl.h
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* of the digest: its successor allocates, and reads OPENSSL_CONF */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/base.h"
#include "base/openssl.h"
#include "base/openssl_provider.h"

#define FINISH_NS 1000000000ull /* limit of the wait for uses of OpenSSL, at exit */
#define DELAY_NS 2000000000ull  /* time from the exit until a later use is refused */

/* Never freed: a thread that has used it still needs it when the thread ends. */
static _Atomic(OSSL_LIB_CTX *) library;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- uses ------------------------------------------------------------------------------------ */

static struct {
	pthread_once_t watched;
	atomic_int running;
	atomic_bool refused; /* no further use may begin */
	pthread_t exiting;   /* thread that exits; set before `refused`, like refused_ns */
	uint64_t refused_ns;
} uses = { .watched = PTHREAD_ONCE_INIT };

static void rest(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Called by OPENSSL_cleanup before it frees anything. */
static void refuse_uses(void)
{
	uses.exiting = pthread_self();
	uses.refused_ns = tt_now_ns();
	uses.refused = true;
	while (uses.running && tt_now_ns() < uses.refused_ns + FINISH_NS)
		rest();
}

/* Without OPENSSL_INIT_NO_ATEXIT the end of the process frees what other threads, which may join, still
 * use. The option has no effect where the program has initialized OpenSSL before: OPENSSL_cleanup then calls
 * refuse_uses first, unless the exit began before OPENSSL_atexit, which the last call finds out. */
static void watch_exit(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	OPENSSL_atexit(refuse_uses); /* without memory OPENSSL_cleanup waits for no use */
	if (!OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL))
		uses.refused = true;
}

bool tt_openssl_enter(void)
{
	pthread_once(&uses.watched, watch_exit);
	uses.running++;
	if (!uses.refused)
		return true;
	uses.running--;
	/* The process ends meanwhile, as a rule, and the program sees no error of its last moment. */
	while (!pthread_equal(uses.exiting, pthread_self()) &&
	       tt_now_ns() < uses.refused_ns + DELAY_NS)
		rest();
	return false;
}

void tt_openssl_leave(void)
{
	uses.running--;
}

/* ---- the library context --------------------------------------------------------------------- */

static OSSL_LIB_CTX *make(void)
{
	OSSL_LIB_CTX *made = OSSL_LIB_CTX_new();

	if (made && tt_openssl_choose(made))
		return made;
	OSSL_LIB_CTX_free(made);
	return NULL;
}

OSSL_LIB_CTX *tt_openssl(void)
{
	OSSL_LIB_CTX *present = library;

	if (present)
		return present;
	pthread_mutex_lock(&making);
	if (!library)
		library = make();
	present = library;
	pthread_mutex_unlock(&making);
	return present;
}

void tt_openssl_renew(void)
{
	library = NULL;
}

/* In the child of a fork the locks, also of a library context, may be held for ever, and the uses were those
 * of the parent's threads. */
static void reset(void)
{
	pthread_mutex_init(&making, NULL);
	tt_openssl_renew();
	uses.running = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, reset);
}

void tt_digest(const void *data, size_t bytes, uint8_t ret_digest[TT_DIGEST])
{
	SHA256_CTX state;

	SHA256_Init(&state);
	SHA256_Update(&state, data, bytes);
	SHA256_Final(ret_digest, &state);
}
