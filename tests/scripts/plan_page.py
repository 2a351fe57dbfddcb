#!/usr/bin/env python3
"""Check the pictures of `tutti plan`: plan_page.py FILE RANKS ROWS, an SVG or an HTML page.

The picture is well-formed, has a heading for each rank, ROWS rows, and nothing outside of its frame. The steps in the
script of a page, executed here, give each rank the sum of all ranks in every block.
"""
import json
import re
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
path, ranks, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
text = open(path).read()


def check_picture(picture):
    width, height = (float(picture.get(key)) for key in ("width", "height"))
    heads = [t.text for t in picture.iter(SVG + "text") if re.fullmatch(r"rank \d+", t.text or "")]
    assert heads == [f"rank {r}" for r in range(ranks)], heads
    groups = picture.findall(SVG + "g")
    assert [g.get("data-row") for g in groups] == [str(i) for i in range(rows)], len(groups)
    assert all(len(g.findall(SVG + "circle")) > 0 for g in groups)
    circles = {(float(c.get("cx")), float(c.get("cy"))) for c in picture.iter(SVG + "circle")}
    for line in picture.iter(SVG + "line"):
        assert (float(line.get("x1")), float(line.get("y1"))) not in circles, f"{line.attrib} crosses the number of a step"
        assert all(0 <= float(line.get(k)) <= width for k in ("x1", "x2")), line.attrib
        assert all(0 <= float(line.get(k)) <= height for k in ("y1", "y2")), line.attrib
        assert line.get("stroke") == "#ccc" or float(line.get("y1")) < float(line.get("y2")), "time goes downward"


def execute(plan):
    memory, wires = {}, {}
    for s in plan["steps"]:
        parts = []
        for src in s["srcs"]:
            if len(src) == 1:
                parts.append(wires[src[0], s["rank"], s["lane"]].pop(0))
            else:
                parts.append([memory.get((s["rank"], src[0], src[1] + i), {s["rank"]} if src[0] == "in" else set())
                              for i in range(s["n"])])
        value = [set().union(*(p[i] for p in parts)) for i in range(s["n"])]
        if s["to"] is not None:
            wires.setdefault((s["rank"], s["to"], s["lane"]), []).append(value)
        if s["dst"]:
            for i, v in enumerate(value):
                memory[s["rank"], s["dst"][0], s["dst"][1] + i] = v
    assert not any(wires.values()), "messages that nobody takes"
    return memory


if path.endswith(".svg"):
    check_picture(tree.fromstring(text))
else:
    assert not re.search(r"<[^>]*\b(src|href)=", text), "the page refers to another file"
    check_picture(tree.fromstring(text[text.index("<svg"):text.index("</svg>") + 6]))
    body = text[text.index("const plan = ") + 13:text.index("]};\n")] + "]}"
    plan = json.loads(re.sub(r"([{,] ?)(ranks|rows|steps):", r'\1"\2":', body).replace("},\n]", "}\n]"))
    assert plan["ranks"] == ranks and plan["rows"] == rows, (plan["ranks"], plan["rows"])
    cells = re.findall(r"data-block='(\d+) out (\d+)'", text)
    memory = execute(plan)
    assert cells and all(memory[int(r), "out", int(b)] == set(range(ranks)) for r, b in cells)
