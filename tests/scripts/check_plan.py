#!/usr/bin/env python3
"""check_plan.py - a plan checker that is independent of the library, except for the JSON format

Reads one or more outputs of `tutti plan ALGO --np N --print json` and executes the steps of all ranks on symbolic
expressions: first out of place, then in place. Checks that every block of out holds the result of the collective, every
contribution once, with the same expression on all ranks; that no unwritten block is read; that no message is left; and that
the plan ends with at most one message at a time between two ranks in a lane. lib/verify/print_json.c describes the format.

usage: check_plan.py [FILE...]      exit 0 all right, 1 a plan is wrong, 2 cannot be read
"""
import json
import random
import re
import sys
from collections import Counter

ROOTED_IN = ("broadcast", "scatter")
ROOTED_OUT = ("reduce", "gather")
COMBINED = ("allreduce", "reduce", "reduce_scatter")


class Wrong(Exception):
    pass


class Value:
    """A leaf (rank, block) or a combination; text is the expression, leaves counts the leaves in the expression."""

    def __init__(self, text, leaves):
        self.text, self.leaves = text, leaves


PASSED = Value("passed on", Counter())


def combine(values):
    if len(values) == 1:
        return values[0]
    leaves = Counter()
    for v in values:
        leaves.update(v.leaves)
    return Value("(" + "+".join(v.text for v in values) + ")", leaves)


class Rank:
    def __init__(self, plan, in_place):
        self.plan, self.rank = plan, plan["rank"]
        self.gives_in = plan["collective"] not in ROOTED_IN or self.rank == plan["root"]
        self.gives_out = plan["collective"] not in ROOTED_OUT or self.rank == plan["root"]
        self.in_place = in_place and self.gives_in and self.gives_out
        self.memory = {}
        self.unsent = {}                         # lane -> message of a step that has received, but cannot send yet
        self.at = [0] * len(plan["lanes"])       # index in the list of steps
        self.done = [-1] * len(plan["lanes"])    # number of the last finished step
        for b in range(plan["in_blocks"] if self.gives_in else 0):
            self.memory[self.cell("in", b)] = Value("%d.%d" % (self.rank, b), Counter([(self.rank, b)]))

    def cell(self, buf, block):
        """The memory of a block; in place, some blocks of in and out are the same memory."""
        p = self.plan
        size = {"in": p["in_blocks"], "out": p["out_blocks"], "scratch": p["scratch_blocks"]}[buf]
        if not 0 <= block < size or (buf == "in" and not self.gives_in) or (buf == "out" and not self.gives_out):
            raise Wrong("rank %d has no block %s[%d]" % (self.rank, buf, block))
        if self.in_place and buf == "in":
            if p["collective"] in ("allgather", "gather"):
                return ("out", self.rank)
            if p["collective"] in ("reduce_scatter", "scatter"):
                return ("out", 0) if block == self.rank else ("in", block)
            return ("out", block)
        return (buf, block)

    def step(self, lane):
        steps = self.plan["lanes"][lane]["steps"]
        return steps[self.at[lane]] if self.at[lane] < len(steps) else None


def length_class(plan, ref):
    return ref["block"] % plan["nblocks"] if plan["rule"] == "even" else 0


class World:
    def __init__(self, plans, in_place):
        self.ranks = [Rank(p, in_place) for p in plans]
        self.wires = {}                          # (from, to, lane) -> (class, values) in flight

    def can_run(self, r, lane, s):
        if s["wait"] and r.done[s["wait"]["lane"]] < s["wait"]["step"]:
            return False
        return all((p, r.rank, lane) in self.wires for p in s["from"])

    def run(self, r, lane, s):
        where = "rank %d lane %d step %d" % (r.rank, lane, s["step"])
        wires = [src["wire"] for src in s["srcs"] if "wire" in src]
        if wires != s["from"]:
            raise Wrong(where + ": from is not the list of its wires")
        messages = {p: self.wires.pop((p, r.rank, lane)) for p in wires}
        refs = [x for x in s["srcs"] + [s["dst"]] if x and "buf" in x]
        classes = {length_class(r.plan, x) for x in refs} | {m[0] for m in messages.values()}
        if s["srcs"] and len(classes) != 1:
            raise Wrong(where + ": operands of different length")
        results = []
        for k in range(s["nblocks"]):
            values = []
            for src in s["srcs"]:
                if "wire" in src:
                    if len(messages[src["wire"]][1]) != s["nblocks"]:
                        raise Wrong(where + ": a message of another number of blocks")
                    values.append(messages[src["wire"]][1][k])
                    continue
                value = r.memory.get(r.cell(src["buf"], src["block"] + k))
                if value is None or value is PASSED:
                    raise Wrong(where + ": reads %s[%d], which holds nothing" % (src["buf"], src["block"] + k))
                values.append(value)
            results.append(combine(values) if values else None)
        if s["dst"]:
            if s["dst"]["buf"] == "in":
                raise Wrong(where + ": writes in")
            for k, value in enumerate(results):
                r.memory[r.cell(s["dst"]["buf"], s["dst"]["block"] + k)] = PASSED if s["passing"] else value
        if s["to"] is not None:
            r.unsent[lane] = (classes.pop(), results)

    def go(self):
        """Executes all steps in a random order."""
        lanes = [(r, lane) for r in self.ranks for lane in range(len(r.at))]
        while lanes:
            random.shuffle(lanes)
            moved = False
            for r, lane in lanes:
                s = r.step(lane)
                while s is not None:
                    if lane not in r.unsent:
                        if not self.can_run(r, lane, s):
                            break
                        self.run(r, lane, s)
                        moved = True
                    if lane in r.unsent:
                        if (r.rank, s["to"], lane) in self.wires:
                            break
                        self.wires[(r.rank, s["to"], lane)] = r.unsent.pop(lane)
                        moved = True
                    r.done[lane] = s["step"]
                    r.at[lane] += 1
                    s = r.step(lane)
            lanes = [(r, lane) for r, lane in lanes if r.step(lane) is not None]
            if lanes and not moved:
                r, lane = lanes[0]
                raise Wrong("deadlock: rank %d lane %d cannot run step %d" % (r.rank, lane, r.step(lane)["step"]))
        if self.wires:
            raise Wrong("the message from rank %d to %d in lane %d is never received" % next(iter(self.wires)))


def promised(plan, block):
    """The contributions that a block of out must have."""
    c, n, rank, root = plan["collective"], plan["nranks"], plan["rank"], plan["root"]
    if c in COMBINED:
        return [(r, rank if c == "reduce_scatter" else block) for r in range(n)]
    return [{"broadcast": (root, block), "scatter": (root, rank), "alltoall": (block, rank)}.get(c, (block, 0))]


def check(plans, in_place):
    world = World(plans, in_place)
    world.go()
    expressions = {}
    for r in world.ranks:
        for b in range(r.plan["out_blocks"] if r.gives_out else 0):
            value = r.memory.get(r.cell("out", b))
            if value is None or value.leaves != Counter(promised(r.plan, b)):
                raise Wrong("rank %d: out[%d] is %s" % (r.rank, b, value.text if value else "never written"))
            if r.plan["collective"] == "allreduce" and expressions.setdefault(b, value.text) != value.text:
                raise Wrong("rank %d: out[%d] is %s, elsewhere %s" % (r.rank, b, value.text, expressions[b]))


def documents(text):
    decoder, space, at = json.JSONDecoder(), re.compile(r"\s*"), 0
    while (at := space.match(text, at).end()) < len(text):
        document, at = decoder.raw_decode(text, at)
        yield document


def main():
    random.seed(1)
    good = bad = 0
    files = [open(name) for name in sys.argv[1:]] or [sys.stdin]
    for f in files:
        for plans in documents(f.read()):
            what = "%s %s of %d ranks" % (plans[0]["algorithm"], plans[0]["collective"], plans[0]["nranks"])
            try:
                if [p["rank"] for p in plans] != list(range(plans[0]["nranks"])):
                    raise Wrong("the plans are not those of all ranks in order")
                check(plans, False)
                if plans[0]["collective"] != "alltoall":
                    check(plans, True)
                good += 1
            except Wrong as wrong:
                print("%s, root %d: %s" % (what, plans[0]["root"], wrong))
                bad += 1
    print("%d plans right, %d wrong" % (good, bad))
    return 1 if bad or not good else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        print("check_plan.py: not the JSON of plans: %s: %s" % (type(error).__name__, error), file=sys.stderr)
        sys.exit(2)
