/*
 * frame.h - serialization of messages between ranks: little-endian fields, written to a growing
 * buffer and read with every bound checked
 *
 * Called by every file that exchanges messages with another rank. Errors are sticky: write or read
 * a whole message, then check `failed` once.
 */
#ifndef TT_FRAME_H
#define TT_FRAME_H

#include "base/rank_set.h"
#include "base/sock.h"

struct tt_writer {
	uint8_t *data; /* free(data), unless fixed */
	size_t have, room;
	bool fixed;  /* data is the caller's, and does not grow */
	bool failed; /* out of memory, or of room */
};
/* A writer into an array of the caller */
#define TT_WRITER_INTO(array)                                         \
	(struct tt_writer)                                            \
	{                                                             \
		.data = (array), .room = sizeof(array), .fixed = true \
	}
void tt_put_bytes(struct tt_writer *w, const void *data, size_t bytes);
void tt_put(struct tt_writer *w, uint64_t value, int bytes); /* 1, 2, 4 or 8 bytes */
/* at most 65535 bytes of text */
void tt_put_text(struct tt_writer *w, const char *text);
/* Replace control characters by blanks. */
void tt_text_plain(char *text);

struct tt_reader {
	const uint8_t *at;
	size_t left;
	bool failed; /* the message is too short, or a field is out of its range */
};
const void *tt_get_bytes(struct tt_reader *r, size_t bytes);         /* NULL when failed */
void tt_get_copy(struct tt_reader *r, void *to, size_t bytes);       /* zeros when failed */
uint64_t tt_get(struct tt_reader *r, int bytes);                     /* 0 when failed */
uint64_t tt_get_upto(struct tt_reader *r, int bytes, uint64_t most); /* larger: failed */
/* text ends in NUL; too long or unprintable: failed */
void tt_get_text(struct tt_reader *r, char *text, size_t room);
/* Is the whole message read, without a failure? */
bool tt_get_end(const struct tt_reader *r);

/* ---- frames of a connection: length (of the payload), kind, context, payload
 * --------------------- */

#define TT_FRAME_HEAD 13
#define TT_FRAME_MOST (16u << 20)
#define TT_FRAME_MESSAGE (64u << 10)  /* of TT_F_MESSAGE, so that other frames get in between */
#define TT_FRAME_STATUSES (16u << 10) /* of TT_F_STATUS */
#define TT_FRAME_REGISTER 4096        /* of TT_F_REGISTER */

enum tt_frame {
	TT_F_REGISTER = 1, /* to rank 0: this rank's settings and business card */
	TT_F_DECLINE,      /* to rank 0, instead: the reason why this rank cannot join */
	TT_F_PARENT,   /* from rank 0: the parent in the tree, this rank's certificate, in a large
			      job the rank before */
	TT_F_ATTACHED, /* up: ranks connected in the tree */
	TT_F_RELEASE,  /* from rank 0: the registration is over, close */
	TT_F_MISSING,  /* down: the missing ranks */
	TT_F_TABLE,    /* down: all business cards, and rank 0's signature */
	TT_F_GATHER_UP,
	TT_F_GATHER_DOWN,
	TT_F_ABORT,
	TT_F_STATUS,
	TT_F_GOODBYE,      /* floods */
	TT_F_SPLIT_FAILED, /* flood: the reason of a failed split */
	TT_F_DEAD,         /* flood: a rank died */
	TT_F_SHRUNK,       /* flood: the members of a shrink */
	TT_F_END,          /* the endpoint closes: the end of the connection is no death */
	TT_F_MESSAGE,      /* the next bytes of the stream of active messages */
	TT_F_CREDIT, /* bytes that the stream of the receiver of this frame may have, in all */
	TT_F_SHRINK, /* a message of shrink, ahead of the stream */
	TT_F_LEFT, /* the answer to MESSAGE, CREDIT and SHRINK of a context that the rank has left */
	TT_F_CONFIRM, /* from the rank that dialed, first: it has its welcome, and has not given up */
	TT_F_HOSTS, /* down, in a large job: the hosts of all ranks, the business cards of the holders */
	TT_F_KINDS
};

/* Is a lost frame of this kind made up for by the next one? */
static inline bool tt_frame_is_repeated(enum tt_frame kind)
{
	return kind == TT_F_STATUS || kind == TT_F_MISSING;
}

/* Is a frame of this kind one of the active messages? */
static inline bool tt_frame_is_message(enum tt_frame kind)
{
	return kind == TT_F_MESSAGE || kind == TT_F_CREDIT || kind == TT_F_SHRINK;
}

struct tt_frame_head {
	enum tt_frame kind;
	uint64_t context; /* of the control that the frame belongs to; 0: the first one */
	size_t bytes;     /* of the payload */
};
void tt_put_frame_head(struct tt_writer *w, const struct tt_frame_head *head);
/* Is a whole frame, or of TT_F_MESSAGE the head, at the start of data? 1 | 0: more bytes are needed |
 * < 0: unknown kind, or longer than the kind allows */
int tt_frame_next(const uint8_t *data, size_t have, struct tt_frame_head *ret_head);

/* ---- payloads -------------------------------------------------------------------------------- */

#define TT_HOST_NAME 64
#define TT_SETTINGS 512
#define TT_PUBLIC_KEY 32 /* of Ed25519 */
/* The first bytes of a rank's key, which the other ranks keep: a key pair with these is as hard to find
 * as a signature, 2^128 attempts */
#define TT_KEY_KNOWN 16
#define TT_SIGNATURE 64

/* The address and identity of a rank. netns: ranks with equal numbers share a loopback interface.
 * host: ranks with equal numbers count as one host. */
struct tt_business_card {
	int rank, port, naddresses;
	uint32_t pid;
	uint64_t netns, host;
	char name[TT_HOST_NAME];
	uint8_t public_key[TT_PUBLIC_KEY]; /* of the rank's identity; zeros: not known yet */
	struct tt_address addresses[TT_ADDRESSES];
};
void tt_put_business_card(struct tt_writer *w, const struct tt_business_card *record);
void tt_get_business_card(struct tt_reader *r, struct tt_business_card *ret_record);

struct tt_register {
	uint32_t version, nranks;
	char settings[TT_SETTINGS];
	struct tt_business_card from;
};
void tt_put_register(struct tt_writer *w, const struct tt_register *reg);
bool tt_get_register(const void *data, size_t bytes, struct tt_register *ret_reg);

#endif
