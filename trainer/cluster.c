/* cluster.c - ranks that no launcher starts, described by roles (cluster.h) */
#include "trainer/cluster.h"

#include "trainer/base/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKER, SERVER, ROLES, PORT = 29500, ROOT_BYTES = 300 };

static const char *const roles[ROLES] = { "worker", "ps" };

/* The hosts of a role: the text behind "ROLE=", up to a semicolon. */
struct role {
	const char *hosts;
	int count;
};

static int bad(const struct train_config *c)
{
	return train_fail(TRAIN_USAGE,
			  "--cluster %s --task %s: not roles and a rank of them; use "
			  "--cluster 'worker=HOST:PORT,HOST;ps=HOST' --task worker:0",
			  c->cluster ? c->cluster : "none", c->task ? c->task : "none");
}

/* The role that a text begins with, followed by `mark`; ROLES: none. */
static int role_of(const char *text, char mark)
{
	for (int i = 0; i < ROLES; i++) {
		size_t length = strlen(roles[i]);

		if (!strncmp(text, roles[i], length) && text[length] == mark)
			return i;
	}
	return ROLES;
}

/* Counts hosts, none of which is empty. */
static int count_hosts(const char *hosts)
{
	int count = 1;

	for (; *hosts && *hosts != ';'; hosts++) {
		if (*hosts == ',' && (hosts[1] == ',' || hosts[1] == ';' || !hosts[1]))
			return 0;
		count += *hosts == ',';
	}
	return count;
}

static bool parse(const char *text, struct role role[ROLES])
{
	while (*text) {
		int i = role_of(text, '=');
		const char *hosts = i < ROLES ? text + strlen(roles[i]) + 1 : text;

		if (i == ROLES || role[i].count || !*hosts || *hosts == ';' || *hosts == ',')
			return false;
		role[i] = (struct role){ hosts, count_hosts(hosts) };
		if (!role[i].count)
			return false;
		text += strcspn(text, ";");
		text += *text == ';';
	}
	return role[WORKER].count > 0;
}

/* The rank of --task; -1: none. */
static int rank_of(const char *task, const struct role role[ROLES])
{
	int i = role_of(task, ':');
	char *end;
	long index;

	if (i == ROLES)
		return -1;
	task += strlen(roles[i]) + 1;
	index = strtol(task, &end, 10);
	if (*task < '0' || *task > '9' || *end || index >= role[i].count)
		return -1;
	return (int)index + (i == SERVER ? role[WORKER].count : 0);
}

/* The first worker's address, with a port: "[::1]:29500" has one, "[::1]" none. */
static int make_root(const char *hosts, char root[ROOT_BYTES])
{
	int length = (int)strcspn(hosts, ",;");
	const char *colon = memchr(hosts, ':', (size_t)length);
	const char *closed = memchr(hosts, ']', (size_t)length);

	if (closed)
		colon = closed + 1 < hosts + length ? closed + 1 : NULL;
	if (colon)
		length = snprintf(root, ROOT_BYTES, "%.*s", length, hosts);
	else
		length = snprintf(root, ROOT_BYTES, "%.*s:%d", length, hosts, PORT);
	if (length < ROOT_BYTES)
		return TRAIN_OK;
	return train_fail(TRAIN_USAGE,
			  "--cluster: the first worker's address has %d characters with its port; "
			  "use one of at most %d",
			  length, ROOT_BYTES - 1);
}

int train_cluster_apply(struct train_config *c, bool serves)
{
	struct role role[ROLES] = { { NULL, 0 } };
	char root[ROOT_BYTES], text[16];
	int rank;

	if (!c->cluster && !c->task)
		return TRAIN_OK;
	if (!c->cluster || !c->task || !parse(c->cluster, role) ||
	    (rank = rank_of(c->task, role)) < 0)
		return bad(c);
	if (c->np || getenv("TUTTI_RANK"))
		return train_fail(
			TRAIN_USAGE,
			"--cluster: the ranks are started by %s already; omit one of both",
			c->np ? "--np" : "a launcher (TUTTI_RANK)");
	if (serves != (role[SERVER].count > 0))
		return train_fail(TRAIN_USAGE, "--cluster %s: --strategy %s has %s; %s ps=HOST",
				  c->cluster, c->strategy,
				  serves ? "parameter servers" : "no parameter servers",
				  serves ? "add" : "omit");
	if (make_root(role[WORKER].hosts, root))
		return TRAIN_USAGE;
	if (serves)
		c->servers = role[SERVER].count;
	setenv("TUTTI_ROOT", root, 1);
	snprintf(text, sizeof(text), "%d", rank);
	setenv("TUTTI_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", role[WORKER].count + role[SERVER].count);
	setenv("TUTTI_NRANKS", text, 1);
	return TRAIN_OK;
}
