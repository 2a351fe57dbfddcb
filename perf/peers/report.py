"""report.py - ratios of the samples of perf/compare, as text, CSV and Markdown

A sample is one contender's turn in one round. A ratio is Tutti's time divided by the time of the best peer of that size,
the peer with the smallest time. `mean` compares means over the rounds of a turn's mean time. `median` compares medians
over the rounds of a turn's median batch, the figure least affected by other work on the machine. `spread` is the
quartiles, over the rounds, of Tutti's median divided by the best peer's median of the same round. Beside processes that compute, a
median batch says little, since few calls wait for the end of a time slice: there the ratio of means counts.
"""
import csv
import math
import os
import platform
import statistics

from placement import ANYWHERE

SMALL = 64 << 10                # largest size of the lower class of sizes
CASE = ("np", "transport", "collective", "place", "buffers", "offset", "placement", "busy")
LIMITS = {"sockets"}            # contenders that are no libraries: the least that a small message costs
FIELDS = (*CASE, "bytes", "round", "contender", "calls", "mean_us", "median_us")


def size_name(size):
    for unit, suffix in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def case_of(sample):
    return tuple(sample[f] for f in CASE)


def title_of(case):
    np, transport, collective, place, buffers, offset, placement, busy = case
    return (f"{collective}, {transport}, n = {np}, {'in place' if place == 'in' else 'out of place'}, buffers {buffers}"
            + (f", {offset} bytes after a page" if offset else "") + ("" if placement == ANYWHERE else f", {placement}")
            + (f", busy {busy}" if busy else ""))


def us_text(us):
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def quartiles(values):
    if len(values) < 4:
        return min(values), max(values)
    q = statistics.quantiles(values, n=4)
    return q[0], q[2]


class Row:
    """One size of a table. times[contender][round]: median_us; means[contender]: mean of mean_us over the rounds; us: the
    times to show; ratio: the ratio of those."""

    def __init__(self, size, times, means, us, peers, busy):
        medians = {c: statistics.median(t.values()) for c, t in times.items()}
        self.size, self.us = size, means if busy else medians
        self.best = min(peers, key=self.us.get)
        self.mean = means[us] / min(means[c] for c in peers)
        self.median = medians[us] / medians[self.best]
        self.ratio = self.mean if busy else self.median
        both = times[us].keys() & times[self.best].keys()
        self.spread = quartiles([times[us][r] / times[self.best][r] for r in both])
        best = sorted(times[self.best].values())
        low, high = quartiles(best)
        self.noise = high / low


def geometric(ratios):
    return math.exp(statistics.fmean(math.log(r) for r in ratios)) if ratios else None


class Table:
    """All sizes of one case, for one setting of Tutti."""

    def __init__(self, case, us, samples, ours):
        self.case, self.us = case, us
        here = {s["contender"] for s in samples} - set(ours)
        self.peers, limits = sorted(here - LIMITS), sorted(here & LIMITS)
        self.rows = []
        for size in sorted({s["bytes"] for s in samples}):
            times, means = {}, {}
            for s in samples:
                if s["bytes"] == size:
                    times.setdefault(s["contender"], {})[s["round"]] = s["median_us"]
                    means.setdefault(s["contender"], []).append(s["mean_us"])
            peers = [p for p in self.peers if times.get(p, {}).keys() & times.get(us, {}).keys()]
            if peers:
                means = {c: statistics.fmean(values) for c, values in means.items()}
                self.rows.append(Row(size, times, means, us, peers, case[-1]))
        self.shown = [us] + self.peers + limits

    def title(self):
        return title_of(self.case) + ("" if self.us == "tutti" else f", {self.us}")

    def head(self):
        return ["bytes"] + self.shown + ["mean", "median", "spread", "peer's own"]

    def cells(self):
        for r in self.rows:
            times = [us_text(r.us[c]) + ("*" if c == r.best else "") if c in r.us else "-" for c in self.shown]
            yield [size_name(r.size)] + times + [f"{r.mean:.2f}", f"{r.median:.2f}",
                                                 f"{r.spread[0]:.2f}-{r.spread[1]:.2f}", f"{r.noise:.2f}"]

    def classes(self):
        """(name, geometric mean of the ratios of means, of the ratios of medians) for each class of sizes"""
        for name, rows in ((f"up to {size_name(SMALL)}", [r for r in self.rows if r.size <= SMALL]),
                           (f"above {size_name(SMALL)}", [r for r in self.rows if r.size > SMALL]), ("all", self.rows)):
            if rows:
                yield name, geometric([r.mean for r in rows]), geometric([r.median for r in rows])

    def behind(self):
        """Sizes with a ratio above 1.05, by peer: "openmpi: 4 (1.06), 16 (1.37); mpich: 1M (1.10)"."""
        sizes = {}
        for r in self.rows:
            if r.ratio > 1.05:
                sizes.setdefault(r.best, []).append(f"{size_name(r.size)} ({r.ratio:.2f})")
        return "; ".join(f"{peer}: {', '.join(s)}" for peer, s in sizes.items()) or "nowhere"

    def text(self):
        rows = [self.head()] + list(self.cells())
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = [self.title()] + ["  " + "  ".join(c.rjust(w) for c, w in zip(r, widths)) for r in rows]
        lines += [f"  geometric mean {name}: {mean:.3f} of means, {median:.3f} of medians"
                  for name, mean, median in self.classes()]
        lines.append("  behind by more than 5 %: " + self.behind())
        return "\n".join(lines) + "\n"

    def markdown(self):
        rows = [self.head(), ["---:"] * len(self.head())] + list(self.cells())
        lines = [f"## {self.title()}", ""] + ["| " + " | ".join(r) + " |" for r in rows] + [""]
        lines += ["Geometric mean of the ratios: " + "; ".join(f"{name} {mean:.2f} (medians {median:.2f})"
                                                             for name, mean, median in self.classes()) + ". "
                  "Behind by more than 5 %: " + self.behind() + "."]
        return "\n".join(lines) + "\n"


def tables_of(samples):
    """A table for each case and each setting of Tutti, whose label begins with tutti."""
    ours = sorted({s["contender"] for s in samples if s["contender"].startswith("tutti")})
    cases = dict.fromkeys(case_of(s) for s in samples)
    for case in cases:
        mine = [s for s in samples if case_of(s) == case]
        for us in ours:
            table = Table(case, us, mine, ours)
            if table.rows:
                yield table


# ---- files ------------------------------------------------------------------------------------------------------------

def first_match(path, key):
    with open(path) as f:
        for line in f:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return "?"


def machine():
    caches = []
    for i in range(5):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{i}"
        if os.path.exists(folder):
            read = {name: open(f"{folder}/{name}").read().strip() for name in ("level", "type", "size")}
            if read["type"] != "Instruction":
                caches.append(f"L{read['level']} {read['size']}")
    memory = int(first_match("/proc/meminfo", "MemTotal").split()[0]) >> 20
    return (f"{first_match('/proc/cpuinfo', 'model name')}, {len(os.sched_getaffinity(0))} cores, "
            f"{', '.join(caches)}, {memory} GiB, Linux {'.'.join(platform.release().split('.')[:2])}")


def write_csv(path, facts, samples):
    """Write the facts as lines `# name: text`, then the samples."""
    with open(path, "w", newline="") as f:
        f.writelines(f"# {name}: {text}\n" for name, text in facts)
        writer = csv.DictWriter(f, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(samples)


def read_csv(path):
    """(facts, samples) of a file of write_csv"""
    with open(path, newline="") as f:
        lines = f.readlines()
    facts = [tuple(line[2:].strip().split(": ", 1)) for line in lines if line.startswith("# ")]
    samples = list(csv.DictReader(line for line in lines if not line.startswith("# ")))
    for s in samples:
        s.setdefault("placement", ANYWHERE)     # files of earlier versions
        s.setdefault("busy", 0)
        s.setdefault("offset", 0)
        s.update({k: int(s[k]) for k in ("np", "offset", "busy", "bytes", "round", "calls")})
        s.update({k: float(s[k]) for k in ("mean_us", "median_us")})
    return facts, samples


INTRODUCTION = """
Times are microseconds per call, float32 sum, median over the rounds; `*` marks the best peer. The last columns of a table:
`mean`, Tutti's mean time over all rounds divided by the best peer's; `median`, the same ratio of medians; `spread`, the
quartiles of that ratio over the rounds; `peer's own`, the ratio of the best peer's upper to its lower quartile. The method is
in `perf/compare --help`. `perf/compare --plot docs/results/compare.md compare.svg` plots the ratios over the sizes, as
`make html` does for this page.

The first table has the geometric means of the ratios of medians, for sizes up to 64K and above. `busy 1` is a case with one
other process that computes: its times and ratios are of means.

"""


def write_markdown(path, facts, tables):
    with open(path, "w") as f:
        f.write("# Tutti compared with its peers\n\n")
        f.write("".join(f"- {name}: {text}\n" for name, text in facts))
        f.write(INTRODUCTION)
        f.write("| case | up to 64K | above | behind by more than 5 % at |\n| --- | ---: | ---: | --- |\n")
        for t in tables:
            means = dict((name.split()[0], mean if t.case[-1] else median) for name, mean, median in t.classes())
            cells = [f"{means[c]:.2f}" if c in means else "-" for c in ("up", "above")]
            f.write(f"| {t.title()} | {cells[0]} | {cells[1]} | {t.behind()} |\n")
        f.write("\n")
        f.write("\n".join(t.markdown() for t in tables))
