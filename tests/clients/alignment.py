"""alignment.py TAXA SITES FOLDER - FOLDER/x.phy, DNA sequences evolved along a random tree, and start.tree, another tree

Called by mpi_apps.sh and mpi_times.sh, for ExaML. The files are the same from run to run.
"""

import random
import sys


def grow(names, numbers):
    """A tree of three branches; each branch is a name or a pair of branches."""
    branches = list(names)
    while len(branches) > 3:
        pair = tuple(branches.pop(numbers.randrange(len(branches))) for _ in range(2))
        branches.append(pair)
    return branches


def newick(tree):
    return tree if isinstance(tree, str) else "(" + ",".join(map(newick, tree)) + ")"


def evolve(tree, sequence, numbers, sequences):
    """A tenth of the bases is drawn again on each branch."""
    sequence = [numbers.choice("ACGT") if numbers.random() < 0.1 else base for base in sequence]
    if isinstance(tree, str):
        sequences[tree] = "".join(sequence)
        return
    for branch in tree:
        evolve(branch, sequence, numbers, sequences)


def main(taxa, sites, folder):
    numbers = random.Random(1)
    names, sequences = [f"taxon{i}" for i in range(taxa)], {}
    evolve(grow(names, numbers), numbers.choices("ACGT", k=sites), numbers, sequences)
    with open(f"{folder}/x.phy", "w", encoding="ascii") as f:
        print(taxa, sites, file=f)
        print(*(f"{name} {sequences[name]}" for name in names), sep="\n", file=f)
    with open(f"{folder}/start.tree", "w", encoding="ascii") as f:
        print(newick(grow(names, numbers)), end=";\n", file=f)


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
