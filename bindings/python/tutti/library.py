"""library.py - libtutti.so by ctypes: finds it, declares its calls, turns result codes into exceptions

Called by every other module. ctypes needs no compiler and no Python headers, so one wheel fits every Python 3,
and it releases the interpreter lock during a call. The declarations repeat tutti.h.
"""

import builtins
import ctypes
import os

c_int, c_size, c_void, c_text = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
IN_PROGRESS = 7
VERSION_CODE = 100
UNIQUE_ID_BYTES = 128
QUORUM_RANKS = 1024


class Error(RuntimeError):
    """A failed call: str(error) is the library's sentence, code its result code, rank this rank (None: no communicator),
    dead the ranks known to be dead."""

    code = 0

    def __init__(self, text, rank=None, dead=()):
        super().__init__(text)
        self.rank = rank
        self.dead = tuple(dead)


class CudaError(Error):
    code = 1


class SystemError(Error):
    code = 2


class InternalError(Error):
    code = 3


class InvalidArgument(Error, ValueError):
    code = 4


class InvalidUsage(Error):
    code = 5


class RemoteError(Error):
    code = 6


class TimeoutError(Error, builtins.TimeoutError):
    code = 8


ERRORS = {kind.code: kind for kind in Error.__subclasses__()}


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * UNIQUE_ID_BYTES)]


class Config(ctypes.Structure):
    _fields_ = [("size", c_size), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("timeout_ms", c_int),
                ("transport", c_text), ("algo", c_text), ("name", c_text)]

    def __init__(self, timeout_ms=0, transport=None, algo=None, name=None):
        encoded = [None if text is None else os.fsencode(text) for text in (transport, algo, name)]
        super().__init__(ctypes.sizeof(Config), 0x54555454, VERSION_CODE, timeout_ms, *encoded)


STORE_PUT = ctypes.CFUNCTYPE(c_int, c_void, c_text, c_text)
STORE_GET = ctypes.CFUNCTYPE(c_int, c_void, c_text, c_void, c_size, c_int)
STORE_FENCE = ctypes.CFUNCTYPE(c_int, c_void, c_int)
STORE_ABORT = ctypes.CFUNCTYPE(None, c_void, c_text)
REDUCTION = ctypes.CFUNCTYPE(None, c_void, c_void, c_size, c_void)


class Store(ctypes.Structure):
    _fields_ = [("size", c_size), ("rank", c_int), ("nranks", c_int), ("key", c_text), ("ctx", c_void),
                ("put", STORE_PUT), ("get", STORE_GET), ("fence", STORE_FENCE), ("abort", STORE_ABORT)]


class Message(ctypes.Structure):
    _fields_ = [("source", c_int), ("tag", c_int), ("version", ctypes.c_uint64), ("bytes", c_size)]


class Quorum(ctypes.Structure):
    _fields_ = [("size", c_size), ("carry", c_void), ("every", c_int), ("count", c_int), ("mine", c_int),
                ("sequence", ctypes.c_uint64), ("newest", ctypes.c_uint64),
                ("mask", ctypes.c_uint64 * (QUORUM_RANKS // 64))]


class Counters(ctypes.Structure):
    _fields_ = [("size", c_size)] + [(name, ctypes.c_uint64) for name in (
        "operations", "sent_bytes", "sent_bytes_shm", "sent_bytes_tcp", "messages", "sleeps", "allocations",
        "memory_bytes", "read_bytes", "sent_bytes_verbs")]


COMM = STREAM = c_void
OUT = ctypes.POINTER
# name: arguments; the result of each is a code
CALLS = {
    "GetVersion": [OUT(c_int)],
    "GetUniqueId": [OUT(UniqueId)],
    "CommInitRankConfig": [OUT(COMM), c_int, UniqueId, c_int, OUT(Config)],
    "CommInitEnv": [OUT(COMM), OUT(Config)],
    "CommInitStore": [OUT(COMM), OUT(Store), OUT(Config)],
    "CommSplit": [COMM, c_int, c_int, OUT(COMM), OUT(Config)],
    "CommShrink": [COMM, OUT(c_int), c_int, OUT(COMM), OUT(Config), c_int],
    "CommDestroy": [COMM],
    "CommAbort": [COMM],
    "CommGetAsyncError": [COMM, OUT(c_int)],
    "CommCount": [COMM, OUT(c_int)],
    "CommUserRank": [COMM, OUT(c_int)],
    "CommRankState": [COMM, c_int, OUT(c_int)],
    "CommGetCounters": [COMM, OUT(Counters)],
    "CommDescribe": [COMM, c_text, c_size, c_int, c_text, c_size],
    "AllReduce": [c_void, c_void, c_size, c_int, c_int, COMM, STREAM],
    "Reduce": [c_void, c_void, c_size, c_int, c_int, c_int, COMM, STREAM],
    "Bcast": [c_void, c_size, c_int, c_int, COMM, STREAM],
    "AllGather": [c_void, c_void, c_size, c_int, COMM, STREAM],
    "ReduceScatter": [c_void, c_void, c_size, c_int, c_int, COMM, STREAM],
    "AlltoAll": [c_void, c_void, c_size, c_int, COMM, STREAM],
    "Gather": [c_void, c_void, c_size, c_int, c_int, COMM, STREAM],
    "Scatter": [c_void, c_void, c_size, c_int, c_int, COMM, STREAM],
    "AllGatherv": [c_void, c_size, c_void, c_void, c_void, c_int, COMM, STREAM],
    "ReduceScatterv": [c_void, c_void, c_void, c_int, c_int, COMM, STREAM],
    "AlltoAllv": [c_void, c_void, c_void, c_void, c_void, c_void, c_int, COMM, STREAM],
    "Gatherv": [c_void, c_size, c_void, c_void, c_void, c_int, c_int, COMM, STREAM],
    "Scatterv": [c_void, c_void, c_void, c_void, c_size, c_int, c_int, COMM, STREAM],
    "RedOpCreate": [OUT(c_int), REDUCTION, c_void, c_size, COMM],
    "RedOpDestroy": [c_int, COMM],
    "Barrier": [COMM, STREAM],
    "Send": [c_void, c_size, c_int, c_int, COMM, STREAM],
    "Recv": [c_void, c_size, c_int, c_int, COMM, STREAM],
    "GroupStart": [],
    "GroupEnd": [],
    "MsgSend": [c_void, c_size, c_int, c_int, ctypes.c_uint64, COMM],
    "MsgRecv": [c_void, c_size, c_int, c_int, c_int, COMM, OUT(Message)],
    "MsgProbe": [c_int, c_int, c_int, COMM, OUT(Message)],
    "AllReduceQuorum": [c_void, c_void, c_size, c_int, c_int, c_int, c_int, COMM, STREAM, OUT(Quorum)],
    "StreamCreate": [OUT(STREAM)],
    "StreamSynchronize": [STREAM],
    "StreamQuery": [STREAM],
    "StreamDestroy": [STREAM],
}


def find():
    """Path or name of the library: TUTTI_LIBRARY, the wheel's own copy, the system's."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtutti.so.0")
    return os.environ.get("TUTTI_LIBRARY") or (own if os.path.exists(own) else "libtutti.so.0")


class Library:
    """lib.AllReduce(...) is tuttiAllReduce(...), which returns a code."""

    def __init__(self, path):
        try:
            self.handle = ctypes.CDLL(path)
        except OSError as why:
            raise ImportError(f"cannot load libtutti: {why}; install the wheel of this platform, or set TUTTI_LIBRARY "
                              "to the path of libtutti.so.0") from None
        for name, arguments in CALLS.items():
            call = getattr(self.handle, "tutti" + name, None)
            if not call:
                raise ImportError(f"{path} has no tutti{name}: it is another library, or another version; set TUTTI_LIBRARY "
                                  "to the libtutti.so.0 of this package's version, or unset it")
            call.argtypes, call.restype = arguments, c_int
            setattr(self, name, call)
        self.last_error = self.handle.tuttiGetLastError
        self.last_error.argtypes, self.last_error.restype = [COMM], c_text
        version = c_int()
        self.GetVersion(ctypes.byref(version))
        self.version = version.value


lib = Library(find())


def error_of(code, rank=None, dead=()):
    """The exception of a code that this thread's last call returned."""
    text = lib.last_error(None).decode(errors="replace") or f"result code {code}"
    return ERRORS.get(code, Error)(text, rank, dead)


def check(code):
    if code:
        raise error_of(code)
