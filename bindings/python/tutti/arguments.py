"""arguments.py - checks of a call's arguments, before the rank takes part: integers, tables, sizes and types of buffers

Called by communicator.py. Each error names the value and the remedy; `named` adds the rank and the call.
"""

import functools
import operator

from .buffers import buffer_of
from .library import Config, Error

OPTIONS = "timeout_ms", "transport", "algo", "name"


def named(call):
    """The method `call` of a communicator; its errors of arguments begin with the rank and the name of the call."""
    @functools.wraps(call)
    def checked(self, *arguments, **keywords):
        try:
            return call(self, *arguments, **keywords)
        except (TypeError, ValueError) as why:
            if isinstance(why, Error) or str(why).startswith("rank "):
                raise
            kind = TypeError if isinstance(why, TypeError) else ValueError
            raise kind(f"rank {self.rank}: {call.__name__}: {why}") from None
    return checked


def number_of(value, name, bits=31):
    """An integer; ctypes would cut a larger one to the bits that it has in the library."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; pass an integer") from None
    if not -1 <= number >> bits <= 0:
        raise ValueError(f"{name} is {number}; pass an integer of at most {bits} bits")
    return number


def count_of(value, name):
    number = number_of(value, name, 62)
    if number < 0:
        raise ValueError(f"{name} is {number}; pass 0 or more")
    return number


def table_of(values, name, kind=count_of):
    try:
        values = list(values)
    except TypeError:
        raise TypeError(f"{name} is {values!r}; pass a list of integers") from None
    return [kind(value, f"{name}[{i}]") for i, value in enumerate(values)]


def config_of(options):
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"there is no option {name}; there are {', '.join(OPTIONS)}")
    return Config(**dict(options, timeout_ms=number_of(options.get("timeout_ms", 0), "timeout_ms")))


def same_size(send, receive):
    """A call that moves items: bytes are bytes."""
    if send.itemsize != receive.itemsize:
        raise differing(send, receive)
    return send


def same_type(send, receive):
    """A call that combines items."""
    if (send.type, send.kind == "c") != (receive.type, receive.kind == "c"):
        raise differing(send, receive)
    return send


def differing(send, receive):
    return TypeError(f"sendbuf has items of {send.name}, recvbuf of {receive.name}; convert one of them")


def of_root(recvbuf):
    if recvbuf is None:
        raise TypeError("recvbuf is None, at the root; pass a buffer there")
    return buffer_of(recvbuf, True)


def need(buffer, count, name):
    if buffer.count < count:
        raise ValueError(f"{name} has {buffer.count} elements, the call needs {count}")
