#!/usr/bin/env python3
"""Check a page of allreduce_perf --report: whole, self-contained, with the figures of the JSON file.

usage: html_results.py PAGE [JSON]
"""
import json
import re
import sys
from html.parser import HTMLParser

EMPTY = {"meta", "line", "circle", "rect", "path", "polyline"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.rows, self.titles, self.texts, self.count = [], [], [], [], {}

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert tag not in ("script", "link", "img", "iframe"), f"<{tag}> in the page"
        assert not {"href", "src"} & set(names) and not any(n.startswith("on") for n in names), attributes
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "title":
            self.titles.append("")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag, f"</{tag}> ends another element"

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th", "code"):
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "text":
            self.texts.append(data)
        elif self.open and self.open[-1] == "title":
            self.titles[-1] += data


def is_shown(text, value):
    """Is text the value? A figure is rounded to the digits of text; the file has nine, so the last may differ by one."""
    return text == value if isinstance(value, str) else abs(float(text) - value) <= 0.6 * 10 ** -len(text.split(".")[1])


def main():
    page = Page()
    page.feed(open(sys.argv[1], encoding="utf-8").read())
    page.close()
    assert not page.open, f"not closed: {page.open}"
    if len(sys.argv) < 3:
        return
    table = [row for row in page.rows if row[0].isdigit()]
    wanted = []
    for row in json.load(open(sys.argv[2]))["results"]:
        for key, place in (("out_of_place", "out of place"), ("in_place", "in place")):
            f = row[key]
            name = f"{row['type']} {row['redop']}, {row['algorithm']}, {place}"
            wanted.append([str(row["size"]), name, row["algorithm"], f["time"], f["p50"], f["p99"], f["alg_bw"], f["bus_bw"],
                           str(f["nwrong"])])
    assert len(table) == len(wanted) > 8, f"{len(table)} rows, not {len(wanted)}"
    for row, figures in zip(table, wanted):
        assert all(map(is_shown, row, figures)), f"{row} is not {figures}"
    assert page.count["svg"] == 2
    limits = {row[0]: row[1] for row in page.rows if row[0] in ("copy", "flag", "wire")}
    for name, unit in (("copy", "GB/s"), ("flag", "us"), ("wire", "GB/s")):
        number = re.match(rf"([0-9.e+-]+) {unit}", limits[name])
        assert number and float(number[1]) > 0, limits
        assert page.texts.count(f"{name}, {number[0]}") == (1 if name == "flag" else 2), (name, page.texts)
    points = [title for title in page.titles[1:] if ", " in title]
    for name in {row[1] for row in table}:
        mine = [p for p in points if p.startswith(name + ": ")]
        assert len(mine) == 2 * sum(row[1] == name for row in table), f"{name}: {mine}"


main()
