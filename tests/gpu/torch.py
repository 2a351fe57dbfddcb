#!/usr/bin/env python3
"""torch.py - unmodified PyTorch over libnccl.so.2: collectives, DDP compared with gloo, FSDP2 and tensor
parallel compared with one device, a killed rank

    tests/gpu/torch.py [--np 4] [--device cuda] [--backend nccl] [--preload LIBDIR/tutti/libnccl.so.2]

Run by tests/gpu/run. Starts its ranks itself, as torchrun would, all on GPU 0; inside of torchrun it is a rank. Prints
TAP. With --device cpu --backend gloo it only shows that the script itself is right.
"""
import argparse
import ctypes
import datetime
import os
import socket
import subprocess
import sys
import time

# This file is called torch.py, so its folder must not be on the path when PyTorch is imported.
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]

PARTS = ["collectives", "ddp", "sharded", "killed"]
DEAD_LIMIT_S = 90      # limit for the survivors' error after a rank is killed


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--np", type=int, default=4)
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
    p.add_argument("--preload", default="")
    p.add_argument("--largest", type=int, default=1 << 20, help="elements")
    p.add_argument("--limit", type=int, default=240, help="seconds of a part")
    p.add_argument("--part", default="all", choices=["all"] + PARTS)
    return p.parse_args()


# ---- the parent: start ranks, wait for them --------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(args, part):
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(args.np),
               CUBLAS_WORKSPACE_CONFIG=":4096:8", TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
    env.setdefault("GLOO_SOCKET_IFNAME", "lo")         # gloo resolves the host's name, which may have no address
    if args.preload:
        env["LD_PRELOAD"] = args.preload
    command = [sys.executable, os.path.abspath(__file__), "--np", str(args.np), "--device", args.device,
               "--backend", args.backend, "--largest", str(args.largest), "--part", part, "--preload", args.preload]
    return [subprocess.Popen(command, env=dict(env, RANK=str(r), LOCAL_RANK="0")) for r in range(args.np)]


def wait(ranks, limit_s):
    """The exit codes; None for a rank that had to be killed."""
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
    parts = PARTS if args.part == "all" else [args.part]
    good = True
    for n, part in enumerate(parts, 1):
        codes = wait(start(args, part), min(args.limit, DEAD_LIMIT_S) if part == "killed" else args.limit)
        # The last rank kills itself; the others end by an error of their own call or of PyTorch's watchdog.
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


def input_of(torch, rank, count, dtype):
    """Small integers, so that every type represents sums and products of 4 ranks exactly. All comparisons are on the host,
    so that the test covers the library and not PyTorch's kernels."""
    return ((torch.arange(count) + 2 * rank) % 3).to(dtype)


def same(x, want, text):
    import torch
    as_bytes = lambda t: t.contiguous().view(torch.uint8)
    expect(torch.equal(as_bytes(x.cpu()), as_bytes(want.to(x.dtype))), text)


def on_nccl(dist):
    return dist.get_backend() == "nccl"


def reductions(torch, dist, device, dtype, count):
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, count, dtype) for r in range(n)]
    mine = inputs[me].to(device)
    stack = torch.stack([x.double() for x in inputs])
    wanted = {"SUM": stack.sum(0), "PRODUCT": stack.prod(0), "MIN": stack.min(0)[0], "MAX": stack.max(0)[0]}
    if dtype.is_floating_point and on_nccl(dist):
        wanted["AVG"] = stack.mean(0)
    for name, want in wanted.items():
        op = getattr(dist.ReduceOp, name)
        x = mine.clone()
        dist.all_reduce(x, op=op)
        same(x, want, f"all_reduce {name} {dtype}")
        if on_nccl(dist):
            part = torch.empty(count // n, dtype=dtype, device=device)
            dist.reduce_scatter_tensor(part, mine, op=op)
            same(part, want.view(n, -1)[me], f"reduce_scatter {name} {dtype}")
    x = mine.clone()
    dist.reduce(x, n - 1)
    if me == n - 1:
        same(x, wanted["SUM"], f"reduce {dtype}")


def copies(torch, dist, device, dtype, count):
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, count, dtype) for r in range(n)]
    mine, out = inputs[me].to(device), torch.empty(count, dtype=dtype, device=device)
    x = mine.clone()
    dist.broadcast(x, 1)
    same(x, inputs[1], f"broadcast {dtype}")
    everything = torch.empty(n * count, dtype=dtype, device=device)
    dist.all_gather_into_tensor(everything, mine)
    same(everything, torch.cat([i.view(torch.uint8) for i in inputs]).view(dtype), f"all_gather {dtype}")
    pieces = [torch.empty_like(mine) for _ in range(n)]
    dist.all_gather(pieces, mine)
    for r in range(n):
        same(pieces[r], inputs[r], f"all_gather to a list {dtype}")
    if on_nccl(dist):
        dist.all_to_all_single(out, mine)
        same(out, torch.cat([i.view(n, -1)[me].view(torch.uint8) for i in inputs]).view(dtype), f"all_to_all {dtype}")
    left, right = (me - 1) % n, (me + 1) % n
    work = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, out, left)])
    for w in work:
        w.wait()
    same(out, inputs[left], f"send and recv in a batch {dtype}")
    if me == 0:
        dist.send(mine, n - 1)
    elif me == n - 1:
        dist.recv(out, 0)
        same(out, inputs[0], f"send and recv {dtype}")


def others(torch, dist, device):
    """Further calls of frameworks: rooted and uneven collectives, scaled sums, subgroups, several at once."""
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, 4096, torch.float32) for r in range(n)]
    mine = inputs[me].to(device)
    pieces = [torch.empty_like(mine) for _ in range(n)] if me == 1 else None
    dist.gather(mine, pieces, dst=1)
    for r in range(n if me == 1 else 0):
        same(pieces[r], inputs[r], "gather")
    out = torch.empty_like(mine)
    dist.scatter(out, [i.to(device) for i in inputs] if me == 1 else None, src=1)
    same(out, inputs[me], "scatter")
    group = dist.new_group(list(range(n - 1)))         # a split of the first group, without the last rank
    if me < n - 1:
        x = mine.clone()
        dist.all_reduce(x, group=group)
        same(x, sum(inputs[:n - 1]), "all_reduce in a subgroup")
    first, second = dist.new_group(list(range(n))), dist.new_group(list(range(n)))
    a, b = mine.clone(), mine.clone()
    works = [dist.all_reduce(a, group=first, async_op=True), dist.all_reduce(b, group=second, async_op=True)]
    for w in works:
        w.wait()
    same(a, sum(inputs), "all_reduce in one of two groups at once")
    same(b, sum(inputs), "all_reduce in the other")
    if on_nccl(dist):
        uneven(torch, dist, device)


def uneven(torch, dist, device):
    n, me = dist.get_world_size(), dist.get_rank()
    sent = [torch.full((me + p,), float(10 * me + p)) for p in range(n)]
    out = torch.empty(sum(r + me for r in range(n)), device=device)
    dist.all_to_all_single(out, torch.cat(sent).to(device), [r + me for r in range(n)], [me + p for p in range(n)])
    same(out, torch.cat([torch.full((r + me,), float(10 * r + me)) for r in range(n)]), "uneven all_to_all")
    x = torch.full((1000,), float(me)).to(device)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))
    same(x, torch.full((1000,), sum(range(n)) / 2), "all_reduce of scaled inputs")


def coalesced(torch, dist, device):
    """Several calls that PyTorch issues as one group, with parts of unequal size or without elements."""
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, 1000, torch.float32) for r in range(n)]
    many = [inputs[me].to(device) for _ in range(3)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        for x in many:
            dist.all_reduce(x)
    manager.wait()
    for x in many:
        same(x, sum(inputs), "coalesced all_reduce")
    outs = [torch.empty(n * 1000, device=device) for _ in range(2)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        for out in outs:
            dist.all_gather_into_tensor(out, inputs[me].to(device))
    manager.wait()
    for out in outs:
        same(out, torch.cat(inputs), "coalesced all_gather")
    pieces = [torch.empty(10 + r, device=device) for r in range(n)]
    dist.all_gather(pieces, torch.full((10 + me,), float(me)).to(device))
    for r in range(n):
        same(pieces[r], torch.full((10 + r,), float(r)), "all_gather of unequal parts")
    part = torch.empty(10 + me, device=device)
    dist.reduce_scatter(part, [torch.full((10 + r,), float(me)).to(device) for r in range(n)])
    same(part, torch.full((10 + me,), float(sum(range(n)))), "reduce_scatter of unequal parts")
    sizes = [2 if r == 0 else 0 for r in range(n)]          # only rank 0 sends, to all ranks
    out = torch.empty(2, device=device)
    dist.all_to_all_single(out, torch.arange(2 * n if me == 0 else 0).float().to(device), sizes, [2] * n if me == 0 else [0] * n)
    same(out, torch.tensor([2.0 * me, 2.0 * me + 1]), "all_to_all in which only one rank sends")
    received = [torch.empty(r + me, device=device) for r in range(n)]
    dist.all_to_all(received, [torch.full((me + p,), float(me)).to(device) for p in range(n)])
    for r in range(n):
        same(received[r], torch.full((r + me,), float(r)), "all_to_all of lists")
    dist.all_reduce(torch.empty(0, device=device))
    dist.broadcast(torch.empty(0, device=device), 0)
    dist.barrier(device_ids=[device.index])


def beyond(torch, dist, device):
    """Complex numbers, groups that are split off and destroyed."""
    n, me = dist.get_world_size(), dist.get_rank()
    inputs = [input_of(torch, r, 1000, torch.float32) for r in range(n)]
    pairs = torch.view_as_complex(inputs[me].view(-1, 2)).to(device)
    dist.all_reduce(pairs)
    same(torch.view_as_real(pairs.cpu()).flatten(), sum(inputs), "all_reduce of complex numbers")
    half = dist.split_group(split_ranks=[list(range(n // 2)), list(range(n // 2, n))])
    mine = list(range(n // 2)) if me < n // 2 else list(range(n // 2, n))
    x = inputs[me].to(device)
    dist.all_reduce(x, group=half)
    same(x, sum(inputs[r] for r in mine), "all_reduce in a half")
    dist.destroy_process_group(half)
    dist.barrier()


def registered(torch, dist, device):
    """A registered pool of ncclMemAlloc's memory; PyTorch has no such pool if the device lacks multicast."""
    n, me = dist.get_world_size(), dist.get_rank()
    backend = dist.group.WORLD._get_backend(device)
    try:
        pool = torch.cuda.MemPool(backend.mem_allocator)
    except RuntimeError as why:
        print(f"# no pool of memory was registered: {why}", flush=True)
        return
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(1000, device=device)
    x.copy_(input_of(torch, me, 1000, torch.float32))
    backend.register_mem_pool(pool)
    dist.all_reduce(x)
    same(x, sum(input_of(torch, r, 1000, torch.float32) for r in range(n)), "all_reduce in a registered pool")
    backend.deregister_mem_pool(pool)


def with_kernels(torch, dist, device):
    """Calls that need PyTorch's kernels or graphs: objects, a captured group of calls."""
    n, me = dist.get_world_size(), dist.get_rank()
    objects = [{"from": 0, "text": "x" * 3000} if me == 0 else None]
    dist.broadcast_object_list(objects, 0, device=device)
    expect(objects[0]["from"] == 0, "broadcast of an object")
    x, y = torch.zeros(1000, device=device), torch.zeros(n * 1000, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x)
    for times in range(1, 4):
        x.copy_(torch.full((1000,), float(times * (me + 1))))
        graph.replay()
        want = float(times * n * (n + 1) / 2)
        same(x, torch.full((1000,), want), "all_reduce in a graph")
        same(y, torch.full((n * 1000,), want), "all_gather in a graph")


def collectives(torch, dist, device, largest):
    if on_nccl(dist):
        version = ctypes.c_int()        # of the library in use; torch.cuda.nccl.version() is that of PyTorch's header
        expect(ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 22809, f"version {version.value}")
    whole = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float64]
    half = [torch.float16, torch.bfloat16] if on_nccl(dist) else []
    only_copied = [torch.float8_e4m3fn, torch.float8_e5m2] if on_nccl(dist) else []     # PyTorch does not reduce these
    for dtype in whole + half + only_copied:
        for count in sorted({4, 4096, largest}):
            if dtype not in only_copied:
                reductions(torch, dist, device, dtype, count)
            copies(torch, dist, device, dtype, count)
    if on_nccl(dist):
        x = torch.tensor([dist.get_rank() == 1, False]).to(device)
        dist.all_reduce(x)
        same(x, torch.tensor([True, False]), "all_reduce of truth values")
    others(torch, dist, device)
    if on_nccl(dist):
        coalesced(torch, dist, device)
        beyond(torch, dist, device)
        if "fake" not in torch.cuda.get_device_name():
            with_kernels(torch, dist, device)
            registered(torch, dist, device)
    dist.barrier()


def losses(torch, dist, device, group):
    """20 steps of a small CNN on this rank's share of synthetic images; the mean loss of all ranks at each step."""
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


def ddp(torch, dist, device, _):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True)
    ours = losses(torch, dist, device, dist.group.WORLD)
    gloo = losses(torch, dist, device, dist.new_group(backend="gloo"))
    worst = max(abs(a - b) for a, b in zip(ours, gloo))
    if dist.get_rank() == 0:
        print(f"# losses {ours[0]:.6f} .. {ours[-1]:.6f}; the largest difference to gloo's is {worst:.2e}", flush=True)
    expect(worst < 1e-5, f"losses differ from gloo's by {worst}")


def shard(model, mesh):
    """FSDP2 over the mesh's data, Megatron's tensor parallel over its other dimension."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    if mesh["tensor"].size() > 1:
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if mesh["data"].size() > 1:
        for layer in model[0], model[2], model:
            fully_shard(layer, mesh=mesh["data"])


def layout(torch, dist, device, tensor):
    """10 steps; the losses and the parameters as one device would have them; tensor = 0: on one device, without
    communication."""
    from torch import nn
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).to(device)
    data, row = 1, 0
    if tensor:
        data, row = dist.get_world_size() // tensor, dist.get_rank() // tensor
        mesh = dist.device_mesh.init_device_mesh(device.type, (data, tensor), mesh_dim_names=("data", "tensor"))
        shard(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made = torch.Generator().manual_seed(1)
    history = []
    for _ in range(10):
        x = torch.randn(32, 64, generator=made).chunk(data)[row].to(device)
        optimizer.zero_grad()
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if data > 1:
            dist.all_reduce(loss, group=mesh["data"].get_group())
        history.append(loss.item() / data)
    return history, [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().cpu() for p in model.parameters()]


def sharded(torch, dist, device, _):
    n = dist.get_world_size()
    torch.backends.cuda.matmul.allow_tf32 = False
    losses_of_one, of_one = layout(torch, dist, device, 0)
    worst = 0.0
    for tensor in 1, 2, n:
        losses_here, here = layout(torch, dist, device, tensor)
        worst = max([worst] + [abs(a - b) for a, b in zip(losses_here, losses_of_one)] +
                    [(a - b).abs().max().item() for a, b in zip(here, of_one)])
        expect(worst < 1e-5, f"{n // tensor} x {tensor} ranks: losses or parameters differ from one device's by {worst}")
    expect(losses_of_one[-1] < losses_of_one[0], "the loss does not fall")
    if dist.get_rank() == 0:
        print(f"# losses {losses_of_one[0]:.6f} .. {losses_of_one[-1]:.6f}; FSDP2, FSDP2 of tensor parallel, tensor parallel: the "
              f"largest difference to one device is {worst:.2e}", flush=True)


def killed(torch, dist, device, _):
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
    expect(False, "a rank was killed without an error on the others")


def in_use():
    """The files loaded by this process as libnccl."""
    with open("/proc/self/maps") as maps:
        return {os.path.realpath(line.split()[-1]) for line in maps if "/libnccl.so" in line}


def rank(args):
    import torch
    import torch.distributed as dist
    ours = [p for p in args.preload.split(":") if "libnccl" in p]
    if ours:
        expect(os.path.realpath(ours[0]) in in_use(), f"{ours[0]} was not loaded, but {in_use()}: could LD_PRELOAD find it, "
               "and what it needs?")
    device = torch.device("cuda:0" if args.device == "cuda" else "cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    # With a device_id communicators are created at once, and those of subgroups by splits; without, at the first call.
    eager = device if args.backend == "nccl" and args.part == "collectives" else None
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=60), device_id=eager)
    for name in PARTS if args.part == "all" else [args.part]:
        {"collectives": collectives, "ddp": ddp, "sharded": sharded, "killed": killed}[name](torch, dist, device, args.largest)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    arguments = parse()
    sys.exit(rank(arguments) if "RANK" in os.environ else parent(arguments))
