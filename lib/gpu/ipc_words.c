/*
 * ipc_words.c - host words: pinned host memory of one rank that all ranks of its communicator map
 *
 * Called by ipc_buffer.c; calls the driver. Host words are a memfd, so no name is left after any end. Each
 * process maps the memfd and registers its own mapping, which lives as long as its own kernels may write.
 * CUDA documents for registered memory that kernels and stream memory operations access it at the address of
 * cuMemHostGetDevicePointer, and that a waiting stream sees the stores of the host.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/gpu.h"

_Static_assert(sizeof(struct tt_dev_host_words) <= TT_DEV_HOST_BYTES, "host words have room");

int tt_ipc_words_open(const struct tt_cuda *cu, int fd, struct tt_dev_host_words **ret_words,
		      tt_cuptr *ret_at)
{
	struct stat st;
	void *p;
	int rc;

	if (fstat(fd, &st) || st.st_size < TT_DEV_HOST_BYTES)
		return tt_fail(TT_CUDA, "a peer's descriptor has no %d bytes of host words",
			       TT_DEV_HOST_BYTES);
	p = mmap(NULL, TT_DEV_HOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return tt_fail(TT_SYSTEM, "map %d bytes of host words: %m", TT_DEV_HOST_BYTES);
	rc = cu->host_register(p, TT_DEV_HOST_BYTES, TT_CU_HOST_PORTABLE | TT_CU_HOST_MAPPED);
	if (rc) {
		munmap(p, TT_DEV_HOST_BYTES);
		return tt_cuda_fail(rc, "pin %d bytes of host words", TT_DEV_HOST_BYTES);
	}
	rc = cu->host_device_ptr(ret_at, p, 0);
	if (rc) {
		tt_ipc_words_close(cu, p);
		return tt_cuda_fail(rc, "the device's address of host words");
	}
	*ret_words = p;
	return 0;
}

int tt_ipc_words_make(const struct tt_cuda *cu, int *ret_fd, struct tt_dev_host_words **ret_words,
		      tt_cuptr *ret_at)
{
	int rc, fd = memfd_create("tutti-words", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, TT_DEV_HOST_BYTES))
		rc = tt_fail(TT_SYSTEM, "%d bytes of host words: %m", TT_DEV_HOST_BYTES);
	else
		rc = tt_ipc_words_open(cu, fd, ret_words, ret_at);
	if (!rc)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

/* Memory that stays registered stays mapped, since the device may access it. */
void tt_ipc_words_close(const struct tt_cuda *cu, struct tt_dev_host_words *words)
{
	if (!cu->host_unregister(words))
		munmap(words, TT_DEV_HOST_BYTES);
}
