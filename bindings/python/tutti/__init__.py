"""Tutti - collective communication between processes, on the memory of Python objects

    import tutti
    comm = tutti.COMM_WORLD                      # of torchrun, mpirun, mpiexec, srun, or of TUTTI_ variables
    comm.Allreduce(a, b, op=tutti.SUM)           # a, b: numpy arrays, array.array, torch tensors on the CPU, ...
    request = comm.Iallreduce(a, b)              # a request, and a future: request.future(), await request

Calls have mpi4py's upper-case names and arguments. A failed call raises a subclass of tutti.Error: its text is the
library's sentence, .rank this rank, .dead the dead ranks.
"""

from .communicator import ALIVE, ANY_SOURCE, ANY_TAG, DEAD, IN_PLACE, LEFT, Communicator, Contributions, Status, unique_id
from .datatypes import Datatype, Op
from .library import (CudaError, Error, InternalError, InvalidArgument, InvalidUsage, RemoteError, SystemError,
                      TimeoutError, lib)
from .request import Request, Waitall

SUM, PROD, MAX, MIN, AVG, BAND, BOR, BXOR = Op
INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8E4M3, FLOAT8E5M2 = Datatype

__version__ = f"{lib.version // 10000}.{lib.version // 100 % 100}.{lib.version % 100}"


def __getattr__(name):
    """COMM_WORLD joins at its first use, and is freed when the interpreter ends: aborted after an exception that nobody
    caught, since calls that run may wait for ranks that wait for this one."""
    if name != "COMM_WORLD":
        raise AttributeError(f"module 'tutti' has no attribute {name!r}")
    import atexit
    import sys
    comm = globals()["COMM_WORLD"] = Communicator.from_env(name="world")

    def leave():
        try:
            if getattr(sys, "last_value", None) is None:
                comm.Free()
            else:
                comm.Abort()
        except Error:   # the calls of the program have raised it
            pass
    atexit.register(leave)
    return comm
