/*
 * env.c - the TUTTI_ variables: one table, and the reader that checks a whole environment against
 * the table
 *
 * Called once by each tuttiCommInit* (tt_env_read) and by `tutti info` (the table). A new variable
 * is a row here and a field of struct tt_env.
 */
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- syntax of text values ------------------------------------------------------------------- */

/* Digits only, within low..high. */
static bool whole_number(const char *text, int64_t low, int64_t high, int64_t *ret_value)
{
	long long value;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || *end || value < low || value > high)
		return false;
	*ret_value = value;
	return true;
}

/* NCCL's syntax: [^][=]name,name ... each a prefix, or with = a whole name. A name has 1 to 15 bytes
 * in Linux. */
static bool valid_ifname(const char *value)
{
	size_t bytes;

	value += *value == '^';
	value += *value == '=';
	for (;; value += bytes + 1) {
		bytes = strcspn(value, ",");
		if (bytes < 1 || bytes > 15)
			return false;
		for (size_t i = 0; i < bytes; i++)
			if (!isgraph((unsigned char)value[i]) || strchr("/^=", value[i]))
				return false;
		if (!value[bytes])
			return true;
	}
}

static bool valid_fault(const char *value)
{
	static const char *const verbs[] = { "kill@", "stop@", "exit@" };
	char rank[12];
	int64_t number;
	size_t digits;
	bool known = false;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		known |= !strncmp(value, verbs[i], strlen(verbs[i]));
	if (!known)
		return false;
	value += strlen("kill@");
	digits = strcspn(value, ":");
	if (digits >= sizeof(rank) || value[digits] != ':')
		return false;
	memcpy(rank, value, digits);
	rank[digits] = '\0';
	return whole_number(rank, 0, INT_MAX, &number) &&
	       whole_number(value + digits + 1, 0, INT64_MAX, &number);
}

static bool valid_root(const char *value)
{
	const char *colon = strrchr(value, ':');
	int64_t port;

	if (!strncmp(value, "file:/", 6))
		return value[6] != '\0';
	if (!colon || colon == value || !whole_number(colon + 1, 1, 65535, &port))
		return false;
	if (value[0] == '[')
		return colon - value > 2 && colon[-1] == ']';
	return memchr(value, ':', (size_t)(colon - value)) == NULL;
}

/* NCCL's service has no authentication, so that only programs of this host may reach it. */
static bool valid_ras(const char *value)
{
	const char *colon = strrchr(value, ':');
	size_t bytes = colon ? (size_t)(colon - value) : 0;
	int64_t port;

	return colon && whole_number(colon + 1, 1, 65535, &port) &&
	       ((bytes == 9 && !memcmp(value, "localhost", 9)) ||
		(bytes == 9 && !memcmp(value, "127.0.0.1", 9)) ||
		(bytes == 5 && !memcmp(value, "[::1]", 5)));
}

/* first-last */
static bool valid_ports(const char *value)
{
	size_t digits = strspn(value, "0123456789");
	int64_t first, last;
	char low[8];

	if (digits >= sizeof(low) || value[digits] != '-')
		return false;
	memcpy(low, value, digits);
	low[digits] = '\0';
	return whole_number(low, 1, 65535, &first) &&
	       whole_number(value + digits + 1, first, 65535, &last);
}

const char *(*tt_env_fallback)(const char *name);

/* ---- the reader ------------------------------------------------------------------------------ */

/* Levenshtein's edit distance; 64 for names longer than every row's. */
static int distance(const char *a, const char *b)
{
	int row[64], columns = (int)strlen(b);

	if (columns >= 64 || strlen(a) >= 64)
		return 64;
	for (int j = 0; j <= columns; j++)
		row[j] = j;
	for (int i = 1; a[i - 1]; i++) {
		int diagonal = row[0];

		row[0] = i;
		for (int j = 1; j <= columns; j++) {
			int best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (diagonal + 1 < best)
				best = diagonal + 1;
			row[j] = best;
		}
	}
	return row[columns];
}

/* A misspelled variable would be ignored silently, so a name outside the table is an error. */
static int check_name(const char *entry)
{
	size_t bytes = strcspn(entry, "=");
	const char *nearest = NULL;
	int least = INT_MAX;
	char name[64];

	if (strncmp(entry, "TUTTI_", 6) || !strncmp(entry, "TUTTI_TEST_", 11) || !entry[bytes])
		return TT_OK;
	snprintf(name, sizeof(name), "%.*s", (int)(bytes < sizeof(name) ? bytes : sizeof(name)),
		 entry);
	for (size_t i = 0; i < tt_env_rows; i++) {
		int far = distance(name, tt_env_table[i].name);

		if (!far)
			return TT_OK;
		if (far < least) {
			least = far;
			nearest = tt_env_table[i].name;
		}
	}
	return tt_fail(TT_ARG, "environment: there is no variable %s; the nearest is %s", name,
		       nearest);
}

static bool among(const char *value, const char *choices)
{
	size_t bytes = strlen(value);

	for (const char *word = choices; *word; word += strspn(word, " ")) {
		size_t length = strcspn(word, " ");

		if (length == bytes && !memcmp(word, value, bytes))
			return true;
		word += length;
	}
	return false;
}

static bool valid_number(const struct tt_env_row *row, const char *value, int64_t *ret_number)
{
	long long low = 0, high = 0;

	sscanf(row->choices, "%lld..%lld", &low, &high);
	if (whole_number(value, low, high, ret_number))
		return true;
	/* The default may lie outside the range: 0 is "choose". */
	return !strcmp(value, row->fallback) && whole_number(value, 0, INT64_MAX, ret_number);
}

static int read_row(const struct tt_env_row *row, struct tt_env *env)
{
	static const char *const kinds[] = { "", "a number ", "one of " };
	const char *given = getenv(row->name), *value;
	void *field = (char *)env + row->offset;
	int64_t number = -1;
	bool good = true;
	int rc = TT_OK;

	if (!given && tt_env_fallback)
		given = tt_env_fallback(row->name);
	value = given ? given : row->fallback;
	if (row->kind == TT_ENV_NUMBER)
		good = (!given && !*value) || valid_number(row, value, &number);
	else if (given && row->kind == TT_ENV_CHOICE)
		good = among(value, row->choices);
	else if (given)
		good = *value && (!row->valid || row->valid(value));
	if (!good && given && !*given)
		rc = tt_fail(TT_ARG, "environment: %s is set, but empty; unset it, or use %s%s",
			     row->name, kinds[row->kind], row->choices);
	else if (!good)
		rc = tt_fail(TT_ARG, "environment: %s is '%.100s'; allowed is %s%s%s", row->name,
			     value, kinds[row->kind], row->choices,
			     row->kind == TT_ENV_NUMBER && *row->fallback == '0' ? ", or 0" : "");
	if (!good && row->kind == TT_ENV_NUMBER)
		valid_number(row, row->fallback, &number);
	if (row->kind == TT_ENV_NUMBER)
		*(int64_t *)field = number;
	else
		*(const char **)field = good ? value : row->fallback;
	return rc;
}

int tt_env_read(struct tt_env *ret_env)
{
	char first[512] = "";
	int rc = TT_OK;

	for (char **entry = environ; !rc && entry && *entry; entry++)
		rc = check_name(*entry);
	if (rc)
		snprintf(first, sizeof(first), "%s", tt_error_text());
	for (size_t i = 0; i < tt_env_rows; i++)
		if (read_row(&tt_env_table[i], ret_env) && !rc) {
			rc = TT_ARG;
			snprintf(first, sizeof(first), "%s", tt_error_text());
		}
	return rc ? tt_fail(rc, "%s", first) : TT_OK;
}

bool tt_env_is_valid(const char *name, const char *value)
{
	for (size_t i = 0; i < tt_env_rows; i++)
		if (!strcmp(tt_env_table[i].name, name))
			return *value && (!tt_env_table[i].valid || tt_env_table[i].valid(value));
	return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define AT(field) .offset = offsetof(struct tt_env, field)

const struct tt_env_row tt_env_table[] = {
	{ "TUTTI_TRANSPORT", TT_ENV_CHOICE, "auto", "auto shm verbs tcp self", .agree = true,
	  AT(transport), .help = "transport of data between ranks" },
	{ "TUTTI_ALGO", TT_ENV_TEXT, "auto", "auto or the name of an algorithm", .agree = true,
	  AT(algo), .help = "algorithm of every allreduce" },
	{ "TUTTI_TIMEOUT_MS", TT_ENV_NUMBER, "30000", "1..2147483647", AT(timeout_ms),
	  .help = "deadline of every operation, in milliseconds" },
	{ "TUTTI_LOG", TT_ENV_CHOICE, "none", "none error warn info debug", AT(log),
	  .help = "least severe messages of the library on stderr" },
	{ "TUTTI_SOCKET_IFNAME", TT_ENV_TEXT, "",
	  "a list like eth,ib (prefixes), =eth0 (names) or ^docker,lo (all but)", AT(ifname),
	  .valid = valid_ifname, .help = "network interfaces to use" },
	{ "TUTTI_IB_HCA", TT_ENV_TEXT, "",
	  "a list like mlx5,rxe (prefixes), =mlx5_0 (names) or ^mlx4 (all but)", AT(ib_hca),
	  .valid = valid_ifname, .help = "InfiniBand and RoCE adapters (HCAs) to use" },
	{ "TUTTI_IB_GID_INDEX", TT_ENV_NUMBER, "", "0..255", AT(ib_gid_index),
	  .help = "GID index of this host's HCAs; unset: by address family and subnet" },
	{ "TUTTI_IB_TIMEOUT", TT_ENV_NUMBER, "16", "1..31", AT(ib_timeout),
	  .help = "ACK timeout of a queue pair: 4.096 us << this" },
	{ "TUTTI_IB_RETRIES", TT_ENV_NUMBER, "7", "0..7", AT(ib_retries),
	  .help = "retransmissions before a queue pair fails" },
	{ "TUTTI_IB_SL", TT_ENV_NUMBER, "0", "0..15", AT(ib_sl),
	  .help = "InfiniBand service level" },
	{ "TUTTI_IB_TC", TT_ENV_NUMBER, "0", "0..255", AT(ib_tc), .help = "RoCE traffic class" },
	{ "TUTTI_IB_REGISTRATIONS", TT_ENV_NUMBER, "256", "0..65536", AT(ib_registrations),
	  .help = "user buffers in the registration cache; 0: large messages are copied" },
	{ "TUTTI_IB_REGISTERED_MB", TT_ENV_NUMBER, "0", "1..1073741824", AT(ib_registered_mb),
	  .help = "MiB of user buffers in the registration cache; 0: no limit" },
	{ "TUTTI_PORT_RANGE", TT_ENV_TEXT, "", "first-last, such as 50000-50099", AT(ports),
	  .valid = valid_ports, .help = "ports to listen at, for firewalls" },
	{ "TUTTI_ENCRYPT", TT_ENV_CHOICE, "auto", "auto on off", .agree = true, AT(encrypt),
	  .help = "encryption of data over tcp: between hosts, always, never" },
	{ "TUTTI_ISA", TT_ENV_CHOICE, "auto", "auto scalar avx2 avx512", AT(isa),
	  .help = "instruction set of the reduce kernels; never changes a result" },
	{ "TUTTI_WAIT", TT_ENV_CHOICE, "auto", "auto spin yield sleep", AT(wait),
	  .help = "how a waiting rank polls: spin, sched_yield or sleep" },
	{ "TUTTI_CMA", TT_ENV_CHOICE, "auto", "auto on off", AT(cma),
	  .help = "single copy of ordinary memory by process_vm_readv: if faster, if possible, never" },
	{ "TUTTI_GPU", TT_ENV_CHOICE, "auto", "auto fifo staged off", .agree = true, AT(gpu),
	  .help = "calls on device memory: by GPU kernels if possible, with a FIFO on a shared GPU too, staged through the host, never" },
	{ "TUTTI_GPUDIRECT", TT_ENV_CHOICE, "auto", "auto off", AT(gpudirect),
	  .help = "GPUDirect RDMA to registered device memory, by dma-buf" },
	{ "TUTTI_TILE_BYTES", TT_ENV_NUMBER, "0", "4096..16777216", .agree = true, AT(tile_bytes),
	  .help = "bytes of a tile, the unit of pipelining; 0: choose" },
	{ "TUTTI_TUNING", TT_ENV_TEXT, "", "a file that `tutti tune` wrote", AT(tuning),
	  .help = "cost table for the choice of algorithms; rank 0's applies to all ranks" },
	{ "TUTTI_TRACE", TT_ENV_TEXT, "", "a folder", AT(trace),
	  .help = "folder for the files of the flight recorder; `tutti trace` reads them" },
	{ "TUTTI_METRICS", TT_ENV_TEXT, "", "a folder", AT(metrics),
	  .help = "folder for files of counters, for node_exporter's textfile collector" },
	{ "TUTTI_RAS", TT_ENV_TEXT, "", "localhost:port, 127.0.0.1:port or [::1]:port", AT(ras),
	  .valid = valid_ras,
	  .help = "address for NCCL's RAS clients: localhost:28028 is NCCL's own" },
	{ "TUTTI_TOP", TT_ENV_TEXT, "", "a folder", AT(top),
	  .help = "folder for the unique id of each job, secret included, by which `tutti top` finds the job" },
	{ "TUTTI_SHRINK", TT_ENV_CHOICE, "any", "any majority", .agree = true, AT(shrink),
	  .help = "survivors that tuttiCommShrink accepts: any, or more than half of the ranks" },
	{ "TUTTI_HOST_ID", TT_ENV_TEXT, "", "any text", AT(host_id),
	  .help = "ranks with equal text are on one host (replaces detection)" },
	{ "TUTTI_MPI_STATS", TT_ENV_CHOICE, "0", "0 1", AT(mpi_stats),
	  .help = "MPI programs: print at the end which calls Tutti took, and their times" },
	{ "TUTTI_FAULT", TT_ENV_TEXT, "", "kill@RANK:STEP, stop@RANK:STEP or exit@RANK:STEP",
	  AT(fault), .valid = valid_fault,
	  .help = "for tests: the rank dies, stops or exits before this step of a plan" },
	{ "TUTTI_ROOT", TT_ENV_TEXT, "", "host:port, [address]:port or file:/path", AT(root),
	  .valid = valid_root,
	  .help = "address of rank 0, or a file for the address (tuttiCommInitEnv)" },
	{ "TUTTI_SECRET", TT_ENV_TEXT, "", "any text", AT(secret),
	  .help = "secret shared by all ranks of the job (tuttiCommInitEnv)" },
	{ "TUTTI_SECRET_FILE", TT_ENV_TEXT, "", "a path", AT(secret_file),
	  .help = "file with the secret (tuttiCommInitEnv)" },
	{ "TUTTI_RANK", TT_ENV_NUMBER, "", "0..2147483646", AT(rank),
	  .help = "this process's rank (tuttiCommInitEnv)" },
	{ "TUTTI_NRANKS", TT_ENV_NUMBER, "", "1..2147483647", AT(nranks),
	  .help = "number of ranks (tuttiCommInitEnv)" },
	{ "TUTTI_LAUNCH", TT_ENV_CHOICE, "auto",
	  "auto tutti torchrun pmix pmi slurm kubernetes alone", AT(launch),
	  .help = "launcher that started this process (tuttiCommInitEnv)" },
	{ "TUTTI_LIBRARY", TT_ENV_TEXT, "", "path of libtutti.so.0", AT(library),
	  .help = "library that the Python package loads" },
	{ "TUTTI_TAKES_GLOO", TT_ENV_NUMBER, "0", "0..1", AT(takes_gloo),
	  .help = "1: the backend gloo of torch.distributed means tutti" },
};
const size_t tt_env_rows = sizeof(tt_env_table) / sizeof(tt_env_table[0]);
