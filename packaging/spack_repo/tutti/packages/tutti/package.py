"""package.py - Tutti for Spack

`make dist` makes the tarball. In the folder of the tarball:

    spack repo add .../packaging/spack_repo/tutti && spack install --no-checksum tutti
"""

import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Tutti(AutotoolsPackage):
    """Collective communication between processes, over shared memory, TCP and InfiniBand: the same bits from run to run,
    deadlines, errors in words. Unchanged programs of MPI and NCCL run on it."""

    homepage = "https://tutti.invalid"
    url = f"file://{os.getcwd()}/tutti-0.1.0.tar.xz"
    manual_download = True

    license("BSD-3-Clause")

    version("0.1.0")

    variant("cuda", default=False, description="GPU kernels")
    variant("hwloc", default=True, description="Topology of the machine by hwloc, else by /sys")
    variant("jansson", default=True, description="tutti report, which reads results files")
    variant("zlib", default=True, description="tutti-train, which reads compressed data")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openssl@3:")
    depends_on("cuda", type="build", when="+cuda")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("jansson", when="+jansson")
    depends_on("zlib-api", when="+zlib")

    requires("platform=linux", msg="Tutti uses system calls of Linux")

    def configure_args(self):
        args = ["--with-openssl", "--without-criterion"]
        for library in ("hwloc", "jansson", "zlib"):
            args += self.with_or_without(library)
        if self.spec.satisfies("+cuda"):
            args.append(f"--with-nvcc={self.spec['cuda'].prefix.bin.nvcc}")
        return args
