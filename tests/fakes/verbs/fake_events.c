/* fake_events.c - event datagrams of the fake libibverbs, received by the descriptor of a channel
 * or context, and injected faults */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs.h"

static socklen_t name_of(uint32_t number, struct sockaddr_un *at)
{
	const char *file = getenv("TUTTI_TEST_VERBS");

	memset(at, 0, sizeof(*at));
	at->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, "%s-%u",
					    file ? file : "", number));
}

int listen_on(uint32_t number)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at;
	socklen_t bytes = name_of(number, &at);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&at, bytes)) {
		close(fd);
		return -1;
	}
	return fd;
}

void notify(uint32_t number, uint64_t value)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at;
	socklen_t bytes = name_of(number, &at);

	if (fd < 0)
		return;
	sendto(fd, &value, sizeof(value), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&at,
	       bytes);
	close(fd);
}

bool receive_value(int fd, uint64_t *ret_value)
{
	return recv(fd, ret_value, sizeof(*ret_value), 0) == sizeof(*ret_value);
}

/* The number N of TUTTI_TEST_VERBS_FAULT=kind@N; 0: another kind or none. */
static uint64_t asked(const char *kind)
{
	const char *set = getenv("TUTTI_TEST_VERBS_FAULT");
	size_t bytes = strlen(kind);

	return set && !strncmp(set, kind, bytes) && set[bytes] == '@'
		       ? strtoull(set + bytes + 1, NULL, 10)
		       : 0;
}

bool fault(const char *kind, uint64_t count)
{
	return count && asked(kind) == count;
}

bool fault_from(const char *kind, uint64_t value)
{
	return asked(kind) && value >= asked(kind);
}

bool mood(const char *word)
{
	const char *set = getenv("TUTTI_TEST_VERBS_MOOD");

	return set && strstr(set, word);
}

static bool cut; /* this process's ports went down by an injected fault */

void cut_ports(void)
{
	cut = true;
}

/* Are the ports down: lose: do they lose writes; else: do they report so? */
bool ports_are_down(bool lose)
{
	const char *set = getenv("TUTTI_TEST_VERBS_DOWN");
	int how = set ? atoi(set) : 0;

	return cut || how == 1 || (how && !lose);
}

int wire_of(int device)
{
	const char *set = getenv("TUTTI_TEST_VERBS_WIRES");

	return set ? set[2 * device] - '0' : 0;
}
