/*
 * fuzz_messages.c - a proven peer's frames between this rank's calls: messages, quorum, shrink
 *
 * The first byte chooses this rank and the peer, and whether memory runs out at a request. The rest is a
 * schedule: each step is a frame of any kind, a message with a valid header, a call of this rank (receive,
 * cancel, answer, query, split, shrink, exchange), or the delivery of what has come. Whatever the schedule,
 * nothing crashes or hangs, a message that is received fits its receiver, and no more memory is held than was
 * received, but for the room of messages that have begun: 64 MiB, as promised, and a contribution.
 */
#include <stdlib.h>
#include <string.h>

#include "am/am_internal.h"
#include "control/frame.h"
#include "tests/fuzz/fuzz_control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define TIMEOUT_MS 1000
#define STEPS 64

struct fuzzed_rank {
	struct tt_reader in;
	struct tt_control *ctl;
	struct tt_am *am;
	struct tt_tls *theirs;
	int peer;
	size_t given; /* bytes sent to this rank */
	bool forming;
};

static unsigned take(struct fuzzed_rank *s)
{
	return (unsigned)tt_get(&s->in, 1);
}

/* Values at which bounds are wrong, if they are */
static uint64_t take_value(struct fuzzed_rank *s)
{
	static const uint64_t values[] = { 0,          1,          2,          FUZZ_RANKS,
					   0x7fffffff, 0xffffffff, 1ull << 26, UINT64_MAX };
	unsigned what = take(s);

	return what < 128 ? what : values[what % 8];
}

/* ---- the peer -------------------------------------------------------------------------------- */

static void give(struct fuzzed_rank *s, enum tt_frame kind, uint64_t context, const void *head,
		 size_t head_bytes)
{
	size_t bytes = take(s);
	struct tt_writer w = { 0 };
	const void *body;

	if (kind == TT_F_MESSAGE && !head)
		bytes %= 16;
	bytes = bytes < s->in.left ? bytes : s->in.left;
	body = tt_get_bytes(&s->in, bytes);
	tt_put_frame_head(&w, &(struct tt_frame_head){ kind, context, head_bytes + bytes });
	tt_put_bytes(&w, head, head_bytes);
	if (bytes)
		tt_put_bytes(&w, body, bytes);
	s->given += w.have;
	(void)!tt_tls_send(s->theirs, w.data, w.have);
	free(w.data);
}

static void give_frame(struct fuzzed_rank *s)
{
	unsigned kind = take(s), context = take(s);

	give(s, kind % TT_F_KINDS, context > 200 ? context : 0, NULL, 0);
}

/* A message in the stream of active messages, or one of shrink ahead of it */
static void give_message(struct fuzzed_rank *s, enum tt_frame kind)
{
	uint8_t raw[TT_AM_HEADER_BYTES];
	struct tt_am_header h = { .kind = take(s) % TT_AM_KINDS };

	h.tag = (int)take_value(s);
	h.version = take_value(s);
	h.bytes = take_value(s);
	if (h.kind ==
	    TT_AM_CONTRIBUTION) /* room for all that is announced, which libFuzzer refuses */
		h.bytes %= 4096;
	for (int i = 0; i < 4; i++)
		h.call[i] = (uint32_t)take_value(s);
	tt_am_header_put(&h, raw);
	give(s, kind, 0, raw, sizeof(raw));
}

/* A contribution of one value, to rank 0's coordinator */
static void give_contribution(struct fuzzed_rank *s)
{
	uint8_t raw[TT_AM_HEADER_BYTES + 4] = { 0 };
	struct tt_am_header h = { .kind = TT_AM_CONTRIBUTION, .tag = 1, .bytes = 4 };
	struct tt_writer w = { 0 };

	h.version = 1 + take(s) % 3;
	h.call[0] = tuttiInt32 | (take(s) & 3) << 8;
	h.call[1] = tuttiSum;
	h.call[2] = take(s) % 4;
	h.call[3] = take(s) % 2;
	if (h.call[0] & 0x100)
		h.bytes = 0;
	tt_am_header_put(&h, raw);
	tt_put_frame_head(&w, &(struct tt_frame_head){ TT_F_MESSAGE, 0,
						       TT_AM_HEADER_BYTES + (size_t)h.bytes });
	tt_put_bytes(&w, raw, TT_AM_HEADER_BYTES + (size_t)h.bytes);
	s->given += w.have;
	(void)!tt_tls_send(s->theirs, w.data, w.have);
	free(w.data);
}

/* ---- this rank ------------------------------------------------------------------------------- */

static void receive(struct fuzzed_rank *s)
{
	uint8_t to[300];
	struct tt_am_header h = { 0 };
	struct tt_am_match want = { .kind = 1 + take(s) % (TT_AM_KINDS - 1),
				    .source = take(s) % 2 ? s->peer : -1,
				    .tag = take(s) % 2 ? (int)take(s) : -1,
				    .probe = take(s) % 4 == 0,
				    .to = to,
				    .room = take(s) };
	int rc = tt_am_recv(s->am, &want, 0, &h);

	if (rc)
		return;
	fuzz_must(want.probe || h.bytes <= want.room, "a received message fits");
	fuzz_must(h.source == s->peer && h.kind == want.kind, "it is of the peer, and of the kind");
	fuzz_must(want.tag < 0 || h.tag == want.tag, "it has the tag");
}

static void answer(struct fuzzed_rank *s)
{
	static const uint8_t bytes[64];
	unsigned n = take(s);

	tt_am_set_answer(s->am, n < 64 ? bytes : NULL, n % 64);
}

static void query(struct fuzzed_rank *s)
{
	struct tt_am_header h = { .kind = TT_AM_QUERY, .tag = (int)take(s) };

	tt_am_query(s->am, s->peer, &h);
	fuzz_must(tt_am_asker(s->am) < s->ctl->rank, "only a lower rank has asked");
}

static void form(struct fuzzed_rank *s)
{
	s->forming = !s->forming;
	if (s->forming)
		tt_control_shrinking(s->ctl);
	else
		tt_control_formed(s->ctl);
}

static void exchange(struct fuzzed_rank *s)
{
	if (!s->ctl->gather.running)
		fuzz_begin_gather(s->ctl);
}

static void look(struct fuzzed_rank *s)
{
	tt_control_lock(s->ctl);
	tt_deadlock_check(s->ctl);
	tt_observers_timers(s->ctl, tt_now_ns() + (take(s) % 2 ? 0 : 2000000000ull));
	tt_control_unlock(s->ctl);
}

static void step(struct fuzzed_rank *s)
{
	switch (take(s) % 14) {
	case 0:
	case 1:
		give_frame(s);
		break;
	case 2:
	case 3:
		give_message(s, TT_F_MESSAGE);
		break;
	case 4:
		give_message(s, TT_F_SHRINK);
		break;
	case 5:
		give_contribution(s);
		break;
	case 6:
		receive(s);
		break;
	case 7:
		tt_am_cancel(s->am, s->peer, (int)take(s), take_value(s));
		break;
	case 8:
		answer(s);
		break;
	case 9:
		query(s);
		break;
	case 10:
		form(s);
		break;
	case 11:
		exchange(s);
		break;
	case 12:
		look(s);
		break;
	default:
		fuzz_serve(s->ctl->ep);
	}
}

static void check(const struct fuzzed_rank *s)
{
	size_t most = (size_t)FUZZ_RANKS * 8192 + 8 * s->given + TT_AM_UNEXPECTED_BYTES;
	int culprit;
	const char *text = tt_control_text(s->ctl, &culprit);

	fuzz_must(tt_am_memory(s->am) <= most, "no more memory is held than promised");
	for (const char *p = text; *p; p++)
		fuzz_must((unsigned char)*p >= ' ', "the error text is printable");
	for (int r = 0; r < FUZZ_RANKS; r++)
		fuzz_must(tt_am_state(s->am, r) <= tuttiRankDead, "a rank has a state");
}

/* ---- one input ------------------------------------------------------------------------------- */

static void run(struct fuzzed_rank *s)
{
	for (int i = 0; i < STEPS && s->in.left; i++)
		step(s);
	fuzz_serve(s->ctl->ep);
	check(s);
	if (s->forming)
		form(s);
	tt_tls_close(s->theirs);
	fuzz_serve(s->ctl->ep);
	check(s);
	tt_am_abort(s->am);
	tt_am_close(s->am);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	/* a child, the parent, a ring neighbor, another rank; of rank 0: a child */
	static const int ranks[5] = { 1, 1, 1, 1, 0 }, peers[5] = { 9, 0, 2, 13, 1 };
	struct fuzzed_rank s = { .in = { .at = data, .left = bytes } };
	unsigned first = take(&s), role = first % 5, memory = first >= 240 ? take(&s) : 0;
	struct tt_control_endpoint *ep;
	struct tt_tls *ours;

	s.peer = peers[role];
	if (tt_endpoint_make(ranks[role], FUZZ_RANKS, &ep) ||
	    tt_endpoint_listen(ep, &(struct tt_ports){ 0 }) ||
	    tt_control_make(ep, ranks[role], FUZZ_RANKS, &s.ctl) ||
	    tt_am_make(s.ctl, ranks[role], FUZZ_RANKS, TIMEOUT_MS, &s.am) ||
	    !tls_pair(fuzz_sessions(), &fuzz_key, &ours, &s.theirs))
		return 0;
	ep->auth.tls = fuzz_sessions();
	ep->auth.identity = *fuzz_identity();
	fuzz_know_ranks(ep);
	s.ctl->join.has_table = true;
	tt_conn_add(ep, (struct tt_duplex){ .tls = ours }, s.peer, false);
	fuzz_memory(memory);
	run(&s);
	fuzz_memory(0);
	ep->auth.tls = NULL;
	ep->auth.identity.secret = NULL;
	tt_control_free(s.ctl);
	return 0;
}
