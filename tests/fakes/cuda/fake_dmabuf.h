/*
 * fake_dmabuf.h - what a dma-buf is between the two fakes: a file with this record
 *
 * The CUDA fake makes it, that for libibverbs (tests/fakes/verbs) reads it in the same
 * process. The memory is named by the descriptor of the piece and not by address, so a card goes on
 * writing to memory that was freed, as a real one would.
 */
#ifndef FAKE_DMABUF_H
#define FAKE_DMABUF_H

#include <stdbool.h>
#include <stdint.h>

#define FAKE_DMABUF 0x6d64612d62756600u
struct fake_dmabuf {
	uint64_t magic;
	int fd;                                /* of the piece of memory */
	uint64_t offset, bytes;                /* in it */
	bool unordered;                        /* what is written is seen after a flush only */
};

#endif
