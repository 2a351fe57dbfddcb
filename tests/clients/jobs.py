"""jobs.py - ranks as processes, for tests of Tutti's Python package

Called by the test programs of this folder. A test program runs itself: as a test it starts ranks, each of which runs one
scene of the program. Its output is TAP.
"""

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

RANKS_SECONDS = 300   # on a busy machine, an import takes a minute


class Claims:
    """Numbered lines of TAP."""

    def __init__(self):
        self.count = self.failed = 0

    def claim(self, holds, text, notes=()):
        self.count += 1
        self.failed += not holds
        print(f"{'' if holds else 'not '}ok {self.count} - {text}")
        for note in () if holds else notes:
            print("\n".join("# " + line for line in note.splitlines()[-15:]))

    def skip(self, text, reason):
        self.count += 1
        print(f"ok {self.count} - {text} # SKIP {reason}")

    def end(self):
        print(f"1..{self.count}")
        sys.exit(self.failed > 0)


def free_port(n=1):
    """The first of n adjacent ports that are free, and lower than those that the kernel gives to connections."""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for i in range(n):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + i))
            return port
    raise OSError(f"no {n} adjacent ports are free")


def start(scene, n, program=None, **variables):
    """The n processes of a scene."""
    root = f"127.0.0.1:{free_port(n)}"   # LightGBM's sockets take a port for each rank
    shared = dict(os.environ, TUTTI_NRANKS=str(n), TUTTI_ROOT=root, TUTTI_SECRET=secrets.token_hex(16), **variables)
    return [subprocess.Popen([sys.executable, program or sys.argv[0], scene], env=dict(shared, TUTTI_RANK=str(rank)),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(n)]


def finish(ranks, seconds=RANKS_SECONDS):
    """Statuses and outputs."""
    outputs = []
    for rank in ranks:
        try:
            outputs.append(rank.communicate(timeout=seconds)[0])
        except subprocess.TimeoutExpired:
            rank.kill()
            outputs.append(rank.communicate()[0] + "\nthe rank did not end")
    return [rank.returncode for rank in ranks], outputs


def run(claims, text, scene, n, killed=None, raising=None, **variables):
    """Claim that every rank of a scene exits with 0, apart from the one that the scene kills, or that raises."""
    statuses, outputs = finish(start(scene, n, **variables))
    wanted = [-signal.SIGKILL if rank == killed else int(rank == raising) for rank in range(n)]
    claims.claim(statuses == wanted, f"{text}, {n} ranks", outputs)


def interrupt_when_stuck():
    """SIGINT for this process, as by Ctrl-C, once its main thread stays in a call of Tutti."""
    def work():
        before = None
        while True:
            frame = sys._current_frames()[threading.main_thread().ident]
            now = frame, frame.f_lasti
            if now == before and frame.f_globals.get("__package__") == "tutti":
                os.kill(os.getpid(), signal.SIGINT)
                return
            before = now
            time.sleep(0.3)
    threading.Thread(target=work, daemon=True).start()
