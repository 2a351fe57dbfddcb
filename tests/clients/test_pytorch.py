"""test_pytorch.py - torch.distributed over the backend tutti, between real processes; equal bits to Gloo's

    PYTHONPATH=bindings/python TUTTI_LIBRARY=.../libtutti.so.0 python3 tests/clients/test_pytorch.py

Called by pytorch.sh. Each scene below is the program of a rank; RANK and so on come from the TUTTI_ variables of jobs.py.
"""

import hashlib
import os
import signal
import sys

import jobs
import torch
import torch.distributed as dist
import tutti.torch


def join(backend):
    address, port = os.environ["TUTTI_ROOT"].split(":")
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, RANK=os.environ["TUTTI_RANK"],
                      WORLD_SIZE=os.environ["TUTTI_NRANKS"])
    torch.set_num_threads(1)
    tutti.torch.register()
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


def train():
    """Prints a hash of the parameters after some steps of DDP."""
    me, _ = join(os.environ["TUTTI_TEST_BACKEND"])
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    net = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inputs = torch.Generator().manual_seed(me)
    for _ in range(5):
        net(torch.randn(16, 32, generator=inputs)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
    dist.destroy_process_group()


def killed():
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


def takes_gloo():
    join("gloo")
    assert type(dist.distributed_c10d._get_default_group()).__name__ == "ProcessGroupTutti"
    dist.destroy_process_group()


def hashes(n, backend):
    return finish_lines(jobs.finish(jobs.start("train", n, TUTTI_TEST_BACKEND=backend)))


def finish_lines(finished):
    statuses, outputs = finished
    return sorted({line for text in outputs for line in text.splitlines() if len(line) == 64}), statuses, outputs


def test():
    claims = jobs.Claims()
    jobs.run(claims, "collectives, objects, messages and groups of torch", "collectives", 3)
    mine, theirs = hashes(2, "tutti"), hashes(2, "gloo")
    claims.claim(len(mine[0]) == 1 and mine[0] == theirs[0], "DDP: every rank has the parameters that Gloo gives, 2 ranks",
                 mine[2] + theirs[2])
    jobs.run(claims, "TUTTI_TAKES_GLOO=1 makes gloo mean tutti", "takes_gloo", 2, TUTTI_TAKES_GLOO="1")
    jobs.run(claims, "a killed rank raises in the others with its number", "killed", 3, killed=1)
    claims.end()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
    else:
        test()
