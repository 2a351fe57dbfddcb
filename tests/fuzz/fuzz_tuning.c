/*
 * fuzz_tuning.c - arbitrary bytes as a tuning table: refused with an error text that has the line
 * number, or parsed, printed, and parsed again to the same table
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/choose.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The printed form of a parsed table must parse again, and a choice by any parsed table must
 * succeed. */
static void use(const struct tt_cost *cost)
{
	static const struct tt_shape shape = { .collective = TT_ALLREDUCE, .nranks = 3 };
	struct tt_call_facts facts = { .bytes = 100000, .cores = 2, .cost = cost };
	struct tt_cost *again;
	const struct tt_algorithm *a;
	char name[64], *text = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	if (!f)
		abort();
	tt_cost_print(cost, f);
	fclose(f);
	if (tt_cost_parse(text, length, "again", &again) || again->nfactors != cost->nfactors)
		abort();
	tt_cost_free(again);
	free(text);
	if (tt_plan_choose("auto", &shape, &facts, &a, name))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct tt_cost *cost = NULL;

	tt_error_clear();
	switch (tt_cost_parse((const char *)data, bytes, "fuzz", &cost)) {
	case TT_OK:
		use(cost);
		tt_cost_free(cost);
		break;
	case TT_ARG:
		if (cost || strncmp(tt_error_text(), "fuzz: ", 6))
			abort();
		break;
	default:
		abort();
	}
	return 0;
}
