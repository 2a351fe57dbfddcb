/*
 * hashes.h - hashes of the parameters after every step, for `tutti hashdiff`
 *
 * A file of records: header, then for each step its number and a hash for each
 * bucket, and after the step of --hash-values the parameters themselves. All in
 * this machine's byte order. Rank 0 writes (train.c), perf/commands/cmd_hashdiff.c reads.
 */
#ifndef TOOL_TRAINER_HASHES_H
#define TOOL_TRAINER_HASHES_H

#include <stdint.h>

#define TOOL_HASHES_MAGIC UINT64_C(0x3148534854545554) /* "TUTTHSH1" */

enum { TOOL_HASHES_BUCKET = 4096 }; /* parameters with one hash */

struct tool_hashes_header {
	uint64_t magic, parameters, bucket;
};

/* Followed by the hashes, one for each bucket, and with values: by the parameters. */
struct tool_hashes_step {
	uint64_t step, values;
};

static inline uint64_t tool_hashes_buckets(uint64_t parameters, uint64_t bucket)
{
	return (parameters + bucket - 1) / bucket;
}

#endif
