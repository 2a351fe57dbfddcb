"""buffers.py - the memory of a Python object: address, number of elements, type

Called by communicator.py. Takes the buffer protocol (bytes, bytearray, array.array, memoryview, numpy),
__array_interface__ and DLPack (torch, jax and others on the CPU). The memory must be contiguous, as in mpi4py; nothing is
copied. A list [object, count], [object, type] or [object, count, type] overrides what the object says.
"""

import ctypes
import operator
import re

from .datatypes import BY_KIND, KIND_OF_DLPACK, KIND_OF_FORMAT, TYPE_OF_DLPACK, Datatype, Op

SIMPLE, WRITABLE, FORMAT, C_CONTIGUOUS = 0, 1, 4, 0x38


class PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


get_buffer = ctypes.pythonapi.PyObject_GetBuffer
get_buffer.argtypes, get_buffer.restype = [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int], ctypes.c_int
release_buffer = ctypes.pythonapi.PyBuffer_Release
release_buffer.argtypes, release_buffer.restype = [ctypes.POINTER(PyBuffer)], None
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.argtypes, capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Buffer:
    """address, bytes, and type: None where Tutti has none, such as int16; such items move, but do not reduce.
    kind: "c" complex, "b" bool; spelling: what the object calls its items"""

    __slots__ = ("address", "bytes", "type", "kind", "spelling", "keep", "view")

    def __init__(self, address, nbytes, datatype, keep, kind=None, spelling=""):
        self.address, self.bytes, self.type, self.kind, self.spelling = address, nbytes, datatype, kind, spelling
        self.keep, self.view = keep, None

    def __del__(self):
        if self.view is not None:
            release_buffer(ctypes.byref(self.view))

    @property
    def itemsize(self):
        return self.type.itemsize if self.type is not None else 1

    @property
    def count(self):
        return self.bytes // self.itemsize

    @property
    def moved(self):
        """The type of calls that only move: bytes if there is no other."""
        return Datatype.UINT8 if self.type is None else self.type

    @property
    def name(self):
        return f"format {self.spelling!r}" if self.type is None else \
            {"c": "complex", "b": "bool"}.get(self.kind) or self.type.name.lower()

    def reduced(self, op):
        """The type of a call that combines the items by op."""
        if not isinstance(op, int) or isinstance(op, Datatype) or op not in OPS:
            raise TypeError(f"op is {op!r}, not one of {', '.join('tutti.' + known.name for known in Op)}")
        if self.type is None:
            raise TypeError(f"Tutti cannot reduce items of {self.name}: its types are int8, int32, int64, their unsigned "
                            "forms, float16, bfloat16, float32, float64, complex and two of float8, in the host's byte order; "
                            "convert the array")
        if op not in OPS_OF_KIND.get(self.kind, OPS):
            raise TypeError(f"{self.name} items have no {Op(op).name}, but "
                            f"{', '.join(known.name for known in OPS_OF_KIND[self.kind])}")
        return self.type


OPS = frozenset(Op)
OPS_OF_KIND = {"c": (Op.SUM, Op.AVG), "b": (Op.PROD, Op.MAX, Op.MIN, Op.BAND, Op.BOR, Op.BXOR)}


def refuse_objects(format):
    """Objects of Python are addresses of this process."""
    if "O" in re.sub(":[^:]*:", "", format):   # without the names of fields
        raise TypeError("an array of Python objects cannot move to another process: pickle it into bytes first")


def of_protocol(obj, writable):
    view = PyBuffer()
    get_buffer(obj, ctypes.byref(view), FORMAT | C_CONTIGUOUS | (WRITABLE if writable else SIMPLE))
    buffer = Buffer(view.buf, view.len, None, obj)
    buffer.view = view
    buffer.spelling = (view.format or b"B").decode()
    characters = buffer.spelling.lstrip("@=<" if view.itemsize > 1 else "@=<>!")
    buffer.kind = {"Zf": "c", "Zd": "c"}.get(characters) or KIND_OF_FORMAT.get(characters)
    buffer.type = BY_KIND.get((buffer.kind, view.itemsize))
    refuse_objects(characters)
    return buffer


def product(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def contiguous(shape, strides):
    """Strides in units of an item."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def of_array_interface(obj, writable):
    about = obj.__array_interface__
    address, readonly = about["data"]
    order, kind = about["typestr"][:2]
    refuse_objects(kind + "".join(str(field[1]) for field in about.get("descr", ()) if kind == "V"))
    itemsize = int(re.match("[0-9]*", about["typestr"][2:]).group())   # a date has its unit behind
    shape, strides = about["shape"], about.get("strides")
    if strides and not contiguous(shape, [stride / itemsize for stride in strides]):
        raise ValueError(f"the array of shape {shape} has strides {strides}, so it is not contiguous; pass a contiguous copy")
    if writable and readonly:
        raise ValueError(f"the array of shape {shape} is read-only; pass a copy, which is writable")
    datatype = BY_KIND.get((kind, itemsize)) if order != ">" else None
    return Buffer(address, product(shape) * itemsize, datatype, obj, kind, about["typestr"])


def of_dlpack(obj, writable):
    device = int(obj.__dlpack_device__()[0])
    if device != 1:
        raise ValueError(f"{type(obj).__name__} is on a device (DLPack device type {device}); pass a copy in host memory")
    capsule = obj.__dlpack__()
    tensor = DlTensor.from_address(capsule_pointer(capsule, b"dltensor"))
    shape = tensor.shape[:tensor.ndim]
    if tensor.strides and not contiguous(shape, tensor.strides[:tensor.ndim]):
        raise ValueError(f"the tensor of shape {tuple(shape)} has strides {tuple(tensor.strides[:tensor.ndim])}, so it is not "
                         "contiguous; pass its contiguous()")
    itemsize = tensor.bits * tensor.lanes // 8
    kind = KIND_OF_DLPACK.get(tensor.code)
    datatype = TYPE_OF_DLPACK.get((tensor.code, tensor.bits)) or BY_KIND.get((kind, itemsize))
    return Buffer((tensor.data or 0) + tensor.byte_offset, product(shape) * itemsize, datatype, (obj, capsule), kind,
                  f"DLPack {tensor.code}, {tensor.bits} bits")


def buffer_of(spec, writable=False):
    """The Buffer of an object or of a list [object, count, type]; raises TypeError or ValueError, which name the cause."""
    if isinstance(spec, (list, tuple)):
        return with_overrides(spec, writable)
    try:
        return of_protocol(spec, writable)
    except TypeError:
        pass
    except (BufferError, ValueError) as why:   # numpy refuses types of others, such as bfloat16, with ValueError
        if not hasattr(spec, "__array_interface__"):
            remedy = "; pass a bytearray or an array, which is writable" if "writable" in str(why) else ""
            raise ValueError(f"{type(spec).__name__}: {str(why).rstrip('.')}{remedy}") from None
    if hasattr(spec, "__array_interface__"):
        return of_array_interface(spec, writable)
    if hasattr(spec, "__dlpack__"):
        return of_dlpack(spec, writable)
    if hasattr(spec, "__cuda_array_interface__"):
        raise ValueError(f"{type(spec).__name__} is on a GPU (__cuda_array_interface__); pass a copy in host memory")
    raise TypeError(f"{type(spec).__name__} has no memory that Tutti can use: neither the buffer protocol, nor "
                    "__array_interface__, nor DLPack; pass an array")


def with_overrides(spec, writable):
    if not spec or isinstance(spec[0], (int, float, complex)):
        raise TypeError("a list is [object, count, type], where the object has memory; numbers go into a numpy array or an "
                        "array.array")
    buffer = buffer_of(spec[0], writable)
    for item in spec[1:]:
        if isinstance(item, Datatype):
            buffer.type, buffer.kind = item, None
    for item in spec[1:]:
        if isinstance(item, Datatype) or item is None:
            continue
        try:
            count = operator.index(item)
        except TypeError:
            raise TypeError(f"a buffer is [object, count, type], not [object, {type(item).__name__}]") from None
        if count < 0 or count * buffer.itemsize > buffer.bytes:
            raise ValueError(f"{count} elements of {buffer.itemsize} bytes do not fit into {buffer.bytes} bytes")
        buffer.bytes = count * buffer.itemsize
    return buffer
