#!/bin/sh
# check_html.sh - `make html` makes a page of every document without dead links; an inserted dead link is found
# Called by make check in the build folder.
for tool in python3 cmark-gfm mandoc; do
	command -v $tool >/dev/null || { echo "no $tool (packages python3 cmark-gfm mandoc)"; exit 77; }
done
html="python3 $top_srcdir/docs/make_html.py"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
n=0
point() { n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/log" | tail -n 20; fi; }
export PYTHONDONTWRITEBYTECODE=1

$html "$tmp/html" >"$tmp/log" 2>&1
point $? "make html"
(cd "$top_srcdir" && ls README.md HACKING.md NEWS docs/design/*.md docs/results/*.md man/*.[137]) >"$tmp/sources"
[ "$(ls "$tmp"/html/*.html | wc -l)" = "$(wc -l <"$tmp/sources")" ]
point $? "a page for each of $(wc -l <"$tmp/sources") documents"
$html --check "$tmp/html" >"$tmp/log" 2>&1
point $? "no link is dead"
sed -i 's,</body>,<a href="nowhere.html">x</a><a href="index.html#nothing">y</a></body>,' "$tmp/html/news.html"
! $html --check "$tmp/html" >"$tmp/log" 2>&1 && grep -q 'nowhere.html: no such file' "$tmp/log" &&
	grep -q 'index.html#nothing: no such anchor' "$tmp/log"
point $? "a dead link and a dead anchor are found"
echo 1..$n
