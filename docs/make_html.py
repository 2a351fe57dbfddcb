#!/usr/bin/env python3
"""make_html.py - README, design pages, results and man pages as linked HTML with one style; called by `make html`

    make_html.py OUT            writes OUT/index.html and the other pages
    make_html.py --check OUT    names every link of OUT/*.html whose file or anchor does not exist; status 1 if there is one

Pages are converted by cmark-gfm (Markdown) and mandoc (mdoc), packages of Debian.
"""
import html
import html.parser
import os
import re
import shutil
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
COMPARED = "compare", "compare-xeon"  # pages with tables beside other libraries
STYLE = """
body { max-width: 62rem; margin: 0 auto; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff }
nav { border-bottom: 1px solid #ccc; padding-bottom: .5rem; margin-bottom: 1rem; font-size: .9rem }
nav a { margin-right: 1rem }
pre, code, .Fl, .Cm, .Nm, .Fn, .Ev, .Fa, .Ft { font-family: ui-monospace, monospace; font-size: .92em }
pre { background: #f5f5f5; padding: .7rem; overflow-x: auto }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border: 1px solid #ddd; padding: .25rem .6rem; vertical-align: top; text-align: left }
table.head, table.foot { display: none }
img { max-width: 100% }
dt { margin-top: .5rem }
a { color: #0645ad }
"""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def listed(folder, suffixes):
    path = os.path.join(TOP, folder)
    return sorted(f"{folder}/{name}" for name in os.listdir(path) if name.endswith(suffixes)) if os.path.isdir(path) else []


def pages():
    """Source file -> name of its page."""
    found = {"README.md": "index.html", "HACKING.md": "hacking.html", "NEWS": "news.html"}
    for folder in ("docs/design", "docs/results"):
        for source in listed(folder, ".md"):
            found[source] = source[len("docs/"):-len(".md")].replace("/", "-") + ".html"
    for source in listed("man", (".1", ".3", ".7")):
        found[source] = os.path.basename(source) + ".html"
    return found


def title_of(source, text):
    if source.startswith("man/"):
        return re.sub(r"(.*)\.(\d)$", r"\1(\2)", os.path.basename(source))
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", text, re.S)
    return re.sub("<[^>]*>", "", heading.group(1)) if heading else source


def anchors(text):
    """Headings of Markdown get the anchors that GitHub gives them."""
    def named(match):
        words = re.sub("<[^>]*>", "", match.group(2))
        slug = re.sub(r"[^\w -]", "", html.unescape(words)).strip().lower().replace(" ", "-")
        return f'<h{match.group(1)} id="{slug}">{match.group(2)}</h{match.group(1)}>'
    return re.sub(r"<h([1-4])>(.*?)</h\1>", named, text, flags=re.S)


def body_of(source):
    path = os.path.join(TOP, source)
    if source.startswith("man/"):
        text = run("mandoc", "-Thtml", "-Oman=%N.%S.html", path)
        return re.search(r"<body>(.*)</body>", text, re.S).group(1)
    if source.endswith(".md"):
        return anchors(run("cmark-gfm", "--unsafe", "-e", "table", path))
    with open(path) as file:
        return "<pre>" + html.escape(file.read()) + "</pre>"


def relink(text, source, names, out):
    """Links to sources become links to their pages; other files of the tree are copied; other man pages are no links."""
    def link(match):
        attribute, target = match.group(1), html.unescape(match.group(2))
        if re.match(r"[a-z]+:|#", target):
            return match.group(0)
        path, _, anchor = target.partition("#")
        anchor = anchor and "#" + anchor
        if path in names.values():
            return f'{attribute}="{path}{anchor}"'
        inside = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if inside in names:
            return f'{attribute}="{names[inside]}{anchor}"'
        if os.path.isfile(os.path.join(TOP, inside)):
            copy = os.path.join("files", inside)
            os.makedirs(os.path.dirname(os.path.join(out, copy)), exist_ok=True)
            shutil.copy(os.path.join(TOP, inside), os.path.join(out, copy))
            return f'{attribute}="{copy}{anchor}"'
        if source.startswith("man/"):
            return ""
        return match.group(0)
    return re.sub(r'\b(href|src)="([^"]*)"', link, text)


def pictures(out):
    """The plots of ratios beside other libraries, drawn from the tables of the results pages."""
    for name in COMPARED:
        page = os.path.join(TOP, "docs/results", name + ".md")
        if os.path.exists(page):
            run(sys.executable, os.path.join(TOP, "perf/compare"), "--plot", page, os.path.join(out, name + ".svg"))


def write(out):
    names = pages()
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(os.path.join(out, "style.css"), "w") as file:
        file.write(STYLE.lstrip())
    pictures(out)
    bodies = {source: relink(body_of(source), source, names, out) for source in names}
    groups = [("Design", "docs/design/"), ("Results", "docs/results/"), ("Manual", "man/")]
    contents = "<h2 id=\"all-pages\">All pages</h2>\n"
    for name, prefix in groups:
        items = [f'<li><a href="{names[s]}">{title_of(s, bodies[s])}</a></li>' for s in sorted(names) if s.startswith(prefix)]
        contents += f"<h3>{name}</h3>\n<ul>\n" + "\n".join(items) + "\n</ul>\n"
    plots = [name for name in COMPARED if os.path.exists(os.path.join(out, name + ".svg"))]
    if plots:
        contents += "<h3>Plots</h3>\n" + "".join(f'<p><a href="{name}.svg">Time beside other libraries, every table of {name}.md'
                                                 "</a></p>\n" for name in plots)
    nav = ('<nav><a href="index.html">Tutti</a><a href="index.html#all-pages">All pages</a><a href="tutti.7.html">tutti(7)</a>'
           '<a href="hacking.html">Hacking</a><a href="news.html">News</a></nav>\n')
    for source, name in names.items():
        with open(os.path.join(out, name), "w") as file:
            file.write('<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
                       '<meta name="viewport" content="width=device-width">'
                       f"<title>{title_of(source, bodies[source])}</title>"
                       '<link rel="stylesheet" href="style.css"></head>\n<body>\n'
                       + nav + bodies[source] + (contents if name == "index.html" else "") + "</body>\n</html>\n")
    print(f"{os.path.join(out, 'index.html')}: {len(names)} pages")


class Links(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        with open(path) as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("href", "src"):
                self.links.append(value or "")
            if key in ("id", "name"):
                self.ids.add(value)


def check(out):
    found = {name: Links(os.path.join(out, name)) for name in sorted(os.listdir(out)) if name.endswith(".html")}
    dead = 0
    for name, page in found.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = path or name
            if not os.path.isfile(os.path.join(out, target)):
                print(f"{name}: {link}: no such file")
                dead += 1
            elif anchor and target in found and anchor not in found[target].ids:
                print(f"{name}: {link}: no such anchor")
                dead += 1
    print(f"{len(found)} pages, {sum(len(p.links) for p in found.values())} links, {dead} dead")
    return 1 if dead or "index.html" not in found else 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2]))
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    write(sys.argv[1])
