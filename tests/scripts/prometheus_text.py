#!/usr/bin/env python3
"""Parse files of Prometheus' text format 0.0.4 as one scrape, strictly, and check histograms and names.

usage: prometheus_text.py FILE... -- SERIES=VALUE...
SERIES is a name, or NAME{label=value,...} with some of its labels; VALUE is a number, or >N: at least
one sample of that series must have it.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)$")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}


def labels_of(text):
    labels, at = {}, 0
    while at < len(text or ""):
        match = LABEL.match(text, at)
        assert match and match[1] not in labels, f"labels: {text}"
        labels[match[1]] = match[2]
        at = match.end()
    return labels


def parse(path, helps, series):
    family = kind = None
    done = set()
    data = open(path, "rb").read().decode("utf-8")
    assert data.endswith("\n"), f"{path}: the last line has no end"
    for line in data[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, family, text = line.split(" ", 3)
            assert re.fullmatch(NAME, family) and family not in done, line
            assert helps.setdefault(family, text) == text, f"{family}: two texts of HELP"
            done.add(family)
            kind = None
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert name == family and kind in SUFFIXES, line
            assert kind != "counter" or name.endswith("_total"), line
        else:
            match = SAMPLE.match(line)
            assert match and kind, f"{path}: {line}"
            assert match[1] in [family + s for s in SUFFIXES[kind]], f"{line}: not of {family}"
            key = match[1], tuple(sorted(labels_of(match[2]).items()))
            assert key not in series, f"{path}: {line}: the same series as in another line or file"
            series[key] = float(match[3])


def check_histograms(series):
    for (name, labels), count in series.items():
        if not name.endswith("_count"):
            continue
        base = name[: -len("_count")]
        buckets = sorted(
            (float(dict(l)["le"]), value)
            for (n, l), value in series.items()
            if n == base + "_bucket" and tuple(x for x in l if x[0] != "le") == labels
        )
        values = [value for _, value in buckets]
        assert values == sorted(values), f"{base}: buckets are not cumulative: {buckets}"
        assert buckets[-1] == (float("inf"), count), f"{base}: +Inf is not the count {count}"
        assert (base + "_sum", labels) in series, base


def has(series, wanted):
    name, value = re.fullmatch(r"(.*)=(>?[0-9.]+)", wanted).groups()
    some = set()
    if "{" in name:
        name, text = name.rstrip("}").split("{")
        some = {tuple(pair.split("=")) for pair in text.split(",")}
    found = [v for (n, l), v in series.items() if n == name and some <= set(l)]
    return any(v > float(value[1:]) if value[0] == ">" else v == float(value) for v in found)


def main():
    end = sys.argv.index("--")
    helps, series = {}, {}
    for path in sys.argv[1:end]:
        parse(path, helps, series)
    check_histograms(series)
    missing = [wanted for wanted in sys.argv[end + 1 :] if not has(series, wanted)]
    assert not missing, f"no sample has {missing}"


main()
