/*
 * nccl_environment.c - translate NCCL_ variables
 *
 * Called by nccl_init.c and nccl_config.c; base/env.c calls fallback for the value of a TUTTI_
 * variable that is not set. NCCL_ variables without a counterpart are named once, in one line of
 * the log's level info, and have no effect. The environment itself is not changed.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/nccl_layer.h"

/* The time-out if TUTTI_TIMEOUT_MS is not set: training programs wait for each other for minutes
 * (data, checkpoints, compilers) and have their own watchdogs; NCCL never times out. */
#define TIMEOUT_MS 1800000

static struct nccl_environment values;

/* Values outside the range are ignored: NCCL takes its default then, too. */
static const struct {
	const char *ours, *theirs;
	long low, high;
} numbers[] = {
	{ "TUTTI_IB_GID_INDEX", "NCCL_IB_GID_INDEX", 0, 255 },
	{ "TUTTI_IB_TIMEOUT", "NCCL_IB_TIMEOUT", 1, 31 },
	{ "TUTTI_IB_RETRIES", "NCCL_IB_RETRY_CNT", 0, 7 },
	{ "TUTTI_IB_SL", "NCCL_IB_SL", 0, 255 },
	{ "TUTTI_IB_TC", "NCCL_IB_TC", 0, 255 },
};
#define NNUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static const char *text_of(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static bool is(const char *name, const char *value)
{
	const char *text = text_of(name);

	return text && !strcasecmp(text, value);
}

static const char *number_for(const char *name)
{
	for (size_t i = 0; i < NNUMBERS; i++) {
		const char *text = strcmp(numbers[i].ours, name) ? NULL
								 : text_of(numbers[i].theirs);
		char *end;
		long value = text ? strtol(text, &end, 10) : -1;

		if (text && !*end && value >= numbers[i].low && value <= numbers[i].high)
			return text;
	}
	return NULL;
}

/* NCCL_IB_HCA without ports: NCCL takes a port behind each name, Tutti uses every port. */
static const char *hca_names(void)
{
	static __thread char names[256];
	const char *from = text_of("NCCL_IB_HCA");
	size_t n = 0;

	if (is("NCCL_IB_DISABLE", "1") || is("NCCL_NET", "Socket"))
		return "=none"; /* no HCA has that name */
	if (!from || strlen(from) >= sizeof(names))
		return NULL;
	for (; *from; from += *from == ':' ? strcspn(from, ",") : 1)
		if (*from != ':')
			names[n++] = *from;
	names[n] = '\0';
	return names;
}

/* NCCL serves its RAS clients unless NCCL_RAS_ENABLE is 0; Tutti only if one of the two variables asks
 * for it, and only at an address of this host. */
static const char *ras_address(void)
{
	const char *address = text_of("NCCL_RAS_ADDR");

	if (is("NCCL_RAS_ENABLE", "0") || (!address && !text_of("NCCL_RAS_ENABLE")))
		return NULL;
	if (!address)
		return "localhost:28028";
	return tt_env_is_valid("TUTTI_RAS", address) ? address : NULL;
}

static void warn_of_ras(void)
{
	const char *address = text_of("NCCL_RAS_ADDR");

	if (address && !is("NCCL_RAS_ENABLE", "0") && !ras_address())
		tt_log(TT_LOG_WARN,
		       "NCCL_RAS_ADDR=%s is ignored: use localhost:port, since RAS clients need no secret",
		       address);
}

static const char *fallback(const char *name)
{
	if (!strcmp(name, "TUTTI_SOCKET_IFNAME"))
		return text_of("NCCL_SOCKET_IFNAME");
	if (!strcmp(name, "TUTTI_IB_HCA"))
		return hca_names();
	if (!strcmp(name, "TUTTI_RAS"))
		return ras_address();
	if (!strcmp(name, "TUTTI_GPU"))
		return is("NCCL_P2P_DISABLE", "1") || is("NCCL_P2P_LEVEL", "LOC") ? "staged" : NULL;
	return number_for(name);
}

/* With NCCL_DEBUG=VERSION users find out which file they really run. */
static void log_version(void)
{
	Dl_info here = { 0 };

	tt_log(TT_LOG_INFO, "NCCL version %d.%d.%d is provided by Tutti %d.%d.%d, %s", NCCL_MAJOR,
	       NCCL_MINOR, NCCL_PATCH, TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH,
	       dladdr(&values, &here) && here.dli_fname ? here.dli_fname : "in this program");
}

/* Translates NCCL_DEBUG into a level of TUTTI_LOG. Each of NCCL's levels logs the version. */
static void set_log(void)
{
	static const struct {
		const char *name;
		int level;
	} levels[] = {
		{ "VERSION", 0 },
		{ "WARN", TT_LOG_WARN },
		{ "INFO", TT_LOG_INFO },
		{ "TRACE", TT_LOG_DEBUG },
	};
	const char *debug = getenv("TUTTI_LOG") ? NULL : getenv("NCCL_DEBUG");
	int level = -1;

	for (size_t i = 0; debug && i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcasecmp(debug, levels[i].name))
			level = levels[i].level;
	if (level >= 0)
		tt_log_set(TT_LOG_INFO);
	log_version();
	if (level >= 0)
		tt_log_set(level);
}

static bool has_meaning(const char *name, size_t length)
{
	static const char *const known[] = {
		"NCCL_SOCKET_IFNAME", "NCCL_DEBUG",      "NCCL_COMM_ID",  "NCCL_COMM_BLOCKING",
		"NCCL_IB_HCA",        "NCCL_IB_DISABLE", "NCCL_NET",      "NCCL_P2P_DISABLE",
		"NCCL_P2P_LEVEL",     "NCCL_RAS_ENABLE", "NCCL_RAS_ADDR",
	};
	bool found = false;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		found |= strlen(known[i]) == length && !strncmp(name, known[i], length);
	for (size_t i = 0; i < NNUMBERS; i++)
		found |= strlen(numbers[i].theirs) == length &&
			 !strncmp(name, numbers[i].theirs, length);
	return found;
}

/* Names all ignored variables in one line, since there may be dozens of them on each of many
 * ranks. */
static void log_ignored(void)
{
	char names[1000] = "";
	size_t n = 0;

	for (char **entry = environ; entry && *entry; entry++) {
		size_t length = strcspn(*entry, "=");

		if (strncmp(*entry, "NCCL_", 5) || has_meaning(*entry, length) ||
		    n + length + 3 > sizeof(names))
			continue;
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%.*s", n ? ", " : "",
				      (int)length, *entry);
	}
	if (n)
		tt_log(TT_LOG_INFO,
		       "not read by Tutti: %s (tutti-nccl(7) lists the variables that are)", names);
}

static void read_once(void)
{
	values.blocking = is("NCCL_COMM_BLOCKING", "0")   ? 0
			  : is("NCCL_COMM_BLOCKING", "1") ? 1
							  : -1;
	values.root = text_of("NCCL_COMM_ID");
	values.timeout_ms = getenv("TUTTI_TIMEOUT_MS") ? 0 : TIMEOUT_MS;
	tt_env_fallback = fallback;
	set_log();
	warn_of_ras();
	log_ignored();
}

const struct nccl_environment *nccl_environment(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	return &values;
}
