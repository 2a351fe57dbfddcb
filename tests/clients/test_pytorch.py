"""test_pytorch.py - torch.distributed over the backend tutti, between real processes; equal bits to Gloo's

    PYTHONPATH=bindings/python TUTTI_LIBRARY=.../libtutti.so.0 python3 tests/clients/test_pytorch.py

Called by pytorch.sh. Each scene below is the program of a rank; RANK and so on come from the TUTTI_ variables of jobs.py.
"""

import hashlib
import importlib.util
import os
import shutil
import signal
import sys

import jobs
import torch
import torch.distributed as dist
import tutti_torch

TRAINING_SECONDS = 300   # torch.compile calls a compiler

def prepare():
    """The environment that torchrun gives, and the entry point that `import torch` calls for an installed package."""
    address, port = os.environ["TUTTI_ROOT"].split(":")
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, RANK=os.environ["TUTTI_RANK"],
                      WORLD_SIZE=os.environ["TUTTI_NRANKS"])
    torch.set_num_threads(1)
    tutti_torch.register()


def join(backend):
    prepare()
    dist.init_process_group(backend)
    return dist.get_rank(), dist.get_world_size()


def collectives():
    me, n = join("tutti")
    total = n * (n + 1) // 2
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
        x = torch.full((3, 5), me + 1, dtype=dtype)
        dist.all_reduce(x)
        assert (x == total).all(), dtype
    columns = torch.full((4, 6), me + 1.0).t()   # not contiguous
    work = dist.all_reduce(columns, async_op=True)
    assert work.wait() and work.is_completed() and (columns == total).all()
    assert (work.get_future().wait()[0] == total).all()
    parts = [torch.empty(2) for _ in range(n)]
    dist.all_gather(parts, torch.full((2,), float(me)))
    assert [part[0].item() for part in parts] == list(range(n))
    out = torch.empty(sum(range(n)) + 1)
    rows = torch.full((n * me,), float(me))
    back = [torch.empty(r) for r in range(n)]   # rank r sends r elements to each
    dist.all_to_all(back, list(rows.split(me)) if me else [torch.empty(0)] * n)
    assert all((back[r] == r).all() for r in range(n)), out
    parts = [torch.empty(r, 2) for r in range(n)]
    dist.all_gather(parts, torch.full((me, 2), float(me)))
    assert all((part == r).all() for r, part in enumerate(parts))
    out = torch.empty(me)
    dist.reduce_scatter(out, [torch.full((r,), me + 1.0) for r in range(n)])
    assert (out == total).all()
    out = torch.empty(n * (n - 1) // 2, 3)
    dist.all_to_all_single(out, torch.full((n * me, 3), float(me)), list(range(n)), [me] * n)
    assert out[:, 0].tolist() == [float(r) for r in range(n) for _ in range(r)]
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    assert [entry["rank"] for entry in objects] == list(range(n))
    sparse = torch.sparse_coo_tensor([[me, n]], [1.0, 2.0], (n + 1,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0] * n + [2.0 * n]
    if me == 0:
        for _ in range(n - 1):
            got = torch.zeros(1)
            assert dist.recv(got) == got.item()
    else:
        dist.send(torch.tensor([float(me)]), 0)
    pair = dist.new_group([0, 1])
    if me < 2:
        x = torch.ones(1)
        dist.all_reduce(x, group=pair)
        assert x.item() == 2
    dist.monitored_barrier()
    dist.destroy_process_group()


def network():
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))


def replicated(model, _):
    return torch.nn.parallel.DistributedDataParallel(model)


def compiled(model, mesh):
    return torch.compile(replicated(model, mesh))


def sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard
    for layer in model[0], model[2], model:
        fully_shard(layer, mesh=mesh)
    return model


def tensor_parallel(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def train():
    """Prints a hash of the parameters after some steps, for each way."""
    me, n = join(os.environ["TUTTI_TEST_BACKEND"])
    for way in os.environ["TUTTI_TEST_WAYS"].split():
        print(trained_parameters(way, me, n))
    dist.destroy_process_group()


def trained_parameters(way, me, n):
    torch.manual_seed(7)
    model = network()
    net = globals()[way](model, dist.device_mesh.init_device_mesh("cpu", (n,)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inputs = torch.Generator().manual_seed(0 if way == "tensor_parallel" else me)   # its ranks share the samples
    for _ in range(5):
        net(torch.randn(16, 32, generator=inputs)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in whole)).hexdigest()


def accelerated():
    """A script of Accelerate, which asks for gloo; prints a hash of the parameters."""
    prepare()
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(7)
    samples = torch.utils.data.TensorDataset(torch.randn(64, 32, generator=torch.Generator().manual_seed(1)))
    model = network()
    net, optimizer, batches = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1),
                                                  torch.utils.data.DataLoader(samples, batch_size=8))
    losses = []
    for (rows,) in batches:
        loss = net(rows).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().reshape(1)))
    name = type(dist.distributed_c10d._get_default_group()).__name__
    assert (name == "ProcessGroupTutti") == (os.environ.get("TUTTI_TAKES_GLOO") == "1"), name
    whole = [p.detach().numpy() for p in model.parameters()] + [torch.cat(losses).numpy()]
    print(hashlib.sha256(b"".join(values.tobytes() for values in whole)).hexdigest())
    accelerator.end_training()
    dist.destroy_process_group()


def killed():
    import tutti
    me, n = join("tutti")
    dist.barrier()
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(4))
    except tutti.RemoteError as error:
        assert 1 in error.dead and "rank 1" in str(error), error
        os._exit(0)   # the group is broken, and its store may be, too
    raise AssertionError("the sum succeeded")


def interrupted():
    """Ctrl-C at rank 0, while rank 2 does not take part; a receive that has no message keeps no rank from ending."""
    import tutti
    me, n = join("tutti")
    dist.barrier()
    if me < 2:
        dist.irecv(torch.ones(1), 2)
    if me == 0:
        jobs.interrupt_when_stuck()
    try:
        dist.recv(torch.ones(1), 0) if me == 2 else dist.all_reduce(torch.ones(4))
    except (KeyboardInterrupt if me == 0 else tutti.RemoteError):
        return
    raise AssertionError("the call succeeded")


def takes_gloo():
    join("gloo")
    assert type(dist.distributed_c10d._get_default_group()).__name__ == "ProcessGroupTutti"
    dist.destroy_process_group()


def absent():
    """`import torch` has called the entry point, and succeeds without libtutti; a group says what lacks."""
    try:
        join("tutti")
    except ImportError as error:
        assert "TUTTI_LIBRARY" in str(error), error
    else:
        raise AssertionError("a group without libtutti")


def hashes(n, scene, **variables):
    """The hashes that each rank prints, and the outputs."""
    _, outputs = jobs.finish(jobs.start(scene, n, **variables), TRAINING_SECONDS)
    return [[line for line in text.splitlines() if len(line) == 64] for text in outputs], outputs


def equal(claims, text, count, *runs):
    """Every rank of every run prints the same `count` hashes."""
    found = [lines for run, _ in runs for lines in run]
    claims.claim(len(found[0]) == count and all(lines == found[0] for lines in found), f"{text}, {len(runs[0][0])} ranks",
                 [output for _, outputs in runs for output in outputs])


def trained(n, ways, backend, **variables):
    return hashes(n, "train", TUTTI_TEST_BACKEND=backend, TUTTI_TEST_WAYS=ways, **variables)


def same_as_gloo(claims, text, way):
    equal(claims, f"{text}: the parameters that Gloo gives", 1, trained(2, way, "tutti"), trained(2, way, "gloo"))


def same_everywhere(claims, text, ways):
    """A sum of 4 has many orders; an algorithm has one, whatever the path of its bytes."""
    equal(claims, f"{text}: an algorithm gives the same parameters from run to run, over shm and tcp", len(ways.split()),
          *(trained(4, ways, "tutti", TUTTI_ALGO="ring", TUTTI_TRANSPORT=transport) for transport in ("shm", "shm", "tcp")))


def test():
    claims = jobs.Claims()
    jobs.run(claims, "collectives, objects, messages and groups of torch", "collectives", 3)
    for text, way in ("DDP", "replicated"), ("FSDP2", "sharded"), ("tensor parallel", "tensor_parallel"):
        same_as_gloo(claims, text, way)
    same_everywhere(claims, "DDP, FSDP2, tensor parallel", "replicated sharded tensor_parallel")
    if shutil.which("g++"):
        same_as_gloo(claims, "DDP with torch.compile", "compiled")
    else:
        claims.skip("DDP with torch.compile", "no g++")
    if importlib.util.find_spec("accelerate"):
        equal(claims, "Accelerate: the parameters and losses that Gloo gives", 1,
              hashes(2, "accelerated", TUTTI_TAKES_GLOO="1"), hashes(2, "accelerated"))
    else:
        claims.skip("Accelerate", "not installed")
    jobs.run(claims, "TUTTI_TAKES_GLOO=1 makes gloo mean tutti", "takes_gloo", 2, TUTTI_TAKES_GLOO="1")
    jobs.run(claims, "without libtutti, a group says what lacks", "absent", 1, TUTTI_LIBRARY="/nowhere/libtutti.so.0")
    jobs.run(claims, "Ctrl-C ends a collective, and all ranks", "interrupted", 3)
    jobs.run(claims, "a killed rank raises in the others with its number", "killed", 3, killed=1)
    claims.end()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
    else:
        test()
