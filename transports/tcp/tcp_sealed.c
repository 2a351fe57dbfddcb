/* tcp_sealed.c - see tcp_sealed.h */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "transports/tcp/tcp_sealed.h"

#define HEAD sizeof(struct tt_tcp_head)
#define SEALED_HEAD (HEAD + TT_TAG)

int tt_tcp_sealed_make(struct tt_tcp_link *l, const struct tt_data_keys *keys)
{
	struct tt_tcp_sealed *s = l->sealed = calloc(1, sizeof(*s));

	if (!s || !tt_seal_make(&s->out, keys->send, true) ||
	    !tt_seal_make(&s->in, keys->recv, false)) {
		tt_tcp_sealed_free(l);
		return tt_fail(TT_SYSTEM, "rank %d: cannot encrypt the connection to rank %d",
			       l->base.ep->world->rank, l->base.peer);
	}
	l->around[0] = l->around[1] = TT_TCP_SEALED_AROUND;
	return 0;
}

void tt_tcp_sealed_free(struct tt_tcp_link *l)
{
	if (!l->sealed)
		return;
	tt_seal_free(&l->sealed->out);
	tt_seal_free(&l->sealed->in);
	free(l->sealed);
	l->sealed = NULL;
}

/* ---- sending --------------------------------------------------------------------------------- */

static bool seal_head(struct tt_tcp_sealed *s, const struct tt_tcp_head *head)
{
	uint8_t *to = s->wire + s->to;

	s->to += SEALED_HEAD;
	return tt_seal_begin(&s->out) && tt_seal_part(&s->out, to, head, HEAD) &&
	       tt_seal_end(&s->out, to + HEAD) && tt_seal_begin(&s->out);
}

/* Seal as much of a post as fits into wire, with room for a tag. */
static bool seal_post(struct tt_tcp_sealed *s, const struct tt_tcp_post *p)
{
	size_t n;

	if (s->done == 0 && !seal_head(s, &p->head))
		return false;
	n = TT_TCP_WIRE - TT_TAG - s->to;
	if (n > p->head.bytes - s->done)
		n = p->head.bytes - s->done;
	if (n && !tt_seal_part(&s->out, s->wire + s->to, (const char *)p->buf + s->done, n))
		return false;
	s->done += n;
	s->to += n;
	if (s->done < p->head.bytes)
		return true;
	s->done = 0;
	s->next++;
	s->to += TT_TAG;
	return tt_seal_end(&s->out, s->wire + s->to - TT_TAG);
}

ssize_t tt_tcp_sealed_send(struct tt_tcp_link *l)
{
	struct tt_tcp_sealed *s = l->sealed;
	ssize_t n;

	if (s->from == s->to)
		s->from = s->to = 0;
	/* the header comes with at least one byte of the payload, so done > 0 is behind it */
	while (s->from == 0 && s->next < l->base.posted &&
	       s->to + TT_TCP_SEALED_AROUND < TT_TCP_WIRE)
		if (!seal_post(s, &l->queue[s->next % TT_TCP_QUEUE])) {
			errno = EIO;
			return -1;
		}
	n = send(l->fd, s->wire + s->from, s->to - s->from, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0)
		s->from += (size_t)n;
	return n;
}

/* ---- receiving ------------------------------------------------------------------------------- */

int tt_tcp_sealed_altered(const struct tt_tcp_link *l)
{
	return tt_fail(TT_REMOTE,
		       "rank %d: data from rank %d was altered on the way, or another program "
		       "speaks there (channel %d, message %llu)",
		       l->base.ep->world->rank, l->base.peer, l->base.channel,
		       (unsigned long long)l->base.received);
}

/* The destination keeps nothing that did not open. */
static int altered(struct tt_tcp_link *l, void *into, size_t bytes)
{
	if (bytes)
		OPENSSL_cleanse(into, bytes);
	l->sealed->altered = true;
	return tt_tcp_sealed_altered(l);
}

/* Returns as recvmsg. */
static ssize_t receive_some(struct tt_tcp_link *l, void *into, size_t bytes)
{
	uint8_t *received = l->sealed->received;
	struct iovec iov[3];
	struct msghdr msg = { .msg_iov = iov };
	size_t skip = l->got;

	if (bytes <= TT_TCP_SMALL)
		return recv(l->fd, received + l->got, TT_TCP_SEALED_AROUND + bytes - l->got,
			    MSG_DONTWAIT);
	msg.msg_iovlen += (size_t)tt_tcp_piece(&iov[msg.msg_iovlen], received, SEALED_HEAD, &skip);
	msg.msg_iovlen += (size_t)tt_tcp_piece(&iov[msg.msg_iovlen], into, bytes, &skip);
	msg.msg_iovlen += (size_t)tt_tcp_piece(&iov[msg.msg_iovlen], received + SEALED_HEAD, TT_TAG,
					       &skip);
	return recvmsg(l->fd, &msg, MSG_DONTWAIT);
}

static bool open_head(struct tt_tcp_link *l)
{
	struct tt_tcp_sealed *s = l->sealed;

	s->opened = 0;
	return tt_seal_begin(&s->in) && tt_seal_part(&s->in, &l->head, s->received, HEAD) &&
	       tt_seal_end(&s->in, s->received + HEAD) && tt_seal_begin(&s->in);
}

/* Decrypt what has come of the payload, while it is in the cache; check the tag at its end. */
static int open_payload(struct tt_tcp_link *l, uint8_t *into, size_t bytes)
{
	struct tt_tcp_sealed *s = l->sealed;
	bool small = bytes <= TT_TCP_SMALL, whole = l->got == TT_TCP_SEALED_AROUND + bytes;
	const uint8_t *from = small ? s->received + SEALED_HEAD : into;
	uint8_t *tag = s->received + SEALED_HEAD + (small ? bytes : 0);
	size_t have = l->got - SEALED_HEAD < bytes ? l->got - SEALED_HEAD : bytes;
	bool good = have == s->opened ||
		    tt_seal_part(&s->in, into + s->opened, from + s->opened, have - s->opened);

	s->opened = have;
	if (good && !whole)
		return 0;
	if (good && tt_seal_end(&s->in, tag))
		return 1;
	return altered(l, into, bytes);
}

int tt_tcp_sealed_receive(struct tt_tcp_link *l, void *into, size_t bytes, uint32_t stamp)
{
	bool headless = l->got < SEALED_HEAD;
	ssize_t n;
	int rc;

	if (l->sealed->altered)
		return tt_tcp_sealed_altered(l);
	if (!headless && (rc = tt_tcp_check(l, bytes, stamp)))
		return rc;
	if (l->got == TT_TCP_SEALED_AROUND + bytes)
		return 1; /* opened by an earlier call */
	n = receive_some(l, into, bytes);
	rc = tt_tcp_count(l, n);
	if (rc <= 0)
		return rc;
	l->got += (size_t)n;
	if (l->got < SEALED_HEAD)
		return 0;
	if (headless && !open_head(l))
		return altered(l, into, bytes);
	if (headless && (rc = tt_tcp_check(l, bytes, stamp)))
		return rc;
	return open_payload(l, into, bytes);
}
