/*
 * transport.h - the contract of a transport: how bytes move between two ranks
 *
 * One const struct tt_transport a file, one row in transports.c, one conformance suite
 * (tests/conformance/test_transports.c) that every row runs. Called by run (data) and comm (open, connect,
 * close). A transport knows ranks and bytes; it does not know plans, types or calls, but for the
 * 32-bit stamp of a call, which it carries so that mismatches show.
 *
 * Locks: none is held. All functions of one endpoint are called by one
 * thread at a time (whoever drives the communicator), except where
 * "Thread: any" stands. Nothing blocks except open, doze and close.
 */
#ifndef TT_TRANSPORT_H
#define TT_TRANSPORT_H

#include "base/base.h"

/* TUTTI_IB_...; -1: choose */
struct tt_verbs_settings {
	const char *devices;             /* as TUTTI_SOCKET_IFNAME; "" all */
	int gid_index, timeout, retries, service_level, traffic_class;
	int registrations;               /* of callers' memory that are kept; 0: none is made */
	size_t registered_bytes;         /* of those together; 0: any number */
};

/* What comm can_zcopy to a transport; the tests lend their own. Valid until close. */
struct tt_world {
	int rank, nranks;
	const int *host_of;              /* [nranks] equal numbers: ranks that share a host */
	size_t message_bytes;            /* no message is larger; equal on all ranks */
	int nchannels;                   /* channels are 0..nchannels-1 */
	bool crowded;                    /* more ranks than cores: they will sleep often */
	enum { TT_CMA_AUTO, TT_CMA_ON, TT_CMA_OFF } cma;     /* TUTTI_CMA */
	bool insist;                     /* the transport was asked for by name */
	bool software;                   /* what is emulated by software may be of use, too */
	const struct tt_verbs_settings *ib; /* NULL: the defaults */
	uint64_t deadline_ns;            /* for open */
	/* A connected, authenticated, blocking stream socket to the peer for (peer, channel); the
	 * lower rank dials, the higher takes what was dialled. dial blocks until the deadline at
	 * most. take: 1 and a socket | 0 not yet | < 0. The caller owns the socket. */
	int (*dial)(void *ctx, int peer, int channel, int *ret_fd);
	int (*take)(void *ctx, int peer, int channel, int *ret_fd);
	/* Collective among all ranks, only during open: all[r * bytes] = mine of rank r.
	 * Blocks. 0 | < 0. */
	int (*allgather)(void *ctx, const void *mine, size_t bytes, void *all);
	/* Copy bytes of the caller's that may lie in device memory; NULL: all memory is the host's.
	 * 0 | TT_CUDA */
	int (*fetch)(void *ctx, void *to, const void *from, size_t bytes);
	void *ctx;
};

/* One rank's side of a transport in one communicator. Transports embed it first. */
struct tt_endpoint {
	const struct tt_transport *t;
	const struct tt_world *world;
	/* so far; read: also what was used where it lies (counted by run) */
	uint64_t slot_bytes, read_bytes;
};

/* One (peer, channel): an ordered stream of messages each way. Transports embed it first. */
struct tt_link {
	const struct tt_transport *t;
	struct tt_endpoint *ep;
	int peer, channel;
	/* over which the channels of this pair go in turn, on both sides; 0: one way only */
	int ports;
	/* posts accepted, posts whose bytes may be overwritten; monotone */
	uint64_t posted, completed;
	uint64_t sent_bytes, messages;   /* payload committed or posted so far */
	/* bytes taken from the network, also of messages that are not complete */
	uint64_t arrived;
	/* messages released or received so far: "when was it last last_received" */
	uint64_t received;
};

#define TT_NO_SLOT (-2)         /* there is nothing to read */

/* Where a piece of a rank's memory is, for the ranks of its host:
 * made by describe, carried to them in a cast. */
struct tt_peer_memory {
	uint64_t at;                     /* address in its process */
	uint64_t offset, window_bytes, inode;    /* in a window, and of it */
	int32_t fd;
	/* of a window, among those its rank has shown; -1: ordinary memory; TT_NO_SLOT */
	int16_t place;
	bool fresh;                      /* shown for the first time: peers must reach it first */
};

enum {
	TT_T_RESERVE = 1,    /* sends by reserve + commit */
	TT_T_POST = 2        /* sends by post; exactly one of the two, but see can_zcopy */
};

#define TT_SLOT_LINE 56        /* bytes of a small cast in each cache line */
#define TT_SLOT_SMALL (6 * TT_SLOT_LINE)
#define TT_SLOT_BYTES (64u << 10)
#define TT_SLOT_RANKS 8        /* that can cast more than TT_SLOT_SMALL */

struct tt_transport {
	const char *name, *help;
	unsigned flags;
	/* looks in vain, after which a rank with a core of its own lets others have it */
	uint32_t spins;

	/* Is it on this host? 1 | 0 with the reason in why. Thread: any. */
	int (*probe)(char *why, size_t bytes);

	/* Make this rank's endpoint. Collective: every rank of the world calls it, in the same
	 * order of transports. Blocks: until deadline_ns.
	 * Returns 0 | TT_SYSTEM, TT_TIMEOUT, TT_REMOTE. */
	int (*open)(const struct tt_world *world, struct tt_endpoint **ret_ep);

	/* Can this endpoint reach that rank? Both sides give the same answer. */
	bool (*reaches)(struct tt_endpoint *ep, int peer);

	/* Optional: is that done by a card that software emulates, so that other transports may be
	 * quicker? Both sides give the same answer. */
	bool (*emulated)(const struct tt_endpoint *ep, int peer);

	/* The link to (peer, channel), made on first use and owned by ep. The peer does the same in
	 * its own time. Returns 0 | TT_SYSTEM, TT_REMOTE, TT_TIMEOUT. */
	int (*connect)(struct tt_endpoint *ep, int peer, int channel, struct tt_link **ret_link);

	/* 1: data may flow (the functions below may be called) | 0: not yet, call again | < 0 */
	int (*ready)(struct tt_link *l);

	/* RESERVE: room for one message of bytes, 64-byte aligned, or NULL: the peer has not
	 * drained enough. The same room until commit. bytes <= message_bytes. */
	void *(*reserve)(struct tt_link *l, size_t bytes);
	/* Publish what was written there; bytes and order as reserved. Wakes a dozing peer. */
	void (*commit)(struct tt_link *l, size_t bytes, uint32_t stamp);

	/* POST: queue buf. 1 taken: the caller keeps buf unchanged until completed reaches the
	 * value posted has now | 0 queue full, nothing taken | < 0 TT_REMOTE (peer gone). May send
	 * at once. */
	int (*post)(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);

	/* RESERVE, optional: can these bytes be sent from where they lie? Then post may be used for
	 * this message instead of reserve and commit; its order among them is that of the calls.
	 * post copies what it cannot lend. */
	bool (*can_zcopy)(struct tt_link *l, const void *buf, size_t bytes);

	/* RESERVE, optional: a hint that message number `ahead` from the next on has so many bytes
	 * and is to be copied to dst, which nobody reads or writes until it has come: then peek may
	 * find it there, and give dst itself. May be repeated. It may leave with the next message,
	 * or the next look for one.
	 * False: it is of no use for this dst. */
	bool (*expect)(struct tt_link *l, uint32_t ahead, void *dst, size_t bytes, uint32_t stamp);
	/* RESERVE with both of these, optional: will they take this device memory, of the
	 * allocation with that id? Asked before each call, since other memory may have come to lie
	 * there. False: it must be copied; why is told once. Thread: any. */
	bool (*device)(struct tt_endpoint *ep, const void *p, size_t bytes, uint64_t id);
	/* With either of these: an operation has failed and nothing more will be called for its
	 * messages but close. On return no memory of the caller is read or written any more.
	 * Blocks: no. */
	void (*abandon)(struct tt_endpoint *ep);

	/* The next message, which has exactly this many bytes. 1: *ret_data points at it, readable
	 * until release | 0: not all there | TT_USAGE: what came has another stamp or length (the
	 * peer is in another call) | TT_REMOTE */
	int (*peek)(struct tt_link *l, size_t bytes, uint32_t stamp, const void **ret_data);
	void (*release)(struct tt_link *l);

	/* Optional: the next message gdr into dst. Called again with the same arguments until
	 * it is all there; dst may be half written meanwhile. Results as peek; no release. */
	int (*recv)(struct tt_link *l, void *dst, size_t bytes, uint32_t stamp);

	/* Optional: the same bytes (1..TT_SLOT_BYTES; TT_SLOT_SMALL where more than TT_SLOT_RANKS
	 * take part) to every rank that this endpoint reaches, at once. number counts the slot_posts of
	 * the endpoint from 1; every rank slot_posts every number, the same length, and only when it has
	 * seen the number before of all the others. Wakes dozing peers. seen: 1 it is there:
	 * *ret_data are its bytes; up to TT_SLOT_SMALL they are lines, TT_SLOT_LINE bytes in each
	 * 64; readable until this rank slot_posts the next | 0 not yet | TT_USAGE: what came has another
	 * stamp or length. */
	void (*cast)(struct tt_endpoint *ep, const void *data, size_t bytes, uint64_t number,
		     uint32_t stamp);
	int (*seen)(struct tt_endpoint *ep, int peer, size_t bytes, uint64_t number, uint32_t stamp,
		    const void **ret_data);

	/* Optional, with cast: read what a peer has in its memory, while it waits (local/single_copy.c
	 * says when). describe: this rank's memory for the others.
	 * reach: can this rank read it, and does that pay? Once for each fresh window, once for
	 * ordinary memory. Blocks: some 100 us.
	 * at: a pointer to it, readable as long as the peer keeps it, or NULL: only by read, which
	 * copies memory of any kind where ordinary memory can be. read: 0 | TT_REMOTE */
	void (*describe)(struct tt_endpoint *ep, const void *p, size_t bytes,
			 struct tt_peer_memory *ret);
	bool (*reach)(struct tt_endpoint *ep, int peer, const struct tt_peer_memory *remote);
	const void *(*at)(struct tt_endpoint *ep, int peer, const struct tt_peer_memory *remote,
			  size_t bytes);
	int (*read)(struct tt_endpoint *ep, int peer, void *to, uint64_t from, size_t bytes);

	/* Optional, with describe: the same without a cast of everybody. offer: this memory is to
	 * be read in call `number`, by whom the call says; the next offer comes only when all of
	 * them have left. offered: 1 | 0 not yet | TT_USAGE: for another call. leave: this rank
	 * reads nothing any more of call `number` or one before. left: has peer? */
	void (*offer)(struct tt_endpoint *ep, const struct tt_peer_memory *mine, uint64_t number,
		      uint32_t stamp);
	int (*offered)(struct tt_endpoint *ep, int peer, uint64_t number, uint32_t stamp,
		       struct tt_peer_memory *ret);
	void (*leave)(struct tt_endpoint *ep, uint64_t number);
	bool (*left)(struct tt_endpoint *ep, int peer, uint64_t number);

	/* Optional: move posts along. Called while posts are unfinished, and when reserve gave no
	 * room, which may be because the transport has failed. > 0 something moved | 0 | < 0 */
	int (*progress)(struct tt_endpoint *ep);

	/* Optional: what this host's side of the network has to say for itself, which explains what
	 * others only suffer from: a port that is down, a card that is gone, a network without a
	 * route; of that alone over which links of this endpoint run. broken: something has failed,
	 * and this is asked before another rank's word is taken for the cause: what may explain it?
	 * Else messages are waited for: can none come any more? 0 nothing | < 0 with the sentence,
	 * now and later */
	int (*fault)(struct tt_endpoint *ep, bool broken);

	/* Optional: have messages to peer been lost without any call having noticed, because this
	 * rank is in none that sends there? True with the sentence. Thread: any. Asked when the
	 * peer waits long for this rank. */
	bool (*lost)(struct tt_endpoint *ep, int peer, char *text, size_t bytes);

	/* Sleeping. arm announces it and gives a ticket; the caller looks at its
	 * links once more (peek or recv, refused reserves, progress), then dozes:
	 * until a peer commits or makes room that was refused, a socket is readable
	 * (or writable while posts are unfinished), wake, or timeout_us. Spurious
	 * returns are fine. disarm ends it, also when doze was skipped. */
	uint32_t (*arm)(struct tt_endpoint *ep);
	void (*doze)(struct tt_endpoint *ep, uint32_t ticket, uint32_t timeout_us);
	void (*disarm)(struct tt_endpoint *ep);
	/* End another thread's doze on this endpoint now. Thread: any. */
	void (*wake)(struct tt_endpoint *ep);

	/* Bytes this endpoint holds (segments, stages). Thread: any. */
	size_t (*memory)(struct tt_endpoint *ep);

	/* Free the endpoint and its links. Messages committed or completed before still reach the
	 * peer. Blocks: no. */
	void (*close)(struct tt_endpoint *ep);
};

extern const struct tt_transport tt_self, tt_shm, tt_verbs, tt_tcp;
/* in order of preference, NULL-terminated */
extern const struct tt_transport *const tt_transports[];

#endif
