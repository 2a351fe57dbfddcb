/* host.h - facts about this host that the tools print or count on */
#ifndef TOOL_HOST_H
#define TOOL_HOST_H

#include <stddef.h>
#include <stdint.h>

/* The processor's name as the kernel tells it. */
void tool_host_cpu(char *text, size_t bytes);

/* Memory that can be had without swapping, within the limits of the control group.
 * UINT64_MAX when unknown. */
uint64_t tool_host_free_bytes(void);

#endif
