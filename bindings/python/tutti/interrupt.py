"""interrupt.py - Ctrl-C in a call of the main thread: the communicator is aborted, and Python raises KeyboardInterrupt

Python raises it in the main thread, between two instructions, so not before a call of the library is complete. A
thread reads the numbers of signals, which Python writes to a descriptor. Where the main thread then stays in one call,
the thread aborts the communicator of the call, on all ranks. A program with a handler of its own for SIGINT, or with a
descriptor of its own for signals (asyncio's event loop, where that has handlers), waits as long as the call. Called by
communicator.py.
"""

import os
import signal
import socket
import sys
import threading
import time

SECONDS = 0.2   # in one call, after the signal
started = False


def start():
    """Called in each thread that makes a communicator; Python takes the descriptor from the main thread only."""
    global started
    if started or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    other = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if other != -1:
        signal.set_wakeup_fd(other)
        return
    started = True
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))   # the parent reads what is written there
    threading.Thread(target=listen, args=(reader, writer), name="tutti-signals", daemon=True).start()


def listen(reader, writer):   # a writer that nobody holds would be closed
    while True:
        if signal.SIGINT in reader.recv(64) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            first = call_of_main()
            time.sleep(SECONDS)
            if first and first == call_of_main():
                interrupt(first[0])


def call_of_main():
    """The frame that calls the library, and where it does; None: the main thread is not in this package."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    return (frame, frame.f_lasti) if frame and frame.f_globals.get("__package__") == __package__ else None


def interrupt(frame):
    """Abort the communicator of the innermost object that has one."""
    while frame:
        owner = frame.f_locals.get("self")
        communicator = getattr(owner, "comm", owner)
        if hasattr(communicator, "Abort"):
            communicator.Abort("an interrupt (SIGINT) ended a call")
            return
        frame = frame.f_back
