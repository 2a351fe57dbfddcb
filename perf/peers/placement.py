"""placement.py - where the two first processors are at this moment: threads of one core, or two cores

A hypervisor moves virtual processors within seconds, and a factor of 3 hides in that. perf/compare asks before and after
each turn: a turn counts only if both answers agree, under their name.
"""
import os
import subprocess

# one-way time of a flag below which two processors are in that placement, us (EPYC: 0.05 and 0.25)
PLACEMENTS = ((0.12, "one core"), (0.45, "two cores"))
ANYWHERE = "anywhere"           # not asked
DISTURBED = "disturbed"         # far apart, or something else runs there


class Probe:
    def __init__(self, build):
        self.process = subprocess.Popen([os.path.join(build, "perf/peers/placement")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self):
        """The placement now; takes 2 ms."""
        self.process.stdin.write("\n")
        us = float(self.process.stdout.readline() or "inf")
        return next((name for limit, name in PLACEMENTS if us < limit), DISTURBED)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class NoProbe:
    """For runs without --placement."""

    def ask(self):
        return ANYWHERE

    def close(self):
        pass
