/*
 * limits.c - limits of the machine, measured just before a run: how fast a core copies memory, how soon another
 * core sees a store, and how fast a TCP connection carries bytes
 *
 * Called by bench_thread.c where rank 0 writes a report (html_results.c), by all threads together. Nothing here
 * uses the library's transports: rank 0's thread exchanges flags with another thread of its host, through a page
 * that both map, and sends plain bytes to a thread of another host, or of its own if there is none.
 */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/sock.h"
#include "perf/bench/bench.h"

#define COPY_NS 20000000
#define FLAG_NS 100000000
#define WIRE_NS 100000000
#define CONNECT_NS 2000000000ull
#define COPY_LEAST (64 << 10)
#define COPY_MOST (32 << 20)
#define BATCH 16         /* round trips of a flag */
#define END UINT32_MAX   /* the last flag */
#define PART (256 << 10) /* of the bytes on the wire */

struct flags {
	_Alignas(128) _Atomic uint32_t ping;
	_Alignas(128) _Atomic uint32_t pong;
};

/* Of rank 0's thread: its page and its socket. Each rank's record has the first rank of its thread. */
struct offer {
	int64_t pid;
	int first, fd, port, naddresses;
	struct tt_address addresses[TT_ADDRESSES];
};

/* Measured by a thread; 0: not by this one */
struct measured {
	double copy_gbps, flag_us, wire_gbps;
};

/* What rank 0's thread opens for the others */
struct opened {
	int page_fd, listener;
	struct flags *page;
};

/* ---- copy ------------------------------------------------------------------------------------ */

static size_t copy_bytes(const struct bench_options *options)
{
	size_t most = options->max_bytes;

	return most < COPY_LEAST ? COPY_LEAST : most > COPY_MOST ? COPY_MOST : most;
}

/* The best of the batches, since other work on the host makes batches longer, never shorter */
static double copy_gbps(size_t bytes)
{
	char *from = malloc(bytes), *to = malloc(bytes);
	uint64_t end = tt_now_ns() + COPY_NS, start;
	int each = (int)(COPY_MOST / 16 / bytes) + 1;
	double best = 0;

	if (from && to) {
		memset(from, 1, bytes);
		memset(to, 0, bytes);
		do {
			start = tt_now_ns();
			for (int i = 0; i < each; i++) {
				memcpy(to, from, bytes);
				__asm__ volatile("" : : "r"(to) : "memory");
			}
			best = fmax(best, (double)bytes * each / (double)(tt_now_ns() - start));
		} while (tt_now_ns() < end);
	}
	free(from);
	free(to);
	return best;
}

/* ---- flag ------------------------------------------------------------------------------------ */

/* The flag's next value; `last`: none has come in time */
static uint32_t await(_Atomic uint32_t *flag, uint32_t last)
{
	uint64_t deadline = tt_now_ns() + CONNECT_NS;
	uint32_t value;

	for (unsigned spins = 1; (value = atomic_load_explicit(flag, memory_order_acquire)) == last;
	     spins++) {
		if (spins % 4096)
			continue;
		if (tt_now_ns() > deadline)
			break;
		sched_yield();
	}
	return value;
}

/* Half a round trip, the best of the batches; 0: the other side did not answer in time */
static double lead_flags(struct flags *f)
{
	uint64_t end = tt_now_ns() + FLAG_NS, start = tt_now_ns(), now = start, best = UINT64_MAX;
	uint32_t i = 0;

	while (now < end) {
		atomic_store_explicit(&f->ping, ++i, memory_order_release);
		if (await(&f->pong, i - 1) != i)
			break;
		if (i % BATCH)
			continue;
		now = tt_now_ns();
		best = now - start < best ? now - start : best;
		start = now;
	}
	atomic_store_explicit(&f->ping, END, memory_order_release);
	return best < UINT64_MAX ? (double)best / BATCH / 2000 : 0;
}

static void follow_flags(struct flags *f)
{
	uint32_t last = 0, value;

	while ((value = await(&f->ping, last)) != last && value != END) {
		atomic_store_explicit(&f->pong, value, memory_order_release);
		last = value;
	}
}

static struct flags *map_page(int fd)
{
	void *at = mmap(NULL, sizeof(struct flags), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void answer_flags(const struct offer *offer)
{
	char path[64];
	struct flags *page = NULL;
	int fd;

	snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)offer->pid, offer->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		page = map_page(fd);
		close(fd);
	}
	if (page) {
		follow_flags(page);
		munmap(page, sizeof(*page));
	}
}

/* ---- wire ------------------------------------------------------------------------------------ */

static void send_bytes(int listener)
{
	static const char zeros[PART];
	struct pollfd pfd = { .fd = listener, .events = POLLIN };
	uint64_t end;
	int fd = poll(&pfd, 1, CONNECT_NS / 1000000) > 0 ? accept(listener, NULL, NULL) : -1;

	if (fd < 0)
		return;
	tt_sock_own(fd);
	tt_sock_settle(fd);
	tt_sock_set_blocking(fd, true);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){ .tv_sec = 2 },
		   sizeof(struct timeval));
	end = tt_now_ns() + WIRE_NS;
	while (tt_now_ns() < end && send(fd, zeros, sizeof(zeros), MSG_NOSIGNAL) > 0)
		;
	tt_sock_close(fd);
}

/* From the first bytes to the end of the connection */
static double receive_gbps(int fd)
{
	char *part = malloc(PART);
	uint64_t bytes = 0, start = 0, end = 0;
	ssize_t n = 1;

	tt_sock_set_blocking(fd, true);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 2 },
		   sizeof(struct timeval));
	while (part && (n = recv(fd, part, PART, 0)) > 0) {
		if (start)
			bytes += (uint64_t)n;
		end = tt_now_ns();
		start = start ? start : end;
	}
	free(part);
	return n == 0 && end > start ? (double)bytes / (double)(end - start) : 0;
}

static double receive_bytes(const struct offer *offer, bool loopback)
{
	struct tt_patience patience = { .deadline_ns = tt_now_ns() + CONNECT_NS };
	struct tt_sock_target list[TT_ADDRESSES + 1] = { 0 };
	double gbps = 0;
	int n = 0, winner, fd;

	if (loopback)
		list[n++] = (struct tt_sock_target){ tt_loopback4, offer->port, false, "" };
	for (int i = 0; i < offer->naddresses; i++)
		list[n++] = (struct tt_sock_target){ offer->addresses[i], offer->port, false, "" };
	if (offer->port && !tt_sock_happy_eyeballs(list, n, &patience, &winner, &fd)) {
		gbps = receive_gbps(fd);
		tt_sock_close(fd);
	}
	return gbps;
}

/* ---- all threads ----------------------------------------------------------------------------- */

/* What cannot be opened is not measured. */
static void open_offer(struct opened *o, struct offer *ret_offer)
{
	const char *filter = getenv("TUTTI_SOCKET_IFNAME"), *range = getenv("TUTTI_PORT_RANGE");
	struct tt_ports ports = tt_ports_read(range ? range : "");

	*o = (struct opened){ memfd_create("flags", MFD_CLOEXEC), -1, NULL };
	if (o->page_fd >= 0 && !ftruncate(o->page_fd, sizeof(struct flags)))
		o->page = map_page(o->page_fd);
	ret_offer->pid = getpid();
	ret_offer->fd = o->page ? o->page_fd : -1;
	if (tt_sock_among(&ports, tt_sock_listen, &o->listener, &ret_offer->port))
		return;
	if (tt_address_list(filter ? filter : "", ret_offer->addresses, &ret_offer->naddresses))
		ret_offer->naddresses = 0;
}

static void close_offer(struct opened *o)
{
	if (o->page)
		munmap(o->page, sizeof(*o->page));
	if (o->page_fd >= 0)
		close(o->page_fd);
	if (o->listener >= 0)
		tt_sock_close(o->listener);
}

/* The least rank of another thread on rank 0's host, or on another host; -1: none */
static int find_partner(const struct bench_thread *t, const struct offer *all, bool here)
{
	for (int r = 1; r < t->nranks; r++)
		if (all[r].first && !strcmp(t->records[r].host, t->records[0].host) == here)
			return r;
	return -1;
}

static int measure(struct bench_thread *t, struct opened *o, const struct offer *all,
		   struct measured *mine)
{
	int near = find_partner(t, all, true), far = find_partner(t, all, false), rc;

	if ((rc = bench_thread_barrier(t)))
		return rc;
	mine->copy_gbps = copy_gbps(copy_bytes(t->options));
	if ((rc = bench_thread_barrier(t)))
		return rc;
	if (t->reports && o->page && near >= 0)
		mine->flag_us = lead_flags(o->page);
	else if (t->first == near)
		answer_flags(&all[0]);
	far = far < 0 ? near : far;
	if ((rc = bench_thread_barrier(t)) || far < 0)
		return rc;
	if (t->reports && o->listener >= 0)
		send_bytes(o->listener);
	else if (t->first == far)
		mine->wire_gbps = receive_bytes(&all[0], far == near);
	return 0;
}

static void set_limits(struct bench_thread *t, const struct offer *all,
		       const struct measured *measured)
{
	struct bench_limits *l = &t->limits;
	int far = find_partner(t, all, false);

	*l = (struct bench_limits){ .copy_bytes = copy_bytes(t->options),
				    .copy_gbps = measured[0].copy_gbps,
				    .flag_us = measured[0].flag_us };
	snprintf(l->wire, sizeof(l->wire), far < 0 ? "loopback of %.64s" : "%.64s to %.64s",
		 t->records[0].host, t->records[far < 0 ? 0 : far].host);
	for (int r = 0; r < t->nranks; r++) {
		l->copy_gbps = fmin(l->copy_gbps, measured[r].copy_gbps);
		l->wire_gbps = fmax(l->wire_gbps, measured[r].wire_gbps);
	}
}

int bench_limits_measure(struct bench_thread *t)
{
	size_t n = (size_t)t->nown, all_n = (size_t)t->nranks;
	struct offer *offers = calloc(n + all_n, sizeof(*offers)), *all = offers + n;
	struct measured *mine = calloc(n + all_n, sizeof(*mine));
	struct opened o = { -1, -1, NULL };
	int rc = 1;

	if (!offers || !mine) {
		fprintf(stderr, "rank %d: no memory for the limits of %d ranks\n", t->first,
			t->nranks);
		goto free_tables;
	}
	if (t->reports)
		open_offer(&o, &offers[0]);
	for (size_t i = 0; i < n; i++)
		offers[i].first = t->first;
	rc = bench_thread_gather(t, offers, sizeof(*offers), all);
	if (!rc)
		rc = measure(t, &o, all, &mine[0]);
	for (size_t i = 1; i < n; i++)
		mine[i].copy_gbps = mine[0].copy_gbps;
	if (!rc)
		rc = bench_thread_gather(t, mine, sizeof(*mine), mine + n);
	if (!rc)
		set_limits(t, all, mine + n);
	close_offer(&o);
free_tables:
	free(offers);
	free(mine);
	return rc;
}
