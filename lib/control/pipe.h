/*
 * pipe.h - a pipe: a byte stream each way between two endpoints of one process, in memory
 *
 * Called by duplex.c and control_local.c. A pipe has two ends and behaves as a socket: what one end
 * sends the other receives, also after the sender has closed its end. A direction has room for
 * TT_PIPE_ROOM bytes. An end that becomes ready wakes the service thread of its endpoint, once the
 * end is attached.
 *
 * An end belongs to the holder of its endpoint's lock; the two ends share a lock of the pipe, which
 * is taken last.
 */
#ifndef TT_PIPE_H
#define TT_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TT_PIPE_ROOM (128u << 10)

struct tt_pipe; /* one end */
struct tt_control_endpoint;

/* false: no memory */
bool tt_pipe_make(struct tt_pipe *ret_end[2]);
/* Wake ep when the end is ready, until it is closed. */
void tt_pipe_attach(struct tt_pipe *end, struct tt_control_endpoint *ep);
/* The other end receives what is sent, then the end of the stream; it sends in vain. */
void tt_pipe_close(struct tt_pipe *end);

/* As recv and send of a socket, non-blocking. Without memory a stream has less room. */
ssize_t tt_pipe_recv(struct tt_pipe *end, void *data, size_t bytes);
ssize_t tt_pipe_send(struct tt_pipe *end, const void *data, size_t bytes);
/* End the stream to the other end (how: SHUT_WR), or both streams (SHUT_RDWR). */
void tt_pipe_shutdown(struct tt_pipe *end, int how);

/* For EPOLLOUT: is the end ready when it can send? */
void tt_pipe_watch(struct tt_pipe *end, bool writing);
/* EPOLLIN: there is something to receive, or the end of the stream; EPOLLOUT: there is room to send.
 * Level-triggered. Thread: any */
unsigned tt_pipe_events(const struct tt_pipe *end);

/* Bytes of memory of one end */
size_t tt_pipe_memory(const struct tt_pipe *end);

#endif
