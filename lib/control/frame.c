/*
 * frame.c - write and read the bytes that ranks exchange
 *
 * Called by the files of control, and by am and shrink. The bytes read come from another process:
 * every field is checked.
 */
#include <stdlib.h>
#include <string.h>

#include "control/frame.h"

void tt_put_bytes(struct tt_writer *w, const void *data, size_t bytes)
{
	if (w->failed)
		return;
	if (bytes > w->room - w->have) {
		size_t room = (w->have + bytes) * 2 + 64;
		uint8_t *larger = w->fixed ? NULL : realloc(w->data, room);

		if (!larger) {
			w->failed = true;
			return;
		}
		w->data = larger;
		w->room = room;
	}
	if (bytes)
		memcpy(w->data + w->have, data, bytes);
	w->have += bytes;
}

void tt_put(struct tt_writer *w, uint64_t value, int bytes)
{
	uint8_t little[8];

	for (int i = 0; i < bytes; i++)
		little[i] = (uint8_t)(value >> (8 * i));
	tt_put_bytes(w, little, (size_t)bytes);
}

void tt_put_text(struct tt_writer *w, const char *text)
{
	size_t bytes = strlen(text);

	bytes = bytes < 65535 ? bytes : 65535;
	tt_put(w, bytes, 2);
	tt_put_bytes(w, text, bytes);
}

void tt_text_plain(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			*text = ' ';
}

const void *tt_get_bytes(struct tt_reader *r, size_t bytes)
{
	const void *at = r->at;

	if (r->failed || bytes > r->left) {
		r->failed = true;
		return NULL;
	}
	r->at += bytes;
	r->left -= bytes;
	return at;
}

void tt_get_copy(struct tt_reader *r, void *to, size_t bytes)
{
	const void *from = tt_get_bytes(r, bytes);

	if (from)
		memcpy(to, from, bytes);
	else
		memset(to, 0, bytes);
}

uint64_t tt_get(struct tt_reader *r, int bytes)
{
	const uint8_t *p = tt_get_bytes(r, (size_t)bytes);
	uint64_t value = 0;

	for (int i = 0; p && i < bytes; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

uint64_t tt_get_upto(struct tt_reader *r, int bytes, uint64_t most)
{
	uint64_t value = tt_get(r, bytes);

	if (value <= most)
		return value;
	r->failed = true;
	return 0;
}

void tt_get_text(struct tt_reader *r, char *text, size_t room)
{
	size_t bytes = tt_get_upto(r, 2, room - 1);
	const char *p = tt_get_bytes(r, bytes);

	text[0] = '\0';
	for (size_t i = 0; p && i < bytes; i++)
		r->failed |= (unsigned char)p[i] < ' ' || p[i] == 127;
	if (!r->failed) {
		memcpy(text, p, bytes);
		text[bytes] = '\0';
	}
}

bool tt_get_end(const struct tt_reader *r)
{
	return !r->failed && r->left == 0;
}

void tt_put_frame_head(struct tt_writer *w, const struct tt_frame_head *head)
{
	tt_put(w, head->bytes, 4);
	tt_put(w, head->kind, 1);
	tt_put(w, head->context, 8);
}

int tt_frame_next(const uint8_t *data, size_t have, struct tt_frame_head *ret_head)
{
	static const uint32_t most[TT_F_KINDS] = {
		[TT_F_REGISTER] = TT_FRAME_REGISTER,
		[TT_F_DECLINE] = 2048,
		[TT_F_PARENT] = 2048,
		[TT_F_ATTACHED] = TT_FRAME_MOST,
		[TT_F_RELEASE] = 0,
		[TT_F_MISSING] = 2048,
		[TT_F_TABLE] = TT_FRAME_MOST,
		[TT_F_GATHER_UP] = TT_FRAME_MOST,
		[TT_F_GATHER_DOWN] = TT_FRAME_MOST,
		[TT_F_ABORT] = 2048,
		[TT_F_STATUS] = TT_FRAME_STATUSES,
		[TT_F_GOODBYE] = 64,
		[TT_F_SPLIT_FAILED] = 2048,
		[TT_F_DEAD] = 16,
		[TT_F_SHRUNK] = TT_FRAME_MOST,
		[TT_F_END] = 0,
		[TT_F_MESSAGE] = TT_FRAME_MESSAGE,
		[TT_F_CREDIT] = 8,
		[TT_F_SHRINK] = TT_FRAME_MOST,
		[TT_F_LEFT] = 0,
		[TT_F_CONFIRM] = 0,
		[TT_F_HOSTS] = TT_FRAME_MOST,
	};
	struct tt_reader r = { .at = data, .left = have };
	uint64_t bytes = tt_get(&r, 4), kind = tt_get(&r, 1), context = tt_get(&r, 8);

	if (r.failed)
		return 0;
	if (kind == 0 || kind >= TT_F_KINDS || bytes > most[kind])
		return -1;
	if (r.left < bytes && kind != TT_F_MESSAGE)
		return 0;
	*ret_head = (struct tt_frame_head){ (enum tt_frame)kind, context, bytes };
	return 1;
}

void tt_put_business_card(struct tt_writer *w, const struct tt_business_card *record)
{
	tt_put(w, (uint32_t)record->rank, 4);
	tt_put(w, (uint16_t)record->port, 2);
	tt_put(w, record->pid, 4);
	tt_put(w, record->netns, 8);
	tt_put(w, record->host, 8);
	tt_put_text(w, record->name);
	tt_put_bytes(w, record->public_key, TT_PUBLIC_KEY);
	tt_put(w, (uint8_t)record->naddresses, 1);
	for (int i = 0; i < record->naddresses; i++) {
		tt_put(w, record->addresses[i].family, 1);
		tt_put(w, record->addresses[i].prefix, 1);
		tt_put_bytes(w, record->addresses[i].bytes, sizeof(record->addresses[i].bytes));
	}
}

void tt_get_business_card(struct tt_reader *r, struct tt_business_card *ret_record)
{
	memset(ret_record, 0, sizeof(*ret_record));
	ret_record->rank = (int)tt_get_upto(r, 4, INT32_MAX);
	ret_record->port = (int)tt_get(r, 2);
	ret_record->pid = (uint32_t)tt_get(r, 4);
	ret_record->netns = tt_get(r, 8);
	ret_record->host = tt_get(r, 8);
	tt_get_text(r, ret_record->name, sizeof(ret_record->name));
	tt_get_copy(r, ret_record->public_key, TT_PUBLIC_KEY);
	ret_record->naddresses = (int)tt_get_upto(r, 1, TT_ADDRESSES);
	for (int i = 0; i < ret_record->naddresses; i++) {
		struct tt_address *a = &ret_record->addresses[i];

		a->family = (uint8_t)tt_get(r, 1);
		a->prefix = (uint8_t)tt_get_upto(r, 1, 128);
		r->failed |= a->family != 4 && a->family != 6;
		tt_get_copy(r, a->bytes, sizeof(a->bytes));
	}
}

void tt_put_register(struct tt_writer *w, const struct tt_register *reg)
{
	tt_put(w, reg->version, 4);
	tt_put(w, reg->nranks, 4);
	tt_put_text(w, reg->settings);
	tt_put_business_card(w, &reg->from);
}

bool tt_get_register(const void *data, size_t bytes, struct tt_register *ret_reg)
{
	struct tt_reader r = { .at = data, .left = bytes };

	ret_reg->version = (uint32_t)tt_get(&r, 4);
	ret_reg->nranks = (uint32_t)tt_get_upto(&r, 4, INT32_MAX);
	tt_get_text(&r, ret_reg->settings, sizeof(ret_reg->settings));
	tt_get_business_card(&r, &ret_reg->from);
	return tt_get_end(&r);
}
