/*
 * caller.c - one caller at a time: two threads in calls of one communicator break it
 *
 * Called by the inline functions of comm.h. A call sets order.caller and clears it at its end, by plain
 * stores. A call that begins while order.caller is set is refused before it touches anything. Two
 * calls that begin within some nanoseconds both find 0 and set it; whoever ends last does not find
 * what it set. The error breaks the communicator on all ranks, since the order of the calls of this
 * rank is not certain any more.
 */
#include <stdio.h>

#include "comm/comm.h"

#define REMEDY                                                                       \
	"one thread at a time may call: give each thread a communicator of its own " \
	"(tuttiCommSplit), or give the calls to streams from one thread"

#define NAME 80

static const char *name_of(tuttiComm_t c, char text[NAME])
{
	if (!c->settings.name[0])
		return "(without a name)";
	snprintf(text, NAME, "\"%s\"", c->settings.name);
	return text;
}

/* Breaks a visited communicator and ends the visit. */
static int break_visited(tuttiComm_t c, const char *text)
{
	tt_control_raise(c->ctl, TT_USAGE, c->rank, text);
	tt_comm_failed(c, tt_fail(TT_USAGE, "%s", text));
	atomic_fetch_sub(&c->order.inside, 1);
	return TT_USAGE;
}

int tt_comm_refuse_caller(tuttiComm_t c, const char *call)
{
	char running[160], text[700], name[NAME];
	int rc = tt_comm_visit(c);

	if (rc)
		return rc;
	tt_control_running(c->ctl, running, sizeof(running));
	snprintf(text, sizeof(text),
		 "rank %d called %s while another of its threads was in %s of communicator %s; %s",
		 c->rank, call, running[0] ? running : "a call", name_of(c, name), REMEDY);
	return break_visited(c, text);
}

int tt_comm_overlapped(tuttiComm_t c, int rc)
{
	char text[700], name[NAME];

	if (tt_comm_visit(c))
		return rc;
	snprintf(text, sizeof(text),
		 "rank %d: two threads began calls of communicator %s at the same time, and the "
		 "results of both are undefined; %s",
		 c->rank, name_of(c, name), REMEDY);
	return break_visited(c, text);
}
