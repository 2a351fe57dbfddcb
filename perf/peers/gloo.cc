/*
 * gloo.cc - Gloo as a peer of perf/compare: allreduce by halving and doubling, over TCP
 *
 * One algorithm object per buffer and size, created on first use, as Gloo intends. Pairs poll if every rank has a core of
 * its own, and block in the kernel otherwise; the opposite setting is ten times slower in each case. The ranks exchange
 * addresses by files in the folder PEER_FOLDER.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "perf/peers/peer.h"

using Algorithm = gloo::AllreduceHalvingDoubling<float>;

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::map<std::pair<float *, size_t>, std::unique_ptr<Algorithm>> algorithms;

static int number(const char *variable)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : 0;
}

static int join(int *ret_rank, int *ret_n)
{
	gloo::rendezvous::FileStore store(getenv("PEER_FOLDER"));
	auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));

	*ret_rank = number("PEER_RANK");
	*ret_n = number("PEER_RANKS");
	context = std::make_shared<gloo::rendezvous::Context>(*ret_rank, *ret_n);
	context->connectFullMesh(store, device);
	for (int i = 0; i < *ret_n; i++)
		if (i != *ret_rank)
			context->getPair(i)->setSync(true, !number("PEER_CROWDED"));
	return 0;
}

static void leave()
{
	fflush(NULL);
	_Exit(0);               /* skips destructors of pairs, which throw after the peer has closed */
}

static int allreduce(const float *in, float *out, size_t count)
{
	auto &a = algorithms[{out, count}];

	if (in != out)
		memcpy(out, in, count * sizeof(float));
	if (!a)
		a.reset(new Algorithm(context, { out }, (int)count));
	a->run();
	return 0;
}

extern "C" const struct peer peer = { join, nullptr, leave, { allreduce } };
