/*
 * test_exits.c - processes that call exit() while their other threads join, work and leave
 *
 * OpenSSL frees its state when a process exits, if the program has initialized OpenSSL before Tutti did.
 */
#include <criterion/criterion.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/ranks.h"

#define EXITS 100
#define THREADS 10 /* of each process, a rank each */
#define RANKS (2 * THREADS)

TestSuite(exits, .timeout = 120);

/* LeakSanitizer asks at exit; a process that exits beside its threads frees nothing of theirs. */
int __lsan_is_turned_off(void) __attribute__((visibility("default")));

int __lsan_is_turned_off(void)
{
	return 1;
}

static tuttiUniqueId id;

static void join_and_work(int rank)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
	tuttiComm_t comm;
	float x = 1;

	config.transport = "tcp";
	if (tuttiCommInitRankConfig(&comm, RANKS, id, rank, &config))
		return;
	for (int i = 0; i < 10; i++)
		tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiMax, comm, NULL);
	tuttiCommDestroy(comm);
}

/* The thread stays: OPENSSL_cleanup itself cannot run beside the end of a thread that has used OpenSSL. */
static void *work(void *rank)
{
	join_and_work((int)(long)rank);
	while (pause())
		;
	return NULL;
}

/* The ranks of process 0 or 1 work in threads, and the process exits soon. */
static void exit_beside_work(int process, unsigned after_us)
{
	pthread_t thread;

	setenv("TUTTI_ENCRYPT", "on", 1);
	OPENSSL_init_ssl(0, NULL);
	for (long r = 0; r < THREADS; r++)
		pthread_create(&thread, NULL, work, (void *)(process * THREADS + r));
	usleep(after_us);
	exit(7);
}

Test(exits, a_process_that_initialized_openssl_first_may_exit_while_its_threads_join_and_work)
{
	for (unsigned i = 0; i < EXITS; i++) {
		pid_t child[2];

		cr_assert_eq(tuttiGetUniqueId(&id), 0);
		for (int p = 0; p < 2; p++) {
			child[p] = fork();
			if (child[p] == 0)
				exit_beside_work(p, (unsigned)random_of(i, (unsigned)p) % 80000);
		}
		for (int p = 0; p < 2; p++) {
			int status;

			cr_assert_eq(waitpid(child[p], &status, 0), child[p]);
			cr_expect(WIFEXITED(status), "exit %u of process %d: signal %d", i, p,
				  WTERMSIG(status));
			cr_expect(!WIFEXITED(status) || WEXITSTATUS(status) == 7);
		}
	}
}

static tuttiComm_t late;

static void destroy_late(void)
{
	tuttiCommDestroy(late);
}

/* Exit handlers run in reverse order: OpenSSL has freed its state when destroy_late is called. */
static void exit_before_destroying(int rank)
{
	tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;

	config.transport = "tcp";
	atexit(destroy_late);
	OPENSSL_init_ssl(0, NULL);
	exit(tuttiCommInitRankConfig(&late, 2, id, rank, &config) ? 1 : 7);
}

Test(exits, a_communicator_may_be_destroyed_by_an_exit_handler_after_openssl_ended, .timeout = 20)
{
	pid_t child[2];

	cr_assert_eq(tuttiGetUniqueId(&id), 0);
	for (int p = 0; p < 2; p++) {
		child[p] = fork();
		if (child[p] == 0)
			exit_before_destroying(p);
	}
	for (int p = 0; p < 2; p++) {
		int status;

		cr_assert_eq(waitpid(child[p], &status, 0), child[p]);
		cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "process %d: %x", p,
			  (unsigned)status);
	}
}
