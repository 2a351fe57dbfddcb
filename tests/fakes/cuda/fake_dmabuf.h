/*
 * fake_dmabuf.h - the format of a dma-buf that both fake drivers share: a file with this record
 *
 * The fake CUDA driver writes the record; the fake libibverbs (tests/fakes/verbs) reads it in the
 * same process. The record names memory by the allocation's descriptor and not by address, so an
 * HCA goes on writing to freed memory, as a real one would.
 */
#ifndef FAKE_DMABUF_H
#define FAKE_DMABUF_H

#include <stdbool.h>
#include <stdint.h>

#define FAKE_DMABUF 0x6d64612d62756600u
struct fake_dmabuf {
	uint64_t magic;
	int fd;                 /* of the allocation */
	uint64_t offset, bytes; /* in the allocation */
	bool unordered;         /* writes are visible only after a flush */
};

#endif
