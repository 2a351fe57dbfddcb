"""tutti_torch.py - makes the backend "tutti" known to torch.distributed

register() is an entry point of torch, called by `import torch`. It lies outside the package, and loads it when a group is
made: `import torch` must succeed with a torch that is too old for the backend, and where libtutti cannot be loaded.
"""

import functools
import os

OLDEST = (2, 15)


def create(options, backend_options=None, name="tutti"):
    """Called by torch for each group, on each of its ranks. name: that the program asked for"""
    import torch
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        raise RuntimeError(f"the backend tutti needs PyTorch {'.'.join(map(str, OLDEST))} or newer, not {torch.__version__}")
    import tutti.torch
    return tutti.torch.create(options, name)


def register():
    """The backend tutti; with TUTTI_TAKES_GLOO=1 also gloo."""
    import torch.distributed
    if torch.distributed.is_available():
        for name in ["tutti"] + ["gloo"] * (os.environ.get("TUTTI_TAKES_GLOO") == "1"):
            torch.distributed.Backend.register_backend(name, functools.partial(create, name=name), extended_api=True, devices=["cpu"])
