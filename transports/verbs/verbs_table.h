/*
 * verbs_table.h - libibverbs, loaded at first use; one list of its functions that Tutti calls
 *
 * verbs_table.c fills the table; the files verbs*.c call through it. Another library of that name
 * in LD_LIBRARY_PATH, such as the fake of tests/fakes/verbs, replaces every call.
 */
#ifndef TT_VERBS_TABLE_H
#define TT_VERBS_TABLE_H

#include <sys/types.h>

#include "base/base.h"
#include "transports/verbs/verbs_abi.h"

#define TT_VERBS_CALLS(X)                                                                      \
	X(struct tt_verbs_device **, get_device_list, (int *ret_n))                            \
	X(void, free_device_list, (struct tt_verbs_device * *list))                            \
	X(const char *, get_device_name, (struct tt_verbs_device * device))                    \
	X(struct tt_verbs_context *, open_device, (struct tt_verbs_device * device))           \
	X(int, close_device, (struct tt_verbs_context * context))                              \
	X(int, query_device,                                                                   \
	  (struct tt_verbs_context * context, struct tt_verbs_device_attr * attr))             \
	X(int, query_port,                                                                     \
	  (struct tt_verbs_context * context, uint8_t port, struct tt_verbs_port_attr * attr)) \
	X(int, query_pkey,                                                                     \
	  (struct tt_verbs_context * context, uint8_t port, int index, uint16_t *ret_key))     \
	X(struct tt_verbs_pd *, alloc_pd, (struct tt_verbs_context * context))                 \
	X(int, dealloc_pd, (struct tt_verbs_pd * pd))                                          \
	X(struct tt_verbs_mr *, reg_mr,                                                        \
	  (struct tt_verbs_pd * pd, void *addr, size_t bytes, int access))                     \
	X(int, dereg_mr, (struct tt_verbs_mr * mr))                                            \
	X(struct tt_verbs_channel *, create_comp_channel, (struct tt_verbs_context * context)) \
	X(int, destroy_comp_channel, (struct tt_verbs_channel * channel))                      \
	X(struct tt_verbs_cq *, create_cq,                                                     \
	  (struct tt_verbs_context * context, int entries, void *user,                         \
	   struct tt_verbs_channel *channel, int vector))                                      \
	X(int, destroy_cq, (struct tt_verbs_cq * cq))                                          \
	X(int, get_cq_event,                                                                   \
	  (struct tt_verbs_channel * channel, struct tt_verbs_cq * *ret_cq, void **ret_user))  \
	X(void, ack_cq_events, (struct tt_verbs_cq * cq, unsigned n))                          \
	X(struct tt_verbs_qp *, create_qp,                                                     \
	  (struct tt_verbs_pd * pd, struct tt_verbs_qp_init * init))                           \
	X(int, modify_qp, (struct tt_verbs_qp * qp, struct tt_verbs_qp_attr * attr, int mask)) \
	X(int, query_qp,                                                                       \
	  (struct tt_verbs_qp * qp, struct tt_verbs_qp_attr * attr, int mask,                  \
	   struct tt_verbs_qp_init *init))                                                     \
	X(int, destroy_qp, (struct tt_verbs_qp * qp))                                          \
	X(int, get_async_event,                                                                \
	  (struct tt_verbs_context * context, struct tt_verbs_async_event * ret_event))        \
	X(void, ack_async_event, (struct tt_verbs_async_event * event))                        \
	X(const char *, wc_status_str, (int status))                                           \
	X(const char *, event_type_str, (int event))

/* Functions of later libraries (rdma-core 34 or 35), or rarely needed; NULL where missing. */
#define TT_VERBS_LATER(X)                                                                 \
	X(int, fork_init, (void))                                                         \
	X(int, is_fork_initialized, (void))                                               \
	X(struct tt_verbs_mr *, reg_dmabuf_mr,                                            \
	  (struct tt_verbs_pd * pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, \
	   int access))

struct tt_verbs_table {
#define X(result, name, arguments) result(*name) arguments;
	TT_VERBS_CALLS(X)
	TT_VERBS_LATER(X)
#undef X
	ssize_t (*query_gid_table)(struct tt_verbs_context *context,
				   struct tt_verbs_gid_entry *entries, size_t n, uint32_t flags,
				   size_t entry_bytes);
};

/* The table, or NULL with the reason in why. Loads the library once per process. Thread: any. */
const struct tt_verbs_table *tt_verbs_load(char *why, size_t bytes);

#endif
