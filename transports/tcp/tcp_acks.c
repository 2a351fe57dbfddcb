/* tcp_acks.c - see tcp_acks.h */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "transports/tcp/tcp_acks.h"

#define AGAIN 64                 /* messages from one entry of pingpong mode to the next */
#define PEEK_BYTES (16u << 10)   /* largest message that is peeked at */
#define UNREAD_BYTES (32u << 10) /* unread bytes that are removed at once */
#define UNREAD_MESSAGES 8        /* fewer than the ten packets of a new congestion window */
#define UNREAD_POLLS 32          /* polls in vain after which fewer messages are removed, too */

static void enter_pingpong_mode(const struct tt_tcp_link *l)
{
	setsockopt(l->fd, IPPROTO_TCP, TCP_QUICKACK, &(int){ 0 }, sizeof(int));
}

void tt_tcp_acks_begin(struct tt_tcp_link *l)
{
	const struct tt_world *w = l->base.ep->world;

	l->acks.local = tt_world_host(w, l->base.peer) == tt_world_host(w, w->rank);
	l->acks.peeks = l->acks.local && !l->sealed && !w->crowded &&
			!setsockopt(l->fd, SOL_SOCKET, SO_PEEK_OFF, &(int){ 0 }, sizeof(int));
}

/* Remove the unread bytes from the socket; MSG_TRUNC copies none of them. */
static void remove_unread(struct tt_tcp_link *l)
{
	char sink[4096];
	ssize_t n;

	while (l->acks.unread > 0) {
		n = recv(l->fd, sink, l->acks.unread < sizeof(sink) ? l->acks.unread : sizeof(sink),
			 MSG_TRUNC | MSG_DONTWAIT);
		if (n <= 0)
			return;
		l->acks.unread -= (size_t)n;
	}
	l->acks.messages = l->acks.missed = 0;
}

int tt_tcp_acks_peek(struct tt_tcp_link *l, size_t bytes)
{
	if (bytes <= PEEK_BYTES && l->acks.peeks)
		return MSG_PEEK;
	if (l->acks.unread)
		remove_unread(l);
	return 0;
}

void tt_tcp_acks_count(struct tt_tcp_link *l)
{
	if (!l->acks.local)
		return;
	if (l->acks.one_way % AGAIN == TT_TCP_ONE_WAY)
		enter_pingpong_mode(l);
	if (l->acks.unread == 0)
		return;
	l->acks.messages++;
	l->acks.missed = 0;
	if (l->acks.unread >= UNREAD_BYTES)
		remove_unread(l);
}

bool tt_tcp_acks_miss(struct tt_tcp_link *l, bool sleeps)
{
	if (!sleeps && l->acks.one_way > 0 && l->acks.messages < UNREAD_MESSAGES &&
	    ++l->acks.missed < UNREAD_POLLS)
		return false;
	remove_unread(l);
	return true;
}
