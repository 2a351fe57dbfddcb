/*
 * fail.h - how the trainer says what went wrong
 *
 * The first function that knows the cause writes one sentence with the values; everyone above
 * passes the code up; main prints the sentence and exits with -code.
 */
#ifndef TT_TRAINER_FAIL_H
#define TT_TRAINER_FAIL_H

enum { TT_TRAIN_OK = 0, TT_TRAIN_FAILED = -1, TT_TRAIN_USAGE = -2 };

/* Notes the sentence and returns code. %m works. Not for threads. */
int tt_train_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The last sentence, "" if none. */
const char *tt_train_error(void);

#endif
