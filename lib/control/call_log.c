/*
 * call_log.c - the call log: the latest calls of this rank, for its service thread
 *
 * Run calls note and done in every collective: a few plain stores. control_status.c and deadlock.c
 * call the rest while some rank waits long. A history is the latest calls of a log, as a status
 * carries them: a mismatch is mostly found only after a rank has gone on to its next call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

/* An entry is invalid (seq 0) while it changes. Release stores, because a reader that sees a new
 * word must also see the 0 before that word. */
static inline void put_entry(struct tt_call_log_entry *entry, uint64_t seq,
			     const struct tt_call *call)
{
	uint64_t word[2];

	_Static_assert(sizeof(*call) == sizeof(word), "a call is two words of the log");
	memcpy(word, call, sizeof(word));
	atomic_store_explicit(&entry->seq, 0, memory_order_relaxed);
	atomic_store_explicit(&entry->word[0], word[0], memory_order_release);
	atomic_store_explicit(&entry->word[1], word[1], memory_order_release);
	atomic_store_explicit(&entry->seq, seq, memory_order_release);
}

static bool get_entry(struct tt_call_log_entry *entry, uint64_t seq, struct tt_call *ret_call)
{
	uint64_t before = atomic_load_explicit(&entry->seq, memory_order_acquire), word[2];

	word[0] = atomic_load_explicit(&entry->word[0], memory_order_acquire);
	word[1] = atomic_load_explicit(&entry->word[1], memory_order_acquire);
	if (!seq || before != seq || atomic_load_explicit(&entry->seq, memory_order_relaxed) != seq)
		return false;
	memcpy(ret_call, word, sizeof(word));
	return true;
}

void tt_control_note(struct tt_control *ctl, uint64_t seq, const struct tt_call *call)
{
	put_entry(&ctl->log.entry[seq % TT_CALL_LOG_ENTRIES], seq, call);
	atomic_store_explicit(&ctl->log.started, seq, memory_order_release);
	if (tt_unlikely(atomic_load_explicit(&ctl->log.gone_after, memory_order_relaxed) < seq)) {
		tt_control_lock(ctl);
		tt_flood_check_left(ctl);
		tt_control_unlock(ctl);
	}
}

void tt_control_done(struct tt_control *ctl, uint64_t seq)
{
	atomic_store_explicit(&ctl->log.finished, seq, memory_order_release);
}

bool tt_call_log_read(struct tt_control *ctl, uint64_t seq, struct tt_call *ret_call)
{
	return get_entry(&ctl->log.entry[seq % TT_CALL_LOG_ENTRIES], seq, ret_call);
}

/* Without memory the pair is not logged, and error texts lack its messages. */
void tt_control_note_message(struct tt_control *ctl, bool send, int peer, uint64_t number,
			     const struct tt_call *call)
{
	struct tt_pair *pair = tt_sparse_get(&ctl->log.pair, peer);

	if (tt_unlikely(!pair)) {
		pair = calloc(1, sizeof(*pair));
		if (!pair || !tt_sparse_set(&ctl->log.pair, peer, pair)) {
			free(pair);
			return;
		}
	}
	put_entry(&pair->entry[send][number % TT_MESSAGES], number, call);
	atomic_store_explicit(&pair->started[send], number, memory_order_release);
}

void tt_control_done_message(struct tt_control *ctl)
{
	uint64_t done = atomic_load_explicit(&ctl->log.messages_done, memory_order_relaxed);

	atomic_store_explicit(&ctl->log.messages_done, done + 1, memory_order_release);
}

bool tt_call_log_message(struct tt_control *ctl, bool send, int peer, uint64_t number,
			 struct tt_call *ret_call)
{
	struct tt_pair *pair = tt_sparse_get(&ctl->log.pair, peer);

	return pair && get_entry(&pair->entry[send][number % TT_MESSAGES], number, ret_call);
}

void tt_call_log_name(struct tt_control *ctl, uint64_t seq, char *text, size_t bytes)
{
	struct tt_call call;

	if (tt_call_log_read(ctl, seq, &call))
		tt_call_text(&call, seq, text, bytes);
	else
		snprintf(text, bytes, "operation %llu", (unsigned long long)seq);
}

void tt_control_running(struct tt_control *ctl, char *text, size_t bytes)
{
	uint64_t seq = atomic_load_explicit(&ctl->log.started, memory_order_acquire);

	text[0] = 0;
	if (seq > atomic_load_explicit(&ctl->log.finished, memory_order_acquire))
		tt_call_log_name(ctl, seq, text, bytes);
}

/* ---- history --------------------------------------------------------------------------------- */

/* false: number last has been overwritten */
bool tt_call_log_history(struct tt_control *ctl, uint64_t last, struct tt_call_history *ret_history)
{
	struct tt_call_history *t = ret_history;
	struct tt_call call;

	t->nruns = 0;
	for (uint64_t seq = last; seq && tt_call_log_read(ctl, seq, &call); seq--) {
		if (t->nruns && tt_call_equal(&call, &t->run[t->nruns - 1].call)) {
			t->run[t->nruns - 1].times++;
			continue;
		}
		if (t->nruns == TT_HISTORY_RUNS)
			break;
		t->run[t->nruns].call = call;
		t->run[t->nruns++].times = 1;
	}
	return !last || t->nruns;
}

uint64_t tt_call_log_differs(struct tt_control *ctl, uint64_t last,
			     const struct tt_call_history *history, struct tt_call *ret_mine,
			     struct tt_call *ret_theirs)
{
	uint64_t seq = last, found = 0;
	struct tt_call mine;

	for (int i = 0; i < history->nruns; i++)
		for (int k = 0; k < history->run[i].times; k++, seq--) {
			if (!tt_call_log_read(ctl, seq, &mine) ||
			    tt_call_equal(&mine, &history->run[i].call))
				continue;
			found = seq;
			*ret_mine = mine;
			*ret_theirs = history->run[i].call;
		}
	return found;
}

void tt_put_call(struct tt_writer *w, const struct tt_call *call)
{
	tt_put(w, call->collective, 1);
	tt_put(w, call->type, 1);
	tt_put(w, call->op, 1);
	tt_put(w, call->algorithm, 1);
	tt_put(w, (uint32_t)call->root, 4);
	tt_put(w, call->count, 8);
}

void tt_get_call(struct tt_reader *r, struct tt_call *ret_call)
{
	ret_call->collective = (uint8_t)tt_get(r, 1);
	ret_call->type = (uint8_t)tt_get(r, 1);
	ret_call->op = (uint8_t)tt_get(r, 1);
	ret_call->algorithm = (uint8_t)tt_get(r, 1);
	ret_call->root = (int32_t)tt_get(r, 4);
	ret_call->count = tt_get(r, 8);
}

void tt_put_call_history(struct tt_writer *w, const struct tt_call_history *history)
{
	tt_put(w, (uint64_t)history->nruns, 1);
	for (int i = 0; i < history->nruns; i++) {
		tt_put(w, history->run[i].times, 1);
		tt_put_call(w, &history->run[i].call);
	}
}

void tt_get_call_history(struct tt_reader *r, struct tt_call_history *ret_history)
{
	ret_history->nruns = (int)tt_get_upto(r, 1, TT_HISTORY_RUNS);
	for (int i = 0; i < ret_history->nruns; i++) {
		ret_history->run[i].times = (uint8_t)tt_get_upto(r, 1, TT_CALL_LOG_ENTRIES);
		tt_get_call(r, &ret_history->run[i].call);
	}
}
