/*
 * accelerator.h - the operations by which a communicator reaches its accelerator (a CUDA device)
 *
 * comm calls the table while ranks join (comm.c), when a transport fetches bytes (paths.c), when a
 * user registers memory (registration.c), and when the communicator is freed. lib/gpu defines the
 * table (gpu_open.c), so comm includes no header of lib/gpu. The table keeps its state in
 * comm->gpu, which comm never looks into. Unless an operation says otherwise: Thread: the one that
 * is inside a call of comm. Every operation but exchange also takes a communicator without an
 * accelerator.
 */
#ifndef TT_ACCELERATOR_H
#define TT_ACCELERATOR_H

#include <stdbool.h>
#include <stddef.h>

struct tuttiComm;
struct tt_env;

struct tt_accelerator_ops {
	/*
	 * open - attach the accelerator that is current in the calling thread to comm
	 *
	 *   env             TUTTI_GPU and TUTTI_GPUDIRECT are read
	 *   ret_shareable   true: this rank has an accelerator whose memory peers may map, so
	 *                   exchange is worth a call
	 *   Call      by each rank for itself, before any collective step of the join
	 *   Owns      comm->gpu belongs to the table until close; NULL after open: no accelerator
	 *   Returns   0 | TT_CUDA (the driver failed) | TT_SYSTEM (no memory)
	 *   Blocks    no
	 */
	int (*open)(struct tuttiComm *comm, const struct tt_env *env, bool *ret_shareable);
	/*
	 * exchange - swap the addresses of all ranks' IPC buffers, try them, agree on kernels
	 *
	 *   Call      collective: by all ranks of comm, if every rank's open set ret_shareable
	 *   Returns   0 (also where some rank cannot map a peer's memory: all ranks then agree to
	 *             stage through the host) | < 0 (an exchange between ranks failed, no memory,
	 *             no watchdog thread)
	 *   Blocks    yes, at most comm->settings.timeout_ms for each exchange
	 */
	int (*exchange)(struct tuttiComm *comm);
	/*
	 * close - wait for the accelerator's work of comm and free comm->gpu
	 *
	 *   Call      by each rank for itself, before control and the transports are closed
	 *   Blocks    until enqueued work has ended; at once where comm is broken
	 */
	void (*close)(struct tuttiComm *comm);
	/*
	 * fetch - copy bytes from host or device memory to host memory
	 *
	 *   to, from   [bytes]; only `from` may be device memory
	 *   Returns    0 | TT_CUDA
	 *   Blocks     until the copy is done
	 */
	int (*fetch)(struct tuttiComm *comm, void *to, const void *from, size_t bytes);
	/*
	 * context_of - the device context in which to ask the driver about p
	 *
	 *   Returns   the context, if p is device memory | NULL: host memory, or no accelerator
	 *   Owns      the driver keeps the context
	 *   Thread    any     Blocks   no
	 */
	void *(*context_of)(struct tuttiComm *comm, const void *p);
};

extern const struct tt_accelerator_ops tt_accelerator;

#endif
