/* cpus.c - sets of processors from files of the kernel; called by locality.c and verbs_locality.c */
#include "base/base.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tt_file_text(const char *path, char *ret_text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, ret_text, bytes - 1);

	if (fd >= 0)
		close(fd);
	ret_text[n > 0 ? n : 0] = '\0';
}

bool tt_cpus_read(const char *path, uint64_t ret_mask[TT_CPU_WORDS])
{
	char text[4096], *p = text;

	memset(ret_mask, 0, TT_CPU_WORDS * sizeof(*ret_mask));
	tt_file_text(path, text, sizeof(text));
	while (isdigit((unsigned char)*p)) {
		long first = strtol(p, &p, 10), last = *p == '-' ? strtol(p + 1, &p, 10) : first;

		for (long cpu = first; cpu <= last && cpu < 64 * TT_CPU_WORDS; cpu++)
			ret_mask[cpu / 64] |= 1ull << cpu % 64;
		p += *p == ',';
	}
	return p != text;
}
