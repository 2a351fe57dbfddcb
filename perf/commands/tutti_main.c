/*
 * tutti_main.c - main function of `tutti`: table of commands
 *
 * A new command needs a file cmd_NAME.c and a row in the table.
 */
#include <stdio.h>
#include <string.h>

#include "perf/commands/cmd.h"
#include "tools/options.h"
#include "tools/output.h"

static int version(int argc, char **argv);
static int help(int argc, char **argv);

static const struct tool_command commands[] = {
	{ "info",
	  "print facts about build and host: processor, transports, topology, settings, algorithms",
	  tool_cmd_info },
	{ "plan", "print the plan of an algorithm, or prove all algorithms", tool_cmd_plan },
	{ "report", "compare two results files of a benchmark", tool_cmd_report },
	{ "simulate", "simulate a call on hypothetical ranks and hosts", tool_cmd_simulate },
	{ "tune", "measure this host and fit the cost table that chooses algorithms",
	  tool_cmd_tune },
	{ "top", "show what the ranks of a running job do now", tool_cmd_top },
	{ "trace", "read the flight recorder: which rank hangs, which is late", tool_cmd_trace },
	{ "hashdiff", "find the first difference of two trainings: step, bucket, element",
	  tool_cmd_hashdiff },
	{ "version", "print the version", version },
	{ "help", "print this list, or the help of one command", help },
	{ NULL, NULL, NULL },
};

static const struct tool_command *find(const char *name)
{
	for (const struct tool_command *c = commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

static int unknown(const char *name)
{
	const struct tool_command *nearest = commands;

	for (const struct tool_command *c = commands; c->name; c++)
		if (tool_edit_distance(name, c->name) < tool_edit_distance(name, nearest->name))
			nearest = c;
	if (tool_edit_distance(name, nearest->name) > 2)
		return tool_refuse("tutti", "%s: unknown command; `tutti help` lists them", name);
	return tool_refuse("tutti", "%s: unknown command; did you mean %s? `tutti help` lists them",
			   name, nearest->name);
}

static int no_arguments(int argc, char **argv)
{
	if (argc < 2)
		return 0;
	fprintf(stderr, "tutti %s: %s: unexpected argument; %s takes none\n", argv[0], argv[1],
		argv[0]);
	return 2;
}

static int version(int argc, char **argv)
{
	int rc = no_arguments(argc, argv);

	if (!rc)
		tool_print_version("tutti");
	return rc;
}

static void list(FILE *to)
{
	fprintf(to,
		"usage: tutti COMMAND [options]\nInspect and tune the Tutti collective communication library.\n\n");
	for (const struct tool_command *c = commands; c->name; c++)
		fprintf(to, "  %-10s %s\n", c->name, c->help);
	fprintf(to,
		"\n`tutti help COMMAND` prints the options of a command. Benchmarks: see allreduce_perf --help.\n");
}

static int help(int argc, char **argv)
{
	const struct tool_command *c;
	char *ask[] = { argc > 1 ? argv[1] : NULL, "--help", NULL };

	if (argc < 2) {
		list(stdout);
		return 0;
	}
	c = find(argv[1]);
	if (!c)
		return unknown(argv[1]);
	if (argc > 2)
		return tool_refuse("tutti help", "%s: unexpected argument; one command at most",
				   argv[2]);
	if (c->run == version || c->run == help) {
		printf("usage: tutti %s\n%s\n", c->name, c->help);
		return 0;
	}
	return c->run(2, ask);
}

/* --help: prints the list, and the help of every command that takes options. */
static int help_all(void)
{
	char *ask[] = { NULL, "--help", NULL };

	list(stdout);
	for (const struct tool_command *c = commands; c->name; c++) {
		if (c->run == version || c->run == help)
			continue;
		printf("\n");
		ask[0] = (char *)c->name;
		c->run(2, ask);
	}
	return 0;
}

static int run(int argc, char **argv)
{
	const struct tool_command *c;

	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		return help_all();
	if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version"))
		return version(1, argv + 1);
	c = find(argv[1]);
	return c ? c->run(argc - 1, argv + 1) : unknown(argv[1]);
}

int main(int argc, char **argv)
{
	tool_output_begin();
	if (argc < 2) {
		list(stderr);
		return 2;
	}
	return tool_output_end("tutti", run(argc, argv));
}
