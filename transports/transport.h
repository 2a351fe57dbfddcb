/*
 * transport.h - the contract of a transport: how bytes move between two ranks
 *
 * A transport is one const struct tt_transport, one row in transports.c, and passes one conformance
 * suite (tests/conformance/test_transports.c). Called by comm (open, connect, close), run
 * (messages) and local (slots, peer memory). A transport knows ranks and bytes. It does not know
 * plans, types or calls, except for the 32-bit stamp of a call, which it carries so that mismatches
 * show.
 *
 *   struct tt_transport          core: links and messages; every transport has it
 *   struct tt_slot_ops           optional: slots in shared memory, written by one rank, read by all
 *   struct tt_peer_memory_ops    optional: single copy out of a peer's memory
 *   struct tt_zcopy_ops          optional: messages without the copies at the sender and receiver
 *   struct tt_fault_ops          optional: diagnosis after a failure
 *
 * Locks: the caller holds none. One thread at a time (the thread that drives the communicator)
 * calls the operations of one endpoint, except operations marked "Thread: any". Nothing blocks
 * except open, doze, close, and attach of peer memory.
 */
#ifndef TT_TRANSPORT_H
#define TT_TRANSPORT_H

#include "base/base.h"
#include "base/counted_bits.h"

struct tt_data_keys; /* base/sock.h */

/* TUTTI_IB_... settings; -1: choose */
struct tt_verbs_settings {
	const char *devices; /* as TUTTI_SOCKET_IFNAME; "" all */
	int gid_index, timeout, retries, service_level, traffic_class;
	int registrations;       /* limit of the registration cache, entries; 0: no cache */
	size_t registered_bytes; /* limit of the registration cache, bytes; 0: none */
};

#define TT_ANNOUNCED 36
#define TT_NOTES 1024 /* bytes of notes */

/* Bytes that a rank sends to all others before it opens a transport */
struct tt_announcement {
	uint8_t bytes[TT_ANNOUNCED]; /* 0: nothing */
	int fd;                      /* for open; -1: none */
};

/* Facts and services that a transport gets from comm, or from a test. Valid until close. */
struct tt_world {
	int rank, nranks;
	const int *host_of; /* as of tt_host_number */
	const struct tt_counted_bits *host_firsts;
	size_t message_bytes; /* largest message; equal on all ranks */
	int nchannels;        /* channels are 0..nchannels-1 */
	bool crowded;         /* more ranks than cores on this host: ranks sleep often */
	enum { TT_CMA_AUTO, TT_CMA_ON, TT_CMA_OFF } cma; /* TUTTI_CMA */
	/* TUTTI_ENCRYPT; auto: between hosts. Equal on all ranks */
	enum { TT_ENCRYPT_AUTO, TT_ENCRYPT_ON, TT_ENCRYPT_OFF } encrypt;
	bool insist;                        /* the user named this transport */
	bool software;                      /* software NICs may be used, too */
	const struct tt_verbs_settings *ib; /* NULL: the defaults */
	uint64_t deadline_ns;               /* for open */
	/* A connected, authenticated, blocking stream socket to the peer for (peer, channel). The
	 * lower rank calls dial once, which begins to connect: 0 | < 0. Both ranks then poll take:
	 * 1 and the socket, which the caller owns, with its keys, which the caller overwrites | 0
	 * not yet | < 0, TT_TIMEOUT: not connected within the time-out. Neither blocks. */
	int (*dial)(void *ctx, int peer, int channel);
	int (*take)(void *ctx, int peer, int channel, int *ret_fd, struct tt_data_keys *ret_keys);
	/* For transports with announce, only during open. announced: copies the bytes of a rank's announcement.
	 * announcement: this rank's own; open takes its descriptor. */
	void (*announced)(void *ctx, int rank, uint8_t ret_bytes[TT_ANNOUNCED]);
	struct tt_announcement *announcement;
	/* Only during open, may be NULL: has another rank failed, so that open must not wait any more? 0 | < 0
	 * with the error text */
	int (*broken)(void *ctx);
	/* Allgather among all ranks, only during open: all[r * bytes] = mine of rank r.
	 * Blocks. Returns 0 | < 0. */
	int (*allgather)(void *ctx, const void *mine, size_t bytes, void *all);
	/* Copy from the caller's buffer, which may be device memory, to host memory; NULL: all
	 * buffers are host memory. Returns 0 | TT_CUDA */
	int (*fetch)(void *ctx, void *to, const void *from, size_t bytes);
	void *ctx;
};

static inline int tt_world_host(const struct tt_world *w, int rank)
{
	return tt_host_number(w->host_of, w->host_firsts, rank);
}

/* Are bytes over sockets to peer encrypted, by what the ranks say of their hosts? Both sides give the same
 * answer. With `auto` those of a socket that leaves the host are, anyway (tt_sock_is_inside_host). */
static inline bool tt_world_encrypts(const struct tt_world *w, int peer)
{
	return w->encrypt == TT_ENCRYPT_ON || (w->encrypt == TT_ENCRYPT_AUTO &&
					       tt_world_host(w, peer) != tt_world_host(w, w->rank));
}

/* One rank's side of a transport in one communicator. Transports embed it first. */
struct tt_endpoint {
	const struct tt_transport *t;
	/* t's tables of these names, cached here because small calls use them */
	const struct tt_slot_ops *slot_ops;
	const struct tt_peer_memory_ops *peer_memory_ops;
	const struct tt_world *world;
	/* bytes that peers take from this rank's slots so far, once for each peer; bytes of peers'
	 * memory read so far, by pointer or by read (local counts both) */
	uint64_t slot_bytes, read_bytes;
};

/* The end of the range of peer: the ranks below this rank, this rank, or the ranks above it */
static inline int tt_world_side(const struct tt_world *w, int peer)
{
	return peer < w->rank ? w->rank : peer == w->rank ? peer + 1 : w->nranks;
}

/* One (peer, channel): ordered messages in each direction. Transports embed it first. */
struct tt_link {
	const struct tt_transport *t;
	struct tt_endpoint *ep;
	int peer, channel;
	/* number of port pairs over which the channels of this rank pair are spread round robin, on
	 * both sides; 0: one path */
	int ports;
	/* posts accepted; posts whose buffer may be overwritten; both monotone */
	uint64_t posted, completed;
	uint64_t sent_bytes, messages; /* payload bytes and messages committed or posted so far */
	/* bytes received from the network, also of incomplete messages */
	uint64_t arrived;
	/* messages released or received so far */
	uint64_t received;
	/* Bytes of the Send and of the Recv whose tiles are the next messages. Set by the caller. sending 0: the peer must
	 * not read the buffer */
	size_t sending, receiving;
	const char *sending_from; /* first byte of the one that is sent */
	/* the caller has written the reserved room by non-temporal stores; set before each commit */
	bool nontemporal;
};

#define TT_NO_SLOT (-2) /* no memory to read */

/* Location of a buffer, for the ranks of its host. describe makes it; a slot carries it to the
 * peers. */
struct tt_peer_memory {
	uint64_t at; /* address in the owner's process */
	/* offset in a window; the window's size and inode */
	uint64_t offset, window_bytes, inode;
	int32_t fd;
	/* window's slot in the owner's table of described windows; -1: ordinary memory;
	 * TT_NO_SLOT */
	int16_t slot;
	/* first description of this window: peers attach it first */
	bool fresh;
};

enum {
	TT_T_RESERVE = 1, /* sends by reserve + commit */
	TT_T_POST = 2     /* sends by post; a transport has exactly one flag, but see zcopy_ops */
};

#define TT_SLOT_LINE 56 /* bytes of a small post in each cache line */
#define TT_SLOT_SMALL (6 * TT_SLOT_LINE)
#define TT_SLOT_DEPTH 128 /* slots of a rank: how far it may be ahead of the slowest reader */
#define TT_SLOT_BYTES (256u << 10)
/* memory of a rank for posts of more than TT_SLOT_SMALL bytes: two halves of this size */
#define TT_SLOT_HALF TT_SLOT_BYTES
#define TT_SLOT_PAGE 4096u /* such a post begins at a multiple, where prefetchers stop */
/* most ranks of a host for posts of more than TT_SLOT_SMALL bytes */
#define TT_SLOT_RANKS 64
#define TT_PSCW_RANKS 8 /* most ranks of a host whose reads of peers complete by pairs */

/* ---- core ------------------------------------------------------------------------------------ */

struct tt_transport {
	const char *name, *help;
	unsigned flags;
	/* fruitless polls after which a rank with a core of its own yields the core */
	uint32_t spins;

	/* optional tables; NULL: the transport has none of the table's operations */
	const struct tt_slot_ops *slot_ops;
	const struct tt_peer_memory_ops *peer_memory_ops;
	const struct tt_zcopy_ops *zcopy_ops;
	const struct tt_fault_ops *fault_ops;

	/* Does this host have the transport? 1 | 0 with the reason in why. Thread: any. */
	int (*probe)(char *why, size_t bytes);

	/* Optional, with settle (shm): this rank's announcement. A rank that is alone on its host, or does
	 * not open this transport, announces nothing (0, fd -1) without a call. Thread: any. Blocks: no.
	 * Returns 0 | TT_SYSTEM */
	int (*announce)(struct tt_announcement *ret);

	/* Make this rank's endpoint. Collective: every rank of the world calls open, in the same
	 * order of transports. Blocks: until deadline_ns.
	 * Returns 0 | TT_SYSTEM, TT_TIMEOUT, TT_REMOTE. */
	int (*open)(const struct tt_world *world, struct tt_endpoint **ret_ep);

	/* Can this endpoint reach the peer? Both sides give the same answer; before settle, they give it if both
	 * have joined. Of a communicator of many ranks the questions are few: alike is the first rank behind peer
	 * for which the answer, or that of emulated, may be another one; NULL: peer + 1. */
	bool (*reaches)(struct tt_endpoint *ep, int peer);
	int (*alike)(const struct tt_endpoint *ep, int peer);

	/* Optional, both with announce. joined: did open succeed on this rank? settle: call after all ranks have
	 * returned from open, with their answers, before all other operations but reaches and close; ranks that have
	 * not joined are not reached from here on. Returns true if there is such a rank. */
	bool (*joined)(const struct tt_endpoint *ep);
	bool (*settle)(struct tt_endpoint *ep, bool (*has_joined)(const void *ctx, int rank),
		       const void *ctx);

	/* Optional: does a software-emulated NIC carry the pair, so that other transports may be
	 * faster? Both sides give the same answer. */
	bool (*emulated)(const struct tt_endpoint *ep, int peer);

	/* The link to (peer, channel), made on first use and owned by ep, which begins to connect.
	 * The peer calls connect for its side independently, at any time. Blocks: no.
	 * Returns 0 | TT_SYSTEM, TT_REMOTE. */
	int (*connect)(struct tt_endpoint *ep, int peer, int channel, struct tt_link **ret_link);

	/* Optional (tcp): are bytes to and from the peer encrypted? As its connected links are; before there is one,
	 * by what the ranks say of their hosts. */
	bool (*encrypts)(const struct tt_endpoint *ep, int peer);

	/* Continue to connect. 1: the link is connected (the operations below may be called) | 0:
	 * not yet, call again; a doze does not end for it | < 0. The caller polls every link that
	 * it has begun to connect, since the peer's side may need a part of this side, and works
	 * on other links meanwhile. Blocks: no. */
	int (*ready)(struct tt_link *l);

	/* RESERVE: a 64-byte aligned buffer for one message of bytes, or NULL: the peer has not
	 * released enough. The same buffer until commit. bytes <= message_bytes. */
	void *(*reserve)(struct tt_link *l, size_t bytes);
	/* Send the reserved buffer; bytes and order as reserved. Wakes a dozing peer. 0 | < 0: this
	 * host's NIC refused the message */
	int (*commit)(struct tt_link *l, size_t bytes, uint32_t stamp);

	/* POST: queue buf. 1 queued: the caller keeps buf unchanged until completed reaches the
	 * present value of posted | 0 queue full, nothing queued | < 0 TT_REMOTE (peer gone). May
	 * send at once. */
	int (*post)(struct tt_link *l, const void *buf, size_t bytes, uint32_t stamp);

	/* The next message, of exactly this length. 1: *ret_data points at the message, readable
	 * until release | 0: incomplete | TT_USAGE: the message has another stamp or length (the
	 * peer is in another call) | TT_REMOTE */
	int (*peek)(struct tt_link *l, size_t bytes, uint32_t stamp, const void **ret_data);
	void (*release)(struct tt_link *l);

	/* Optional, both or none (shm): a message in one call. put: reserve, copy, commit; 1 sent | 0 no
	 * room | < 0. get: peek, copy to dst, release; results as peek. keep: this rank may write its next
	 * messages where this one lies, since no plan counts on the buffers of this link. */
	int (*put)(struct tt_link *l, const void *data, size_t bytes, uint32_t stamp);
	int (*get)(struct tt_link *l, void *dst, size_t bytes, uint32_t stamp, bool keep);

	/* Optional: receive the next message into dst, without peek and release. The caller repeats
	 * the call with the same arguments until the message is complete; dst may be half written
	 * meanwhile. Results as peek. */
	int (*recv)(struct tt_link *l, void *dst, size_t bytes, uint32_t stamp);

	/* Optional: continue unfinished posts. Called while posts are unfinished, and after reserve
	 * returned NULL, which may mean that the transport failed. > 0 some progress | 0 none |
	 * < 0 */
	int (*progress)(struct tt_endpoint *ep);

	/* Sleeping. arm announces the sleep and returns a ticket. The caller then polls its links
	 * once more (peek or recv, refused reserves, progress) and dozes: until a peer commits or
	 * frees a buffer that was refused, a socket is readable (or writable while posts are
	 * unfinished), wake, or timeout_us. Spurious returns are fine. disarm ends the sleep, also
	 * when the caller skipped doze. */
	uint32_t (*arm)(struct tt_endpoint *ep);
	void (*doze)(struct tt_endpoint *ep, uint32_t ticket, uint32_t timeout_us);
	void (*disarm)(struct tt_endpoint *ep);
	/* End another thread's doze on this endpoint now. Thread: any. */
	void (*wake)(struct tt_endpoint *ep);

	/* Optional (shm): TT_NOTES bytes in memory that this rank shares with ranks of its host, 0 at first.
	 * Called after settle; NULL: none. The caller checks the values, which other processes write. */
	_Atomic uint8_t *(*notes)(struct tt_endpoint *ep);

	/* Memory of this endpoint in bytes (segments, buffers). Thread: any. */
	size_t (*memory)(struct tt_endpoint *ep);

	/* Free the endpoint and its links. Messages committed or completed before still reach the
	 * peer. Blocks: as long as the peers' NICs take to acknowledge, at most a second. */
	void (*close)(struct tt_endpoint *ep);
};

/* ---- slots ----------------------------------------------------------------------------------- */

/* Shared-memory slots: each rank writes its own slot, every reachable rank of the host reads it. */
struct tt_slot_ops {
	/* Post bytes (1..TT_SLOT_BYTES; at most TT_SLOT_SMALL where more than TT_SLOT_RANKS ranks
	 * take part) to this rank's slot. number counts the rounds of the endpoint from 1. All ranks
	 * know which ranks post in a round, and their lengths. A rank posts only when all other ranks
	 * have read all they need of the round TT_SLOT_DEPTH before, and, before it writes to room, of
	 * the posts that lay there: it knows that by their posts of later rounds or by `released`. data:
	 * any memory for up to TT_SLOT_SMALL bytes; else the room of any rank, written already. Wakes
	 * dozing peers. */
	void (*post)(struct tt_endpoint *ep, const void *data, size_t bytes, uint64_t number,
		     uint32_t stamp);
	/* This rank's memory for posts of more than TT_SLOT_SMALL bytes: 2 * TT_SLOT_HALF bytes. Rooms of ranks lie
	 * a multiple of TT_SLOT_HALF apart. */
	void *(*room)(struct tt_endpoint *ep);
	/* Poll the slot of peer. 1: posted; *ret_data are the bytes: up to TT_SLOT_SMALL as lines,
	 * TT_SLOT_LINE bytes in each 64; readable until this rank posts a later number or
	 * releases this one | 0: not posted yet | TT_USAGE: the post has another stamp or length. */
	int (*poll)(struct tt_endpoint *ep, int peer, size_t bytes, uint64_t number, uint32_t stamp,
		    const void **ret_data);
	/* This rank has read all it needs of the rounds up to number, the round of stamp. Wakes dozing
	 * peers. */
	void (*release)(struct tt_endpoint *ep, uint64_t number, uint16_t stamp);
	/* The last number that peer has released, 0: none; *ret_stamp: its stamp */
	uint64_t (*released)(struct tt_endpoint *ep, int peer, uint16_t *ret_stamp);
};

/* ---- peer memory ----------------------------------------------------------------------------- */

/* Single copy: a rank reads a peer's buffer while the peer waits (local/single_copy.c has the
 * protocol). A transport with this table has slot_ops as well. */
struct tt_peer_memory_ops {
	/* Describe this rank's buffer for the peers. */
	void (*describe)(struct tt_endpoint *ep, const void *p, size_t bytes,
			 struct tt_peer_memory *ret);
	/* Can this rank read the described memory? For a window: map it, once for each fresh
	 * window. For ordinary memory: try to read, once. Blocks: some 100 us. */
	bool (*attach)(struct tt_endpoint *ep, int peer, const struct tt_peer_memory *remote);
	/* A pointer to the described memory, readable as long as the peer keeps the buffer, or
	 * NULL: the memory can only be read by read. */
	const void *(*pointer)(struct tt_endpoint *ep, int peer,
			       const struct tt_peer_memory *remote, size_t bytes);
	/* Copy bytes at address `from` of peer. Works for memory of any kind where ordinary memory
	 * can be attached. Returns 0 | TT_REMOTE */
	int (*read)(struct tt_endpoint *ep, int peer, void *to, uint64_t from, size_t bytes);

	/* Synchronization of owners and readers, as MPI's post, start, complete, wait (PSCW),
	 * without a slot post of every rank. post: expose this buffer in call `number`; the call
	 * says which ranks read it; the next post comes only after all readers have completed. */
	void (*post)(struct tt_endpoint *ep, const struct tt_peer_memory *mine, uint64_t number,
		     uint32_t stamp);
	/* Has peer exposed its buffer? 1: *ret describes it | 0 not yet | TT_USAGE: for another
	 * call */
	int (*test_start)(struct tt_endpoint *ep, int peer, uint64_t number, uint32_t stamp,
			  struct tt_peer_memory *ret);
	/* This rank has finished its reads of peer's buffer in call `number` and in earlier calls. At most
	 * TT_PSCW_RANKS ranks. */
	void (*complete)(struct tt_endpoint *ep, int peer, uint64_t number);
	/* Has peer completed its reads of this rank's buffer in call `number`? */
	bool (*test_complete)(struct tt_endpoint *ep, int peer, uint64_t number);
};

/* ---- zero copy ------------------------------------------------------------------------------- */

/* Messages that the NIC or the peer reads from the sender's buffer, or the NIC writes to the receiver's buffer.
 * For transports with TT_T_RESERVE; they have post as well. */
struct tt_zcopy_ops {
	/* Can these bytes be sent from the caller's buffer, by the NIC or as the peer reads them? Then the
	 * caller may use post for this message instead of reserve and commit; messages keep the order of
	 * the calls. post copies a message that it cannot send in place. */
	bool (*can_send)(struct tt_link *l, const void *buf, size_t bytes);

	/* Optional. Prepost a receive: a hint that message number `ahead` from the next one on has this
	 * length and belongs into dst, which the caller neither reads nor writes until the message
	 * has arrived. The transport may send an early RTR (ready to receive) to the peer, with its
	 * next message or its next poll. Then peek may find the message in dst, and returns dst
	 * itself. The caller may repeat the hint. False: useless for this dst. */
	bool (*prepost)(struct tt_link *l, uint32_t ahead, void *dst, size_t bytes, uint32_t stamp);

	/* Optional, NULL: none. Do can_send and prepost accept this device memory, of the allocation with that id? The
	 * caller asks before each call, because the address may belong to another allocation by
	 * now. False: the memory must be copied; the reason is logged once. Thread: any. */
	bool (*takes_device)(struct tt_endpoint *ep, const void *p, size_t bytes, uint64_t id);

	/* An operation has failed; the caller makes no further call for its messages but close. On
	 * return the NIC neither reads nor writes memory of the caller any more, and no peer takes what it
	 * reads there for a message. Blocks: no. */
	void (*abandon)(struct tt_endpoint *ep);
};

/* ---- faults ---------------------------------------------------------------------------------- */

struct tt_fault_ops {
	/* Does this host's side of the network have a fault that explains failures of other ranks:
	 * a port that is down, a NIC that is gone, a network without a route? Only NICs and ports
	 * that carry links of this endpoint count. broken: an operation has failed, and this
	 * question precedes another rank's report; which fault may explain the failure? Otherwise
	 * the rank waits for messages: is it certain that none can come any more? 0 no fault | < 0
	 * with the sentence, now and later */
	int (*local)(struct tt_endpoint *ep, bool broken);

	/* Optional: have messages to peer been lost unnoticed, because this rank is in no call that
	 * sends to peer? True with the sentence. Asked when the peer waits long for this rank.
	 * Thread: any. */
	bool (*lost)(struct tt_endpoint *ep, int peer, char *text, size_t bytes);
};

extern const struct tt_transport tt_self, tt_shm, tt_verbs, tt_tcp;
/* in order of preference, NULL-terminated */
extern const struct tt_transport *const tt_transports[];

#endif
