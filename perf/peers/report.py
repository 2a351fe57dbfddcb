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


def tables_of(samples):
    """A table for each case and each of our contenders, whose labels begin with tutti."""
    ours = sorted({s["contender"] for s in samples if s["contender"].startswith("tutti")})
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


def write_csv(path, facts, samples):
    """Samples, behind the facts as lines `# name: text`."""
    with open(path, "w", newline="") as f:
        f.writelines(f"# {name}: {text}\n" for name, text in facts)
        writer = csv.DictWriter(f, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(samples)


def read_csv(path):
    """(facts, samples) of what write_csv wrote."""
    with open(path, newline="") as f:
        lines = f.readlines()
    facts = [tuple(line[2:].strip().split(": ", 1)) for line in lines if line.startswith("# ")]
    samples = list(csv.DictReader(line for line in lines if not line.startswith("# ")))
    for s in samples:
        s.update({k: int(s[k]) for k in ("np", "bytes", "round", "calls")})
        s.update({k: float(s[k]) for k in ("mean_us", "median_us")})
    return facts, samples


def write_markdown(path, facts, tables, picture):
    with open(path, "w") as f:
        f.write("# Tutti beside its peers\n\n")
        f.write("".join(f"- {name}: {text}\n" for name, text in facts))
        f.write("\nMicroseconds a call (median over the rounds), float32 sum, `*` the best peer; then Tutti's time over\n"
                "the best peer's: of the means over all rounds, of the medians, and the quartiles over the rounds; last\n"
                "how far the best peer's own quartiles lie apart. HACKING.md has the method.\n\n")
        f.write("| case | up to 64K | above | behind by more than 5 % at |\n| --- | ---: | ---: | --- |\n")
        for t in tables:
            means = dict((name.split()[0], median) for name, _, median in t.classes())
            cells = [f"{means[c]:.2f}" if c in means else "-" for c in ("up", "above")]
            f.write(f"| {t.title()} | {cells[0]} | {cells[1]} | {', '.join(t.behind()) or 'nowhere'} |\n")
        f.write("\nThat is the geometric mean of the medians' ratios. ")
        f.write(f"![ratios]({os.path.basename(picture)})\n\n" if picture else "\n\n")
        f.write("\n".join(t.markdown() for t in tables))


# ---- picture ----------------------------------------------------------------------------------------------------------

def panel(case, tables):
    """gnuplot's lines for one collective with so many ranks over one transport: a curve a case."""
    np, transport, collective = case
    curves = ["1 with lines lc 'black' notitle"]
    data = ""
    for t in tables:
        place = "in place" if t.case[3] == "in" else "out of place"
        name = f"{place}, {t.case[4]}" + ("" if t.us == "tutti" else f", {t.us}")
        curves.append(f"'-' using 1:2 with lines lw 2 title '{name}'")
        data += "".join(f"{r.size} {r.median}\n" for r in t.rows) + "e\n"
    title = f"{collective}, {transport}, n = {np}".replace("_", "-")
    return f"set title '{title}'\nplot {', '.join(curves)}\n{data}"


def picture_of(path, tables):
    """Ratio over size, a panel a collective; None without gnuplot."""
    panels = {}
    for t in tables:
        panels.setdefault(t.case[:3], []).append(t)
    if not shutil.which("gnuplot") or not panels:
        return None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    script = (f"set terminal svg size {420 * columns},{330 * rows} font 'sans,10' background 'white'\n"
              f"set output '{path}'\nset multiplot layout {rows},{columns}\nset logscale x 2\n"
              "set xtics ('4' 4, '64' 64, '1K' 1024, '16K' 16384, '256K' 262144, '4M' 4194304, '64M' 67108864)\n"
              "set yrange [0:2]\nset ylabel 'time over the best peer'\nset key top right samplen 1\nset grid\n")
    script += "".join(panel(case, ts) for case, ts in panels.items())
    done = subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.PIPE)
    return path if done.returncode == 0 else None
