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
        self.comm, self.scratch = comm, ctypes.create_string_buffer(0)
        self.others = [rank for rank in range(comm.size) if rank != comm.rank]
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

    def sum_blocks(self, input, _, item, starts, lengths, nblocks, output, nbytes, reducer):
        """Block r of every rank goes to rank r, which adds them in rank order."""
        me, add = self.comm.rank, reducer[0]
        mine = lengths[me]
        if len(self.scratch) < mine * nblocks:
            self.scratch = ctypes.create_string_buffer(mine * nblocks)
        parts = [ctypes.addressof(self.scratch) + rank * mine for rank in range(nblocks)]
        parts[me] = input + starts[me]
        self.comm.exchange([(input + starts[rank], lengths[rank], rank) for rank in self.others],
                           [(parts[rank], mine, rank) for rank in self.others], BYTE)
        ctypes.memmove(output, parts[0], mine)
        for part in parts[1:]:
            add(part, output, item, mine)

    def gather_blocks(self, input, _, starts, lengths, nblocks, output, nbytes):
        me = self.comm.rank
        ctypes.memmove(output + starts[me], input, lengths[me])
        self.comm.exchange([(output + starts[me], lengths[me], rank) for rank in self.others],
                           [(output + starts[rank], lengths[rank], rank) for rank in self.others], BYTE)


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
