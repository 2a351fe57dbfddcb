/* host.h - processor name and free memory of this host */
#ifndef TOOL_HOST_H
#define TOOL_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Writes the processor name of /proc/cpuinfo; without a name there, the machine name of uname. */
void tool_host_cpu(char *text, size_t bytes);

/* Returns the memory available without swapping, within the limits of the control groups;
 * UINT64_MAX: unknown. */
uint64_t tool_host_free_bytes(void);

#endif
