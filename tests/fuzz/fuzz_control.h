/*
 * fuzz_control.h - a real control for fuzzers: the endpoint of one rank, fed by the fuzzer alone
 *
 * No service thread runs: fuzz_serve delivers what has come, as that thread would.
 */
#ifndef TEST_FUZZ_CONTROL_H
#define TEST_FUZZ_CONTROL_H

#include "control/control_internal.h"
#include "tests/support/tls_pair.h"

#define FUZZ_RANKS 20

extern struct tt_key fuzz_key; /* of all sessions */

/* Ends the fuzzer with a sentence, unless holds. */
void fuzz_must(bool holds, const char *what);
void fuzz_serve(struct tt_control_endpoint *ep);
/* The library has no memory at its k-th request from now on, once; 0: it has. */
void fuzz_memory(unsigned k);
/* Made once: a context costs milliseconds. */
struct tt_tls_context *fuzz_sessions(void);
struct tt_identity *fuzz_identity(void);
/* Rank 0's public key is a point of order 1, under which the signature 1, 0, 0 ... is everybody's:
 * so an input can be signed. */
void fuzz_know_ranks(struct tt_control_endpoint *ep);
/* This rank is in an allgather of 4 bytes a rank. */
void fuzz_begin_gather(struct tt_control *ctl);

#endif
