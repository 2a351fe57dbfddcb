/*
 * fail.h - error codes and the error text of the trainer
 *
 * The first function that knows the cause sets one sentence with the values; its callers pass
 * the code up; main prints the sentence and exits with -code.
 */
#ifndef TRAIN_FAIL_H
#define TRAIN_FAIL_H

enum { TRAIN_OK = 0, TRAIN_FAILED = -1, TRAIN_USAGE = -2, TRAIN_ERROR_BYTES = 1024 };

/* A state: this rank could not write a file, and the training can go on. */
enum { TRAIN_UNWRITTEN = 1 };

/* Sets the error text of this thread and returns code. %m works. */
int train_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The last error text of this thread, "" if none. Valid until the next train_fail. */
const char *train_error(void);

#endif
