/*
 * simulated_network.h - shared by the files of the simulated network: descriptors, segments
 *
 *   simulated_network.c   the table of descriptors, times of arrival, cuts, kills
 *   simulated_socket.c    calls that make, connect, name and end sockets
 *   simulated_bytes.c     calls that send and receive; eventfd
 *   simulated_poll.c      poll and epoll
 *
 * A stream is two ends; what one sends is a list of segments at the other, each with a time of
 * arrival, in order. Between two hosts that are cut, segments wait for the repair, and an end whose
 * segments stay unacknowledged for its user timeout fails, as TCP does.
 *
 *   process A            network                    process B
 *   connect  ----------- SYN, some us -----------> accept queue of the listener, or a refusal
 *   send     ----------- segments, in order -----> recv
 *   killed   ----------- FIN, or RST ------------> end, or ECONNRESET
 */
#ifndef TEST_SIMULATED_NETWORK_H
#define TEST_SIMULATED_NETWORK_H

#include <sys/epoll.h>
#include <sys/types.h>

#include "tests/simulation/simulation.h"

#define NET_WINDOW (64u << 10) /* bytes sent and not received */

enum net_kind { NET_FREE, NET_NUL, NET_EVENT, NET_EPOLL, NET_SOCKET };

struct net_segment {
	struct net_segment *next;
	uint64_t arrival_ns; /* SIM_NEVER: held by a cut */
	size_t bytes, taken;
	bool fin, reset;
	uint8_t data[];
};

struct net_watch {
	int fd;
	const struct net_descriptor *of;
	struct epoll_event event;
};

struct net_descriptor {
	enum net_kind kind;
	struct sim_process *process;
	int fd; /* its number in the process */
	bool nonblocking;

	uint64_t count; /* NET_EVENT */

	struct net_watch *watches; /* NET_EPOLL */
	int nwatches, watch_room;

	/* NET_SOCKET */
	bool bound, reuse, listening, connecting, connected, shut;
	int port, peer_port, host, peer_host; /* 0 and -1: none */
	int peer;                             /* index of the other end, -1: closed, none */
	int error;                            /* SO_ERROR */
	/* listening: indices of connected ends, to be accepted */
	int *queue, nqueue, queue_room, backlog;
	int next_listener; /* of the same bucket, -1: none */
	int epoll;         /* index of that which watches it, -1: none, for: */
	struct epoll_event watched;
	/* of many ranks: in the list of those of the epoll that may be ready, or its ends */
	bool candidate;
	struct net_descriptor *before, *next;
	struct net_segment *in, **in_last;
	size_t in_bytes;       /* sent by the peer, not acknowledged to it as received */
	size_t unacknowledged; /* of in_bytes: received, but a cut holds the acknowledgment */
	bool full;             /* the peer has closed its end while the window was full */
	uint64_t last_arrival; /* of a segment towards this end */
	bool ended;            /* FIN or RST was received */
	uint64_t user_timeout_ns;
	int syns; /* sent */
	unsigned generation;
};

#define NET_BUCKETS 4096

struct sim_network {
	struct net_descriptor *table; /* [room] of all processes; an index is a place in it */
	struct net_descriptor none;   /* what a number leads to that is not in use */
	uint64_t *used;               /* bits of the table's entries */
	int room;
	int lowest;                 /* a multiple of 64; no free entry below */
	int last;                   /* no used entry from here on */
	int listeners[NET_BUCKETS]; /* by host, -1: none */
	bool cuts[SIM_PROCESSES][SIM_PROCESSES];
	int next_port;
};

/* A timer of a socket: void, when the descriptor was closed and used again */
struct net_due {
	int index;
	unsigned generation;
};

struct net_descriptor *net_at(int index);
int net_index(const struct net_descriptor *d);
/* Descriptor fd of the running process */
struct net_descriptor *net_of(int fd);
bool net_is_simulated(int fd);
/* Set errno; returns -1. */
int net_fail(int error);
/* A descriptor of the running process; as open */
int net_make(enum net_kind kind);
void net_close(struct net_descriptor *d);

/* Does nothing travel from host a to host b? */
bool net_is_cut(int a, int b);
/* Time from host a to host b */
uint64_t net_delay(int a, int b);
struct net_segment *net_segment(size_t bytes);
/* A segment at end d from its peer, in order after the earlier ones */
void net_arrive(struct net_descriptor *d, struct net_segment *s);
/* A FIN or RST arrives at the end d, which cannot send any more after an RST. */
void net_end_at(struct net_descriptor *d, bool reset);
/* Are there segments that a cut holds? */
bool net_has_held(const struct net_descriptor *d);
/* A timer's argument: the socket waited for an acknowledgment for its user timeout. */
void net_give_up(void *due);

/* The argument of a socket's timer, and the socket of an argument, NULL: closed */
struct net_due *net_due_of(const struct net_descriptor *d);
struct net_descriptor *net_claim(struct net_due *due);

/* The process has received bytes: they leave the window of the sender, unless a cut holds the
 * acknowledgment. */
void net_acknowledge(struct net_descriptor *d, size_t bytes);
/* Of many ranks: the descriptor may be ready from now on, so its epoll looks at it; it is so no more. */
void net_note_ready(struct net_descriptor *d);
void net_forget_ready(struct net_descriptor *d);
/* Can the socket send; is there something to accept, receive or learn? */
bool net_has_room(const struct net_descriptor *d);
static inline bool net_has_input(const struct net_descriptor *d)
{
	return d->nqueue || d->ended || d->error || (d->in && d->in->arrival_ns <= sim->now_ns);
}

#endif
