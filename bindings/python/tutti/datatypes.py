"""datatypes.py - element types and operations, with the numbers of tutti.h; Python's names of the types

Called by buffers.py and by programs.
"""

import enum


class Op(enum.IntEnum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class Datatype(enum.IntEnum):
    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11

    @property
    def itemsize(self):
        return (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)[self]


# kind of __array_interface__ and item size -> type; an item of complex is two elements
BY_KIND = {
    ("i", 1): Datatype.INT8, ("u", 1): Datatype.UINT8, ("b", 1): Datatype.UINT8,
    ("i", 4): Datatype.INT32, ("u", 4): Datatype.UINT32,
    ("i", 8): Datatype.INT64, ("u", 8): Datatype.UINT64,
    ("f", 2): Datatype.FLOAT16, ("f", 4): Datatype.FLOAT32, ("f", 8): Datatype.FLOAT64,
    ("c", 8): Datatype.FLOAT32, ("c", 16): Datatype.FLOAT64,
}
# format character of the struct module -> kind
KIND_OF_FORMAT = {character: kind for kind, characters in
                  {"i": "bhilqn", "u": "cBHILQN", "b": "?", "f": "efd", "c": "FD"}.items() for character in characters}
# type code and bits of DLPack -> kind, or a type that no kind describes
KIND_OF_DLPACK = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
TYPE_OF_DLPACK = {(4, 16): Datatype.BFLOAT16, (10, 8): Datatype.FLOAT8E4M3, (12, 8): Datatype.FLOAT8E5M2}
