/*
 * cmd_top.c - `tutti top`: what a running job does now, from the files of its flight recorder
 *
 * Called by the table in tutti_main.c. Calls trace_files.c, trace_report.c and trace_json.c. The
 * process only reads files: it disturbs no rank, and sees ranks that are stopped or dead.
 */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "perf/commands/cmd.h"
#include "perf/commands/trace_files.h"
#include "tools/options.h"

struct top_options {
	bool once, json;
	double interval;
};

static const struct tool_option options[] = {
	{ 0, "once", TOOL_OPT_FLAG, NULL, offsetof(struct top_options, once), NULL, 0, 0, NULL,
	  NULL, "print once, then exit" },
	{ 0, "json", TOOL_OPT_FLAG, NULL, offsetof(struct top_options, json), NULL, 0, 0, NULL,
	  NULL, "JSON instead of a screen" },
	{ 0, "interval", TOOL_OPT_REAL, "S", offsetof(struct top_options, interval), "1", 0.1, 3600,
	  NULL, NULL, "seconds between two screens" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti top",
	.help = "Shows what the ranks of a running job do now, from the folder of its flight recorder:\n"
		"per communicator the operation, its age, the ranks that are awaited, calls and bytes a\n"
		"second, and the ranks that delay the others. The job runs with TUTTI_TRACE=FOLDER.\n"
		"  tutti top FOLDER                       until Ctrl-C\n"
		"  tutti top FOLDER --once --json         for scripts",
	.options = options,
};

static int show(const char *dir, const struct top_options *v)
{
	struct trace t;
	int rc = trace_read(usage.tool, dir, &t);

	if (rc)
		return rc;
	if (!v->once && isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
	(v->json ? trace_top_json : trace_top)(&t, stdout);
	fflush(stdout);
	trace_free(&t);
	return ferror(stdout) ? 1 : 0;
}

int tool_cmd_top(int argc, char **argv)
{
	struct top_options v;
	int rc;

	if (argc < 2 || argv[1][0] == '-') {
		rc = tool_options_read(&usage, argc, argv, &v);
		return rc == 1 ? 0
		       : rc    ? rc
			       : tool_refuse(usage.tool,
					     "name the folder of TUTTI_TRACE: tutti top FOLDER");
	}
	rc = tool_options_read(&usage, argc - 1, argv + 1, &v);
	if (rc)
		return rc == 1 ? 0 : rc;
	while (!(rc = show(argv[1], &v)) && !v.once)
		usleep((useconds_t)(v.interval * 1e6));
	return rc;
}
