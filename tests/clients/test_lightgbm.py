"""test_lightgbm.py - LightGBM trains the same model over Tutti as over its sockets

Called by pytorch.sh. Each rank has every n-th row; the trees of all ranks are compared as text.
"""

import hashlib
import os
import sys

import jobs
import lightgbm
import numpy
import tutti.lightgbm

SETTINGS = {"objective": "binary", "verbose": -1, "tree_learner": "data", "num_threads": 1, "pre_partition": True, "seed": 1}


def rows(me, n):
    numbers = numpy.random.default_rng(3)
    x = numbers.standard_normal((6000, 20))
    return x[me::n], (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)[me::n]


def model(me, n, **settings):
    trees = lightgbm.train({**SETTINGS, **settings}, lightgbm.Dataset(*rows(me, n)), 10).model_to_string()
    print(hashlib.sha256(trees.split("parameters:")[0].encode()).hexdigest())


def machines(me, n):
    """The settings of LightGBM's sockets."""
    port = int(os.environ["TUTTI_ROOT"].split(":")[1])
    return {"num_machines": n, "local_listen_port": port + me,
            "machines": ",".join(f"127.0.0.1:{port + rank}" for rank in range(n))}


def sockets():
    me, n = int(os.environ["TUTTI_RANK"]), int(os.environ["TUTTI_NRANKS"])
    model(me, n, **machines(me, n))


def over_tutti():
    comm = tutti.COMM_WORLD
    with tutti.lightgbm.network(comm) as settings:
        model(comm.rank, comm.size, **settings)


def hashes(scene, n):
    statuses, outputs = jobs.finish(jobs.start(scene, n, TUTTI_TIMEOUT_MS="200000"))
    return sorted({line for text in outputs for line in text.splitlines() if len(line) == 64}), outputs


def test():
    claims = jobs.Claims()
    mine, theirs = hashes("over_tutti", 2), hashes("sockets", 2)
    claims.claim(len(mine[0]) == 1 and mine[0] == theirs[0], "the model of 2 ranks is the one over LightGBM's sockets",
                 mine[1] + theirs[1])
    for n in (3, 4):
        first, again = hashes("over_tutti", n), hashes("over_tutti", n)
        claims.claim(len(first[0]) == 1 and first[0] == again[0], f"the model of {n} ranks is the same from run to run",
                     first[1] + again[1])
    claims.end()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
    else:
        test()
