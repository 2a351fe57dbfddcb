/* cublas.c - load cuBLAS and fill the table of its functions (cublas.h) */
#include "trainer/device/cublas.h"

#include "trainer/base/fail.h"

#include <dlfcn.h>
#include <stddef.h>

/* Paths include CUDA's default prefix, which the loader may not search. */
static const char *const files[] = {
	"libcublas.so.13",
	"libcublas.so.12",
	"/usr/local/cuda/lib64/libcublas.so.13",
	"/usr/local/cuda/lib64/libcublas.so.12",
};

int train_cublas_load(struct train_cublas *ret)
{
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof(files) / sizeof(*files); i++)
		library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return train_fail(TRAIN_USAGE,
				  "--device cuda: cuBLAS is not on this host (%s); install "
				  "libcublas.so.13 or .12, or use --canonical, which has its own "
				  "matrix product",
				  dlerror());
#define FIND(member, symbol, parameters)                  \
	*(void **)&ret->member = dlsym(library, #symbol); \
	if (!ret->member)                                 \
		return train_fail(TRAIN_USAGE,            \
				  "--device cuda: this host's cuBLAS has no function " #symbol);
	TRAIN_CUBLAS_FUNCTIONS(FIND)
#undef FIND
	return TRAIN_OK;
}
