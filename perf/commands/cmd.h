/* cmd.h - commands of `tutti`: one function per command, listed in tutti_main.c */
#ifndef TOOL_CMD_H
#define TOOL_CMD_H

#include <stdint.h>

/* argv[0] is the command's name. Returns the exit status: 0 right, 1 failed, 2 wrong usage. */
struct tool_command {
	const char *name, *help;
	int (*run)(int argc, char **argv);
};

int tool_cmd_hashdiff(int argc, char **argv);
int tool_cmd_info(int argc, char **argv);
int tool_cmd_plan(int argc, char **argv);
int tool_cmd_report(int argc, char **argv);
int tool_cmd_simulate(int argc, char **argv);
int tool_cmd_top(int argc, char **argv);
int tool_cmd_trace(int argc, char **argv);
int tool_cmd_tune(int argc, char **argv);

/* info_gpus.c, of `tutti info`: print the line of the GPU kernels in this build; the GPUs of this
 * host, and whether their driver loads the kernels */
void tool_info_kernels(void);
void tool_info_gpus(void);

/* simulate_gpu.c, of `tutti simulate`: print predicted times of allreduces of np ranks with a GPU of a
 * kind each, from 1 KiB up to `bytes`. Returns the exit status. */
int tool_simulate_gpu(const char *tool, const char *kind, int64_t np, uint64_t bytes);

#endif
