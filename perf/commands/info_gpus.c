/*
 * info_gpus.c - the GPUs of this host for `tutti info`: driver, devices, whether the kernels load
 *
 * Called by cmd_info.c; calls the driver's table and device_kernels.c, as a join does.
 */
#include <stdio.h>

#include "gpu/device_kernels.h"
#include "perf/commands/cmd.h"
#include "tools/plural.h"

void tool_info_kernels(void)
{
	int cuda = tt_kernels_cuda_version();

	if (cuda)
		printf("  %-22s built in by nvcc of CUDA %d.%d, machine code for %s\n",
		       "GPU kernels", cuda / 1000, cuda % 1000 / 10, tt_kernels_code());
	else
		printf("  %-22s not built in (configure --with-nvcc); calls on CUDA memory go through the host\n",
		       "GPU kernels");
}

/* Loads the kernels into the primary context of the device. 0 | TT_CUDA | TT_SYSTEM */
static int load(const struct tt_cuda *cu, int device)
{
	const struct tt_kernels *kernels;
	tt_cuctx ctx;
	int rc = cu->ctx_retain(&ctx, device);

	if (rc || (rc = cu->ctx_push(ctx)))
		return tt_cuda_fail(rc, "a context on the device");
	rc = tt_kernels_load(cu, ctx, &kernels);
	cu->ctx_pop(&ctx);
	return rc;
}

static void print_gpu(const struct tt_cuda *cu, int ordinal)
{
	int device, major = 0, minor = 0;
	char name[128] = "?", title[32];

	snprintf(title, sizeof(title), "device %d", ordinal);
	if (cu->device_get(&device, ordinal) || cu->device_name(name, sizeof(name), device) ||
	    cu->device_attribute(&major, TT_CU_ATTR_MAJOR, device) ||
	    cu->device_attribute(&minor, TT_CU_ATTR_MINOR, device)) {
		printf("  %-22s the driver fails\n", title);
		return;
	}
	printf("  %-22s %s, compute capability %d.%d\n", title, name, major, minor);
	if (load(cu, device))
		printf("  %-22s no GPU kernels, calls on its memory go through the host: %s\n", "",
		       tt_error_text());
	else
		printf("  %-22s its driver loads the GPU kernels\n", "");
}

void tool_info_gpus(void)
{
	const struct tt_cuda *cu = tt_cuda_load();
	int version = 0, devices = 0;

	printf("\nGPUs\n");
	if (!cu) {
		printf("  %-22s %s\n", "driver", tt_error_text());
	} else if (cu->driver_version(&version) || cu->device_count(&devices)) {
		printf("  %-22s it fails\n", "driver");
	} else {
		printf("  %-22s CUDA %d.%d, %d device%s\n", "driver", version / 1000,
		       version % 1000 / 10, devices, tool_s(devices));
		for (int i = 0; i < devices; i++)
			print_gpu(cu, i);
	}
	tt_error_clear();
}
