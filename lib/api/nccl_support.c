/* nccl_support.c - calls of nccl/ into the rooms that it does not include, see nccl_support.h */
#include "api/api.h"
#include "api/nccl_support.h"
#include "control/control.h"
#include "mem/reduce.h"

size_t tt_nccl_type_bytes(tuttiDataType_t type)
{
	return tt_type_bytes(type);
}

int tt_nccl_group_fail(int code)
{
	return tt_group_fail(code);
}

int tt_nccl_id_from_root(const char *host_port, const char *secret, tuttiUniqueId *ret_id)
{
	return tt_id_from_root(host_port, secret, ret_id);
}
