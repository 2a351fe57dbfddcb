/*
 * ras_session.c - the lines of a RAS client, and their answers; called by ras.c
 *
 * Any program of this host may connect, so the bytes come from strangers.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ras.h"

#define LONGEST_S 60

/* The rest of line behind the words of a command, in upper or lower case; NULL: another command */
static const char *behind(const char *line, const char *command)
{
	size_t bytes = strlen(command);

	return strncasecmp(line, command, bytes) ? NULL : line + bytes;
}

static void set_timeout(struct tt_ras_session *s, const char *value, char *ret_answer)
{
	char *end;
	unsigned long seconds = strtoul(value, &end, 10);

	if (!isdigit((unsigned char)*value) || *end) {
		snprintf(ret_answer, TT_RAS_ANSWER, "ERROR: Invalid timeout value %s\n", value);
		return;
	}
	/* NCCL's 0 is no timeout */
	s->timeout_ms = (seconds && seconds < LONGEST_S ? (uint32_t)seconds : LONGEST_S) * 1000;
	snprintf(ret_answer, TT_RAS_ANSWER, "OK\n");
}

static void set_format(struct tt_ras_session *s, const char *value, char *ret_answer)
{
	bool json = !strcasecmp(value, "json");

	if (!json && strcasecmp(value, "text")) {
		snprintf(ret_answer, TT_RAS_ANSWER, "ERROR: Invalid format %s\n", value);
		return;
	}
	s->json = json;
	snprintf(ret_answer, TT_RAS_ANSWER, "OK\n");
}

static enum tt_ras_step obey(struct tt_ras_session *s, const char *line, char *ret_answer)
{
	const char *value;

	ret_answer[0] = '\0';
	s->verbose = !strcasecmp(line, "verbose status");
	if (s->verbose || !strcasecmp(line, "status"))
		return TT_RAS_STATUS;
	if (behind(line, "client protocol "))
		snprintf(ret_answer, TT_RAS_ANSWER, "SERVER PROTOCOL 2\n");
	else if ((value = behind(line, "timeout ")))
		set_timeout(s, value, ret_answer);
	else if ((value = behind(line, "set format ")))
		set_format(s, value, ret_answer);
	else
		snprintf(ret_answer, TT_RAS_ANSWER, "ERROR: Unknown command %s\n", line);
	return TT_RAS_ANSWERED;
}

enum tt_ras_step tt_ras_step(struct tt_ras_session *s, char ret_answer[TT_RAS_ANSWER])
{
	char *end = memchr(s->in, '\n', s->have);
	size_t bytes;
	enum tt_ras_step step;

	if (!end)
		return s->have < sizeof(s->in) ? TT_RAS_MORE : TT_RAS_TOO_LONG;
	bytes = (size_t)(end - s->in) + 1;
	*end = '\0';
	if (end > s->in && end[-1] == '\r') /* telnet */
		end[-1] = '\0';
	step = obey(s, s->in, ret_answer);
	s->have -= bytes;
	memmove(s->in, s->in + bytes, s->have);
	return step;
}
