/*
 * algorithm.c - names and arguments of one algorithm: "ring", "reduce-to-one:rotate"
 *
 * Called by plan.c, algorithms/, the model, the tools and the tests.
 */
#include <string.h>

#include "plan/algorithm.h"

static size_t base_length(const char *name)
{
	return strcspn(name, ":");
}

/* The text behind "name:", NULL if the name has no colon. */
static const char *given_argument(const char *name)
{
	return name[base_length(name)] ? name + base_length(name) + 1 : NULL;
}

static bool takes(const struct tt_algorithm *a, const char *argument)
{
	return !argument || (a->argument &&
			     (!strcmp(argument, a->argument) || (a->takes && a->takes(argument))));
}

/* Reports the wrong part of an argument, or the arguments that the algorithm takes. */
static int refuse_argument(const struct tt_algorithm *a, const char *name, const char *argument)
{
	if (a->explain)
		a->explain(argument);
	else if (a->form)
		tt_fail(TT_ARG, "algorithm \"%s\": there is no \"%s\" of %s; use %s or %s:%s", name,
			argument, a->name, a->name, a->name, a->form);
	else
		tt_fail(TT_ARG, "algorithm \"%s\": %s has no variants; use %s", name, a->name,
			a->name);
	return TT_ARG;
}

bool tt_algorithm_is_named(const struct tt_algorithm *a, const char *name)
{
	return strlen(a->name) == base_length(name) && !strncmp(a->name, name, base_length(name));
}

bool tt_algorithm_accepts(const struct tt_algorithm *a, const char *name)
{
	return takes(a, given_argument(name));
}

int tt_algorithm_argument(const struct tt_algorithm *a, const char *name, const char **ret_argument)
{
	const char *given = given_argument(name);

	if (!tt_algorithm_is_named(a, name))
		return tt_fail(TT_ARG, "algorithm \"%s\" is not %s", name, a->name);
	if (!takes(a, given))
		return refuse_argument(a, name, given);
	*ret_argument = given ? given : a->argument ? a->argument : "";
	return TT_OK;
}

void tt_algorithm_full_name(const struct tt_algorithm *a, const char *argument, char ret_name[64])
{
	const char *part[] = { a->name, *argument ? ":" : "", argument };
	char *at = ret_name, *last = ret_name + 63;

	for (int i = 0; i < 3; i++) /* without snprintf: every simulated plan has a name */
		for (const char *c = part[i]; *c && at < last; c++)
			*at++ = *c;
	*at = '\0';
}
