/*
 * launch.h - joining the job that somebody else's launcher started: who am I, and where is rank 0?
 *
 * Called by api (tuttiCommInitEnv, tuttiCommInitStore, tuttiCommInitOob); calls comm and base.
 *
 *   detect.c      which engine's environment is complete; launchers.c reads each of them
 *   rendezvous.c  from there to a unique id, in one of two ways:
 *     a store     the engine carries a few hundred bytes privately (struct tt_store): rank 0 makes
 *                 an id and puts it there
 *     a place     it does not: rank 0 listens where all expect it, and the user gives the secret
 *   store_*.c     the stores
 */
#ifndef TT_LAUNCH_LAUNCH_H
#define TT_LAUNCH_LAUNCH_H

#include "control/control.h"
#include "control/unique_id.h"

/* ---- stores ---------------------------------------------------------------------------------- */

/* the longest value, with its NUL; printable, without blanks */
#define TT_STORE_VALUE 512

struct tt_job;

/* A store of the job. Every rank opens it, rank 0 puts, then all fence, then the others get. */
struct tt_store {
	const struct tt_store_ops *ops;
	struct tt_job *job;
	void *own;                       /* the implementation's */
};

struct tt_store_ops {
	const char *name;
	/* Fills in what the store knows of the job and the environment does not. 0 | < 0 */
	int (*open)(struct tt_store *s);
	int (*put)(struct tt_store *s, const char *key, const char *value);
	/* Until every rank is here: what was put before can be got after.
	 * NULL: get waits by itself. */
	int (*fence)(struct tt_store *s, uint64_t deadline_ns);
	/* Wait until rank 0 has put it. 0 | TT_TIMEOUT, and others */
	int (*get)(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		   uint64_t deadline_ns);
	/* Rank 0 cannot join, for this reason. NULL or false: it puts the reason. */
	bool (*abort)(struct tt_store *s, const char *why);
	void (*close)(struct tt_store *s);       /* NULL: nothing to do */
};

extern const struct tt_store_ops tt_store_pmix, tt_store_pmi, tt_store_file, tt_store_local,
	tt_store_user, tt_store_oob;

/* ---- engines --------------------------------------------------------------------------------- */

/* What an environment says. */
struct tt_job {
	const char *engine;
	int rank, nranks;                        /* nranks 0: only the store knows */
	int local_rank, local_nranks;            /* -1, 0: not said */
	bool one_host;                           /* all ranks are on this host */
	bool beside_root;                        /* rank 0 is on this host */
	int epoch;                               /* attempt of the job */
	char name[300];                          /* of no other job: engine, id, port */
	char host[256];                          /* of rank 0, "" unknown; it tries to listen at: */
	int port, nports;
	const struct tt_store_ops *store;        /* NULL: the engine carries nothing for us */
	const char *path;                        /* file's */
	const void *user;                        /* user's tuttiStore_t, oob's tuttiOob_t */
};

struct tt_launcher {
	const char *name;
	/* 1: this engine started this process | 0: it did not | TT_USAGE: its environment is half
	 * set, in words */
	int (*describe)(const struct tt_env *env, struct tt_job *job);
};
extern const struct tt_launcher tt_launchers[];      /* in order of precedence, ends with a name NULL */

/* Who started this process. TT_USAGE: two disagree,
 * one is half set, TUTTI_LAUNCH names one that did not. */
int tt_launch_detect(const struct tt_env *env, struct tt_job *ret_job);

/* ---- rendezvous.c ---------------------------------------------------------------------------- */

struct tt_rendezvous {
	struct tt_job job;
	struct tt_store store;                   /* ops NULL: none was opened */
	char key[32];
	tuttiUniqueId id;
};

/* From a job to the unique id of its `number`-th communicator (1, 2, ... in this process). 0 | < 0.
 * After success the caller joins, and then closes, whether or not that went well.
 * Blocks: until deadline_ns. */
int tt_rendezvous_open(struct tt_rendezvous *launch, const struct tt_env *env, unsigned number,
		   uint64_t deadline_ns);
void tt_rendezvous_close(struct tt_rendezvous *launch);

#endif
