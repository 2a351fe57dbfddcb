/*
 * cmd_trace.c - `tutti trace`: read the files of the flight recorder (TUTTI_TRACE)
 *
 * Called by the table in tutti_main.c. Calls trace_files.c, trace_report.c and trace_json.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "perf/bench/bench.h"
#include "perf/commands/cmd.h"
#include "perf/commands/trace_files.h"
#include "tools/fresh_file.h"
#include "tools/options.h"

struct trace_options {
	const char *output;
	bool json;
};

static const struct tool_option options[] = {
	{ 'o', "output", TOOL_OPT_TEXT, "FILE", offsetof(struct trace_options, output), NULL, 0, 0,
	  NULL, NULL, "write to FILE instead of the standard output" },
	{ 0, "json", TOOL_OPT_FLAG, NULL, offsetof(struct trace_options, json), NULL, 0, 0, NULL,
	  NULL, "of dump: JSON with the field names of PyTorch's flight recorder" },
	{ 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, NULL },
};

static const struct tool_usage usage = {
	.tool = "tutti trace",
	.help = "Reads the files that ranks wrote to a folder by TUTTI_TRACE=FOLDER: the latest 8128\n"
		"collectives of each rank, also of a rank that was killed, also while the job runs.\n"
		"  tutti trace report FOLDER              which rank hangs, which is late\n"
		"  tutti trace dump FOLDER [--json]       every call, with its times\n"
		"  tutti trace merge FOLDER -o t.json     for ui.perfetto.dev: slices, and arrows from late ranks",
	.options = options,
	.operands = "report|dump|merge FOLDER",
};

static const struct {
	const char *name;
	void (*text)(const struct trace *t, FILE *to);
	void (*json)(const struct trace *t, FILE *to);
} actions[] = {
	{ "report", trace_report, NULL },
	{ "dump", trace_dump, trace_dump_json },
	{ "merge", trace_merge_json, trace_merge_json },
};
enum { NACTIONS = sizeof(actions) / sizeof(actions[0]) };

static int write_output(const char *path, const char *content, size_t bytes)
{
	if (!path) {
		fwrite(content, 1, bytes, stdout);
		return 0;
	}
	if (!tool_file_write(path, content, bytes))
		return 0;
	fprintf(stderr, "tutti trace: --output %s: %s\n", path, strerror(errno));
	return 1;
}

static int print(void (*print_to)(const struct trace *t, FILE *to), const char *dir,
		 const char *output)
{
	struct trace t;
	char *content = NULL;
	size_t bytes = 0;
	FILE *to;
	int rc = trace_read(usage.tool, dir,
			    "no files of the flight recorder; run the job with TUTTI_TRACE", &t);

	if (rc)
		return rc;
	to = open_memstream(&content, &bytes);
	if (to)
		print_to(&t, to);
	if (!to || fclose(to)) {
		fprintf(stderr, "tutti trace: no memory for the output\n");
		rc = 1;
	}
	trace_free(&t);
	rc = rc ? rc : write_output(output, content, bytes);
	free(content);
	return rc;
}

int tool_cmd_trace(int argc, char **argv)
{
	struct trace_options v;
	int rc = tool_options_read(&usage, argc, argv, &v), action = 0;
	char **words = tool_arguments();

	if (rc)
		return rc == 1 ? 0 : rc;
	if (!words[0])
		return tool_refuse(usage.tool, "name an action: report, dump or merge");
	while (action < NACTIONS && strcmp(words[0], actions[action].name) != 0)
		action++;
	if (action == NACTIONS)
		return tool_refuse(usage.tool, "%s: unknown action; use report, dump or merge",
				   words[0]);
	if (!words[1])
		return tool_refuse(usage.tool,
				   "%s: name the folder of TUTTI_TRACE: tutti trace %s FOLDER",
				   words[0], words[0]);
	if (v.json && !actions[action].json)
		return tool_refuse(usage.tool, "--json: report has none; use dump or merge");
	if (v.output && (rc = tool_file_check(usage.tool, "--output", v.output)))
		return rc;
	return print(v.json ? actions[action].json : actions[action].text, words[1], v.output);
}
