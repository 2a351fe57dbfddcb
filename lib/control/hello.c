/*
 * hello.c - bytes and sentences of the first messages of a connection
 *
 * Called by tls.c (identity), control_authenticate.c and control_accept.c.
 */
#include "control/frame.h"
#include "control/hello.h"

void tt_psk_identity_put(const struct tt_psk_identity *identity,
			 uint8_t ret_bytes[TT_IDENTITY_BYTES])
{
	struct tt_writer w = { .data = ret_bytes, .room = TT_IDENTITY_BYTES };

	tt_put(&w, (uint16_t)identity->protocol, 2);
	tt_put_bytes(&w, identity->job, TT_NONCE);
	tt_put(&w, (uint32_t)identity->rank, 4);
	tt_put_bytes(&w, identity->server, TT_SERVER);
}

bool tt_psk_identity_get(const uint8_t *bytes, size_t have, struct tt_psk_identity *ret_identity)
{
	struct tt_reader r = { .at = bytes, .left = have };

	ret_identity->protocol = (int)tt_get(&r, 2);
	tt_get_copy(&r, ret_identity->job, TT_NONCE);
	ret_identity->rank = (int)tt_get_upto(&r, 4, INT32_MAX);
	tt_get_copy(&r, ret_identity->server, TT_SERVER);
	return tt_get_end(&r);
}

void tt_hello_put(const struct tt_hello *hello, uint8_t ret_bytes[TT_HELLO_BYTES])
{
	struct tt_writer w = { .data = ret_bytes, .room = TT_HELLO_BYTES };

	tt_put(&w, hello->purpose, 2);
	tt_put(&w, (uint32_t)hello->from, 4);
	tt_put(&w, (uint32_t)hello->to, 4);
	tt_put(&w, (uint32_t)hello->channel, 4);
	tt_put(&w, (uint32_t)hello->epoch, 4);
	tt_put(&w, hello->context, 8);
}

bool tt_hello_get(const uint8_t bytes[TT_HELLO_BYTES], struct tt_hello *ret_hello)
{
	struct tt_reader r = { .at = bytes, .left = TT_HELLO_BYTES };

	ret_hello->purpose = (enum tt_purpose)tt_get_upto(&r, 2, TT_P_RECORD);
	ret_hello->from = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->to = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->channel = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->epoch = (int)tt_get_upto(&r, 4, INT32_MAX);
	ret_hello->context = tt_get(&r, 8);
	return !r.failed && ret_hello->purpose;
}

bool tt_verdict_is_final(enum tt_verdict verdict)
{
	return verdict == TT_V_STALE || verdict == TT_V_IMPOSTOR || verdict == TT_V_EXCLUDED;
}

int tt_verdict_fail(enum tt_verdict verdict)
{
	static const char *const why[TT_VERDICTS] = {
		[TT_V_OTHER_RANK] = "another rank listens there",
		[TT_V_FULL] = "the other side has no file descriptor left (raise its ulimit -n)",
		[TT_V_STALE] =
			"a later attempt of this job listens there; this rank's attempt is over",
		[TT_V_EARLY] =
			"an earlier attempt of this job, or a rank that still joins, listens there",
		[TT_V_IMPOSTOR] = "this rank's key is not the one that rank 0 has registered",
		[TT_V_EXCLUDED] = "this rank is no member of the communicator there",
		[TT_V_BUSY] = "other monitors ask the job already; ask again later",
		[TT_V_MANY] = "the other side has as many connections as it takes already",
	};

	if (verdict >= TT_VERDICTS || !why[verdict])
		return tt_fail(TT_REMOTE, "something that is not a rank of Tutti listens there");
	return tt_fail(TT_REMOTE, "%s", why[verdict]);
}
