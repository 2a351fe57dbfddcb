/*
 * paths.h - the transports of a communicator: open, choose one for each pair, connect links
 *
 * Used by comm and run.
 */
#ifndef TT_PATHS_H
#define TT_PATHS_H

#include "comm/comm.h"

void tt_path_free(struct tt_path *path);
/* Bytes of memory of a path */
size_t tt_path_memory(const struct tt_path *path, int nranks);
/* Fills comm->paths.announcement for the ranks of ctl, where some transport needs it. 0 | TT_SYSTEM */
int tt_paths_announce(tuttiComm_t comm, struct tt_control *ctl);
/* Opens the transports that the settings allow, with the announcements of all ranks, and fills path[0]; NULL for
 * unreachable ranks. Collective. 0 | < 0 */
int tt_paths_open(tuttiComm_t comm, const struct tt_parts *announced);
/* Facts of a rank about its paths, for all others. */
struct tt_path_facts {
	int32_t unreached, nic_class; /* its lowest unreached rank, -1: none; enum tt_link_class */
	int32_t joined;               /* the rank's announcing transport: tt_transport.joined */
};
/* Finds the facts of this rank, and allocates what tt_paths_agree may need. 0 | TT_SYSTEM */
int tt_paths_facts(tuttiComm_t comm, struct tt_path_facts *ret_facts);
/* Why rank, whose facts these are, is not connected. TT_USAGE */
int tt_paths_unreached(tuttiComm_t comm, int rank, const struct tt_path_facts *facts);
/* With the facts of all ranks: settles the transports, checks that every rank is reachable, and adds the NIC path if
 * NICs connect all hosts. 0 | TT_USAGE, TT_REMOTE, the same on all ranks */
int tt_paths_agree(tuttiComm_t comm, const struct tt_parts *all);
/* Is the data to and from peer encrypted on this path? As tt_transport.encrypts says */
bool tt_path_encrypts(const struct tt_path *path, int peer);
void tt_paths_close(tuttiComm_t comm);

#endif
