"""neighbors.py - processes that compute beside the ranks of perf/compare, as another user's job would"""
import subprocess
import sys

# 1: PR_SET_PDEATHSIG
COMPUTE = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"


class Neighbors:
    """`with Neighbors(2):` two processes compute, each in a session of its own."""

    def __init__(self, count):
        self.count, self.processes = count, []

    def __enter__(self):
        for _ in range(self.count):
            self.processes.append(subprocess.Popen([sys.executable, "-c", COMPUTE], start_new_session=True))
        return self

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
            p.wait()
