/*
 * gpu_devices.c - ranks on several GPUs: which ranks share one; drivers that cannot load the kernels;
 * one connection to a device
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/gpu_ranks.h"

/* The devices that each rank sees (CUDA_VISIBLE_DEVICES), and the number of its own among them */
static const struct visible_devices {
	const char *list[2];
	int number[2];
	uint32_t devices; /* that the two ranks use */
} * visible;

static void take_visible_device(int rank)
{
	const struct tt_cuda *cu = tt_cuda_here();
	tt_cuctx ctx;

	setenv("CUDA_VISIBLE_DEVICES", visible->list[rank], 1);
	claim(!cu->ctx_retain(&ctx, visible->number[rank]) && !cu->ctx_set(ctx));
}

static int count_devices(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	int x = rank, wrong = gpu_failed;
	tt_cuptr p;

	(void)arg;
	wrong += cu->mem_alloc(&p, sizeof(x)) || cu->htod(p, &x, sizeof(x));
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 1, tuttiInt32, tuttiSum,
				*comm, NULL) != tuttiSuccess;
	cu->dtoh(&x, p, sizeof(x));
	cu->mem_free(p);
	if ((*comm)->gpu->devices != visible->devices)
		fprintf(stderr, "rank %d: %u devices, not %u\n", rank, (*comm)->gpu->devices,
			visible->devices);
	return wrong + (x != n * (n - 1) / 2) + ((*comm)->gpu->devices != visible->devices);
}

static void processes_tell_gpus_apart_by_uuid_whatever_numbers_they_see(void)
{
	static const struct visible_devices cases[] = {
		{ { "0", "1" }, { 0, 0 }, 2 }, /* as torchrun and Slurm set them */
		{ { "0,1", "1,0" }, { 0, 1 }, 1 },
		{ { "0,1", "0,1" }, { 0, 1 }, 2 },
	};
	struct gpu_ranks t = {
		.ranks = { .n = 2, .no_join = true, .limit_s = gpu_limit_s, .timeout_ms = 20000 },
		.fn = count_devices,
		.mode = STREAM_ORDER,
		.before = take_visible_device
	};

	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	t.ranks.arg = &t;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		visible = &cases[i];
		claim(gpu_ranks_run(&t) == 0);
	}
}

/* The log of the ranks, in place of stderr: starts at log_begin, ends at log_end, which returns the
 * number of lines that have `text`. */
static int kept_stderr;
static FILE *log_file;

static void log_begin(void)
{
	log_file = tmpfile();
	kept_stderr = dup(2);
	claim(log_file && kept_stderr >= 0 && dup2(fileno(log_file), 2) == 2);
}

static int log_end(const char *text)
{
	char line[1024];
	int n = 0;

	dup2(kept_stderr, 2);
	close(kept_stderr);
	rewind(log_file);
	while (fgets(line, sizeof(line), log_file)) {
		n += strstr(line, text) != NULL;
		fputs(line, stderr);
	}
	fclose(log_file);
	return n;
}

static int join_and_leave(tuttiComm_t *comm, int rank, int n, void *arg)
{
	(void)comm, (void)rank, (void)n, (void)arg;
	return 0;
}

/* Two ranks join. Returns the number of their log's lines that have `text`. */
static int join_and_count(int mode, bool threads, const char *text)
{
	struct gpu_ranks t = { .ranks = { .n = 2,
					  .threads = threads,
					  .no_join = true,
					  .limit_s = gpu_limit_s,
					  .timeout_ms = 20000 },
			       .fn = join_and_leave,
			       .mode = mode };

	t.ranks.arg = &t;
	setenv("TUTTI_LOG", "warn", 1);
	log_begin();
	claim(gpu_ranks_run(&t) == 0);
	return log_end(text);
}

static void a_driver_too_old_for_the_kernels_is_named_once_in_the_log(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_NO", "age", 1);
	for (int threads = 0; threads < 2; threads++)
		claim(join_and_count(
			      STAGED, threads,
			      "warn: rank 0: calls on memory of device 0 go through host memory, "
			      "without GPU kernels: load the GPU kernels, which need a driver of "
			      "CUDA 13.0 or later, into one of CUDA 11.8: ") == 1);
}

/* Allreduces in one and in two steps, and in several chunks; the second time the words are reused. */
static int sum_all_sizes(tuttiComm_t *comm, int rank, int n, void *arg)
{
	static const size_t counts[] = { 1, 70001, 1200000 };
	const struct tt_cuda *cu = tt_cuda_here();
	int *x = malloc(counts[2] * sizeof(*x)), wrong = x == NULL;
	tt_cuptr p;

	(void)arg;
	wrong += cu->mem_alloc(&p, counts[2] * sizeof(*x)) != 0;
	for (size_t k = 0; k < 6 && !wrong; k++) {
		size_t count = counts[k % 3];
		void *d = (void *)(uintptr_t)p;

		for (size_t i = 0; i < count; i++)
			x[i] = (int)i + rank;
		wrong += cu->htod(p, x, count * sizeof(*x)) != 0;
		wrong += tuttiAllReduce(d, d, count, tuttiInt32, tuttiSum, *comm, NULL) !=
			 tuttiSuccess;
		cu->dtoh(x, p, count * sizeof(*x));
		for (size_t i = 0; i < count; i++)
			wrong += x[i] != n * (int)i + n * (n - 1) / 2;
	}
	cu->mem_free(p);
	free(x);
	return wrong;
}

static void ranks_signal_each_other_where_streams_write_no_memory_of_other_gpus(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_NO", "remote", 1);
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1); /* ranks 0 and 2 share one: by streams */
	claim(run_gpu_ranks(3, STREAM_ORDER, false, sum_all_sizes) == 0);
	setenv("TUTTI_TEST_CUDA_DEVICES", "3", 1);
	claim(run_gpu_ranks(3, STREAM_ORDER, false, sum_all_sizes) == 0);
	setenv("TUTTI_ALGO", "ring", 1); /* by plan */
	claim(run_gpu_ranks(3, STREAM_ORDER, false, sum_all_sizes) == 0);
	claim(run_gpu_ranks(3, STREAM_ORDER, true, sum_all_sizes) == 0);
}

/* As if the driver of rank 1 compiled the kernels for longer than the time-out */
static void load_slowly(int rank)
{
	if (rank == 1)
		setenv("TUTTI_TEST_CUDA_SLOW", "cuModuleLoadData:1700", 1);
}

static void a_join_waits_longer_than_its_deadline_while_a_driver_compiles_the_kernels(void)
{
	struct gpu_ranks t = {
		.ranks = { .n = 2, .no_join = true, .limit_s = gpu_limit_s, .timeout_ms = 1000 },
		.fn = join_and_leave,
		.mode = STREAM_ORDER,
		.before = load_slowly
	};

	if (getenv("TUTTI_TEST_GPU"))
		return;
	t.ranks.arg = &t;
	setenv("TUTTI_TEST_CUDA_NO", "code", 1);
	setenv("TUTTI_LOG", "warn", 1);
	log_begin();
	claim(gpu_ranks_run(&t) == 0);
	claim(log_end("the driver compiles the GPU kernels") == 2);
}

static void one_connection_to_the_device_is_warned_of_once(void)
{
	static const char text[] = "warn: CUDA_DEVICE_MAX_CONNECTIONS=1: ";

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
	claim(join_and_count(STREAM_ORDER, false, text) == 0);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	claim(join_and_count(STREAM_ORDER, false, text) == 1);
	setenv("TUTTI_GPU", "staged", 1);
	claim(join_and_count(STAGED, false, text) == 1);
}

static void threads_load_the_kernels_into_their_gpus_at_the_same_time(void)
{
	if (getenv("TUTTI_TEST_GPU"))
		return;
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	setenv("TUTTI_TEST_CUDA_LOADS", "2", 1);
	claim(run_gpu_ranks(2, STREAM_ORDER, true, join_and_leave) == 0);
	/* two on each */
	claim(run_gpu_ranks(4, KERNEL_BARRIER, true, join_and_leave) == 0);
}

static void *computed; /* a page that the ranks share; rank 0 sets its first word */

static size_t count_beside;

/* Rank 0 calls while rank 1 does not, and computes on another stream. Rank 1 calls once rank 0 has
 * computed: so the call of rank 0 must not hold up its computing. */
static int compute_beside_a_call(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	uint32_t *flag = computed, *x = malloc(count_beside * sizeof(*x)), y = 0;
	tt_custream calls, computing;
	int wrong = 0;
	tt_cuptr p, q;

	(void)arg;
	for (size_t i = 0; i < count_beside; i++)
		x[i] = 1;
	wrong += cu->mem_alloc(&p, count_beside * sizeof(*x)) || cu->mem_alloc(&q, 4096) ||
		 cu->stream_create(&calls, TT_CU_STREAM_NON_BLOCKING) ||
		 cu->stream_create(&computing, TT_CU_STREAM_NON_BLOCKING) ||
		 harness_to_device(p, x, count_beside * sizeof(*x));
	while (rank == 1 && !__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		usleep(100);
	wrong += tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, count_beside,
				tuttiInt32, tuttiSum, *comm, calls) != tuttiSuccess;
	if (rank == 0) {
		cu->memset8_async(q, 1, 4096, computing);
		harness_to_host(&y, q, sizeof(y), computing);
		wrong += y != 0x01010101;
		__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	}
	cu->stream_synchronize(calls);
	cu->dtoh(x, p, count_beside * sizeof(*x));
	wrong += x[0] != (uint32_t)n || x[count_beside - 1] != (uint32_t)n;
	free(x);
	cu->stream_destroy(calls), cu->stream_destroy(computing);
	cu->mem_free(p), cu->mem_free(q);
	return wrong;
}

static void an_allreduce_of_gpus_of_their_own_holds_up_no_computing_in_the_only_connection(void)
{
	struct gpu_ranks t = {
		.ranks = { .n = 2, .no_join = true, .limit_s = gpu_limit_s, .timeout_ms = 5000 },
		.fn = compute_beside_a_call,
		.mode = STREAM_ORDER
	};

	if (getenv("TUTTI_TEST_GPU"))
		return;
	t.ranks.arg = &t;
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	setenv("TUTTI_TEST_CUDA_DEVICES", "2", 1);
	computed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	claim(computed != MAP_FAILED);
	for (count_beside = 1000; !gpu_failed && count_beside <= 300000; count_beside *= 300) {
		*(uint32_t *)computed = 0;
		claim(gpu_ranks_run(&t) == 0);
	}
}

/* Rank 0 closes while a word of rank 1, about its last round, is still on its way. */
static int close_before_the_last_word(tuttiComm_t *comm, int rank, int n, void *arg)
{
	const struct tt_cuda *cu = tt_cuda_here();
	struct tt_ipc_buffer *b = (*comm)->gpu->ipc;
	tt_cuptr p, word = b->at + offsetof(struct tt_dev_signals, completed[0][1]);
	uint32_t rounds = 0;
	tt_custream s;
	int wrong = 0;

	(void)n, (void)arg;
	wrong += cu->mem_alloc(&p, 240000) || cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING) ||
		 tuttiAllReduce((void *)(uintptr_t)p, (void *)(uintptr_t)p, 60000, tuttiInt32,
				tuttiSum, *comm, NULL) != tuttiSuccess ||
		 tuttiBarrier(*comm, NULL) != tuttiSuccess;
	if (rank == 0) {
		harness_to_host(&rounds, word, sizeof(rounds), s);
		wrong += rounds-- == 0;
		harness_to_device(word, &rounds, sizeof(rounds));
	}
	wrong += tuttiCommDestroy(*comm) != tuttiSuccess;
	*comm = NULL;
	if (b->use != (rank == 0 ? TT_IPC_BUFFER_RETIRED : TT_IPC_BUFFER_UNUSED))
		fprintf(stderr, "rank %d: use %d of its IPC buffer\n", rank, b->use), wrong++;
	cu->stream_destroy(s), cu->mem_free(p);
	return wrong;
}

static void a_buffer_that_peers_may_still_write_to_is_not_used_again(void)
{
	claim(!gpu_use_devices(2) ||
	      run_gpu_ranks(2, STREAM_ORDER, false, close_before_the_last_word) == 0);
}

/* A program resets its device between two communicators, or not. */
static int join_again(tuttiComm_t *comm, int rank, int n, void *arg)
{
	int (*reset)(int device) = (int (*)(int))dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxReset_v2");
	int wrong = !reset;

	(void)rank, (void)n, (void)arg;
	for (int i = 0; i < 2 && !wrong; i++) {
		const struct tt_ipc_buffer *buffer = (*comm)->gpu->ipc;
		const struct tt_kernels *kernels = (*comm)->gpu->k;

		wrong += tuttiCommDestroy(*comm) != tuttiSuccess || (i && reset(0));
		*comm = NULL;
		wrong += tuttiCommInitAll(comm, 1, NULL) != tuttiSuccess;
		if (wrong || ((*comm)->gpu->ipc == buffer) != !i ||
		    ((*comm)->gpu->k == kernels) != !i)
			fprintf(stderr, "reset %d: %s\n", i, tuttiGetLastError(NULL)), wrong++;
	}
	return wrong;
}

static void nothing_of_a_device_is_used_after_its_reset(void)
{
	claim(getenv("TUTTI_TEST_GPU") || run_gpu_ranks(1, KERNEL_BARRIER, true, join_again) == 0);
}

const struct gpu_case gpu_devices[] = {
	GPU_CASE(processes_tell_gpus_apart_by_uuid_whatever_numbers_they_see),
	GPU_CASE(a_driver_too_old_for_the_kernels_is_named_once_in_the_log),
	GPU_CASE(ranks_signal_each_other_where_streams_write_no_memory_of_other_gpus),
	GPU_CASE(a_join_waits_longer_than_its_deadline_while_a_driver_compiles_the_kernels),
	GPU_CASE(threads_load_the_kernels_into_their_gpus_at_the_same_time),
	GPU_CASE(an_allreduce_of_gpus_of_their_own_holds_up_no_computing_in_the_only_connection),
	GPU_CASE(one_connection_to_the_device_is_warned_of_once),
	GPU_CASE(a_buffer_that_peers_may_still_write_to_is_not_used_again),
	GPU_CASE(nothing_of_a_device_is_used_after_its_reset),
	{ NULL, NULL, false },
};
