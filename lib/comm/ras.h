/*
 * ras.h - NCCL's RAS protocol: a service at an address of this host that reports the state of every rank
 *
 * TUTTI_RAS names the address. Each process listens there (SO_REUSEPORT: the kernel gives a client to
 * one of them), as NCCL's processes do, and answers for its communicators; the states of other ranks
 * come over the authenticated control plane (control_report.c).
 *
 *   client                                  server
 *   CLIENT PROTOCOL 2                   ->
 *                                      <-   SERVER PROTOCOL 2
 *   TIMEOUT 3                           ->  (for silent ranks; the default is 0.7 s)
 *                                      <-   OK
 *   SET FORMAT json                     ->  (else text)
 *                                      <-   OK
 *   STATUS, or VERBOSE STATUS           ->
 *                                      <-   the report; end of the connection
 *
 *   ras.c           the thread and its clients
 *   ras_members.c   the communicators that it answers for, and the states of their ranks
 *   ras_session.c   lines of a client, and their answers
 *   ras_report.c    the report as JSON and as text
 *
 * Source: NCCL 2.28.9, src/ras/client_support.cc. MONITOR (NCCL 2.29) is an unknown command here.
 */
#ifndef TT_RAS_H
#define TT_RAS_H

#include <stdio.h>

#include "control/control.h"

/* ---- ras.c ----------------------------------------------------------------------------------- */

struct tt_ras_entry;
struct tt_ras_member {
	struct tt_control *ctl; /* until tt_ras_leave */
	uint64_t comm;          /* equal on all ranks of the communicator, and on no other one */
	int rank, nranks;
};
/* Answer for a communicator; the first one of the process opens address and starts the thread. A
 * failure of either is a warning in the log: the job goes on. 0 | TT_SYSTEM (no memory) */
int tt_ras_enter(const char *address, const struct tt_ras_member *member,
		 struct tt_ras_entry **ret_entry);
/* entry may be NULL. The last one ends the thread. Blocks: while an answer is written into memory */
void tt_ras_leave(struct tt_ras_entry *entry);

/* ---- ras_session.c --------------------------------------------------------------------------- */

#define TT_RAS_LINE 1024
#define TT_RAS_ANSWER (TT_RAS_LINE + 64) /* bytes of an answer to a line */
#define TT_RAS_TIMEOUT_MS 700            /* clients that wait a second for the report exist */

struct tt_ras_session {
	char in[TT_RAS_LINE]; /* received, not yet answered */
	size_t have;
	bool json, verbose;
	uint32_t timeout_ms; /* for silent ranks */
};
enum tt_ras_step { TT_RAS_MORE, TT_RAS_ANSWERED, TT_RAS_STATUS, TT_RAS_TOO_LONG };
/* Take the next line of s->in, and write its answer. MORE: there is no whole line; STATUS: the client
 * wants a report; TOO_LONG: a line longer than any command. */
enum tt_ras_step tt_ras_step(struct tt_ras_session *s, char ret_answer[TT_RAS_ANSWER]);

/* ---- ras_members.c --------------------------------------------------------------------------- */

/* 0 | TT_SYSTEM (no memory) */
int tt_ras_add(const struct tt_ras_member *member, struct tt_ras_entry **ret_entry);
/* Free entry. true: no communicator is left */
bool tt_ras_remove(struct tt_ras_entry *entry);
/* Have all ranks that live answered the question of asked_ns? Asks those that were not asked lately. */
bool tt_ras_answered(uint64_t asked_ns);
/* The report for a client, which asked then; free(it). NULL or empty: no memory */
char *tt_ras_report(const struct tt_ras_session *session, uint64_t asked_ns, size_t *ret_bytes);

/* ---- ras_report.c ---------------------------------------------------------------------------- */

struct tt_ras_comm {
	uint64_t comm;
	int nranks, error; /* error: of the communicator, 0 or a code */
	struct tt_rank_report *ranks;
};
struct tt_ras_report {
	int ncomms;
	struct tt_ras_comm *comms;
	double seconds; /* time since the client asked */
};
void tt_ras_write_json(const struct tt_ras_report *report, FILE *to);
void tt_ras_write_text(const struct tt_ras_report *report, bool verbose, FILE *to);

#endif
