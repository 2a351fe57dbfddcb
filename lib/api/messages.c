/*
 * messages.c - public calls for messages, and for the state of a rank
 *
 * Any thread, several concurrently: the calls visit the communicator (tt_comm_visit) and do not
 * take part in its ticket order.
 */

#include "api/api.h"
#include "gpu/gpu.h"

/* Enters the communicator, which stays valid until done(). 0 | TT_ARG, TT_USAGE */
static int visit(tuttiComm_t comm, const char *call)
{
	int rc = tt_comm_visit(comm);

	if (rc || !atomic_load(&comm->order.finalized))
		return rc;
	atomic_fetch_sub(&comm->order.inside, 1);
	return tt_fail(TT_USAGE, "rank %d: %s: the communicator was finalized", comm->rank, call);
}

static tuttiResult_t done(tuttiComm_t comm, int rc)
{
	atomic_fetch_sub(&comm->order.inside, 1);
	return tt_result(rc);
}

static int check_peer(tuttiComm_t comm, const char *call, const char *what, int peer, int least)
{
	if (peer >= least && peer < comm->nranks)
		return 0;
	return tt_fail(TT_ARG, "rank %d: %s: %s %d is not in 0..%d", comm->rank, call, what, peer,
		       comm->nranks - 1);
}

static int check_tag(tuttiComm_t comm, const char *call, int tag, int least)
{
	return tag >= least ? 0
			    : tt_fail(TT_ARG, "rank %d: %s: tag %d: want 0 or more%s", comm->rank,
				      call, tag, least < 0 ? ", or TUTTI_ANY" : "");
}

TUTTI_API tuttiResult_t tuttiMsgSend(const void *buff, size_t bytes, int peer, int tag,
				     uint64_t version, tuttiComm_t comm)
{
	struct tt_am_header head = {
		.kind = TT_AM_USER_MESSAGE, .tag = tag, .version = version, .bytes = bytes
	};
	int rc = visit(comm, "tuttiMsgSend");

	if (rc)
		return tt_result(rc);
	if (!(rc = check_peer(comm, "tuttiMsgSend", "peer", peer, 0)) &&
	    !(rc = check_tag(comm, "tuttiMsgSend", tag, 0)) && bytes && !buff)
		rc = tt_fail(TT_ARG, "rank %d: tuttiMsgSend: buff is NULL, with %zu bytes to send",
			     comm->rank, bytes);
	if (!rc)
		rc = tt_gpu_refuse(comm, "tuttiMsgSend", buff);
	if (!rc)
		rc = tt_am_send(comm->am, peer, &head, buff,
				tt_deadline_ns(comm->settings.timeout_ms));
	return done(comm, rc);
}

static int check_timeout(tuttiComm_t comm, const char *call, int timeout_ms)
{
	if (timeout_ms >= -1)
		return 0;
	return tt_fail(TT_ARG,
		       "rank %d: %s: timeout_ms %d: want 0 or more, or -1 for the communicator's",
		       comm->rank, call, timeout_ms);
}

static uint64_t deadline_of(tuttiComm_t comm, int timeout_ms)
{
	if (timeout_ms == 0)
		return 0;
	return tt_deadline_ns(timeout_ms < 0 ? comm->settings.timeout_ms : (uint32_t)timeout_ms);
}

static tuttiResult_t receive(const struct tt_am_match *want, const char *call, int timeout_ms,
			     tuttiComm_t comm, tuttiMsg_t *msg)
{
	struct tt_am_header head;
	int rc = visit(comm, call);

	if (rc)
		return tt_result(rc);
	if (!(rc = check_peer(comm, call, "source", want->source, TUTTI_ANY)) &&
	    !(rc = check_tag(comm, call, want->tag, TUTTI_ANY)) &&
	    !(rc = check_timeout(comm, call, timeout_ms)) && want->room && !want->to)
		rc = tt_fail(TT_ARG, "rank %d: %s: buff is NULL, with room for %zu bytes",
			     comm->rank, call, want->room);
	if (!rc)
		rc = tt_gpu_refuse(comm, call, want->to);
	if (!rc)
		rc = tt_am_recv(comm->am, want, deadline_of(comm, timeout_ms), &head);
	if (!rc && msg)
		*msg = (tuttiMsg_t){ .source = head.source,
				     .tag = head.tag,
				     .version = head.version,
				     .bytes = head.bytes };
	return done(comm, rc);
}

TUTTI_API tuttiResult_t tuttiMsgRecv(void *buff, size_t bytes, int source, int tag, int timeout_ms,
				     tuttiComm_t comm, tuttiMsg_t *msg)
{
	struct tt_am_match want = {
		.kind = TT_AM_USER_MESSAGE, .source = source, .tag = tag, .to = buff, .room = bytes
	};

	return receive(&want, "tuttiMsgRecv", timeout_ms, comm, msg);
}

TUTTI_API tuttiResult_t tuttiMsgProbe(int source, int tag, int timeout_ms, tuttiComm_t comm,
				      tuttiMsg_t *msg)
{
	struct tt_am_match want = {
		.kind = TT_AM_USER_MESSAGE, .source = source, .tag = tag, .probe = true
	};

	return receive(&want, "tuttiMsgProbe", timeout_ms, comm, msg);
}

TUTTI_API tuttiResult_t tuttiMsgCancel(int source, int tag, uint64_t version, tuttiComm_t comm,
				       uint64_t *dropped)
{
	uint64_t n = 0;
	int rc = visit(comm, "tuttiMsgCancel");

	if (rc)
		return tt_result(rc);
	if (!(rc = check_peer(comm, "tuttiMsgCancel", "source", source, TUTTI_ANY)) &&
	    !(rc = check_tag(comm, "tuttiMsgCancel", tag, TUTTI_ANY)))
		n = tt_am_cancel(comm->am, source, tag, version);
	if (!rc && dropped)
		*dropped = n;
	return done(comm, rc);
}

TUTTI_API tuttiResult_t tuttiCommRankState(tuttiComm_t comm, int rank, tuttiRankState_t *state)
{
	int rc = tt_comm_visit(comm);

	if (rc)
		return tt_result(rc);
	rc = check_peer(comm, "tuttiCommRankState", "rank", rank, 0);
	if (!rc && !state)
		rc = tt_fail(TT_ARG, "rank %d: tuttiCommRankState: state is NULL", comm->rank);
	if (!rc)
		*state = tt_am_state(comm->am, rank);
	return done(comm, rc);
}
