/*
 * settings_match.h - check that all ranks were given the same data and options
 *
 * Ranks that were started separately may differ; their training would have no meaning. Called by
 * trainer.c.
 */
#ifndef TRAIN_SETTINGS_MATCH_H
#define TRAIN_SETTINGS_MATCH_H

#include "trainer/rank/rank.h"

/* Call by all ranks. Returns 0 | TRAIN_USAGE: the error names an option that differs and this
 * rank's value | TRAIN_FAILED. */
int train_settings_match(const struct train_rank *t);

#endif
