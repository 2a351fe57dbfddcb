"""torch_suite.py - PyTorch's own DistributedTest, from its wheel, with a backend's name

    WORLD_SIZE=2 BACKEND=gloo TUTTI_TAKES_GLOO=1 python3 tests/clients/torch_suite.py [TEST...]     unittest's arguments

Called by tests/tiers full. With TUTTI_TAKES_GLOO=1, gloo is Tutti, so that tests for gloo alone run, too. The processes of a
test are forked, since spawned ones import torch once more for each of some 200 tests.
"""

import os
import sys
import tempfile
import unittest

os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("TEMPDIR", os.environ["TEMP_DIR"])

import torch   # noqa: E402
import torch.distributed as dist   # noqa: E402

if os.environ.get("TUTTI_TAKES_GLOO") == "1":
    import tutti_torch

    tutti_torch.register()

from torch.testing._internal.distributed import distributed_test   # noqa: E402

# What differs from Gloo: torch's profiler sees no events of the backend
if os.environ.get("TUTTI_TAKES_GLOO") == "1":
    distributed_test.PROFILING_SUPPORTED_BACKENDS = []
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS = []


class TestTutti(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def test_backend_is_tutti(self):
        """The suite tests what its caller asked for."""
        name = type(dist.distributed_c10d._get_default_group()).__name__
        self.assertEqual(name == "ProcessGroupTutti", os.environ.get("TUTTI_TAKES_GLOO") == "1")


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.argv[0] = "torch_suite"
    unittest.main(verbosity=2, testRunner=unittest.TextTestRunner(stream=sys.stdout, verbosity=2))
