"""world.py - the ranks of one contender: started once, asleep between turns

A turn is one measurement. The ranks share a memfd (shared_page.c); rank 0 reads turns from one pipe and writes results to
another (peer_bench.c). All ranks are in one session, as under mpirun: Linux gives each session an equal share of a core
(autogroup), and a rank yields to processes of its own session only.
"""
import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

TURN_SECONDS = 120      # timeout of a turn


# starts the ranks of a library that has no launcher, and ends with the first of them that ends
START = 'n=$1; shift; for ((r = 0; r < n; r++)); do PEER_RANK=$r TUTTI_RANK=$r "$@" & done; wait -n'


class Gone(Exception):
    """The contender failed; the text is the reason."""


class World:
    def __init__(self, contender, np, transport, crowded, max_bytes):
        self.contender, self.label = contender, contender.label
        self.folder = tempfile.mkdtemp(prefix="compare-")
        self.page = os.memfd_create("compare")
        self.log = open(os.path.join(self.folder, "log"), "w+")
        command, environment, copies = contender.command(np, transport, crowded)
        turns, results = (os.path.join(self.folder, name) for name in ("turns", "results"))
        os.mkfifo(turns)
        os.mkfifo(results)
        base = {k: v for k, v in os.environ.items() if k not in ("TUTTI_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")}
        base.update(environment, PEER_PAGE=f"/proc/{os.getpid()}/fd/{self.page}", PEER_TURNS=turns,
                    PEER_RESULTS=results, PEER_MAX_BYTES=str(max_bytes), PEER_CROWDED=str(int(crowded)),
                    PEER_BIND=str(int(not crowded)), PEER_FOLDER=self.folder, PEER_RANKS=str(np))
        if copies > 1:
            command = ["bash", "-c", START, "start", str(copies)] + command
        self.process = subprocess.Popen(command, env=base, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True)
        self.results = os.open(results, os.O_RDONLY | os.O_NONBLOCK)
        self.turns = None
        self.rest = b""
        try:
            self.next_line(60)
            self.turns = os.open(turns, os.O_WRONLY)
        except BaseException:
            self.kill()
            raise

    def next_line(self, seconds):
        """The next line of rank 0."""
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            if self.process.poll() is not None:
                raise Gone(f"{self.label} ended: {self.output()}")
            if time.monotonic() > until:
                raise Gone(f"{self.label}: no result within {seconds} s: {self.output()}")
            if select.select([self.results], [], [], 0.2)[0]:
                received = os.read(self.results, 4096)
                self.rest += received
                if not received:
                    time.sleep(0.02)        # the other end is not open yet
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def output(self):
        """The first lines of the ranks' output, for messages."""
        self.log.seek(0)
        lines = [line.strip() for line in self.log if line.strip(" -\n")]
        return " / ".join(lines[:4]) if lines else "no output"

    def turn(self, collective, size, offset, place, buffers, verify, target_us):
        """(calls, mean us, median us, wrong elements), or None: the library has no such call."""
        try:
            os.write(self.turns, f"{collective} {size} {offset} {place} {buffers} {int(verify)} {target_us}\n".encode())
        except BrokenPipeError:
            raise Gone(f"{self.label} ended: {self.output()}") from None
        words = self.next_line(TURN_SECONDS).split()
        return None if words == ["none"] else tuple(float(w) for w in words)

    def close(self):
        """Close the pipe, so that the ranks end by themselves; kill them after 5 s; remove all files."""
        if self.turns is not None:
            os.close(self.turns)
            self.turns = None
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self):
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal_number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
        self.log.close()
        os.close(self.page)
        os.close(self.results)
        shutil.rmtree(self.folder, ignore_errors=True)
