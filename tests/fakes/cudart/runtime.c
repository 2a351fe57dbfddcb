/*
 * runtime.c - a libcudart.so.13 over tests/fakes/cuda: programs of CUDA's runtime run without a
 * GPU, except for their kernels
 *
 * For tests only, and only where CUDA's headers are installed: tests/scripts/torch.sh compiles the
 * library and loads it before unmodified PyTorch. Each call maps to the fake driver's call of the
 * same meaning. Kernels are accepted and do nothing, so a program must judge by copies alone. A
 * function that is not built reports so on stderr and fails with cudaErrorNotSupported.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gpu/cuda.h"

#define DECLARE(member, symbol, parameters) int symbol parameters;
TT_CUDA_FUNCTIONS(DECLARE)

#define MEMORY_BYTES ((size_t)4 << 30) /* as reported to programs */
/* current device, the context's device, the newest error */
static __thread int current, entered = -1, last;

static cudaError_t keep(int rc)
{
	if (rc && rc != TT_CU_NOT_READY)
		last = rc;
	return (cudaError_t)rc;
}

static int enter(void)
{
	tt_cuctx context;
	int device, rc = entered == current ? 0 : cuDeviceGet(&device, current);

	if (rc || entered == current)
		return rc;
	rc = cuDevicePrimaryCtxRetain(&context, device);
	if (!rc)
		rc = cuCtxSetCurrent(context);
	entered = rc ? -1 : current;
	return rc;
}

/* CALL(name, (parameters), result) */
#define EXPORT __attribute__((visibility("default")))
#define CALL(name, parameters, ...)                   \
	EXPORT cudaError_t name parameters            \
	{                                             \
		int rc = enter();                     \
                                                      \
		return keep(rc ? rc : (__VA_ARGS__)); \
	}
/* Queries at a program's start, answered by constants. */
#define GIVE(name, parameters, ...)        \
	EXPORT cudaError_t name parameters \
	{                                  \
		__VA_ARGS__;               \
		return cudaSuccess;        \
	}
/* Programs bind these names and pass any arguments. */
#define UNBUILT(name)                                                        \
	EXPORT int unbuilt_##name(void) __asm__(#name);                      \
	EXPORT int unbuilt_##name(void)                                      \
	{                                                                    \
		fprintf(stderr, "the fake CUDA runtime has no %s\n", #name); \
		return last = cudaErrorNotSupported;                         \
	}

/* ---- devices, errors ------------------------------------------------------------------------- */

GIVE(cudaSetDevice, (int device), current = device)
GIVE(cudaGetDevice, (int *device), *device = current)
GIVE(cudaGetDeviceCount, (int *n), cuInit(0), cuDeviceGetCount(n))
GIVE(cudaDriverGetVersion, (int *version), *version = CUDART_VERSION)
GIVE(cudaRuntimeGetVersion, (int *version), *version = CUDART_VERSION)
GIVE(cudaDeviceGetStreamPriorityRange, (int *least, int *most), *least = 0, *most = -5)
GIVE(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), (void)peer, (void)flags)
GIVE(cudaDeviceReset, (void), entered = -1)
GIVE(cudaMemGetInfo, (size_t * unused, size_t *all), *unused = *all = MEMORY_BYTES)
GIVE(cudaProfilerStart, (void), (void)0)
GIVE(cudaProfilerStop, (void), (void)0)
CALL(cudaDeviceSynchronize, (void), cuCtxSynchronize())
CALL(cudaDeviceCanAccessPeer, (int *can, int device, int peer),
     cuDeviceCanAccessPeer(can, device, peer))
CALL(cudaDeviceGetPCIBusId, (char *text, int bytes, int device),
     cuDeviceGetPCIBusId(text, bytes, device))

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	if (cuDeviceGetAttribute(value, (int)attribute, device))
		*value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
	return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	*p = (struct cudaDeviceProp){ .name = "fake",
				      .major = 9,
				      .multiProcessorCount = 8,
				      .warpSize = 32,
				      .totalGlobalMem = MEMORY_BYTES,
				      .maxThreadsPerBlock = 1024,
				      .regsPerBlock = 65536,
				      .maxThreadsPerMultiProcessor = 2048,
				      .sharedMemPerBlock = 49152,
				      .pciDeviceID = device,
				      .unifiedAddressing = 1 };
	return cudaSuccess;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
	return (cudaError_t)last;
}
EXPORT cudaError_t cudaGetLastError(void)
{
	int rc = last;

	last = 0;
	return (cudaError_t)rc;
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
	static __thread char text[32];

	snprintf(text, sizeof(text), "CUDA error %d", (int)error);
	return text;
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
	return cudaGetErrorName(error);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define AT(pointer) ((tt_cuptr)(uintptr_t)(pointer))
CALL(cudaMalloc, (void **ptr, size_t bytes), cuMemAlloc_v2((tt_cuptr *)ptr, bytes))
CALL(cudaFree, (void *ptr), ptr ? cuMemFree_v2(AT(ptr)) : 0)
CALL(cudaHostAlloc, (void **ptr, size_t bytes, unsigned flags), cuMemHostAlloc(ptr, bytes, flags))
CALL(cudaFreeHost, (void *ptr), cuMemFreeHost(ptr))
CALL(cudaHostRegister, (void *ptr, size_t bytes, unsigned flags),
     cuMemHostRegister_v2(ptr, bytes, flags))
CALL(cudaHostUnregister, (void *ptr), cuMemHostUnregister(ptr))
/* The fake driver's device memory is host memory. */
CALL(cudaMemcpyAsync,
     (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
     (void)kind, bytes ? cuMemcpyDtoDAsync_v2(AT(to), AT(from), bytes, stream) : 0)
CALL(cudaMemcpyPeerAsync,
     (void *to, int its, const void *from, int other, size_t bytes, cudaStream_t stream), (void)its,
     (void)other, cuMemcpyDtoDAsync_v2(AT(to), AT(from), bytes, stream))
CALL(cudaMemcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
     cudaMemcpyAsync(to, from, bytes, kind, NULL) ? last : cuStreamSynchronize(NULL))
CALL(cudaMemsetAsync, (void *to, int value, size_t bytes, cudaStream_t stream),
     bytes ? cuMemsetD8Async(AT(to), (unsigned char)value, bytes, stream) : 0)
CALL(cudaMemset, (void *to, int value, size_t bytes),
     cudaMemsetAsync(to, value, bytes, NULL) ? last : cuStreamSynchronize(NULL))

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *ptr)
{
	int type = 0, what = TT_CU_PTR_TYPE;
	void *to = &type;

	*a = (struct cudaPointerAttributes){ .device = -2 };
	if (!enter() && !cuPointerGetAttributes(1, &what, &to, AT(ptr)) && type)
		*a = (struct cudaPointerAttributes){ .type = type == TT_CU_TYPE_HOST
								     ? cudaMemoryTypeHost
								     : cudaMemoryTypeDevice,
						     .device = current,
						     .devicePointer = (void *)ptr };
	return cudaSuccess;
}

/* ---- streams, events, graphs ----------------------------------------------------------------- */

#define FLAGS unsigned flags
CALL(cudaStreamCreateWithFlags, (cudaStream_t * stream, FLAGS),
     cuStreamCreate((tt_custream *)stream, flags))
CALL(cudaStreamCreate, (cudaStream_t * stream), cuStreamCreate((tt_custream *)stream, 0))
CALL(cudaStreamCreateWithPriority, (cudaStream_t * stream, FLAGS, int priority), (void)priority,
     cuStreamCreate((tt_custream *)stream, flags))
CALL(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy_v2(stream))
CALL(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize(stream))
CALL(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery(stream))
CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, FLAGS),
     cuStreamWaitEvent(stream, event, flags))
CALL(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
     *status = 0, cuStreamIsCapturing(stream, (int *)status))
CALL(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
     cuStreamBeginCapture_v2(stream, (int)mode))
CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph),
     cuStreamEndCapture(stream, (void **)graph))
CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
     cuThreadExchangeStreamCaptureMode((int *)mode))
CALL(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *arg),
     cuLaunchHostFunc(stream, fn, arg))
GIVE(cudaStreamGetPriority, (cudaStream_t stream, int *priority), (void)stream, *priority = 0)
CALL(cudaStreamGetCaptureInfo,
     (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
      cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
      size_t *n),
     (void)graph, (void)nodes, (void)edges, n ? (int)(*n = 0) : 0, id ? (int)(*id = 0) : 0,
     *status = 0, cuStreamIsCapturing(stream, (int *)status))
CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, FLAGS),
     cuEventCreate((tt_cuevent *)event, flags))
CALL(cudaEventCreate, (cudaEvent_t * event), cuEventCreate((tt_cuevent *)event, 0))
CALL(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy_v2(event))
CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord(event, stream))
CALL(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, FLAGS), (void)flags,
     cuEventRecord(event, stream))
CALL(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
CALL(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
CALL(cudaEventElapsedTime, (float *ms, cudaEvent_t from, cudaEvent_t to),
     cuEventElapsedTime(ms, from, to))
CALL(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
     cuGraphInstantiateWithFlags((void **)exec, graph, flags))
CALL(cudaGraphInstantiateWithFlags,
     (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
     cuGraphInstantiateWithFlags((void **)exec, graph, flags))
CALL(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphLaunch(exec, stream))
CALL(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy(exec))
CALL(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy(graph))

GIVE(cudaGetDriverEntryPointByVersion,
     (const char *symbol, void **function, unsigned version, unsigned long long flags,
      enum cudaDriverEntryPointQueryResult *result),
     (void)version, (void)flags, *function = dlsym(RTLD_DEFAULT, symbol),
     *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound)

/* ---- kernels, which do nothing --------------------------------------------------------------- */

static __thread struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} pushed;
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	pushed.grid = grid;
	pushed.block = block;
	pushed.shared = shared;
	pushed.stream = stream;
	return 0;
}

GIVE(__cudaPopCallConfiguration, (dim3 * grid, dim3 *block, size_t *shared, void **stream),
     *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = pushed.stream)
GIVE(__cudaGetKernel, (void **kernel, const void *function), *kernel = (void *)function)
GIVE(__cudaLaunchKernel, (void), (void)0)
GIVE(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
     (int *n, const void *fn, int threads, size_t shared), (void)fn, (void)threads, (void)shared,
     *n = 1)
GIVE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
     (int *n, const void *fn, int threads, size_t shared, FLAGS), (void)fn, (void)threads,
     (void)shared, (void)flags, *n = 1)
GIVE(cudaFuncGetAttributes, (struct cudaFuncAttributes * a, const void *fn), (void)fn,
     *a = (struct cudaFuncAttributes){
	     .maxThreadsPerBlock = 1024, .ptxVersion = 90, .binaryVersion = 90 })
GIVE(cudaFuncSetAttribute, (const void *fn, enum cudaFuncAttribute which, int value), (void)fn,
     (void)which, (void)value)
GIVE(cudaMemcpyToSymbol,
     (const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
     (void)symbol, (void)from, (void)bytes, (void)offset, (void)kind)
GIVE(cudaLaunchKernel,
     (const void *fn, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
     (void)fn, (void)grid, (void)block, (void)args, (void)shared, (void)stream)
GIVE(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *fn, void **args),
     (void)config, (void)fn, (void)args)
EXPORT void **__cudaRegisterFatBinary(void *image)
{
	static void *handle;
	(void)image;
	return &handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}
EXPORT void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}
EXPORT void __cudaRegisterFunction(void) {}
EXPORT void __cudaRegisterVar(void) {}
EXPORT char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

UNBUILT(cudaDeviceGetDefaultMemPool)
UNBUILT(cudaDeviceGetGraphMemAttribute)
UNBUILT(cudaDeviceSetGraphMemAttribute)
UNBUILT(cudaFreeAsync)
UNBUILT(cudaGetSymbolAddress)
UNBUILT(cudaGraphAddNode)
UNBUILT(cudaGraphConditionalHandleCreate)
UNBUILT(cudaGraphDebugDotPrint)
UNBUILT(cudaGraphGetNodes)
UNBUILT(cudaGraphNodeGetDependencies)
UNBUILT(cudaGraphRetainUserObject)
UNBUILT(cudaIpcCloseMemHandle)
UNBUILT(cudaIpcGetEventHandle)
UNBUILT(cudaIpcGetMemHandle)
UNBUILT(cudaIpcOpenEventHandle)
UNBUILT(cudaIpcOpenMemHandle)
UNBUILT(cudaKernelSetAttributeForDevice)
UNBUILT(cudaLaunchCooperativeKernel)
UNBUILT(cudaLibraryGetGlobal)
UNBUILT(cudaLibraryGetKernel)
UNBUILT(cudaLibraryGetKernelCount)
UNBUILT(cudaLibraryGetManaged)
UNBUILT(cudaLibraryGetUnifiedFunction)
UNBUILT(cudaLibraryLoadData)
UNBUILT(cudaLibraryLoadFromFile)
UNBUILT(cudaLibraryUnload)
UNBUILT(cudaMallocAsync)
UNBUILT(cudaMallocHost)
UNBUILT(cudaMallocManaged)
UNBUILT(cudaMemPoolGetAttribute)
UNBUILT(cudaMemPoolSetAccess)
UNBUILT(cudaMemPoolSetAttribute)
UNBUILT(cudaMemPoolTrimTo)
UNBUILT(cudaMemcpy2DAsync)
UNBUILT(cudaStreamAddCallback)
UNBUILT(cudaStreamBeginCaptureToGraph)
UNBUILT(cudaStreamUpdateCaptureDependencies)
UNBUILT(cudaUserObjectCreate)
UNBUILT(cudaUserObjectRelease)
