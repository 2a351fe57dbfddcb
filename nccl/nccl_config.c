/*
 * nccl_config.c - read an ncclConfig_t of any version since 2.14
 *
 * Called by nccl_init.c. A field is read only if the caller's header had it, since the padding of a
 * shorter config has any content. Fields that control NCCL's kernels and channels are checked and
 * have no effect.
 */
#include <stdio.h>
#include <string.h>

#include "nccl/nccl_layer.h"

static const struct {
	const char *name;
	size_t offset;
	unsigned since;
	int low, high;
} fields[] = {
#define FIELD(member, since, low, high)                                   \
	{                                                                 \
#member, offsetof(ncclConfig_t, member), since, low, high \
	}
	FIELD(blocking, 21400, 0, 1),           FIELD(cgaClusterSize, 21700, 0, INT_MAX),
	FIELD(minCTAs, 21700, 1, INT_MAX),      FIELD(maxCTAs, 21700, 1, INT_MAX),
	FIELD(splitShare, 21800, 0, 1),         FIELD(collnetEnable, 22700, 0, 1),
	FIELD(CTAPolicy, 22700, 0, 3),          FIELD(shrinkShare, 22700, 0, 1),
	FIELD(nvlsCTAs, 22700, 1, INT_MAX),     FIELD(nChannelsPerNetPeer, 22800, 1, 64),
	FIELD(nvlinkCentricSched, 22800, 0, 1),
#undef FIELD
};

static int check_fields(const ncclConfig_t *c)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		size_t end = fields[i].offset + sizeof(int);
		int value;

		if (c->version < fields[i].since || c->size < end)
			continue;
		memcpy(&value, (const char *)c + fields[i].offset, sizeof(value));
		if (value != NCCL_CONFIG_UNDEF_INT &&
		    (value < fields[i].low || value > fields[i].high))
			return tt_fail(
				TT_ARG,
				"ncclConfig_t: %s is %d; allowed is %d..%d, or leave it as the initializer "
				"sets it",
				fields[i].name, value, fields[i].low, fields[i].high);
	}
	return 0;
}

/* The environment overrides the config, as with NCCL. */
int nccl_config_read(const ncclConfig_t *config, struct nccl_options *ret_options)
{
	ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
	struct nccl_options o = { .blocking = true };
	int rc;

	if (config) {
		if (config->magic != NCCL_CONFIG_MAGIC ||
		    config->size < offsetof(ncclConfig_t, blocking) + sizeof(int))
			return tt_fail(
				TT_ARG,
				"ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER (magic %#x, size %zu)",
				config->magic, config->size);
		memcpy(&c, config, config->size < sizeof(c) ? config->size : sizeof(c));
		if ((rc = check_fields(&c)))
			return rc;
		if (c.blocking != NCCL_CONFIG_UNDEF_INT)
			o.blocking = c.blocking;
		if (c.version >= 22700 && c.size >= offsetof(ncclConfig_t, collnetEnable) &&
		    c.commName)
			snprintf(o.name, sizeof(o.name), "%s", c.commName);
	}
	if (nccl_environment()->blocking >= 0)
		o.blocking = nccl_environment()->blocking;
	*ret_options = o;
	return 0;
}
