/*
 * duplex.h - the byte stream each way below a connection: TLS to another process, a pipe within
 * this one
 *
 * Called by control_connection.c; made by control_connect.c and control_accept.c. Locked.
 */
#ifndef TT_DUPLEX_H
#define TT_DUPLEX_H

#include "control/pipe.h"
#include "control/tls.h"

struct tt_duplex { /* one of the two; neither: closed */
	struct tt_tls *tls;
	struct tt_pipe *pipe;
};

/* Watch for input: epoll reports *watched, a pipe wakes ep. false: errno has the reason */
bool tt_duplex_begin(struct tt_duplex *d, struct tt_control_endpoint *ep, void *watched);
/* Watch for room, too. */
void tt_duplex_watch(struct tt_duplex *d, void *watched, bool writing);
/* Close; unwatch first, after tt_duplex_begin. */
void tt_duplex_unwatch(struct tt_duplex *d);
void tt_duplex_close(struct tt_duplex *d);

/* As recv, send and shutdown of a non-blocking socket */
ssize_t tt_duplex_recv(struct tt_duplex *d, void *data, size_t bytes);
ssize_t tt_duplex_send(struct tt_duplex *d, const void *data, size_t bytes);
void tt_duplex_shutdown(struct tt_duplex *d, int how);
/* May tt_duplex_recv take more from the socket than it returns? (tls.h) */
void tt_duplex_read_ahead(struct tt_duplex *d, bool ahead);
/* Are there received bytes that epoll does not see? */
bool tt_duplex_pending(const struct tt_duplex *d);
/* As tt_tls_drained; false for a pipe */
bool tt_duplex_drained(const struct tt_duplex *d);
/* The bytes that the peer's host has not acknowledged; a pipe keeps them beyond the end of the
 * sender */
size_t tt_duplex_unsent(const struct tt_duplex *d);
/* Is the network silent? true with the reason in text */
bool tt_duplex_silent(const struct tt_duplex *d, char *text, size_t bytes);
/* Bytes of memory */
size_t tt_duplex_memory(const struct tt_duplex *d);

#endif
