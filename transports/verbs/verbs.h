/*
 * verbs.h - what the files of the verbs transport share: an endpoint, its rails, its links
 *
 * verbs.c owns endpoint, links and sleep; verbs_device.c chooses cards and ports, verbs_gid.c their
 * addresses and pairs, verbs_locality.c the one to begin with; verbs_probe.c tries whom they reach;
 * verbs_qp.c makes a queue pair and connects it; verbs_ring.c moves messages by the work
 * requests of verbs_post.c; verbs_zcopy.c those that go past the rings, verbs_rcache.c keeps what
 * they need registered; verbs_errors.c says what went wrong. All call libibverbs by the table
 * (verbs_table.h).
 *
 * A link is one RC queue pair. A message is written into the peer's ring by one RDMA write with
 * immediate data, from a ring of equal layout here: 16 bytes of head, then the payload, which
 * begins on a cache line on both sides. The immediate says where it lies and how many messages of
 * the other direction were released since: that is all the flow control there is. Behind the
 * receiving ring lies a table in which the peer says where it wants large messages
 * (verbs_zcopy.c).
 */
#ifndef TT_VERBS_H
#define TT_VERBS_H

#include <pthread.h>
#include <stdatomic.h>

#include "mem/registered.h"
#include "transports/transport.h"
#include "transports/verbs/verbs_table.h"

/* ports that one endpoint uses at most; channel c takes rail (first + c) % nrails */
#define TT_VERBS_RAILS 4
#define TT_VERBS_ALL_RAIL_PAIRS ((1u << TT_VERBS_RAILS) - 1)
#define TT_VERBS_GIDS 6           /* of a port, offered to the peers */
#define TT_VERBS_MESSAGES 64      /* of a link and direction under way at most */
#define TT_VERBS_SENDS 128        /* depth of a send queue: messages and words */
/* work requests for one that tells of its completion, unless memory runs short */
#define TT_VERBS_SIGNAL 32
/* depth of a receive queue: a peer that keeps to its credits never finds none */
#define TT_VERBS_RECVS (TT_VERBS_MESSAGES + 32)
#define TT_VERBS_REPOST 8
/* completions of a link that nobody has looked at, at most: of all it can receive, and of posts,
 * each of which is signalled */
#define TT_VERBS_LINK_CQES (TT_VERBS_RECVS + TT_VERBS_MESSAGES + 16)
#define TT_VERBS_INLINE_ASK 256   /* bytes we would like the card to take without reading memory */
#define TT_VERBS_RING_MIN (16u << 10)
#define TT_VERBS_RING_PARTS 4     /* a part of a ring that is freed is told at once */
/* messages from this size on may go past the rings: a copy of fewer costs less than a rtr */
#define TT_VERBS_ZCOPY_BYTES (16u << 10)
#define TT_VERBS_RTR_BYTES 4096u
#define TT_VERBS_RTR_PENDING 16          /* rtrs of a link that wait for company */

/* Immediate data. A word is nothing but the count; else it has the line of the ring where the
 * message begins. */
#define TT_VERBS_CONTROL (1u << 31)
#define TT_VERBS_GOODBYE 1u      /* of words: nothing more comes */
#define TT_VERBS_COUNT_SHIFT 22   /* messages released */
#define TT_VERBS_COUNT_MASK 0x1ffu        /* more than twice TT_VERBS_MESSAGES */
#define TT_VERBS_ZCOPY (1u << 21)  /* past the ring: it lies where it was wanted; no line */
/* of those: it was sent from the ring, so its room there is freed as if it lay in the peer's */
#define TT_VERBS_FROM_RING 1u
#define TT_VERBS_LINE_MASK 0x1fffffu

/* What one rank tells of one port. */
struct tt_verbs_port_record {
	uint8_t link_layer, mtu, ngids, port;
	uint8_t grh;                   /* InfiniBand: its messages need GIDs, too */
	uint8_t zero;
	uint16_t lid, pkey;
	struct tt_verbs_gid_record { uint8_t gid[16], type, prefix, index; } gid[TT_VERBS_GIDS];
};

/* What one rank tells of itself in open. */
struct tt_verbs_record {
	uint8_t usable, software, nrails;
	uint8_t first;                 /* the rail it begins with (verbs_locality.c) */
	struct tt_verbs_port_record rail[TT_VERBS_RAILS];
};

/* How a card repeats what is not answered: after 4.096 us << 16 = 0.27 s, and seven times, so a
 * peer is given up after 2 s. */
#define TT_VERBS_TIMEOUT_NS 4096ull
static inline uint8_t tt_verbs_timeout(const struct tt_verbs_settings *set)
{
	return set && set->timeout >= 0 ? (uint8_t)set->timeout : 16;
}

static inline uint8_t tt_verbs_retries(const struct tt_verbs_settings *set)
{
	return set && set->retries >= 0 ? (uint8_t)set->retries : 7;
}

/* May two ranks with these cards use them? */
static inline bool tt_verbs_allowed(const struct tt_world *w, const struct tt_verbs_record *a,
				const struct tt_verbs_record *b)
{
	return w->insist || w->software || !(a->software || b->software);
}

/* One port of one card, opened. */
struct tt_verbs_rail {
	struct tt_verbs_context *context;
	struct tt_verbs_pd *pd;
	struct tt_verbs_channel *channel;
	struct tt_verbs_cq **cqs;         /* [ncqs], each for links_per_cq links */
	int ncqs, links_per_cq;
	atomic_int nlinks;
	uint64_t speed;                /* comparable: wider and faster is more */
	/* since when the port is down, 0: never was; and when it came back, 0: it is down still */
	_Atomic uint64_t down_ns, up_ns;
	char name[64];
	bool software;
	uint16_t pkey_index;
	struct tt_verbs_port_record record;
};

/* What both sides of a link tell each other on the socket that the control plane lent. */
struct tt_verbs_hello {
	uint32_t magic, qpn, psn, rkey, ring_bytes;
	uint16_t lid;
	uint8_t mtu, rail;
	uint64_t ring;
	char name[64];
};

/* Where a rank wants message `number` of a link to be written. */
struct tt_verbs_rtr {
	uint64_t addr;
	uint32_t number, stamp, bytes, rkey, check, zero;
};

/* verbs_rcache.c: registered memory of the caller */
struct tt_verbs_region;
struct tt_verbs_rcache {
	struct tt_registered_watcher watch;
	struct tt_verbs_ep *ep;           /* NULL: not open */
	pthread_mutex_t lock;          /* guards the rest: whoever frees memory drops its entries */
	struct tt_interval *ranges;
	struct tt_verbs_region *newest, *oldest;
	int count, most;
	size_t bytes, most_bytes;
};

struct tt_verbs_head { uint16_t magic, version; uint32_t bytes, stamp, number; };

enum tt_verbs_state { TT_VERBS_UNCONNECTED, TT_VERBS_HELLO_SENT, TT_VERBS_CONNECTED, TT_VERBS_READY };

struct tt_verbs_link {
	struct tt_link base;
	struct tt_verbs_rail *rail;
	struct tt_verbs_qp *qp;
	uint32_t index;                /* in the endpoint's list, and in wr_id */
	enum tt_verbs_state state;
	int fd;                        /* until ready */
	size_t hello_bytes;                /* bytes of the peer's hello */
	struct tt_verbs_hello hello;
	struct tt_verbs_gid_record mine, theirs;        /* GIDs of this pair; all zero without GRH */
	bool global;                   /* messages carry the GIDs */
	uint32_t max_inline, psn;

	/* two of ring_bytes: sending, then receiving; then the peer's rtrs */
	uint8_t *ring;
	/* [TT_VERBS_MESSAGES], by number of the message; written by the peer's card */
	const struct tt_verbs_rtr *rtrs;
	size_t ring_bytes;
	struct tt_verbs_mr *tx_mr, *rx_mr;

	/* sending; positions in bytes, from the beginning of time */
	uint8_t *room;
	size_t room_bytes;
	uint64_t room_start;           /* position of the record that was reserved */
	/* written; released by the peer; no longer read by the card */
	uint64_t head, freed_tail, done_tail;
	uint64_t sent, freed, done;    /* the same in messages */
	uint64_t ends[TT_VERBS_MESSAGES]; /* of messages sent */
	uint64_t works, works_done;    /* work requests */
	uint32_t sent_at[TT_VERBS_SENDS]; /* by work request: messages sent by then */
	uint32_t unsignalled;
	uint64_t unsignalled_from;     /* head at the last that was signalled */

	struct tt_verbs_posted {          /* not completed; by number of the post */
		struct tt_verbs_region *region;
		uint64_t works;
	} posts[TT_VERBS_MESSAGES];

	/* receiving */
	uint32_t lines[TT_VERBS_MESSAGES];        /* where messages lie, by number */
	struct tt_verbs_preposted {
		struct tt_verbs_region *region;
		uint8_t *dst;
		size_t bytes;
		uint32_t stamp;
	} preposts[TT_VERBS_MESSAGES];
	uint64_t landed, credited;         /* messages that came; releases the peer knows of */
	size_t uncredited_bytes;
	uint32_t to_post;
	struct tt_verbs_rtr pending[TT_VERBS_RTR_PENDING];
	uint32_t npending;
	bool credits_due;                    /* the peer is to hear: a quarter of the ring was released */
	bool peer_closed;                     /* the peer has closed */
	bool failed;                     /* a completion, or a post, said that something failed */
};

struct tt_verbs_ep {
	struct tt_endpoint base;
	const struct tt_verbs_table *ib;
	struct tt_verbs_rail rail[TT_VERBS_RAILS];
	int nrails, bell, ncredits_due, nrtr_links;     /* links that owe a word, that hold rtrs */
	struct tt_verbs_record *records;      /* [nranks] */
	int *host;                     /* [nranks] hosts by number, from 0 on */
	/* by host: a bit for each path of the leaders by which messages went both ways; of one's
	 * own all, untried; NULL: during the trial itself */
	uint8_t *reached;
	struct tt_verbs_link **links;     /* [nranks * nchannels] */
	struct tt_verbs_link **list;      /* [nlist] the same without holes */
	uint32_t nlist;
	struct tt_verbs_recv_wr recvs[TT_VERBS_RECVS];
	int failed;                    /* the first failure, and its sentence */
	char text[700];
	_Atomic size_t memory;
	/* counted for the tests: steady state means that the first does not grow */
	_Atomic uint64_t registrations;
	uint64_t signalled, posted, doorbells;     /* rings: calls of post_send */
	uint64_t dmabufs;              /* of the registrations, of device memory */
	uint64_t zcopy_sent, zcopy_received;         /* messages read, or written, in the caller's memory */
	struct tt_verbs_rcache cache;
};

/* verbs_device.c ------------------------------------------------------------------------------- */

/* Open the ports that the settings allow and fill ep->rail, the best first. 0 | TT_SYSTEM, with a
 * sentence that names the remedy. */
int tt_verbs_open_rails(struct tt_verbs_ep *ep);
void tt_verbs_close_rails(struct tt_verbs_ep *ep);
uint64_t tt_verbs_speed(uint8_t width, uint8_t speed);    /* of a port, by its two codes */

/* verbs_gid.c ---------------------------------------------------------------------------------- */

/* The port's offers; fixed: the index of the only one, < 0: any. 0 | TT_SYSTEM */
int tt_verbs_list_gids(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, int fixed);
/* The pair of GIDs for two ports: same type, same family, same subnet if there is one, both all
 * zero where LIDs do. How well they fit, 0: none does. a is the lower rank's port on both sides, so
 * that they agree. */
int tt_verbs_choose_gids(const struct tt_verbs_port_record *a, const struct tt_verbs_port_record *b,
		      struct tt_verbs_gid_record *ret_a, struct tt_verbs_gid_record *ret_b);
/* Rails of two ranks that go together, those that fit best first. Returns their number, the same on
 * both sides. */
struct tt_verbs_rail_pair { uint8_t low, high; };      /* of the lower rank, of the higher */
int tt_verbs_rail_pairs(const struct tt_verbs_record *low, const struct tt_verbs_record *high,
		struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS]);
/* The paths between this rank and that one by which messages go. Returns their number. */
int tt_verbs_live_rail_pairs(const struct tt_verbs_ep *ep, int peer, struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS]);
/* Which of them channel goes over: its number */
int tt_verbs_rail_pair_of(const struct tt_verbs_ep *ep, int peer, int channel,
		  struct tt_verbs_rail_pair pairs[TT_VERBS_RAILS]);
#define TT_VERBS_GID_TEXT 64
const char *tt_verbs_gid_text(const uint8_t gid[16], char text[TT_VERBS_GID_TEXT]);

/* verbs_probe.c ---------------------------------------------------------------------------------- */

/* Are the cards that all ranks told of such as can be? 0 | TT_REMOTE */
int tt_verbs_check_records(const struct tt_verbs_ep *ep);
/* Fill ep->host and ep->reached. Collective; ep->cards are known. 0 | TT_SYSTEM: verbs was asked
 * for, and a host is not reached | < 0 */
int tt_verbs_probe(struct tt_verbs_ep *ep);
/* verbs.c: an endpoint with rails and these cards of all ranks, without telling anybody.
 * 0 | TT_SYSTEM */
int tt_verbs_endpoint(const struct tt_world *world, const struct tt_verbs_record *records,
		   struct tt_verbs_ep **ret_ep);

/* verbs_locality.c --------------------------------------------------------------------------------- */

/* The rail that this rank is to begin with, of those it has opened. */
int tt_verbs_first_rail(const struct tt_verbs_ep *ep);
/* The same for processors, and as the number-th of the ranks of its host; sys:
 * /sys/class/infiniband, or a folder like it. */
int tt_verbs_nearest(const char *sys, const struct tt_verbs_rail *rail, int n,
		  const uint64_t mask[TT_CPU_WORDS], int number);

/* verbs_qp.c -------------------------------------------------------------------------------- */

/* Memory, its registration and a queue pair for a link. 0 | TT_SYSTEM */
int tt_verbs_queue_make(struct tt_verbs_link *l);
void tt_verbs_queue_free(struct tt_verbs_link *l);
/* Tell the peer about it: 0 | < 0. Hear about the peer's: 1 the link is ready | 0 not yet | < 0. */
int tt_verbs_send_hello(struct tt_verbs_link *l);
int tt_verbs_finish_connect(struct tt_verbs_link *l);
/* Registered memory: 0 | TT_SYSTEM with the remedy. */
int tt_verbs_register(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, void *p, size_t bytes, int access,
		   struct tt_verbs_mr **ret_mr);
size_t tt_verbs_ring_bytes(const struct tt_world *world);
/* Receives for n messages or words. 0 | TT_REMOTE */
int tt_verbs_post_receives(struct tt_verbs_link *l, uint32_t n);

/* verbs_ring.c --------------------------------------------------------------------------------- */

void *tt_verbs_reserve(struct tt_link *link, size_t bytes);
void tt_verbs_commit(struct tt_link *link, size_t bytes, uint32_t stamp);
int tt_verbs_peek(struct tt_link *link, size_t bytes, uint32_t stamp, const void **ret_data);
void tt_verbs_release(struct tt_link *link);
/* A message from registered memory, to where it is wanted or into the ring. 1 | 0 no room */
int tt_verbs_send_from(struct tt_verbs_link *l, const void *buf, size_t bytes, uint32_t stamp,
		    uint32_t lkey);
/* Look at the completion queues. > 0 something came | 0 | < 0 */
int tt_verbs_poll(struct tt_verbs_ep *ep);
/* Announce that nothing more comes from here. */
void tt_verbs_goodbye(struct tt_verbs_link *l);
bool tt_verbs_all_done(const struct tt_verbs_link *l);

/* verbs_post.c --------------------------------------------------------------------------------- */

/* A write with immediate data, which takes the count of releases along: pieces to that address
 * (none: nothing but the immediate). tell: ask to be told when it is complete. */
void tt_verbs_send_imm(struct tt_verbs_link *l, struct tt_verbs_sge *pieces, int n, uint64_t to,
		    uint32_t rkey, uint32_t imm, bool tell);
void tt_verbs_send_control(struct tt_verbs_link *l, uint32_t imm, bool tell);
/* Is a word due? */
void tt_verbs_set_credits_due(struct tt_verbs_link *l, bool credits_due);
/* Send it, if the queue has room. */
void tt_verbs_send_credits(struct tt_verbs_link *l);
/* All words that are due, since nothing takes the counts along. */
void tt_verbs_send_due_credits(struct tt_verbs_ep *ep);
/* The rtr leaves with the next message, or with these: */
void tt_verbs_queue_rtr(struct tt_verbs_link *l, const struct tt_verbs_rtr *rtr);
void tt_verbs_send_rtrs(struct tt_verbs_ep *ep);

/* verbs_zcopy.c ------------------------------------------------------------------------------- */

bool tt_verbs_can_send(struct tt_link *link, const void *buf, size_t bytes);
int tt_verbs_post(struct tt_link *link, const void *buf, size_t bytes, uint32_t stamp);
bool tt_verbs_prepost(struct tt_link *link, uint32_t ahead, void *dst, size_t bytes, uint32_t stamp);
void tt_verbs_abandon(struct tt_endpoint *ep);
/* Does the peer want the next message at a place of its own? */
bool tt_verbs_rtr_for(const struct tt_verbs_link *l, size_t bytes, uint32_t stamp,
		    struct tt_verbs_rtr *ret_rtr);
/* More work is done: count the posts that are complete by it. */
void tt_verbs_posts_done(struct tt_verbs_link *l);
/* The message that is being released: what was wanted for it is over. */
void tt_verbs_prepost_done(struct tt_verbs_link *l);
/* The queue pair is gone: nothing of the caller's is used any more. */
void tt_verbs_release_regions(struct tt_verbs_link *l);

/* verbs_rcache.c ------------------------------------------------------------------------------- */

void tt_verbs_rcache_open(struct tt_verbs_ep *ep);
void tt_verbs_rcache_close(struct tt_verbs_ep *ep);
/* Registered memory that holds [p, p + bytes), or NULL. Its keys are good until it is given back,
 * or the memory goes. */
struct tt_verbs_region *tt_verbs_region_get(struct tt_verbs_ep *ep, struct tt_verbs_rail *rail, const void *p,
				       size_t bytes, uint32_t *ret_lkey, uint32_t *ret_rkey);
void tt_verbs_region_put(struct tt_verbs_ep *ep, struct tt_verbs_region *region);
/* struct tt_transport's device */
bool tt_verbs_takes_device(struct tt_endpoint *base, const void *p, size_t bytes, uint64_t id);

/* verbs_errors.c ------------------------------------------------------------------------------ */

/* Note the first failure; return its code with its sentence in place, now and later. */
int tt_verbs_fail(struct tt_verbs_ep *ep, int code, const char *fmt, ...) TT_PRINTF(3, 4);
int tt_verbs_failed(struct tt_verbs_ep *ep);
/* A completion that is not a success. */
void tt_verbs_bad_completion(struct tt_verbs_link *l, const struct tt_verbs_wc *wc);
/* post_send, post_recv gave this number. */
int tt_verbs_bad_post(struct tt_verbs_link *l, const char *what, int error);
/* Read what the cards have to say. 0 | < 0: a card is lost. */
int tt_verbs_events(struct tt_verbs_ep *ep);
/* struct tt_transport */
int tt_verbs_local_fault(struct tt_endpoint *base, bool broken);
bool tt_verbs_lost(struct tt_endpoint *base, int peer, char *text, size_t bytes);

#endif
