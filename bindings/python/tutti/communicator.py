"""communicator.py - a communicator: mpi4py's upper-case calls on the memory of Python objects

Calls library.py, buffers.py, request.py. Every call releases the interpreter lock, so ranks may be threads.
"""

import contextlib
import ctypes
import re

from . import interrupt, library
from .arguments import config_of, count_of, named, need, number_of, of_root, same_size, same_type, table_of
from .buffers import Buffer, buffer_of
from .datatypes import Datatype, Op
from .library import ERRORS, IN_PROGRESS, Error, Message, Quorum, RemoteError, TimeoutError, check, error_of, lib
from .request import Request, Streams

ANY_SOURCE = ANY_TAG = -1
ALIVE, LEFT, DEAD = 0, 1, 2


class InPlace:
    def __repr__(self):
        return "tutti.IN_PLACE"


IN_PLACE = InPlace()


class Status:
    """The sender, tag, version and length of a received message."""

    def __init__(self):
        self.source = self.tag = -1
        self.version = self.bytes = 0

    def fill(self, message):
        self.source, self.tag = message.source, message.tag
        self.version, self.bytes = message.version, message.bytes

    def Get_source(self):
        return self.source

    def Get_tag(self):
        return self.tag

    def Get_count(self, datatype=Datatype.UINT8):
        return self.bytes // datatype.itemsize


def unique_id():
    """bytes that rank 0 makes and passes to every rank over a private channel: they carry the secret."""
    made = library.UniqueId()
    check(lib.GetUniqueId(ctypes.byref(made)))
    return bytes(made)


def optional(spec, writable=False):
    return Buffer(None, 0, None, None) if spec is None else buffer_of(spec, writable)


class Communicator:
    """Made by from_env, from_id, from_store, Split and Shrink. Use it as a context manager, or call Free()."""

    def __init__(self, handle):
        self.handle, self.streams, self.aborted = handle, Streams(), None
        interrupt.start()
        number = ctypes.c_int()
        check(lib.CommUserRank(handle, ctypes.byref(number)))
        self.rank = number.value
        check(lib.CommCount(handle, ctypes.byref(number)))
        self.size = number.value

    # ---- life ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_env(cls, **options):
        """Join the job of the launcher: torchrun, mpirun, mpiexec, srun, Kubernetes, or TUTTI_ variables; alone without."""
        return cls.joined(lib.CommInitEnv, (), options)

    @classmethod
    def from_id(cls, nranks, identity, rank, **options):
        """Join as rank `rank` of nranks, with the bytes of unique_id()."""
        if len(identity) != library.UNIQUE_ID_BYTES:
            raise ValueError(f"an id has {library.UNIQUE_ID_BYTES} bytes, not {len(identity)}")
        identity = library.UniqueId.from_buffer_copy(identity)
        return cls.joined(lib.CommInitRankConfig, (number_of(nranks, "nranks"), identity, number_of(rank, "rank")), options)

    @classmethod
    def from_store(cls, rank, nranks, key, put, get, **options):
        """Join through a private key-value store: put(key, text), and get(key, timeout in seconds), which waits."""
        failures = []

        def guarded(work):
            try:
                work()
                return 0
            except BaseException as error:
                failures.append(error)
                return 1

        def got(_, name, value, nbytes, timeout_ms):
            def work():
                text = get(name.decode(), timeout_ms / 1000)
                text = text.encode() if isinstance(text, str) else bytes(text)
                if len(text) + 1 > nbytes:
                    raise ValueError(f"the value of {name.decode()} has {len(text)} bytes, more than {nbytes - 1}")
                ctypes.memmove(value, text + b"\0", len(text) + 1)
            return guarded(work)

        store = library.Store(
            ctypes.sizeof(library.Store), number_of(rank, "rank"), number_of(nranks, "nranks"), key.encode(), None,
            library.STORE_PUT(lambda _, name, value: guarded(lambda: put(name.decode(), value.decode()))),
            library.STORE_GET(got))
        try:
            return cls.joined(lambda handle, config: lib.CommInitStore(handle, ctypes.byref(store), config), (), options)
        except Error as error:
            raise error from (failures[0] if failures else None)

    @classmethod
    def joined(cls, call, arguments, options):
        handle = ctypes.c_void_p()
        check(call(ctypes.byref(handle), *arguments, ctypes.byref(config_of(options))))
        return cls(handle)

    def Split(self, color=0, key=0, **options):
        """The communicator of the ranks with this color, ordered by key; None for color None."""
        handle, config = ctypes.c_void_p(), config_of(options)
        self.check(lib.CommSplit(self.handle, -1 if color is None else number_of(color, "color"), number_of(key, "key"),
                                 ctypes.byref(handle), ctypes.byref(config) if options else None))
        return Communicator(handle) if handle else None

    def Dup(self, **options):
        return self.Split(0, self.rank, **options)

    def Shrink(self, exclude=(), abort=False, **options):
        """The communicator of the surviving ranks; with a list, of the ranks outside it."""
        handle, config, exclude = ctypes.c_void_p(), config_of(options), table_of(exclude, "exclude", number_of)
        ranks = (ctypes.c_int * max(len(exclude), 1))(*exclude)
        self.check(lib.CommShrink(self.handle, ranks, len(exclude), ctypes.byref(handle),
                                  ctypes.byref(config) if options else None, int(abort)))
        return Communicator(handle)

    def Free(self):
        """Wait for every call, say goodbye to the other ranks, free."""
        if self.handle:
            handle, self.handle = self.handle, None
            self.streams.destroy()
            code = lib.CommDestroy(handle)
            if code:
                raise error_of(code, self.rank)

    def Abort(self, reason=None):
        """Fail every running call on all ranks, then free. reason: of the error of later calls"""
        if self.handle:
            handle, self.handle, self.aborted = self.handle, None, reason
            lib.CommAbort(handle)
            self.streams.destroy()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.Free()
        else:
            self.Abort()

    # ---- state ---------------------------------------------------------------------------------------------------

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    @named
    def rank_state(self, rank):
        """ALIVE, LEFT or DEAD."""
        state = ctypes.c_int()
        self.check(lib.CommRankState(self.handle, number_of(rank, "rank"), ctypes.byref(state)))
        return state.value

    def dead(self):
        return [rank for rank in range(self.size) if self.rank_state(rank) == DEAD]

    @named
    def describe(self, collective, count, datatype=Datatype.FLOAT32):
        """The algorithm, transport and tile size of a call, in a line."""
        text = ctypes.create_string_buffer(256)
        self.check(lib.CommDescribe(self.handle, collective.encode(), count_of(count, "count"), datatype, text, len(text)))
        return text.value.decode()

    def counters(self):
        counters = library.Counters(ctypes.sizeof(library.Counters))
        self.check(lib.CommGetCounters(self.handle, ctypes.byref(counters)))
        return {name: getattr(counters, name) for name, _ in counters._fields_[1:]}

    def explain(self, error):
        """The error of the library with this rank and the dead ranks: the sentence may be earlier than a rank's state."""
        dead = {int(rank) for rank in re.findall(r"rank (\d+) died", str(error))}
        if self.handle and isinstance(error, RemoteError):
            dead.update(self.dead())
        return type(error)(str(error), self.rank, sorted(dead))

    def check(self, code):
        if code:
            if not self.handle:
                what = f"aborted: {self.aborted}" if self.aborted else "freed; free it after its last call"
                raise ERRORS[4](f"rank {self.rank}: the communicator was {what}", self.rank)
            raise self.explain(error_of(code))

    # ---- collectives ---------------------------------------------------------------------------------------------
    # Each is written once, as a function of a stream: None waits, a stream makes the I-call.

    def start(self, call, *arguments):
        """call(stream, *arguments) on a stream; it returns the buffers to keep."""
        stream = self.streams.take()
        try:
            keep = call(stream.handle, *arguments)
        except BaseException:
            self.streams.give(stream)
            raise
        return Request(self, stream, keep)

    def _allreduce(self, stream, sendbuf, recvbuf, op):
        receive = buffer_of(recvbuf, True)
        send = receive if sendbuf is IN_PLACE else same_type(buffer_of(sendbuf), receive)
        need(receive, send.count, "recvbuf")
        self.check(lib.AllReduce(send.address, receive.address, send.count, receive.reduced(op), op, self.handle, stream))
        return send, receive

    def _reduce(self, stream, sendbuf, recvbuf, op, root):
        at_root = self.rank == number_of(root, "root")
        receive = of_root(recvbuf) if at_root else Buffer(None, 0, None, None)
        if sendbuf is IN_PLACE:
            send = receive if at_root else buffer_of(recvbuf)
        else:
            send = buffer_of(sendbuf)
        if at_root:
            same_type(send, receive)
            need(receive, send.count, "recvbuf")
        self.check(lib.Reduce(send.address, receive.address, send.count, send.reduced(op), op, root, self.handle, stream))
        return send, receive

    def _bcast(self, stream, buf, root):
        data = buffer_of(buf, self.rank != number_of(root, "root"))
        self.check(lib.Bcast(data.address, data.count, data.moved, root, self.handle, stream))
        return data

    def _allgather(self, stream, sendbuf, recvbuf):
        receive = buffer_of(recvbuf, True)
        if sendbuf is IN_PLACE:
            count = receive.count // self.size
            send, address = receive, receive.address + self.rank * count * receive.itemsize
        else:
            send = same_size(buffer_of(sendbuf), receive)
            count, address = send.count, send.address
        need(receive, count * self.size, "recvbuf")
        self.check(lib.AllGather(address, receive.address, count, send.moved, self.handle, stream))
        return send, receive

    def _reduce_scatter_block(self, stream, sendbuf, recvbuf, op):
        receive = buffer_of(recvbuf, True)
        if sendbuf is IN_PLACE:
            raise ValueError("Reduce_scatter_block takes no IN_PLACE: pass part `rank` of sendbuf as recvbuf")
        send = same_type(buffer_of(sendbuf), receive)
        need(send, receive.count * self.size, "sendbuf")
        self.check(lib.ReduceScatter(send.address, receive.address, receive.count, send.reduced(op), op, self.handle, stream))
        return send, receive

    def _alltoall(self, stream, sendbuf, recvbuf):
        receive = buffer_of(recvbuf, True)
        send = receive if sendbuf is IN_PLACE else same_size(buffer_of(sendbuf), receive)
        need(receive, send.count, "recvbuf")
        if send.count % self.size:
            raise ValueError(f"sendbuf has {send.count} elements, no multiple of {self.size} ranks")
        self.check(lib.AlltoAll(send.address, receive.address, send.count // self.size, send.moved, self.handle, stream))
        return send, receive

    def _gather(self, stream, sendbuf, recvbuf, root):
        at_root = self.rank == number_of(root, "root")
        receive = of_root(recvbuf) if at_root else Buffer(None, 0, None, None)
        if at_root and sendbuf is IN_PLACE:
            count = receive.count // self.size
            send, address = receive, receive.address + root * count * receive.itemsize
        else:
            send = buffer_of(sendbuf)
            count, address = send.count, send.address
        if at_root:
            same_size(send, receive)
            need(receive, count * self.size, "recvbuf")
        self.check(lib.Gather(address, receive.address, count, send.moved, root, self.handle, stream))
        return send, receive

    def _scatter(self, stream, sendbuf, recvbuf, root):
        at_root = self.rank == number_of(root, "root")
        send = buffer_of(sendbuf) if at_root else Buffer(None, 0, None, None)
        if at_root and recvbuf is IN_PLACE:
            count = send.count // self.size
            receive, address = send, send.address + root * count * send.itemsize
        else:
            receive = buffer_of(recvbuf, True)
            count, address = receive.count, receive.address
        if at_root:
            need(same_size(send, receive), count * self.size, "sendbuf")
        self.check(lib.Scatter(send.address, address, count, receive.moved, root, self.handle, stream))
        return send, receive

    def Allreduce(self, sendbuf, recvbuf, op=Op.SUM):
        self._allreduce(None, sendbuf, recvbuf, op)

    def Iallreduce(self, sendbuf, recvbuf, op=Op.SUM):
        return self.start(self._allreduce, sendbuf, recvbuf, op)

    def Reduce(self, sendbuf, recvbuf, op=Op.SUM, root=0):
        self._reduce(None, sendbuf, recvbuf, op, root)

    def Ireduce(self, sendbuf, recvbuf, op=Op.SUM, root=0):
        return self.start(self._reduce, sendbuf, recvbuf, op, root)

    def Bcast(self, buf, root=0):
        self._bcast(None, buf, root)

    def Ibcast(self, buf, root=0):
        return self.start(self._bcast, buf, root)

    def Allgather(self, sendbuf, recvbuf):
        self._allgather(None, sendbuf, recvbuf)

    def Iallgather(self, sendbuf, recvbuf):
        return self.start(self._allgather, sendbuf, recvbuf)

    def Reduce_scatter_block(self, sendbuf, recvbuf, op=Op.SUM):
        self._reduce_scatter_block(None, sendbuf, recvbuf, op)

    def Ireduce_scatter_block(self, sendbuf, recvbuf, op=Op.SUM):
        return self.start(self._reduce_scatter_block, sendbuf, recvbuf, op)

    def Alltoall(self, sendbuf, recvbuf):
        self._alltoall(None, sendbuf, recvbuf)

    def Ialltoall(self, sendbuf, recvbuf):
        return self.start(self._alltoall, sendbuf, recvbuf)

    def Gather(self, sendbuf, recvbuf, root=0):
        self._gather(None, sendbuf, recvbuf, root)

    def Igather(self, sendbuf, recvbuf, root=0):
        return self.start(self._gather, sendbuf, recvbuf, root)

    def Scatter(self, sendbuf, recvbuf, root=0):
        self._scatter(None, sendbuf, recvbuf, root)

    def Iscatter(self, sendbuf, recvbuf, root=0):
        return self.start(self._scatter, sendbuf, recvbuf, root)

    def Barrier(self):
        self.check(lib.Barrier(self.handle, None))

    def Ibarrier(self):
        return self.start(lambda stream: self.check(lib.Barrier(self.handle, stream)))

    # ---- groups ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def group(self):
        """Calls inside run together at the end: sends and receives concurrently."""
        check(lib.GroupStart())
        try:
            yield
        except BaseException:
            lib.GroupEnd()
            raise
        self.check(lib.GroupEnd())

    def exchange(self, sends, receives, datatype):
        """sends and receives: (address, count, peer); pairs of 0 elements do not call."""
        with self.group():
            for address, count, peer in sends:
                if count:
                    check(lib.Send(address, count, datatype, peer, self.handle, None))
            for address, count, peer in receives:
                if count:
                    check(lib.Recv(address, count, datatype, peer, self.handle, None))

    # ---- uneven collectives ------------------------------------------------------------------------------------------
    # A v-buffer is [object, counts] or [object, counts, displacements], in elements.

    def parts(self, spec, writable, name):
        """The Buffer of a v-buffer, and the tables of counts and displacements."""
        if not isinstance(spec, (list, tuple)) or len(spec) not in (2, 3):
            raise TypeError(f"{name} is {type(spec).__name__}; pass [object, counts] or [object, counts, displacements]")
        data = buffer_of(spec[0], writable)
        counts = table_of(spec[1], f"{name}'s counts")
        given = spec[2] if len(spec) > 2 else None
        places = [sum(counts[:i]) for i in range(len(counts))] if given is None else \
            table_of(given, f"{name}'s displacements")
        for table, what in (counts, "counts"), (places, "displacements"):
            if len(table) != self.size:
                raise ValueError(f"{name} has {what} {table}; {self.size} ranks need as many")
        need(data, max((at + n for at, n in zip(places, counts) if n), default=0), name)
        table = ctypes.c_size_t * self.size
        return data, table(*counts), table(*places)

    def part(self, data, counts, places):
        """Address and count of this rank's part."""
        return (data.address or 0) + places[self.rank] * data.itemsize, counts[self.rank]

    def Allgatherv(self, sendbuf, recvbuf):
        receive, counts, places = self.parts(recvbuf, True, "recvbuf")
        if sendbuf is IN_PLACE:
            address, count = self.part(receive, counts, places)
        else:
            send = same_size(buffer_of(sendbuf), receive)
            address, count = send.address, send.count
        self.check(lib.AllGatherv(address, count, receive.address, counts, places, receive.moved, self.handle, None))

    def Alltoallv(self, sendbuf, recvbuf):
        send, *sends = self.parts(sendbuf, False, "sendbuf")
        receive, *receives = self.parts(recvbuf, True, "recvbuf")
        same_size(send, receive)
        self.check(lib.AlltoAllv(send.address, *sends, receive.address, *receives, send.moved, self.handle, None))

    def Gatherv(self, sendbuf, recvbuf, root=0):
        at_root = self.rank == number_of(root, "root")
        receive, *tables = self.parts(recvbuf, True, "recvbuf") if at_root else (optional(None), None, None)
        if at_root and sendbuf is IN_PLACE:
            send, (address, count) = receive, self.part(receive, *tables)
        else:
            send = buffer_of(sendbuf)
            address, count = send.address, send.count
        if at_root:
            same_size(send, receive)
        self.check(lib.Gatherv(address, count, receive.address, *tables, send.moved, root, self.handle, None))

    def Scatterv(self, sendbuf, recvbuf, root=0):
        at_root = self.rank == number_of(root, "root")
        send, *tables = self.parts(sendbuf, False, "sendbuf") if at_root else (optional(None), None, None)
        if at_root and recvbuf is IN_PLACE:
            receive, (address, count) = send, self.part(send, *tables)
        else:
            receive = buffer_of(recvbuf, True)
            address, count = receive.address, receive.count
        if at_root:
            same_size(send, receive)
        self.check(lib.Scatterv(send.address, *tables, address, count, receive.moved, root, self.handle, None))

    def Reduce_scatter(self, sendbuf, recvbuf, recvcounts=None, op=Op.SUM):
        """Part r of sendbuf, of recvcounts[r] elements, is reduced to rank r."""
        if recvcounts is None:
            return self.Reduce_scatter_block(sendbuf, recvbuf, op)
        receive = buffer_of(recvbuf, True)
        send, counts, _ = self.parts([sendbuf, recvcounts], False, "sendbuf")
        same_type(send, receive)
        need(receive, counts[self.rank], "recvbuf")
        self.check(lib.ReduceScatterv(send.address, receive.address, counts, send.reduced(op), op, self.handle, None))

    # ---- messages: any rank to any rank, with a tag, independent of the collectives ---------------------------------

    def Send(self, buf, dest, tag=0, version=0):
        data = buffer_of(buf)
        self.check(lib.MsgSend(data.address, data.bytes, number_of(dest, "dest"), number_of(tag, "tag"),
                               number_of(version, "version", 64), self.handle))

    def receive(self, call, arguments, source, tag, timeout_ms, status):
        message = Message()
        code = call(*arguments, number_of(source, "source"), number_of(tag, "tag"), number_of(timeout_ms, "timeout_ms"),
                    self.handle, ctypes.byref(message))
        if code == IN_PROGRESS:
            text = f"rank {self.rank}: no message from rank {'any' if source < 0 else source} with tag " \
                   f"{'any' if tag < 0 else tag} came within {'the timeout' if timeout_ms < 0 else f'{timeout_ms} ms'}"
            raise TimeoutError(text, self.rank)
        self.check(code)
        if status is not None:
            status.fill(message)

    def Recv(self, buf, source=ANY_SOURCE, tag=ANY_TAG, status=None, timeout_ms=-1):
        """Receive the oldest message that matches; a larger message stays queued, and is an error."""
        data = buffer_of(buf, True)
        self.receive(lib.MsgRecv, (data.address, data.bytes), source, tag, timeout_ms, status)

    def Probe(self, source=ANY_SOURCE, tag=ANY_TAG, status=None, timeout_ms=-1):
        self.receive(lib.MsgProbe, (), source, tag, timeout_ms, status)

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=ANY_SOURCE, recvtag=ANY_TAG, status=None):
        """Up to 64 MiB: the send does not wait for the other rank's receive."""
        self.Send(sendbuf, dest, sendtag)
        self.Recv(recvbuf, source, recvtag, status)

    # ---- quorum ------------------------------------------------------------------------------------------------------

    def Allreduce_quorum(self, sendbuf, recvbuf, k, op=Op.SUM, deadline_ms=0, carry=None, every=False):
        """Combine the first k contributions (sendbuf None: contribute nothing). Returns a Contributions."""
        receive = buffer_of(recvbuf, True)
        send, late = optional(sendbuf), optional(carry, True)
        for spec, buffer, name in (sendbuf, send, "sendbuf"), (carry, late, "carry"):
            if spec is not None:
                need(same_type(buffer, receive), receive.count, name)
        quorum = Quorum(ctypes.sizeof(Quorum), late.address, int(every))
        self.check(lib.AllReduceQuorum(send.address, receive.address, receive.count, receive.reduced(op), op,
                                       number_of(k, "k"), number_of(deadline_ms, "deadline_ms"), self.handle, None,
                                       ctypes.byref(quorum)))
        return Contributions(quorum, self.size)


for name, method in list(vars(Communicator).items()):
    if name[0].isupper():
        setattr(Communicator, name, named(method))


class Contributions:
    """Whose contributions are in the result of a quorum allreduce. mine: "in", "late" or "none"."""

    def __init__(self, quorum, nranks):
        self.count, self.sequence, self.newest = quorum.count, quorum.sequence, quorum.newest
        self.mine = ("in", "late", "none")[quorum.mine]
        self.ranks = [rank for rank in range(nranks) if quorum.mask[rank // 64] >> rank % 64 & 1]
