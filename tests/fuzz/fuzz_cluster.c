/*
 * fuzz_cluster.c - arbitrary texts as --cluster and --task
 *
 * The text before the first newline is the cluster, that behind it the task. A text is refused with a
 * sentence, or its rank, number of ranks and root are those that a second, plainer reading finds.
 */
#include "trainer/cluster.c" /* libFuzzer sees its branches */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_cluster: violated: %s\n", what);
	abort();
}

/* The hosts of a role, cut out of a copy of the text; their number, and the first one. */
static int hosts_of(const char *cluster, const char *role, char **ret_first)
{
	char *copy = strdup(cluster), *rest = copy, *part;
	int count = 0;

	*ret_first = NULL;
	while ((part = strsep(&rest, ";"))) {
		char *name = strsep(&part, "="), *host;

		while (part && !strcmp(name, role) && (host = strsep(&part, ","))) {
			must(*host, "no host is empty");
			if (!count++)
				*ret_first = strdup(host);
		}
	}
	free(copy);
	return count;
}

static int number_of(const char *name)
{
	const char *text = getenv(name);

	must(text, "an accepted cluster sets the variables of a launcher");
	return atoi(text);
}

static void check(const char *cluster, const char *task, int64_t servers)
{
	char *first, *other, role[16];
	int workers = hosts_of(cluster, "worker", &first);
	int all = workers + hosts_of(cluster, "ps", &other), rank = number_of("TUTTI_RANK");
	const char *root = getenv("TUTTI_ROOT");

	must(workers > 0 && number_of("TUTTI_NRANKS") == all, "the ranks are those of both roles");
	must(rank >= 0 && rank < all && servers == all - workers, "the servers are the last ranks");
	snprintf(role, sizeof(role), "%s:", rank < workers ? "worker" : "ps");
	must(!strncmp(task, role, strlen(role)), "the role is that of the task");
	task += strlen(role);
	must(*task && strspn(task, "0123456789") == strlen(task), "the number has digits only");
	must(atoi(task) == (rank < workers ? rank : rank - workers), "the number is the task's");
	must(root && !strncmp(root, first, strlen(first)), "the root is the first worker");
	root += strlen(first);
	must(!*root || !strcmp(root, ":29500"), "the root has a port");
	free(first);
	free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *cluster = strndup((const char *)data, bytes), *task = cluster;
	struct train_config config = { .strategy = "ps-sync" };
	bool serves;
	int rc;

	strsep(&task, "\n");
	config.cluster = cluster;
	config.task = task;
	serves = strstr(cluster, "ps=");
	unsetenv("TUTTI_RANK");
	unsetenv("TUTTI_NRANKS");
	unsetenv("TUTTI_ROOT");
	rc = train_cluster_apply(&config, serves);
	must(rc == TRAIN_OK || rc == TRAIN_USAGE, "a bad text is an error of use");
	if (rc)
		must(*train_error() && !getenv("TUTTI_RANK"), "a refused text sets nothing");
	else
		check(cluster, task, config.servers);
	free(cluster);
	return 0;
}
