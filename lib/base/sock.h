/*
 * sock.h - TCP sockets: addresses as values and as text,
 * listen, connect and exchange bytes with a deadline
 *
 * Called by comm (joining, control, data sockets). Every socket that Tutti makes is owned: a forked
 * child closes its copies at once, so that it can neither hide the parent's death from the peers
 * nor disturb its streams.
 */
#ifndef TT_SOCK_H
#define TT_SOCK_H

#include <sys/socket.h>

#include "base/base.h"

struct tt_address {
	uint8_t family;          /* 4 or 6 */
	uint8_t prefix;          /* bits of the subnet; 0 unknown */
	uint8_t bytes[16];       /* network order, 4 or 16 of them */
};

#define TT_ADDRESSES 8           /* of one host, at most */
#define TT_ENDPOINT_TEXT 64      /* enough for tt_address_text */

/* How long to try: until deadline_ns, or until stop(ctx)
 * says that it is pointless. stop may be NULL. */
struct tt_patience {
	uint64_t deadline_ns;
	bool (*stop)(void *ctx);
	void *ctx;
};

/* address.c ------------------------------------------------------------------------------------ */

/* "10.0.0.1:4000", "[fd00::1]:4000" into text; returns text. A port of 0 is left out. */
const char *tt_address_text(const struct tt_address *a, int port, char text[TT_ENDPOINT_TEXT]);
bool tt_address_is_loopback(const struct tt_address *a);
bool tt_address_equal(const struct tt_address *a, const struct tt_address *b);
/* Do both lie in mine's subnet? */
bool tt_address_near(const struct tt_address *mine, const struct tt_address *other);
extern const struct tt_address tt_loopback4, tt_loopback6;

/* Does TUTTI_SOCKET_IFNAME (NCCL's form: [^][=]name,name) choose this interface? "" chooses all. */
bool tt_ifname_chooses(const char *filter, const char *name);

/* Addresses of this host that other hosts may reach: interfaces that are up and chosen, no
 * loopback, no link-local.
 * 0 | TT_ARG (the filter chooses no interface: names those there are) | TT_SYSTEM */
int tt_address_list(const char *filter, struct tt_address list[TT_ADDRESSES], int *ret_n);

/* Is the loopback interface up? In a fresh network namespace it is not. */
bool tt_loopback_is_up(void);

/* The name of the interface by which the kernel would send to a; "?" when it would not. */
#define TT_IFNAME 16
void tt_address_route(const struct tt_address *a, char name[TT_IFNAME]);

/* The addresses of a host name or numeric address. 0 | TT_ARG (unknown name) */
int tt_address_resolve(const char *host, struct tt_address list[TT_ADDRESSES], int *ret_n);

/* sock.c --------------------------------------------------------------------------------------- */

/* Ports that may be used: first .. first + count - 1; count 0:
 * any, or exactly `first` unless that is 0. The spared ones (as many, from there on) are somebody's
 * who may come late: they are tried when no other is free. */
struct tt_ports { int first, count, spare_first, spare_count; };
/* TUTTI_PORT_RANGE as such; "" is any. */
struct tt_ports tt_ports_read(const char *range);

/* A socket bound to port (0: a free one) of all addresses of this host, IPv6 and IPv4. Not
 * listening: it reserves the port, and one of tt_sock_listen may share it. Not owned: forked
 * children keep it. 0 | TT_SYSTEM */
int tt_sock_reserve(int port, int *ret_fd, int *ret_port);
/* The same where the port's last connections, all closed, are still remembered. That cannot be told
 * from a port that another process has reserved, so it is the second choice. */
int tt_sock_reserve_used(int port, int *ret_fd, int *ret_port);
/* The same, listening, non-blocking. Only one socket can listen on a port. */
int tt_sock_listen(int port, int *ret_fd, int *ret_port);
/* The same with the first of ports that is free, by one of the three.
 * All taken: TT_SYSTEM that names them, errno EADDRINUSE */
int tt_sock_among(const struct tt_ports *ports, int (*make)(int port, int *ret_fd, int *ret_port),
		  int *ret_fd, int *ret_port);

/* What to do to a socket that such a listener accepted: congestion control, which only connections
 * inside the host go without. tt_sock_happy_eyeballs does it itself. */
void tt_sock_settle(int fd);
void tt_sock_unpace(int fd);             /* for a new socket, before it connects or listens */

/* Connect to whichever of the n doors that are not marked tried answers first, in their order with
 * a head start each; the socket is non-blocking, without Nagle. Those that led nowhere are marked,
 * and why has the reason; so is the winner. 0 | TT_REMOTE: none is left | TT_TIMEOUT (also:
 * stopped) | TT_SYSTEM with the sentence: this host cannot go on */
struct tt_sock_target {
	struct tt_address address;
	int port;
	bool tried;
	char why[48];
};
int tt_sock_happy_eyeballs(struct tt_sock_target *list, int n, const struct tt_patience *patience, int *ret_index,
		 int *ret_fd);

/* Send or receive exactly bytes on a non-blocking socket. 0 | TT_REMOTE (closed, reset) |
 * TT_TIMEOUT (also: stopped) */
int tt_sock_send(int fd, const void *data, size_t bytes, const struct tt_patience *patience);
int tt_sock_recv(int fd, void *data, size_t bytes, const struct tt_patience *patience);

/* Did the network end a connection that ended with this errno, and not the peer? */
bool tt_sock_is_wire(int error);
/* Is what was sent not even acknowledged, though repeated? True with the words; a peer that is only
 * stopped is not silent. */
bool tt_sock_silent(int fd, char *text, size_t bytes);

/* tt_fail(TT_SYSTEM) with what and errno; says which limit
 * to raise when descriptors are what is missing */
int tt_sock_fail(const char *what);

void tt_sock_set_blocking(int fd, bool blocking);

/* Own fd (returned), also made elsewhere; close it. A plain close of an owned fd is harmless. */
int tt_sock_own(int fd);
void tt_sock_close(int fd);

/* sock_fd.c ------------------------------------------------------------------------------------ */

/* Hands fd over a unix socket, with `bytes` of data, without waiting; to: of a datagram, else NULL,
 * 0. false: errno says why not */
bool tt_sock_give_fd(int via, const struct sockaddr *to, socklen_t to_bytes, const void *data,
		     size_t bytes, int fd);
/* Takes what there is; *ret_fd is -1 where not one descriptor came along; of several,
 * none is kept. As recv. */
ssize_t tt_sock_take_fd(int via, void *data, size_t bytes, int *ret_fd);

#endif
