/*
 * hashes.h - format of the file of parameter hashes: tutti-train writes, `tutti hashdiff` compares
 *
 * The file begins with a header. Each training step adds one record: step number, one hash per
 * bucket of parameters, and for the step of --hash-values the parameters. Byte order: the host's. The
 * numbers rise; a number that is left out is a step without a record. Where servers hand out shares of steps, each
 * share of rank 0 has a record, so that a number may come again.
 * Rank 0 of the trainer writes the file; perf/commands/cmd_hashdiff.c reads two files.
 */
#ifndef TOOL_HASHES_H
#define TOOL_HASHES_H

#include <stdint.h>

#define TOOL_HASHES_MAGIC UINT64_C(0x3148534854545554) /* "TUTTHSH1" */

enum { TOOL_HASHES_BUCKET = 4096 }; /* parameters per hash */

struct tool_hashes_header {
	uint64_t magic, parameters, bucket;
};

/* The hashes follow, one per bucket; with values != 0 the parameters follow the hashes. */
struct tool_hashes_step {
	uint64_t step, values;
};

static inline uint64_t tool_hashes_buckets(uint64_t parameters, uint64_t bucket)
{
	return (parameters + bucket - 1) / bucket;
}

#endif
