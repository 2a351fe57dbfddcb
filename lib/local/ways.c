/*
 * ways.c - the table of ways: the order in which a collective tries them
 *
 * Read by run (run/way.h). A row takes a call that fits, or leaves it to the rows after it.
 */
#include "local/ways.h"

const struct tt_way *const tt_ways[] = {
	&tt_single_copy_way,
	&tt_slot_way,
	&tt_message_way,
	&tt_trace_way, /* reached only by its own name */
	NULL,
};
