#!/usr/bin/env python3
"""draw.py - the pictures of README: a plan as time lines of ranks, and ratios from a results page

    draw.py plan <plan.json >ring.svg            plan.json: tutti plan ring --np 4 --print json
    draw.py ratios compare-xeon.md >ratios.svg   the tables of docs/results/compare-xeon.md

The same input gives the same bytes: tests/scripts/check_docs.sh compares the files of the tree.
"""
import json
import math
import re
import sys

COLORS = ["#0b6e99", "#c2571a", "#4b7f2c", "#8a3ffc", "#b8860b", "#444444"]


def text(x, y, words, size=12, anchor="middle", color="#222", extra=""):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{color}"{extra}>{words}</text>'


def svg(width, height, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="system-ui, sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n')
    return head + "\n".join(parts) + "\n</svg>\n"


def plan(ranks):
    """A column a rank, a row a step; an arrow for each message, with the block that it carries."""
    column, row, left, top = 150, 54, 90, 50
    steps = max(len(lane["steps"]) for rank in ranks for lane in rank["lanes"])
    n, parts = len(ranks), []
    parts.append('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                 '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>')
    def at(rank, step):
        return left + rank * column + column / 2, top + 30 + step * row
    for r in range(n):
        x, y = at(r, 0)
        parts.append(text(x, top - 16, f"rank {r}", 14, extra=' font-weight="600"'))
        parts.append(f'<line x1="{x:g}" y1="{top}" x2="{x:g}" y2="{at(r, steps)[1] - 20:g}" stroke="#ccc"/>')
    for rank in ranks:
        r = rank["rank"]
        for step in (s for lane in rank["lanes"] for s in lane["steps"]):
            x, y = at(r, step["step"])
            block = step["dst"]["block"] if step["dst"] else step["srcs"][0].get("block")
            reduces = "reduce" in step["op"]
            if step["to"] is not None:
                to_x, to_y = at(step["to"], step["step"] + 1)
                if abs(step["to"] - r) == 1:
                    parts.append(f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y - 13:g}" stroke="#555" marker-end="url(#tip)"/>')
                else:
                    side = at(n - 1, 0)[0] + column * .45 if step["to"] < r else left
                    other = left - 4 if step["to"] < r else at(n - 1, 0)[0] + column * .45
                    parts.append(f'<line x1="{x:g}" y1="{y:g}" x2="{side:g}" y2="{y + (to_y - y) * .35:g}" stroke="#555"/>')
                    parts.append(f'<line x1="{other:g}" y1="{y + (to_y - y) * .35:g}" x2="{to_x:g}" y2="{to_y - 13:g}" '
                                 'stroke="#555" marker-end="url(#tip)"/>')
            color = COLORS[block % len(COLORS)]
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="12" fill="{color if reduces else "white"}" stroke="{color}" stroke-width="2"/>')
            parts.append(text(x, y + 4, str(block), 12, color="white" if reduces else color))
    y = at(0, steps)[1] + 2
    parts.append(text(left - 60, y, f"{ranks[0]['algorithm']} allreduce, n = {n}. A circle is a step, its number a block. Filled: the rank "
                                    "combines the received block.", 12, "start", "#555"))
    parts.append(text(left - 60, y + 18, "Hollow: the rank sends or stores the block. An arrow is a message.", 12, "start", "#555"))
    return svg(left * 2 + n * column - 60, int(y + 30), parts)


def tables(path):
    """Heading -> [(bytes, ratio of medians)] of each table of the page; the ratio is the third column from the right."""
    found, heading = {}, None
    for line in open(path):
        if line.startswith("## "):
            heading = line[3:].strip()
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        size = re.fullmatch(r"(\d+)([KMG]?)", cells[0])
        if line.startswith("|") and size and heading:
            found.setdefault(heading, []).append((int(size[1]) << 10 * " KMG".index(size[2] or " "), float(cells[-3])))
    return found


def ratios(path):
    width, height, left, top, right = 820, 340, 60, 30, 190
    lines = []
    for heading, rows in tables(path).items():
        match = re.fullmatch(r"allreduce, (shm|tcp), n = (\d+), out of place, buffers rewritten(, one core|, two cores)?", heading)
        if match:
            lines.append((f"{match[1]}, n = {match[2]}{match[3] or ''}", rows))
    most = max(b for _, points in lines for b, _ in points)
    def x(size):
        return left + (width - left - right) * math.log2(size / 4) / math.log2(most / 4)
    def y(ratio):
        return top + (height - top - 50) * (1 - math.log2(ratio / .25) / math.log2(2 / .25))
    parts = []
    for ratio in (.25, .5, 1, 2):
        parts.append(f'<line x1="{left}" y1="{y(ratio):.1f}" x2="{width - right}" y2="{y(ratio):.1f}" '
                     f'stroke="{"#222" if ratio == 1 else "#ddd"}"/>')
        parts.append(text(left - 8, y(ratio) + 4, f"{ratio:g}", anchor="end"))
    size = 4
    while size <= most:
        parts.append(text(x(size), height - 30, f"{size >> 20}M" if size >> 20 else f"{size >> 10}K" if size >> 10 else f"{size}"))
        size *= 16
    parts.append(text(left, 18, "allreduce, out of place: Tutti's time / the fastest other library's, by bytes (below 1: Tutti is faster)",
                      12, "start"))
    for i, (name, points) in enumerate(lines):
        color = COLORS[(2, 4, 8).index(int(re.search(r"n = (\d+)", name)[1]))]
        dash = "5,4" if name.startswith("tcp") else "2,3" if name.endswith("two cores") else ""
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        path_of = " ".join(f"{x(b):.1f},{y(min(max(r, .25), 2)):.1f}" for b, r in points)
        parts.append(f'<polyline points="{path_of}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        parts.append(f'<line x1="{width - right + 12}" y1="{60 + 22 * i}" x2="{width - right + 38}" y2="{60 + 22 * i}" stroke="{color}" stroke-width="2"{dash}/>')
        parts.append(text(width - right + 44, 64 + 22 * i, name, anchor="start"))
    return svg(width, height, parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["plan"]:
        sys.stdout.write(plan(json.load(sys.stdin)))
    elif len(sys.argv) == 3 and sys.argv[1] == "ratios":
        sys.stdout.write(ratios(sys.argv[2]))
    else:
        sys.exit(__doc__.strip())
