"""torch.py - the backend "tutti" of torch.distributed, for tensors in host memory

    torch.distributed.init_process_group("tutti")

tutti_torch.py calls create() for each group. A group is a ProcessGroup in Python and not a Backend, since
torch wraps the Work of a Python Backend and passes on only wait() and its future: is_completed(), result() and the source
rank would be lost. torch's C++ code gets a Backend, which calls the group. Collectives run in call order: in the calling
thread if nothing is queued and the caller waits, else in the group's thread. Sends and receives are Tutti's messages, which
have tags and any source. The ranks meet in the group's store, which carries the secret: whoever reads the store can join.
"""

import contextlib
import ctypes
import functools
import inspect
import queue
import threading
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._dynamo import eval_frame
from torch.distributed.distributed_c10d import ReduceOp

from .communicator import Communicator, Status
from .datatypes import Datatype, Op
from .library import Error, TimeoutError, check, lib

TYPES = {
    torch.int8: (Datatype.INT8, 1), torch.uint8: (Datatype.UINT8, 1), torch.bool: (Datatype.UINT8, 1),
    torch.int32: (Datatype.INT32, 1), torch.int64: (Datatype.INT64, 1), torch.float16: (Datatype.FLOAT16, 1),
    torch.bfloat16: (Datatype.BFLOAT16, 1), torch.float32: (Datatype.FLOAT32, 1), torch.float64: (Datatype.FLOAT64, 1),
    torch.float8_e4m3fn: (Datatype.FLOAT8E4M3, 1), torch.float8_e5m2: (Datatype.FLOAT8E5M2, 1),
    torch.complex64: (Datatype.FLOAT32, 2), torch.complex128: (Datatype.FLOAT64, 2),
}
OPS = ((ReduceOp.SUM, Op.SUM), (ReduceOp.AVG, Op.AVG), (ReduceOp.MAX, Op.MAX), (ReduceOp.MIN, Op.MIN),
       (ReduceOp.PRODUCT, Op.PROD), (ReduceOp.BAND, Op.BAND), (ReduceOp.BOR, Op.BOR), (ReduceOp.BXOR, Op.BXOR))
OF_BOOL = {Op.SUM: Op.MAX, Op.PROD: Op.MIN, Op.BOR: Op.MAX, Op.BAND: Op.MIN}
BYTE = Datatype.UINT8
FIRST_INTERNAL_TAG = 1 << 30   # tags of barriers with a deadline; the program's tags are lower
NO_TIMEOUT = timedelta(0)
NO_DEVICE = torch.device("vulkan")   # of no tensor of a program


def reduction(tensor, reduce_op):
    """Type, elements and op of a reduction of a tensor."""
    try:
        datatype, parts = TYPES[tensor.dtype]
    except KeyError:
        raise TypeError(f"tutti cannot reduce {tensor.dtype}") from None
    for theirs, op in OPS:
        if reduce_op == theirs:
            break
    else:
        raise ValueError(f"tutti has no reduction {reduce_op}")
    if tensor.dtype is torch.bool:
        op = OF_BOOL.get(op, op)
    if parts == 2 and op not in (Op.SUM, Op.AVG):
        raise ValueError(f"tutti reduces {tensor.dtype} by sum and average only")
    return datatype, tensor.numel() * parts, op


def nbytes(tensor):
    return tensor.numel() * tensor.element_size()


def table(tensors):
    """The bytes of each tensor, for an uneven collective."""
    return (ctypes.c_size_t * len(tensors))(*map(nbytes, tensors))


def adjacent(tensors):
    """One tensor with the elements of all, in order."""
    return torch.cat([host(tensor).reshape(-1) for tensor in tensors])


@contextlib.contextmanager
def filled(tensors):
    """A tensor for the elements of all, which get its values at the end."""
    flat = tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))
    yield flat
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        host(tensor).copy_(part.view(tensor.shape))


def host(tensor):
    if tensor.device.type != "cpu":
        raise ValueError(f"the backend tutti takes tensors in host memory, not on {tensor.device}")
    return tensor.detach()


@contextlib.contextmanager
def dense(*tensors):
    """Contiguous tensors with the values of these; the values go back at the end."""
    same = [host(tensor).contiguous() for tensor in tensors]
    yield same
    for tensor, copy in zip(tensors, same):
        if copy.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(copy)


def as_list(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def waits(opts):
    return getattr(opts, "asyncOp", True) is False


def op_of(opts):
    return ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def root_of(opts):
    return opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)


class Work(dist._Work):
    """A queued or complete operation. outputs: its tensors."""

    def __init__(self, outputs, complete=False):
        super().__init__()
        self.outputs, self.error, self.source, self.future = outputs, None, -1, None
        self.lock, self.complete = threading.Lock(), threading.Event()
        if complete:
            self.complete.set()

    def finish(self, error=None):
        with self.lock:
            self.error = error
            self.complete.set()
            future = self.future
        if future:
            self.settle(future)

    def settle(self, future):
        if self.error:
            future.set_exception(self.error)
        else:
            future.set_result(self.outputs)

    def wait(self, timeout=NO_TIMEOUT):
        if not self.complete.wait(timeout.total_seconds() if timeout else None):
            raise TimeoutError(f"the operation did not complete within {timeout.total_seconds()} s: Timed out")
        if self.error:
            raise self.error
        return True

    synchronize = wait

    def get_future(self):
        with self.lock:
            if self.future:
                return self.future
            future = self.future = torch.futures.Future()
            complete = self.complete.is_set()
        if complete:
            self.settle(future)
        return future

    def is_completed(self):
        return self.complete.is_set()

    def is_success(self):
        return self.complete.is_set() and not self.error

    def exception(self):
        return self.error

    def result(self):
        return self.outputs

    def source_rank(self):
        return self.source

    _source_rank = source_rank


class Caller:
    """Runs operations one after the other, in call order. Its thread does not keep the interpreter from ending."""

    def __init__(self, name="tutti-group"):
        self.name = name
        self.queue, self.queued, self.thread = queue.SimpleQueue(), 0, None
        self.guard, self.turn = threading.Lock(), threading.Lock()

    def call(self, operation, outputs, direct):
        """Run operation() now if direct and nothing is queued, else in the thread."""
        with self.guard:
            if not (direct and self.queued == 0 and self.turn.acquire(blocking=False)):
                work = Work(outputs)
                self.queued += 1
                self.queue.put((operation, work))
                if self.thread is None:
                    self.thread = threading.Thread(target=self.run, name=self.name, daemon=True)
                    self.thread.start()
                return work
        try:
            operation()
        finally:
            self.turn.release()
        return Work(outputs, complete=True)

    def run(self):
        while True:
            operation, work = self.queue.get()
            if operation is None:
                return
            error = None
            with self.turn:
                try:
                    source = operation()
                    work.source = -1 if source is None else source
                except BaseException as why:
                    error = why
                with self.guard:
                    self.queued -= 1
            work.finish(error)
            del operation, work

    def end(self, wait=True):
        if self.thread is not None:
            self.queue.put((None, None))
            if wait and self.thread is not threading.current_thread():
                self.thread.join()
            self.thread = None


class ProcessGroupTutti(dist.ProcessGroup):
    def __init__(self, rank, size, comm, timeout, name):
        super().__init__(rank, size)
        self.called = name   # also gloo, with TUTTI_TAKES_GLOO=1
        self.comm, self.timeout = comm, timeout
        self.caller, self.peers, self.barriers = Caller(), {}, 0
        self.others = [peer for peer in range(size) if peer != rank]
        self.backend = BackendTutti(self)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._register_backend(torch.device("cpu"), kind, self.backend)
        if name == "gloo" and dist.is_gloo_available():
            self._register_backend(NO_DEVICE, dist.ProcessGroup.BackendType.GLOO, idle_gloo())
        self._set_default_backend(kind)

    # ---- the group ---------------------------------------------------------------------------------------------------

    def getBackendName(self):
        return self.called

    name = _get_backend_name = getBackendName

    @property
    def supports_coalescing(self):
        return False

    @property
    def supports_splitting(self):
        return False

    def _set_default_timeout(self, timeout):
        self.timeout = timeout

    set_timeout = _set_default_timeout

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self.comm.counters()["operations"] if self.comm.handle else 0

    def _start_coalescing(self, device=None):
        pass

    def _end_coalescing(self, device=None):
        return self.caller.call(lambda: None, [], False)

    def end(self, leave):
        self.caller.end()
        for caller in self.peers.values():
            caller.end(wait=False)
        with contextlib.suppress(Error):
            leave()

    def shutdown(self):
        self.end(self.comm.Free)

    def abort(self):
        self.comm.Abort()
        self.end(lambda: None)

    # ---- reductions ----------------------------------------------------------------------------------------------------

    def sum(self, tensor, reduce_op):
        datatype, count, op = reduction(tensor, reduce_op)
        address = tensor.data_ptr()
        return lib.AllReduce(address, address, count, datatype, op, self.comm.handle, None)

    def allreduce(self, tensors, opts=None):
        tensors = as_list(tensors)
        reduce_op = op_of(opts)

        def operation():
            for tensor in tensors:
                if tensor.is_sparse:
                    self.sum_sparse(tensor, reduce_op)
                elif tensor.is_contiguous() and tensor.is_cpu:
                    self.comm.check(self.sum(tensor, reduce_op))
                else:
                    with dense(tensor) as (same,):
                        self.comm.check(self.sum(same, reduce_op))
        return self.caller.call(operation, tensors, waits(opts))

    def allreduce_coalesced(self, tensors, opts=None):
        def operation():
            with dense(*tensors) as same, self.comm.group():
                for tensor in same:
                    check(self.sum(tensor, op_of(opts)))
        return self.caller.call(operation, list(tensors), waits(opts))

    def sum_sparse(self, tensor, reduce_op):
        """Every rank gets all indices and values, and adds them in rank order."""
        if reduce_op != ReduceOp.SUM:
            raise ValueError("tutti reduces sparse tensors by sum only")
        own = host(tensor).coalesce()
        counts = torch.empty(self.size(), dtype=torch.int64)
        self.comm.Allgather(torch.tensor([own._nnz()]), counts)
        parts = []
        for values in (own.indices().t().contiguous(), own.values().contiguous()):
            parts.append([values.new_empty((count, *values.shape[1:])) for count in counts.tolist()])
            self.gather_parts(parts[-1], values)
        indices, values = (torch.cat(part) for part in parts)
        total = torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce()
        with torch.no_grad():
            tensor.copy_(total)   # not into detach(), which has indices of its own

    allreduce_sparse = allreduce

    def reduce(self, tensors, opts=None):
        tensors = as_list(tensors)

        def operation():
            for tensor in tensors:
                with dense(tensor) as (same,):
                    datatype, count, op = reduction(same, op_of(opts))
                    self.comm.check(lib.Reduce(same.data_ptr(), same.data_ptr(), count, datatype, op, root_of(opts),
                                               self.comm.handle, None))
        return self.caller.call(operation, tensors, waits(opts))

    def reduce_scatter_flat(self, output, flat, reduce_op, parts=None):
        """parts: tensors of the sizes of the ranks' parts, where they differ."""
        with dense(output) as (out,):
            datatype, count, op = reduction(out, reduce_op)
            if parts:
                counts = (ctypes.c_size_t * self.size())(*(reduction(part, reduce_op)[1] for part in parts))
                self.comm.check(lib.ReduceScatterv(flat.data_ptr(), out.data_ptr(), counts, datatype, op, self.comm.handle,
                                                   None))
            else:
                self.comm.check(lib.ReduceScatter(flat.data_ptr(), out.data_ptr(), count, datatype, op, self.comm.handle, None))

    def reduce_scatter(self, outputs, inputs, opts=None):
        def operation():
            for output, parts in zip(outputs, inputs):
                uneven = len({part.numel() for part in parts}) > 1
                self.reduce_scatter_flat(output, adjacent(parts), op_of(opts), parts if uneven else None)
        return self.caller.call(operation, list(outputs), waits(opts))

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        def operation():
            for output, whole in zip(outputs, inputs):
                self.reduce_scatter_flat(output, host(whole).contiguous(), op_of(opts))
        return self.caller.call(operation, list(outputs), waits(opts))

    def reduce_scatter_single(self, output, input, opts=None):
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- copies --------------------------------------------------------------------------------------------------------

    def broadcast(self, tensors, opts=None):
        tensors = as_list(tensors)

        def operation():
            for tensor in tensors:
                with dense(tensor) as (same,):
                    self.comm.check(lib.Bcast(same.data_ptr(), nbytes(same), BYTE, root_of(opts), self.comm.handle, None))
        return self.caller.call(operation, tensors, waits(opts))

    def gather_flat(self, out, send):
        self.comm.check(lib.AllGather(send.data_ptr(), out.data_ptr(), nbytes(send), BYTE, self.comm.handle, None))

    def gather_parts(self, parts, tensor):
        """Fill part r with the tensor of rank r."""
        send, counts = host(tensor).contiguous(), table(parts)
        with filled(parts) as flat:
            if len(set(counts)) == 1:
                self.gather_flat(flat, send)
            else:
                self.comm.check(lib.AllGatherv(send.data_ptr(), nbytes(send), flat.data_ptr(), counts, None, BYTE,
                                               self.comm.handle, None))

    def allgather(self, outputs, inputs, opts=None):
        outputs, inputs = [as_list(parts) for parts in outputs], as_list(inputs)

        def operation():
            for parts, tensor in zip(outputs, inputs):
                self.gather_parts(parts, tensor)
        return self.caller.call(operation, outputs, waits(opts))

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i] is tensor i of rank r."""
        return self.allgather([list(parts) for parts in zip(*outputs)], list(inputs), opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        def operation():
            for output, tensor in zip(outputs, inputs):
                with dense(output) as (out,):
                    self.gather_flat(out, host(tensor).contiguous())
        return self.caller.call(operation, list(outputs), waits(opts))

    def all_gather_single(self, output, input, opts=None):
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs, inputs, opts=None):
        root = root_of(opts)

        def operation():
            for i, tensor in enumerate(as_list(inputs)):
                send = host(tensor).contiguous()
                with filled(outputs[i]) if self.rank() == root else contextlib.nullcontext() as flat:
                    self.comm.check(lib.Gather(send.data_ptr(), None if flat is None else flat.data_ptr(), nbytes(send), BYTE,
                                               root, self.comm.handle, None))
        return self.caller.call(operation, list(outputs), waits(opts))

    def gather_single(self, output, input, opts=None):
        return self.gather([list(output.chunk(self.size()))] if self.rank() == root_of(opts) else [], [input], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs, inputs, opts=None):
        root = root_of(opts)

        def operation():
            for i, output in enumerate(as_list(outputs)):
                with dense(output) as (out,):
                    flat = adjacent(inputs[i]) if self.rank() == root else None
                    self.comm.check(lib.Scatter(None if flat is None else flat.data_ptr(), out.data_ptr(), nbytes(out), BYTE,
                                                root, self.comm.handle, None))
        return self.caller.call(operation, as_list(outputs), waits(opts))

    def exchange(self, out, outs, send, sends):
        """outs, sends: the adjacent parts of out and send, one a rank; the sizes may differ, and may be 0."""
        self.comm.check(lib.AlltoAllv(send.data_ptr(), table(sends), None, out.data_ptr(), table(outs), None, BYTE,
                                      self.comm.handle, None))

    def alltoall(self, outputs, inputs, opts=None):
        def operation():
            with filled(outputs) as out:
                self.exchange(out, outputs, adjacent(inputs), inputs)
        return self.caller.call(operation, list(outputs), waits(opts))

    def all_to_all_single(self, output, input, output_sizes=None, input_sizes=None, opts=None):
        def split(tensor, sizes):
            if not sizes and tensor.shape[0] % self.size():
                raise ValueError(f"{tensor.shape[0]} rows cannot be split evenly over {self.size()} ranks")
            return tensor.split(list(sizes) if sizes else tensor.shape[0] // self.size() or 1)

        def operation():
            with dense(output) as (out,):
                send = host(input).contiguous()
                if not output_sizes and not input_sizes:
                    split(out, None), split(send, None)
                    self.comm.check(lib.AlltoAll(send.data_ptr(), out.data_ptr(), nbytes(send) // self.size(), BYTE,
                                                 self.comm.handle, None))
                else:
                    self.exchange(out, split(out, output_sizes), send, split(send, input_sizes))
        return self.caller.call(operation, [output], waits(opts))

    alltoall_base = all_to_all_single

    # ---- barriers --------------------------------------------------------------------------------------------------------

    def barrier(self, opts=None, timeout=None):
        limit = timeout or (opts if isinstance(opts, timedelta) else getattr(opts, "timeout", None))
        self.barriers += 1
        tag = FIRST_INTERNAL_TAG + self.barriers % (1 << 20)

        def operation():
            if limit and NO_TIMEOUT < limit < self.timeout:
                self.barrier_within(limit, tag)
                return
            try:
                self.comm.Barrier()
            except TimeoutError as error:   # torch's word
                raise TimeoutError(f"barrier: Timed out in tutti: {error}", self.rank()) from None
        return self.caller.call(operation, [], waits(opts))

    def barrier_within(self, limit, tag):
        """Dissemination: after round k a rank has news of 2^(k+1) ranks."""
        limit_ms, step, news = max(int(limit.total_seconds() * 1000), 1), 1, bytearray(1)
        while step < self.size():
            self.comm.Send(news, (self.rank() + step) % self.size(), tag)
            source = (self.rank() - step) % self.size()
            try:
                self.comm.Recv(news, source, tag, timeout_ms=limit_ms)
            except TimeoutError:
                raise TimeoutError(f"rank {self.rank()}: Timed out after {limit_ms} ms in a barrier, waiting for rank {source}",
                                   self.rank()) from None
            step *= 2

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Rank 0 names the first missing rank, or all of them."""
        limit_ms = int((self.timeout if timeout is None else timeout).total_seconds() * 1000)
        if limit_ms <= 0:
            raise TimeoutError(f"Rank {self.rank()} timed out in monitoredBarrier after 0 ms", self.rank())
        self.barriers += 1
        tag, news = FIRST_INTERNAL_TAG + self.barriers % (1 << 20), bytearray(1)
        if self.rank() != 0:
            self.comm.Send(news, 0, tag)
            try:
                return self.comm.Recv(news, 0, tag, timeout_ms=limit_ms)
            except TimeoutError:
                raise TimeoutError(f"Rank {self.rank()} successfully reached monitoredBarrier, but received errors while "
                                   f"waiting for send/recv from rank 0: no answer in {limit_ms} ms", self.rank()) from None
        missing = []
        for peer in self.others:
            try:
                self.comm.Recv(news, peer, tag, timeout_ms=limit_ms)
            except Error as error:
                missing.append(peer)
                if not wait_all_ranks:
                    raise TimeoutError(f"Rank {peer} failed to pass monitoredBarrier in {limit_ms} ms: {error}", 0) from None
        if missing:
            raise TimeoutError(f"Ranks {', '.join(map(str, missing))} failed to pass monitoredBarrier in {limit_ms} ms", 0)
        for peer in self.others:
            self.comm.Send(news, peer, tag)

    # ---- messages ----------------------------------------------------------------------------------------------------------
    # One thread for each peer, direction and tag keeps their order; sends never wait for receives.

    def start(self, key, operation, outputs):
        return self.peers.setdefault(key, Caller("tutti-message")).call(operation, outputs, False)

    def send(self, tensors, peer, tag=0):
        (tensor,) = as_list(tensors)

        def operation():
            same = host(tensor).contiguous()
            self.comm.check(lib.MsgSend(same.data_ptr(), nbytes(same), peer, tag, 0, self.comm.handle))
            return self.rank()
        return self.start(("to", peer, tag), operation, [tensor])

    def recv(self, tensors, peer, tag=0):
        (tensor,) = as_list(tensors)
        status = Status()

        def operation():
            with dense(tensor) as (same,):
                self.comm.receive(lib.MsgRecv, (same.data_ptr(), nbytes(same)), peer, tag, -1, status)
                if status.bytes != nbytes(same):
                    raise ValueError(f"rank {status.source} sent {status.bytes} bytes to a tensor of {nbytes(same)}")
            return status.source
        return self.start(("from", peer, tag), operation, [tensor])

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, -1, tag)


@functools.cache
def idle_gloo():
    """Gloo of one rank, which moves nothing: torch's logger of DDP asks the Gloo of a group named gloo for its threads."""
    options = dist.ProcessGroupGloo._Options()
    options._devices, options._threads = [dist.ProcessGroupGloo.create_device(interface="lo")], 2
    return dist.ProcessGroupGloo(dist.HashStore(), 0, 1, options)


class BackendTutti(dist.distributed_c10d.C10DBackend):
    """The group as torch's C++ code sees it: it asks for the backend of a device, and calls the group's methods."""

    def __init__(self, group):
        super().__init__(group.rank(), group.size())
        self.group = weakref.ref(group)

    def getBackendName(self):
        return "tutti"

    name = getBackendName

    @property
    def supports_coalescing(self):
        return False

    @property
    def supports_splitting(self):
        return False


def passed_on(name):
    return lambda self, *arguments: getattr(self.group(), name)(*arguments)


for method in ("allreduce", "allreduce_coalesced", "allreduce_sparse", "reduce", "reduce_scatter", "reduce_scatter_single",
               "reduce_scatter_single_coalesced", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "broadcast",
               "allgather", "all_gather_single", "all_gather_single_coalesced", "allgather_coalesced", "_allgather_base",
               "allgather_into_tensor_coalesced", "gather", "scatter", "alltoall", "all_to_all_single", "alltoall_base",
               "barrier", "send", "recv", "recv_anysource", "abort", "shutdown", "_get_sequence_number_for_group",
               "_set_sequence_number_for_group", "monitored_barrier", "set_timeout"):
    setattr(BackendTutti, method, passed_on(method))


def run_untraced():
    """torch.compile traces all Python that a compiled function calls, also by way of torch's C++ code, as DDP's broadcast
    is; but no calls of a group."""
    skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
    for kind in ProcessGroupTutti, BackendTutti, Work:
        for method in filter(inspect.isfunction, vars(kind).values()):
            eval_frame.set_code_exec_strategy(method.__code__, skip)


def create(options, name):
    """The group of this rank, of the backend `name`."""
    store, rank, size, timeout = options.store, options.group_rank, options.group_size, options.timeout

    def get(key, seconds):
        store.wait([key], timedelta(seconds=max(seconds, 0.001)))
        return store.get(key)

    timeout_ms = min(int(timeout.total_seconds() * 1000), 2**31 - 1)
    comm = Communicator.from_store(rank, size, "tutti", store.set, get, timeout_ms=timeout_ms)
    return ProcessGroupTutti(rank, size, comm, timeout, name)


run_untraced()
