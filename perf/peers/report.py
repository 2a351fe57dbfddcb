"""report.py - what the samples of perf/compare say: ratios with their spread, as text, CSV, Markdown and a plot

A sample is one contender's turn in one round. Ratios are taken to the best peer of that size: the one whose figure is
smallest. `mean` compares means over the rounds of a turn's mean; `median` medians over the rounds of a turn's median
batch, which other work on the machine moves least; the spread is the quartiles over the rounds of Tutti's median over
that peer's in the same round.
"""
import csv
import math
import os
import platform
import shutil
import statistics
import subprocess

SMALL = 64 << 10                # up to here one class of sizes, above it the other
FIELDS = ("np", "transport", "collective", "place", "buffers", "bytes", "round", "contender", "calls", "mean_us",
          "median_us")


def size_name(size):
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def us_text(us):
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def quartiles(values):
    if len(values) < 4:
        return min(values), max(values)
    q = statistics.quantiles(values, n=4)
    return q[0], q[2]


class Row:
    """One size of a table: ours beside the best of the peers. times: contender to round to median_us; means: of mean_us."""

    def __init__(self, size, times, means, us, peers):
        self.size, self.medians = size, {c: statistics.median(t.values()) for c, t in times.items()}
        self.best = min(peers, key=lambda c: self.medians[c])
        self.mean = means[us] / min(means[c] for c in peers)
        self.median = self.medians[us] / self.medians[self.best]
        both = times[us].keys() & times[self.best].keys()
        self.spread = quartiles([times[us][r] / times[self.best][r] for r in both])
        best = sorted(times[self.best].values())
        low, high = quartiles(best)
        self.noise = high / low


def geometric(ratios):
    return math.exp(statistics.fmean(math.log(r) for r in ratios)) if ratios else None


class Table:
    """All sizes of one collective in one case, for one of our contenders."""

    def __init__(self, case, us, samples, ours):
        self.case, self.us = case, us
        self.peers = sorted({s["contender"] for s in samples} - set(ours))
        self.rows = []
        for size in sorted({s["bytes"] for s in samples}):
            times, means = {}, {}
            for s in samples:
                if s["bytes"] == size:
                    times.setdefault(s["contender"], {})[s["round"]] = s["median_us"]
                    means.setdefault(s["contender"], []).append(s["mean_us"])
            peers = [p for p in self.peers if p in times]
            if us in times and peers:
                means = {c: statistics.fmean(values) for c, values in means.items()}
                self.rows.append(Row(size, times, means, us, peers))
        self.shown = [us] + self.peers

    def title(self):
        np, transport, collective, place, buffers = self.case
        return (f"{collective}, {transport}, n = {np}, {'in place' if place == 'in' else 'out of place'}, "
                f"buffers {buffers}" + ("" if self.us == "tutti" else f", {self.us}"))

    def head(self):
        return ["bytes"] + self.shown + ["mean", "median", "spread", "peer's own"]

    def cells(self):
        for r in self.rows:
            times = [us_text(r.medians[c]) + ("*" if c == r.best else "") if c in r.medians else "-" for c in self.shown]
            yield [size_name(r.size)] + times + [f"{r.mean:.2f}", f"{r.median:.2f}",
                                                 f"{r.spread[0]:.2f}-{r.spread[1]:.2f}", f"{r.noise:.2f}"]

    def classes(self):
        """(name, geometric mean of the means' ratios, of the medians')"""
        for name, rows in ((f"up to {size_name(SMALL)}", [r for r in self.rows if r.size <= SMALL]),
                           (f"above {size_name(SMALL)}", [r for r in self.rows if r.size > SMALL]), ("all", self.rows)):
            if rows:
                yield name, geometric([r.mean for r in rows]), geometric([r.median for r in rows])

    def behind(self):
        return [f"{size_name(r.size)} ({r.median:.2f} of {r.best})" for r in self.rows if r.median > 1.05]

    def text(self):
        rows = [self.head()] + list(self.cells())
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = [self.title()] + ["  " + "  ".join(c.rjust(w) for c, w in zip(r, widths)) for r in rows]
        lines += [f"  geometric mean {name}: {mean:.3f} of means, {median:.3f} of medians"
                  for name, mean, median in self.classes()]
        lines.append("  behind by more than 5 %: " + (", ".join(self.behind()) or "nowhere"))
        return "\n".join(lines) + "\n"

    def markdown(self):
        rows = [self.head(), ["---:"] * len(self.head())] + list(self.cells())
        lines = [f"## {self.title()}", ""] + ["| " + " | ".join(r) + " |" for r in rows] + [""]
        lines += ["Geometric mean of the ratios: " + "; ".join(f"{name} {mean:.2f} (medians {median:.2f})"
                                                             for name, mean, median in self.classes()) + ". "
                  "Behind by more than 5 %: " + (", ".join(self.behind()) or "nowhere") + "."]
        return "\n".join(lines) + "\n"


def tables_of(samples, ours):
    cases = dict.fromkeys(tuple(s[f] for f in FIELDS[:5]) for s in samples)
    for case in cases:
        mine = [s for s in samples if tuple(s[f] for f in FIELDS[:5]) == case]
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


def write_csv(path, samples):
    with open(path, "w", newline="") as f:
        writer = csv.DictWriter(f, FIELDS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(samples)


def write_markdown(path, facts, tables, plot):
    with open(path, "w") as f:
        f.write("# Tutti beside its peers\n\n")
        f.write("".join(f"- {name}: {text}\n" for name, text in facts))
        f.write("\nMicroseconds a call (median over the rounds), float32 sum, `*` the best peer; then Tutti's time over "
                "the best peer's: of the means over all rounds, of the medians, and the quartiles over the rounds; last "
                "how far the best peer's own quartiles lie apart. HACKING.md has the method.\n\n")
        if plot:
            f.write(f"![ratios]({os.path.basename(plot)})\n\n")
        f.write("\n".join(t.markdown() for t in tables))


def plot(path, tables):
    """Ratio over size, a curve a table; None without gnuplot."""
    if not shutil.which("gnuplot") or not tables:
        return None
    curves = ", ".join(f"'-' using 1:2 with linespoints title '{t.title()}'" for t in tables)
    data = "".join("".join(f"{r.size} {r.median}\n" for r in t.rows) + "e\n" for t in tables)
    script = (f"set terminal svg size 900,{420 + 18 * len(tables)} background 'white'\nset output '{path}'\n"
              "set logscale x 2\nset format x '%.0b%B'\nset xlabel 'bytes'\nset yrange [0:*]\n"
              "set ylabel 'time over the best peer'\nset key below left Left reverse maxcols 1\nset grid\n"
              f"plot 1 with lines lc 'black' title 'as fast as the best peer', {curves}\n{data}")
    done = subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.PIPE)
    return path if done.returncode == 0 else None
