/* schedule_command.h - `tutti-train schedule NAME`: prove, simulate and draw a schedule. Called by
 * job.c. */
#ifndef TRAIN_SCHEDULE_COMMAND_H
#define TRAIN_SCHEDULE_COMMAND_H

/* argv[0] is "schedule". Prints to stdout, errors to stderr. Returns the exit status. */
int train_schedule_command(int argc, char **argv);

#endif
