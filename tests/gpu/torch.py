#!/usr/bin/env python3
"""torch.py - unmodified PyTorch over libnccl.so.2: collectives, DDP beside gloo, a killed rank

    tests/gpu/torch.py [--np 4] [--device cuda] [--backend nccl] [--preload LIBDIR/tutti/libnccl.so.2]

Run by tests/gpu/run. Starts its ranks itself, as torchrun would, all on GPU 0; inside of torchrun it is a rank. Prints
TAP. With --device cpu --backend gloo it only shows that the script itself is right.
"""
import argparse
import datetime
import os
import socket
import subprocess
import sys
import time

# This file has PyTorch's name; its folder must not be searched for it.
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]

LIMIT_S = 240
DEAD_LIMIT_S = 90      # in which the survivors of a killed rank must have come to an error


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--np", type=int, default=4)
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
    p.add_argument("--preload", default="")
    p.add_argument("--part", default="all", choices=["all", "collectives", "ddp", "killed"])
    return p.parse_args()


# ---- the parent: start ranks, wait for them --------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(args, part):
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(args.np),
               CUBLAS_WORKSPACE_CONFIG=":4096:8", TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
    if args.preload:
        env["LD_PRELOAD"] = args.preload
    command = [sys.executable, os.path.abspath(__file__), "--np", str(args.np), "--device", args.device,
               "--backend", args.backend, "--part", part]
    return [subprocess.Popen(command, env=dict(env, RANK=str(r), LOCAL_RANK="0")) for r in range(args.np)]


def wait(ranks, limit_s):
    """The exit codes; None where a rank had to be killed."""
    end = time.monotonic() + limit_s
    codes = []
    for r in ranks:
        try:
            codes.append(r.wait(max(0.1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            r.kill()
            r.wait()
            codes.append(None)
    return codes


def point(good, number, text):
    print(f"{'ok' if good else 'not ok'} {number} - {text}", flush=True)
    return good


def parent(args):
    parts = ["collectives", "ddp", "killed"] if args.part == "all" else [args.part]
    good = True
    for n, part in enumerate(parts, 1):
        codes = wait(start(args, part), DEAD_LIMIT_S if part == "killed" else LIMIT_S)
        # The last rank kills itself; the others end by an error that they, or PyTorch's watchdog, saw.
        right = codes == [0] * args.np
        if part == "killed":
            right = codes[-1] == -9 and all(c not in (0, None) for c in codes)
        good &= point(right, n, f"{part}: {args.np} ranks, {args.backend}, {args.device} (exit codes {codes})")
    print(f"1..{len(parts)}")
    return 0 if good else 1


# ---- a rank ----------------------------------------------------------------------------------------------------------

def expect(condition, text):
    if not condition:
        raise AssertionError(f"rank {os.environ['RANK']}: {text}")


def input_of(torch, rank, count, dtype, device):
    """Small whole numbers, so that every type holds sums and products of 4 ranks exactly."""
    return ((torch.arange(count, device=device) + 2 * rank) % 3).to(dtype)


def reductions(torch, dist, device, dtype, count):
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, count, dtype, device) for r in range(n)]
    stack = torch.stack([x.double() for x in inputs])
    wanted = {"SUM": stack.sum(0), "PRODUCT": stack.prod(0), "MIN": stack.min(0)[0], "MAX": stack.max(0)[0]}
    if dtype.is_floating_point and dist.get_backend() == "nccl":
        wanted["AVG"] = stack.mean(0)
    for name, want in wanted.items():
        x = inputs[me].clone()
        dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
        expect(torch.equal(x.double(), want), f"all_reduce {name} {dtype}")
    x = inputs[me].clone()
    dist.reduce(x, n - 1)
    expect(me != n - 1 or torch.equal(x.double(), wanted["SUM"]), f"reduce {dtype}")
    if dist.get_backend() == "nccl":
        part = torch.empty(count // n, dtype=dtype, device=device)
        dist.reduce_scatter_tensor(part, inputs[me])
        expect(torch.equal(part.double(), wanted["SUM"].view(n, -1)[me]), f"reduce_scatter {dtype}")


def copies(torch, dist, device, dtype, count):
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, count, dtype, device) for r in range(n)]
    x = inputs[me].clone()
    dist.broadcast(x, 1)
    expect(torch.equal(x, inputs[1]), f"broadcast {dtype}")
    everything = torch.empty(n * count, dtype=dtype, device=device)
    dist.all_gather_into_tensor(everything, inputs[me])
    expect(torch.equal(everything, torch.cat(inputs)), f"all_gather {dtype}")
    if dist.get_backend() == "nccl":
        out = torch.empty_like(inputs[me])
        dist.all_to_all_single(out, inputs[me])
        expect(torch.equal(out, torch.cat([i.view(n, -1)[me] for i in inputs])), f"all_to_all {dtype}")
    out = torch.empty_like(inputs[me])
    left, right = (me - 1) % n, (me + 1) % n
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, inputs[me], right), dist.P2POp(dist.irecv, out, left)])
    for w in work:
        w.wait()
    expect(torch.equal(out, inputs[left]), f"send and recv {dtype}")


def collectives(torch, dist, device):
    if dist.get_backend() == "nccl":
        expect(torch.cuda.nccl.version() == (2, 28, 9), f"version {torch.cuda.nccl.version()}")
    half = [torch.float16, torch.bfloat16] if dist.get_backend() == "nccl" else []
    for dtype in [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float64] + half:
        for count in (4, 4096, 1 << 20):
            reductions(torch, dist, device, dtype, count)
            copies(torch, dist, device, dtype, count)
    dist.barrier()


def losses(torch, dist, device, group):
    """20 steps of a small CNN on this rank's share of made-up pictures; the mean loss of all ranks at each step."""
    from torch import nn
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
                          nn.Linear(8 * 12 * 12, 10)).to(device)
    model = nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    made = torch.Generator().manual_seed(100 + dist.get_rank())
    history = []
    for _ in range(20):
        x = torch.randn(16, 1, 16, 16, generator=made).to(device)
        y = torch.randint(0, 10, (16,), generator=made).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=group)
        history.append(mean.item() / dist.get_world_size())
    return history


def ddp(torch, dist, device):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True)
    ours = losses(torch, dist, device, dist.group.WORLD)
    gloo = losses(torch, dist, device, dist.new_group(backend="gloo"))
    worst = max(abs(a - b) for a, b in zip(ours, gloo))
    if dist.get_rank() == 0:
        print(f"# losses {ours[0]:.6f} .. {ours[-1]:.6f}; the largest difference to gloo's is {worst:.2e}", flush=True)
    expect(worst < 1e-5, f"losses differ from gloo's by {worst}")


def killed(torch, dist, device):
    x = torch.ones(1 << 20, device=device)
    dist.all_reduce(x)
    if device.type == "cuda":
        torch.cuda.synchronize()
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), 9)
    try:
        for _ in range(1000):
            dist.all_reduce(x)
            if device.type == "cuda":
                torch.cuda.synchronize()
            time.sleep(0.1)
    except Exception as error:
        print(f"# rank {dist.get_rank()} saw: {str(error).splitlines()[0][:200]}", flush=True)
        os._exit(3)
    expect(False, "a rank was killed, and nobody told")


def rank(args):
    import torch
    import torch.distributed as dist
    device = torch.device("cuda:0" if args.device == "cuda" else "cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=60))
    for name in ["collectives", "ddp", "killed"] if args.part == "all" else [args.part]:
        {"collectives": collectives, "ddp": ddp, "killed": killed}[name](torch, dist, device)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    arguments = parse()
    sys.exit(rank(arguments) if "RANK" in os.environ else parent(arguments))
