"""request.py - a call that runs on a host stream, as a request to wait for and as a future

Called by communicator.py. Each running request has a host stream of its own as far as MAX_STREAMS reach, so Wait and Test
concern this call alone. The library runs the calls of one communicator in call order, whatever their streams.
"""

import concurrent.futures
import ctypes
import queue
import threading

from .library import IN_PROGRESS, error_of, lib

MAX_STREAMS = 16


class Stream:
    """A host stream, None once it is closed, and its first error."""

    def __init__(self):
        handle = ctypes.c_void_p()
        code = lib.StreamCreate(ctypes.byref(handle))
        if code:
            raise error_of(code)
        self.handle, self.users, self.error, self.lock = handle, 0, None, threading.Lock()
        self.kept = []   # buffers of running calls whose requests the program has dropped

    def settle(self, code):
        """Its calls are complete."""
        self.kept.clear()
        if code and not self.error:
            self.error = error_of(code)

    def wait(self):
        with self.lock:
            if self.handle:
                self.settle(lib.StreamSynchronize(self.handle))
        return self.error

    def test(self):
        """False also while another thread waits for the stream."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            code = lib.StreamQuery(self.handle) if self.handle else 0
            if code != IN_PROGRESS:
                self.settle(code)
            return code != IN_PROGRESS
        finally:
            self.lock.release()

    def close(self):
        """Wait for the calls of the stream, and free it: their requests are complete from now on."""
        with self.lock:
            if self.handle:
                self.settle(lib.StreamDestroy(self.handle))
                self.handle = None


class Streams:
    """The streams of a communicator."""

    def __init__(self):
        self.all, self.lock = [], threading.RLock()   # the collector may drop a request inside

    def take(self):
        with self.lock:
            for stream in [s for s in self.all if s.kept and s.test() and not s.users]:
                self.close_failed(stream)
            stream = min(self.all, key=lambda s: s.users, default=None)
            if stream is None or (stream.users and len(self.all) < MAX_STREAMS):
                stream = Stream()
                self.all.append(stream)
            stream.users += 1
            return stream

    def give(self, stream):
        with self.lock:
            stream.users -= 1
            self.close_failed(stream)

    def close_failed(self, stream):
        """The next request gets a stream without an error."""
        if stream.error and stream in self.all:
            self.all.remove(stream)
            stream.close()

    def drop(self, stream, keep):
        """A request whose call runs is gone: its buffers stay until the call is complete."""
        with self.lock:
            stream.kept.append(keep)
            stream.users -= 1

    def destroy(self):
        with self.lock:
            for stream in self.all:
                stream.close()
            self.all = []


class Request:
    """A running call. Wait() and result() raise its error; the buffers belong to the call until then."""

    def __init__(self, comm, stream, keep):
        self.comm, self.streams, self.stream, self.keep, self.explain = comm, comm.streams, stream, keep, comm.explain
        self.lock, self.complete, self.error, self.as_future = threading.Lock(), False, None, None

    def __del__(self):
        if not self.complete:
            self.streams.drop(self.stream, self.keep)

    def finish(self):
        with self.lock:
            if self.complete:
                return
            self.error = self.stream.error and self.explain(self.stream.error)
            self.keep = None
            self.complete = True   # last: other threads read it without the lock
        self.streams.give(self.stream)

    def Wait(self):
        if not self.complete:
            self.stream.wait()
            self.finish()
        if self.error:
            raise self.error

    def Test(self):
        """True if complete; raises the error of the call."""
        if not self.complete:
            if not self.stream.test():
                return False
            self.finish()
        if self.error:
            raise self.error
        return True

    wait = result = Wait

    def done(self):
        try:
            return self.Test()
        except Exception:
            return True

    def future(self):
        """A concurrent.futures.Future of this call; a thread of the process waits for it."""
        with self.lock:
            if self.as_future:
                return self.as_future
            self.as_future = concurrent.futures.Future()
            self.as_future.set_running_or_notify_cancel()
        completer.submit(self)
        return self.as_future

    def add_done_callback(self, callback):
        self.future().add_done_callback(callback)

    def __await__(self):
        import asyncio
        return asyncio.wrap_future(self.future()).__await__()


class Completer:
    """The thread that completes futures, in the order of the requests."""

    def __init__(self):
        self.requests, self.thread, self.lock = queue.SimpleQueue(), None, threading.Lock()

    def submit(self, request):
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self.work, name="tutti-futures", daemon=True)
                self.thread.start()
        self.requests.put(request)

    def work(self):
        while True:
            request = self.requests.get()
            try:
                request.Wait()
            except Exception as error:
                request.as_future.set_exception(error)
            else:
                request.as_future.set_result(None)


completer = Completer()


def Waitall(requests):
    """Wait for all requests; raises the first error after all of them are complete."""
    errors = []
    for request in requests:
        try:
            request.Wait()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
