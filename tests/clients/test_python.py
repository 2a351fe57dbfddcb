"""test_python.py - Tutti's Python package between real processes, on the modules of a bare Python

    PYTHONPATH=bindings/python TUTTI_LIBRARY=.../libtutti.so.0 python3 tests/clients/test_python.py

Called by python.sh. Each scene below is the program of a rank. numpy's arrays are tested where numpy is installed.
"""

import array
import asyncio
import ctypes
import os
import signal
import sys
import time

import jobs
import tutti


def numbers(code, n, start=0):
    return array.array(code, range(start, start + n))


def raises(kind, call, *parts):
    try:
        call()
    except kind as error:
        assert all(part in str(error) for part in parts), str(error)
        return error
    raise AssertionError(f"no {kind.__name__}")


# ---- scenes: the name of a function is the argument of a rank ----------------------------------------------------------


def collectives(comm):
    n, me = comm.size, comm.rank
    out = numbers("d", 5)
    comm.Allreduce(numbers("d", 5, me), out)
    assert list(out) == [n * i + n * (n - 1) / 2 for i in range(5)]
    comm.Allreduce(tutti.IN_PLACE, out, op=tutti.MAX)
    comm.Reduce(numbers("i", 3, me), numbers("i", 3) if me == 1 else None, op=tutti.PROD, root=1)
    data = bytearray(b"from 0") if me == 0 else bytearray(6)
    comm.Bcast(data)
    assert data == b"from 0"
    out = numbers("q", 2 * n)
    comm.Allgather(numbers("q", 2, 10 * me), out)
    assert list(out) == [10 * r + i for r in range(n) for i in range(2)]
    mine = numbers("f", 2)
    comm.Reduce_scatter_block(numbers("f", 2 * n), mine)
    assert list(mine) == [n * 2 * me, n * (2 * me + 1)]
    out = numbers("h", n)   # int16 moves, but does not reduce
    comm.Alltoall(numbers("h", n, 100 * me), out)
    assert list(out) == [100 * r + me for r in range(n)]
    raises(TypeError, lambda: comm.Allreduce(numbers("h", 2), numbers("h", 2)), "cannot reduce")
    out = numbers("i", n) if me == n - 1 else None
    comm.Gather(numbers("i", 1, me), out, root=n - 1)
    assert out is None or list(out) == list(range(n))
    one = numbers("i", 1)
    comm.Scatter(numbers("i", n, 7) if me == 0 else None, one)
    assert one[0] == 7 + me
    comm.Barrier()
    average = numbers("d", 1)
    comm.Allreduce(numbers("d", 1, me), average, op=tutti.AVG)
    assert average[0] == (n - 1) / 2
    raises(ValueError, lambda: comm.Allreduce(numbers("d", 5), numbers("d", 4)), "4 elements", "5")
    raises(ValueError, lambda: comm.Bcast(b"read-only", root=(me + 1) % n))
    raises(TypeError, lambda: comm.Bcast(object()), "DLPack")
    assert comm.counters()["operations"] > 8 and comm.describe("allreduce", 100)


def uneven(comm):
    n, me = comm.size, comm.rank
    counts = [r if r != 1 else 0 for r in range(n)]   # ranks 0 and 1 have nothing
    out = numbers("i", sum(counts))
    comm.Allgatherv(numbers("i", counts[me], 10 * me), [out, counts])
    expected = [10 * r + i for r in range(n) for i in range(counts[r])]
    assert list(out) == expected
    out = numbers("i", sum(counts)) if me == 0 else None
    comm.Gatherv(numbers("i", counts[me], 10 * me), [out, counts] if me == 0 else None)
    assert out is None or list(out) == expected
    part = numbers("i", counts[me])
    comm.Scatterv([array.array("i", expected), counts] if me == 0 else None, part)
    assert list(part) == [10 * me + i for i in range(counts[me])]
    sends = [(me + r) % 3 for r in range(n)]
    receives = [(r + me) % 3 for r in range(n)]
    out = numbers("d", sum(receives))
    comm.Alltoallv([array.array("d", [me] * sum(sends)), sends], [out, receives])
    assert list(out) == [r for r in range(n) for _ in range(receives[r])]
    total = numbers("d", counts[me])
    comm.Reduce_scatter(numbers("d", sum(counts)), total, counts)
    first = sum(counts[:me])
    assert list(total) == [n * (first + i) for i in range(counts[me])]
    out = numbers("i", 2 * n)
    out[2 * me] = me
    comm.Allgatherv(tutti.IN_PLACE, [out, [1] * n, range(0, 2 * n, 2)])
    comm.Gatherv(tutti.IN_PLACE if me == 1 else out[2 * me:2 * me + 1], [out, [1] * n, range(0, 2 * n, 2)], root=1)
    comm.Scatterv([out, [1] * n, range(0, 2 * n, 2)], tutti.IN_PLACE if me == 1 else out[2 * me:2 * me + 1], root=1)
    assert list(out[::2]) == list(range(n)) and all(out[i] == i for i in range(1, 2 * n, 2))
    raises(ValueError, lambda: comm.Allgatherv(out[:1], [out, [1] * n, [0]]), "displacements [0]")
    raises(ValueError, lambda: comm.Allgatherv(out[:1], [out, [1] * n, [-1] * n]), "displacements[0] is -1")


def differing(comm):
    """Rank 0 expects nothing of rank 1, which sends an element."""
    def call():
        comm.Allgatherv(numbers("i", 1), [numbers("i", 2), [1, comm.rank]])
        comm.Barrier()
    raises(tutti.InvalidUsage, call)


def requests(comm):
    n, me = comm.size, comm.rank
    outs = [numbers("d", 4) for _ in range(40)]   # more than there are streams
    tutti.Waitall([comm.Iallreduce(numbers("d", 4, i), out) for i, out in enumerate(outs)])
    assert all(list(out) == [n * (i + k) for k in range(4)] for i, out in enumerate(outs))
    request = comm.Ibcast(outs[0], root=0)
    while not request.Test():
        pass
    assert request.done() and comm.Ibarrier().future().result(30) is None
    out = numbers("d", 1)

    async def sums():
        await comm.Iallreduce(numbers("d", 1, me), out)
        return out[0]
    assert asyncio.run(sums()) == n * (n - 1) / 2
    called = []
    request = comm.Iallgather(numbers("i", 1, me), numbers("i", n))
    request.add_done_callback(called.append)
    request.future().result(30)
    comm.Allreduce(out, numbers("d", 1))   # a call without a stream after calls on streams
    twin = comm.Dup()
    running = [twin.Iallreduce(numbers("d", 1, me), numbers("d", 1)) for _ in range(20)]
    futures = [request.future() for request in running[:10]]
    twin.Free()
    tutti.Waitall(running)
    assert all(request.Test() for request in running) and all(f.result(30) is None for f in futures)


def errors(comm):
    """A request that another thread completes: nobody sees it complete before its error is known."""
    def slow(error):
        seen.append(request.complete)
        return explain(error)
    seen = []
    request = comm.Iallreduce(numbers("d", 1 + comm.rank), numbers("d", 2))
    explain, request.explain = request.explain, slow
    raises(tutti.InvalidUsage, request.future().result)
    raises(tutti.InvalidUsage, request.Wait)
    assert seen == [False], seen


def messages(comm):
    n, me = comm.size, comm.rank
    back, status = numbers("i", 2), tutti.Status()
    comm.Sendrecv(numbers("i", 2, me), (me + 1) % n, 5, back, tutti.ANY_SOURCE, 5, status)
    assert back[0] == (me - 1) % n == status.source and status.Get_count(tutti.INT32) == 2
    raises(tutti.TimeoutError, lambda: comm.Recv(back, source=0, tag=9, timeout_ms=0), "tag 9")
    comm.Barrier()


def splits(comm):
    half = comm.Split(comm.rank % 2, -comm.rank)
    out = numbers("i", 1)
    half.Allreduce(numbers("i", 1, comm.rank), out)
    assert out[0] == sum(range(comm.rank % 2, comm.size, 2))
    assert comm.Split(None if comm.rank else 0) is None or comm.rank == 0
    with comm.Dup() as twin:
        assert twin.rank == comm.rank
        result = twin.Allreduce_quorum(numbers("d", 1, comm.rank), numbers("d", 1), comm.size)
        assert result.ranks == list(range(comm.size)) and result.mine == "in"
        twin.Barrier()
    half.Free()
    raises(tutti.InvalidArgument, half.Barrier, "freed")


def identities(comm):
    identity = bytearray(tutti.unique_id() if comm.rank == 0 else bytes(128))
    comm.Bcast(identity)
    with tutti.Communicator.from_id(comm.size, bytes(identity), comm.rank) as other:
        other.Barrier()
    values = {}

    def put(key, text):
        values[key] = text
        for rank in range(1, comm.size):
            comm.Send(text.encode(), rank)

    def get(key, seconds):
        buffer, status = bytearray(512), tutti.Status()
        comm.Recv(buffer, 0, status=status)
        return bytes(buffer[:status.bytes])
    with tutti.Communicator.from_store(comm.rank, comm.size, "a-key", put, get) as other:
        assert (other.rank, other.size) == (comm.rank, comm.size)
        other.Barrier()


class OnGpu:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f8", "data": (4096, False), "version": 3}


class OnDevice:
    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self):
        raise BufferError("of a GPU")


def mistakes(comm):
    """Each is an error that names it, before the rank takes part: the communicator goes on."""
    ints, floats = numbers("i", 4), numbers("f", 4)
    raises(TypeError, lambda: comm.Allreduce(ints, floats), "int32", "float32")
    raises(TypeError, lambda: comm.Reduce(floats, ints, root=comm.rank), "sendbuf has items of float32")
    raises(TypeError, lambda: comm.Allreduce(numbers("h", 1), numbers("h", 1)), "'h'")
    raises(TypeError, lambda: comm.Allreduce(ints, ints, op="sum"), "'sum'", "tutti.SUM")
    raises(TypeError, lambda: comm.Allreduce(ints, ints, op=99), "99")
    raises(TypeError, lambda: comm.Allreduce([1, 2], [3, 4]), "[object, count, type]")
    raises(TypeError, lambda: comm.Bcast([]), "[object, count, type]")
    raises(ValueError, lambda: comm.Allreduce([ints, -1], ints), "-1 elements")
    raises(TypeError, lambda: comm.Bcast(ints, root=None), "root", "None")
    raises(TypeError, lambda: comm.Send(ints, 1.5), "dest", "1.5")
    raises(TypeError, lambda: comm.Gather(ints, None, root=comm.rank), "recvbuf is None")
    raises(AttributeError, lambda: comm.allreduce(1), "allreduce")
    raises(tutti.InvalidArgument, lambda: comm.Bcast(ints, root=comm.size), "root")
    me, ints64 = f"rank {comm.rank}: ", numbers("q", 4)
    raises(TypeError, lambda: comm.Allreduce(ints, floats), me + "Allreduce: ", "convert")
    raises(ValueError, lambda: comm.Allreduce(ints, numbers("i", 3)), me, "recvbuf has 3 elements, the call needs 4")
    raises(ValueError, lambda: comm.Bcast(bytes(8), root=1 - comm.rank), me, "pass a bytearray")
    raises(ValueError, lambda: comm.Bcast(OnGpu(), root=1 - comm.rank), me, "OnGpu is on a GPU", "copy in host memory")
    raises(ValueError, lambda: comm.Bcast(OnDevice(), root=1 - comm.rank), me, "device type 2", "copy in host memory")
    raises(ValueError, lambda: comm.Send(ints, 0, tag=1 << 40), me + "Send: ", "tag is 1099511627776")
    raises(TypeError, lambda: comm.Send(ints, 0, tag="x"), "tag is 'x'; pass an integer")
    raises(TypeError, lambda: comm.Recv(ints, "0"), "source is '0'")
    raises(TypeError, lambda: comm.Recv(ints, 0, timeout_ms=1.5), "timeout_ms is 1.5")
    raises(TypeError, lambda: comm.Split("red"), me + "Split: ", "color is 'red'")
    raises(TypeError, lambda: comm.Dup(timeout=3), "no option timeout", "timeout_ms")
    raises(TypeError, lambda: comm.Allgatherv(ints[:1], [ints, [1.7, 1]]), "recvbuf's counts[0] is 1.7")
    raises(TypeError, lambda: comm.Allgatherv(ints[:1], ints), "recvbuf is array", "[object, counts]")
    raises(ValueError, lambda: comm.describe("allreduce", -3), "count is -3")
    raises(TypeError, lambda: comm.Allreduce(ints, ints, op=tutti.INT8), "tutti.SUM")
    raises(ValueError, lambda: comm.Allreduce_quorum(ints64[:3], ints64, 2), "sendbuf has 3 elements, the call needs 4")
    raises(TypeError, lambda: comm.Allreduce_quorum(ints, ints64, 2), "int32", "int64")
    twin, longer = comm.Dup(), numbers("i", 4 + comm.rank)
    raises(tutti.InvalidUsage, lambda: twin.Allreduce(longer, numbers("i", 8)), "allreduce of 4", "of 5")
    freed = comm.Dup()
    freed.Free()
    freed.Free()
    for call in freed.Barrier, freed.dead, lambda: freed.Recv(ints, 0), lambda: freed.Iallreduce(ints, ints):
        raises(tutti.InvalidArgument, call, me, "freed; free it after its last call")
    truths = (ctypes.c_bool * 2)()
    raises(TypeError, lambda: comm.Allreduce(truths, truths, op=tutti.SUM), "bool", "BOR")
    comm.Allreduce((ctypes.c_bool * 2)(True, comm.rank), truths, op=tutti.BOR)
    assert list(truths) == [True, True]
    comm.Allreduce(array.array("f"), array.array("f"))
    if comm.rank == 0 and hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            raises(tutti.InvalidArgument, comm.Barrier, "fork")
            sys.exit(5)   # runs atexit's functions, which must not leave for the parent
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    comm.Barrier()


def dropped(comm):
    """The memory of a running call stays until it is complete, also when the program has dropped the request."""
    count, out = 1 << 18, numbers("d", 0)
    out.frombytes(bytes(8 * count))
    for _ in range(20):
        comm.Iallreduce(array.array("d", [1]) * count, out)
        comm.Iallreduce(array.array("d", [1]) * count, array.array("d", [0]) * count)
        array.array("d", [7]) * count
    assert len(comm.streams.all) <= 2
    comm.Barrier()
    assert set(out) == {comm.size}
    comm.Iallreduce(numbers("d", 1), numbers("d", 1)).Wait()
    assert not any(stream.kept for stream in comm.streams.all)


def uncaught(comm):
    """A rank that ends by an exception leaves at once, though a call of its own still waits for the others."""
    comm.Barrier()
    if comm.rank == 1:
        running = comm.Iallreduce(numbers("d", 1), numbers("d", 1))   # noqa: F841
        raise KeyError("of the program")
    raises(tutti.RemoteError, lambda: comm.Recv(bytearray(1), 1), "rank 1")
    comm.Abort()


def mismatch(comm):
    """The error of a wrong call has the library's sentence, which names both calls."""
    a, b = numbers("d", 4), numbers("d", 4)
    wrong = (lambda: comm.Reduce(a, b)) if comm.rank == 0 else (lambda: comm.Allreduce(a, b))
    error = raises(tutti.InvalidUsage, wrong, "reduce", "allreduce")
    assert error.rank == comm.rank and error.code == 5
    comm.Abort()


def killed(comm):
    """Rank 1 is killed inside a sum of the others; they get its number, and go on without it."""
    comm.Barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    a, b = numbers("d", 4), numbers("d", 4)
    error = raises(tutti.RemoteError, lambda: comm.Iallreduce(a, b).Wait() if comm.rank == 2 else comm.Allreduce(a, b),
                   "rank 1")
    assert error.rank == comm.rank and 1 in error.dead, (error.rank, error.dead)
    rest = comm.Shrink()
    rest.Allreduce(numbers("d", 1, 1), b)
    assert b[0] == comm.size - 1 == rest.size
    rest.Free()
    raises(tutti.RemoteError, comm.Free)


def interrupted(comm):
    """Rank 2 does not take part in a sum. Ctrl-C at rank 0 ends it on the others, without and with a stream."""
    a, b = numbers("d", 4), numbers("d", 4)
    for call in lambda twin: twin.Allreduce(a, b), lambda twin: twin.Iallreduce(a, b).Wait():
        twin = comm.Dup()
        if comm.rank == 0:
            jobs.interrupt_when_stuck()
            raises(KeyboardInterrupt, lambda: call(twin))
            raises(tutti.InvalidArgument, twin.Barrier, "aborted", "SIGINT")
        elif comm.rank == 1:
            raises(tutti.RemoteError, lambda: call(twin), "rank 0", "abort")
        comm.Barrier()
        twin.Abort()
        while twin.streams.all:   # the interrupting thread ends them
            time.sleep(0.01)


def arrays(comm):
    import numpy
    n = comm.size
    for kind in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"):
        out = numpy.empty((2, 3), kind)
        comm.Allreduce(numpy.full((2, 3), comm.rank + 1, kind), out)
        assert (out == n * (n + 1) // 2).all(), kind
    out = numpy.empty(2, "complex128")
    comm.Allreduce(numpy.full(2, 1 + 2j), out)
    assert (out == n * (1 + 2j)).all()
    raises(ValueError, lambda: comm.Bcast(numpy.zeros((4, 4))[:, 1]), "contiguous")
    raises(TypeError, lambda: comm.Allreduce(out, out, op=tutti.PROD), "complex", "SUM")
    raises(TypeError, lambda: comm.Allreduce(out, numpy.empty(4, "float64")), "complex", "float64")
    raises(TypeError, lambda: comm.Bcast(numpy.array([{}], object)), "pickle")
    raises(TypeError, lambda: comm.Bcast(numpy.zeros(2, [("number", "f4"), ("it", "O")])), "pickle")
    raises(TypeError, lambda: comm.Allreduce(numpy.zeros(2, ">f4"), numpy.zeros(2, ">f4")), "'>f'")
    raises(ValueError, lambda: comm.Bcast(numpy.frombuffer(bytes(8)), root=1 - comm.rank), "read-only")
    dates = numpy.full(2, comm.rank, "M8[s]")
    comm.Bcast(dates, root=1)
    assert (dates == numpy.full(2, 1, "M8[s]")).all()
    comm.Allreduce([numpy.ones(4), numpy.int64(2)], numpy.zeros(2))
    comm.Allreduce(numpy.empty((0, 3)), numpy.empty((0, 3)))


class OnlyInterface:
    def __init__(self, data):
        self.data = data
        address = (ctypes.c_char * 1).from_buffer(data)
        self.__array_interface__ = {"version": 3, "shape": (len(data),), "typestr": "<f4",
                                    "data": (ctypes.addressof(address), False)}


def interfaces(comm):
    out = array.array("f", [0, 0])
    comm.Allreduce(OnlyInterface(array.array("f", [1, 2])), OnlyInterface(out))
    assert list(out) == [comm.size, 2 * comm.size]
    halves = bytearray(2)   # bfloat16 1.0 is 0x3f80
    comm.Allreduce([bytes([0x80, 0x3f]), tutti.BFLOAT16], [halves, tutti.BFLOAT16])
    assert halves[1] << 8 | halves[0] == {2: 0x4000, 3: 0x4040, 4: 0x4080}[comm.size]


# ---- the test ----------------------------------------------------------------------------------------------------------


def test():
    claims = jobs.Claims()
    jobs.run(claims, "every collective has mpi4py's meaning", "collectives", 3)
    jobs.run(claims, "every collective over tcp", "collectives", 2, TUTTI_TRANSPORT="tcp")
    jobs.run(claims, "counts of uneven collectives may be zero", "uneven", 4)
    jobs.run(claims, "an uneven collective finds a count that differs, even 0", "differing", 2)
    jobs.run(claims, "requests wait for their call alone, and are futures", "requests", 2)
    jobs.run(claims, "a request is complete when its error is known", "errors", 2)
    jobs.run(claims, "messages have tags and any source", "messages", 3)
    jobs.run(claims, "communicators split, and are context managers", "splits", 4)
    jobs.run(claims, "a communicator is made by id and by store", "identities", 3)
    jobs.run(claims, "__array_interface__ and bfloat16", "interfaces", 2)
    jobs.run(claims, "wrong arguments, and calls in a forked child, are errors that name them", "mistakes", 2)
    jobs.run(claims, "a dropped request keeps the memory of its call", "dropped", 2)
    jobs.run(claims, "an exception that nobody catches ends a rank at once", "uncaught", 2, raising=1, TUTTI_TIMEOUT_MS="280000")
    jobs.run(claims, "a mismatched call raises the library's sentence", "mismatch", 2)
    jobs.run(claims, "a killed rank raises with its number, and the others go on", "killed", 3, killed=1)
    jobs.run(claims, "Ctrl-C ends a call with KeyboardInterrupt, and aborts its communicator", "interrupted", 3,
             TUTTI_TIMEOUT_MS="280000")
    try:
        import numpy   # noqa: F401
    except ImportError:
        claims.skip("numpy's arrays", "no numpy")
    else:
        jobs.run(claims, "numpy's arrays", "arrays", 2)
    claims.end()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](tutti.COMM_WORLD)
    else:
        test()
