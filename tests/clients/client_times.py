"""client_times.py [ROUNDS] - times of torch.distributed and LightGBM on two ranks, with Tutti's divided by Gloo's and the sockets'

    PYTHONPATH=bindings/python TUTTI_LIBRARY=.../libtutti.so.0 python3 tests/clients/client_times.py

Gloo and Tutti are two groups of the same processes and take turns, ROUNDS times (5); LightGBM's trainings alternate, each with
processes of its own. A time is the median of the rounds. Called by users, and its results are in docs/results/clients.md.
"""

import os
import statistics
import sys
import time

import jobs

CALLS = ((8, 2000), (4096, 2000), (1 << 20, 100), (64 << 20, 3))   # bytes and calls of a round
GROUPS = "gloo", "tutti"
WIDTH = 1000   # the model has three layers of WIDTH x WIDTH and their biases
ROWS, COLUMNS, TREES = 20000, 30, (20, 100)


def rounds():
    return int(os.environ["TUTTI_TEST_ROUNDS"])


def line(what, theirs, mine, unit):
    theirs, mine = statistics.median(theirs), statistics.median(mine)
    print(f"{what:<32} {theirs:10.4g} {mine:10.4g} {unit:<3} {mine / theirs:6.2f}")


def seconds(work, times):
    """Of one call of work."""
    for _ in range(times // 10 + 1):
        work()
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def in_turn(works, times):
    """The seconds of each work, round by round."""
    taken = [[] for _ in works]
    for _ in range(rounds()):
        for work, column in zip(works, taken):
            column.append(seconds(work, times))
    return taken


def groups():
    """A rank of torch.distributed."""
    import test_pytorch
    import torch
    import torch.distributed as dist
    me, _ = test_pytorch.join("gloo")
    both = [dist.new_group(backend=name) for name in GROUPS]
    for nbytes, times in CALLS:
        data = torch.zeros(nbytes // 4)
        taken = in_turn([lambda group=group: dist.all_reduce(data, group=group) for group in both], times)
        if me == 0:
            line(f"all_reduce of {nbytes} bytes", *([us * 1e6 for us in column] for column in taken), "us")

    def training(group):
        torch.manual_seed(7)
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
        optimizer, batch = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(32, WIDTH)

        def step():
            net(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return step
    taken = in_turn([training(group) for group in both], 20)
    if me == 0:
        line(f"DDP step of {3 * WIDTH * (WIDTH + 1)} parameters", *([s * 1e3 for s in column] for column in taken), "ms")
    dist.barrier()
    os._exit(0)   # the default group is Gloo's, whose end waits for nobody


def trees(network):
    """Trains with the settings that network() gives; prints the seconds, with those of the join."""
    import lightgbm
    import test_lightgbm
    import numpy
    me, n = int(os.environ["TUTTI_RANK"]), int(os.environ["TUTTI_NRANKS"])
    x = numpy.random.default_rng(3).standard_normal((ROWS, COLUMNS))
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
    began = time.perf_counter()
    with network(me, n) as settings:
        settings = {**test_lightgbm.SETTINGS, **settings}
        lightgbm.train(settings, lightgbm.Dataset(x[me::n], y[me::n]), int(os.environ["TUTTI_TEST_TREES"]))
        if me == 0:
            print("seconds", time.perf_counter() - began)


def trees_sockets():
    import contextlib

    import test_lightgbm
    trees(lambda me, n: contextlib.nullcontext(test_lightgbm.machines(me, n)))


def trees_tutti():
    import tutti.lightgbm
    trees(lambda me, n: tutti.lightgbm.network())


def trained(scene, trees):
    statuses, outputs = jobs.finish(jobs.start(scene, 2, TUTTI_TEST_TREES=str(trees)))
    found = [float(text.split()[1]) for text in outputs[0].splitlines() if text.startswith("seconds")]
    if any(statuses) or not found:
        sys.exit("\n".join(outputs))
    return found[0]


def main():
    os.environ["TUTTI_TEST_ROUNDS"] = sys.argv[1] if sys.argv[1:] else "5"
    print(f"{time.strftime('%Y-%m-%d')}, 2 ranks, {rounds()} rounds, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<32} {'usual':>10} {'Tutti':>10}      ratio")
    statuses, outputs = jobs.finish(jobs.start("groups", 2))
    print(outputs[0], end="")
    for n in TREES:
        pairs = [(trained("trees_sockets", n), trained("trees_tutti", n)) for _ in range(rounds())]
        line(f"LightGBM, {n} trees", *zip(*pairs), "s")
    sys.exit(any(statuses))


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdigit():
        globals()[sys.argv[1]]()
    else:
        main()
