/*
 * address.c - addresses as text, the addresses of this host, and the user's choice of interfaces
 *
 * Called by control and launch: a rank publishes its addresses, and its peers choose the nearest.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sock.h"

const struct tt_address tt_loopback4 = { .family = 4, .prefix = 8, .bytes = { 127, 0, 0, 1 } };
const struct tt_address tt_loopback6 = { .family = 6, .prefix = 128, .bytes = { [15] = 1 } };

const char *tt_address_text(const struct tt_address *a, int port, char text[TT_ENDPOINT_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "?";

	inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, host, sizeof(host));
	if (!port)
		snprintf(text, TT_ENDPOINT_TEXT, "%s", host);
	else
		snprintf(text, TT_ENDPOINT_TEXT, a->family == 4 ? "%s:%d" : "[%s]:%d", host, port);
	return text;
}

static size_t width(const struct tt_address *a)
{
	return a->family == 4 ? 4 : 16;
}

bool tt_address_is_loopback(const struct tt_address *a)
{
	return a->family == 4 ? a->bytes[0] == 127 : !memcmp(a->bytes, tt_loopback6.bytes, 16);
}

bool tt_address_equal(const struct tt_address *a, const struct tt_address *b)
{
	return a->family == b->family && !memcmp(a->bytes, b->bytes, width(a));
}

bool tt_address_near(const struct tt_address *mine, const struct tt_address *other)
{
	unsigned bits = mine->prefix, whole = bits / 8, rest = bits % 8;

	if (mine->family != other->family || !bits || bits > width(mine) * 8)
		return false;
	if (memcmp(mine->bytes, other->bytes, whole))
		return false;
	return !rest || (mine->bytes[whole] ^ other->bytes[whole]) >> (8 - rest) == 0;
}

bool tt_ifname_chooses(const char *filter, const char *name)
{
	bool exclude = *filter == '^', exact, hit = false;
	size_t bytes;

	if (!*filter)
		return true;
	filter += exclude;
	exact = *filter == '=';
	for (filter += exact; *filter; filter += bytes + (filter[bytes] == ',')) {
		bytes = strcspn(filter, ",");
		hit |= bytes && !strncmp(filter, name, bytes) && (!exact || !name[bytes]);
	}
	return hit != exclude;
}

static uint8_t mask_bits(const uint8_t *mask, size_t bytes)
{
	unsigned bits = 0;

	for (size_t i = 0; i < bytes; i++)
		bits += (unsigned)__builtin_popcount(mask[i]);
	return (uint8_t)bits;
}

/* The address bytes of a socket address */
static const uint8_t *bytes_of(const struct sockaddr *sa, int family)
{
	if (family == AF_INET)
		return (const uint8_t *)&((const struct sockaddr_in *)sa)->sin_addr;
	return (const uint8_t *)&((const struct sockaddr_in6 *)sa)->sin6_addr;
}

static bool from_sockaddr(const struct sockaddr *sa, const struct sockaddr *mask,
			  struct tt_address *ret_a)
{
	size_t bytes;

	memset(ret_a, 0, sizeof(*ret_a));
	if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return false;
	ret_a->family = sa->sa_family == AF_INET ? 4 : 6;
	bytes = sa->sa_family == AF_INET ? 4 : 16;
	memcpy(ret_a->bytes, bytes_of(sa, sa->sa_family), bytes);
	if (mask)
		ret_a->prefix = mask_bits(bytes_of(mask, sa->sa_family), bytes);
	return true;
}

/* A link-local address is valid only together with an interface of the peer. */
static bool is_link_local(const struct tt_address *a)
{
	if (a->family == 4)
		return a->bytes[0] == 169 && a->bytes[1] == 254;
	return a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

static void add_unique(struct tt_address *list, int *n, const struct tt_address *a)
{
	for (int i = 0; i < *n; i++)
		if (tt_address_equal(&list[i], a))
			return;
	if (*n < TT_ADDRESSES)
		list[(*n)++] = *a;
}

static void add_name(char *names, size_t bytes, const char *name)
{
	size_t have = strlen(names);

	if (!strstr(names, name))
		snprintf(names + have, bytes - have, "%s%s", have ? " " : "", name);
}

int tt_address_list(const char *filter, struct tt_address list[TT_ADDRESSES], int *ret_n)
{
	struct ifaddrs *all;
	struct tt_address a;
	char names[256] = "";
	bool chosen = false;
	int n = 0;

	if (getifaddrs(&all))
		return tt_sock_fail("cannot list the network interfaces");
	for (int family = 4; family <= 6; family += 2)
		for (struct ifaddrs *i = all; i; i = i->ifa_next) {
			add_name(names, sizeof(names), i->ifa_name);
			if (!tt_ifname_chooses(filter, i->ifa_name))
				continue;
			chosen = true;
			if ((i->ifa_flags & IFF_UP) &&
			    from_sockaddr(i->ifa_addr, i->ifa_netmask, &a) && a.family == family &&
			    !tt_address_is_loopback(&a) && !is_link_local(&a))
				add_unique(list, &n, &a);
		}
	freeifaddrs(all);
	if (!chosen && *filter)
		return tt_fail(TT_ARG, "TUTTI_SOCKET_IFNAME=%s chooses no interface; there are: %s",
			       filter, names);
	*ret_n = n;
	return 0;
}

bool tt_loopback_is_up(void)
{
	struct ifaddrs *all;
	bool up = false;

	if (getifaddrs(&all))
		return true; /* unknown counts as up */
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		up |= (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP);
	freeifaddrs(all);
	return up;
}

int tt_address_resolve(const char *host, struct tt_address list[TT_ADDRESSES], int *ret_n)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all;
	struct tt_address a;
	int rc = getaddrinfo(host, NULL, &hints, &all), n = 0;

	if (rc)
		return tt_fail(TT_ARG, "host \"%s\": %s", host,
			       rc == EAI_SYSTEM ? "cannot be resolved" : gai_strerror(rc));
	for (struct addrinfo *i = all; i; i = i->ai_next)
		if (from_sockaddr(i->ai_addr, NULL, &a) && !is_link_local(&a))
			add_unique(list, &n, &a);
	freeaddrinfo(all);
	if (!n)
		return tt_fail(TT_ARG, "host \"%s\" has no address that can be used", host);
	*ret_n = n;
	return 0;
}

union any_sockaddr {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static socklen_t to_sockaddr(const struct tt_address *a, uint16_t port, union any_sockaddr *ret_sa)
{
	memset(ret_sa, 0, sizeof(*ret_sa));
	if (a->family == 4) {
		ret_sa->four = (struct sockaddr_in){ .sin_family = AF_INET,
						     .sin_port = htons(port) };
		memcpy(&ret_sa->four.sin_addr, a->bytes, 4);
		return sizeof(ret_sa->four);
	}
	ret_sa->six = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port) };
	memcpy(&ret_sa->six.sin6_addr, a->bytes, 16);
	return sizeof(ret_sa->six);
}

bool tt_address_is_here(const struct tt_address *a)
{
	int fd = socket(a->family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union any_sockaddr sa;
	socklen_t bytes = to_sockaddr(a, 0, &sa);
	bool here = fd < 0 || !bind(fd, &sa.any, bytes) || errno != EADDRNOTAVAIL;

	if (fd >= 0)
		close(fd);
	return here;
}

void tt_address_route(const struct tt_address *a, char name[TT_IFNAME])
{
	union any_sockaddr to, us = { 0 };
	socklen_t bytes = to_sockaddr(a, 9, &to);
	int fd = socket(a->family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct tt_address mine = { 0 }, other;
	struct ifaddrs *all = NULL;

	snprintf(name, TT_IFNAME, "?");
	/* connect on a datagram socket chooses the route and sends nothing */
	if (fd >= 0 && !connect(fd, &to.any, bytes) &&
	    !getsockname(fd, &us.any, &(socklen_t){ sizeof(us) }) &&
	    from_sockaddr(&us.any, NULL, &mine) && !getifaddrs(&all))
		for (struct ifaddrs *i = all; i; i = i->ifa_next)
			if (from_sockaddr(i->ifa_addr, NULL, &other) &&
			    tt_address_equal(&mine, &other))
				snprintf(name, TT_IFNAME, "%.15s", i->ifa_name);
	if (all)
		freeifaddrs(all);
	if (fd >= 0)
		close(fd);
}
