"""trees.py - LightGBM trains in parallel, each rank with a part of the rows"""
import lightgbm
import numpy
import tutti.lightgbm

comm = tutti.COMM_WORLD
x = numpy.random.default_rng(1).standard_normal((3000, 4))
y = x[:, 0] + x[:, 1] > 0
mine = slice(comm.rank, None, comm.size)
with tutti.lightgbm.network() as settings:
    settings.update(objective="binary", tree_learner="data", pre_partition=True, verbose=-1)
    trees = lightgbm.train(settings, lightgbm.Dataset(x[mine], y[mine]), 50)
print(f"{numpy.mean((trees.predict(x) > 0.5) == y):.1f} of the rows are right")
