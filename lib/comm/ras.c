/*
 * ras.c - the RAS service of the process: its thread and its clients
 *
 * Called by comm when a communicator is made and ends. A client is a stranger: any program of this host
 * may connect. So clients are few, one that is silent leaves for a new one, each has a deadline, a line
 * of 1 KiB and answers of 4 KiB at most until it reads them, and the ranks are asked at most once in
 * 0.2 s, however many clients ask. The thread never waits for a client or for a rank.
 */
#include "comm/ras.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/sock.h"
#include "base/thread.h"

#define MS 1000000ull
#define CLIENTS 16
#define IDLE_NS (10000 * MS) /* longest time of a client without progress */
#define LINGER_NS (1000 * MS)
#define TICK_MS 5 /* period of looks at the answers of the ranks, and for a free place */
/* silence after which a client is dropped for a new one: before its first line, and after it */
#define MUTE_NS (50 * MS)
#define PAUSE_NS (1000 * MS)

enum client_state {
	FREE,
	COMMANDS, /* lines come */
	WAITS,    /* the ranks are asked */
	REPORT,   /* the report is sent */
	LINGERS, /* all is sent; the client closes first, since a close with unread bytes loses the report */
};

struct client {
	enum client_state state;
	int fd;
	struct tt_ras_session session;
	bool spoke; /* sent a line */
	uint64_t since_ns,
		due_ns; /* latest progress; end of the connection, unless there is more progress */
	uint64_t asked_ns;
	char out[4096]; /* answers */
	size_t have, sent;
	char *report; /* free */
	size_t report_bytes, report_sent;
};

static struct {
	pthread_mutex_t lifecycle; /* held while a communicator enters or leaves; guards: */
	bool running;
	bool warned; /* warned, once per process, that the address cannot be used */
	pthread_t thread;
	atomic_bool stop;
	int listener, wake;
	struct client client[CLIENTS]; /* thread: ras */
} server;

static void reset(void)
{
	pthread_mutex_init(&server.lifecycle, NULL);
	server.running = server.warned = false;
	server.stop = false;
	memset(server.client, 0, sizeof(server.client));
}

/* The parent's communicators and thread are not the child's. */
__attribute__((constructor)) static void watch_forks(void)
{
	reset();
	pthread_atfork(NULL, NULL, reset);
}

/* ---- clients --------------------------------------------------------------------------------- */

static void drop(struct client *c)
{
	if (c->state == FREE)
		return;
	tt_sock_close(c->fd);
	free(c->report);
	*c = (struct client){ .state = FREE };
}

static void advance(struct client *c, enum client_state state, uint64_t in_ns)
{
	c->state = state;
	c->since_ns = tt_now_ns();
	c->due_ns = c->since_ns + in_ns;
}

/* Answer lines while there is room for their answers. */
static void obey(struct client *c)
{
	enum tt_ras_step step = TT_RAS_ANSWERED;

	while (step == TT_RAS_ANSWERED && c->have + TT_RAS_ANSWER <= sizeof(c->out)) {
		step = tt_ras_step(&c->session, c->out + c->have);
		if (step == TT_RAS_ANSWERED) {
			c->have += strlen(c->out + c->have);
			c->spoke = true;
			advance(c, COMMANDS, IDLE_NS);
		}
	}
	if (step == TT_RAS_TOO_LONG)
		drop(c);
	if (step != TT_RAS_STATUS)
		return;
	c->asked_ns = tt_now_ns();
	advance(c, WAITS, c->session.timeout_ms * MS);
}

static void receive(struct client *c)
{
	struct tt_ras_session *s = &c->session;
	char ignored[512];
	ssize_t n = c->state == COMMANDS
			    ? recv(c->fd, s->in + s->have, sizeof(s->in) - s->have, MSG_DONTWAIT)
			    : recv(c->fd, ignored, sizeof(ignored), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 || (n == 0 && c->state == LINGERS)) {
		drop(c);
		return;
	}
	if (c->state != COMMANDS)
		return;
	s->have += (size_t)n;
	obey(c);
	if (n == 0 && c->state == COMMANDS) /* `echo status | nc` closes its half after STATUS */
		drop(c);
}

/* Send bytes[*sent ..]; true: all is sent. A failure drops the client. */
static bool flush(struct client *c, const char *bytes, size_t have, size_t *sent)
{
	while (*sent < have) {
		ssize_t n = send(c->fd, bytes + *sent, have - *sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			drop(c);
		if (n <= 0)
			return false;
		*sent += (size_t)n;
		c->due_ns = c->state == REPORT ? tt_now_ns() + IDLE_NS : c->due_ns;
	}
	return true;
}

static void send_all(struct client *c)
{
	if (c->have && flush(c, c->out, c->have, &c->sent)) {
		c->have = c->sent = 0;
		if (c->state == COMMANDS)
			obey(c);
	}
	if (c->state != REPORT || c->have || !flush(c, c->report, c->report_bytes, &c->report_sent))
		return;
	shutdown(c->fd, SHUT_WR);
	advance(c, LINGERS, LINGER_NS);
}

static void look_at_answers(struct client *c)
{
	uint64_t now = tt_now_ns();

	if (!tt_ras_answered(c->asked_ns) && now < c->due_ns)
		return;
	c->report = tt_ras_report(&c->session, c->asked_ns, &c->report_bytes);
	advance(c, REPORT, IDLE_NS);
}

static void serve(struct client *c, short events)
{
	if (events & (POLLHUP | POLLERR))
		drop(c);
	else if (events & POLLIN)
		receive(c);
	if (c->state == WAITS)
		look_at_answers(c);
	if (c->state != FREE)
		send_all(c);
	if (c->state != FREE && c->state != WAITS && tt_now_ns() >= c->due_ns)
		drop(c);
}

static bool may_leave(const struct client *c, uint64_t now)
{
	return (c->state == COMMANDS || c->state == LINGERS) &&
	       now - c->since_ns >= (c->spoke ? PAUSE_NS : MUTE_NS);
}

/* A place for a new client: a free one, or that of the client that is silent longest. NULL: none yet */
static struct client *find_place(void)
{
	uint64_t now = tt_now_ns();
	struct client *found = NULL;

	for (int i = 0; i < CLIENTS; i++) {
		struct client *c = &server.client[i];

		if (c->state == FREE)
			return c;
		if (may_leave(c, now) && (!found || c->since_ns < found->since_ns))
			found = c;
	}
	return found;
}

static void accept_all(void)
{
	struct client *c;

	while ((c = find_place())) {
		int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		drop(c);
		*c = (struct client){ .fd = tt_sock_own(fd),
				      .session.timeout_ms = TT_RAS_TIMEOUT_MS };
		advance(c, COMMANDS, IDLE_NS);
	}
}

/* ---- the thread ------------------------------------------------------------------------------ */

static short events_of(const struct client *c)
{
	bool reads = c->state == LINGERS ||
		     (c->state == COMMANDS && c->session.have < sizeof(c->session.in));

	return (short)((reads ? POLLIN : 0) | (c->have || c->state == REPORT ? POLLOUT : 0));
}

/* Milliseconds to the next thing to do; -1: none */
static int time_to_next(void)
{
	uint64_t now = tt_now_ns();
	int least = find_place() ? -1 : TICK_MS;

	for (int i = 0; i < CLIENTS; i++) {
		const struct client *c = &server.client[i];
		int ms = c->due_ns > now ? (int)((c->due_ns - now) / MS) + 1 : 0;

		if (c->state == FREE)
			continue;
		ms = c->state == WAITS ? TICK_MS : ms;
		least = least < 0 || ms < least ? ms : least;
	}
	return least;
}

static void *run(void *unused)
{
	struct pollfd pfd[CLIENTS + 2] = { { .fd = server.wake, .events = POLLIN },
					   { .fd = server.listener } };

	(void)unused;
	while (!server.stop) {
		for (int i = 0; i < CLIENTS; i++) {
			bool used = server.client[i].state != FREE;

			pfd[i + 2] = (struct pollfd){ .fd = used ? server.client[i].fd : -1,
						      .events = events_of(&server.client[i]) };
		}
		pfd[1].events = find_place() ? POLLIN : 0;
		if (poll(pfd, CLIENTS + 2, time_to_next()) < 0)
			continue;
		for (int i = 0; i < CLIENTS; i++)
			if (pfd[i + 2].fd >= 0)
				serve(&server.client[i], pfd[i + 2].revents);
		if (pfd[1].revents)
			accept_all();
	}
	for (int i = 0; i < CLIENTS; i++)
		drop(&server.client[i]);
	return NULL;
}

/* A socket that listens at address, valid by env.c, which other processes may share; -1: errno */
static int listen_at(const char *address)
{
	bool is_ip6 = address[0] == '[';
	uint16_t port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	struct sockaddr_in ip4 = { .sin_family = AF_INET,
				   .sin_port = port,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 ip6 = { .sin6_family = AF_INET6,
				    .sin6_port = port,
				    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int one = 1, error,
	    fd = tt_sock_own(socket(is_ip6 ? AF_INET6 : AF_INET,
				    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) &&
	    !bind(fd, is_ip6 ? (void *)&ip6 : (void *)&ip4, is_ip6 ? sizeof(ip6) : sizeof(ip4)) &&
	    !listen(fd, SOMAXCONN))
		return fd;
	error = errno;
	tt_sock_close(fd);
	errno = error;
	return -1;
}

/* false: errno */
static bool start(const char *address)
{
	server.listener = listen_at(address);
	server.wake = server.listener < 0 ? -1 : tt_sock_own(eventfd(0, EFD_CLOEXEC));
	server.stop = false;
	if (server.wake >= 0) {
		errno = tt_thread_start(&server.thread, "tutti-ras", run, NULL);
		if (!errno)
			return true;
	}
	tt_sock_close(server.wake);
	tt_sock_close(server.listener);
	return false;
}

static void stop(void)
{
	server.stop = true;
	(void)!write(server.wake, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_join(server.thread, NULL);
	tt_sock_close(server.wake);
	tt_sock_close(server.listener);
}

/* ---- communicators --------------------------------------------------------------------------- */

int tt_ras_enter(const char *address, const struct tt_ras_member *member,
		 struct tt_ras_entry **ret_entry)
{
	int rc;

	pthread_mutex_lock(&server.lifecycle);
	rc = tt_ras_add(member, ret_entry);
	if (!rc && !server.running) {
		server.running = start(address);
		if (server.running)
			tt_log(TT_LOG_INFO, "rank %d: RAS clients are answered at %s", member->rank,
			       address);
		else if (!server.warned)
			tt_log(TT_LOG_WARN,
			       "rank %d: TUTTI_RAS: %s: %m; no RAS client can ask this process",
			       member->rank, address);
		server.warned |= !server.running;
	}
	pthread_mutex_unlock(&server.lifecycle);
	return rc;
}

void tt_ras_leave(struct tt_ras_entry *entry)
{
	if (!entry)
		return;
	pthread_mutex_lock(&server.lifecycle);
	if (tt_ras_remove(entry) && server.running) {
		stop();
		server.running = false;
	}
	pthread_mutex_unlock(&server.lifecycle);
}
