/*
 * fuzz_ras.c - arbitrary bytes as the lines of a RAS client, in pieces: each answer is one line, and
 * no byte is lost or read twice
 */
#include <stdlib.h>
#include <string.h>

#include "comm/ras.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Take all whole lines; returns their bytes. SIZE_MAX: the client would be dropped */
static size_t take_lines(struct tt_ras_session *s)
{
	size_t taken = 0, before = s->have;
	char answer[TT_RAS_ANSWER];
	enum tt_ras_step step;

	while ((step = tt_ras_step(s, answer)) == TT_RAS_ANSWERED || step == TT_RAS_STATUS) {
		size_t length = strlen(answer);

		if (s->have >= before || s->timeout_ms < 1 || s->timeout_ms > 60000)
			abort();
		if (step == TT_RAS_STATUS ? length : !length || answer[length - 1] != '\n')
			abort();
		taken += before - s->have;
		before = s->have;
	}
	if (s->have != before || (step == TT_RAS_TOO_LONG) != (s->have == sizeof(s->in)))
		abort();
	return step == TT_RAS_TOO_LONG ? SIZE_MAX : taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct tt_ras_session *s = calloc(1, sizeof(*s));
	size_t piece = bytes ? 1 + data[0] * 5u : 1, taken;

	if (!s)
		abort();
	s->timeout_ms = TT_RAS_TIMEOUT_MS;
	for (size_t at = 0; at < bytes; at += piece) {
		size_t room = sizeof(s->in) - s->have, before = s->have;

		if (piece > bytes - at)
			piece = bytes - at;
		if (piece > room)
			piece = room;
		memcpy(s->in + s->have, data + at, piece);
		s->have += piece;
		taken = take_lines(s);
		if (taken == SIZE_MAX)
			break;
		if (s->have != before + piece - taken)
			abort();
	}
	free(s);
	return 0;
}
