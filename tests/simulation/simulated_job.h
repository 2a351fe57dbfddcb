/*
 * simulated_job.h - the calls of the ranks of a schedule, the faults, and the checks
 *
 *   simulated_job.c          a schedule: the ranks, from join to leave
 *   simulated_operations.c   the operations that the seed draws
 *   simulated_repeats.c      messages that time out and are sent again
 *   simulated_faults.c       the faults that the seed draws
 *   simulated_checks.c       checks after each call
 *   simulated_silence.c      ranks that no status or flood comes from: what an error may say of them
 *   simulated_monitor.c      a monitor that asks the job meanwhile
 *
 * All ranks join, run some operations, and leave. A rank whose operation fails shrinks with the
 * others and goes on in the new communicator, or gives up. After each call:
 *
 *   - it has returned in time: a death within 2 s, where no fault silences a living rank within 3 s (a
 *     shrink: 9 s), anything else within 1 s of the deadline (a join 3 s, a shrink three deadlines)
 *   - a success has the right data; an error has its reason in a fault, and a sentence, which says of no rank that
 *     could answer that it does not, and of none that it may be stopped, if only ranks that have left hide it
 *   - a rank that comes late to a join that has failed gets the reason; rank 0 awaits it for 2 s, and no longer
 *   - a rank that is reported dead was harmed, a rank that is reported left has left
 *   - messages come once and in order; one quorum operation has one mask and one result everywhere
 *   - a monitor gets a report or a sentence in time; who is dead there was harmed
 *   - members of a new communicator agree on who they are; it has the majority of its parent; ranks
 *     that shrink together and were never stopped are in one, whoever is stopped and continues; none of
 *     them had been stopped for long; a rank that continues learns that the others went on
 *
 * and at the end no thread, no descriptor and no memory of a process is left, and no freed memory was written.
 */
#ifndef TEST_SIMULATED_JOB_H
#define TEST_SIMULATED_JOB_H

#include "tests/simulation/simulation.h"
#include "tutti.h"

#define SIM_RANKS 20
#define SIM_RECORDS 256
#define SIM_DEPARTURES 512
#define SIM_TIMEOUT_NS (10 * SIM_SECOND) /* TUTTI_TIMEOUT_MS */
#define SIM_SLACK_NS SIM_SECOND          /* answers of others at the deadline, and delays */
/* of an abort, which waits 200 ms at most for slow ranks; and for this rank's own handshakes */
#define SIM_ABORT_NS (250 * SIM_MS)
#define SIM_NOTICE_NS (2 * SIM_SECOND) /* tuttiCommRankState(3): a death is known within 2 s */
#define SIM_LINGER_NS (2 * SIM_SECOND) /* rank 0 of a failed join awaits the next late rank */

enum sim_faults {
	SIM_NONE,
	SIM_KILLS,
	SIM_STOPS,
	SIM_CUTS,
	SIM_LOSSES,
	SIM_MEMORY,
	SIM_CORRUPTION,
	SIM_FAULTS
};

/* When the faults of a schedule begin: with it, or when one of the ranks ... */
enum sim_moment {
	SIM_START,
	SIM_OPERATIONS, /* ... begins its operations */
	SIM_SHRINK,     /* ... a shrink */
	SIM_LEAVE,      /* ... to leave */
};

struct sim_comm;

struct sim_rank {
	struct sim_process process;
	uint64_t stopped_ns; /* when it was stopped last, 0: never */
	uint64_t killed_ns;
	bool harmed;       /* it, its network, or what it receives: errors have a reason */
	bool lacks_memory; /* its threads, in its next split or shrink */
	bool delayed;      /* stopped for a while: its calls may take longer */
	bool disturbs;     /* fails the others' calls: aborts, or has given up */
	bool joined, aborted;
	bool resent;         /* it has sent a message of several frames again */
	bool unsent;         /* it could not send a message */
	bool leaves;         /* its last communicator */
	uint64_t late_ns;    /* it begins to join later by that */
	bool came, refused;  /* it joins, or did; its join has failed */
	uint64_t aborted_in; /* key of the communicator */
	uint64_t left_ns;    /* its first departure from a communicator */
	uint64_t succeeded_ns,
		succeeded_in; /* its latest successful call: when; key of the communicator */
	/* its latest shrink: of what, its begin and end, the communicators before it, the size of the new one */
	const struct sim_comm *shrinking;
	uint64_t shrink_ns, shrunk_ns;
	int shrinks, shrunk_to;
};

/* A communicator, as one rank sees it */
struct sim_comm {
	tuttiComm_t comm;
	int shrinks;  /* before it */
	uint64_t key; /* equal on all its members, different from others */
	uint64_t
		origin; /* the key before the members were known: also on a rank that never knew them */
	int rank, n;
	int member[SIM_RANKS]; /* processes */
	bool known;            /* member is */
	bool backward;         /* the processes of its ranks decrease */
	bool half_failed;      /* only this rank knows of an error in a split's communicator */
	int departed;          /* rank that has left in the midst of calls, -1: none */
	int sent[SIM_RANKS], received[SIM_RANKS];
};

/* The result of a quorum operation, by communicator and number */
struct record {
	uint64_t key, sequence, mask;
	int64_t value;
};

/* A rank has begun to leave a communicator. */
/* The first failed call of any rank in a communicator */
struct sim_failure {
	uint64_t key, ns;
};

struct sim_departure {
	uint64_t origin;
	int process;
	uint64_t ns;
};

struct sim_job {
	uint64_t seed;
	bool large; /* it has holders (control_holders.c) */
	bool slow;  /* a server takes milliseconds for a handshake, and messages are sent again */
	bool later; /* faults begin after the join */
	int n;
	enum sim_faults faults;
	enum sim_moment moment;
	int moment_waits; /* for as many ranks before it */
	struct sim_rank rank[SIM_RANKS];
	struct sim_process monitor; /* in some schedules; its number is n */
	tuttiUniqueId id;
	bool has_id;
	bool misused;        /* by calls that do not fit */
	bool messaged;       /* messages, or a quorum operation, have begun */
	bool strikes_shrink; /* more ranks are stopped in the first shrink */
	bool strikes_split;  /* a rank is killed or stopped in one of the first splits */
	/* Rank 0 of a failed join awaits late ranks: from when on, when one came last, those that have not come */
	uint64_t awaits_ns, latest_ns;
	int absent;
	bool awaited;               /* it does not any more */
	uint64_t last_kill_ns;      /* 0: none yet */
	uint64_t last_continue_ns;  /* of a stopped process */
	uint64_t last_fault_ns;     /* a kill, a stop or a cut */
	uint64_t last_data_ns;      /* data moved last, at any rank that waited then */
	uint64_t last_departure_ns; /* of a rank that others still call */
	struct {
		unsigned side; /* hosts of one side, by bits */
		uint64_t ns;   /* 0: not yet */
	} cut;
	struct sim_departure departures[SIM_DEPARTURES];
	int ndepartures;
	struct sim_failure failures[SIM_DEPARTURES];
	int nfailures;
	struct record records[SIM_RECORDS];
	int nrecords;
	int failed; /* sentences */
};

/* ---- simulated_checks.c ---------------------------------------------------------------------- */

/* Is there a reason for errors? */
bool sim_any_harmed(void);
/* Is no holder of the business cards left? Then ranks without a connection cannot find each other. */
bool sim_lacks_holders(void);
/* Has a rank aborted, given up, or begun a shrink that ends the others' calls? */
bool sim_any_disturbs(void);
/* A call of this rank, which began at began_ns, has returned rc. comm NULL: there is none any more */
void sim_check_call(const struct sim_comm *comm, const char *what, tuttiResult_t rc,
		    uint64_t began_ns, uint64_t limit_ns);
/* Does rank 0 of a failed join await late ranks for a while longer? */
bool sim_is_awaited(void);
/* The join of this rank, which began at began_ns, has failed; awaited: rank 0 awaited it. */
void sim_check_failed_join(tuttiResult_t rc, uint64_t began_ns, bool awaited);
/* The members of comm that were killed, or have departed, are known as that, unless it was just now. */
void sim_check_departed(const struct sim_comm *comm);
/* A shrink of comm has returned rc, and a communicator of n ranks. */
void sim_check_shrink(const struct sim_comm *comm, tuttiResult_t rc, int n);

/* ---- simulated_silence.c --------------------------------------------------------------------- */

/* A call in w has failed. */
void sim_note_failure(const struct sim_comm *w);
/* This rank begins to leave w. */
void sim_depart(const struct sim_comm *w);
/* When did a member of w leave it or die last, of which no chain of neighbors could tell this rank? 0: none did */
uint64_t sim_unheard_ns(const struct sim_comm *w);
/* A call in w has failed with this text. w NULL: before there was a communicator */
void sim_check_text(const struct sim_comm *w, const char *what, const char *text);

/* ---- simulated_monitor.c --------------------------------------------------------------------- */

/* The main function of a monitor: asks the job now and then, until nobody listens. */
void sim_monitor_main(void *unused);

/* ---- simulated_operations.c ------------------------------------------------------------------ */

/* Draws that all ranks make alike: by the seed, the communicator and the number of the operation */
uint32_t sim_common(uint64_t key, int index, int what, uint32_t n);
void sim_add_member(struct sim_comm *comm, int rank, int process);
/* Learn who the members are: each contributes its process number. */
tuttiResult_t sim_introduce(struct sim_comm *comm);
/* The unexpected queue of a new communicator takes few bytes. */
void sim_shorten_queue(const struct sim_comm *comm);
tuttiResult_t sim_run_operations(struct sim_comm *comm);

/* ---- simulated_repeats.c --------------------------------------------------------------------- */

/* Messages to every rank with a short timeout, each sent again until it is sent; then as many are received. */
tuttiResult_t sim_repeat_messages(struct sim_comm *comm, int index);

/* ---- simulated_faults.c ---------------------------------------------------------------------- */

/* Is the network cut between two processes, or was it? */
bool sim_is_cut(int a, int b);
/* Has a fault kept any rank from answering? */
bool sim_any_silent(void);

void sim_plan_faults(void);
/* A rank begins an operation, a shrink, or to leave. */
void sim_reach(enum sim_moment moment);
/* A rank begins to shrink. */
void sim_plan_faults_of_shrink(void);
/* A rank begins to split. */
void sim_plan_faults_of_split(void);

#endif
