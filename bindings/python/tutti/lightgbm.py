"""lightgbm.py - LightGBM's data-parallel training over Tutti instead of its sockets

    import tutti.lightgbm
    with tutti.lightgbm.network() as settings:             # before the first Dataset
        lightgbm.train({**settings, "tree_learner": "data"}, lightgbm.Dataset(my_rows, my_labels))

LightGBM takes two functions of the program (LGBM_NetworkInitWithFunctions): a reduce-scatter with LightGBM's own sums,
and an allgather, both of blocks of bytes that differ in length. Contributions are added in rank order, so the model is the
same from run to run.
"""

import contextlib
import ctypes
import os

import tutti

from .datatypes import Datatype
from .library import REDUCTION, lib

BYTE = Datatype.UINT8
SIZE, MEMORY = ctypes.c_int32, ctypes.c_void_p
SIZES = ctypes.POINTER(SIZE)
REDUCER = ctypes.CFUNCTYPE(None, MEMORY, MEMORY, ctypes.c_int, SIZE)
REDUCE_SCATTER = ctypes.CFUNCTYPE(None, MEMORY, SIZE, ctypes.c_int, SIZES, SIZES, ctypes.c_int, MEMORY, SIZE,
                                  ctypes.POINTER(REDUCER))
ALLGATHER = ctypes.CFUNCTYPE(None, MEMORY, SIZE, SIZES, SIZES, ctypes.c_int, MEMORY, SIZE)


class Network:
    """The two functions of a rank. LightGBM cannot take an error from them, so the process ends with its sentence."""

    def __init__(self, comm):
        self.comm, self.sums = comm, {}
        self.reduce_scatter = REDUCE_SCATTER(self.guarded(self.sum_blocks))
        self.allgather = ALLGATHER(self.guarded(self.gather_blocks))

    def guarded(self, call):
        def run(*arguments):
            try:
                call(*arguments)
            except BaseException as error:
                os.write(2, f"tutti.lightgbm: {error}\n".encode())
                os._exit(1)
        return run

    def blocks(self, starts, lengths, nblocks):
        """The table of lengths. LightGBM's blocks are adjacent, in rank order."""
        lengths = lengths[:nblocks]
        if nblocks != self.comm.size or any(starts[r] != sum(lengths[:r]) for r in range(nblocks)):
            raise ValueError(f"rank {self.comm.rank}: {nblocks} blocks at {starts[:nblocks]} of {lengths} bytes, not one for "
                             f"each of {self.comm.size} ranks, adjacent")
        return lengths, (ctypes.c_size_t * nblocks)(*lengths)

    def sum_of(self, add, item):
        """The op that adds items of this many bytes by LightGBM's function."""
        key = MEMORY.from_buffer_copy(add).value, item
        if key not in self.sums:
            function = REDUCTION(lambda input, sums, count, _: add(input, sums, item, count * item))
            op = ctypes.c_int()
            self.comm.check(lib.RedOpCreate(ctypes.byref(op), function, None, item, self.comm.handle))
            self.sums[key] = op.value, function
        return self.sums[key][0]

    def sum_blocks(self, input, _, item, starts, lengths, nblocks, output, nbytes, reducer):
        """Block r of every rank goes to rank r, added in rank order."""
        _, table = self.blocks(starts, lengths, nblocks)
        self.comm.check(lib.ReduceScatterv(input, output, table, BYTE, self.sum_of(reducer[0], item), self.comm.handle, None))

    def gather_blocks(self, input, _, starts, lengths, nblocks, output, nbytes):
        lengths, table = self.blocks(starts, lengths, nblocks)
        self.comm.check(lib.AllGatherv(input, lengths[self.comm.rank], output, table, None, BYTE, self.comm.handle, None))

    def end(self):
        for op, _ in self.sums.values():
            lib.RedOpDestroy(op, self.comm.handle)


@contextlib.contextmanager
def network(comm=None):
    """Every Dataset and Booster inside trains together with the other ranks of comm. Yields parameters for train()."""
    from lightgbm.basic import _LIB, _safe_call
    comm = comm or tutti.COMM_WORLD
    functions = Network(comm)
    _safe_call(_LIB.LGBM_NetworkInitWithFunctions(ctypes.c_int(comm.size), ctypes.c_int(comm.rank),
                                                  functions.reduce_scatter, functions.allgather))
    try:
        yield {"num_machines": comm.size}
    finally:
        _safe_call(_LIB.LGBM_NetworkFree())
        functions.end()
