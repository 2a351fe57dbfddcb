/*
 * cost.c - the built-in cost table, and the arithmetic on cost tables (cost.h)
 */
#include <string.h>

#include "model/cost.h"

const char *const tt_link_class_name[TT_LINK_CLASSES] = {
	"shm", "tcp", "hosts", TT_LINK_SLOTS_NAME, "verbs", "soft", "groups"
};

/* Constants fitted by `tutti tune` on a virtual machine with 2 cores (Sapphire Rapids, 2 MiB L2 a
 * core). HOSTS: estimate for 10 Gbit/s Ethernet. VERBS: estimate from data sheets of 100 Gbit/s
 * NICs. SOFT: HOSTS times the ratio of Soft-RoCE to tcp in an emulated machine
 * (docs/results/soft-roce.md): 1.5 for small messages, 2 for bytes. GROUPS: SHM, with published
 * differences between L3 caches of an EPYC 7R13: a line of another core takes 107 ns, 23 ns within a
 * cache (Viennot 2022, core-to-core-latency), and a cache's link carries 51 GB/s (32 bytes a cycle of
 * 1.6 GHz; AMD 2021, EPYC 7003 architecture overview). */
const struct tt_cost tt_cost_builtin = {
	.core = { .call_ps = 92000, .step_ps = 17000, .switch_ps = 1170000, .copy_fs = 72000,
		.reduce_fs = 20000, .far_copy_fs = 73000, .far_reduce_fs = 140000,
		.memory_fs = 34000, .cache_bytes = 2 << 20 },
	.link = {
		[TT_LINK_SHM] = { .latency_ps = 90000, .send_ps = 19000, .recv_ps = 21000,
			.recv_fs = 38000, .window = 8, .large_bytes = 336, .large_ps = 460000 },
		[TT_LINK_TCP] = { .latency_ps = 520000, .send_ps = 1930000, .recv_ps = 1200000,
			.send_fs = 117000, .recv_fs = 87000, .window = 16, .large_bytes = 65536 },
		[TT_LINK_HOSTS] = { .latency_ps = 20000000, .send_ps = 1500000, .recv_ps = 1500000,
			.send_fs = 140000, .recv_fs = 62000, .link_fs = 800000, .host_fs = 800000,
			.window = 16, .large_bytes = 65536 },
		[TT_LINK_SLOTS] = { .latency_ps = 54000, .send_ps = 9000, .recv_ps = 8400,
			.recv_fs = 29000, .large_bytes = 336, .large_ps = 56000 },
		[TT_LINK_VERBS] = { .latency_ps = 1600000, .send_ps = 150000, .recv_ps = 100000,
			.link_fs = 80000, .host_fs = 80000, .window = 3, .large_bytes = 240,
			.large_ps = 300000 },
		[TT_LINK_SOFT] = { .latency_ps = 30000000, .send_ps = 2300000, .recv_ps = 2300000,
			.link_fs = 1600000, .host_fs = 1600000, .window = 3, .large_bytes = 240 },
		[TT_LINK_GROUPS] = { .latency_ps = 174000, .send_ps = 19000, .recv_ps = 21000,
			.recv_fs = 76000, .host_fs = 19500, .window = 8, .large_bytes = 336,
			.large_ps = 628000 },
	},
};

enum tt_link_class tt_cost_class(bool apart, bool over_tcp, enum tt_link_class nic_class)
{
	if (!apart && !over_tcp)
		return TT_LINK_SHM;
	if (nic_class != TT_NO_NIC)
		return nic_class;
	return apart ? TT_LINK_HOSTS : TT_LINK_TCP;
}

uint64_t tt_cost_message_ps(const struct tt_cost *cost, enum tt_link_class class, uint64_t bytes)
{
	const struct tt_link_cost *l = &cost->link[class];
	uint64_t wire = l->host_fs > l->link_fs ? l->host_fs : l->link_fs,
		 copies = tt_link_is_nic(class) ? 2 * cost->core.copy_fs : 0;

	return l->latency_ps + l->send_ps + l->recv_ps +
	       (bytes > l->large_bytes ? l->large_ps : 0) +
	       (uint64_t)((unsigned __int128)bytes * (l->send_fs + l->recv_fs + wire + copies) /
			  1000);
}

/* Interpolates between two prices by the share of the footprint outside the cache. */
static uint64_t blend(uint64_t near, uint64_t far, uint64_t cache, uint64_t footprint)
{
	if (far <= near || footprint <= cache)
		return near;
	return far - (uint64_t)((unsigned __int128)(far - near) * cache / footprint);
}

struct tt_prices tt_cost_prices(const struct tt_cost *cost, uint64_t footprint, int ranks,
				int cores)
{
	const struct tt_core_cost *c = &cost->core;
	bool crowded = cores && ranks > cores;
	uint64_t busy = (uint64_t)(crowded ? cores : ranks),
		 shared = c->memory_fs * (busy ? busy : 1);
	uint64_t far_copy = c->far_copy_fs > shared ? c->far_copy_fs : shared;
	uint64_t far_reduce = c->far_reduce_fs > shared ? c->far_reduce_fs : shared;

	return (struct tt_prices){
		.copy_fs = blend(c->copy_fs, far_copy, c->cache_bytes, footprint),
		.reduce_fs = blend(c->reduce_fs, far_reduce, c->cache_bytes, footprint),
		.remote_permille = crowded ? 1000 - 1000 / busy : 1000
	};
}

/* ---- factors --------------------------------------------------------------------------------- */

int tt_factor_compare(const void *a, const void *b)
{
	const struct tt_factor *x = a, *y = b;

	if (x->algorithm != y->algorithm)
		return x->algorithm < y->algorithm ? -1 : 1;
	if (x->link != y->link)
		return x->link < y->link ? -1 : 1;
	if (x->nranks != y->nranks)
		return x->nranks < y->nranks ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool same_curve(const struct tt_factor *f, uint8_t algorithm, enum tt_link_class link,
		       uint16_t nranks)
{
	return f->algorithm == algorithm && f->link == (uint8_t)link && f->nranks == nranks;
}

/* Measured number of ranks nearest to nranks by ratio; 0: no measurement. */
static uint16_t nearest_ranks(const struct tt_cost *cost, uint8_t algorithm,
			      enum tt_link_class link, int nranks)
{
	uint16_t best = 0;

	for (uint32_t i = 0; i < cost->nfactors; i++) {
		const struct tt_factor *f = &cost->factors[i];
		uint64_t n = (uint64_t)nranks, a = f->nranks, b = best;

		if (f->algorithm != algorithm || f->link != (uint8_t)link)
			continue;
		/* max(a, n) / min(a, n) < max(b, n) / min(b, n), without fractions */
		if (!best || (a > n ? a : n) * (b < n ? b : n) < (b > n ? b : n) * (a < n ? a : n))
			best = f->nranks;
	}
	return best;
}

/* 1024 log2(bytes), linear between powers of two. */
static uint64_t log_of(uint64_t bytes)
{
	uint64_t whole = bytes > 1 ? 63 - (uint64_t)__builtin_clzll(bytes) : 0;

	return bytes > 1 ? 1024 * whole + (whole >= 10 ? (bytes >> (whole - 10)) - 1024
						       : (bytes << (10 - whole)) - 1024)
			 : 0;
}

static uint64_t between(const struct tt_factor *low, const struct tt_factor *high, uint64_t bytes)
{
	uint64_t a = log_of(low->bytes), b = log_of(high->bytes), x = log_of(bytes);

	if (x <= a || b <= a)
		return low->permille;
	if (x >= b)
		return high->permille;
	return (low->permille * (b - x) + high->permille * (x - a)) / (b - a);
}

uint64_t tt_cost_corrected(const struct tt_cost *cost, uint8_t algorithm, enum tt_link_class link,
			   int nranks, uint64_t bytes, uint64_t ps)
{
	uint16_t near = cost->nfactors ? nearest_ranks(cost, algorithm, link, nranks) : 0;
	const struct tt_factor *low = NULL, *high = NULL;

	for (uint32_t i = 0; near && i < cost->nfactors; i++) {
		const struct tt_factor *f = &cost->factors[i];

		if (!same_curve(f, algorithm, link, near))
			continue;
		if (f->bytes <= bytes || !low)
			low = f;
		high = f;
		if (f->bytes >= bytes)
			break;
	}
	return low ? (uint64_t)((unsigned __int128)ps * between(low, high, bytes) / 1000) : ps;
}
