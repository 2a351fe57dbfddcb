/*
 * sock_silence.c - distinguish a silent peer from a failed network
 *
 * Called by control when a rank does not answer, and when a connection ends. The kernel of a stopped
 * process still acknowledges; so bytes without an acknowledgment after retransmissions mean a cut
 * cable or a host that is down. If this host's own interface is down, the text names it.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sock.h"

#define PROBE_AFTER_S 5
#define PROBE_EVERY_S 2
#define PROBES 3
#define REPEATS 2 /* retransmissions, 0.6 s at least */

void tt_sock_probe(int fd)
{
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){ PROBE_AFTER_S }, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){ PROBE_EVERY_S }, sizeof(int));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){ PROBES }, sizeof(int));
}

bool tt_sock_is_network_error(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
	       error == ENETDOWN || error == EHOSTDOWN;
}

bool tt_sock_is_remote_error(int error)
{
	return !error || error == ECONNRESET || error == EPIPE || tt_sock_is_network_error(error);
}

static bool is_same(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
	const struct in_addr *four = &((const struct sockaddr_in *)a)->sin_addr;

	if (!b || (b->sa_family != AF_INET && b->sa_family != AF_INET6))
		return false;
	if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		four = (const struct in_addr *)&six->sin6_addr.s6_addr[12];
	else if (a->ss_family != b->sa_family)
		return false;
	if (b->sa_family == AF_INET)
		return !memcmp(four, &((const struct sockaddr_in *)b)->sin_addr, 4);
	return !memcmp(&six->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

/* The name of the interface with the socket's own address, if that is down, else "" */
static void name_if_down(int fd, char name[TT_IFNAME])
{
	struct sockaddr_storage mine = { 0 };
	socklen_t bytes = sizeof(mine);
	struct ifaddrs *all;

	name[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&mine, &bytes) || getifaddrs(&all))
		return;
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		if (is_same(&mine, i->ifa_addr) && !(i->ifa_flags & IFF_RUNNING))
			snprintf(name, TT_IFNAME, "%s", i->ifa_name);
	freeifaddrs(all);
}

bool tt_sock_silent(int fd, char *text, size_t bytes)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);
	char down[TT_IFNAME];

	name_if_down(fd, down);
	if (down[0]) { /* then TCP does not even retransmit */
		snprintf(text, bytes, "interface %s, by which it is reached, is down", down);
		return true;
	}
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) || !info.tcpi_unacked ||
	    info.tcpi_retransmits < REPEATS)
		return false;
	snprintf(text, bytes,
		 "its host has acknowledged nothing for %.1f s: the network, or that host, is down",
		 1e-3 * info.tcpi_last_ack_recv);
	return true;
}
