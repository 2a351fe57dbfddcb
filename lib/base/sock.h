/*
 * sock.h - TCP sockets: addresses as values and as text; listen, connect and exchange bytes with a
 * deadline
 *
 * Called by control, launch, am and transports. Every socket of Tutti is owned: a forked child
 * closes its copies at once, so that the child can neither hide the parent's death from the peers
 * nor disturb the parent's streams.
 */
#ifndef TT_SOCK_H
#define TT_SOCK_H

#include <sys/socket.h>

#include "base/base.h"

struct tt_address {
	uint8_t family;    /* 4 or 6 */
	uint8_t prefix;    /* bits of the subnet; 0 unknown */
	uint8_t bytes[16]; /* network order, 4 or 16 of them */
};

#define TT_ADDRESSES 8      /* of one host, at most */
#define TT_ENDPOINT_TEXT 64 /* enough for tt_address_text */

/* The end of a wait: deadline_ns, or the moment when stop(ctx) returns true. stop may be NULL. */
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
/* Is other in the subnet of mine? */
bool tt_address_near(const struct tt_address *mine, const struct tt_address *other);
extern const struct tt_address tt_loopback4, tt_loopback6;

/* Does TUTTI_SOCKET_IFNAME (NCCL's syntax: [^][=]name,name) choose this interface? "" chooses all. */
bool tt_ifname_chooses(const char *filter, const char *name);

/* Addresses of this host that other hosts may reach: interfaces that are up and chosen, no
 * loopback, no link-local.
 * 0 | TT_ARG (the filter chooses no interface; the sentence lists them all) | TT_SYSTEM */
int tt_address_list(const char *filter, struct tt_address list[TT_ADDRESSES], int *ret_n);

/* Is the loopback interface up? In a new network namespace the interface is down. */
bool tt_loopback_is_up(void);

/* The interface of the kernel's route to a; "?": no route */
#define TT_IFNAME 16
void tt_address_route(const struct tt_address *a, char name[TT_IFNAME]);

/* May a socket of this host be bound to the address? false: no interface has it */
bool tt_address_is_here(const struct tt_address *a);

/* The addresses of a host name or numeric address. 0 | TT_ARG (unknown name) */
int tt_address_resolve(const char *host, struct tt_address list[TT_ADDRESSES], int *ret_n);

/* sock.c --------------------------------------------------------------------------------------- */

/* A range of ports: first .. first + count - 1; count 0: any port, or exactly `first` unless that is
 * 0. The ports avoid_first .. avoid_first + avoid_count - 1 belong to a process that may bind them
 * later: they are tried last. */
struct tt_ports {
	int first, count, avoid_first, avoid_count;
};
/* Parses TUTTI_PORT_RANGE; "" is any port. */
struct tt_ports tt_ports_read(const char *range);

/* A socket bound to port (0: a free one) of all addresses of this host, IPv6 and IPv4. The socket
 * does not listen: it reserves the port, which a socket of tt_sock_listen may share. Not owned:
 * forked children keep the socket. 0 | TT_SYSTEM */
int tt_sock_reserve(int port, int *ret_fd, int *ret_port);
/* The same for a port with connections in TIME_WAIT. The kernel does not distinguish such a port
 * from one that another process has reserved, so this function is the second choice. */
int tt_sock_reserve_used(int port, int *ret_fd, int *ret_port);
/* The same, listening, non-blocking, owned. Only one socket can listen on a port. */
int tt_sock_listen(int port, int *ret_fd, int *ret_port);
/* Calls make, one of the three functions above, for the first free port of a range. 0 | TT_SYSTEM;
 * all taken: the sentence names the range, errno EADDRINUSE */
int tt_sock_among(const struct tt_ports *ports, int (*make)(int port, int *ret_fd, int *ret_port),
		  int *ret_fd, int *ret_port);

/* Does a connected socket stay inside the host: does it lead to the address that it comes from? Both ends have
 * the same answer, unless the host translates addresses of its own connections. false also: it is not connected
 * any more */
bool tt_sock_is_inside_host(int fd);

/* unpace: sets congestion control without pacing on a new socket, before it connects or listens.
 * settle: restores the system's congestion control on a socket that tt_sock_listen's accepted,
 * unless the connection stays inside the host. tt_sock_happy_eyeballs does both itself. */
void tt_sock_settle(int fd);
void tt_sock_unpace(int fd);

/* Connect to the first of n targets that answers, after the Happy Eyeballs algorithm (RFC 8305): in
 * order, each with a head start over the next, without targets marked tried. The socket is
 * non-blocking, without Nagle, owned. Failed targets are marked tried, with the reason in why; the
 * winner is marked too. 0 | TT_REMOTE: no target is left | TT_TIMEOUT (also: stopped) | TT_SYSTEM
 * with the sentence: this host cannot connect at all */
struct tt_sock_target {
	struct tt_address address;
	int port;
	bool tried;
	char why[48];
};
int tt_sock_happy_eyeballs(struct tt_sock_target *list, int n, const struct tt_patience *patience,
			   int *ret_index, int *ret_fd);

/* Receive exactly bytes on a non-blocking socket. 0 | TT_REMOTE (closed, reset) | TT_TIMEOUT (also:
 * stopped) */
int tt_sock_recv(int fd, void *data, size_t bytes, const struct tt_patience *patience);

/* The kernel probes the peer's host while the connection is idle: without an answer for 11 s the
 * connection ends with ETIMEDOUT. The host of a stopped peer still answers. */
void tt_sock_probe(int fd);
/* Is this errno of a connection's end a failure of the network, not of the peer? */
bool tt_sock_is_network_error(int error);
/* Did the peer or the network end the connection, not a failure of this host? 0: the peer closed it */
bool tt_sock_is_remote_error(int error);
/* Are sent bytes unacknowledged after retransmissions, or is the interface down? true with the
 * reason in text. The host of a stopped peer still acknowledges. */
bool tt_sock_silent(int fd, char *text, size_t bytes);

/* tt_fail(TT_SYSTEM) with what and errno; names the limit when descriptors have run out */
int tt_sock_fail(const char *what);

void tt_sock_set_blocking(int fd, bool blocking);

/* Own fd (returned), of any origin; close an owned fd. A plain close of an owned fd is harmless. */
int tt_sock_own(int fd);
void tt_sock_close(int fd);

/* Keep descriptors 0 to 2 that are closed from becoming sockets, which output of the program would
 * reach: /dev/null takes their place, opened so that reads of 0 and writes to 1 and 2 still fail. Called
 * before the first descriptor of an id or a join. */
void tt_sock_guard_standard_streams(void);

/* Key material of a data socket: send of one side is recv of the other. Its holder overwrites it
 * after use. */
struct tt_data_keys {
	uint8_t send[32], recv[32];
};

/* sock_fd.c ------------------------------------------------------------------------------------ */

/* Sends fd over a unix socket, with `bytes` of data, non-blocking; to: of a datagram socket, else
 * NULL, 0. false: errno has the reason */
bool tt_sock_give_fd(int via, const struct sockaddr *to, socklen_t to_bytes, const void *data,
		     size_t bytes, int fd);
/* Receives data and a descriptor, non-blocking; returns as recv. *ret_fd is -1 without a descriptor;
 * several descriptors are all closed. */
ssize_t tt_sock_take_fd(int via, void *data, size_t bytes, int *ret_fd);

#endif
