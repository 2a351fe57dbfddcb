/*
 * test_cuda.c - the table of driver functions, the classification of pointers, and the fake
 * under the other CUDA tests
 *
 * The suite uses no GPU; all of it runs on tests/fakes/cuda/.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness_cuda.h"

TestSuite(cuda, .timeout = 20);

Test(cuda, a_process_without_the_driver_has_no_table)
{
	cr_assert_null(tt_cuda_here());
}

Test(cuda, a_pointer_is_classified_by_its_allocation)
{
	const struct tt_cuda *cu = harness_cuda();
	tt_cuptr device, managed;
	void *pinned, *plain = malloc(8192);
	struct tt_mem m;

	cr_assert_not_null(cu);
	cr_assert_eq(cu->mem_alloc(&device, 10000), 0);
	cr_assert_eq(cu->mem_alloc_managed(&managed, 100, 1), 0);
	cr_assert_eq(cu->host_alloc(&pinned, 100, TT_CU_HOST_PORTABLE), 0);
	cr_assert_eq(tt_cuda_classify(cu, (void *)(uintptr_t)(device + 77), &m), 0);
	cr_assert_eq(m.kind, TT_MEM_DEVICE);
	cr_assert_eq(m.base, device);
	cr_assert_geq(m.bytes, 10000);
	cr_assert_eq(m.device, 0);
	cr_assert_eq(tt_cuda_classify(cu, (void *)(uintptr_t)managed, &m), 0);
	cr_assert_eq(m.kind, TT_MEM_MANAGED);
	cr_assert_eq(tt_cuda_classify(cu, pinned, &m), 0);
	cr_assert_eq(m.kind, TT_MEM_PINNED);
	cr_assert_eq(tt_cuda_classify(cu, plain, &m), 0);
	cr_assert_eq(m.kind, TT_MEM_HOST);
	cr_assert_eq(cu->host_register(plain, 8192, 0), 0);
	cr_assert_eq(tt_cuda_classify(cu, plain, &m), 0);
	cr_assert_eq(m.kind, TT_MEM_PINNED);
	cr_assert_eq(cu->host_unregister(plain), 0);
	cr_assert_eq(tt_cuda_classify(cu, NULL, &m), 0);
	cr_assert_eq(m.kind, TT_MEM_HOST);
	free(plain);
}

Test(cuda, memory_at_a_freed_and_reused_address_has_another_id)
{
	const struct tt_cuda *cu = harness_cuda();
	struct tt_mem was, is;
	tt_cuptr p;

	for (int i = 0; i < 200; i++) {
		size_t bytes = i % 2 ? 4096 : 65536;

		cr_assert_eq(cu->mem_alloc(&p, bytes), 0);
		cr_assert_eq(tt_cuda_classify(cu, (void *)(uintptr_t)p, &is), 0);
		cr_assert_eq(is.base, p);
		cr_assert_eq(is.bytes, bytes);
		cr_assert(!i || is.id != was.id);
		was = is;
		cr_assert_eq(cu->mem_free(p), 0);
	}
}

static void add_one(void *arg)
{
	++*(int *)arg;
}

Test(cuda, a_stream_waits_for_a_value_that_another_stream_writes)
{
	const struct tt_cuda *cu = harness_cuda();
	tt_custream a, b;
	tt_cuevent e;
	tt_cuptr flag;
	int seen = 0;
	struct tt_cumemop wait, write;

	cu->stream_create(&a, TT_CU_STREAM_NON_BLOCKING);
	cu->stream_create(&b, TT_CU_STREAM_NON_BLOCKING);
	cu->event_create(&e, TT_CU_EVENT_UNTIMED);
	cu->mem_alloc(&flag, 4);
	wait = (struct tt_cumemop){
		.operation = TT_CU_WAIT_32, .address = flag, .value = 7, .flags = TT_CU_WAIT_EQ
	};
	write = (struct tt_cumemop){ .operation = TT_CU_WRITE_32, .address = flag, .value = 7 };
	cu->stream_batch(a, 1, &wait, 0);
	cu->host_func(a, add_one, &seen);
	cu->event_record(e, a);
	cr_assert_eq(cu->event_query(e), TT_CU_NOT_READY);
	cr_assert_eq(cu->stream_query(a), TT_CU_NOT_READY);
	cu->stream_batch(b, 1, &write, 0);
	cr_assert_eq(cu->event_synchronize(e), 0);
	cr_assert_eq(seen, 1);
	cu->stream_destroy(a);
	cu->stream_destroy(b);
	cu->event_destroy(e);
}

Test(cuda, a_stream_waits_for_the_record_that_an_event_had_at_the_call)
{
	const struct tt_cuda *cu = harness_cuda();
	struct tt_cumemop wait = { .operation = TT_CU_WAIT_32, .value = 7, .flags = TT_CU_WAIT_EQ };
	tt_custream held, waits, free_stream;
	tt_cuevent e;

	cu->stream_create(&held, TT_CU_STREAM_NON_BLOCKING);
	cu->stream_create(&waits, TT_CU_STREAM_NON_BLOCKING);
	cu->stream_create(&free_stream, TT_CU_STREAM_NON_BLOCKING);
	cu->event_create(&e, TT_CU_EVENT_UNTIMED);
	cu->mem_alloc(&wait.address, 4);
	cu->stream_batch(held, 1, &wait, 0);
	cu->event_record(e, held);
	cu->stream_wait_event(waits, e, 0);
	cu->event_record(e, free_stream);
	cr_assert_eq(cu->event_synchronize(e), 0);
	usleep(20000); /* for a stream that wrongly goes on */
	cr_assert_eq(cu->stream_query(waits), TT_CU_NOT_READY);
	wait.operation = TT_CU_WRITE_32;
	cu->stream_batch(free_stream, 1, &wait, 0);
	cr_assert_eq(cu->stream_synchronize(waits), 0);
	cu->stream_destroy(held), cu->stream_destroy(waits), cu->stream_destroy(free_stream);
	cu->event_destroy(e);
}

Test(cuda, a_graph_replays_captured_operations_and_the_capture_runs_none)
{
	const struct tt_cuda *cu = harness_cuda();
	void *graph, *exec;
	tt_custream s;
	int seen = 0;

	cu->stream_create(&s, 0);
	cu->begin_capture(s, TT_CU_CAPTURE_THREAD);
	cu->host_func(s, add_one, &seen);
	cr_assert_eq(cu->end_capture(s, &graph), 0);
	cr_assert_eq(cu->stream_synchronize(s), 0);
	cr_assert_eq(seen, 0);
	cu->graph_instantiate(&exec, graph, 0);
	cu->graph_destroy(graph);
	for (int i = 0; i < 3; i++)
		cu->graph_launch(exec, s);
	cu->stream_synchronize(s);
	cr_assert_eq(seen, 3);
	cu->graph_exec_destroy(exec);
	cu->stream_destroy(s);
}

Test(cuda, a_synchronizing_thread_invalidates_a_capture_unless_its_mode_is_relaxed)
{
	const struct tt_cuda *cu = harness_cuda();
	int mode = TT_CU_CAPTURE_RELAXED;
	tt_custream s, other;
	void *graph;

	cu->stream_create(&s, TT_CU_STREAM_NON_BLOCKING);
	cu->stream_create(&other, TT_CU_STREAM_NON_BLOCKING);
	cu->begin_capture(s, TT_CU_CAPTURE_GLOBAL);
	cr_assert_neq(cu->stream_synchronize(other), 0);
	cr_assert_neq(cu->end_capture(s, &graph), 0);
	cu->begin_capture(s, TT_CU_CAPTURE_GLOBAL);
	cu->capture_mode(&mode);
	cr_assert_eq(cu->stream_synchronize(other), 0);
	cu->capture_mode(&mode);
	cr_assert_eq(cu->end_capture(s, &graph), 0);
	cu->graph_destroy(graph);
}

/* The parent exports a handle of its device memory; the child opens the handle and writes. */
Test(cuda, an_ipc_handle_is_opened_by_another_process_but_not_by_its_own)
{
	int to_child[2], status, ready = 1;
	struct tt_cuipc handle;
	const struct tt_cuda *cu;
	tt_cuptr p, own;
	pid_t child;

	cr_assert_eq(pipe(to_child), 0);
	child = fork();
	if (!child) {
		cu = harness_cuda();
		if (!cu || read(to_child[0], &handle, sizeof(handle)) != sizeof(handle) ||
		    cu->ipc_open(&p, handle, 1))
			_exit(1);
		_exit(cu->htod(p + 4, &ready, sizeof(ready)) != 0);
	}
	cu = harness_cuda();
	cr_assert_eq(cu->mem_alloc(&p, 100), 0);
	cr_assert_eq(cu->ipc_get(&handle, p), 0);
	cr_assert_neq(cu->ipc_open(&own, handle, 1), 0);
	cr_assert_eq(write(to_child[1], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	ready = 0;
	cu->dtoh(&ready, p + 4, sizeof(ready));
	cr_assert_eq(ready, 1);
}

Test(cuda, an_injected_failure_is_reported_with_the_drivers_error_text)
{
	const struct tt_cuda *cu;
	tt_cuptr p;
	int rc;

	setenv("TUTTI_TEST_CUDA_FAIL", "cuMemAlloc_v2:2:2", 1);
	cu = harness_cuda();
	cr_assert_eq(cu->mem_alloc(&p, 100), 0);
	rc = cu->mem_alloc(&p, 100);
	cr_assert_eq(rc, TT_CU_NO_MEMORY);
	cr_assert_eq(tt_cuda_fail(rc, "rank %d: 100 bytes", 3), TT_CUDA);
	cr_assert_not_null(strstr(tt_error_text(), "rank 3: 100 bytes: out of memory"));
}
