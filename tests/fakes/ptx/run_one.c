/*
 * run_one.c - run the kernel `wrong` of a PTX file of tests/fixtures/ptx with two threads and 64
 * bytes of global memory, for check_ptx.sh
 */
#include "tests/fakes/ptx/ptx_run.h"

#include <stdio.h>

extern const struct ptx_kernel ptx_wrong;
static uint64_t memory[8];

bool ptx_find_range(uintptr_t at, uintptr_t *ret_from, uintptr_t *ret_to)
{
	*ret_from = (uintptr_t)memory;
	*ret_to = *ret_from + sizeof(memory);
	return at >= *ret_from && at < *ret_to;
}

int main(void)
{
	uint64_t parameter = (uintptr_t)memory;

	ptx_run_block(&ptx_wrong, &parameter, 2, 0, 1);
	printf("memory[7] = %llx\n", (unsigned long long)memory[7]);
	return 0;
}
