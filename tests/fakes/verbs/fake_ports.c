/* fake_ports.c - devices of the fake libibverbs, their attributes, ports and GIDs */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/fakes/verbs/fake_verbs.h"

#pragma GCC visibility push(default)

static struct tt_verbs_device devices[2];
static const char *const names[2] = { "fake0", "fake1" };
static const char *const soft_names[2] = { "rxe_fake0", "rxe_fake1" };

struct tt_verbs_device **ibv_get_device_list(int *ret_n);
void ibv_free_device_list(struct tt_verbs_device **list);
const char *ibv_get_device_name(struct tt_verbs_device *device);
struct tt_verbs_context *ibv_open_device(struct tt_verbs_device *device);
int ibv_close_device(struct tt_verbs_context *context);
int ibv_query_device(struct tt_verbs_context *context, struct tt_verbs_device_attr *attr);
int ibv_query_port(struct tt_verbs_context *context, uint8_t port, struct tt_verbs_port_attr *attr);
int ibv_query_pkey(struct tt_verbs_context *context, uint8_t port, int index, uint16_t *ret_key);
ssize_t _ibv_query_gid_table(struct tt_verbs_context *context, struct tt_verbs_gid_entry *entries,
			     size_t n, uint32_t flags, size_t bytes);

struct tt_verbs_device **ibv_get_device_list(int *ret_n)
{
	const char *n = getenv("TUTTI_TEST_VERBS_HCAS");
	struct tt_verbs_device **list = refused("get_device_list") ? NULL
								   : calloc(3, sizeof(*list));

	count_object(A_LIST, list != NULL);
	*ret_n = !shared() ? 0 : n ? atoi(n) : 1;
	for (int i = 0; list && i < *ret_n; i++)
		list[i] = &devices[i];
	return list;
}

void ibv_free_device_list(struct tt_verbs_device **list)
{
	count_object(A_LIST, -1);
	free(list);
}

const char *ibv_get_device_name(struct tt_verbs_device *device)
{
	const char *emulated = getenv("TUTTI_TEST_VERBS_SOFT");

	return emulated && atoi(emulated) ? soft_names[device - devices] : names[device - devices];
}

struct tt_verbs_context *ibv_open_device(struct tt_verbs_device *device)
{
	struct fake_verbs_context *c = refused("open_device") ? NULL : calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	count_object(A_CONTEXT, 1);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	c->number = new_number();
	c->device_index = (int)(device - devices);
	c->base.device = device;
	c->base.async_fd = listen_on(c->number);
	c->base.ops.poll_cq = work_poll;
	c->base.ops.req_notify_cq = work_arm;
	c->base.ops.post_send = work_send;
	c->base.ops.post_recv = work_recv;
	return &c->base;
}

int ibv_close_device(struct tt_verbs_context *context)
{
	int code = refused("close_device");

	if (code)
		return code;
	count_object(A_CONTEXT, -1);
	close(context->async_fd);
	free(context);
	return 0;
}

int ibv_query_device(struct tt_verbs_context *context, struct tt_verbs_device_attr *attr)
{
	(void)context;
	*attr = (struct tt_verbs_device_attr){
		.phys_port_cnt = 1, .max_cqe = CQ_ENTRIES, .max_qp_wr = MAX_DEPTH, .max_sge = 2
	};
	return refused("query_device");
}

bool infiniband(void)
{
	return getenv("TUTTI_TEST_VERBS_IB") != NULL;
}

/* InfiniBand: does the port require a GRH? */
bool wants_grh(void)
{
	return infiniband() && !strcmp(getenv("TUTTI_TEST_VERBS_IB"), "grh");
}

/* One LID per device and process, as if each process were a host */
uint16_t lid_of(const struct tt_verbs_context *context)
{
	return infiniband()
		       ? (uint16_t)(1 +
				    (getpid() * 2 +
				     ((const struct fake_verbs_context *)context)->device_index) %
					    0xbfff)
		       : 0;
}

/* Ethernet: the default partition. InfiniBand: two partitions, with full membership of the second
 * only. */
int ibv_query_pkey(struct tt_verbs_context *context, uint8_t port, int index, uint16_t *ret_key)
{
	static const uint16_t keys[3] = { 0x7fff, 0, 0x8005 };
	int code = refused("query_pkey");

	if (code || index < 0 || index >= (infiniband() ? 3 : 1) || port != 1 || !context)
		return code ? code : EINVAL;
	*ret_key = htons(infiniband() ? keys[index] : 0xffff);
	return 0;
}

int ibv_query_port(struct tt_verbs_context *context, uint8_t port, struct tt_verbs_port_attr *attr)
{
	*attr = (struct tt_verbs_port_attr){
		.state = port == 1 && !ports_are_down(false) ? TT_VERBS_PORT_ACTIVE : 1,
		.active_mtu = 5,
		.max_mtu = 5,
		.link_layer = infiniband() ? TT_VERBS_LINK_INFINIBAND : TT_VERBS_LINK_ETHERNET,
		.active_width = 2,
		.active_speed = 32,
		.gid_tbl_len = 4,
		.lid = lid_of(context),
		.flags = wants_grh(),
		.pkey_tbl_len = infiniband() ? 3 : 1
	};
	return refused("query_port");
}

/* Three GIDs: link-local, RoCE v1, and RoCE v2 over IPv4, which a user should choose. */
ssize_t _ibv_query_gid_table(struct tt_verbs_context *context, struct tt_verbs_gid_entry *entries,
			     size_t n, uint32_t flags, size_t bytes)
{
	const struct fake_verbs_context *c = (const struct fake_verbs_context *)context;
	const uint8_t local[16] = { 0xfe, 0x80, [15] = 9 };
	const uint8_t v4[16] = { [10] = 0xff, 0xff, 10, 77, 0, (uint8_t)(1 + c->device_index) };

	int code = refused("query_gid_table");

	if (code || n < 3 || flags || bytes != sizeof(*entries))
		return code ? -code : -EINVAL;
	if (infiniband()) {
		uint16_t lid = lid_of(context);

		entries[0] = (struct tt_verbs_gid_entry){ .port = 1, .type = TT_VERBS_GID_IB };
		memcpy(entries[0].gid, local, 16);
		memcpy(entries[0].gid + 12, &lid, 2);
		return 1;
	}
	entries[0] = (struct tt_verbs_gid_entry){ .index = 0,
						  .port = 1,
						  .type = TT_VERBS_GID_ROCE2 };
	entries[1] = (struct tt_verbs_gid_entry){ .index = 2,
						  .port = 1,
						  .type = TT_VERBS_GID_ROCE1 };
	entries[2] = (struct tt_verbs_gid_entry){ .index = 3,
						  .port = 1,
						  .type = TT_VERBS_GID_ROCE2 };
	memcpy(entries[0].gid, local, 16);
	memcpy(entries[1].gid, v4, 16);
	memcpy(entries[2].gid, v4, 16);
	return 3;
}
