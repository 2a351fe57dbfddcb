"""steps.py - sizes that are no powers of two, and addresses within a cache line: the step up over the next power of two

A step is the time of a contender divided by its own time for the next power of two at the begin of a page, in the same
round: the median over the rounds. perf/compare prints the steps if it has measured such sizes or addresses.
"""
import statistics

import report

LIMIT = 1.1


def power_above(size):
    return 1 << (size - 1).bit_length()


def steps_of(samples):
    """{(case, bytes): {contender: median of the steps}}"""
    times = {}
    for s in samples:
        times.setdefault((report.case_of(s), s["bytes"], s["contender"]), {})[s["round"]] = s["median_us"]
    steps = {}
    for (case, size, contender), of_round in times.items():
        at_page = case[:report.CASE.index("offset")] + (0,) + case[report.CASE.index("offset") + 1:]
        there = times.get((at_page, power_above(size), contender), {})
        ratios = [us / there[r] for r, us in of_round.items() if r in there]
        if ratios and (case, size) != (at_page, power_above(size)):
            steps.setdefault((case, size), {})[contender] = statistics.median(ratios)
    return steps


def table(samples):
    """The rows of all steps, first the heads; empty without such sizes and addresses"""
    steps = steps_of(samples)
    contenders = sorted({c for of in steps.values() for c in of}, key=lambda c: (not c.startswith("tutti"), c))
    rows = [["case", "bytes"] + contenders] if steps else []
    for (case, size), of in steps.items():
        cells = [f"{of[c]:.2f}" if c in of else "-" for c in contenders]
        rows.append([report.title_of(case), report.size_name(size)] + cells)
    return rows


def above_limit(samples):
    """Tutti's steps above the limit, as text"""
    found = [f"{report.title_of(case)}: {report.size_name(size)} ({of['tutti']:.2f})"
             for (case, size), of in steps_of(samples).items() if of.get("tutti", 0) > LIMIT]
    return "; ".join(found) or "nowhere"


def text(samples):
    rows = table(samples)
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))] if rows else []
    lines = ["  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths))) for r in rows]
    return "\n".join(["steps over the next power of two", *lines, f"above {LIMIT}: {above_limit(samples)}"]) if rows else ""


def markdown(samples):
    rows = table(samples)
    if not rows:
        return ""
    rows.insert(1, ["---"] + ["---:"] * (len(rows[0]) - 1))
    lines = ["| " + " | ".join(r) + " |" for r in rows]
    return "\n".join(["", "## Steps over the next power of two", "", *lines, "",
                      f"Tutti's steps above {LIMIT}: {above_limit(samples)}.", ""])
