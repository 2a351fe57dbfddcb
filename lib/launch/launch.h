/*
 * launch.h - join a job that another launcher started: this process's rank, and rank 0's address
 *
 * Called by api (tuttiCommInitEnv, tuttiCommInitStore, tuttiCommInitOob); calls control and base.
 *
 *   detect.c      finds the launcher with a complete environment; launchers.c reads each launcher's
 *   rendezvous.c  from the environment to a unique id, in one of two ways:
 *     a store     the launcher carries a few hundred bytes privately (struct tt_store): rank 0
 *                 makes an id and puts the id into the store
 *     an endpoint the launcher has no store: rank 0 listens at an endpoint that all ranks compute,
 *                 and the user gives the secret
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

/* A store of the job. Every rank opens the store, rank 0 puts, then all fence, then the others get. */
struct tt_store {
	const struct tt_store_ops *ops;
	struct tt_job *job;
	void *own; /* state of the implementation */
};

struct tt_store_ops {
	const char *name;
	/* Fill in fields of s->job that only the store knows. 0 | < 0 */
	int (*open)(struct tt_store *s);
	/* Rank 0 only. 0 | < 0 */
	int (*put)(struct tt_store *s, const char *key, const char *value);
	/* Wait until every rank has called fence: values put before are visible after. 0 |
	 * TT_TIMEOUT, < 0. NULL: get waits by itself. */
	int (*fence)(struct tt_store *s, uint64_t deadline_ns);
	/* Wait until rank 0 has put the key. 0 | TT_TIMEOUT, < 0 */
	int (*get)(struct tt_store *s, const char *key, char value[TT_STORE_VALUE],
		   uint64_t deadline_ns);
	/* Report that rank 0 cannot join, with the reason. NULL or false: the caller puts the reason
	 * into the store. */
	bool (*abort)(struct tt_store *s, const char *why);
	void (*close)(struct tt_store *s); /* NULL: nothing to do */
};

extern const struct tt_store_ops tt_store_pmix, tt_store_pmi, tt_store_file, tt_store_local,
	tt_store_user, tt_store_oob;

/* ---- launchers ------------------------------------------------------------------------------- */

/* The job, as the environment of this process describes it. */
struct tt_job {
	const char *launcher;
	int rank, nranks;             /* nranks 0: only the store knows it */
	int local_rank, local_nranks; /* -1, 0: unknown */
	bool one_host;                /* all ranks are on this host */
	bool on_root_host;            /* rank 0 is on this host */
	int epoch;                    /* attempt of the job */
	char name[300];               /* unique to the job: launcher, id, port */
	char host[256];               /* of rank 0, "" unknown; its ports: */
	int port, nports;
	const struct tt_store_ops *store; /* NULL: the launcher has none */
	const char *path;                 /* of tt_store_file */
	const void *user;                 /* tuttiStore_t or tuttiOob_t of the program */
};

struct tt_launcher {
	const char *name;
	/* 1: this launcher started the process | 0: it did not | TT_USAGE: its environment is
	 * incomplete, with the sentence */
	int (*describe)(const struct tt_env *env, struct tt_job *job);
};
extern const struct tt_launcher tt_launchers[]; /* in order of precedence, NULL name at the end */

/* Find the launcher of this process. 0 | TT_USAGE: two launchers disagree, an environment is
 * incomplete, or TUTTI_LAUNCH names a launcher that did not start this process. */
int tt_launch_detect(const struct tt_env *env, struct tt_job *ret_job);

/* ---- rendezvous.c ---------------------------------------------------------------------------- */

struct tt_rendezvous {
	struct tt_job job;
	struct tt_store store; /* ops NULL: none was opened */
	char key[32];
	tuttiUniqueId id;
};

/* The secret of TUTTI_SECRET or TUTTI_SECRET_FILE, "": none. 0 | TT_ARG, TT_USAGE */
int tt_launch_secret(const struct tt_env *env, char *secret, size_t room);
/* From a job to the unique id of its `number`-th communicator (1, 2, ... in this process). 0 | < 0.
 * After success the caller joins, and then closes, also after a failed join. Blocks: until
 * deadline_ns. */
int tt_rendezvous_open(struct tt_rendezvous *l, const struct tt_env *env, unsigned number,
		       uint64_t deadline_ns);
void tt_rendezvous_close(struct tt_rendezvous *l);

#endif
