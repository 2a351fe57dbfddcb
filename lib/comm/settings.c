/*
 * settings.c - settings of a communicator: from config, else the parent (of a split), else
 * environment
 *
 * Called by comm.c, split.c and shrink.c. Texts are copied, because the environment may change.
 */
#include <stdio.h>
#include <string.h>

#include "base/sock.h"
#include "comm/comm_internal.h"

/* Checks that some collective has an algorithm of this name. Other collectives choose
 * automatically. */
static int check_algorithm(const char *name)
{
	bool known = !strcmp(name, "auto");

	/* allreduce last: the error text lists its names */
	for (int i = TT_COLLECTIVES - 1; i >= 0 && !known; i--)
		known = tt_algorithm_find((enum tt_collective)i, name) != NULL;
	return known ? 0 : TT_ARG;
}

static int set_names(tuttiComm_t c, const char *transport, const char *algo)
{
	if (snprintf(c->settings.transport, sizeof(c->settings.transport), "%s", transport) >=
	    (int)sizeof(c->settings.transport))
		return tt_fail(TT_ARG,
			       "transport \"%s\" is not known; use auto, shm, verbs, tcp or self",
			       transport);
	if (snprintf(c->settings.algo, sizeof(c->settings.algo), "%s", algo) >=
	    (int)sizeof(c->settings.algo))
		return tt_fail(TT_ARG, "algorithm \"%s\" is not known; `tutti info` lists them",
			       algo);
	return check_algorithm(c->settings.algo);
}

static void set_ib(tuttiComm_t c, const struct tt_env *env)
{
	snprintf(c->settings.ib_devices, sizeof(c->settings.ib_devices), "%s", env->ib_hca);
	c->settings.ib = (struct tt_verbs_settings){
		.devices = c->settings.ib_devices,
		.gid_index = (int)env->ib_gid_index,
		.timeout = (int)env->ib_timeout,
		.retries = (int)env->ib_retries,
		.service_level = (int)env->ib_sl,
		.traffic_class = (int)env->ib_tc,
		.registrations = (int)env->ib_registrations,
		.registered_bytes = (size_t)env->ib_registered_mb << 20,
	};
}

static int encrypt_of(const char *value)
{
	if (!strcmp(value, "on"))
		return TT_ENCRYPT_ON;
	return !strcmp(value, "off") ? TT_ENCRYPT_OFF : TT_ENCRYPT_AUTO;
}

int tt_comm_settings(tuttiComm_t c, const struct tuttiComm *parent, const tuttiConfig_t *config,
		     struct tt_env *ret_env)
{
	const tuttiConfig_t asked = config ? *config : (tuttiConfig_t)TUTTI_CONFIG_INITIALIZER;
	const char *transport, *algo;
	int rc = tt_env_read(ret_env);

	tt_sock_guard_standard_streams();
	if (rc)
		return rc;
	transport = parent ? parent->settings.transport : ret_env->transport;
	algo = parent ? parent->settings.algo : ret_env->algo;
	c->settings.timeout_ms = parent ? parent->settings.timeout_ms
					: (uint32_t)ret_env->timeout_ms;
	c->settings.tile_bytes = parent ? parent->settings.tile_bytes : (size_t)ret_env->tile_bytes;
	c->settings.majority = parent ? parent->settings.majority
				      : !strcmp(ret_env->shrink, "majority");
	c->settings.encrypt = parent ? parent->settings.encrypt : encrypt_of(ret_env->encrypt);
	if (asked.timeout_ms > 0)
		c->settings.timeout_ms = (uint32_t)asked.timeout_ms;
	rc = set_names(c, asked.transport ? asked.transport : transport,
		       asked.algo ? asked.algo : algo);
	if (rc)
		return rc;
	snprintf(c->settings.name, sizeof(c->settings.name), "%s", asked.name ? asked.name : "");
	c->settings.cma = !strcmp(ret_env->cma, "off") ? TT_CMA_OFF : TT_CMA_AUTO;
	if (!strcmp(ret_env->cma, "on"))
		c->settings.cma = TT_CMA_ON;
	set_ib(c, ret_env);
	return tt_reduce_isa_set(ret_env->isa);
}

int tt_comm_fault(tuttiComm_t c, const char *fault)
{
	static const char *const kinds[] = { "kill", "stop", "exit" };
	char what[8];
	int rank;
	unsigned long long step;

	c->fault.what = NULL;
	if (!fault || !*fault)
		return 0;
	if (sscanf(fault, "%7[a-z]@%d:%llu", what, &rank, &step) != 3)
		return tt_fail(
			TT_ARG,
			"TUTTI_FAULT=%s: want kill@RANK:STEP, stop@RANK:STEP or exit@RANK:STEP",
			fault);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(what, kinds[i]) && rank == c->rank)
			c->fault.what = kinds[i];
	c->fault.step = step;
	return 0;
}
