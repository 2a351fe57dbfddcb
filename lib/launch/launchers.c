/*
 * launchers.c - the environment variables of each launcher
 *
 * Called by detect.c. A set of variables without one of them is half set, an error, as is a variable
 * that is not a number where one is needed.
 */
#include <ctype.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch.h"

/* ports of rank 0 of a launcher without a store, which listens at the first free one */
#define ROOT_PORTS 8
#define SLURM_FIRST_PORT 20000 /* below Linux's ephemeral ports */
#define SLURM_PORTS 12000

/* A number of the environment, -1: not set, not a number, or above most */
static long number_up_to(const char *name, long most)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (!text || !isdigit((unsigned char)*text))
		return -1;
	value = strtol(text, &end, 10);
	return *end || value > most ? -1 : value;
}

static int number(const char *name)
{
	return (int)number_up_to(name, INT_MAX);
}

static int half_set(const char *launcher, const char *missing, const char *all)
{
	const char *value = getenv(missing);

	if (value && *value)
		return tt_fail(TT_USAGE,
			       "the environment of %s: %s is '%.100s', which is not valid",
			       launcher, missing, value);
	return tt_fail(TT_USAGE,
		       "the environment of %s is half set: %s is not set; %s belong together",
		       launcher, missing, all);
}

/* Are rank and nranks set, and rank < nranks? 1 | TT_USAGE */
static int check(const struct tt_job *job, const char *rank, const char *nranks, const char *all)
{
	if (job->rank < 0)
		return half_set(job->launcher, rank, all);
	if (job->nranks < 1)
		return half_set(job->launcher, nranks, all);
	if (job->rank >= job->nranks)
		return tt_fail(TT_USAGE, "%s: %s is %d, but %s is %d; want a rank from 0 to %d",
			       job->launcher, rank, job->rank, nranks, job->nranks,
			       job->nranks - 1);
	return 1;
}

static bool by_file(const struct tt_env *env)
{
	return !strncmp(env->root, "file:", 5);
}

/* TUTTI_ROOT replaces the launcher's endpoint or store. */
static int use_root(const struct tt_env *env, struct tt_job *job)
{
	if (by_file(env)) {
		job->store = &tt_store_file;
		job->path = env->root + 5;
	}
	if (!*env->root || by_file(env))
		return 1;
	job->store = NULL;
	job->nports = 1;
	snprintf(job->name, sizeof(job->name), "root");
	return tt_id_split_root(env->root, job->host, sizeof(job->host), &job->port) ? TT_USAGE : 1;
}

/* ---- TUTTI_* --------------------------------------------------------------------------------- */

static int describe_tutti(const struct tt_env *env, struct tt_job *job)
{
	static const char all[] =
		"TUTTI_RANK, TUTTI_NRANKS, TUTTI_ROOT (host:port or file:/path) and, unless that is a file, "
		"TUTTI_SECRET or TUTTI_SECRET_FILE";
	bool kubernetes = getenv("JOB_COMPLETION_INDEX") && env->rank < 0;
	int rc;

	if ((env->rank < 0 && env->nranks < 0 && !*env->root) || kubernetes)
		return 0;
	job->rank = (int)env->rank;
	job->nranks = (int)env->nranks;
	if ((rc = check(job, "TUTTI_RANK", "TUTTI_NRANKS", all)) < 0)
		return rc;
	if (!*env->root)
		return half_set("TUTTI_*", "TUTTI_ROOT", all);
	if (!by_file(env) && !*env->secret && !*env->secret_file)
		return half_set("TUTTI_*", "TUTTI_SECRET", all);
	job->on_root_host = true; /* so loopback addresses are kept */
	return use_root(env, job);
}

/* ---- torchrun: MASTER_PORT is torch's own store, so rank 0 listens at one of the next ports --- */

static int describe_torchrun(const struct tt_env *env, struct tt_job *job)
{
	static const char all[] = "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
	const char *host = getenv("MASTER_ADDR"), *run = getenv("TORCHELASTIC_RUN_ID");
	int port = number("MASTER_PORT"), restarts = number("TORCHELASTIC_RESTART_COUNT"), rc;

	if (!getenv("RANK") && !getenv("WORLD_SIZE"))
		return 0;
	job->rank = number("RANK");
	job->nranks = number("WORLD_SIZE");
	job->local_rank = number("LOCAL_RANK");
	job->local_nranks = number("LOCAL_WORLD_SIZE");
	if ((rc = check(job, "RANK", "WORLD_SIZE", all)) < 0)
		return rc;
	if (!host || !*host || strlen(host) >= sizeof(job->host))
		return half_set("torchrun", "MASTER_ADDR", all);
	if (port < 1 || port > 65535)
		return half_set("torchrun", "MASTER_PORT", all);
	snprintf(job->host, sizeof(job->host), "%s", host);
	snprintf(job->name, sizeof(job->name), "torchrun %.200s %d", run ? run : "", port);
	job->port = port + ROOT_PORTS < 65536 ? port + 1 : port - ROOT_PORTS;
	job->nports = ROOT_PORTS;
	job->one_host = job->local_nranks == job->nranks;
	job->on_root_host = job->one_host || number("GROUP_RANK") == 0;
	job->epoch = restarts > 0 ? restarts : 0;
	job->store = job->one_host ? &tt_store_local : NULL;
	return use_root(env, job);
}

/* ---- PMIx: Open MPI's mpirun, PRRTE, srun --mpi=pmix ----------------------------------------- */

static int describe_pmix(const struct tt_env *env, struct tt_job *job)
{
	static const char all[] = "PMIX_NAMESPACE and PMIX_RANK";
	int rc;

	if (!getenv("PMIX_NAMESPACE") && !getenv("PMIX_RANK") && !getenv("OMPI_COMM_WORLD_RANK"))
		return 0;
	if (!getenv("PMIX_NAMESPACE"))
		return half_set("PMIx", "PMIX_NAMESPACE", all);
	job->rank = number("PMIX_RANK");
	if (job->rank < 0)
		return half_set("PMIx", "PMIX_RANK", all);
	job->nranks = number("OMPI_COMM_WORLD_SIZE");
	if (job->nranks < 0)
		job->nranks = 0;
	if (job->nranks && (rc = check(job, "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", all)) < 0)
		return rc;
	job->local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
	job->local_nranks = number("OMPI_COMM_WORLD_LOCAL_SIZE");
	snprintf(job->name, sizeof(job->name), "pmix %.200s", getenv("PMIX_NAMESPACE"));
	job->store = &tt_store_pmix;
	return use_root(env, job);
}

/* ---- PMI-1: Hydra of MPICH and of Intel MPI -------------------------------------------------- */

static int describe_pmi(const struct tt_env *env, struct tt_job *job)
{
	static const char all[] = "PMI_FD, PMI_RANK and PMI_SIZE";
	int rc;

	if (!getenv("PMI_RANK") && !getenv("PMI_FD"))
		return 0;
	job->rank = number("PMI_RANK");
	job->nranks = number("PMI_SIZE");
	job->local_rank = number("MPI_LOCALRANKID");
	job->local_nranks = number("MPI_LOCALNRANKS");
	if ((rc = check(job, "PMI_RANK", "PMI_SIZE", all)) < 0)
		return rc;
	if (number("PMI_FD") < 0)
		return half_set("PMI-1", "PMI_FD", all);
	snprintf(job->name, sizeof(job->name), "pmi");
	job->store = &tt_store_pmi;
	return use_root(env, job);
}

/* ---- Slurm without PMIx ---------------------------------------------------------------------- */

/* The first host of "node[01-03,07],other3", which is rank 0's. */
static void first_host(const char *list, char *host, size_t room)
{
	size_t plain = strcspn(list, "[,"), digits = 0;

	if (list[plain] == '[')
		digits = strspn(list + plain + 1, "0123456789");
	snprintf(host, room, "%.*s%.*s", (int)plain, list, (int)digits, list + plain + 1);
	/* the text after the brackets belongs to the name: "n[1-2]-ib" */
	if (list[plain] == '[') {
		const char *close = strchr(list, ']');
		size_t have = strlen(host);

		if (close && have < room)
			snprintf(host + have, room - have, "%.*s", (int)strcspn(close + 1, ","),
				 close + 1);
	}
}

/* Does another launcher, which Slurm started, pass Slurm's variables on to its ranks? Then the
 * variables do not describe these ranks. */
static bool is_inherited(void)
{
	int task = number("SLURM_TASK_PID");

	return task >= 0 && task != (int)getpid() &&
	       (getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("RANK") ||
		getenv("TUTTI_RANK"));
}

static int describe_slurm(const struct tt_env *env, struct tt_job *job)
{
	static const char all[] =
		"SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_JOB_ID and SLURM_STEP_ID";
	const char *nodes = getenv("SLURM_STEP_NODELIST");
	/* "12000-12003", where Slurm reserves ports */
	const char *reserved = getenv("SLURM_STEP_RESV_PORTS");
	/* Slurm's ids are of 32 bits without sign: those of a federation need all */
	long id = number_up_to("SLURM_JOB_ID", UINT32_MAX),
	     step = number_up_to("SLURM_STEP_ID", UINT32_MAX);
	long ports = reserved ? strtol(reserved, NULL, 10) : 0;
	int rc;

	/* a batch script has Slurm's variables too, but is not a task of a step */
	if (!getenv("SLURM_STEP_NUM_TASKS") || !getenv("SLURM_PROCID") || is_inherited())
		return 0;
	job->rank = number("SLURM_PROCID");
	job->nranks = number("SLURM_STEP_NUM_TASKS");
	job->local_rank = number("SLURM_LOCALID");
	if ((rc = check(job, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", all)) < 0)
		return rc;
	if (!nodes)
		return half_set("Slurm", "SLURM_STEP_NODELIST", all);
	if (id < 0 || step < 0)
		return half_set("Slurm", id < 0 ? "SLURM_JOB_ID" : "SLURM_STEP_ID", all);
	if (ports > 65536 - ROOT_PORTS)
		return half_set("Slurm", "SLURM_STEP_RESV_PORTS", all);
	first_host(nodes, job->host, sizeof(job->host));
	snprintf(job->name, sizeof(job->name), "slurm %ld.%ld", id, step);
	job->port = ports > 0 ? (int)ports
			      : SLURM_FIRST_PORT + (int)((id * 64 + step * 8) % SLURM_PORTS);
	job->nports = ROOT_PORTS;
	job->one_host = number("SLURM_STEP_NUM_NODES") == 1;
	if (job->one_host)
		job->local_nranks = job->nranks;
	job->on_root_host = job->one_host || number("SLURM_NODEID") == 0;
	job->epoch = number("SLURM_RESTART_COUNT") > 0 ? number("SLURM_RESTART_COUNT") : 0;
	job->store = job->one_host ? &tt_store_local : NULL;
	return use_root(env, job);
}

/* ---- Kubernetes: an indexed Job behind a headless service ------------------------------------ */

/* This pod is JOB-INDEX.SERVICE...; rank 0's pod has INDEX 0. "": this pod has another form of name */
static void pod_of_root(int index, char *host, size_t room)
{
	struct addrinfo hints = { .ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM },
			*all = NULL;
	char name[256] = "", end[16];
	const char *full = name, *dot;

	gethostname(name, sizeof(name) - 1);
	if (!getaddrinfo(name, NULL, &hints, &all) && all->ai_canonname)
		full = all->ai_canonname;
	snprintf(end, sizeof(end), "-%d", index);
	dot = full + strcspn(full, ".");
	host[0] = '\0';
	if ((size_t)(dot - full) > strlen(end) && !strncmp(dot - strlen(end), end, strlen(end)) &&
	    *dot)
		snprintf(host, room, "%.*s-0%s", (int)(dot - full - (long)strlen(end)), full, dot);
	if (all)
		freeaddrinfo(all);
}

static int describe_kubernetes(const struct tt_env *env, struct tt_job *job)
{
	static const char all[] = "JOB_COMPLETION_INDEX and TUTTI_NRANKS (the Job's completions)";
	int rc;

	if (!getenv("JOB_COMPLETION_INDEX") || env->rank >= 0)
		return 0;
	job->rank = number("JOB_COMPLETION_INDEX");
	job->nranks = (int)env->nranks;
	if ((rc = check(job, "JOB_COMPLETION_INDEX", "TUTTI_NRANKS", all)) < 0)
		return rc;
	job->on_root_host = job->rank == 0;
	if (*env->root)
		return use_root(env, job);
	pod_of_root(job->rank, job->host, sizeof(job->host));
	if (!job->host[0] && job->rank && job->nranks > 1)
		return tt_fail(
			TT_USAGE,
			"rank %d: kubernetes: this pod's name does not lead to rank 0's pod; set TUTTI_ROOT to "
			"JOB-0.SERVICE:29500, and subdomain: SERVICE in the Job's template",
			job->rank);
	snprintf(job->name, sizeof(job->name), "kubernetes");
	job->port = 29500;
	return 1;
}

const struct tt_launcher tt_launchers[] = { { "tutti", describe_tutti },
					    { "torchrun", describe_torchrun },
					    { "pmix", describe_pmix },
					    { "pmi", describe_pmi },
					    { "slurm", describe_slurm },
					    { "kubernetes", describe_kubernetes },
					    { NULL, NULL } };
