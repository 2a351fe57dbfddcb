"""numpy_allreduce.py - the sum of an array of each rank"""
import numpy
import tutti

comm = tutti.COMM_WORLD
total = numpy.zeros(4)
comm.Allreduce(numpy.full(4, comm.rank + 1.0), total)
print("sum", total[0])
