/*
 * flood.c - a source that floods a listener of this host: flood PORT CONNECTIONS_PER_SECOND SECONDS
 *
 * Keeps 64 idle connections of another source open, and its own latest 500. To see what a flood costs a running
 * job (docs/results/survival.md). Prints the connections made, and how many were refused.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

enum { IDLE = 64, OPEN = 500 };

static int refused;

static int connect_from(unsigned host, int port)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(host) };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	refused += bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
		   connect(fd, (struct sockaddr *)&to, sizeof(to));
	return fd;
}

int main(int argc, char **argv)
{
	int port = argc == 4 ? atoi(argv[1]) : 0, rate = argc == 4 ? atoi(argv[2]) : 0, open[OPEN];
	uint64_t began = tt_now_ns(), end, made = 0;

	if (port < 1 || rate < 1) {
		fprintf(stderr, "flood PORT CONNECTIONS_PER_SECOND SECONDS\n");
		return 2;
	}
	end = began + (uint64_t)(atof(argv[3]) * 1e9);
	for (int i = 0; i < IDLE; i++)
		connect_from(INADDR_LOOPBACK + 2, port);
	while (tt_now_ns() < end) {
		int *fd = &open[made % OPEN];

		if (made >= (tt_now_ns() - began) * (uint64_t)rate / 1000000000u) {
			usleep(500);
			continue;
		}
		if (made >= OPEN)
			close(*fd);
		*fd = connect_from(INADDR_LOOPBACK + 1, port);
		made++;
	}
	printf("%llu connections, %d refused\n", (unsigned long long)made, refused);
	return 0;
}
