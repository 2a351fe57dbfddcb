/*
 * survival.h - scenes: ranks that are killed, stopped or cut off in each phase of a communicator
 *
 *   survival.c            options, scenes side by side, progress, the table
 *   survival_draw.c       a seed becomes a scene
 *   survival_scene.c      the process of a scene: starts the ranks, injects the fault, finds what is left
 *   survival_networks.c   networks, /tmp and /dev/shm of a scene's own; cuts between two networks
 *   survival_rank.c       the process of a rank: joins, calls until an error, leaves
 *   survival_phases.c     the calls of each phase
 *   survival_recovery.c   the phases that outlive a death: messages, quorum, shrink; and abort
 *   survival_calls.c      collectives with checked results
 *   survival_judge.c      is the error of a survivor the documented one, and does it name the dead?
 */
#ifndef TESTS_SURVIVAL_H
#define TESTS_SURVIVAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tutti.h"

#define SCENE_RANKS 64

enum scene_kind { SCENE_KILL, SCENE_STOP, SCENE_CUT, SCENE_KINDS };
enum scene_cut { CUT_DOWN, CUT_BOTH_WAYS, CUT_FROM_VICTIMS, CUT_TO_VICTIMS, CUTS };
enum scene_collective {
	SCENE_ALLREDUCE,
	SCENE_REDUCE,
	SCENE_BROADCAST,
	SCENE_ALLGATHER,
	SCENE_REDUCE_SCATTER,
	SCENE_ALLTOALL,
	SCENE_GATHER,
	SCENE_SCATTER,
	SCENE_BARRIER,
	SCENE_COLLECTIVES
};

struct scene_rank;

/* A phase: the calls that ranks repeat until one fails. */
struct scene_phase {
	const char *name;
	/* One round of calls, all ranks alike: 0, or the first error, whose text is kept by
	 * scene_failed. The round sets ended when the rank has noticed without an error. */
	tuttiResult_t (*round)(struct scene_rank *w, uint64_t i);
	bool joining;  /* the fault strikes while ranks join */
	bool survives; /* the rounds judge their errors themselves */
	bool large;    /* of the two phases of collectives */
};
extern const struct scene_phase scene_phases[];
extern const int scene_nphases;

struct scene {
	uint64_t seed;
	enum scene_kind kind;
	int phase, n, nvictims;
	bool victim[SCENE_RANKS];
	const char *transport; /* as a user reads it: shm, tcp, mixed, verbs */
	int hosts;             /* TUTTI_HOST_ID of rank r: r * hosts / n; 0: unset */
	const char *algo, *wait, *cma, *shrink;
	enum scene_collective collective;
	size_t count;
	int timeout_ms;
	unsigned delay_us, spread_us; /* from the join to the first victim, to the last victim */
	enum scene_cut cut;
	bool halves; /* a cut between two halves, the odd rank in either, shrink=majority */
	bool wake;   /* stopped victims continue at the end, and must end as well */
	int aborter; /* phase abort: this survivor aborts, from another thread if aborts_aside */
	bool aborts_aside;
	unsigned abort_us;
};

/* The report of a rank to the process of the scene. */
struct scene_report {
	_Atomic pid_t pid;
	atomic_bool joined, noticed, done; /* done: before the process ends */
	bool also;    /* the text says of a live rank that it does not answer */
	bool went_on; /* with a communicator that a shrink made after the fault */
	_Atomic uint64_t rounds;
	char doing[64];
	tuttiResult_t code;
	/* ms from the fault (kill) or from the later of fault and call (stop, cut) to the error; the
	 * documented bound of that time; the time that the rank took to leave */
	double notice_ms, bound_ms, leave_ms;
	char noticed_in[64]; /* the call */
	char text[1024];
	char problem[1536]; /* "": all is well */
};

/* Memory that main, the process of the scene and its ranks share. */
struct scene_shared {
	struct scene scene;
	tuttiUniqueId id;
	int reserved; /* descriptors of the id, which a join closes */
	atomic_int ready, njoined, finished;
	atomic_bool go, faulted;
	_Atomic uint64_t fault_ns;
	/* the longest delay by which a sleep of the scene's process overran: a measure of how slow the
	 * machine is */
	_Atomic uint64_t delay_ns;
	/* the longest time for which a rank waited for a processor: 0, or half a second and more; of that the last half
	 * second may be of several waits */
	_Atomic uint64_t unrun_ns;
	_Atomic bool late_join; /* a rank could not join before any fault: nothing was tested */
	bool has_networks;
	double wall_s;
	char problem[1024];
	struct scene_report rank[SCENE_RANKS];
};

/* survival_draw.c: cells are pairs of phase and kind; consecutive seeds go through all of them.
 * halves: phase shrink, a cut between two halves of the ranks, TUTTI_SHRINK=majority */
void scene_draw(uint64_t seed, bool halves, struct scene *ret_scene);
void scene_describe(const struct scene *s, char *text, size_t bytes);
uint64_t scene_random(uint64_t seed, uint64_t index);
extern const char *const scene_kinds[SCENE_KINDS], *const scene_collectives[SCENE_COLLECTIVES];

/* survival_scene.c: runs the scene of sh in this process, which ends afterwards */
void scene_run(struct scene_shared *sh);

/* survival_machine.c: every half second, notes the longest wait of a rank for a processor in sh */
struct scene_watch {
	uint64_t due_ns; /* of the next look */
	struct scene_turns {
		uint64_t ran_ns, waited_ns,
			turns;     /* of the main thread, as the kernel counts them */
		bool runnable;     /* it runs or waits for a processor */
		uint64_t begin_ns; /* of the look; 0: there was none */
		uint64_t since_ns; /* end of this look, or of the first one in this wait */
	} rank[SCENE_RANKS];
};
void scene_watch_turns(struct scene_watch *w, const pid_t *pids, int n, uint64_t now,
		       struct scene_shared *sh);

/* survival_networks.c */
struct scene_networks {
	int ns[2];      /* of the survivors, of the victims; -1: there is one network */
	int control[2]; /* sockets for ioctl in each network */
};
/* Can scenes have networks of their own? false: lacks says why not */
bool scene_can_isolate(const char **lacks);
bool scene_isolate(bool two, struct scene_networks *ret_nets);
void scene_enter(const struct scene_networks *nets, int side);
bool scene_cut_link(const struct scene_networks *nets, enum scene_cut cut);
/* "", or the name of a file or socket that is left */
void scene_find_left(const struct scene_networks *nets, char *text, size_t bytes);

/* survival_rank.c */
struct scene_rank {
	const struct scene *s;
	struct scene_shared *sh;
	struct scene_report *report;
	int rank;
	tuttiComm_t comm;
	tuttiComm_t before; /* phase shrink: answers late ranks until comm has worked once */
	tuttiStream_t stream;
	uint64_t begin_ns; /* of the latest call that waits */
	bool ended;        /* no more rounds */
	void *state;       /* of the phase */
	int *in, *out;     /* SCENE_ELEMENTS each */
};
#define SCENE_ELEMENTS 262144
_Noreturn void scene_rank_main(struct scene_shared *sh, int rank);
uint64_t scene_now_ns(void);
void scene_pause_us(unsigned us);
void scene_problem(struct scene_rank *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Keeps code and text of a failed call: rc */
tuttiResult_t scene_failed(struct scene_rank *w, tuttiResult_t rc, const char *text);
/* Begin a call that waits. */
void scene_call(struct scene_rank *w, const char *name);
#define SCENE_WAITS "waiting for the other survivors" /* what a rank does in scene_meet */
/* Wait until all ranks that are neither dead nor cut off from this one have come here. */
void scene_meet(struct scene_rank *w);

/* Can a chain of living neighbors in the control's tree and ring report the death of `other`? */
bool scene_can_know(const struct scene_rank *w, int other);

/* survival_calls.c: a collective of i's values; 0 with a right result | the error */
tuttiResult_t scene_collective(struct scene_rank *w, tuttiComm_t comm, int n, int rank,
			       enum scene_collective what, size_t count, uint64_t i);

/* survival_judge.c */
/* Is `other` dead for this rank? */
bool scene_may_name(const struct scene_rank *w, int other);
/* Is the text about another rank wrong, or silent about the dead? Records a problem. */
void scene_judge_text(struct scene_rank *w, const char *text);
/* An error that ended the rounds, just now: code, text and time. */
void scene_judge_error(struct scene_rank *w);
void scene_judge_error_within(struct scene_rank *w, double bound_ms);
/* The rank has noticed a fault, just now, bound_ms is the documented time for it. */
void scene_noticed(struct scene_rank *w, double bound_ms);
void scene_judge_states(struct scene_rank *w);
double scene_allowed_ms(const struct scene_shared *sh, double bound_ms);
/* Which sides of a cut went on after a shrink: bit 1 the survivors', 2 the victims' */
int scene_sides(const struct scene_shared *sh);

/* survival_recovery.c */
tuttiResult_t scene_round_messages(struct scene_rank *w, uint64_t i);
tuttiResult_t scene_round_quorum(struct scene_rank *w, uint64_t i);
tuttiResult_t scene_round_shrink(struct scene_rank *w, uint64_t i);
tuttiResult_t scene_round_abort(struct scene_rank *w, uint64_t i);

#endif
