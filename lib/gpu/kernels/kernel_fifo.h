/*
 * kernel_fifo.h - the FIFO protocol: chunks that ranks write to their peers, round by round
 *
 * Round r of a block, counted over all calls: waits until the same block of each peer has completed
 * round r - TT_FIFO_LAG; stages chunk r in slot r of the receivers' FIFO; combines chunk
 * r - TT_FIFO_LAG of the senders, into the output or into the FIFO of results of the ranks that need it;
 * collects the results of chunk r - 2 TT_FIFO_LAG; then announces r + 1 rounds to each peer. Slots are
 * numbered modulo TT_FIFO_SLOTS = 2 TT_FIFO_LAG: a slot is written again when its owner has completed
 * the round that read it. So no call ends with a barrier, and a rank runs ahead of its peers by
 * TT_FIFO_LAG rounds, while their words are on their way. All loads are of the own GPU's memory: links
 * carry writes, which take no request and are waited for once in a round.
 */
#ifndef TT_KERNEL_FIFO_H
#define TT_KERNEL_FIFO_H

#include "gpu/kernels/kernel_move.h"
#include "gpu/kernels/kernel_record.h"
#include "gpu/kernels/kernel_task.h"

struct fifo_move {
	const char *src;
	char *dst;
	uint32_t bytes;
};
struct fifo_call {
	uint32_t base;   /* rounds of the block before this call */
	uint32_t chunks; /* of each block; the last ones may be empty */
	uint32_t rounds;
	uint32_t epoch;
	/* of this round: what is staged, from the next rank on, so that ranks write to different
	 * peers at a time; what is collected */
	struct fifo_move moves[2][TT_DEV_RANKS];
};

DEV uint64_t chunk_at(const struct tt_dev_fifo *f, uint32_t chunk)
{
	return ((uint64_t)chunk * BLOCKS + BLOCK) * f->chunk;
}

DEV uint64_t chunk_bytes(const struct tt_dev_fifo *f, uint32_t chunk)
{
	uint64_t at = chunk_at(f, chunk);

	return at >= f->bytes ? 0 : f->bytes - at < f->chunk ? f->bytes - at : f->chunk;
}

/* Offset and bytes of the part of a chunk that a rank combines in two steps. Only a chunk that is not
 * whole costs a division. */
DEV uint64_t unit_of(const struct tt_dev_job *j, uint64_t bytes)
{
	uint32_t all = j->nranks * 128;

	return bytes == j->fifo.chunk ? j->fifo.unit : ((uint32_t)bytes + all - 1) / all * 128;
}
DEV uint64_t unit_bytes(const struct tt_dev_job *j, uint64_t bytes, uint32_t rank)
{
	uint64_t unit = unit_of(j, bytes), at = unit * rank;

	return at >= bytes ? 0 : bytes - at < unit ? bytes - at : unit;
}

/* The (x + 1)-th of the next ranks; rank 0 follows the last one */
DEV uint32_t rank_after(const struct tt_dev_job *j, uint32_t x)
{
	uint32_t p = j->rank + 1 + x;

	return p < j->nranks ? p : p - j->nranks;
}

DEV char *slot_of(const struct tt_dev_job *j, uint32_t rank, uint32_t round, int result)
{
	uint64_t slot = BLOCK * TT_FIFO_SLOTS + round % TT_FIFO_SLOTS;

	return (char *)j->signals[rank] + (result ? TT_FIFO_RESULT_AT : TT_DEV_STAGED_AT) +
	       slot * TT_FIFO_SLOT_BYTES;
}

DEV void fifo_start(const struct tt_dev_job *j, struct tt_dev_signals *mine, uint32_t epoch,
		    struct fifo_call *c)
{
	uint64_t all = j->fifo.chunk * BLOCKS;

	if (THREAD == 0) {
		c->base = mine->rounds[BLOCK];
		c->epoch = epoch;
		c->chunks = (uint32_t)((j->fifo.bytes + all - 1) / all);
		c->rounds = c->chunks + j->fifo.steps * TT_FIFO_LAG;
	}
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank) {
			if (BLOCK == 0)
				put_signature(j, p, epoch);
			if (j->flags & TT_DEV_SCALES)
				*(volatile uint64_t *)&signals_of(j, p)
					 ->scale[epoch & 1][BLOCK][j->rank] = j->scale;
		}
	SYNC();
}

/* The round after i in which a block has work; rounds without work are not announced. */
DEV uint32_t fifo_next(const struct tt_dev_fifo *f, uint32_t chunks, uint32_t i)
{
	i++;
	if (i >= chunks && i < TT_FIFO_LAG)
		i = TT_FIFO_LAG;
	if (f->steps == 2 && i >= chunks + TT_FIFO_LAG && i < 2 * TT_FIFO_LAG)
		i = 2 * TT_FIFO_LAG;
	return i;
}

/* Distance of the senders' chunks, or parts of a chunk, in a slot */
DEV uint64_t apart_in_slot(const struct tt_dev_job *j, uint64_t bytes)
{
	return j->fifo.steps == 2 ? unit_of(j, bytes) : j->fifo.chunk;
}

/* Move x of those that stage a chunk: to the (x + 1)-th of the next ranks */
DEV struct fifo_move staging_move(const struct tt_dev_job *j, const struct fifo_call *c,
				  uint32_t chunk, uint32_t x)
{
	const struct tt_dev_fifo *f = &j->fifo;
	uint32_t p = rank_after(j, x);
	uint64_t bytes = chunk < c->chunks && f->receivers >> p & 1 ? chunk_bytes(f, chunk) : 0;
	struct fifo_move m;

	m.src = (const char *)j->in[j->rank] + chunk_at(f, chunk) + (f->parts ? p * f->bytes : 0);
	m.dst = slot_of(j, p, c->base + chunk, 0) + apart_in_slot(j, bytes) * j->rank;
	m.bytes = (uint32_t)bytes;
	if (f->steps == 2) {
		m.src += unit_of(j, bytes) * p;
		m.bytes = (uint32_t)unit_bytes(j, bytes, p);
	}
	return m;
}

/* Move p of those that collect a chunk: of rank p */
DEV struct fifo_move collecting_move(const struct tt_dev_job *j, const struct fifo_call *c,
				     uint32_t chunk, uint32_t p)
{
	const struct tt_dev_fifo *f = &j->fifo;
	uint64_t bytes = chunk < c->chunks && f->collects >> p & 1 ? chunk_bytes(f, chunk) : 0;
	struct fifo_move m;

	m.src = slot_of(j, j->rank, c->base + chunk, f->steps == 2) + apart_in_slot(j, bytes) * p;
	m.dst = (char *)j->out[j->rank] + chunk_at(f, chunk) + (f->gathers ? p * f->bytes : 0);
	m.bytes = (uint32_t)bytes;
	if (f->steps == 2) {
		m.dst += unit_of(j, bytes) * p;
		m.bytes = (uint32_t)unit_bytes(j, bytes, p);
	}
	return m;
}

/* Destination of results, from the next rank on */
DEV void add_result(const struct tt_dev_job *j, const struct fifo_call *c, uint32_t chunk,
		    uint64_t bytes, uint32_t x, struct combine_task *t)
{
	uint32_t next = j->rank + 1, p = rank_after(j, x), all = (1u << j->nranks) - 1,
		 from_next = (j->fifo.results >> next | j->fifo.results << (j->nranks - next)) &
			     all;

	if (from_next >> x & 1)
		t->dst[count_bits(from_next & ((1u << x) - 1))] = slot_of(j, p, c->base + chunk,
									  1) +
								  unit_of(j, bytes) * j->rank;
}

/* The task of the chunk that is combined in a round; each thread makes the part of a rank. */
DEV void make_combining_task(const struct tt_dev_job *j, const struct fifo_call *c, uint32_t chunk,
			     const struct tt_dev_record *record, struct combine_task *t)
{
	const struct tt_dev_fifo *f = &j->fifo;
	uint64_t bytes = f->combines && chunk < c->chunks ? chunk_bytes(f, chunk) : 0;

	for (uint32_t p = THREAD; p < j->nranks; p += THREADS) {
		if (f->combines >> p & 1) {
			uint32_t s = count_bits(f->combines & ((1u << p) - 1));

			t->src[s] = slot_of(j, j->rank, c->base + chunk, 0) +
				    apart_in_slot(j, bytes) * p;
			t->scale[s] = record[p].scale;
		}
		if (f->steps == 2)
			add_result(j, c, chunk, bytes, p, t);
	}
	if (THREAD)
		return;
	t->nsrc = count_bits(f->combines);
	t->ndst = f->steps == 2 ? count_bits(f->results) : 1;
	if (f->steps != 2)
		t->dst[0] = (char *)j->out[j->rank] + chunk_at(f, chunk);
	t->bytes = f->steps == 2 ? unit_bytes(j, bytes, j->rank) : bytes;
	t->flags = j->flags;
	t->divisor = j->divisor;
}

/* Waits for the peers and describes the work of round i of the call, in shared memory. */
DEV void fifo_begin_round(const struct tt_dev_job *j, struct tt_dev_signals *mine,
			  struct fifo_call *c, uint32_t i, struct tt_dev_record *record,
			  struct combine_task *t, int *failed)
{
	const struct tt_dev_fifo *f = &j->fifo;

	for (uint32_t p = THREAD; p < j->nranks; p += THREADS) {
		c->moves[0][p] = staging_move(j, c, i, p);
		c->moves[1][p] = collecting_move(j, c, i - f->steps * TT_FIFO_LAG, p);
		if (p == j->rank)
			continue;
		if (!await_epoch(j, &mine->completed[BLOCK][p], c->base + i - TT_FIFO_LAG + 1, p) ||
		    (BLOCK == 0 && i == TT_FIFO_LAG && !check_signature(j, p, c->epoch)))
			*failed = 1;
		if (i == TT_FIFO_LAG && j->flags & TT_DEV_SCALES)
			record[p].scale =
				*(volatile uint64_t *)&mine->scale[c->epoch & 1][BLOCK][p];
	}
	make_combining_task(j, c, i - TT_FIFO_LAG, record, t);
}

/* Copies what a round stages, then what it collects. Warps share the moves. */
DEV void fifo_move(const struct tt_dev_job *j, const struct fifo_call *c)
{
	uint32_t warp = THREAD / 32, warps = (THREADS + 31) / 32;

	ONCE for (uint32_t phase = 0; phase < 2; phase++)
	{
		const struct fifo_move *m = c->moves[phase];
		uint32_t n = j->nranks, few = n < warps ? n : warps;

		for (uint32_t x = warp % few; x < n; x += few)
			move(m[x].dst, m[x].src, m[x].bytes, warp / few * 32 + THREAD % 32,
			     THREADS < 32 ? THREADS : (warps - warp % few + few - 1) / few * 32);
	}
}

/* Announces round i of the call to the peers: the block's loads and stores of the round are done. */
DEV void fifo_end_round(const struct tt_dev_job *j, const struct fifo_call *c, uint32_t i)
{
	for (uint32_t p = THREAD; p < j->nranks; p += THREADS)
		if (p != j->rank)
			put_release(&signals_of(j, p)->completed[BLOCK][j->rank], c->base + i + 1);
}

#endif
