"""plot.py - draws the tables of a page of perf/compare (docs/results/compare.md) as an SVG file

Called by `perf/compare --plot`. A panel is one collective, one transport and one number of ranks; a curve is one table: the
column `median` (`mean` beside busy neighbors), Tutti's time divided by the best peer's, over the size. The same page gives the
same file, byte by byte.
"""
import math
import re

WIDTH, HEIGHT, COLUMNS = 420, 300, 3            # of a panel; panels per row
LEFT, RIGHT, TOP, BOTTOM = 50, 410, 30, 260     # of the axes, within a panel
LOWEST, HIGHEST, MOST = 2, 27, 2                # log2 of the sizes; largest ratio
COLORS = ("#c33", "#36c", "#393", "#c80", "#849", "#088")
TITLE = re.compile(r"## (\w+), (\w+), n = (\d+), (.*)")


def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] if text[-1] in "KMG" else int(text)


def read_page(path):
    """{panel's title: [(curve's name, [(bytes, ratio)])]}, in the order of the page"""
    panels, points, column = {}, None, None
    with open(path) as f:
        for line in f:
            title = TITLE.match(line)
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if title:
                collective, transport, n, name = title.groups()
                points, column = [], None
                panels.setdefault(f"{collective}, {transport}, n = {n}", []).append((name, points))
            elif points is not None and cells[0] == "bytes":
                column = cells.index("mean" if ", busy" in name else "median")
            elif column and re.fullmatch(r"\d+[KMG]?", cells[0]):
                points.append((bytes_of(cells[0]), float(cells[column])))
    return panels


def place(size, ratio):
    x = LEFT + (math.log2(size) - LOWEST) / (HIGHEST - LOWEST) * (RIGHT - LEFT)
    return x, BOTTOM - min(ratio, MOST) / MOST * (BOTTOM - TOP)


def axes(title):
    yield f'<text x="{(LEFT + RIGHT) // 2}" y="18" text-anchor="middle" font-weight="bold">{title}</text>'
    for name in ("4", "64", "1K", "16K", "256K", "4M", "64M"):
        x = place(bytes_of(name), 0)[0]
        yield f'<path d="M{x:.1f} {TOP}V{BOTTOM}"/><text x="{x:.1f}" y="{BOTTOM + 14}" text-anchor="middle">{name}</text>'
    for ratio in (0, 0.5, 1, 1.5, 2):
        y = place(4, ratio)[1]
        stroke = ' stroke="black"' if ratio == 1 else ""
        yield f'<path d="M{LEFT} {y:.1f}H{RIGHT}"{stroke}/><text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{ratio:g}</text>'


def curves(tables):
    for i, (name, points) in enumerate(tables):
        color = COLORS[i % len(COLORS)]
        line = " ".join("{:.1f},{:.1f}".format(*place(*p)) for p in points)
        yield f'<polyline points="{line}" stroke="{color}" stroke-width="2"/>'
        yield f'<text x="{RIGHT - 4}" y="{TOP + 12 + 12 * i}" text-anchor="end" fill="{color}">{name}</text>'


def write_svg(path, panels):
    columns, rows = min(COLUMNS, len(panels)), -(-len(panels) // COLUMNS)
    with open(path, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * columns} {HEIGHT * rows + 20}" '
                'font-family="sans-serif" font-size="10">\n<title>Tutti\'s time divided by the best peer\'s, over bytes'
                '</title>\n<rect width="100%" height="100%" fill="white"/>\n')
        for i, (title, tables) in enumerate(panels.items()):
            f.write(f'<g transform="translate({i % columns * WIDTH} {i // columns * HEIGHT})" stroke="#ddd" fill="none">\n')
            lines = [*axes(title), *curves(tables)]
            f.writelines(line.replace("<text", '<text stroke="none"' + ("" if "fill=" in line else ' fill="black"')) + "\n"
                         for line in lines)
            f.write("</g>\n")
        f.write(f'<text x="{LEFT}" y="{HEIGHT * rows + 8}">Tutti\'s time divided by the best peer\'s, over the bytes of '
                'the message</text>\n</svg>\n')
