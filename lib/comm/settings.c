/*
 * settings.c - settings of a communicator: from config, else the parent (of a split), else
 * environment
 *
 * Called by comm.c, split.c and shrink.c. Texts are copied, because the environment may change.
 */
#include <stdio.h>
#include <string.h>

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
	if (snprintf(c->transport, sizeof(c->transport), "%s", transport) >=
	    (int)sizeof(c->transport))
		return tt_fail(TT_ARG,
			       "transport \"%s\" is not known; use auto, shm, verbs, tcp or self",
			       transport);
	if (snprintf(c->algo, sizeof(c->algo), "%s", algo) >= (int)sizeof(c->algo))
		return tt_fail(TT_ARG, "algorithm \"%s\" is not known; `tutti info` lists them",
			       algo);
	return check_algorithm(c->algo);
}

static void set_ib(tuttiComm_t c, const struct tt_env *env)
{
	snprintf(c->ib_devices, sizeof(c->ib_devices), "%s", env->ib_hca);
	c->ib = (struct tt_verbs_settings){
		.devices = c->ib_devices,
		.gid_index = (int)env->ib_gid_index,
		.timeout = (int)env->ib_timeout,
		.retries = (int)env->ib_retries,
		.service_level = (int)env->ib_sl,
		.traffic_class = (int)env->ib_tc,
		.registrations = (int)env->ib_registrations,
		.registered_bytes = (size_t)env->ib_registered_mb << 20,
	};
}

int tt_comm_settings(tuttiComm_t c, const struct tuttiComm *parent, const tuttiConfig_t *config,
		     struct tt_env *ret_env)
{
	const tuttiConfig_t asked = config ? *config : (tuttiConfig_t)TUTTI_CONFIG_INITIALIZER;
	const char *transport, *algo;
	int rc = tt_env_read(ret_env);

	if (rc)
		return rc;
	transport = parent ? parent->transport : ret_env->transport;
	algo = parent ? parent->algo : ret_env->algo;
	c->timeout_ms = parent ? parent->timeout_ms : (uint32_t)ret_env->timeout_ms;
	c->tile_bytes = parent ? parent->tile_bytes : (size_t)ret_env->tile_bytes;
	if (asked.timeout_ms > 0)
		c->timeout_ms = (uint32_t)asked.timeout_ms;
	rc = set_names(c, asked.transport ? asked.transport : transport,
		       asked.algo ? asked.algo : algo);
	if (rc)
		return rc;
	snprintf(c->name, sizeof(c->name), "%s", asked.name ? asked.name : "");
	c->cma = !strcmp(ret_env->cma, "off") ? TT_CMA_OFF : TT_CMA_AUTO;
	if (!strcmp(ret_env->cma, "on"))
		c->cma = TT_CMA_ON;
	set_ib(c, ret_env);
	return tt_reduce_isa_set(ret_env->isa);
}

int tt_comm_fault(tuttiComm_t c, const char *fault)
{
	static const char *const kinds[] = { "kill", "stop", "exit" };
	char what[8];
	int rank;
	unsigned long long step;

	c->fault_what = NULL;
	if (!fault || !*fault)
		return 0;
	if (sscanf(fault, "%7[a-z]@%d:%llu", what, &rank, &step) != 3)
		return tt_fail(TT_ARG,
			"TUTTI_FAULT=%s: want kill@RANK:STEP, stop@RANK:STEP or exit@RANK:STEP",
			fault);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(what, kinds[i]) && rank == c->rank)
			c->fault_what = kinds[i];
	c->fault_step = step;
	return 0;
}
