/*
 * fail.h - how the trainer says what went wrong
 *
 * The first function that knows the cause writes one sentence with the values; everyone above
 * passes the code up; main prints the sentence and exits with -code.
 */
#ifndef TRAIN_FAIL_H
#define TRAIN_FAIL_H

enum { TRAIN_OK = 0, TRAIN_FAILED = -1, TRAIN_USAGE = -2 };

/* Notes the sentence and returns code. %m works. Not for threads. */
int train_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The last sentence, "" if none. */
const char *train_error(void);

#endif
