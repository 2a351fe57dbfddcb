/* fake_driver.c - devices, contexts, errors and injected failures of the fake CUDA driver */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_counts.h"
#include "tests/fakes/cuda/fake_cuda.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

static struct fake_cuda_context {
	int device;
	atomic_uint resets;
} contexts[MAX_DEVICES] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 },
			    { 4, 0 }, { 5, 0 }, { 6, 0 }, { 7, 0 } };
static __thread struct fake_cuda_context *stack[16];
static __thread int depth;

static void slow_down(const char *symbol)
{
	const char *want = getenv("TUTTI_TEST_CUDA_SLOW");
	char name[64];
	int ms;

	if (want && sscanf(want, "%63[^:]:%d", name, &ms) == 2 && !strcmp(name, symbol))
		usleep((unsigned)ms * 1000);
}

__thread bool fake_is_called;

/* The code that every call returns after a kernel failed with an error that the context does not
 * survive */
static int fatal;

int fake_dead(void)
{
	return __atomic_load_n(&fatal, __ATOMIC_ACQUIRE);
}

static void die_of(int code)
{
	if (code < TT_CU_BAD_ADDRESS || code > 719 || code == TT_CU_PEER_ALREADY)
		return;
	pthread_mutex_lock(&fake_lock);
	__atomic_store_n(&fatal, code, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
}

static atomic_int hits;
static __thread bool own;
static __thread unsigned long calls_made;

/* A failing call returns 0 to 3 ms late, so that work put on a stream before it runs meanwhile. */
static void fail_late(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	usleep((unsigned)(now.tv_nsec / 1000 % 3000));
}

int fake_fault(const char *symbol)
{
	static atomic_int calls;
	const char *want = getenv("TUTTI_TEST_CUDA_FAIL");
	char name[64];
	int nth, code;

	if (fake_is_called) {
		fprintf(stderr, "fake: a host function of a stream calls %s\n", symbol);
		abort();
	}
	calls_made++;
	slow_down(symbol);
	if (!want || own || sscanf(want, "%63[^:]:%d:%d", name, &nth, &code) != 3 ||
	    strcmp(name, symbol) || atomic_fetch_add(&calls, 1) + 1 != nth)
		return 0;
	atomic_fetch_add(&hits, 1);
	die_of(code);
	fail_late();
	return code;
}

/* ---- queries of tests (fake_counts.h) -------------------------------------------------------------- */

static atomic_int left[OBJECTS];

void fake_count(enum fake_object object, int n)
{
	atomic_fetch_add(&left[object], n);
}

EXPORT int fake_hits(void)
{
	return atomic_load(&hits);
}

EXPORT unsigned long fake_calls(void)
{
	return calls_made;
}

EXPORT void fake_own(bool is)
{
	own = is;
}

EXPORT const char *fake_left(int n, int *ret_left)
{
	static const char *const names[OBJECTS] = {
		[AN_ALLOCATION] = "device memory",
		[A_PINNED] = "pinned host memory",
		[A_REGISTERED] = "registered",
		[AN_OPENED] = "opened",
		[A_MAPPED] = "mapped",
		[A_RESERVED] = "reserved",
		[A_HANDLE] = "handle",
		[A_STREAM] = "stream",
		[AN_EVENT] = "event",
		[A_GRAPH] = "graph",
	};

	_Static_assert(OBJECTS <= FAKE_OBJECTS, "a test has room for all kinds");
	if (n >= OBJECTS)
		return NULL;
	*ret_left = atomic_load(&left[n]);
	return names[n];
}

/* ---- devices and contexts -------------------------------------------------------------------- */

bool fake_lacks(const char *word)
{
	const char *text = getenv("TUTTI_TEST_CUDA_NO");

	return text && strstr(text, word);
}

/* The numbers of the devices that this process sees, in its order. Returns how many. */
static int list_devices(int ret_physical[MAX_DEVICES])
{
	const char *text = getenv("TUTTI_TEST_CUDA_DEVICES"),
		   *visible = getenv("CUDA_VISIBLE_DEVICES");
	int all = text ? atoi(text) : 1, n = 0, number, used;

	all = all > MAX_DEVICES ? MAX_DEVICES : all;
	if (!visible)
		for (; n < all; n++)
			ret_physical[n] = n;
	else
		for (; n < all && sscanf(visible, "%d%n", &number, &used) == 1 && number >= 0 &&
		       number < all;
		     visible += used + (visible[used] == ','))
			ret_physical[n++] = number;
	return n;
}

int fake_devices(void)
{
	int physical[MAX_DEVICES];

	return list_devices(physical);
}

/* The number of a visible device among all of the host */
static int physical_of(int device)
{
	int physical[MAX_DEVICES];

	return device >= 0 && device < list_devices(physical) ? physical[device] : -1;
}

int fake_device(void)
{
	return depth && stack[depth - 1] ? stack[depth - 1]->device : -1;
}

EXPORT int cuInit(unsigned flags)
{
	ENTER();
	(void)flags;
	return fake_devices() ? 0 : 100;
}

EXPORT int cuGetErrorName(int code, const char **ret_text)
{
	*ret_text = code ? "CUDA_ERROR_FAKE" : "CUDA_SUCCESS";
	return 0;
}

EXPORT int cuGetErrorString(int code, const char **ret_text)
{
	*ret_text = code == TT_CU_NO_MEMORY ? "out of memory"
		    : code                  ? "injected failure"
					    : "no error";
	return 0;
}

EXPORT int cuDriverGetVersion(int *ret_version)
{
	*ret_version = fake_lacks("age") ? 11080 : 13000;
	return 0;
}

EXPORT int cuDeviceGetCount(int *ret_count)
{
	ENTER();
	*ret_count = fake_devices();
	return 0;
}

EXPORT int cuDeviceGet(int *ret_device, int ordinal)
{
	ENTER();
	if (ordinal < 0 || ordinal >= fake_devices())
		return 101;
	*ret_device = ordinal;
	return 0;
}

EXPORT int cuDeviceGetName(char *text, int bytes, int device)
{
	ENTER();
	snprintf(text, (size_t)bytes, "fake %d (no GPU)", physical_of(device));
	return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
	ENTER();
	snprintf(text, (size_t)bytes, "0000:%02x:00.0", physical_of(device));
	return 0;
}

EXPORT int cuDeviceGetUuid_v2(struct tt_cuuuid *ret_uuid, int device)
{
	ENTER();
	memset(ret_uuid, 0, sizeof(*ret_uuid));
	snprintf(ret_uuid->bytes, sizeof(ret_uuid->bytes), "fake %d", physical_of(device));
	return 0;
}

EXPORT int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
	ENTER();
	(void)device;
	switch (attribute) {
	case TT_CU_ATTR_SMS:
		*ret_value = SMS;
		return 0;
	case TT_CU_ATTR_MAJOR:
		*ret_value = fake_lacks("code") ? 13 : 9;
		return 0;
	case TT_CU_ATTR_DMA_BUF:
		*ret_value = !fake_lacks("dmabuf");
		return 0;
	case TT_CU_ATTR_WRITES_ORDERING:
		*ret_value = fake_lacks("ordering") ? 0 : TT_CU_ORDERED_FOR_OWNER;
		return 0;
	case TT_CU_ATTR_FLUSH_OPTIONS:
		*ret_value = fake_lacks("flush") ? 0 : TT_CU_FLUSH_BY_HOST;
		return 0;
	default:
		*ret_value = 0;
		return 0;
	}
}

EXPORT int cuDeviceCanAccessPeer(int *ret_can, int device, int peer)
{
	ENTER();
	*ret_can = device != peer;
	return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(tt_cuctx *ret_ctx, int device)
{
	ENTER();
	if (device < 0 || device >= fake_devices())
		return 101;
	*ret_ctx = &contexts[device];
	return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	ENTER();
	(void)device;
	return 0;
}

/* Also called by tests/fakes/cudart, the runtime. */
/* Memory and kernels of the context stay usable here. */
EXPORT int cuDevicePrimaryCtxReset_v2(int device)
{
	ENTER();
	if (physical_of(device) < 0)
		return 101;
	atomic_fetch_add(&contexts[device].resets, 1);
	return 0;
}

EXPORT int cuCtxGetId(tt_cuctx ctx, unsigned long long *ret_id)
{
	const struct fake_cuda_context *c = ctx;

	ENTER();
	*ret_id = 1 + (unsigned long long)c->device + MAX_DEVICES * atomic_load(&c->resets);
	return 0;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *ret_active)
{
	ENTER();
	(void)device;
	*flags = 0;
	*ret_active = 1;
	return 0;
}

EXPORT int cuCtxGetCurrent(tt_cuctx *ret_ctx)
{
	ENTER();
	*ret_ctx = depth ? stack[depth - 1] : NULL;
	return 0;
}

EXPORT int cuCtxSetCurrent(tt_cuctx ctx)
{
	ENTER();
	if (!depth)
		depth = 1;
	stack[depth - 1] = ctx;
	return 0;
}

EXPORT int cuCtxPushCurrent_v2(tt_cuctx ctx)
{
	ENTER();
	if (depth == 16)
		return TT_CU_NO_MEMORY;
	stack[depth++] = ctx;
	return 0;
}

EXPORT int cuCtxPopCurrent_v2(tt_cuctx *ret_ctx)
{
	ENTER();
	if (!depth)
		return TT_CU_BAD_CONTEXT;
	depth--;
	if (ret_ctx)
		*ret_ctx = stack[depth];
	return 0;
}

EXPORT int cuCtxGetDevice(int *ret_device)
{
	ENTER();
	*ret_device = fake_device();
	return *ret_device < 0 ? TT_CU_BAD_CONTEXT : 0;
}

EXPORT int cuCtxEnablePeerAccess(tt_cuctx peer, unsigned flags)
{
	ENTER();
	(void)peer;
	(void)flags;
	return 0;
}
