/*
 * counters.c - public calls that report counters, and the algorithm and transport of a call
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "comm/paths.h"

/* Adds the counters of one path. Paths share their links within a host: count these once. */
static void count_path(tuttiComm_t comm, int number, tuttiCounters_t *n)
{
	const struct tt_path *path = comm->paths.path;

	for (int i = 0; i < TT_CHANNELS * comm->nranks; i++) {
		int ch = i / comm->nranks, peer = i % comm->nranks;
		const struct tt_link *l = tt_path_link(&path[number], ch, peer);

		if (!l || (number > 0 && l == tt_path_link(&path[0], ch, peer)))
			continue;
		n->sent_bytes += l->sent_bytes;
		n->messages += l->messages;
		n->sent_bytes_shm += l->t == &tt_shm ? l->sent_bytes : 0;
		n->sent_bytes_tcp += l->t == &tt_tcp ? l->sent_bytes : 0;
		n->sent_bytes_verbs += l->t == &tt_verbs ? l->sent_bytes : 0;
	}
}

TUTTI_API tuttiResult_t tuttiCommGetCounters(tuttiComm_t comm, tuttiCounters_t *counters)
{
	tuttiCounters_t n = { .size = sizeof(n) };
	int rc = tt_comm_check(comm);

	if (!rc && (!counters || counters->size < sizeof(counters->size)))
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiCommGetCounters: counters is NULL or its size is not set",
			comm->rank);
	if (rc)
		return tt_result(rc);
	n.operations = atomic_load(&comm->calls.operations);
	n.sleeps = atomic_load(&comm->wait.sleeps);
	n.allocations = atomic_load(&comm->memory.allocations);
	n.memory_bytes = tt_memory_held(comm, tuttiMemTotal);
	tt_am_sent(comm->am, &n.sent_bytes, &n.messages);
	n.sent_bytes_tcp = n.sent_bytes;
	for (int i = 0; i < comm->paths.nep; i++) {
		n.sent_bytes += comm->paths.ep[i]->slot_bytes;
		n.sent_bytes_shm += comm->paths.ep[i]->slot_bytes;
		n.read_bytes += comm->paths.ep[i]->read_bytes;
	}
	for (int i = 0; i < comm->paths.npaths; i++)
		count_path(comm, i, &n);
	n.size = counters->size < sizeof(n) ? counters->size : sizeof(n);
	memcpy(counters, &n, n.size);
	return tuttiSuccess;
}

static int find_collective(const char *name, enum tt_collective *ret_collective)
{
	for (int i = 0; name && i < TT_SENDRECV; i++)
		if (!strcmp(name, tt_collective_name((enum tt_collective)i))) {
			*ret_collective = (enum tt_collective)i;
			return 0;
		}
	return tt_fail(TT_ARG, "tuttiCommDescribe: collective \"%s\" is not known",
		       name ? name : "(NULL)");
}

/* "+shm+tcp" into text: the transports by which the plan of row sends and receives */
static void name_transports(const struct tt_plan_row *row, char *text, size_t bytes)
{
	const struct tt_plan *plan = row->cached->plan;

	text[0] = 0;
	for (const struct tt_transport *const *t = tt_transports; *t; t++)
		for (uint32_t i = 0; i < plan->npeers; i++)
			if (tt_path_via(row->path, plan->peers[i])->t == *t) {
				snprintf(text + strlen(text), bytes - strlen(text), "+%s",
					 (*t)->name);
				break;
			}
}

static int describe(tuttiComm_t comm, const struct tt_request *r, char *text, size_t bytes)
{
	const struct tt_plan *plan;
	struct tt_plan_row *row;
	char transports[64];
	bool encrypted = false;
	int rc = tt_plan_cache_find(r, false, &row);

	if (rc)
		return rc;
	plan = row->cached->plan;
	name_transports(row, transports, sizeof(transports));
	for (uint32_t i = 0; i < plan->npeers; i++)
		encrypted |= tt_path_encrypts(row->path, plan->peers[i]);
	snprintf(text, bytes, "algorithm %s transport %s tile_bytes %zu%s", plan->algorithm,
		 transports[0] ? transports + 1 : "self", comm->paths.world.message_bytes,
		 encrypted ? " encrypted" : "");
	return 0;
}

TUTTI_API tuttiResult_t tuttiCommDescribe(tuttiComm_t comm, const char *collective, size_t count,
					  tuttiDataType_t datatype, char *text, size_t bytes)
{
	enum tt_collective which = TT_ALLREDUCE;
	int rc = tt_comm_enter(comm, "tuttiCommDescribe", TT_ONE_CALL);

	if (rc)
		return tt_result(rc);
	if (!text || !bytes || (unsigned)datatype >= tuttiNumTypes)
		rc = tt_fail(
			TT_ARG,
			"rank %d: tuttiCommDescribe: text is NULL or has no room, or datatype %d is not known",
			comm->rank, datatype);
	if (!rc)
		rc = find_collective(collective, &which);
	if (!rc)
		rc = describe(comm,
			      &(struct tt_request){ .collective = which,
						    .count = count,
						    .type = datatype,
						    .root = tt_needs[which].rooted ? 0 : -1,
						    .comm = comm },
			      text, bytes);
	return tt_result(tt_comm_leave(comm, TT_ONE_CALL, rc));
}
