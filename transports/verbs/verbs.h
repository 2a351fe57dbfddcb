/*
 * verbs.h - shared by the files of the verbs transport: an endpoint, its rails, its links
 *
 * verbs.c owns the endpoint, the links and the sleep. verbs_device.c selects HCAs and ports,
 * verbs_gid.c their GIDs and the port pairs of two ranks, verbs_locality.c each rank's first port.
 * verbs_probe.c tests which hosts the ports reach. verbs_qp.c makes and connects a queue pair.
 * verbs_ring.c moves messages with the work requests of verbs_post.c. verbs_zcopy.c moves
 * zero-copy messages; verbs_rcache.c is their registration cache. verbs_errors.c names the causes
 * of failures. All call libibverbs through the table of verbs_table.h.
 *
 * A link is one RC queue pair. One RDMA write with immediate data carries a message from a send
 * ring here into the peer's receive ring, which has the same layout: a header of 16 bytes, then the
 * payload, which begins on a cache line on both sides. The immediate says where the message lies
 * and how many messages of the other direction were released (credits); there is no other flow
 * control. Behind the receive ring lies the RTR table: there the peer writes where it wants large
 * messages (verbs_zcopy.c).
 *
 *   | send ring | receive ring | RTR table |     of one link; the peer writes the last two
 */
#ifndef TT_VERBS_H
#define TT_VERBS_H

#include <pthread.h>
#include <stdatomic.h>

#include "mem/registered.h"
#include "transports/seal.h"
#include "transports/transport.h"
#include "transports/verbs/verbs_table.h"

/* most ports of one endpoint; channel c takes rail (first + c) % nrails */
#define TT_VERBS_RAILS 4
#define TT_VERBS_ALL_RAIL_PAIRS ((1u << TT_VERBS_RAILS) - 1)
#define TT_VERBS_GIDS 6      /* GIDs that a port offers to the peers */
#define TT_VERBS_MESSAGES 64 /* most messages of a link in flight, each direction */
#define TT_VERBS_SENDS 128   /* depth of a send queue: messages and control messages */
/* work requests per signalled one, unless ring space runs short */
#define TT_VERBS_SIGNAL 32
/* depth of a receive queue: a peer that respects its credits always finds a receive */
#define TT_VERBS_RECVS (TT_VERBS_MESSAGES + 32)
#define TT_VERBS_REPOST 8
/* most unpolled completions of a link: one for each receive, and one for each zero-copy post, all
 * of which are signalled */
#define TT_VERBS_LINK_CQES (TT_VERBS_RECVS + TT_VERBS_MESSAGES + 16)
#define TT_VERBS_INLINE_ASK 256 /* requested inline data of a work request, bytes */
#define TT_VERBS_RING_MIN (16u << 10)
#define TT_VERBS_RING_PARTS 4 /* credits are due after this fraction of a ring */
/* smallest zero-copy message: a copy of fewer bytes costs less than an RTR */
#define TT_VERBS_ZCOPY_BYTES (16u << 10)
#define TT_VERBS_RTR_BYTES 4096u
#define TT_VERBS_RTR_PENDING 16 /* most queued RTRs of a link */

/* Immediate data of a write:
 *
 *   bit 31     TT_VERBS_CONTROL: a control message (credit update), without a message
 *   bits 30-22 count of messages released, modulo 512
 *   bit 21     TT_VERBS_ZCOPY: the message lies in the receiver's preposted buffer
 *   bits 20-0  cache line of the ring where the message begins; else the flags below
 */
#define TT_VERBS_CONTROL (1u << 31)
#define TT_VERBS_GOODBYE 1u /* flag of a control message: the sender sends nothing more */
#define TT_VERBS_COUNT_SHIFT 22
#define TT_VERBS_COUNT_MASK 0x1ffu /* more than twice TT_VERBS_MESSAGES */
#define TT_VERBS_ZCOPY (1u << 21)
/* flag of a zero-copy message: it was sent from the send ring, so the sender reserved ring space,
 * which its release frees */
#define TT_VERBS_FROM_RING 1u
#define TT_VERBS_LINE_MASK 0x1fffffu

/* One port of a rank, as its peers see the port. */
struct tt_verbs_port_record {
	uint8_t link_layer, mtu, ngids, port;
	uint8_t grh; /* InfiniBand port that requires a GRH (GIDs) */
	uint8_t zero;
	uint16_t lid, pkey;
	struct tt_verbs_gid_record {
		uint8_t gid[16], type, prefix, index;
	} gid[TT_VERBS_GIDS];
};

/* One rank's record, exchanged in open. */
struct tt_verbs_record {
	uint8_t usable, software, nrails;
	/* rail of channel 0 where this rank is the lower (verbs_locality.c) */
	uint8_t first;
	struct tt_verbs_port_record rail[TT_VERBS_RAILS];
};

/* Retransmission: time-out of 4.096 us << 16 = 0.27 s, seven retries; so an HCA gives up on a peer
 * after 2 s. */
#define TT_VERBS_TIMEOUT_NS 4096ull
static inline uint8_t tt_verbs_timeout(const struct tt_verbs_settings *set)
{
	return set && set->timeout >= 0 ? (uint8_t)set->timeout : 16;
}

static inline uint8_t tt_verbs_retries(const struct tt_verbs_settings *set)
{
	return set && set->retries >= 0 ? (uint8_t)set->retries : 7;
}

/* May two ranks with these records use verbs? */
static inline bool tt_verbs_allowed(const struct tt_world *w, const struct tt_verbs_record *a,
				    const struct tt_verbs_record *b)
{
	return w->insist || w->software || !(a->software || b->software);
}

/* One opened port of an HCA. */
struct tt_verbs_rail {
	struct tt_verbs_context *context;
	struct tt_verbs_pd *pd;
	struct tt_verbs_channel *channel;
	struct tt_verbs_cq **cqs; /* [ncqs], each for links_per_cq links */
	int ncqs, links_per_cq;
	atomic_int nlinks;
	uint64_t speed; /* comparable number: wider and faster is more */
	/* time when the port went down, 0: never; time when it came back, 0: still down */
	_Atomic uint64_t down_ns, up_ns;
	char name[64];
	bool software;
	uint16_t pkey_index;
	struct tt_verbs_port_record record;
};

/* The hello of each side of a link, on the socket from the control plane: encrypted, since its keys and
 * addresses say where remote writes go. Then each side sends one byte (go), encrypted too. */
struct tt_verbs_hello {
	uint32_t magic, qpn, psn, rkey, ring_bytes;
	uint16_t lid;
	uint8_t mtu, rail;
	uint64_t ring;
	char name[64];
	uint8_t tag[TT_TAG];
};
#define TT_VERBS_HELLO_SEALED offsetof(struct tt_verbs_hello, tag) /* bytes before the tag */
struct tt_verbs_go {
	uint8_t go, tag[TT_TAG];
};

/* RTR (ready to receive): the destination of message `number` of a link. */
struct tt_verbs_rtr {
	uint64_t addr;
	uint32_t number, stamp, bytes, rkey, check, zero;
};

/* verbs_rcache.c: the registration cache of callers' memory */
struct tt_verbs_region;
struct tt_verbs_rcache {
	struct tt_registered_watcher watch;
	struct tt_verbs_ep *ep; /* NULL: not open */
	/* guards the rest: a thread that frees memory drops its entries */
	pthread_mutex_t lock;
	struct tt_interval *ranges;
	struct tt_verbs_region *newest, *oldest;
	int count, most;
	size_t bytes, most_bytes;
};

struct tt_verbs_head {
	uint16_t magic, version;
	uint32_t bytes, stamp, number;
};

enum tt_verbs_state {
	TT_VERBS_UNCONNECTED,
	TT_VERBS_HELLO_SENT,
	TT_VERBS_CONNECTED,
	TT_VERBS_READY
};

struct tt_verbs_link {
	struct tt_link base;
	struct tt_verbs_rail *rail;
	struct tt_verbs_qp *qp;
	uint32_t index; /* in the endpoint's list, also part of wr_id */
	enum tt_verbs_state state;
	int fd;                 /* socket to the peer, open until ready */
	struct tt_seal out, in; /* of the socket */
	size_t got;             /* bytes of the peer's hello, then of its go, received so far */
	struct tt_verbs_hello hello;
	struct tt_verbs_go go;
	/* GIDs of this port pair; all zero without GRH */
	struct tt_verbs_gid_record mine, theirs;
	bool global; /* messages carry a GRH */
	uint32_t max_inline, psn;

	/* send ring, receive ring (ring_bytes each), RTR table */
	uint8_t *ring;
	/* RTR table: [TT_VERBS_MESSAGES] by message number; written by the peer's HCA */
	const struct tt_verbs_rtr *rtrs;
	size_t ring_bytes;
	struct tt_verbs_mr *tx_mr, *rx_mr;

	/* sending; positions are bytes since the link was made */
	uint8_t *room;
	size_t room_bytes;
	uint64_t room_start; /* position of the reserved record */
	/* positions: end of written records; released by the peer; no longer read by the HCA */
	uint64_t head, freed_tail, done_tail;
	uint64_t sent, freed, done;       /* the same three as message counts */
	uint64_t ends[TT_VERBS_MESSAGES]; /* end positions of messages sent */
	uint64_t works, works_done;       /* work requests posted, completed */
	uint32_t sent_at[TT_VERBS_SENDS]; /* by work request: value of sent at its post */
	uint32_t unsignalled;
	uint64_t unsignalled_from; /* head at the last signalled work request */

	struct tt_verbs_posted { /* zero-copy posts in flight, by post number */
		struct tt_verbs_region *region;
		uint64_t works;
	} posts[TT_VERBS_MESSAGES];

	/* receiving */
	/* low bits of the immediates, by message number */
	uint32_t lines[TT_VERBS_MESSAGES];
	struct tt_verbs_preposted { /* preposted receives, by message number */
		struct tt_verbs_region *region;
		uint8_t *dst;
		size_t bytes;
		uint32_t stamp;
	} preposts[TT_VERBS_MESSAGES];
	uint64_t landed, credited; /* messages arrived; releases reported to the peer */
	size_t uncredited_bytes;   /* ring bytes released, not reported */
	uint32_t to_post;          /* receives consumed, not reposted */
	struct tt_verbs_rtr pending[TT_VERBS_RTR_PENDING]; /* queued RTRs */
	uint32_t npending;
	/* credit update due: a quarter of the ring was released */
	bool credits_due;
	bool peer_closed; /* goodbye received, or the link was abandoned */
	bool failed;      /* a completion or a post failed */
};

struct tt_verbs_ep {
	struct tt_endpoint base;
	const struct tt_verbs_table *ib;
	struct tt_verbs_rail rail[TT_VERBS_RAILS];
	int nrails, bell;                /* bell: eventfd for wake */
	int ncredits_due, nrtr_links;    /* links with a credit update due; with queued RTRs */
	struct tt_verbs_record *records; /* [nranks] */
	int *host;                       /* [nranks] host number, from 0 on */
	/* by host: a bit for each rail pair of the leaders that passed the probe in both
	 * directions; own host: all bits, not probed; NULL: during the probe itself */
	uint8_t *reached;
	struct tt_verbs_link **links; /* [nranks * nchannels] */
	struct tt_verbs_link **list;  /* [nlist] the same links without NULLs */
	uint32_t nlist;
	struct tt_verbs_recv_wr recvs[TT_VERBS_RECVS];
	int failed; /* code of the first failure; text: its sentence */
	char text[700];
	_Atomic size_t memory;
	/* counters for the tests; registrations do not grow in the steady state */
	_Atomic uint64_t registrations;
	uint64_t signalled, posted, doorbells; /* doorbells: calls of post_send */
	uint64_t dmabufs;                      /* registrations of device memory */
	/* messages sent from, received in callers' memory */
	uint64_t zcopy_sent, zcopy_received;
	struct tt_verbs_rcache cache;
};

/* verbs_device.c ------------------------------------------------------------------------------- */

/* Open the ports that the settings allow and fill ep->rail, the best first. warns: log each HCA that fails.
 * Returns 0 | TT_SYSTEM, with a sentence that names the remedy. */
int tt_verbs_open_rails(struct tt_verbs_ep *ep, bool warns);
void tt_verbs_close_rails(struct tt_verbs_ep *ep);
uint64_t tt_verbs_speed(uint8_t width, uint8_t speed); /* a port's, from its two codes */

/* verbs_gid.c ---------------------------------------------------------------------------------- */

/* Fill the port's GIDs; fixed: the index of the only GID, < 0: any. Returns 0 | TT_SYSTEM */
int tt_verbs_list_gids(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, int fixed);
/* Choose the pair of GIDs for two ports: same type, same family, same subnet if possible; both all
 * zero where LIDs suffice. Returns how well they fit, 0: no pair fits. a is the lower rank's port
 * on both sides, so that both sides agree. */
int tt_verbs_choose_gids(const struct tt_verbs_port_record *a, const struct tt_verbs_port_record *b,
			 struct tt_verbs_gid_record *ret_a, struct tt_verbs_gid_record *ret_b);
/* Pair the rails of two ranks, the best fit first. Returns the number of pairs, the same on both
 * sides. */
struct tt_verbs_rail_pair {
	uint8_t low, high;
}; /* rail of the lower rank, of the higher rank */
int tt_verbs_rail_pairs(const struct tt_verbs_record *low, const struct tt_verbs_record *high,
			struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS]);
/* The rail pairs between this rank and peer that passed the probe. Returns their number. */
int tt_verbs_live_rail_pairs(const struct tt_verbs_ep *ep, int peer,
			     struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS]);
/* The index of the live rail pair that carries channel. */
int tt_verbs_rail_pair_of(const struct tt_verbs_ep *ep, int peer, int channel,
			  struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS]);
#define TT_VERBS_GID_TEXT 64
const char *tt_verbs_gid_text(const uint8_t gid[16], char text[TT_VERBS_GID_TEXT]);

/* verbs_probe.c ------------------------------------------------------------------------------- */

/* Check the records of all ranks for valid sizes. Returns 0 | TT_REMOTE */
int tt_verbs_check_records(const struct tt_verbs_ep *ep);
/* Fill ep->host and ep->reached. Collective, after the exchange of ep->records. Blocks. Returns 0 |
 * TT_SYSTEM: the user named verbs, and a host is not reached | < 0 */
int tt_verbs_probe(struct tt_verbs_ep *ep);
/* verbs.c: an endpoint with rails and these records of all ranks, without an exchange. Returns 0 |
 * TT_SYSTEM */
int tt_verbs_endpoint(const struct tt_world *world, const struct tt_verbs_record *records,
		      struct tt_verbs_ep **ret_ep);

/* verbs_locality.c ---------------------------------------------------------------------------- */

/* The opened rail that serves channel 0 of this rank. */
int tt_verbs_first_rail(const struct tt_verbs_ep *ep);
/* The same for the processors of mask and the number-th rank of a host; sys: /sys/class/infiniband,
 * or a folder like it. */
int tt_verbs_nearest(const char *sys, const struct tt_verbs_rail *rail, int n,
		     const uint64_t mask[TT_CPU_WORDS], int number);

/* verbs_qp.c -------------------------------------------------------------------------------- */

/* Make the rings of a link, their registration and a queue pair. Returns 0 | TT_SYSTEM */
int tt_verbs_queue_make(struct tt_verbs_link *l);
void tt_verbs_queue_free(struct tt_verbs_link *l);
/* Send the hello on l->fd, encrypted by keys. Returns 0 | < 0. */
int tt_verbs_send_hello(struct tt_verbs_link *l, const struct tt_data_keys *keys);
/* Receive the peer's hello and connect. Returns 1 the link is ready | 0 not yet | < 0. */
int tt_verbs_finish_connect(struct tt_verbs_link *l);
/* The remedy for a limit on locked memory, "" for other errors of a call. */
const char *tt_verbs_remedy(int error, char text[200]);
/* Register host memory. Returns 0 | TT_SYSTEM with the remedy. */
int tt_verbs_register(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, void *p, size_t bytes,
		      int access, struct tt_verbs_mr **ret_mr);
size_t tt_verbs_ring_bytes(const struct tt_world *world);

/* verbs_ring.c --------------------------------------------------------------------------------- */

void *tt_verbs_reserve(struct tt_link *link, size_t bytes);
int tt_verbs_commit(struct tt_link *link, size_t bytes, uint32_t stamp);
int tt_verbs_peek(struct tt_link *link, size_t bytes, uint32_t stamp, const void **ret_data);
void tt_verbs_release(struct tt_link *link);
/* Send a message from registered memory, into the preposted buffer or into the ring. Returns 1 |
 * 0 no space | < 0 */
int tt_verbs_send_from(struct tt_verbs_link *l, const void *buf, size_t bytes, uint32_t stamp,
		       uint32_t lkey);
/* Poll the completion queues. Returns > 0 some completions | 0 none | < 0 */
int tt_verbs_poll(struct tt_verbs_ep *ep);
/* Send the goodbye: this rank sends nothing more. */
void tt_verbs_goodbye(struct tt_verbs_link *l);
bool tt_verbs_all_done(const struct tt_verbs_link *l);

/* verbs_post.c --------------------------------------------------------------------------------- */

/* Post a write of pieces to address `to` with immediate data, which carries the credits along
 * (n == 0: only the immediate). signal: request a completion. */
void tt_verbs_send_imm(struct tt_verbs_link *l, struct tt_verbs_sge *pieces, int n, uint64_t to,
		       uint32_t rkey, uint32_t imm, bool signal);
void tt_verbs_send_control(struct tt_verbs_link *l, uint32_t imm, bool signal);
/* Note whether a credit update is due. */
void tt_verbs_set_credits_due(struct tt_verbs_link *l, bool credits_due);
/* Send a credit update, if the send queue has room. */
void tt_verbs_send_credits(struct tt_verbs_link *l);
/* Send all due credit updates, because no message carries them. */
void tt_verbs_send_due_credits(struct tt_verbs_ep *ep);
/* Queue an RTR: the next message of the link carries it, or tt_verbs_send_rtrs sends it. */
void tt_verbs_queue_rtr(struct tt_verbs_link *l, const struct tt_verbs_rtr *rtr);
void tt_verbs_send_rtrs(struct tt_verbs_ep *ep);
/* Post n receives. Returns 0 | TT_REMOTE */
int tt_verbs_post_receives(struct tt_verbs_link *l, uint32_t n);

/* verbs_zcopy.c ------------------------------------------------------------------------------- */

bool tt_verbs_can_send(struct tt_link *link, const void *buf, size_t bytes);
int tt_verbs_post(struct tt_link *link, const void *buf, size_t bytes, uint32_t stamp);
bool tt_verbs_prepost(struct tt_link *link, uint32_t ahead, void *dst, size_t bytes,
		      uint32_t stamp);
void tt_verbs_abandon(struct tt_endpoint *ep);
/* Has the peer sent an RTR for the next message? */
bool tt_verbs_rtr_for(const struct tt_verbs_link *l, size_t bytes, uint32_t stamp,
		      struct tt_verbs_rtr *ret_rtr);
/* Count the posts that the completed work requests complete. */
void tt_verbs_posts_done(struct tt_verbs_link *l);
/* Drop the preposted receive of the message that is being released. */
void tt_verbs_prepost_done(struct tt_verbs_link *l);
/* Put back all cached registrations of a link whose queue pair is gone. */
void tt_verbs_release_regions(struct tt_verbs_link *l);

/* verbs_rcache.c ------------------------------------------------------------------------------- */

void tt_verbs_rcache_open(struct tt_verbs_ep *ep);
void tt_verbs_rcache_close(struct tt_verbs_ep *ep);
/* A registered region that holds [p, p + bytes), or NULL. Its keys are valid until
 * tt_verbs_region_put, or until the memory is freed. arrives: a peer may write there; memory that is only sent
 * from is registered without that right. Thread: any. */
struct tt_verbs_region *tt_verbs_region_get(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail,
					    const void *p, size_t bytes, bool arrives,
					    uint32_t *ret_lkey, uint32_t *ret_rkey);
void tt_verbs_region_put(struct tt_verbs_ep *ep, struct tt_verbs_region *region);
/* takes_device of struct tt_zcopy_ops */
bool tt_verbs_takes_device(struct tt_endpoint *base, const void *p, size_t bytes, uint64_t id);

/* verbs_errors.c ------------------------------------------------------------------------------ */

/* Note the first failure; returns its code with its sentence as the error text, now and later. */
int tt_verbs_fail(struct tt_verbs_ep *ep, int code, const char *fmt, ...) TT_PRINTF(3, 4);
int tt_verbs_failed(struct tt_verbs_ep *ep);
/* Handle a completion with an error status. */
void tt_verbs_bad_completion(struct tt_verbs_link *l, const struct tt_verbs_wc *wc);
/* Handle the error number of post_send or post_recv. Returns < 0. */
int tt_verbs_bad_post(struct tt_verbs_link *l, const char *what, int error);
/* Read the asynchronous events of the HCAs. Returns 0 | < 0: the endpoint has failed. */
int tt_verbs_events(struct tt_verbs_ep *ep);
/* struct tt_fault_ops */
int tt_verbs_local_fault(struct tt_endpoint *base, bool broken);
bool tt_verbs_lost(struct tt_endpoint *base, int peer, char *text, size_t bytes);

#endif
