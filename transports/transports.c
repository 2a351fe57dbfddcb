/* transports.c - the table of transports in order of preference: the first that reaches a peer
 * carries the pair */
#include "transports/transport.h"

const struct tt_transport *const tt_transports[] = { &tt_self, &tt_shm, &tt_verbs, &tt_tcp, NULL };
