/*
 * test_verbs.c - claims of the verbs transport alone: its declarations equal libibverbs', both sides
 * choose the same GIDs, a steady state registers no memory and requests few completions
 *
 * The conformance suite is test_transports.c; tests/scripts/verbs.sh runs both on the fake library.
 */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/files.h"
#include "tests/support/harness_traffic.h"
#include "transports/verbs/verbs.h"

/* ---- declarations ---------------------------------------------------------------------------- */

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define SIZE(ours, theirs) cr_expect_eq(sizeof(struct ours), sizeof(struct theirs), #ours)
#define OFFSET(ours, member, theirs, name)						\
	cr_expect_eq(offsetof(struct ours, member), offsetof(struct theirs, name),	\
			#ours "." #member)
#define CONSTANT(ours, theirs) cr_expect_eq((int)ours, (int)theirs, #ours)

Test(verbs, struct_sizes_equal_those_of_the_systems_header, .timeout = 30)
{
	SIZE(tt_verbs_pd, ibv_pd);
	SIZE(tt_verbs_mr, ibv_mr);
	SIZE(tt_verbs_cq, ibv_cq);
	SIZE(tt_verbs_qp, ibv_qp);
	SIZE(tt_verbs_sge, ibv_sge);
	SIZE(tt_verbs_send_wr, ibv_send_wr);
	SIZE(tt_verbs_recv_wr, ibv_recv_wr);
	SIZE(tt_verbs_wc, ibv_wc);
	SIZE(tt_verbs_cap, ibv_qp_cap);
	SIZE(tt_verbs_qp_init, ibv_qp_init_attr);
	SIZE(tt_verbs_ah, ibv_ah_attr);
	SIZE(tt_verbs_qp_attr, ibv_qp_attr);
	SIZE(tt_verbs_gid_entry, ibv_gid_entry);
	SIZE(tt_verbs_async_event, ibv_async_event);
	SIZE(tt_verbs_context, ibv_context);
	SIZE(tt_verbs_channel, ibv_comp_channel);
}

Test(verbs, member_offsets_equal_those_of_the_systems_header, .timeout = 30)
{
	OFFSET(tt_verbs_context, ops.poll_cq, ibv_context, ops.poll_cq);
	OFFSET(tt_verbs_context, ops.req_notify_cq, ibv_context, ops.req_notify_cq);
	OFFSET(tt_verbs_context, ops.post_send, ibv_context, ops.post_send);
	OFFSET(tt_verbs_context, ops.post_recv, ibv_context, ops.post_recv);
	OFFSET(tt_verbs_context, async_fd, ibv_context, async_fd);
	OFFSET(tt_verbs_port_attr, lid, ibv_port_attr, lid);
	OFFSET(tt_verbs_port_attr, active_width, ibv_port_attr, active_width);
	OFFSET(tt_verbs_port_attr, link_layer, ibv_port_attr, link_layer);
	OFFSET(tt_verbs_port_attr, flags, ibv_port_attr, flags);
	OFFSET(tt_verbs_port_attr, pkey_tbl_len, ibv_port_attr, pkey_tbl_len);
	OFFSET(tt_verbs_qp_attr, pkey_index, ibv_qp_attr, pkey_index);
	OFFSET(tt_verbs_device_attr, max_cqe, ibv_device_attr, max_cqe);
	OFFSET(tt_verbs_device_attr, phys_port_cnt, ibv_device_attr, phys_port_cnt);
	OFFSET(tt_verbs_qp_attr, ah, ibv_qp_attr, ah_attr);
	OFFSET(tt_verbs_qp_attr, timeout, ibv_qp_attr, timeout);
	OFFSET(tt_verbs_qp_attr, rnr_retry, ibv_qp_attr, rnr_retry);
	OFFSET(tt_verbs_send_wr, imm_data, ibv_send_wr, imm_data);
	OFFSET(tt_verbs_send_wr, wr, ibv_send_wr, wr);
	OFFSET(tt_verbs_wc, imm_data, ibv_wc, imm_data);
	OFFSET(tt_verbs_wc, byte_len, ibv_wc, byte_len);
	OFFSET(tt_verbs_ah, grh.sgid_index, ibv_ah_attr, grh.sgid_index);
	OFFSET(tt_verbs_ah, port_num, ibv_ah_attr, port_num);
	OFFSET(tt_verbs_gid_entry, type, ibv_gid_entry, gid_type);
}

Test(verbs, constants_equal_those_of_the_systems_header, .timeout = 30)
{
	CONSTANT(TT_VERBS_ERR, IBV_QPS_ERR);
	CONSTANT(TT_VERBS_RTS, IBV_QPS_RTS);
	CONSTANT(TT_VERBS_GRH_REQUIRED, IBV_QPF_GRH_REQUIRED);
	CONSTANT(TT_VERBS_TRANSPORT, IBV_TRANSPORT_IB);
	CONSTANT(TT_VERBS_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
	CONSTANT(TT_VERBS_SIGNALED, IBV_SEND_SIGNALED);
	CONSTANT(TT_VERBS_INLINE, IBV_SEND_INLINE);
	CONSTANT(TT_VERBS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
	CONSTANT(TT_VERBS_WC_IMM, IBV_WC_RECV_RDMA_WITH_IMM);
	CONSTANT(TT_VERBS_WC_RETRY, IBV_WC_RETRY_EXC_ERR);
	CONSTANT(TT_VERBS_WC_RNR_RETRY, IBV_WC_RNR_RETRY_EXC_ERR);
	CONSTANT(TT_VERBS_WC_REM_ACCESS, IBV_WC_REM_ACCESS_ERR);
	CONSTANT(TT_VERBS_WC_GENERAL, IBV_WC_GENERAL_ERR);
	CONSTANT(TT_VERBS_EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL);
	CONSTANT(TT_VERBS_EVENT_PORT_ERR, IBV_EVENT_PORT_ERR);
	CONSTANT(TT_VERBS_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE);
	CONSTANT(TT_VERBS_QP_DEST, IBV_QP_DEST_QPN);
	CONSTANT(TT_VERBS_QP_DEST_READS, IBV_QP_MAX_DEST_RD_ATOMIC);
	CONSTANT(TT_VERBS_QP_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
	CONSTANT(TT_VERBS_QP_READS, IBV_QP_MAX_QP_RD_ATOMIC);
	CONSTANT(TT_VERBS_GID_ROCE2, IBV_GID_TYPE_ROCE_V2);
}
#else
Test(verbs, declarations_equal_those_of_the_systems_header)
{
	cr_skip_test("skipped: no infiniband/verbs.h (package libibverbs-dev)");
}
#endif

/* ---- GIDs ------------------------------------------------------------------------------------ */

static struct tt_verbs_gid_record v4(int c, int d, uint8_t type, uint8_t index)
{
	struct tt_verbs_gid_record o = { .type = type, .prefix = 24, .index = index };

	memcpy(o.gid, (uint8_t[16]){ [10] = 0xff, 0xff, 10, 0, (uint8_t)c, (uint8_t)d }, 16);
	return o;
}

static struct tt_verbs_gid_record v6(int network, int host, uint8_t index)
{
	struct tt_verbs_gid_record o = { .type = TT_VERBS_GID_ROCE2, .prefix = 64, .index = index };

	memcpy(o.gid, (uint8_t[16]){ 0x20, 0x01, [7] = (uint8_t)network, [15] = (uint8_t)host },
	       16);
	return o;
}

static struct tt_verbs_port_record port(struct tt_verbs_gid_record a, struct tt_verbs_gid_record b, struct tt_verbs_gid_record c)
{
	return (struct tt_verbs_port_record){ .link_layer = TT_VERBS_LINK_ETHERNET,
					 .ngids = 3,
					 .gid = { a, b, c } };
}

Test(verbs, a_pair_chooses_gids_of_one_subnet_version_and_family, .timeout = 30)
{
	struct tt_verbs_port_record a = port(v4(1, 1, 2, 3), v4(2, 1, 2, 5), v6(1, 1, 7));
	struct tt_verbs_port_record b = port(v6(1, 2, 4), v4(2, 2, 2, 6), v4(2, 2, 1, 2)),
			       none = { .link_layer = TT_VERBS_LINK_ETHERNET };
	struct tt_verbs_port_record infiniband_port = { .link_layer = TT_VERBS_LINK_INFINIBAND };
	struct tt_verbs_gid_record mine, theirs;

	cr_assert(tt_verbs_choose_gids(&a, &b, &mine, &theirs));
	cr_assert(mine.index == 5 && theirs.index == 6, "%d %d", mine.index, theirs.index);
	cr_assert(tt_verbs_choose_gids(&b, &a, &theirs, &mine));
	cr_assert(mine.index == 5 && theirs.index == 6);
	/* no common RoCE v2 GID over IPv4 */
	b = port(v6(1, 2, 4), v4(3, 2, 1, 2), v4(3, 2, 1, 8));
	cr_assert(tt_verbs_choose_gids(&a, &b, &mine, &theirs) && mine.index == 7 &&
		  theirs.index == 4);
	b = port(v4(2, 2, 1, 1), v4(3, 2, 1, 2), v4(3, 2, 1, 8));          /* v1 only */
	cr_assert_not(tt_verbs_choose_gids(&a, &b, &mine, &theirs));
	cr_assert_not(tt_verbs_choose_gids(&a, &none, &mine, &theirs));
	cr_assert_not(tt_verbs_choose_gids(&a, &infiniband_port, &mine, &theirs));
	cr_assert(tt_verbs_choose_gids(&infiniband_port, &infiniband_port, &mine, &theirs));
}

static struct tt_verbs_port_record infiniband(int subnet, uint16_t pkey)
{
	struct tt_verbs_port_record c = { .link_layer = TT_VERBS_LINK_INFINIBAND, .ngids = 1,
				     .lid = 1, .pkey = pkey };

	memcpy(c.gid[0].gid, (uint8_t[16]){ 0xfe, 0x80, [7] = (uint8_t)subnet, [15] = 1 }, 16);
	return c;
}

Test(verbs, infiniband_ports_connect_within_one_subnet_and_partition, .timeout = 30)
{
	struct tt_verbs_port_record full = infiniband(0, 0x8005), limited = infiniband(0, 0x0005),
			       other = infiniband(0, 0xffff), far = infiniband(1, 0x8005),
			       bare = { .link_layer = TT_VERBS_LINK_INFINIBAND, .pkey = 0x8005 };
	struct tt_verbs_gid_record a, b;

	cr_expect(tt_verbs_choose_gids(&full, &full, &a, &b) && a.gid[0] == 0xfe);
	cr_expect(tt_verbs_choose_gids(&full, &limited, &a, &b));
	cr_expect_not(tt_verbs_choose_gids(&limited, &limited, &a, &b));
	cr_expect_not(tt_verbs_choose_gids(&full, &other, &a, &b));
	cr_expect_not(tt_verbs_choose_gids(&full, &far, &a, &b));
	cr_expect(tt_verbs_choose_gids(&full, &bare, &a, &b));
	bare.grh = 1;
	cr_expect_not(tt_verbs_choose_gids(&full, &bare, &a, &b));
}

Test(verbs, a_gid_of_another_network_namespace_is_the_last_choice, .timeout = 30)
{
	struct tt_verbs_gid_record foreign = v4(1, 1, 2, 3), other = v4(1, 2, 2, 4);
	struct tt_verbs_port_record a, b;
	struct tt_verbs_gid_record mine, theirs;

	foreign.prefix = other.prefix = 0;
	a = port(foreign, v6(1, 1, 5), v6(2, 1, 6));
	b = port(other, v6(1, 2, 7), v6(2, 2, 8));
	cr_assert(tt_verbs_choose_gids(&a, &b, &mine, &theirs) && mine.index == 5 &&
		  theirs.index == 7);
	a.ngids = 1;
	cr_assert(tt_verbs_choose_gids(&a, &b, &mine, &theirs) && mine.index == 3 &&
		  theirs.index == 4);
}

/* ---- pairs of ports -------------------------------------------------------------------------- */

static struct tt_verbs_record record_of(int n, const int *subnet, int host)
{
	struct tt_verbs_record c = { .usable = 1, .nrails = (uint8_t)n };

	for (int i = 0; i < n; i++) {
		c.rail[i] = port(v4(subnet[i], host, 2, 3), v4(0, 0, 0, 0), v4(0, 0, 0, 0));
		c.rail[i].ngids = 1;
	}
	return c;
}

/* wanted: the ports "LOWHIGH" of each pair */
static void expect_paths(struct tt_verbs_record low, struct tt_verbs_record high, const char *wanted)
{
	struct tt_verbs_rail_pair path[TT_VERBS_RAILS];
	char text[64] = "";
	int n = tt_verbs_rail_pairs(&low, &high, path);

	for (int i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d%d", i ? " " : "",
			 path[i].low, path[i].high);
	cr_expect_str_eq(text, wanted);
}

Test(verbs, ports_of_one_subnet_are_paired_whatever_their_numbers, .timeout = 30)
{
	struct tt_verbs_record in_order = record_of(3, (int[]){ 1, 2, 3 }, 1),
			  crossed = record_of(3, (int[]){ 3, 1, 2 }, 2),
			  one = record_of(1, (int[]){ 2 }, 3),
			  same = record_of(3, (int[]){ 1, 1, 1 }, 4), none = { .nrails = 3 };

	expect_paths(in_order, in_order, "00 11 22");
	expect_paths(in_order, crossed, "01 12 20");
	expect_paths(crossed, in_order, "02 10 21");
	expect_paths(in_order, one, "10");
	expect_paths(one, in_order, "01");
	expect_paths(same, same, "00 11 22");
	expect_paths(same, none, "");
	same.rail[0].link_layer = TT_VERBS_LINK_INFINIBAND;
	expect_paths(same, same, "11 22 00");
	expect_paths(in_order, same, "01 12");
}

Test(verbs, a_ports_speed_counts_all_its_lanes, .timeout = 30)
{
	enum { SINGLE = 1, FOUR = 2, TWO = 16, FDR = 16, EDR = 32, HDR = 64, NDR = 128 };

	cr_expect(tt_verbs_speed(FOUR, HDR) > tt_verbs_speed(TWO, HDR));
	cr_expect_eq(tt_verbs_speed(FOUR, EDR), tt_verbs_speed(TWO, HDR));
	cr_expect(tt_verbs_speed(FOUR, NDR) > tt_verbs_speed(FOUR, HDR));
	cr_expect(tt_verbs_speed(SINGLE, NDR) > tt_verbs_speed(FOUR, FDR));
}

/* ---- locality -------------------------------------------------------------------------------- */

Test(verbs, a_rank_starts_with_the_port_nearest_to_its_processors, .timeout = 30)
{
	struct tt_verbs_rail rail[4] = {
		{ .name = "a0" }, { .name = "a1" }, { .name = "b0" }, { .name = "b1" }
	};
	uint64_t low[TT_CPU_WORDS] = { 0x30 }, high[TT_CPU_WORDS] = { 0, 1 },
		 all[TT_CPU_WORDS] = { ~0ull, ~0ull };
	uint64_t mixed[TT_CPU_WORDS] = { 1, 7 }, nowhere[TT_CPU_WORDS] = { [2] = 1 };
	char sys[] = "/tmp/tutti-verbs-XXXXXX", command[80];

	cr_assert_not_null(mkdtemp(sys));
	write_file_in(sys, "a0/device/local_cpulist", "0-15\n");
	write_file_in(sys, "a1/device/local_cpulist", "0-15\n");
	write_file_in(sys, "b0/device/local_cpulist", "64-79,90\n");
	write_file_in(sys, "b1/device/local_cpulist", "64-79,90\n");
	for (int number = 0; number < 8; number++) {
		cr_expect_eq(tt_verbs_nearest(sys, rail, 4, low, number), number % 2);
		cr_expect_eq(tt_verbs_nearest(sys, rail, 4, high, number), 2 + number % 2);
		cr_expect_eq(tt_verbs_nearest(sys, rail, 4, mixed, number), 2 + number % 2);
		cr_expect_eq(tt_verbs_nearest(sys, rail, 3, all, number), 2);
		cr_expect_eq(tt_verbs_nearest(sys, rail, 4, nowhere, number), number % 4);
		cr_expect_eq(tt_verbs_nearest("/nowhere", rail, 4, low, number), number % 4);
		cr_expect_eq(tt_verbs_nearest(sys, rail, 1, high, number), 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s", sys);
	cr_assert(system(command) == 0);
}

/* ---- steady state ---------------------------------------------------------------------------- */

static int steady_body(const struct tt_world *world, void *arg)
{
	static uint8_t buf[4000], in[4000];
	struct tt_verbs_ep *ep;
	struct rig rig;
	struct tt_link *l;
	uint64_t registrations, signalled, posted;

	(void)arg;
	EXPECT(rig_open(&rig, &tt_verbs, world, 1) == 0);
	l = rig.links[peer_of(world)];
	ep = (struct tt_verbs_ep *)rig.ep;
	registrations = ep->registrations;
	signalled = ep->signalled;
	posted = ep->posted;
	for (uint32_t i = 0; i < 6400; i++) {
		EXPECT(send_one(l, buf, i % 200, i) == 0);
		EXPECT(receive_one(l, in, i % 200, i) == 0);
	}
	signalled = ep->signalled - signalled;
	posted = ep->posted - posted;
	EXPECT(ep->registrations == registrations);
	/* messages carry credits */
	EXPECT(posted >= 6400 && posted < 6400 + 6400 / 16);
	/* every 32nd send is signaled, or a send per quarter of the ring */
	EXPECT(signalled * 20 < posted);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(verbs, a_steady_state_registers_nothing_and_signals_rarely, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, 1, 4000, false, steady_body, NULL) == 0);
	cr_assert(run_on(&tt_verbs, 2, 1, 4000, true, steady_body, NULL) == 0);
}

/* ---- cost of a small message ----------------------------------------------------------------- */

static struct counted {
	int (*send)(struct tt_verbs_qp *, struct tt_verbs_send_wr *, struct tt_verbs_send_wr **);
	int (*recv)(struct tt_verbs_qp *, struct tt_verbs_recv_wr *, struct tt_verbs_recv_wr **);
	int (*poll)(struct tt_verbs_cq *, int, struct tt_verbs_wc *);
	uint32_t sends, recvs, polls, completions;
} counted;

static int count_send(struct tt_verbs_qp *qp, struct tt_verbs_send_wr *wr, struct tt_verbs_send_wr **bad)
{
	counted.sends++;
	return counted.send(qp, wr, bad);
}

static int count_recv(struct tt_verbs_qp *qp, struct tt_verbs_recv_wr *wr, struct tt_verbs_recv_wr **bad)
{
	counted.recvs++;
	return counted.recv(qp, wr, bad);
}

static int count_poll(struct tt_verbs_cq *cq, int n, struct tt_verbs_wc *wc)
{
	int found = counted.poll(cq, n, wc);

	counted.polls += found > 0;
	counted.completions += found > 0 ? (uint32_t)found : 0;
	return found;
}

static int doorbells_body(const struct tt_world *world, void *arg)
{
	static uint8_t buf[8], in[8];
	const uint32_t calls = 3200;
	struct tt_verbs_context *context;
	struct rig rig;
	struct tt_link *l;

	(void)arg;
	EXPECT(rig_open(&rig, &tt_verbs, world, 1) == 0);
	l = rig.links[peer_of(world)];
	context = ((struct tt_verbs_ep *)rig.ep)->rail[0].context;
	counted = (struct counted){ context->ops.post_send, context->ops.post_recv, context->ops.poll_cq,
				    0, 0, 0, 0 };
	context->ops.post_send = count_send;
	context->ops.post_recv = count_recv;
	context->ops.poll_cq = count_poll;
	for (uint32_t i = 0; i < calls; i++) {
		EXPECT(send_one(l, buf, sizeof(buf), i) == 0);
		EXPECT(receive_one(l, in, sizeof(in), i) == 0);
	}
	/* credits need no work requests of their own when both sides send */
	EXPECT(counted.sends == calls);
	EXPECT(counted.recvs <= calls / TT_VERBS_REPOST);
	/* each receive, and every 32nd send */
	EXPECT(counted.completions <= calls + calls / TT_VERBS_SIGNAL + 1);
	EXPECT(counted.polls <= counted.completions);
	harness_barrier(world, 0);
	rig_close(&rig);
	return 0;
}

Test(verbs, an_eight_byte_message_costs_one_doorbell_and_one_completion, .timeout = 60)
{
	char why[256];

	if (!tt_verbs.probe(why, sizeof(why)))
		cr_skip_test("skipped: %s", why);
	cr_assert(run_on(&tt_verbs, 2, 1, 4000, false, doorbells_body, NULL) == 0);
}
