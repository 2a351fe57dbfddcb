/*
 * gloo.cc - Gloo as a peer of perf/compare, over TCP: allreduce by halving and doubling, gather, scatter, messages
 *
 * One algorithm object per buffer and size, created on first use, as Gloo intends; the same for the buffers of a
 * ping-pong. Their pairs poll if every rank has a core of its own, and block in the kernel otherwise; the opposite
 * setting is ten times slower in each case. Unbound buffers, which the other calls need, do not work with such pairs:
 * they have a context of their own, with Gloo's thread. The ranks exchange addresses by files in the folder PEER_FOLDER.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/gather.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "perf/peers/peer.h"

using Algorithm = gloo::AllreduceHalvingDoubling<float>;

using Buffer = std::unique_ptr<gloo::transport::Buffer>;

static std::shared_ptr<gloo::rendezvous::Context> context, unbound;
static std::map<std::pair<float *, size_t>, std::unique_ptr<Algorithm>> algorithms;

/* Buffers of a ping-pong; both ranks make them in the same order, so the slot has the same number. */
struct Channel {
	int slot;
	Buffer receiver;
	std::map<const float *, Buffer> senders;
};
static std::map<std::pair<float *, size_t>, Channel> channels;

static int number(const char *variable)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : 0;
}

static int join(int *ret_rank, int *ret_n)
{
	gloo::rendezvous::FileStore store(getenv("PEER_FOLDER"));
	gloo::rendezvous::PrefixStore second("unbound", store);
	auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));

	*ret_rank = number("PEER_RANK");
	*ret_n = number("PEER_RANKS");
	context = std::make_shared<gloo::rendezvous::Context>(*ret_rank, *ret_n);
	context->connectFullMesh(store, device);
	for (int i = 0; i < *ret_n; i++)
		if (i != *ret_rank)
			context->getPair(i)->setSync(true, !number("PEER_CROWDED"));
	unbound = std::make_shared<gloo::rendezvous::Context>(*ret_rank, *ret_n);
	unbound->connectFullMesh(second, device);
	return 0;
}

static void leave()
{
	fflush(NULL);
	_Exit(0); /* skips destructors of pairs, which throw after the peer has closed */
}

static int allreduce(const float *in, float *out, size_t count)
{
	auto &a = algorithms[{ out, count }];

	if (in != out)
		memcpy(out, in, count * sizeof(float));
	if (!a)
		a.reset(new Algorithm(context, { out }, (int)count));
	a->run();
	return 0;
}

static int gather(const float *in, float *out, size_t count)
{
	gloo::GatherOptions options(unbound);

	options.setInput((float *)in, count);
	if (unbound->rank == 0)
		options.setOutput(out, count * unbound->size);
	options.setRoot(0);
	gloo::gather(options);
	return 0;
}

static int scatter(const float *in, float *out, size_t count)
{
	gloo::ScatterOptions options(unbound);
	std::vector<float *> parts;

	for (int r = 0; r < unbound->size; r++)
		parts.push_back((float *)in + r * count);
	if (unbound->rank == 0)
		options.setInputs(parts, count);
	options.setOutput(out, count);
	options.setRoot(0);
	gloo::scatter(options);
	return 0;
}

static void send(Channel &channel, const float *in, size_t bytes)
{
	Buffer &sender = channel.senders[in];

	if (!sender)
		sender = context->getPair(!context->rank)
				 ->createSendBuffer(channel.slot, const_cast<float *>(in), bytes);
	sender->send();
	sender->waitSend();
}

static int pingpong(const float *in, float *out, size_t count)
{
	size_t bytes = count * sizeof(float);
	Channel &channel = channels[{ out, count }];

	if (!channel.receiver) {
		channel.slot = context->nextSlot();
		channel.receiver = context->getPair(!context->rank)
					   ->createRecvBuffer(channel.slot, out, bytes);
	}
	if (context->rank == 0)
		send(channel, in, bytes);
	channel.receiver->waitRecv();
	if (context->rank != 0)
		send(channel, in, bytes);
	return 0;
}

static int sendrecv(const float *in, float *out, size_t count)
{
	size_t bytes = count * sizeof(float);
	auto from = unbound->createUnboundBuffer((float *)in, bytes);
	auto to = unbound->createUnboundBuffer(out, bytes);

	to->recv((unbound->rank + unbound->size - 1) % unbound->size, 0);
	from->send((unbound->rank + 1) % unbound->size, 0);
	from->waitSend();
	to->waitRecv();
	return 0;
}

extern "C" const struct peer peer = { join,
				      nullptr,
				      leave,
				      { allreduce, nullptr, nullptr, nullptr, nullptr, nullptr,
					gather, scatter, pingpong, sendrecv } };
