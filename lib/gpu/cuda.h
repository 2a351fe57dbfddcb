/*
 * cuda.h - the CUDA driver, as far as Tutti uses it: one table of its functions, contexts, and the
 * kind of memory behind a pointer
 *
 * Nothing of CUDA is linked or included: the table is filled from libcuda.so.1 at run time, so one
 * libtutti.so runs on hosts with and without CUDA. The declarations are our own; names and numbers
 * are the driver's. Where the driver has several versions of a function, the table names the
 * version (_v2). Thread: any.
 *
 * tests/fakes/cuda/ is a libcuda.so.1 of the same functions without a GPU, for tests.
 */
#ifndef TT_CUDA_H
#define TT_CUDA_H

#include "base/base.h"

typedef uint64_t tt_cuptr; /* CUdeviceptr */
typedef void *tt_custream, *tt_cuevent, *tt_cuctx, *tt_cufn;

/* Streams that are no pointers: the legacy default stream, which waits for all blocking streams,
 * and the calling thread's default stream. */
#define TT_CU_LEGACY ((tt_custream)1)
#define TT_CU_PER_THREAD ((tt_custream)2)

/* Results of the driver's functions that the library distinguishes; 0 is success. */
enum {
	TT_CU_BAD_VALUE = 1,
	TT_CU_NO_MEMORY = 2,
	TT_CU_DEINITIALIZED = 4,
	TT_CU_BAD_CONTEXT = 201,
	TT_CU_BAD_HANDLE = 400,
	TT_CU_NOT_FOUND = 500,
	TT_CU_NOT_READY = 600,
	TT_CU_BAD_ADDRESS = 700,
	TT_CU_PEER_ALREADY = 704
};

/* device attributes */
enum {
	TT_CU_ATTR_SMS = 16,
	TT_CU_ATTR_L2_BYTES = 38,
	TT_CU_ATTR_MAJOR = 75,
	TT_CU_ATTR_MINOR = 76,
	TT_CU_ATTR_FLUSH_OPTIONS = 117,
	TT_CU_ATTR_WRITES_ORDERING = 118,
	TT_CU_ATTR_DMA_BUF = 124
};
/* RDMA writes to device memory: the scope in which the device orders them; how to flush them. */
enum { TT_CU_ORDERED_FOR_OWNER = 100, TT_CU_FLUSH_BY_HOST = 1, TT_CU_FLUSH_CONTEXT = 0 };
enum { TT_CU_RANGE_DMA_BUF = 1 };
enum {
	TT_CU_PTR_TYPE = 2,
	TT_CU_PTR_ID = 7,
	TT_CU_PTR_MANAGED = 8,
	TT_CU_PTR_DEVICE = 9,
	TT_CU_PTR_IPC = 10
};
enum { TT_CU_TYPE_HOST = 1, TT_CU_TYPE_DEVICE = 2 };
/* cuMemHostAlloc, cuMemHostRegister */
enum { TT_CU_HOST_PORTABLE = 1, TT_CU_HOST_MAPPED = 2 };
/* The driver clamps a stream's priority to its highest. */
#define TT_CU_HIGHEST_PRIORITY (-1000)
enum { TT_CU_STREAM_NON_BLOCKING = 1, TT_CU_EVENT_UNTIMED = 2, TT_CU_IPC_LAZY_PEERS = 1 };
enum { TT_CU_CAPTURE_GLOBAL = 0, TT_CU_CAPTURE_THREAD = 1, TT_CU_CAPTURE_RELAXED = 2 };

struct tt_cuipc {
	char bytes[64];
}; /* CUipcMemHandle; passed by value */
struct tt_cuuuid {
	char bytes[16];
};

/* Virtual memory: CUmemAllocationProp, CUmemAccessDesc. */
enum { TT_CU_PINNED = 1, TT_CU_BY_FD = 1, TT_CU_ON_DEVICE = 1, TT_CU_READ_WRITE = 3 };
struct tt_culocation {
	int type, id;
};
struct tt_cuprop {
	int type, handles;
	struct tt_culocation location;
	void *meta;
	unsigned char rest[8];
};
struct tt_cuaccess {
	struct tt_culocation location;
	int flags;
};
_Static_assert(sizeof(struct tt_cuprop) == 32 && sizeof(struct tt_cuaccess) == 12,
	       "the driver's sizes");

/* One entry of cuStreamBatchMemOp: 48 bytes. */
enum { TT_CU_WAIT_32 = 1, TT_CU_WRITE_32 = 2, TT_CU_WAIT_64 = 4 };
enum { TT_CU_WAIT_GEQ = 0, TT_CU_WAIT_EQ = 1, TT_CU_WAIT_AND = 2 };
struct tt_cumemop {
	int operation;
	tt_cuptr address;
	uint64_t value; /* of operations on 32 bits the low half counts */
	unsigned flags;
	tt_cuptr alias;
	uint64_t pad;
};
_Static_assert(sizeof(struct tt_cumemop) == 48, "CUstreamBatchMemOpParams is six words");

/* F(name in the table, symbol, parameters); all return int. */
#define TT_CUDA_FUNCTIONS(F)                                                                       \
	F(init, cuInit, (unsigned flags))                                                          \
	F(error_name, cuGetErrorName, (int code, const char **ret_text))                           \
	F(error_string, cuGetErrorString, (int code, const char **ret_text))                       \
	F(driver_version, cuDriverGetVersion, (int *ret_version))                                  \
	F(device_count, cuDeviceGetCount, (int *ret_count))                                        \
	F(device_get, cuDeviceGet, (int *ret_device, int ordinal))                                 \
	F(device_name, cuDeviceGetName, (char *text, int bytes, int device))                       \
	F(device_pci, cuDeviceGetPCIBusId, (char *text, int bytes, int device))                    \
	F(device_uuid, cuDeviceGetUuid_v2, (struct tt_cuuuid * ret_uuid, int device))              \
	F(device_attribute, cuDeviceGetAttribute, (int *ret_value, int attribute, int device))     \
	F(can_access_peer, cuDeviceCanAccessPeer, (int *ret_can, int device, int peer))            \
	F(ctx_retain, cuDevicePrimaryCtxRetain, (tt_cuctx * ret_ctx, int device))                  \
	F(ctx_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
	F(ctx_current, cuCtxGetCurrent, (tt_cuctx * ret_ctx))                                      \
	F(ctx_set, cuCtxSetCurrent, (tt_cuctx ctx))                                                \
	F(ctx_push, cuCtxPushCurrent_v2, (tt_cuctx ctx))                                           \
	F(ctx_pop, cuCtxPopCurrent_v2, (tt_cuctx * ret_ctx))                                       \
	F(ctx_device, cuCtxGetDevice, (int *ret_device))                                           \
	F(ctx_synchronize, cuCtxSynchronize, (void))                                               \
	F(peer_enable, cuCtxEnablePeerAccess, (tt_cuctx peer, unsigned flags))                     \
	F(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                            \
	F(mem_alloc, cuMemAlloc_v2, (tt_cuptr * ret_ptr, size_t bytes))                            \
	F(mem_free, cuMemFree_v2, (tt_cuptr ptr))                                                  \
	F(mem_alloc_managed, cuMemAllocManaged,                                                    \
	  (tt_cuptr * ret_ptr, size_t bytes, unsigned flags))                                      \
	F(host_alloc, cuMemHostAlloc, (void **ret_ptr, size_t bytes, unsigned flags))              \
	F(host_free, cuMemFreeHost, (void *ptr))                                                   \
	F(host_register, cuMemHostRegister_v2, (void *ptr, size_t bytes, unsigned flags))          \
	F(host_unregister, cuMemHostUnregister, (void *ptr))                                       \
	F(host_device_ptr, cuMemHostGetDevicePointer_v2,                                           \
	  (tt_cuptr * ret_ptr, void *ptr, unsigned flags))                                         \
	F(ptr_attributes, cuPointerGetAttributes,                                                  \
	  (unsigned n, int *attributes, void **data, tt_cuptr ptr))                                \
	F(ptr_range, cuMemGetAddressRange_v2,                                                      \
	  (tt_cuptr * ret_base, size_t * ret_bytes, tt_cuptr ptr))                                 \
	F(ipc_get, cuIpcGetMemHandle, (struct tt_cuipc * ret_handle, tt_cuptr ptr))                \
	F(ipc_open, cuIpcOpenMemHandle_v2,                                                         \
	  (tt_cuptr * ret_ptr, struct tt_cuipc handle, unsigned flags))                            \
	F(ipc_close, cuIpcCloseMemHandle, (tt_cuptr ptr))                                          \
	F(vmm_granularity, cuMemGetAllocationGranularity,                                          \
	  (size_t * ret_bytes, const struct tt_cuprop *prop, int which))                           \
	F(vmm_create, cuMemCreate,                                                                 \
	  (uint64_t * ret_handle, size_t bytes, const struct tt_cuprop *prop,                      \
	   unsigned long long flags))                                                              \
	F(vmm_release, cuMemRelease, (uint64_t handle))                                            \
	F(vmm_reserve, cuMemAddressReserve,                                                        \
	  (tt_cuptr * ret_at, size_t bytes, size_t align, tt_cuptr at, unsigned long long flags))  \
	F(vmm_free, cuMemAddressFree, (tt_cuptr at, size_t bytes))                                 \
	F(vmm_map, cuMemMap,                                                                       \
	  (tt_cuptr at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags))   \
	F(vmm_unmap, cuMemUnmap, (tt_cuptr at, size_t bytes))                                      \
	F(vmm_access, cuMemSetAccess,                                                              \
	  (tt_cuptr at, size_t bytes, const struct tt_cuaccess *access, size_t n))                 \
	F(vmm_export, cuMemExportToShareableHandle,                                                \
	  (void *ret_fd, uint64_t handle, int type, unsigned long long flags))                     \
	F(vmm_import, cuMemImportFromShareableHandle, (uint64_t * ret_handle, void *fd, int type)) \
	F(dtoh, cuMemcpyDtoH_v2, (void *to, tt_cuptr from, size_t bytes))                          \
	F(htod, cuMemcpyHtoD_v2, (tt_cuptr to, const void *from, size_t bytes))                    \
	F(dtoh_async, cuMemcpyDtoHAsync_v2,                                                        \
	  (void *to, tt_cuptr from, size_t bytes, tt_custream stream))                             \
	F(htod_async, cuMemcpyHtoDAsync_v2,                                                        \
	  (tt_cuptr to, const void *from, size_t bytes, tt_custream stream))                       \
	F(dtod_async, cuMemcpyDtoDAsync_v2,                                                        \
	  (tt_cuptr to, tt_cuptr from, size_t bytes, tt_custream stream))                          \
	F(memset8_async, cuMemsetD8Async,                                                          \
	  (tt_cuptr to, unsigned char value, size_t bytes, tt_custream stream))                    \
	F(stream_create, cuStreamCreate, (tt_custream * ret_stream, unsigned flags))               \
	F(stream_create_priority, cuStreamCreateWithPriority,                                      \
	  (tt_custream * ret_stream, unsigned flags, int priority))                                \
	F(stream_destroy, cuStreamDestroy_v2, (tt_custream stream))                                \
	F(stream_synchronize, cuStreamSynchronize, (tt_custream stream))                           \
	F(stream_query, cuStreamQuery, (tt_custream stream))                                       \
	F(stream_wait_event, cuStreamWaitEvent,                                                    \
	  (tt_custream stream, tt_cuevent event, unsigned flags))                                  \
	F(stream_is_capturing, cuStreamIsCapturing, (tt_custream stream, int *ret_status))         \
	F(stream_batch, cuStreamBatchMemOp_v2,                                                     \
	  (tt_custream stream, unsigned n, struct tt_cumemop *ops, unsigned flags))                \
	F(begin_capture, cuStreamBeginCapture_v2, (tt_custream stream, int mode))                  \
	F(end_capture, cuStreamEndCapture, (tt_custream stream, void **ret_graph))                 \
	F(graph_instantiate, cuGraphInstantiateWithFlags,                                          \
	  (void **ret_exec, void *graph, unsigned long long flags))                                \
	F(graph_launch, cuGraphLaunch, (void *exec, tt_custream stream))                           \
	F(graph_exec_destroy, cuGraphExecDestroy, (void *exec))                                    \
	F(graph_destroy, cuGraphDestroy, (void *graph))                                            \
	F(host_func, cuLaunchHostFunc, (tt_custream stream, void (*fn)(void *arg), void *arg))     \
	F(event_create, cuEventCreate, (tt_cuevent * ret_event, unsigned flags))                   \
	F(event_destroy, cuEventDestroy_v2, (tt_cuevent event))                                    \
	F(event_record, cuEventRecord, (tt_cuevent event, tt_custream stream))                     \
	F(event_query, cuEventQuery, (tt_cuevent event))                                           \
	F(event_synchronize, cuEventSynchronize, (tt_cuevent event))                               \
	F(event_elapsed, cuEventElapsedTime, (float *ret_ms, tt_cuevent from, tt_cuevent to))      \
	F(module_load, cuModuleLoadData, (void **ret_module, const void *image))                   \
	F(module_function, cuModuleGetFunction,                                                    \
	  (tt_cufn * ret_function, void *module, const char *name))                                \
	F(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                  \
	  (int *ret_blocks, tt_cufn function, int threads, size_t shared))                         \
	F(launch, cuLaunchKernel,                                                                  \
	  (tt_cufn function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
	   unsigned bz, unsigned shared, tt_custream stream, void **params, void **extra))

/* Functions of later drivers; NULL where the driver lacks the function. */
#define TT_CUDA_LATER(F)                                                                 \
	F(range_handle, cuMemGetHandleForAddressRange,                                   \
	  (void *ret_fd, tt_cuptr at, size_t bytes, int type, unsigned long long flags)) \
	F(flush_writes, cuFlushGPUDirectRDMAWrites, (int target, int scope))             \
	F(ctx_id, cuCtxGetId, (tt_cuctx ctx, unsigned long long *ret_id))

#define TT_CUDA_MEMBER(member, symbol, parameters) int(*member) parameters;
struct tt_cuda {
	TT_CUDA_FUNCTIONS(TT_CUDA_MEMBER)
	TT_CUDA_LATER(TT_CUDA_MEMBER)
	/* image of kernels that the driver provides (the tests' fake driver does), or NULL */
	const void *own_kernels;
};
/* the CUDA version that own_kernels need, and the compute capabilities of their machine code */
#define TT_CU_OWN_KERNELS 13000
#define TT_CU_OWN_CODE "80 86 89 90 100 120"
#undef TT_CUDA_MEMBER

/*
 * tt_cuda_here - the driver's table, if this process has loaded CUDA already
 *
 *   Returns   the table | NULL: CUDA is not loaded, so the process has no device memory
 *   Blocks    no (about 1 us)
 */
const struct tt_cuda *tt_cuda_here(void);
/*
 * tt_cuda_load - load the driver and return its table
 *
 *   Returns   the table | NULL: this host has no usable CUDA; tt_fail was called with the reason
 *   Blocks    the driver's start, about 100 ms
 */
const struct tt_cuda *tt_cuda_load(void);

/* Calls tt_fail with the text of fmt, then the driver's text and name for result. Returns
 * TT_CUDA. */
int tt_cuda_fail(int result, const char *fmt, ...) TT_PRINTF(2, 3);

/* The context that is current in the calling thread; also taken by threads that join for another
 * thread. *ret_ctx NULL: no CUDA, or no current context. 0 | TT_CUDA */
int tt_cuda_context(tt_cuctx *ret_ctx);
/* A number that no other context of this process has or had: the primary context of a device is at the same
 * address after cudaDeviceReset, which frees its memory and unloads its kernels. 0: the driver is too old */
uint64_t tt_cuda_context_id(const struct tt_cuda *cu, tt_cuctx ctx);
/* Bracket calls of the driver. enter makes ctx current and relaxes the thread's capture mode: in a
 * stricter mode the driver refuses all calls but those that put work on a stream, and invalidates a
 * capture that another thread has begun. leave takes the result of enter and undoes both. NULL ctx:
 * nothing is done. */
int tt_cuda_enter(tt_cuctx ctx);
void tt_cuda_leave(tt_cuctx ctx, int entered);

/* The kind of memory behind a pointer. From TT_MEM_DEVICE on, a GPU must move the bytes. */
enum tt_mem_kind {
	TT_MEM_HOST,   /* host memory unknown to CUDA */
	TT_MEM_PINNED, /* host memory that CUDA allocated or registered */
	TT_MEM_DEVICE, /* cuMemAlloc: other processes can open it by IPC handle */
	TT_MEM_CUMEM,  /* device memory that has no IPC handle: virtual memory, pools */
	TT_MEM_MANAGED
};
struct tt_mem {
	enum tt_mem_kind kind;
	int device;    /* -1: host memory */
	uint64_t id;   /* of the allocation; unique in the process's life */
	tt_cuptr base; /* DEVICE: start of the allocation */
	size_t bytes;  /* DEVICE: size of the allocation */
};
/* Asks the driver for the kind of memory behind ptr and caches the allocation. 0 | TT_CUDA */
int tt_cuda_classify(const struct tt_cuda *cu, const void *ptr, struct tt_mem *ret_mem);
const char *tt_mem_name(enum tt_mem_kind kind);

#endif
