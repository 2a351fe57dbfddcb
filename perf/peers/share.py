"""share.py - control group for the ranks of perf/compare, with nearly all processor time

Priority alone does not keep other work out if ranks outnumber cores: a yielding rank yields to any waiting process, so a
compiler of the lowest priority runs for milliseconds. Within their own group, ranks yield only to each other.
"""
import os
import time

V1, V2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


class OwnGroup:
    """`with OwnGroup():` processes started inside belong to the group, which is removed at the end. Needs root."""

    def __enter__(self):
        old = os.path.exists(f"{V1}/cpu.shares")
        self.root = V1 if old else V2
        self.path = f"{self.root}/tutti-compare-{os.getpid()}"
        os.mkdir(self.path)
        write(f"{self.path}/cpu.shares" if old else f"{self.path}/cpu.weight", "262144" if old else "10000")
        with open("/proc/self/cgroup") as f:
            names = dict(line.strip().split(":", 2)[1:] for line in f)
        self.before = self.root + names["cpu" if old else ""]
        write(f"{self.path}/cgroup.procs", str(os.getpid()))
        return self

    def __exit__(self, *_):
        write(f"{self.before}/cgroup.procs", str(os.getpid()))
        for _ in range(50):             # killed processes leave the group with a delay
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)
        os.rmdir(self.path)
