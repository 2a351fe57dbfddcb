/*
 * race_observed.c - communicators that are observed: the threads of TUTTI_METRICS and TUTTI_RAS, and the
 * reports for monitors, beside calls, joins and ends, for ThreadSanitizer; none is left behind
 *
 * Ranks are threads. Each round they join, call until a file of the metrics' thread, an answer of the
 * RAS service and a report have counted calls of all ranks, and leave. A client and a monitor ask all
 * the time.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/monitor.h"
#include "control/unique_id.h"
#include "tests/support/ranks.h"

#define RANKS 3
#define ROUNDS 2

static char dir[] = "/tmp/tutti-observed-XXXXXX", ids[] = "/tmp/tutti-observed-XXXXXX";
static uint16_t port;
static atomic_bool stop;
/* that count an allreduce of every rank */
static atomic_int answers, reports;

/* ---- the client ------------------------------------------------------------------------------ */

static int connect_client(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (!connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return fd;
	close(fd);
	return -1;
}

static int count(const char *text, const char *part)
{
	int n = 0;

	while ((text = strstr(text, part))) {
		text += strlen(part);
		n++;
	}
	return n;
}

static void ask(void)
{
	static const char words[] = "SET FORMAT json\nSTATUS\n";
	char text[16384];
	size_t have = 0;
	ssize_t n = 1;
	int fd = connect_client();

	if (fd < 0)
		return;
	if (write(fd, words, strlen(words)) > 0)
		while (have < sizeof(text) - 1 &&
		       (n = read(fd, text + have, sizeof(text) - 1 - have)) > 0)
			have += (size_t)n;
	text[have] = '\0';
	if (!n && count(text, "\"AllReduce\": ") == RANKS && !strstr(text, "\"AllReduce\": 0"))
		atomic_fetch_add(&answers, 1);
	close(fd);
}

static void *run_client(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		ask();
		usleep(1000);
	}
	return NULL;
}

/* ---- the monitor ----------------------------------------------------------------------------- */

static void monitor(const tuttiUniqueId *id)
{
	struct tt_job_report report;
	bool counts = true;

	if (tt_monitor_ask(id, &report))
		return;
	for (int i = 0; i < report.ncomms; i++)
		for (int r = 0; r < report.comms[i].nranks; r++)
			counts &= report.comms[i].ranks[r].tally.calls[TT_ALLREDUCE] > 0;
	if (counts && report.ncomms)
		atomic_fetch_add(&reports, 1);
	tt_job_report_free(&report);
}

static void *run_monitor(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		DIR *d = opendir(ids);
		tuttiUniqueId id;
		char path[600];

		for (struct dirent *e; d && (e = readdir(d));) {
			snprintf(path, sizeof(path), "%s/%s", ids, e->d_name);
			if (e->d_name[0] != '.' && !tt_id_file_read(path, &id))
				monitor(&id);
		}
		if (d)
			closedir(d);
		usleep(1000);
	}
	return NULL;
}

/* ---- the ranks ------------------------------------------------------------------------------- */

/* Has a file of the folder counted calls? The first files, written by the joins, have none. */
static bool is_written(void)
{
	char path[600], text[8192] = "";
	DIR *d = opendir(dir);
	bool found = false;

	for (struct dirent *e; d && (e = readdir(d));) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!f)
			continue;
		text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
		fclose(f);
		found |= strstr(text, "seconds_count") != NULL;
	}
	if (d)
		closedir(d);
	return found;
}

static int call(tuttiComm_t *comm, int rank, int nranks, void *arg)
{
	const int *seen = arg;
	int more, sum = 1;

	(void)nranks;
	while (sum) {
		more = rank == 0 && (atomic_load(&answers) <= seen[0] ||
				     atomic_load(&reports) <= seen[1] || !is_written());
		if (tuttiAllReduce(&more, &sum, 1, tuttiInt32, tuttiSum, *comm, NULL)) {
			printf("# rank %d: %s\n", rank, tuttiGetLastError(NULL));
			return 1;
		}
		usleep(2000);
	}
	return 0;
}

/* Threads of the library, by name; 0: none */
static int count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	char path[300], name[32];
	int n = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && !strncmp(name, "tutti-", 6)) {
			printf("# left: %s", name);
			n++;
		}
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

static uint16_t free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    getsockname(fd, (struct sockaddr *)&a, &(socklen_t){ sizeof(a) }))
		return 0;
	close(fd);
	return ntohs(a.sin_port);
}

int main(void)
{
	struct ranks r = { .n = RANKS, .threads = true, .limit_s = 250 };
	char address[32];
	pthread_t client, watcher;
	int failed = 0;

	port = free_port();
	snprintf(address, sizeof(address), "localhost:%d", port);
	if (!port || !mkdtemp(dir) || !mkdtemp(ids) || setenv("TUTTI_METRICS", dir, 1) ||
	    setenv("TUTTI_RAS", address, 1) || setenv("TUTTI_TOP", ids, 1) ||
	    pthread_create(&client, NULL, run_client, NULL) ||
	    pthread_create(&watcher, NULL, run_monitor, NULL))
		return 99;
	for (int i = 0; i < ROUNDS; i++) {
		int seen[2] = { atomic_load(&answers), atomic_load(&reports) };

		r.arg = seen;
		failed += ranks_run(&r, call);
		failed += count_threads();
	}
	atomic_store(&stop, true);
	pthread_join(client, NULL);
	pthread_join(watcher, NULL);
	failed += rmdir(dir) != 0; /* the files are removed */
	failed += rmdir(ids) != 0;
	printf("%d rounds, %d answers, %d reports, %d failures\n", ROUNDS, atomic_load(&answers),
	       atomic_load(&reports), failed);
	return failed != 0;
}
