/* plural.h - "1 rank", "2 ranks": the ending of a noun behind its number, in the texts of all tools */
#ifndef TOOL_PLURAL_H
#define TOOL_PLURAL_H

static inline const char *tool_s(long long n)
{
	return n == 1 ? "" : "s";
}

#endif
